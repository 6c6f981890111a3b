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
	tests := c.testOf()
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
		t, planned := tests[r.Cell]
		if !planned {
			continue // that the plan has no such cell is said where the journal is read
		}
		faults := t.Faults
		if r.FaultIndex < 0 || r.FaultIndex >= len(faults) {
			fail(fmt.Sprintf("one of %d faults", len(faults)), fmt.Sprintf("fault %d", r.FaultIndex))
			continue
		}
		fault := faults[r.FaultIndex]
		if !slices.Contains(fault.Nodes, r.Node) {
			fail(fmt.Sprintf("one of %q", fault.Nodes), r.Node)
		}
		for _, kind := range known.Faults {
			if kind.Name != fault.Kind || kind.Commands == nil {
				continue // that the plan cannot be run is said where it is compiled
			}
			// The command may be another one in another build; that there is
			// one may not.
			_, undo, err := kind.Commands(fault)
			if err == nil && len(undo) > 0 && len(r.Undo) == 0 {
				fail("a command that undoes it", "none")
			}
		}
	}
}
