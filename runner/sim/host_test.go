package sim_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

// bench is a rack of three nodes with seed 1 under a virtual clock.
type bench struct {
	t *testing.T
	*rack.Rack
	x runner.Executor
}

func onHosts(t *testing.T, f func(b bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := rack.New(rack.Config{Nodes: []string{"gpu001", "gpu002", "gpu003"}, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		x := sim.NewExecutor(sim.NewNodes(r, nil))
		defer x.Close()
		f(bench{t, r, x})
	})
}

type output struct {
	evidence.Exit
	stdout, stderr string
}

func (b bench) run(node string, argv ...string) output {
	b.t.Helper()
	var out, errs bytes.Buffer
	exit, err := b.x.Exec(b.t.Context(), evidence.Task{Node: node, Argv: argv}, &out, &errs)
	if err != nil {
		b.t.Fatal(err)
	}
	return output{exit, out.String(), errs.String()}
}

// says checks the status and both streams of a command by value.
func (b bench) says(code int, stdout, stderr, node string, argv ...string) {
	b.t.Helper()
	got := b.run(node, argv...)
	if got.Code == nil || *got.Code != code || got.stdout != stdout || got.stderr != stderr {
		b.t.Errorf("%q: class %s (%s), stdout\n%s\nstderr\n%s\nwant %d, stdout\n%s\nstderr\n%s", argv, got.Class, got.Detail, got.stdout, got.stderr, code, stdout, stderr)
	}
}

// refuses checks that a tool says that it cannot do this, and does nothing.
func (b bench) refuses(node string, argv ...string) {
	b.t.Helper()
	got := b.run(node, argv...)
	if got.Code == nil || *got.Code != 2 || got.stdout != "" || !strings.Contains(got.stderr, "the simulated rack does not have this") {
		b.t.Errorf("%q: class %s (%s), stdout %q, stderr %q", argv, got.Class, got.Detail, got.stdout, got.stderr)
	}
}

// breaks injects a fault now.
func (b bench) breaks(f rack.Fault) {
	b.t.Helper()
	if err := b.Inject(f); err != nil {
		b.t.Fatal(err)
	}
}
