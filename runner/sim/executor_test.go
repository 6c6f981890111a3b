package sim_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

func TestExecutorRunsTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, err := sim.Kind().Open(t.Context(), nil, []string{"gpu001", "gpu002"})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		var out, errs bytes.Buffer
		exit, err := x.Exec(t.Context(), evidence.Task{Node: "gpu002", Argv: []string{"head", "-v", "-n", "1", "/proc/sys/kernel/hostname", "/nope"}}, &out, &errs)
		if err != nil {
			t.Fatal(err)
		}
		if exit.Class != evidence.ClassExit || *exit.Code != 1 || out.String() != "==> /proc/sys/kernel/hostname <==\ngpu002\n" {
			t.Errorf("head: class %s, stdout %q, stderr %q", exit.Class, out.String(), errs.String())
		}
		if exit.Script != runner.SuperviseDigest {
			t.Errorf("script is %q", exit.Script)
		}
	})
}

func TestHungNodeAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := rack.New(rack.Config{Nodes: []string{"gpu001"}, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Inject(rack.Fault{Kind: rack.KindHungNode, Node: "gpu001"}); err != nil {
			t.Fatal(err)
		}
		x := sim.NewExecutor(sim.NewNodes(r, nil))
		defer x.Close()
		var out, errs bytes.Buffer
		exit, err := x.Exec(t.Context(), evidence.Task{Node: "gpu001", Argv: []string{"true"}, Deadline: time.Minute}, &out, &errs)
		if err != nil {
			t.Fatal(err)
		}
		if exit.Class != evidence.ClassTimeout {
			t.Errorf("class is %s (%s), want %s", exit.Class, exit.Detail, evidence.ClassTimeout)
		}
	})
}
