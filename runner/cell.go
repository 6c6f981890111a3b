package runner

import (
	"fmt"
	"slices"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// cellState is one cell of the plan and what is known of it. While the cell
// runs it belongs to the cell's goroutine.
type cellState struct {
	cell  evidence.Cell
	test  *evidence.Test
	nodes []string // in fleet order
	// locks are its nodes and those that its faults break: nothing else runs
	// on them meanwhile.
	locks []string
	// loads are those of its loads that the fleet shares: no other cell that
	// has one of them runs meanwhile.
	loads  []string
	result evidence.CellResult
	skip   *skip // recorded, and no whole attempt since
	// budget is how many attempts that were not cut it may have in all.
	budget int
	// again says that a resumed run was asked to try it once more.
	again bool
	// settled says that this process did what it could.
	settled bool
}

// loadCells joins the plan's cells with their results so far.
func (r *run) loadCells(records []evidence.Record) ([]*cellState, error) {
	order := make(map[string]int, len(r.plan.Fleet.Nodes))
	for i, n := range r.plan.Fleet.Nodes {
		order[n.Name] = i
	}
	results := make(map[string]evidence.CellResult)
	if slices.ContainsFunc(records, func(rec evidence.Record) bool { return rec.Event == evidence.EventAttemptStart }) {
		for _, result := range checks.Measure(r.o.Checks, r.plan, records, r.o.Store.FS()) {
			results[result.Cell.ID] = result
		}
	}
	cells := make([]*cellState, 0, len(r.plan.Cells))
	for _, cell := range r.plan.Cells {
		test := r.tests[cell.Test]
		if test == nil {
			return nil, fmt.Errorf("plan: cell %s is of test %q, which the plan does not have", cell.ID, cell.Test)
		}
		nodes, err := nodeset.Parse(cell.Nodes, nil)
		if err != nil {
			return nil, fmt.Errorf("plan: cell %s: nodes: %w", cell.ID, err)
		}
		locks := slices.Clone(nodes)
		for _, f := range test.Faults {
			locks = append(locks, f.Nodes...)
		}
		for _, node := range locks {
			if !r.fleet[node] {
				return nil, fmt.Errorf("plan: cell %s is on node %q, which the fleet does not have", cell.ID, node)
			}
		}
		inFleetOrder := func(a, b string) int { return order[a] - order[b] }
		slices.SortFunc(nodes, inFleetOrder)
		slices.SortFunc(locks, inFleetOrder)
		locks = slices.Compact(locks)
		result, ok := results[cell.ID]
		if !ok {
			result = evidence.CellResult{Cell: cell}
		}
		c := &cellState{cell: cell, test: test, nodes: nodes, locks: locks, loads: sharedLoads(test.Loads), result: result, budget: 1 + test.Retries}
		if s, ok := r.history.skips[cell.ID]; ok && c.whole() == 0 {
			c.skip = &s
			if len(result.Attempts) == 0 {
				c.result.Skipped = &s.problem
			}
		}
		if r.askedAgain(c) {
			c.again = true
			c.budget = max(c.budget, c.whole()+1)
		}
		cells = append(cells, c)
	}
	return cells, nil
}

// askedAgain reports whether RetryClasses names how the cell ended.
func (r *run) askedAgain(c *cellState) bool {
	asked := func(p evidence.Problem) bool { return slices.Contains(r.o.RetryClasses, p.Class) }
	if c.skip != nil && asked(c.skip.problem) {
		return true
	}
	if len(c.result.Attempts) == 0 {
		return false
	}
	last := c.result.Attempts[len(c.result.Attempts)-1]
	return slices.ContainsFunc(last.Problems, asked) || slices.ContainsFunc(last.Unmeasured, asked) ||
		slices.ContainsFunc(last.Steps, func(s evidence.Step) bool { return slices.Contains(r.o.RetryClasses, s.Class) })
}

// whole counts the attempts that were not cut.
func (c *cellState) whole() int {
	n := 0
	for _, a := range c.result.Attempts {
		if !a.Cut {
			n++
		}
	}
	return n
}

// done reports whether the cell's attempts are complete: there is a whole
// one, and it passed or used up the budget. A skip is not an attempt.
func (r *run) done(c *cellState) bool {
	whole := c.whole()
	if whole == 0 || c.again {
		return false
	}
	if whole >= c.budget {
		return true
	}
	outcome, measured := r.outcome(c)
	return outcome == evidence.Pass || measured
}

// skippedForGood reports whether the cell's recorded skip stands by itself: a
// skip because of a node stands once the run was closed. Skips because of a
// gate are derived again from the gates.
func (c *cellState) skippedForGood() bool {
	return c.skip != nil && !c.again && !c.skippedByGate() && c.skip.closed
}

// skippedByGate reports whether a gate and not a node kept the cell from
// running. A gate that stops the run names no node.
func (c *cellState) skippedByGate() bool {
	if c.skip == nil {
		return false
	}
	p := c.skip.problem
	return p.Class == evidence.ClassExcluded || p.Class == evidence.ClassNotRun && p.Node == ""
}

// complete reports whether nothing of the plan is left to do.
func (r *run) complete() bool {
	for _, c := range r.cells {
		if !c.settled && !c.skippedForGood() && (c.again || !c.skippedByGate()) && !r.done(c) {
			return false
		}
	}
	for _, phase := range r.plan.Phases {
		_, decided := r.history.gates[phase.Name]
		if r.history.started[phase.Name] && !(r.history.ended[phase.Name] && decided) {
			return false
		}
	}
	return true
}

// outcome judges the cell by itself, for retries and progress. A threshold
// that looks at more than one cell is left out: no single cell can meet or
// miss it. Where that leaves none the outcome is never a pass; measured then
// says that the cell did its part, so that another attempt would be no better.
func (r *run) outcome(c *cellState) (outcome evidence.Outcome, measured bool) {
	if len(c.result.Attempts) == 0 {
		return evidence.Inconclusive, false
	}
	last := c.result.Attempts[len(c.result.Attempts)-1]
	problems := evidence.Pass
	for _, p := range slices.Concat(last.Problems, last.Unmeasured) {
		if !p.Class.ProvedByMeasure() {
			problems = evidence.Worst(problems, p.Class.Outcome())
		}
	}
	test := *c.test
	test.Repeat = 1
	test.Nodes = c.cell.Nodes
	test.Thresholds = nil
	for _, threshold := range c.test.Thresholds {
		if own, ok := r.ownThreshold(c, threshold); ok {
			test.Thresholds = append(test.Thresholds, own)
		}
	}
	if len(test.Thresholds) == 0 {
		return alone(last)
	}
	cell := c.cell
	cell.Repetition = 1
	plan := *r.plan
	plan.Phases = slices.DeleteFunc(slices.Clone(plan.Phases), func(p evidence.Phase) bool { return p.Name != test.Phase })
	plan.Tests = []evidence.Test{test}
	plan.Cells = []evidence.Cell{cell}
	plan.Releases = nil
	for _, t := range r.o.Judge(&plan, []evidence.CellResult{{Cell: cell, Attempts: c.result.Attempts}}).Tests {
		if t.Test == test.Name {
			return evidence.Worst(problems, t.Outcome), false
		}
	}
	return evidence.Inconclusive, false
}

// alone is the outcome of an attempt that no threshold of its own judges, and
// whether it measured all that it should. What Measure could not derive is a
// problem of any class. Other problems that a measurement can outweigh need
// one.
func alone(a evidence.MeasuredAttempt) (outcome evidence.Outcome, measured bool) {
	measured = !a.Cut && len(a.Measurements)+len(a.Facts) > 0
	outcome = evidence.Inconclusive
	for _, p := range a.Problems {
		if !measured || !p.Class.ProvedByMeasure() {
			outcome = evidence.Worst(outcome, p.Class.Outcome())
		}
	}
	for _, p := range a.Unmeasured {
		outcome = evidence.Worst(outcome, p.Class.Outcome())
	}
	whole := !slices.ContainsFunc(a.Problems, func(p evidence.Problem) bool { return !p.Class.ProvedByMeasure() })
	return outcome, measured && whole && len(a.Unmeasured) == 0
}

// ownThreshold is the part of t that the cell alone decides.
func (r *run) ownThreshold(c *cellState, t evidence.Threshold) (evidence.Threshold, bool) {
	if r.cellsOf[c.test.Name] == 1 {
		return t, true
	}
	switch t.Stat {
	case "min", "max", "equals":
	default:
		return t, false
	}
	if t.MinSamples > 1 {
		return t, false
	}
	own, err := r.own.of(c.test.Name, t, c.nodes)
	if err != nil || len(own) == 0 {
		return t, false
	}
	t.Subjects = evidence.FoldSubjects(own)
	return t, true
}
