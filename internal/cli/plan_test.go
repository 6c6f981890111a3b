package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// A time that no rack has is still a time, and not a negative one.
func TestEstimatesDoNotOverflow(t *testing.T) {
	year := evidence.Duration(366 * 24 * time.Hour)
	plan := &evidence.Plan{
		Parallel: 1,
		Phases:   []evidence.Phase{{Name: "soak"}, {Name: "again"}},
		Tests:    []evidence.Test{{Name: "burn", Phase: "soak", Duration: year, Repeat: 400}, {Name: "burn2", Phase: "again", Duration: year, Repeat: 1}},
	}
	for i := range 400 {
		plan.Cells = append(plan.Cells, evidence.Cell{Test: "burn", Nodes: "n1"}, evidence.Cell{Test: "burn2", Nodes: fmt.Sprintf("n%d", i)})
	}
	phases := estimates(plan)
	const hours = 400 * 366 * 24
	for name, got := range phases {
		if got.wall != hours*3600 || got.nodeHours != hours {
			t.Errorf("phase %s: %v s, %v node-hours, want %v s, %v", name, got.wall, got.nodeHours, hours*3600.0, hours)
		}
	}
	if got := roughly(wallTime(plan, phases)); got != "7027200 h" {
		t.Errorf("in all %s", got)
	}
}

func TestRoughly(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0 s", 5: "5 s", 59.9: "59 s", 60: "1 min", 89: "1 min", 90: "2 min", 3599: "1 h", 3600: "1 h", 3660: "1 h 1 min", 95400: "26 h 30 min", 86399: "24 h",
	} {
		if got := roughly(seconds); got != want {
			t.Errorf("%v s: %q, want %q", seconds, got, want)
		}
	}
}

// A fault on one node, of a test with a cell for each of three, is injected
// three times: by every cell, as the runner does.
func TestPlannedFaults(t *testing.T) {
	plan := &evidence.Plan{
		Tests: []evidence.Test{
			{Name: "rate", Scope: evidence.ScopeNode, Faults: []evidence.Fault{
				{Kind: "service_stop", Part: "nic0", Nodes: []string{"n1"}, After: evidence.Duration(time.Minute), For: evidence.Duration(time.Second)},
				{Kind: "command", Nodes: []string{"n1", "n2"}},
			}},
			{Name: "calm"},
		},
		Cells: []evidence.Cell{{Test: "rate", Nodes: "n1"}, {Test: "rate", Nodes: "n2"}, {Test: "rate", Nodes: "n3"}, {Test: "calm", Nodes: "n[1-3]"}},
	}
	want := []plannedFault{
		{Test: "rate", Fault: "service_stop of nic0", Nodes: "n1", After: evidence.Duration(time.Minute), For: evidence.Duration(time.Second), Injections: 3},
		{Test: "rate", Fault: "command", Nodes: "n[1-2]", Injections: 6},
	}
	got := plannedFaults(plan)
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	var out strings.Builder
	showFaults(newLines(&out), got)
	if want := `Faults, injected by every cell of their test, and again by each further attempt
  TEST  FAULT                 NODES   AFTER  FOR  INJECTIONS
  rate  service_stop of nic0  n1      1m0s   1s   3
  rate  command               n[1-2]  0s     0s   6
`; out.String() != want {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	showFaults(newLines(&out), plannedFaults(&evidence.Plan{}))
	if out.String() != "" {
		t.Errorf("no fault: %q", out.String())
	}
}
