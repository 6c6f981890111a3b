package thresholds

import (
	"fmt"
	"slices"

	"github.com/rackproof/rackproof/evidence"
)

// cell is one cell of the plan joined with what is known of it.
type cell struct {
	plan    *evidence.Cell
	nodes   []string
	result  *evidence.CellResult      // nil: nothing is known
	counts  *evidence.MeasuredAttempt // the last attempt that was not cut; nil: there is none
	retried int                       // number of the attempt that counts, where an earlier one was not cut

	problems problems // of the attempt that counts

	judged     bool // a finding rests on it
	unsettled  bool // such a finding is not a pass
	incomplete *lack
}

// newCell joins one cell of the plan with its result. Twice says that there
// were two results for it: then neither can be trusted.
func newCell(p *evidence.Cell, set nodeSet, result *evidence.CellResult, twice bool) *cell {
	nodes := set.nodes
	c := &cell{plan: p, nodes: nodes, result: result}
	if result == nil || result.Skipped != nil {
		return c
	}
	uncut := 0
	for i := range result.Attempts {
		a := &result.Attempts[i]
		if a.Cut {
			continue
		}
		uncut++
		if c.counts == nil || a.Number >= c.counts.Number {
			c.counts = a
		}
	}
	if c.counts == nil {
		return c
	}
	if uncut > 1 {
		c.retried = c.counts.Number
	}
	for i := range c.counts.Problems {
		c.problems.add(&c.counts.Problems[i], nodes, true)
	}
	for i := range c.counts.Unmeasured {
		c.problems.add(&c.counts.Unmeasured[i], nodes, false)
	}
	if set.defect != "" {
		c.problems.add(&evidence.Problem{Class: evidence.ClassUnmeasured, Detail: "the nodes of the cell: " + set.defect}, nodes, false)
	}
	if twice {
		c.problems.add(&evidence.Problem{Class: evidence.ClassUnparsable, Detail: "there are two results for the cell " + p.ID}, nodes, false)
	}
	return c
}

// absent is why no attempt counts; nil where one does.
func (c *cell) absent() *evidence.Problem {
	switch {
	case c.counts != nil:
		return nil
	case c.result == nil:
		return &evidence.Problem{Class: evidence.ClassNotRun, Detail: "there is no result of the cell"}
	case c.result.Skipped != nil:
		return c.result.Skipped
	case len(c.result.Attempts) > 0:
		return &evidence.Problem{Class: evidence.ClassCut, Detail: fmt.Sprintf("%s of the cell: cut by a stop or by the runner's own end", evidence.Count(len(c.result.Attempts), "attempt"))}
	}
	return &evidence.Problem{Class: evidence.ClassNotRun, Detail: "the cell was never run"}
}

// open is the problem for which the cell does not count as measured, with its
// outcome; nil where it counts.
func (c *cell) open() (*evidence.Problem, evidence.Outcome) {
	if absent := c.absent(); absent != nil {
		return absent, atBest(absent)
	}
	if worst := c.problems.worstBlocking; worst != nil {
		return worst, atBest(worst)
	}
	if c.incomplete == nil {
		return nil, evidence.Pass
	}
	if c.incomplete.problem != nil {
		return c.incomplete.problem, c.incomplete.outcome
	}
	return &evidence.Problem{Node: c.incomplete.node, Class: c.incomplete.class, Detail: c.incomplete.where + ": " + c.incomplete.why}, c.incomplete.outcome
}

// attempt is the number of the attempt that counts, or 0.
func (c *cell) attempt() int {
	if c.counts == nil {
		return 0
	}
	return c.counts.Number
}

// atBest is the outcome of something that p left unmeasured: never a pass.
func atBest(p *evidence.Problem) evidence.Outcome {
	return evidence.Worst(evidence.Inconclusive, p.Class.Outcome())
}

// problems are those of one attempt, by whom they hit. Where several hit the
// same, the worst counts, of equals the first.
type problems struct {
	whole, wholeProof    *evidence.Problem // on the whole cell
	node, nodeProof      map[string]*evidence.Problem
	worst, worstBlocking *evidence.Problem // of all
}

// add sorts one problem in. One whose node is not in the cell hits the whole
// cell: it is not known what else it means. Measurements may mend how a step
// ended, where its class says so (mendable); what Measure itself reports they
// never do, for it has seen them.
func (ps *problems) add(p *evidence.Problem, nodes []string, mendable bool) {
	if p.Class == evidence.ClassOK {
		return
	}
	keep := func(at **evidence.Problem) {
		if *at == nil || atBest(p) > atBest(*at) {
			*at = p
		}
	}
	keep(&ps.worst)
	proof := mendable && p.Class.ProvedByMeasure()
	if !proof {
		keep(&ps.worstBlocking)
	}
	if p.Node == "" || !slices.Contains(nodes, p.Node) {
		if proof {
			keep(&ps.wholeProof)
		} else {
			keep(&ps.whole)
		}
		return
	}
	byNode := &ps.node
	if proof {
		byNode = &ps.nodeProof
	}
	if *byNode == nil {
		*byNode = map[string]*evidence.Problem{}
	}
	at := (*byNode)[p.Node]
	keep(&at)
	(*byNode)[p.Node] = at
}

// blocking is the problem because of which a measurement of s does not count
// even if there is one, or nil.
func (ps *problems) blocking(s *subject) *evidence.Problem {
	if ps.worstBlocking == nil {
		return nil
	}
	if s.fleet {
		return ps.worstBlocking
	}
	return pick(ps.whole, ps.node, s)
}

// explaining is the problem that best explains why a measurement of s is not
// there: one of its own nodes, of the cell, or of any other node of the cell.
func (ps *problems) explaining(s *subject) *evidence.Problem {
	if ps.worst == nil || s.fleet {
		return ps.worst
	}
	if p := pick(ps.wholeProof, ps.nodeProof, s); p != nil {
		return p
	}
	return ps.worst
}

func pick(whole *evidence.Problem, node map[string]*evidence.Problem, s *subject) *evidence.Problem {
	worst := whole
	for _, part := range s.parts {
		if p := node[part]; p != nil && (worst == nil || atBest(p) > atBest(worst)) {
			worst = p
		}
	}
	return worst
}
