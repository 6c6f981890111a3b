package quickstart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

// rehearse runs the example on a rack in the process, with faults from its
// beginning on, and a virtual clock.
func rehearse(t *testing.T, seed uint64, faults ...rack.Fault) (verdict evidence.Verdict) {
	t.Helper()
	book, plan := load(t, source(t), nil)
	synctest.Test(t, func(t *testing.T) {
		r, err := rack.New(rack.Config{Nodes: plan.Fleet.NodeNames(), Seed: seed, Speed: speed})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			if err := r.Inject(f); err != nil {
				t.Fatal(err)
			}
		}
		executor := sim.NewExecutor(sim.NewNodes(r, nil))
		defer executor.Close()
		verdict = accept(t, book, plan, executor)
	})
	return verdict
}

func TestHealthyRackPasses(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			v := rehearse(t, seed+1)
			if v.Outcome != evidence.Pass {
				t.Errorf("outcome is %s:\n%s", v.Outcome, strings.Join(open(v), "\n"))
			}
		})
	}
}

// open is everything that kept a verdict from being a pass, a line each.
func open(v evidence.Verdict) []string {
	var lines []string
	for _, c := range v.Coverage.Open {
		lines = append(lines, fmt.Sprintf("cell %s: %s", c.Cell, c.Problem.Error()))
	}
	for _, f := range v.Findings {
		if f.Outcome != evidence.Pass {
			lines = append(lines, fmt.Sprintf("%s: %s %s on %s: %s", f.Outcome, f.Test, f.Threshold, f.Subject, f.Reason))
		}
	}
	const shown = 40 // what many nodes share is said often enough
	if len(lines) > shown {
		lines = append(lines[:shown], fmt.Sprintf("and %d more", len(lines)-shown))
	}
	return lines
}

// Each fault alone turns the verdict, and the verdict names the node and the
// part. No other node is blamed.
func TestEachFaultIsFound(t *testing.T) {
	for _, c := range []struct {
		kind, node, part string
		outcome          evidence.Outcome
		finding          string // test/threshold that names it
	}{
		{rack.KindDeadGPU, "gpu007", "gpu3", evidence.Fail, "bill_of_materials/gpu_present"},
		{rack.KindHotGPU, "gpu021", "gpu5", evidence.Fail, "gpu_burn_in/temperature_max"},
		{rack.KindSlowLink, "gpu012", "mlx5_3", evidence.Fail, "bill_of_materials/link_rate"},
		{rack.KindFlappingLink, "gpu030", "mlx5_6", evidence.Fail, "kernel_messages/link_down"},
		{rack.KindXID79, "gpu002", "gpu0", evidence.Fail, "kernel_messages/xid_fatal"},
		{rack.KindWrongData, "gpu016", "gpu7", evidence.Fail, "gpu_burn_in/errors"},
		{rack.KindSlowStorage, "gpu009", "", evidence.Fail, "small_reads/iops"},
		{rack.KindMissingMount, "gpu025", "", evidence.Inconclusive, ""},
		{rack.KindHungNode, "gpu018", "", evidence.Inconclusive, ""},
		{rack.KindDriverSkew, "gpu005", "", evidence.Fail, "bill_of_materials/mismatches"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			v := rehearse(t, 1, rack.Fault{Kind: c.kind, Node: c.node, Part: c.part})
			if v.Outcome != c.outcome {
				t.Errorf("outcome is %s, want %s", v.Outcome, c.outcome)
			}
			subject := c.node
			if c.part != "" {
				subject += "/" + c.part
			}
			named := slices.ContainsFunc(v.Findings, func(f evidence.Finding) bool {
				return f.Outcome == evidence.Fail && f.Test+"/"+f.Threshold == c.finding && string(f.Subject) == subject
			})
			if c.finding == "" {
				named = slices.ContainsFunc(v.Coverage.Open, func(o evidence.OpenCell) bool { return o.Problem.Node == c.node })
			}
			if !named {
				t.Errorf("%s is not named:\n%s", subject, strings.Join(open(v), "\n"))
			}
			for _, f := range v.Findings {
				blamed, _, _ := strings.Cut(string(f.Subject), "/")
				if f.Outcome == evidence.Fail && blamed != c.node && blamed != string(evidence.SubjectFleet) {
					t.Errorf("%s of %s is blamed by %s: %s", f.Subject, f.Test, f.Threshold, f.Reason)
				}
			}
		})
	}
}
