package thresholds

import (
	"fmt"
	"math"
	"slices"

	"github.com/rackproof/rackproof/evidence"
)

// othersByGroup sorts the readings of attempts that do not count by group.
func (x *threshold) othersByGroup() [][]other {
	byGroup := make([][]other, len(x.groups))
	if len(x.others) == 0 {
		return byGroup
	}
	groupOf := make([]int32, len(x.subjects.list))
	for i := range x.groups {
		for _, s := range x.groups[i].subjects {
			groupOf[s] = int32(i)
		}
	}
	for _, o := range x.others {
		i := groupOf[x.slots[o.slot].subject]
		byGroup[i] = append(byGroup[i], o)
	}
	return byGroup
}

// accumulated finds a breach of the upper bound of something that grows with
// time. Such a breach stands in whatever attempt it was seen, also in one
// that was cut, retried or broken: a longer run would have shown no less.
func (x *threshold) accumulated(g *group, others []other) (answer, bool) {
	if !x.plan.Accumulates || x.plan.Max == nil {
		return answer{}, false
	}
	if x.stat != StatMax && x.stat != StatSum && x.stat != StatCount {
		return answer{}, false
	}
	var seen []*reading
	x.eachSlot(g, func(at int32) {
		for i := x.slots[at].head; i >= 0; i = x.samples[i].next {
			seen = append(seen, x.samples[i].reading)
		}
	})
	for _, o := range others {
		seen = append(seen, o.reading)
	}
	seen = slices.DeleteFunc(seen, func(r *reading) bool { return x.flaw(r) != nil })

	total, decisive := x.reached(seen)
	if decisive == nil || total <= *x.plan.Max || math.IsInf(total, 0) {
		return answer{}, false
	}
	a := x.found(g, total, decisive)
	a.reason += fmt.Sprintf(", in attempt %d", decisive.made.Number)
	if decisive.made.Cut {
		a.reason += ", which was cut"
	}
	a.reason += "; time cannot mend that"
	return a, true
}

// reached is how far the statistic had come: the largest sample, or the sum
// or count over all cells of what each reached in its worst attempt.
func (x *threshold) reached(seen []*reading) (total float64, decisive *reading) {
	if x.stat == StatMax {
		for _, r := range seen {
			if decisive == nil || r.number.Value > total {
				total, decisive = r.number.Value, r
			}
		}
		return total, decisive
	}
	byAttempt := map[*evidence.MeasuredAttempt][]float64{}
	for _, r := range seen {
		if r.number.Value < 0 {
			return 0, nil // it does not only grow
		}
		byAttempt[r.made] = append(byAttempt[r.made], r.number.Value)
	}
	reached := map[int32]float64{}
	largest := 0.0
	for _, r := range seen {
		of := byAttempt[r.made]
		if of == nil {
			continue // this attempt was added up before
		}
		delete(byAttempt, r.made)
		amount := float64(len(of))
		if x.stat == StatSum {
			slices.Sort(of)
			amount = sum(of)
		}
		reached[r.cell] = max(reached[r.cell], amount)
		if decisive == nil || amount > largest {
			largest, decisive = amount, r
		}
	}
	amounts := make([]float64, 0, len(reached))
	for _, amount := range reached {
		amounts = append(amounts, amount)
	}
	slices.Sort(amounts)
	return sum(amounts), decisive
}
