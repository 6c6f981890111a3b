package thresholds

import (
	"github.com/rackproof/rackproof/evidence"
)

// coverage says how much was measured, and names the rest.
func (j *judge) coverage(tests []*test, findings []evidence.Finding) evidence.Coverage {
	c := evidence.Coverage{Cells: len(j.plan.Cells), Nodes: len(j.plan.Fleet.Nodes), Findings: len(findings)}
	for i := range findings {
		if findings[i].Outcome == evidence.Pass {
			c.Passing++
		}
	}
	for _, t := range tests {
		for _, cell := range t.cells {
			if problem, _ := cell.open(); problem != nil {
				c.Open = append(c.Open, evidence.OpenCell{Cell: cell.plan.ID, Attempt: cell.attempt(), Problem: *problem})
			} else {
				c.Measured++
			}
			if cell.retried > 0 && cell.passes() {
				c.Retried = append(c.Retried, cell.plan.ID)
			}
			if cell.result == nil {
				continue
			}
			for i := range cell.result.Attempts {
				if a := &cell.result.Attempts[i]; a.Cut {
					c.Cuts = append(c.Cuts, evidence.OpenCell{Cell: cell.plan.ID, Attempt: a.Number, Problem: cutBy(a)})
				}
			}
		}
	}
	passing, _ := j.standing(tests).split()
	c.NodesPassing = len(passing)
	return c
}

// cutBy is the problem that says why an attempt was cut.
func cutBy(a *evidence.MeasuredAttempt) evidence.Problem {
	for _, p := range a.Problems {
		if p.Class == evidence.ClassCut {
			return p
		}
	}
	return evidence.Problem{Class: evidence.ClassCut, Detail: "ended by a stop or by the runner's own end"}
}
