package thresholds

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/rackproof/rackproof/evidence"
)

// answer is what one group gives.
type answer struct {
	outcome  evidence.Outcome
	observed *float64
	margin   *float64
	text     string
	reason   string
	class    evidence.Class
	node     string
	source   string
}

// survey is what was found in the slots of one group.
type survey struct {
	expected int
	lacks    int
	worst    *lack   // of equals the first
	values   []value // samples of the slots that lack nothing
}

// judge adds one finding for each group.
func (x *threshold) judge() {
	others := x.othersByGroup()
	var comparison *comparison
	if x.stat == StatMADZ {
		comparison = x.compare()
	}
	for i := range x.groups {
		g := &x.groups[i]
		s := x.survey(g)
		var a answer
		switch {
		case g.problem != "":
			a = answer{outcome: evidence.Inconclusive, reason: g.problem, node: g.node}
		case s.lacks > 0:
			a = x.lacking(g, &s)
		case x.plan.Text:
			a = x.texts(g, s.values)
		case comparison != nil:
			a = x.outlier(g, i, comparison)
		default:
			a = x.numbers(g, s.values)
		}
		if g.problem == "" && (a.outcome != evidence.Pass || len(others[i]) > 0) {
			a = x.breached(g, &s, others[i], a)
		}
		x.conclude(g, a)
	}
}

// breached is the answer a, or a failure where what was measured breaches a
// bound whatever a says.
func (x *threshold) breached(g *group, s *survey, others []other, a answer) answer {
	if a.outcome == evidence.Fail {
		return a
	}
	if breach, ok := x.mendless(g, s); ok {
		return breach
	}
	if breach, ok := x.accumulated(g, others); ok {
		return breach
	}
	return a
}

// conclude writes the finding down, and marks the cells that it rests on.
func (x *threshold) conclude(g *group, a answer) {
	retried := 0
	x.eachSlot(g, func(at int32) {
		if s := &x.slots[at]; s.cell >= 0 {
			c := x.test.cells[s.cell]
			c.judged = true
			c.unsettled = c.unsettled || a.outcome != evidence.Pass
			retried = max(retried, c.retried)
		}
	})
	if a.outcome == evidence.Pass && retried > 0 {
		a.reason = fmt.Sprintf("passed on attempt %d", retried)
	}
	if a.node == "" {
		a.node = g.node
	}
	x.test.findings = append(x.test.findings, finding{
		group: g,
		Finding: evidence.Finding{
			Test: x.test.plan.Name, Threshold: x.plan.Name, Subject: g.name,
			Outcome: a.outcome, Observed: a.observed, Margin: a.margin, Unit: x.plan.Unit, Text: a.text,
			Reason: a.reason, Class: a.class, Node: a.node, Source: a.source,
		},
	})
}

// eachSlot visits the slots of a group in order.
func (x *threshold) eachSlot(g *group, visit func(at int32)) {
	for _, s := range g.subjects {
		n := int32(x.combinations * len(x.owned[s]))
		for at := x.base[s]; at < x.base[s]+n; at++ {
			visit(at)
		}
	}
}

// survey looks at every slot of a group. Its values are valid until the next
// call.
func (x *threshold) survey(g *group) survey {
	s := survey{values: x.values[:0]}
	x.eachSlot(g, func(at int32) {
		s.expected++
		l := x.lack(at)
		if l == nil {
			for i := x.slots[at].head; i >= 0; i = x.samples[i].next {
				v := value{combination: x.slots[at].combination, reading: x.samples[i].reading}
				if v.reading.number != nil {
					v.number = v.reading.number.Value
				}
				s.values = append(s.values, v)
			}
			return
		}
		s.lacks++
		if s.worst == nil || l.outcome > s.worst.outcome {
			s.worst = l
		}
		if cell := x.slots[at].cell; cell >= 0 {
			c := x.test.cells[cell]
			if c.incomplete == nil || l.outcome > c.incomplete.outcome {
				sub := &x.subjects.list[x.slots[at].subject]
				l.where, l.node = x.where(sub.name, &x.slots[at]), x.test.node(sub)
				c.incomplete = l
			}
		}
	})
	x.values = s.values
	return s
}

// lacking is the answer of a group of which something is missing.
func (x *threshold) lacking(g *group, s *survey) answer {
	l := s.worst
	a := answer{outcome: l.outcome, class: l.class, source: l.source}
	slot := &x.slots[l.slot]
	sub := &x.subjects.list[slot.subject]
	a.node = x.test.node(sub)
	a.reason = x.where(sub.name, slot) + ": " + l.why
	if p := l.problem; p != nil {
		a.class = p.Class
		if p.Node != "" {
			a.node = p.Node
		}
		a.reason = x.where(sub.name, slot) + ": no measurement counts: "
		if p.Node != "" && p.Node != sub.parts[0] {
			a.reason += p.Node + ": "
		}
		a.reason += string(p.Class)
		if p.Detail != "" {
			a.reason += ": " + p.Detail
		}
	}
	if s.lacks > 1 {
		a.reason += fmt.Sprintf(" (and %d more of %d)", s.lacks-1, s.expected)
	}
	return a
}

// where names a slot: "gpu017/gpu3 at size=16GiB in repetition 2".
func (x *threshold) where(name evidence.Subject, s *slot) string {
	where := string(name)
	if len(x.axes) > 0 {
		where += " at " + spell(x.axes, int(s.combination))
	}
	if x.test.plan.Repeat > 1 {
		r := -s.cell
		if s.cell >= 0 {
			r = int32(x.test.cells[s.cell].plan.Repetition)
		}
		where += fmt.Sprintf(" in repetition %d", r)
	}
	return where
}

// bound compares a statistic with the bounds; the bounds themselves are
// inside. The margin is the distance to the nearer bound, negative outside.
// Breach says which bound was missed by what: "89.5 GB/s, below 90 GB/s".
func (x *threshold) bound(v float64) (outcome evidence.Outcome, distance *float64, breach string) {
	outcome = evidence.Pass
	margin := math.Inf(1)
	if low := x.plan.Min; low != nil {
		margin = min(margin, v-*low)
		if v < *low {
			outcome, breach = evidence.Fail, x.against(v, "below", *low)
		}
	}
	if high := x.plan.Max; high != nil {
		margin = min(margin, *high-v)
		if v > *high {
			outcome, breach = evidence.Fail, x.against(v, "over", *high)
		}
	}
	if math.IsInf(margin, 0) {
		return outcome, nil, breach
	}
	if margin == 0 {
		margin = 0 // never −0
	}
	return outcome, &margin, breach
}

func (x *threshold) against(v float64, relation string, limit float64) string {
	return fmt.Sprintf("%s, %s %s", quantity(rounded(v, limit), x.plan.Unit), relation, quantity(limit, x.plan.Unit))
}

// numbers judges a group that lacks nothing.
func (x *threshold) numbers(g *group, values []value) answer {
	if !x.stat.perCombination() || x.combinations == 1 {
		return x.statistic(g, values, x.plan.MinSamples)
	}
	var worst answer
	for c := range int32(x.combinations) {
		var some []value
		for _, v := range values {
			if v.combination == c {
				some = append(some, v)
			}
		}
		worst = worse(worst, x.statistic(g, some, x.plan.MinSamples))
	}
	return worst
}

// worse is the worse of two answers; of equal outcomes the one with the
// smaller margin, then the first.
func worse(a, b answer) answer {
	if a.outcome == evidence.None {
		return b
	}
	if a.outcome != b.outcome {
		if evidence.Worst(a.outcome, b.outcome) == a.outcome {
			return a
		}
		return b
	}
	if a.margin != nil && b.margin != nil && *b.margin < *a.margin {
		return b
	}
	return a
}

// statistic judges the statistic of values, which lack nothing.
func (x *threshold) statistic(g *group, values []value, need int) answer {
	if len(values) < need {
		return answer{outcome: evidence.Inconclusive, source: x.source(values[0].reading), reason: fmt.Sprintf("%s: %s of %s needs %s and has %d", g.name, x.stat, x.plan.Metric, evidence.Count(need, "sample"), len(values))}
	}
	slices.SortStableFunc(values, func(a, b value) int { return cmp.Compare(a.number, b.number) })
	x.sorted = x.sorted[:0]
	for _, v := range values {
		x.sorted = append(x.sorted, v.number)
	}
	result, at, undefined := x.stat.of(x.sorted)
	decisive := values[at].reading
	if undefined != "" {
		return answer{outcome: evidence.Inconclusive, source: x.source(decisive), reason: fmt.Sprintf("%s: %s: %s", g.name, x.plan.Metric, undefined)}
	}
	return x.found(g, result, decisive)
}

// found is the answer for a statistic that has a value. Decisive is a sample
// that stands for it.
func (x *threshold) found(g *group, result float64, decisive *reading) answer {
	a := answer{observed: &result, source: x.source(decisive)}
	var breach string
	a.outcome, a.margin, breach = x.bound(result)
	if breach != "" {
		a.reason = fmt.Sprintf("%s: %s of %s is %s", x.named(g, decisive), x.stat, x.plan.Metric, breach)
		if x.ranked() || x.stat == StatSpread || x.stat == StatDistinct {
			a.node = x.node(decisive)
		}
	}
	return a
}

// ranked reports whether one sample decides the statistic.
func (x *threshold) ranked() bool {
	_, percentile := x.stat.percentile()
	return percentile || x.stat == StatMin || x.stat == StatMax
}

// named names what a statistic is of: where one sample decides, the subject
// and labels of that, else the group.
func (x *threshold) named(g *group, decisive *reading) string {
	if !x.ranked() && !x.stat.perCombination() {
		return string(g.name)
	}
	name := string(g.name)
	if x.ranked() {
		name = string(decisive.subject())
	}
	if x.combinations > 1 {
		if c, ok := combination(x.axes, decisive.labels()); ok {
			name += " at " + spell(x.axes, c)
		}
	}
	return name
}

// node is the node that a reading is of, or "".
func (x *threshold) node(r *reading) string {
	return x.test.node(&x.subjects.list[x.subjects.index[r.subject()]])
}

// mendless finds a breach, in the samples that count, that nothing still
// missing can mend: a minimum only falls, a maximum and a count only rise.
func (x *threshold) mendless(g *group, s *survey) (answer, bool) {
	if len(s.values) == 0 {
		return answer{}, false
	}
	if x.plan.Text {
		return x.textBreach(g, s.values)
	}
	if x.stat != StatMin && x.stat != StatMax && x.stat != StatCount {
		return answer{}, false
	}
	if x.stat == StatMin && x.plan.Min == nil || x.stat != StatMin && x.plan.Max == nil {
		return answer{}, false
	}
	a := x.statistic(g, s.values, 0)
	if a.outcome != evidence.Fail || x.stat == StatMin && *a.observed >= *x.plan.Min || x.stat != StatMin && *a.observed <= *x.plan.Max {
		return answer{}, false
	}
	return a, true
}
