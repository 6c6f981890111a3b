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

// A node that hangs while a command runs says nothing more: no number, and no
// status that would make a whole measurement of half of one.
func TestNodeThatHangsMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name, hangs string
		argv        []string
	}{
		{"burn-in", "gpu001", []string{"gpu_burn", "20"}},
		{"storage", "gpu001", []string{"fio", "--output-format=json", "--name=x", "--directory=/tmp", "--size=1m", "--rw=write", "--time_based", "--runtime=20"}},
		{"processors", "gpu001", []string{"stress-ng", "--cpu", "4", "--timeout", "20"}},
		{"another's ranks", "gpu002", []string{"mpirun", "--host", "gpu001:1,gpu002:1", "-np", "2", "gpu_burn", "20"}},
		{"the launcher's own", "gpu001", []string{"mpirun", "--host", "gpu001:1,gpu002:1", "-np", "2", "gpu_burn", "20"}},
		{"collective", "gpu002", []string{"mpirun", "--host", "gpu001:8,gpu002:8", "-np", "16", "all_reduce_perf", "-b", "4G", "-e", "4G", "-n", "200", "-N", "10"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := rack.New(rack.Config{Nodes: nodeNames(2), Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				// It answers again long before the deadline; what was lost is lost.
				if err := r.Inject(rack.Fault{Kind: rack.KindHungNode, Node: c.hangs, After: 5 * time.Second, For: time.Minute}); err != nil {
					t.Fatal(err)
				}
				x := sim.NewExecutor(sim.NewNodes(r, nil))
				defer x.Close()
				var out, errs bytes.Buffer
				exit, err := x.Exec(t.Context(), evidence.Task{Node: "gpu001", Argv: c.argv, Deadline: 3 * time.Minute}, &out, &errs)
				if err != nil {
					t.Fatal(err)
				}
				if exit.Class != evidence.ClassTimeout || exit.Code != nil {
					t.Errorf("class is %s (%s), want %s; output ends with %q", exit.Class, exit.Detail, evidence.ClassTimeout, out.String()[max(0, out.Len()-300):])
				}
			})
		})
	}
}
