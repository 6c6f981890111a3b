package thresholds

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// Stat is a statistic that a threshold can bind, by its name in a runbook:
//
//	min max mean median   of all samples of a group; a mean that rounding has
//	                      moved past the least or the greatest sample is that
//	                      sample
//	p1 … p99              percentile by nearest rank: sample ceil(q·n/100) of n
//	count                 number of samples
//	sum                   of all samples
//	spread                (max − min) / |median|, in percent
//	mad_z                 modified z-score of a subject among all subjects:
//	                      0.6745·(x − median) / max(MAD, resolution, 0.5 % of |median|)
//	                      where x is the median of the subject's samples
//	                      (Iglewicz and Hoaglin 1993)
//	distinct              number of different texts
//	equals                the text itself, the same for all
//
// Every number is computed here, with one order of operations, from samples
// sorted in ascending order. Products are rounded by an explicit conversion
// before anything is added to them, so no platform may fuse the two; the
// result is the same, bit for bit, everywhere.
type Stat string

// The statistics beside the percentiles.
const (
	StatMin      Stat = "min"
	StatMax      Stat = "max"
	StatMean     Stat = "mean"
	StatMedian   Stat = "median"
	StatCount    Stat = "count"
	StatSum      Stat = "sum"
	StatSpread   Stat = "spread"
	StatMADZ     Stat = "mad_z"
	StatDistinct Stat = "distinct"
	StatEquals   Stat = "equals"
)

var words = []Stat{StatMin, StatMax, StatMean, StatMedian, StatCount, StatSum, StatSpread, StatMADZ, StatDistinct, StatEquals}

// madSubjects is the least number of subjects for mad_z: among fewer, the
// median and MAD follow the outlier.
const madSubjects = 5

// StatNames returns every name that ParseStat reads, the words first and then
// p1 to p99.
func StatNames() []string {
	names := make([]string, 0, len(words)+99)
	for _, w := range words {
		names = append(names, string(w))
	}
	for q := 1; q <= 99; q++ {
		names = append(names, "p"+strconv.Itoa(q))
	}
	return names
}

// ParseStat reads the name of a statistic.
func ParseStat(text string) (Stat, error) {
	s := Stat(text)
	if _, ok := s.percentile(); ok || slices.Contains(words, s) {
		return s, nil
	}
	return "", fmt.Errorf("unknown statistic %q: want one of min, max, mean, median, p1 to p99, count, sum, spread, mad_z, distinct, equals", text)
}

// percentile is the q of pq, from 1 to 99.
func (s Stat) percentile() (int, bool) {
	digits, found := strings.CutPrefix(string(s), "p")
	q, err := strconv.Atoi(digits)
	if !found || err != nil || q < 1 || q > 99 || strconv.Itoa(q) != digits {
		return 0, false
	}
	return q, true
}

// Samples is the least number of samples that the statistic needs: for a
// percentile q it is 1/min(q, 1−q), so that at least one sample lies beyond
// it (p95 20, p99 100, p5 20); for mad_z it is a number of subjects. One text
// alone differs from none, so distinct needs two.
func (s Stat) Samples() int {
	if q, ok := s.percentile(); ok {
		beyond := min(q, 100-q)
		return (100 + beyond - 1) / beyond
	}
	switch s {
	case StatMADZ:
		return madSubjects
	case StatSpread, StatDistinct:
		return 2
	}
	return 1
}

// Text reports whether the statistic is of text facts. All others are of
// numbers.
func (s Stat) Text() bool { return s == StatDistinct || s == StatEquals }

// Unit is the unit of the statistic of a metric with the unit metric: "1" for
// mad_z, count and distinct, "%" for spread, none for equals, else metric.
func (s Stat) Unit(metric string) string {
	switch s {
	case StatMADZ, StatCount, StatDistinct:
		return "1"
	case StatSpread:
		return "%"
	case StatEquals:
		return ""
	}
	return metric
}

// keepsUnit reports whether the statistic has the metric's own unit.
func (s Stat) keepsUnit() bool { return s.Unit("m") == "m" }

// perCombination reports whether samples with different labels must not be
// mixed: a spread between two sizes is no spread.
func (s Stat) perCombination() bool { return s == StatSpread || s == StatMADZ }

// of computes the statistic of samples in ascending order. At is the index of
// a sample that stands for the result. Undefined says why there is no result;
// it is empty where there is one.
func (s Stat) of(sorted []float64) (value float64, at int, undefined string) {
	n := len(sorted)
	if need := s.Samples(); n < need && !s.Text() {
		return 0, 0, fmt.Sprintf("%s needs %s and has %d", s, evidence.Count(need, "sample"), n)
	}
	if q, ok := s.percentile(); ok {
		at = (q*n+99)/100 - 1
		return finite(sorted[at], at)
	}
	switch s {
	case StatMin:
		return finite(sorted[0], 0)
	case StatMax:
		return finite(sorted[n-1], n-1)
	case StatMean:
		return finite(mean(sorted), 0)
	case StatMedian:
		return finite(median(sorted), (n-1)/2)
	case StatCount:
		return finite(float64(n), 0)
	case StatSum:
		return finite(sum(sorted), 0)
	case StatSpread:
		middle := median(sorted)
		if middle == 0 {
			return 0, 0, "spread is relative to the median, which is 0"
		}
		relative := (sorted[n-1] - sorted[0]) / math.Abs(middle)
		return finite(float64(relative*100), 0)
	}
	return 0, 0, fmt.Sprintf("%s is not a statistic of one group of numbers", s)
}

// finite refuses a result that left the range of numbers, and a negative zero.
func finite(value float64, at int) (float64, int, string) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, 0, "the result is too large for a number"
	}
	if value == 0 {
		value = 0 // never −0
	}
	return value, at, ""
}

func sum(sorted []float64) float64 {
	total := 0.0
	for _, x := range sorted {
		total += x
	}
	return total
}

// mean is the sum by the number of samples, and never outside of them: three
// samples of 0.1 add up to more than 0.3, and what every sample meets their
// mean meets too. A sum that is too large for a number stays so.
func mean(sorted []float64) float64 {
	n := len(sorted)
	m := sum(sorted) / float64(n)
	if math.IsInf(m, 0) {
		return m
	}
	return min(max(m, sorted[0]), sorted[n-1])
}

func median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// madScores are the modified z-scores of subjects, given the median of each,
// in their order. Undefined, where it is not empty, is why there are none. A
// score is NaN where it has no scale: the subject differs, median, MAD and
// resolution are all 0.
func madScores(medians []float64, resolution float64) (scores []float64, undefined string) {
	if len(medians) < madSubjects {
		return nil, fmt.Sprintf("mad_z compares at least %d subjects and has %d", madSubjects, len(medians))
	}
	sorted := slices.Clone(medians)
	slices.Sort(sorted)
	middle := median(sorted)
	for i, x := range sorted {
		sorted[i] = math.Abs(x - middle)
	}
	slices.Sort(sorted)
	scale := max(median(sorted), resolution, float64(0.005*math.Abs(middle)))
	scores = make([]float64, len(medians))
	for i, x := range medians {
		if x == middle {
			continue
		}
		if scale == 0 {
			scores[i] = math.NaN()
			continue
		}
		scores[i] = float64(0.6745*(x-middle)) / scale
	}
	return scores, ""
}
