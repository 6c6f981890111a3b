package reports

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// The frame of a chart, in the units of its drawing.
const (
	chartLeft, chartRight = 64, 744
	chartTop, chartBottom = 14, 222
	maxTicks              = 7
	maxLabels             = 12 // of sizes below an axis
	maxPoints             = 400
)

// chart is a median with the band of all subjects around it, as a drawing and
// as a table.
type chart struct {
	Title, About string
	XName        string
	XTicks       []tick
	YTicks       []tick
	Band, Line   string // lists of points
	Dots         []point
	Limits       []limitLine
	Rows         []chartRow
	Missing      int
}

type point struct{ X, Y string }

type tick struct{ At, Label string }

// limitLine is a bound, over the part of the axis that it binds.
type limitLine struct {
	X1, X2, Y, LabelY, Label string
}

type chartRow struct {
	At                       string
	Count                    int
	Missing                  int
	Lowest, Median, Greatest string
}

// stop is one place on the axis with what was measured there.
type stop struct {
	label   string
	at      float64
	values  []float64
	missing int

	low, middle, high float64
}

// stops sorts samples by the value of the axis' label, as place reads it.
// Samples with a value that cannot be read are left out and counted.
func stops(samples []reading, place func(string) (float64, bool)) (list []*stop, unplaced int) {
	by := map[string]*stop{}
	for _, s := range samples {
		st := by[s.at]
		if st == nil {
			x, ok := place(s.at)
			if !ok {
				unplaced++
				continue
			}
			st = &stop{label: s.at, at: x}
			by[s.at] = st
		}
		if s.missing {
			st.missing++
			continue
		}
		st.values = append(st.values, s.value)
	}
	list = slices.SortedFunc(maps.Values(by), func(a, b *stop) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.label, b.label))
	})
	for _, st := range list {
		if len(st.values) > 0 {
			st.middle = middle(st.values)
			st.low, st.high = st.values[0], st.values[len(st.values)-1]
		}
	}
	return list, unplaced
}

// sizeCurves draws every metric that was measured at several sizes.
func (m *measured) sizeCurves(limits limitsOf, order map[string]int) []chart {
	var charts []chart
	for _, q := range sortedQuantities(m.sizes, order) {
		list, unplaced := stops(m.sizes[q], func(size string) (float64, bool) {
			n, err := evidence.ParseBytes(size)
			return math.Log2(max(float64(n), 1)), err == nil
		})
		if len(list) < 2 {
			continue
		}
		c := newChart(q, "size", list, limits.ofValues(q.test, q.metric), func(t evidence.Threshold, s *stop) bool {
			sizes := t.At[sizeLabel]
			return len(sizes) == 0 || slices.Contains(sizes, s.label)
		}, true)
		c.XName = "size, on a logarithmic axis"
		c.XTicks = sizeTicks(list)
		c.Missing += unplaced
		charts = append(charts, c)
	}
	return charts
}

func sizeTicks(list []*stop) []tick {
	x := axis(list)
	every := (len(list) + maxLabels - 1) / maxLabels
	var ticks []tick
	for i := 0; i < len(list); i += every {
		ticks = append(ticks, tick{coordinate(x(list[i].at)), list[i].label})
	}
	return ticks
}

// soakSeries draws every metric that was measured slice by slice.
func (m *measured) soakSeries(limits limitsOf, order map[string]int) []chart {
	var charts []chart
	for _, q := range sortedQuantities(m.series, order) {
		list, unplaced := stops(m.series[q], func(slice string) (float64, bool) {
			seconds, err := strconv.ParseFloat(slice, 64)
			return seconds, err == nil && !math.IsNaN(seconds) && !math.IsInf(seconds, 0)
		})
		if len(list) < 2 {
			continue
		}
		bound := limits.ofValues(q.test, q.metric)
		for _, t := range limits.ofValues(q.test, strings.TrimPrefix(q.metric, seriesPrefix)) {
			if t.Unit == q.unit {
				bound = append(bound, t)
			}
		}
		c := newChart(q, "slice", list, bound, func(evidence.Threshold, *stop) bool { return true }, false)
		c.XTicks, c.XName = timeTicks(list)
		c.Missing += unplaced
		charts = append(charts, c)
	}
	return charts
}

func timeTicks(list []*stop) ([]tick, string) {
	first, last := list[0].at, list[len(list)-1].at
	const minute, hour = 60.0, 3600.0
	unit, per := "h", hour
	switch {
	case last-first < 2*minute:
		unit, per = "s", 1
	case last-first < 2*hour:
		unit, per = "min", minute
	}
	x := axis(list)
	var ticks []tick
	for _, v := range niceTicks(first/per, last/per) {
		ticks = append(ticks, tick{coordinate(x(v * per)), Exact(v) + " " + unit})
	}
	return ticks, "time since the start of the attempt"
}

// newChart draws the stops of q, of which place is what one is called. Binds says whether a threshold binds a stop;
// fromZero makes the lowest value of the axis 0, where nothing is below.
func newChart(q quantity, place string, list []*stop, thresholds []evidence.Threshold, binds func(evidence.Threshold, *stop) bool, fromZero bool) chart {
	c := chart{Title: q.test + ": " + WithUnit(q.name(), bracket(q.unit))}
	var limits []float64
	for _, t := range thresholds {
		limits = append(limits, bounds(t)...)
	}
	subjects := 0
	for _, s := range list {
		row := chartRow{At: s.label, Count: len(s.values), Missing: s.missing, Lowest: "none", Median: "none", Greatest: "none"}
		if len(s.values) > 0 {
			row.Lowest, row.Median, row.Greatest = Rounded(s.low, limits...), Rounded(s.middle, limits...), Rounded(s.high, limits...)
		}
		subjects = max(subjects, len(s.values))
		c.Missing += s.missing
		c.Rows = append(c.Rows, row)
	}
	c.About = fmt.Sprintf("The value at each of %s.", evidence.Count(len(list), place))
	if subjects > 1 {
		c.About = fmt.Sprintf("Median of up to %d values at each of %s, with the band from the lowest to the highest.", subjects, evidence.Count(len(list), place))
	}
	c.draw(list, thresholds, binds, fromZero, limits)
	return c
}

// bracket is a unit as it follows a name; a plain count has none.
func bracket(unit string) string {
	if unit == "" || unit == "1" {
		return ""
	}
	return "(" + unit + ")"
}

func (c *chart) draw(list []*stop, thresholds []evidence.Threshold, binds func(evidence.Threshold, *stop) bool, fromZero bool, limits []float64) {
	var full []*stop
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range list {
		if len(s.values) > 0 {
			full = append(full, s)
			low, high = min(low, s.low), max(high, s.high)
		}
	}
	for _, limit := range limits {
		low, high = min(low, limit), max(high, limit)
	}
	if len(full) == 0 {
		return
	}
	if fromZero && low > 0 {
		low = 0
	}
	x, y := axis(list), valueAxis(low, high)
	for _, v := range niceTicks(low, high) {
		c.YTicks = append(c.YTicks, tick{coordinate(y(v)), Exact(v)})
	}
	drawn := thinned(full)
	var band, line []string
	for _, s := range drawn {
		p := point{coordinate(x(s.at)), coordinate(y(s.middle))}
		line = append(line, p.X+","+p.Y)
		band = append(band, p.X+","+coordinate(y(s.high)))
		if len(drawn) <= 3*maxLabels {
			c.Dots = append(c.Dots, p)
		}
	}
	for _, s := range slices.Backward(drawn) {
		band = append(band, coordinate(x(s.at))+","+coordinate(y(s.low)))
	}
	c.Line, c.Band = strings.Join(line, " "), strings.Join(band, " ")
	for _, t := range thresholds {
		c.limit(t, list, binds, x, y)
	}
}

// thinned joins neighbouring stops where there are more than can be seen. A
// joined stop has the extremes of all of them: no excursion is lost.
func thinned(list []*stop) []*stop {
	every := (len(list) + maxPoints - 1) / maxPoints
	if every <= 1 {
		return list
	}
	var few []*stop
	for some := range slices.Chunk(list, every) {
		joined := *some[len(some)/2]
		for _, s := range some {
			joined.low, joined.high = min(joined.low, s.low), max(joined.high, s.high)
		}
		few = append(few, &joined)
	}
	return few
}

// limit draws t from the first to the last stop that it binds.
func (c *chart) limit(t evidence.Threshold, list []*stop, binds func(evidence.Threshold, *stop) bool, x, y func(float64) float64) {
	first, last := math.Inf(1), math.Inf(-1)
	for _, s := range list {
		if binds(t, s) {
			first, last = min(first, x(s.at)), max(last, x(s.at))
		}
	}
	if first > last {
		return
	}
	if first == last {
		first, last = max(first-24, chartLeft), min(last+24, chartRight)
	}
	for _, bound := range []struct {
		sign  string
		value *float64
		below float64
	}{{"≥ ", t.Min, 13}, {"≤ ", t.Max, -5}} {
		if bound.value == nil {
			continue
		}
		at := y(*bound.value)
		c.Limits = append(c.Limits, limitLine{
			X1: coordinate(first), X2: coordinate(last), Y: coordinate(at), LabelY: coordinate(at + bound.below),
			Label: t.Name + " " + bound.sign + WithUnit(Exact(*bound.value), t.Unit),
		})
	}
}

// axis places the stops from left to right.
func axis(list []*stop) func(float64) float64 {
	return scale(list[0].at, list[len(list)-1].at, chartLeft+12, chartRight-12)
}

func valueAxis(low, high float64) func(float64) float64 {
	if low == high {
		return func(float64) float64 { return (chartTop + chartBottom) / 2 }
	}
	return scale(low, high, chartBottom-6, chartTop+6)
}

// scale maps low to from and high to to. Values are halved first, so that the
// distance of two numbers is a number.
func scale(low, high, from, to float64) func(float64) float64 {
	span := high/2 - low/2
	return func(v float64) float64 {
		if span == 0 {
			return from
		}
		return from + (to-from)*((v/2-low/2)/span)
	}
}

// niceTicks are round numbers from low to high.
func niceTicks(low, high float64) []float64 {
	span := high - low
	if !(span > 0) || math.IsInf(span, 0) {
		return []float64{low}
	}
	step := math.Pow(10, math.Floor(math.Log10(span/maxTicks)))
	for _, times := range []float64{1, 2, 5, 10} {
		if span/(step*times) <= maxTicks {
			step *= times
			break
		}
	}
	if step == 0 {
		return []float64{low}
	}
	var ticks []float64
	for k := math.Ceil(low / step); k*step <= high+step/1e6 && len(ticks) <= 2*maxTicks; k++ {
		ticks = append(ticks, roundTick(k*step))
	}
	return ticks
}

// roundTick takes off what binary fractions leave: 0.30000000000000004.
func roundTick(v float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 12, 64), 64)
	if err != nil {
		return v
	}
	return rounded
}

// coordinate is a place in a drawing, to a tenth.
func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
