package cli

import (
	"errors"
	"fmt"

	"github.com/rackproof/rackproof/evidence"
)

// judgedError is the error of a run that was judged and sealed, or nil.
// delivered is what became of its signature and archive, ran the faults that
// are still in effect.
func judgedError(plan *evidence.Plan, verdict evidence.Verdict, dir string, delivered, ran error) error {
	switch {
	case ran != nil:
		// A fault that is still open makes no verdict better: the code stays
		// the verdict's, and is 1 only where that is a pass.
		return errors.Join(verdictError(plan, verdict, dir), delivered, hinted(ran, "rackproof undo "+dir))
	case delivered != nil:
		return delivered
	}
	return verdictError(plan, verdict, dir)
}

// verdictError is the error of a verdict that is not a pass, or nil.
func verdictError(plan *evidence.Plan, v evidence.Verdict, dir string) error {
	code := exitOfOutcome(v.Outcome)
	if code == ExitOK {
		return nil
	}
	hints := []string{"rackproof report " + dir}
	switch v.Outcome {
	case evidence.Fail:
		return fail(code, fmt.Errorf("acceptance failed: %s", firstOpen(plan, v)), hints...)
	case evidence.Error:
		return fail(code, fmt.Errorf("acceptance is inconclusive, not failed: an instrument of ours broke: %s", firstOpen(plan, v)), hints...)
	}
	hints = append(hints, retryHints(plan, v.Coverage.Open, dir)...)
	return fail(code, fmt.Errorf("acceptance is inconclusive, not failed: %s", firstOpen(plan, v)), hints...)
}

// firstOpen names what gave the verdict its outcome: the first, and how many
// more there are. What a cell left unmeasured is one thing, however many
// findings rest on it.
func firstOpen(plan *evidence.Plan, v evidence.Verdict) string {
	var open []string
	unmeasured := newUnmeasured(plan)
	for _, c := range v.Coverage.Open {
		if c.Problem.Class.Outcome() == v.Outcome {
			open = append(open, fmt.Sprintf("nothing measured in %s: %s", c.Cell, c.Problem.Error()))
			unmeasured.add(c)
		}
	}
	for _, f := range v.Findings {
		if f.Outcome != v.Outcome || unmeasured.explains(f) {
			continue
		}
		text := fmt.Sprintf("%s: %s on %s", f.Test, f.Threshold, f.Subject)
		if f.Reason != "" {
			text += ": " + f.Reason
		}
		open = append(open, text)
	}
	switch len(open) {
	case 0:
		return v.Outcome.String()
	case 1:
		return open[0]
	}
	return fmt.Sprintf("%s, and %d more", open[0], len(open)-1)
}

// unmeasured is the cells that are open, by how they ended.
type unmeasured struct {
	cells map[string]evidence.Cell
	open  map[endedSo]bool
}

// endedSo is a class on a node in a test; on any node where it names none.
type endedSo struct {
	test  string
	class evidence.Class
	node  string
}

func newUnmeasured(plan *evidence.Plan) unmeasured {
	u := unmeasured{cells: make(map[string]evidence.Cell, len(plan.Cells)), open: make(map[endedSo]bool)}
	for _, c := range plan.Cells {
		u.cells[c.ID] = c
	}
	return u
}

func (u unmeasured) add(c evidence.OpenCell) {
	cell := u.cells[c.Cell]
	for _, node := range append(nodesOf(cell), "") {
		u.open[endedSo{cell.Test, c.Problem.Class, node}] = true
	}
}

// explains reports whether an open cell is why f is not a pass: one of its
// test, with its class, on its node.
func (u unmeasured) explains(f evidence.Finding) bool {
	return u.open[endedSo{f.Test, f.Class, f.Node}]
}
