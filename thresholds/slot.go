package thresholds

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/rackproof/rackproof/evidence"
)

// slot is one expected measurement.
type slot struct {
	subject, combination int32
	cell                 int32 // −r: no cell of repetition r can measure it
	head, tail           int32 // of its samples, linked by next; −1: none
}

// sample is a reading that was made for a slot.
type sample struct {
	reading *reading
	next    int32
}

// scratch is memory that one threshold, or one test, leaves to the next.
type scratch struct {
	numbers map[string][]reading
	texts   map[string][]reading
	sorted  []float64
	slots   []slot
	base    []int32
	samples []sample
	values  []value
}

// value is a sample that counts.
type value struct {
	number      float64 // 0 for a text
	combination int32
	reading     *reading
}

// threshold is one threshold being judged.
type threshold struct {
	test         *test
	plan         *evidence.Threshold
	stat         Stat
	subjects     *subjects
	groups       []group
	axes         []axis
	combinations int
	owned        [][]int32 // cells by subject
	position     map[[2]int32]int32
	others       []other // readings of attempts that do not count
	unit         string  // of the metric
	*scratch
}

// other is a reading of an expected measurement in an attempt that does not
// count.
type other struct {
	slot    int32
	reading *reading
}

// expect lists the slots: by subject, combination, repetition.
func (x *threshold) expect() bool {
	total := 0
	for _, owners := range x.owned {
		if total += len(owners) * x.combinations; total > MaxExpected {
			return false
		}
	}
	x.slots, x.base, x.samples = x.slots[:0], x.base[:0], x.samples[:0]
	for s, owners := range x.owned {
		x.base = append(x.base, int32(len(x.slots)))
		for c := range x.combinations {
			for _, cell := range owners {
				x.slots = append(x.slots, slot{subject: int32(s), combination: int32(c), cell: cell, head: -1, tail: -1})
			}
		}
	}
	return true
}

// slotOf is the number of the slot that a reading belongs to; false where the
// threshold does not expect it.
func (x *threshold) slotOf(r *reading) (int32, bool) {
	s, ok := x.subjects.index[r.subject()]
	if !ok {
		return 0, false
	}
	c, ok := combination(x.axes, r.labels())
	if !ok {
		return 0, false
	}
	owners := x.owned[s]
	at := x.test.cells[r.cell].plan.Repetition - 1
	if at < 0 || at >= len(owners) || owners[at] != r.cell {
		if at = x.find(s, owners, r.cell); at < 0 {
			return 0, false
		}
	}
	return x.base[s] + int32(c*len(owners)+at), true
}

// find is the position of a cell among the owners of subject s, or −1.
func (x *threshold) find(s int32, owners []int32, cell int32) int {
	if len(owners) <= 16 {
		return slices.Index(owners, cell)
	}
	if x.position == nil {
		x.position = map[[2]int32]int32{}
	}
	if _, indexed := x.position[[2]int32{s, -1}]; !indexed {
		x.position[[2]int32{s, -1}] = 0
		for i, c := range owners {
			if c >= 0 {
				x.position[[2]int32{s, c}] = int32(i)
			}
		}
	}
	if at, ok := x.position[[2]int32{s, cell}]; ok {
		return int(at)
	}
	return -1
}

// collect puts every reading into its slot.
func (x *threshold) collect() {
	from := x.test.numbers
	if x.plan.Text {
		from = x.test.texts
	}
	readings := from[x.plan.Metric]
	decided := x.stat.keepsUnit() || x.plan.Text
	if decided {
		x.unit = x.plan.Unit
	}
	for i := range readings {
		r := &readings[i]
		at, ok := x.slotOf(r)
		if !ok {
			continue
		}
		if !decided { // the plan has the statistic's unit; all samples have to agree on one
			x.unit, decided = r.number.Unit, true
		}
		if !r.counts {
			x.others = append(x.others, other{slot: at, reading: r})
			continue
		}
		n := int32(len(x.samples))
		x.samples = append(x.samples, sample{reading: r, next: -1})
		s := &x.slots[at]
		if s.head < 0 {
			s.head = n
		} else {
			x.samples[s.tail].next = n
		}
		s.tail = n
	}
}

// lack is why a slot has no measurement that counts.
type lack struct {
	slot    int32
	outcome evidence.Outcome
	problem *evidence.Problem // nil: class and why say it all
	class   evidence.Class
	why     string
	source  string
	where   string // the slot's name and node, where the lack is told of a cell
	node    string
}

// lack says what a slot lacks, or nil.
func (x *threshold) lack(at int32) *lack {
	s := &x.slots[at]
	sub := &x.subjects.list[s.subject]
	if s.cell < 0 {
		return &lack{slot: at, outcome: evidence.Inconclusive, class: evidence.ClassNotRun, why: "no cell of the plan measures it"}
	}
	c := x.test.cells[s.cell]
	if p := c.absent(); p != nil {
		return &lack{slot: at, outcome: atBest(p), problem: p, source: c.plan.ID}
	}
	if p := c.problems.blocking(sub); p != nil {
		return &lack{slot: at, outcome: atBest(p), problem: p, source: x.place(c, "")}
	}
	if s.head < 0 {
		l := &lack{slot: at, outcome: evidence.Inconclusive, class: evidence.ClassUnmeasured, why: x.plan.Metric + " was not measured", source: x.place(c, "")}
		if p := c.problems.explaining(sub); p != nil {
			l.outcome, l.problem = atBest(p), p
		}
		return l
	}
	for i := s.head; i >= 0; i = x.samples[i].next {
		if l := x.flaw(x.samples[i].reading); l != nil {
			l.slot, l.source = at, x.source(x.samples[i].reading)
			return l
		}
	}
	return nil
}

// flaw says why a reading is no sample, or nil.
func (x *threshold) flaw(r *reading) *lack {
	if r.text != nil {
		if r.text.Missing != "" {
			return &lack{outcome: evidence.Inconclusive, class: evidence.ClassUnmeasured, why: fmt.Sprintf("%s is %q", x.plan.Metric, r.text.Missing)}
		}
		return nil
	}
	m := r.number
	switch {
	case m.Missing != "":
		return &lack{outcome: evidence.Inconclusive, class: evidence.ClassUnmeasured, why: fmt.Sprintf("%s is %q", x.plan.Metric, m.Missing)}
	case m.Unit != x.unit:
		why := fmt.Sprintf("%s is in %q, not in %q", x.plan.Metric, m.Unit, x.unit)
		if hint := Hint(m.Unit, x.unit); hint != "" {
			why += " (" + hint + ")"
		}
		return &lack{outcome: evidence.Error, class: evidence.ClassUnparsable, why: why}
	case math.IsNaN(m.Value) || math.IsInf(m.Value, 0):
		return &lack{outcome: evidence.Inconclusive, class: evidence.ClassUnmeasured, why: x.plan.Metric + " is not a finite number"}
	}
	return nil
}

// place is "cell#attempt source".
func (x *threshold) place(c *cell, source string) string {
	return placeOf(c.plan.ID, c.attempt(), source)
}

func placeOf(id string, attempt int, source string) string {
	place := id + "#" + strconv.Itoa(attempt)
	if source != "" {
		place += " " + source
	}
	return place
}

func (x *threshold) source(r *reading) string {
	source := ""
	if r.number != nil {
		source = r.number.Source
	} else {
		source = r.text.Source
	}
	return placeOf(x.test.cells[r.cell].plan.ID, r.made.Number, source)
}
