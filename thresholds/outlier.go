package thresholds

import (
	"fmt"
	"math"
	"slices"

	"github.com/rackproof/rackproof/evidence"
)

// comparison is the modified z-score of every group, for each combination of
// labels.
type comparison struct {
	scores    [][]float64 // by combination and group; NaN: no scale
	medians   [][]float64
	undefined string
}

// compare compares the groups that lack nothing with each other.
func (x *threshold) compare() *comparison {
	var complete []int
	samples := make([][][]float64, x.combinations) // by combination and complete group
	for i := range x.groups {
		s := x.survey(&x.groups[i])
		if s.lacks > 0 || x.groups[i].problem != "" {
			continue
		}
		complete = append(complete, i)
		of := make([][]float64, x.combinations)
		for _, v := range s.values {
			of[v.combination] = append(of[v.combination], v.number)
		}
		for c := range of {
			samples[c] = append(samples[c], of[c])
		}
	}
	result := &comparison{scores: make([][]float64, x.combinations), medians: make([][]float64, x.combinations)}
	if need := x.plan.MinSamples; len(complete) < need {
		result.undefined = fmt.Sprintf("mad_z needs %s and has %d", evidence.Count(need, "subject"), len(complete))
		return result
	}
	for c := range samples {
		medians := make([]float64, len(complete))
		for k, of := range samples[c] {
			slices.Sort(of)
			medians[k] = median(of)
		}
		scores, undefined := madScores(medians, x.plan.Resolution)
		if undefined != "" {
			result.undefined = undefined
			return result
		}
		result.scores[c] = make([]float64, len(x.groups))
		result.medians[c] = make([]float64, len(x.groups))
		for k, i := range complete {
			result.scores[c][i], result.medians[c][i] = scores[k], medians[k]
		}
	}
	return result
}

// outlier judges the score of group i, which lacks nothing.
func (x *threshold) outlier(g *group, i int, c *comparison) answer {
	at := x.base[g.subjects[0]]
	first := x.samples[x.slots[at].head].reading
	if c.undefined != "" {
		return answer{outcome: evidence.Inconclusive, source: x.source(first), reason: fmt.Sprintf("%s: %s: %s", g.name, x.plan.Metric, c.undefined)}
	}
	var worst answer
	for k := range c.scores {
		decisive := x.samples[x.slots[at+int32(k*len(x.owned[g.subjects[0]]))].head].reading
		score := c.scores[k][i]
		if math.IsNaN(score) || math.IsInf(score, 0) {
			worst = worse(worst, answer{
				outcome: evidence.Inconclusive, source: x.source(decisive),
				reason: fmt.Sprintf("%s: %s: mad_z has no scale: the subjects' median and MAD are 0, or the score is too large for a number", g.name, x.plan.Metric),
			})
			continue
		}
		a := x.found(g, score, decisive)
		if a.outcome == evidence.Fail {
			a.reason += fmt.Sprintf("; its median is %s", quantity(rounded(c.medians[k][i], 0), x.unit))
		}
		worst = worse(worst, a)
	}
	return worst
}
