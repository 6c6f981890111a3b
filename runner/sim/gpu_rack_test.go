package sim_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

// node names of a test's rack, in fleet order.
func nodeNames(n int) []string {
	return []string{"gpu001", "gpu002", "gpu003", "gpu004"}[:n]
}

// result is what a command did.
type result struct {
	stdout, stderr string
	exit           evidence.Exit
	took           time.Duration
}

// status is the exit status, or -1 for none.
func (r result) status() int {
	if r.exit.Code == nil {
		return -1
	}
	return *r.exit.Code
}

// want fails the test if the command ended or printed otherwise.
func (r result) want(t *testing.T, status int, stdout string) {
	t.Helper()
	if r.status() != status {
		t.Errorf("exit status %d (%s %s), want %d; stderr %q", r.status(), r.exit.Class, r.exit.Detail, status, r.stderr)
	}
	if r.stdout != stdout {
		t.Errorf("stdout is\n%s\nwant\n%s", r.stdout, stdout)
	}
}

// holds fails the test if the output has none of the texts.
func holds(t *testing.T, output string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("output has no %q; it ends with\n%s", text, output[max(0, len(output)-600):])
		}
	}
}

// onGPURack runs test in a bubble with a rack of n nodes, of seed 7, and faults.
func onGPURack(t *testing.T, n int, faults []rack.Fault, test func(t *testing.T, run func(argv ...string) result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := rack.New(rack.Config{Nodes: nodeNames(n), Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			if err := r.Inject(f); err != nil {
				t.Fatal(err)
			}
		}
		x := sim.NewExecutor(sim.NewNodes(r, nil))
		defer x.Close()
		test(t, func(argv ...string) result {
			t.Helper()
			var out, errs bytes.Buffer
			start := time.Now()
			exit, err := x.Exec(context.WithoutCancel(t.Context()), evidence.Task{Node: "gpu001", Argv: argv, Deadline: 4 * time.Hour}, &out, &errs)
			if err != nil {
				t.Fatal(err)
			}
			return result{out.String(), errs.String(), exit, time.Since(start)}
		})
	})
}
