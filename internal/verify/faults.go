package verify

import (
	"fmt"
	"slices"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runbook"
)

// checkFaultRecords holds what the journal says was broken, and how it was to
// be mended, against the plan. That each fault was there at all is the judge's
// business.
func checkFaultRecords(c *content, known runbook.Known, s *step) {
	tests := make(map[string]evidence.Test, len(c.plan.Tests))
	for _, t := range c.plan.Tests {
		tests[t.Name] = t
	}
	byCell := make(map[string]string, len(c.plan.Cells))
	for _, cell := range c.plan.Cells {
		byCell[cell.ID] = cell.Test
	}
	for i, r := range c.records {
		if r.Event != evidence.EventFaultOpen {
			continue
		}
		fail := func(expected, actual string) {
			s.fail(attest.Failure{
				Code: CodeFaultDiffers, Path: fmt.Sprintf("%s:%d", evidence.JournalPath, i+1), Message: "this is not a fault of the plan's test, or nothing undoes it",
				Expected: expected, Actual: actual, Next: resignedNext,
			})
		}
		faults := tests[byCell[r.Cell]].Faults
		if r.FaultIndex < 0 || r.FaultIndex >= len(faults) {
			fail(fmt.Sprintf("one of %d faults", len(faults)), fmt.Sprintf("fault %d", r.FaultIndex))
			continue
		}
		planned := faults[r.FaultIndex]
		if !slices.Contains(planned.Nodes, r.Node) {
			fail(fmt.Sprintf("one of %q", planned.Nodes), r.Node)
		}
		for _, kind := range known.Faults {
			if kind.Name != planned.Kind || kind.Commands == nil {
				continue // that the plan cannot be run is said where it is compiled
			}
			// The command may be another one in another build; that there is
			// one may not.
			_, undo, err := kind.Commands(planned)
			if err == nil && len(undo) > 0 && len(r.Undo) == 0 {
				fail("a command that undoes it", "none")
			}
		}
	}
}
