package thresholds

import (
	"fmt"

	"github.com/rackproof/rackproof/evidence"
)

// texts judges a group of facts that lacks nothing.
func (x *threshold) texts(g *group, values []value) answer {
	if need := max(x.plan.MinSamples, x.stat.Samples()); len(values) < need {
		return answer{outcome: evidence.Inconclusive, source: x.source(values[0].reading), reason: fmt.Sprintf("%s: %s needs %s and has %d", g.name, x.plan.Metric, evidence.Count(need, "text"), len(values))}
	}
	if a, ok := x.textBreach(g, values); ok {
		return a
	}
	first := values[0].reading
	if x.stat == StatEquals {
		return answer{outcome: evidence.Pass, text: first.text.Value, source: x.source(first)}
	}
	a := x.found(g, float64(distinct(values)), first)
	a.text = first.text.Value
	return a
}

// textBreach finds texts that breach a bound whatever else is still missing.
func (x *threshold) textBreach(g *group, values []value) (answer, bool) {
	if x.stat == StatEquals {
		for _, v := range values {
			if got := v.reading.text.Value; got != *x.plan.Equals {
				return answer{
					outcome: evidence.Fail, text: got, source: x.source(v.reading), node: x.node(v.reading),
					reason: fmt.Sprintf("%s: %s is %q, not %q", v.reading.subject(), x.plan.Metric, got, *x.plan.Equals),
				}, true
			}
		}
		return answer{}, false
	}
	if x.plan.Max == nil || float64(distinct(values)) <= *x.plan.Max {
		return answer{}, false
	}
	odd := values[0].reading
	for _, v := range values {
		if v.reading.text.Value != odd.text.Value {
			odd = v.reading
			break
		}
	}
	a := x.found(g, float64(distinct(values)), odd)
	a.text = odd.text.Value
	a.reason += fmt.Sprintf(": %q and %q", values[0].reading.text.Value, odd.text.Value)
	return a, true
}

func distinct(values []value) int {
	seen := map[string]bool{}
	for _, v := range values {
		seen[v.reading.text.Value] = true
	}
	return len(seen)
}
