package thresholds

import (
	"slices"

	"github.com/rackproof/rackproof/evidence"
)

// test is one test of the plan with its cells and all that they measured.
type test struct {
	plan         *evidence.Test
	cells        []*cell
	byRepetition []int32
	byNode       map[string][]int32
	byPair       map[[2]string][]int32 // for cells of two nodes in a test of pairs
	owned        map[*subjects][][]int32
	numbers      map[string][]reading // by metric
	texts        map[string][]reading // by fact
	findings     []finding
	nodes        []string
	defect       string                   // of its node set
	fleet        map[string]evidence.Node // every node of the fleet
}

// reading is one measurement or fact, with where it was made.
type reading struct {
	cell   int32
	counts bool // made in the attempt that counts
	made   *evidence.MeasuredAttempt
	number *evidence.Measurement
	text   *evidence.Fact
}

func (r *reading) subject() evidence.Subject {
	if r.number != nil {
		return r.number.Subject
	}
	return r.text.Subject
}

func (r *reading) labels() map[string]string {
	if r.number != nil {
		return r.number.Labels
	}
	return nil
}

// newTest joins one test with its cells; planned are their indexes in the
// plan.
func (j *judge) newTest(plan *evidence.Test, planned []int) *test {
	set := j.set(plan.Nodes)
	t := &test{
		plan:    plan,
		cells:   make([]*cell, 0, len(planned)),
		byNode:  map[string][]int32{},
		byPair:  map[[2]string][]int32{},
		owned:   map[*subjects][][]int32{},
		numbers: j.scratch.numbers,
		texts:   j.scratch.texts,
		nodes:   set.nodes,
		defect:  set.defect,
		fleet:   j.nodes,
	}
	for _, at := range planned {
		c := &j.plan.Cells[at]
		t.cells = append(t.cells, newCell(c, j.set(c.Nodes), j.results[c.ID], j.twice[c.ID]))
	}
	for i, c := range t.cells {
		if r := c.plan.Repetition; r >= 1 && r <= max(1, plan.Repeat) {
			t.byRepetition = append(t.byRepetition, int32(i))
		}
	}
	slices.SortStableFunc(t.byRepetition, func(a, b int32) int {
		return t.cells[a].plan.Repetition - t.cells[b].plan.Repetition
	})
	for _, i := range t.byRepetition {
		nodes := t.cells[i].nodes
		for _, node := range nodes {
			t.byNode[node] = append(t.byNode[node], i)
		}
		if plan.Scope == evidence.ScopePair && len(nodes) == 2 {
			pair := pairOf(nodes[0], nodes[1])
			t.byPair[pair] = append(t.byPair[pair], i)
		}
	}
	t.read()
	return t
}

// read sorts what was measured by name. Attempts that do not count are read
// only for what accumulates.
func (t *test) read() {
	wanted := map[string]bool{}
	accumulates := map[string]bool{}
	for i := range t.plan.Thresholds {
		wanted[t.plan.Thresholds[i].Metric] = true
		if t.plan.Thresholds[i].Accumulates {
			accumulates[t.plan.Thresholds[i].Metric] = true
		}
	}
	for i, c := range t.cells {
		if c.result == nil {
			continue
		}
		for k := range c.result.Attempts {
			a := &c.result.Attempts[k]
			counts := a == c.counts
			for m := range a.Measurements {
				number := &a.Measurements[m]
				if wanted[number.Metric] && (counts || accumulates[number.Metric]) {
					t.numbers[number.Metric] = append(t.numbers[number.Metric], reading{cell: int32(i), counts: counts, made: a, number: number})
				}
			}
			if !counts {
				continue
			}
			for f := range a.Facts {
				text := &a.Facts[f]
				if wanted[text.Name] {
					t.texts[text.Name] = append(t.texts[text.Name], reading{cell: int32(i), counts: true, made: a, text: text})
				}
			}
		}
	}
}

// forget drops what only judging needs. The readings' memory goes to the next
// test.
func (t *test) forget() {
	for metric, readings := range t.numbers {
		t.numbers[metric] = readings[:0]
	}
	for name, readings := range t.texts {
		t.texts[name] = readings[:0]
	}
	t.numbers, t.texts, t.owned, t.byNode, t.byPair, t.byRepetition = nil, nil, nil, nil, nil, nil
}

// node is the node that a subject is on, or "" where it is of a whole set.
func (t *test) node(s *subject) string {
	if _, ok := t.fleet[s.parts[0]]; ok {
		return s.parts[0]
	}
	return ""
}

// result sums the test up, when it has been judged.
func (t *test) result() evidence.TestResult {
	r := evidence.TestResult{Test: t.plan.Name, Cells: len(t.cells)}
	outcomes := make([]evidence.Outcome, 0, len(t.findings)+len(t.cells))
	for i := range t.findings {
		outcomes = append(outcomes, t.findings[i].Outcome)
	}
	for _, c := range t.cells {
		problem, outcome := c.open()
		if problem != nil {
			outcomes = append(outcomes, outcome)
			continue
		}
		if c.passes() {
			r.Passed++
			if c.retried > 0 {
				r.Retried++
			}
		}
	}
	r.Outcome = evidence.Worst(outcomes...)
	if len(t.cells) == 0 {
		r.Outcome = evidence.Worst(r.Outcome, evidence.Inconclusive)
	}
	return r
}

// passes reports whether every finding that rests on the cell passes, and
// there is one, and nothing of the cell is open.
func (c *cell) passes() bool {
	problem, _ := c.open()
	return problem == nil && c.judged && !c.unsettled
}
