package reports

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

const (
	hoursMetric   = "hours_under_load"
	seriesPrefix  = "series_"
	sliceLabel    = "slice" // seconds from the start
	sizeLabel     = "size"
	versionSuffix = "_version"
)

// measured is what a page needs of the measurements, gathered in one pass:
// those of the attempts that count, as the judge takes them.
type measured struct {
	problem string // why there is none, in words

	series   map[quantity][]reading // metrics over time
	sizes    map[quantity][]reading // metrics with a label size
	values   map[quantity][]reading // of nodes and their parts
	hours    map[string]*loadHours  // by test
	versions map[version][]evidence.Subject
}

// quantity is what samples have in common that may be compared.
type quantity struct {
	test, metric, unit string
	labels             string // "op=read, clients=4", without the axis
}

// name is the quantity in words, without its unit.
func (q quantity) name() string {
	if q.labels == "" {
		return q.metric
	}
	return q.metric + " at " + q.labels
}

type reading struct {
	subject string
	at      string // the value of the axis' label
	value   float64
	missing bool
}

// firstLevel is the node of a subject, where there is one of that name.
func firstLevel(subject string) string {
	first, _, _ := strings.Cut(subject, "/")
	return first
}

// loadHours are the hours under load of one test, by subject: repetitions add
// up.
type loadHours struct {
	unit    string
	of      map[string]float64
	missing map[string]bool
}

type version struct{ name, value string }

// measure reads the measurements of b. A run whose measurements cannot be read
// to their end has none.
func measure(b *evidence.Bundle) *measured {
	m := &measured{
		series: map[quantity][]reading{}, sizes: map[quantity][]reading{}, values: map[quantity][]reading{},
		hours: map[string]*loadHours{}, versions: map[version][]evidence.Subject{},
	}
	if b.FS == nil && b.Results == nil {
		return &measured{problem: "no files of the run are at hand"}
	}
	counts, tests := counting(b), testsOfCells(b.Plan)
	nodes := places(b.Plan)
	same := interner{}
	for line, err := range b.Measurements() {
		if err != nil {
			return &measured{problem: err.Error()}
		}
		test, known := tests[line.Cell]
		if !known || counts[line.Cell] != line.Attempt {
			continue
		}
		switch {
		case line.Measurement != nil:
			m.add(test, *line.Measurement, nodes, same)
		case strings.HasSuffix(line.Fact.Name, versionSuffix) && line.Fact.Missing == "":
			key := version{line.Fact.Name, line.Fact.Value}
			m.versions[key] = append(m.versions[key], line.Fact.Subject)
		}
	}
	return m
}

type attemptKey struct {
	cell   string
	number int
}

// cutAttempts are the attempts that were cut, by the verdict.
func cutAttempts(v *evidence.Verdict) map[attemptKey]bool {
	cut := map[attemptKey]bool{}
	for _, c := range v.Coverage.Cuts {
		cut[attemptKey{c.Cell, c.Attempt}] = true
	}
	return cut
}

// counting is, for each cell, the number of the last attempt that was not cut.
func counting(b *evidence.Bundle) map[string]int {
	cut := cutAttempts(b.Verdict)
	counts := map[string]int{}
	for _, r := range b.Records {
		if r.Event == evidence.EventAttemptStart && !cut[attemptKey{r.Cell, r.Attempt}] {
			counts[r.Cell] = max(counts[r.Cell], r.Attempt)
		}
	}
	return counts
}

func testsOfCells(p *evidence.Plan) map[string]string {
	tests := make(map[string]string, len(p.Cells))
	for _, c := range p.Cells {
		tests[c.ID] = c.Test
	}
	return tests
}

// interner keeps one copy of texts that come a million times.
type interner map[string]string

func (i interner) text(s string) string {
	if kept, ok := i[s]; ok {
		return kept
	}
	i[s] = s
	return s
}

func (m *measured) add(test string, x evidence.Measurement, nodes map[string]string, same interner) {
	s := reading{subject: same.text(string(x.Subject)), value: x.Value, missing: x.Missing != ""}
	q := quantity{test: test, metric: same.text(x.Metric), unit: same.text(x.Unit)}
	slice, sliced := x.Labels[sliceLabel]
	if strings.HasPrefix(x.Metric, seriesPrefix) && sliced {
		q.labels, s.at = same.text(spell(x.Labels, sliceLabel)), same.text(slice)
		m.series[q] = append(m.series[q], s)
		return
	}
	if x.Metric == hoursMetric {
		m.addHours(test, s, x.Unit)
	}
	if size, sized := x.Labels[sizeLabel]; sized {
		at := q
		at.labels, s.at = same.text(spell(x.Labels, sizeLabel)), same.text(size)
		m.sizes[at] = append(m.sizes[at], s)
	}
	if _, isNode := nodes[firstLevel(s.subject)]; isNode && !s.missing {
		q.labels = same.text(spell(x.Labels, ""))
		m.values[q] = append(m.values[q], s)
	}
}

func (m *measured) addHours(test string, s reading, unit string) {
	h := m.hours[test]
	if h == nil {
		h = &loadHours{unit: unit, of: map[string]float64{}, missing: map[string]bool{}}
		m.hours[test] = h
	}
	if s.missing {
		h.missing[s.subject] = true
		return
	}
	h.of[s.subject] += s.value
}

// spell writes labels in the order of their names, without the one that is
// left out.
func spell(labels map[string]string, without string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if name != without {
			words = append(words, name+"="+labels[name])
		}
	}
	return strings.Join(words, ", ")
}

// middle is the median of values, which it sorts.
func middle(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return values[n/2-1]/2 + values[n/2]/2
}

// sortedQuantities are the keys of m in the order of the plan's tests.
func sortedQuantities(m map[quantity][]reading, order map[string]int) []quantity {
	return slices.SortedFunc(maps.Keys(m), func(a, b quantity) int {
		if a.test != b.test {
			return order[a.test] - order[b.test]
		}
		if c := strings.Compare(a.metric, b.metric); c != 0 {
			return c
		}
		return strings.Compare(a.labels, b.labels)
	})
}

// foldVersions lists tool versions with their nodes, folded.
func (m *measured) foldVersions() []htmlVersion {
	keys := slices.SortedFunc(maps.Keys(m.versions), func(a, b version) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	var list []htmlVersion
	for _, key := range keys {
		subjects := slices.Compact(slices.Sorted(slices.Values(m.versions[key])))
		list = append(list, htmlVersion{
			Name: strings.TrimSuffix(key.name, versionSuffix), Value: key.value,
			Count: evidence.Count(len(subjects), "subject"), Subjects: strings.Join(evidence.FoldSubjects(subjects), ","),
		})
	}
	return list
}

// An outlier is a value far from those of its kind.
type outlier struct {
	Test, Quantity, Subject, Place string
	Value, Median, Score           string
	score                          float64 // infinite: the others are all alike
}

const (
	outlierScore    = 3.5 // Iglewicz and Hoaglin 1993
	outlierSubjects = 5   // among fewer, median and MAD follow the outlier
)

// outliers lists the values of which the modified z-score is beyond 3.5,
// furthest first, whether or not a threshold binds them.
func (m *measured) outliers(p *evidence.Plan, limits limitsOf, order map[string]int) []outlier {
	at := places(p)
	var list []outlier
	for _, q := range sortedQuantities(m.values, order) {
		list = append(list, farFrom(q, m.values[q], q.name(), limits, at)...)
	}
	for _, q := range sortedQuantities(m.series, order) {
		ofNodes := slices.DeleteFunc(slices.Clone(m.series[q]), func(r reading) bool {
			_, isNode := at[firstLevel(r.subject)]
			return r.missing || !isNode
		})
		list = append(list, farFrom(q, ofNodes, q.name()+", median over time", limits, at)...)
	}
	slices.SortStableFunc(list, func(a, b outlier) int { return cmp.Compare(math.Abs(b.score), math.Abs(a.score)) })
	return list
}

// farFrom lists the outliers of one quantity.
func farFrom(q quantity, readings []reading, name string, limits limitsOf, at map[string]string) []outlier {
	var list []outlier
	c := compareSubjects(readings, limits.resolution(q.test, q.metric))
	bounds := limits.values(q.test, q.metric)
	median := Rounded(c.median, bounds...)
	bounds = append(bounds, c.median)
	for i, score := range c.scores {
		if math.Abs(score) <= outlierScore {
			continue
		}
		o := outlier{
			Test: q.test, Quantity: name, Subject: c.subjects[i], Place: at[firstLevel(c.subjects[i])],
			Value: WithUnit(Rounded(c.values[i], bounds...), q.unit), Median: WithUnit(median, q.unit),
			Score: "all others alike", score: score,
		}
		if !math.IsInf(score, 0) {
			o.Score = rounded(3, score, outlierScore, -outlierScore)
		}
		list = append(list, o)
	}
	return list
}

// comparison is how far the subjects of one quantity are from their median.
type comparison struct {
	subjects       []string
	values, scores []float64
	median         float64
}

// compareSubjects scores every subject as the judge's mad_z does:
// 0.6745·(x − median) / max(MAD, resolution, 0.5 % of |median|), where x is
// the median of the subject's repetitions. A score is infinite where nothing
// but this subject differs; too few subjects have no scores.
func compareSubjects(readings []reading, resolution float64) comparison {
	bySubject := map[string][]float64{}
	for _, s := range readings {
		bySubject[s.subject] = append(bySubject[s.subject], s.value)
	}
	c := comparison{subjects: slices.SortedFunc(maps.Keys(bySubject), nodeset.Compare)}
	if len(c.subjects) < outlierSubjects {
		return c
	}
	for _, s := range c.subjects {
		c.values = append(c.values, middle(bySubject[s]))
	}
	c.median = middle(slices.Clone(c.values))
	// Distances are halved, so that those of the largest numbers are numbers.
	distances := make([]float64, len(c.values))
	for i, x := range c.values {
		distances[i] = math.Abs(x/2 - c.median/2)
	}
	scale := max(middle(distances), resolution/2, float64(0.0025*math.Abs(c.median)))
	c.scores = make([]float64, len(c.values))
	for i, x := range c.values {
		switch {
		case x == c.median:
		case scale == 0:
			c.scores[i] = math.Copysign(math.Inf(1), x-c.median)
		default:
			score := 0.6745 * (x/2 - c.median/2) / scale
			c.scores[i] = max(-math.MaxFloat64, min(math.MaxFloat64, score))
		}
	}
	return c
}

// limitsOf are the thresholds of a plan by test and metric.
type limitsOf map[[2]string][]evidence.Threshold

func newLimits(p *evidence.Plan) limitsOf {
	limits := limitsOf{}
	for _, t := range p.Tests {
		for _, th := range t.Thresholds {
			if !th.Text {
				key := [2]string{t.Name, th.Metric}
				limits[key] = append(limits[key], th)
			}
		}
	}
	return limits
}

// ofValues are the thresholds that bound values of the metric itself, in its
// own unit: a limit of a z-score or of a count is none of them.
func (l limitsOf) ofValues(test, metric string) []evidence.Threshold {
	var of []evidence.Threshold
	for _, t := range l[[2]string{test, metric}] {
		switch t.Stat {
		case "mad_z", "count", "sum", "spread", "distinct", "equals":
		default:
			of = append(of, t)
		}
	}
	return of
}

func (l limitsOf) values(test, metric string) []float64 {
	var all []float64
	for _, t := range l.ofValues(test, metric) {
		all = append(all, bounds(t)...)
	}
	return all
}

func (l limitsOf) resolution(test, metric string) float64 {
	finest := 0.0
	for _, t := range l[[2]string{test, metric}] {
		finest = max(finest, t.Resolution)
	}
	return finest
}
