// Package thresholds is what is good enough: it judges the measurements of a
// run against the bounds of its plan. Judging is pure: the same plan and the
// same cells give the same verdict, bit for bit, on every platform, and no
// measurement is never a pass.
//
// Every threshold expects a measurement of each of its subjects, with each
// combination of its labels, in each repetition. A group of them that lacks
// one is at best inconclusive; it fails all the same where what was measured
// already breaches a bound that no further measurement can mend.
package thresholds

import (
	"fmt"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// Judge judges a run. Cells may come in any order; a cell of the plan that is
// not among them was not run, and a cell that the plan does not have counts
// for nothing. Of the attempts of a cell the last that was not cut counts.
//
// The verdict's outcome is the worst of all findings and all open cells.
// Gates, releases and a narrowed plan do not change it.
func Judge(p *evidence.Plan, cells []evidence.CellResult) evidence.Verdict {
	j := newJudge(p, cells)
	tests := j.tests(func(*evidence.Test) bool { return true })
	v := evidence.Verdict{
		MediaType: evidence.MediaVerdict,
		Minor:     evidence.Minor,
		Gates:     []evidence.GateResult{},
		Tests:     []evidence.TestResult{},
	}
	var outcomes []evidence.Outcome
	total := 0
	for _, t := range tests {
		r := t.result()
		v.Tests = append(v.Tests, r)
		outcomes = append(outcomes, r.Outcome)
		total += len(t.findings)
	}
	v.Findings = make([]evidence.Finding, 0, total)
	for _, t := range tests {
		for i := range t.findings {
			v.Findings = append(v.Findings, t.findings[i].Finding)
		}
	}
	for _, reason := range j.defects(tests) {
		v.Findings = append(v.Findings, evidence.Finding{Subject: evidence.SubjectFleet, Outcome: evidence.Inconclusive, Reason: reason})
		outcomes = append(outcomes, evidence.Inconclusive)
	}
	v.Outcome = evidence.Worst(outcomes...)
	v.Coverage = j.coverage(tests, v.Findings)
	for i := range p.Phases {
		v.Gates = append(v.Gates, j.gate(&p.Phases[i], inPhase(tests, p.Phases[i].Name)))
	}
	for i := range p.Releases {
		v.Releases = append(v.Releases, j.release(&p.Releases[i], tests))
	}
	return v
}

// judge holds what is looked up often. It lives for one call.
type judge struct {
	plan     *evidence.Plan
	results  map[string]*evidence.CellResult // by the cell's id
	twice    map[string]bool                 // cells with more than one result
	nodes    map[string]evidence.Node        // of the fleet, by name
	labels   map[string]bool                 // labels that any node has
	sets     map[string]nodeSet              // those with a node of the fleet
	named    int                             // names of all sets that were asked for
	subjects map[string]*subjects            // by their patterns
	expanded int                             // subjects of all of them
	scratch  scratch
}

func newJudge(p *evidence.Plan, cells []evidence.CellResult) *judge {
	j := &judge{
		plan:     p,
		results:  make(map[string]*evidence.CellResult, len(cells)),
		twice:    map[string]bool{},
		nodes:    make(map[string]evidence.Node, len(p.Fleet.Nodes)),
		labels:   map[string]bool{},
		sets:     map[string]nodeSet{},
		subjects: map[string]*subjects{},
		scratch:  scratch{numbers: map[string][]reading{}, texts: map[string][]reading{}},
	}
	for i := range cells {
		id := cells[i].Cell.ID
		if j.results[id] != nil {
			j.twice[id] = true
			continue
		}
		j.results[id] = &cells[i]
	}
	for _, n := range p.Fleet.Nodes {
		j.nodes[n.Name] = n
		for label := range n.Labels {
			j.labels[label] = true
		}
	}
	return j
}

// nodeSet is a folded node set of the plan, read.
type nodeSet struct {
	nodes  []string // of the fleet
	size   int      // names that it stands for, of the fleet or not
	defect string   // why nodes are not all that it was to stand for
}

var overNamed = fmt.Sprintf("the plan's node sets name more than %d nodes in all", evidence.MaxPlanNodes)

// set reads a folded node set of the plan. A few bytes may stand for many
// nodes, and a plan is judged whoever wrote it: only nodes of the fleet are
// kept, whose names the plan spells out, and once the sets that were asked for
// name too many, the next have none.
func (j *judge) set(text string) nodeSet {
	if j.named > evidence.MaxPlanNodes {
		return nodeSet{defect: overNamed}
	}
	s, known := j.sets[text]
	if !known {
		s = j.readSet(text)
	}
	if j.named += s.size; j.named > evidence.MaxPlanNodes {
		return nodeSet{defect: overNamed}
	}
	if !known && len(s.nodes) > 0 {
		j.sets[text] = s
	}
	return s
}

func (j *judge) readSet(text string) nodeSet {
	names, err := nodeset.Parse(text, nil)
	if err != nil {
		return nodeSet{defect: err.Error()}
	}
	s := nodeSet{size: len(names)}
	stranger := ""
	for _, name := range names {
		if n, ok := j.nodes[name]; ok {
			s.nodes = append(s.nodes, n.Name) // not name: that would be kept too
		} else if stranger == "" {
			stranger = name
		}
	}
	switch more := s.size - len(s.nodes) - 1; {
	case more == 0:
		s.defect = stranger + " is not in the fleet"
	case more > 0:
		s.defect = fmt.Sprintf("%s and %d more are not in the fleet", stranger, more)
	}
	return s
}

// tests judges every test of the plan that is wanted, in the plan's order.
func (j *judge) tests(wanted func(*evidence.Test) bool) []*test {
	cells := map[string][]int{}
	for i := range j.plan.Cells {
		name := j.plan.Cells[i].Test
		cells[name] = append(cells[name], i)
	}
	var tests []*test
	for i := range j.plan.Tests {
		plan := &j.plan.Tests[i]
		if !wanted(plan) {
			continue
		}
		t := j.newTest(plan, cells[plan.Name])
		j.judgeTest(t)
		t.forget()
		tests = append(tests, t)
	}
	return tests
}

func inPhase(tests []*test, phase string) []*test {
	var in []*test
	for _, t := range tests {
		if t.plan.Phase == phase {
			in = append(in, t)
		}
	}
	return in
}

// defects are faults of the plan that no test stands for.
func (j *judge) defects(tests []*test) []string {
	var reasons []string
	if len(j.plan.Tests) == 0 {
		reasons = append(reasons, "the plan has no test")
	}
	if len(j.plan.Cells) == 0 {
		reasons = append(reasons, "the plan has no cell")
	}
	for i := range j.plan.Phases {
		if name := j.plan.Phases[i].Name; len(inPhase(tests, name)) == 0 {
			reasons = append(reasons, fmt.Sprintf("phase %q has no test", name))
		}
	}
	named := map[string]bool{}
	for _, t := range tests {
		named[t.plan.Name] = true
	}
	for i := range j.plan.Cells {
		if c := &j.plan.Cells[i]; !named[c.Test] {
			reasons = append(reasons, fmt.Sprintf("cell %q belongs to no test of the plan", c.ID))
		}
	}
	return reasons
}
