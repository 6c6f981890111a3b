package thresholds

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// standing is how the nodes of some tests stand.
type standing struct {
	nodes []string // of the tests, in the fleet's order
	good  map[string]bool
	open  []string // findings on more than one node that do not pass, and cells
}

// standing judges nodes: one passes if every finding about it passes and no
// cell is open because of it. A node without a finding of its own passes if
// the findings of its tests as a whole do, and there is one.
func (j *judge) standing(tests []*test) standing {
	bad, own, shared, sharedBad := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	member := map[string]bool{}
	s := standing{good: map[string]bool{}}
	for _, t := range tests {
		wholes, wholeOpen := 0, false
		for i := range t.findings {
			f := &t.findings[i]
			if f.whole() {
				wholes++
				if f.Outcome != evidence.Pass {
					wholeOpen = true
					s.open = append(s.open, f.title())
				}
				continue
			}
			own[f.group.node] = true
			if f.Outcome != evidence.Pass {
				bad[f.group.node] = true
			}
		}
		for _, c := range t.cells {
			problem, outcome := c.open()
			switch {
			case problem == nil:
			case problem.Node != "" && slices.Contains(c.nodes, problem.Node):
				bad[problem.Node] = true
			case len(c.nodes) == 1 || len(c.nodes) > 0 && len(c.nodes) < len(t.nodes):
				for _, n := range c.nodes {
					bad[n] = true
				}
			default:
				wholeOpen = true
				s.open = append(s.open, fmt.Sprintf("cell %s is %s", c.plan.ID, outcome))
			}
		}
		if t.defect != "" {
			s.open = append(s.open, t.defect)
		}
		for _, node := range t.nodes {
			member[node] = true
			shared[node] = shared[node] || wholes > 0
			sharedBad[node] = sharedBad[node] || wholeOpen
		}
	}
	for _, n := range j.plan.Fleet.Nodes {
		if !member[n.Name] {
			continue
		}
		s.nodes = append(s.nodes, n.Name)
		s.good[n.Name] = !bad[n.Name] && (own[n.Name] || shared[n.Name] && !sharedBad[n.Name])
	}
	return s
}

// split divides the nodes into those that pass and the others.
func (s standing) split() (passing, failing []string) {
	for _, n := range s.nodes {
		if s.good[n] {
			passing = append(passing, n)
		} else {
			failing = append(failing, n)
		}
	}
	return passing, failing
}

// Gate decides the gate of one phase from the cells that there are. It judges
// the tests of that phase only.
//
// The gate is met if as many of the phase's nodes pass as it requires, and
// every finding on more than one node passes too. A node that was excluded
// before counts as failing: its cells were not run.
func Gate(p *evidence.Plan, cells []evidence.CellResult, phase string) evidence.GateResult {
	at := slices.IndexFunc(p.Phases, func(ph evidence.Phase) bool { return ph.Name == phase })
	if at < 0 {
		return evidence.GateResult{Phase: phase, Reason: fmt.Sprintf("the plan has no phase %q", phase)}
	}
	j := newJudge(p, cells)
	tests := j.tests(func(t *evidence.Test) bool { return t.Phase == phase })
	return j.gate(&p.Phases[at], tests)
}

func (j *judge) gate(phase *evidence.Phase, tests []*test) evidence.GateResult {
	r := evidence.GateResult{Phase: phase.Name}
	if len(tests) == 0 {
		r.Reason = "the phase has no test"
		return r
	}
	s := j.standing(tests)
	passing, failing := s.split()
	if len(passing) > 0 {
		r.Passing = []string{nodeset.Fold(passing)}
	}
	if len(failing) > 0 {
		r.Failing = []string{nodeset.Fold(failing)}
	}
	needed, err := phase.Gate.Needed(len(s.nodes))
	if err != nil {
		r.Reason = err.Error()
		return r
	}
	r.Needed = needed
	var reasons []string
	if len(s.nodes) == 0 {
		reasons = append(reasons, "no node of the fleet is in the phase")
	}
	if len(passing) < needed {
		reasons = append(reasons, fmt.Sprintf("%d of %s pass, and %d have to", len(passing), evidence.Count(len(s.nodes), "node"), needed))
	}
	if len(s.open) > 0 {
		reasons = append(reasons, andMore(s.open))
	}
	r.Met = len(reasons) == 0
	r.Reason = strings.Join(reasons, "; ")
	return r
}

// andMore is the first of some reasons and the number of the others.
func andMore(reasons []string) string {
	if len(reasons) > 1 {
		return fmt.Sprintf("%s (and %d more)", reasons[0], len(reasons)-1)
	}
	return reasons[0]
}
