package checks

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// Measure rebuilds every cell's result from journal and raw files, as
// evidence.Results does, and measures every attempt, cut ones too. What it
// could not measure stands in the attempts' Unmeasured.
func Measure(cat Catalog, p *evidence.Plan, records []evidence.Record, fsys fs.FS) []evidence.CellResult {
	results := evidence.Results(p, records, fsys)
	for i := range results {
		for j, attempt := range results[i].Attempts {
			raw, err := evidence.RawFS(fsys, results[i].Cell.ID, attempt.Number)
			if err != nil {
				results[i].Attempts[j].Unmeasured = append(attempt.Unmeasured, evidence.Problem{
					Class: evidence.ClassOutputCut, Detail: fmt.Sprintf("raw output: %v", err),
				})
				continue
			}
			results[i].Attempts[j] = MeasureAttempt(cat, p, results[i].Cell, attempt, raw)
		}
	}
	return results
}

// MeasureAttempt returns a with the measurements and facts that its test's
// check derives from raw. It never panics: a check that does, that reports
// what its Spec does not declare, or that leaves out what it should have
// measured without saying why, is a problem of the attempt.
func MeasureAttempt(cat Catalog, p *evidence.Plan, cell evidence.Cell, a evidence.MeasuredAttempt, raw fs.FS) (measured evidence.MeasuredAttempt) {
	measured = a
	measured.Measurements, measured.Facts = nil, nil
	measured.Unmeasured = slices.Clone(a.Unmeasured)
	refuse := func(class evidence.Class, format string, args ...any) {
		measured.Unmeasured = append(measured.Unmeasured, evidence.Problem{Class: class, Detail: fmt.Sprintf(format, args...)})
	}
	i := slices.IndexFunc(p.Tests, func(t evidence.Test) bool { return t.Name == cell.Test })
	if i < 0 {
		refuse(evidence.ClassUnparsable, "the plan has no test %q", cell.Test)
		return measured
	}
	test := p.Tests[i]
	check, ok := cat.Find(test.Check)
	if !ok {
		refuse(evidence.ClassToolVersion, "this build has no check %q", test.Check)
		return measured
	}
	nodes, err := nodeset.Parse(cell.Nodes, nil)
	if err != nil {
		refuse(evidence.ClassUnparsable, "nodes of cell %s: %v", cell.ID, err)
		return measured
	}
	view := evidence.CellView{Cell: cell, Test: test, Fleet: p.Fleet, Nodes: fleetOrder(p.Fleet, nodes), Attempt: a.Attempt}

	defer func() {
		if cause := recover(); cause != nil {
			measured.Measurements, measured.Facts = nil, nil
			refuse(evidence.ClassPanic, "check %s panicked: %v\n%s", test.Check, cause, panicTop(debug.Stack()))
		}
	}()
	spec := check.Spec()
	if spec.Version != test.CheckVersion {
		refuse(evidence.ClassToolVersion, "check %s has version %d here and the plan was made with version %d", spec.Name, spec.Version, test.CheckVersion)
		return measured
	}
	promised, ok := newPromise(spec, view)
	if !ok {
		refuse(evidence.ClassUnparsable, "check %s would have more than %d measurements and facts in this cell: split the test", spec.Name, promiseLimit)
		return measured
	}
	measurements, facts, err := check.Measure(view, raw)
	problems := evidence.Problems(err)
	measured.Unmeasured = append(measured.Unmeasured, problems...)
	measured.Measurements = promised.measurements(measurements, refuse)
	measured.Facts = promised.facts(facts, refuse)
	if len(problems) == 0 {
		for _, left := range promised.leftOut(measured) {
			refuse(evidence.ClassUnparsable, "check %s left out %s and gave no reason", spec.Name, left)
		}
	}
	return measured
}

// panicTop is the part of a stack below the panic call, at most 16 lines: the
// check's own frames.
func panicTop(stack []byte) string {
	lines := strings.Split(strings.TrimSpace(string(stack)), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "panic(") {
			lines = lines[min(i+2, len(lines)):]
			break
		}
	}
	return strings.Join(lines[:min(16, len(lines))], "\n")
}

// promise is what a check's Spec lets one cell report, and what it makes it
// report.
type promise struct {
	scope    evidence.Scope
	metrics  []Metric
	texts    []FactSpec
	subjects map[string]map[evidence.Subject]bool // by metric or fact; no entry: any of its level
}

// promiseLimit bounds the measurements and facts of one cell: a thousand of
// each of a thousand nodes, where the largest plan that a run is made for has
// a thousand nodes and two hundred tests, which are cells of their own.
const promiseLimit = 1 << 20

// newPromise is false where the check would report more than promiseLimit.
func newPromise(spec Spec, view evidence.CellView) (promise, bool) {
	p := promise{scope: view.Test.Scope, metrics: spec.Metrics(view.Test.Params), subjects: make(map[string]map[evidence.Subject]bool)}
	if spec.Facts != nil {
		p.texts = spec.Facts(view.Test.Params)
	}
	// Most metrics have the subjects of their neighbour: one set serves all.
	type level struct {
		all []evidence.Subject
		set map[evidence.Subject]bool
	}
	var levels []level
	left := promiseLimit
	list := func(name string, labels []Label) bool {
		if spec.Subjects == nil {
			return true
		}
		all := spec.Subjects(view.Fleet, view.Nodes, view.Test.Scope, name, view.Test.Params)
		if all == nil {
			return true
		}
		expected := len(all)
		for _, label := range labels {
			if len(label.Values) > 0 && expected > left/len(label.Values) {
				return false
			}
			expected *= len(label.Values)
		}
		if left -= expected; left < 0 {
			return false
		}
		i := slices.IndexFunc(levels, func(l level) bool { return slices.Equal(l.all, all) })
		if i < 0 {
			set := make(map[evidence.Subject]bool, len(all))
			for _, s := range all {
				set[s] = true
			}
			i, levels = len(levels), append(levels, level{all, set})
		}
		p.subjects[name] = levels[i].set
		return true
	}
	for _, metric := range p.metrics {
		if !list(metric.Name, metric.Labels) {
			return promise{}, false
		}
	}
	for _, fact := range p.texts {
		if !list(fact.Name, nil) {
			return promise{}, false
		}
	}
	return p, true
}

// place says what is wrong with a subject, or nothing.
func (p promise) place(name, level string, s evidence.Subject) string {
	subjects, known := p.subjects[name]
	level = LevelIn(level, p.scope)
	switch {
	case !levelFits(level, s):
		return fmt.Sprintf("its subject is not at the level %q", level)
	case known && !subjects[s]:
		return "its subject is not expected of this cell"
	}
	return ""
}

func levelFits(level string, s evidence.Subject) bool {
	if level == string(evidence.SubjectFleet) {
		return s == evidence.SubjectFleet
	}
	return s != evidence.SubjectFleet && s != "" && strings.Count(level, "/") == strings.Count(string(s), "/")
}

// identity tells measurements of one attempt apart.
func identity(name string, subject evidence.Subject, labels map[string]string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s of %s", name, subject)
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&text, ", %s %q", label, labels[label])
	}
	return text.String()
}

func (p promise) measurements(all []evidence.Measurement, refuse func(evidence.Class, string, ...any)) []evidence.Measurement {
	seen := make(map[string]int)
	var kept []evidence.Measurement
	for _, one := range all {
		id := identity(one.Metric, one.Subject, one.Labels)
		if wrong := p.wrongMeasurement(one); wrong != "" {
			refuse(evidence.ClassUnparsable, "measurement %s: %s", id, wrong)
			continue
		}
		if first, twice := seen[id]; twice {
			// Neither of two answers to one question can be trusted.
			if kept[first].Missing != reportedTwice {
				refuse(evidence.ClassUnparsable, "measurement %s was reported twice", id)
				kept[first].Missing, kept[first].Value = reportedTwice, 0
			}
			continue
		}
		seen[id] = len(kept)
		kept = append(kept, one)
	}
	return kept
}

const reportedTwice = "(reported twice)"

func (p promise) wrongMeasurement(one evidence.Measurement) string {
	i := slices.IndexFunc(p.metrics, func(m Metric) bool { return m.Name == one.Metric })
	if i < 0 {
		return "the check does not declare this metric"
	}
	metric := p.metrics[i]
	labels := make([]string, len(metric.Labels))
	for i, label := range metric.Labels {
		labels[i] = label.Name
	}
	slices.Sort(labels)
	switch {
	case metric.Unit != one.Unit:
		return fmt.Sprintf("its unit is %q and the check declares %q", one.Unit, metric.Unit)
	case !slices.Equal(labels, slices.Sorted(maps.Keys(one.Labels))):
		return fmt.Sprintf("the check declares the labels %q", labels)
	case math.IsNaN(one.Value) || math.IsInf(one.Value, 0):
		return "its value is not a finite number"
	case one.Missing != "" && one.Value != 0:
		return "it has both a value and a missing token"
	case one.Source == "":
		return "it names no source"
	}
	return p.place(one.Metric, metric.Level, one.Subject)
}

func (p promise) facts(all []evidence.Fact, refuse func(evidence.Class, string, ...any)) []evidence.Fact {
	seen := make(map[string]int)
	var kept []evidence.Fact
	for _, one := range all {
		id := identity(one.Name, one.Subject, nil)
		if wrong := p.wrongFact(one); wrong != "" {
			refuse(evidence.ClassUnparsable, "fact %s: %s", id, wrong)
			continue
		}
		if first, twice := seen[id]; twice {
			if kept[first].Missing != reportedTwice {
				refuse(evidence.ClassUnparsable, "fact %s was reported twice", id)
				kept[first].Missing, kept[first].Value = reportedTwice, ""
			}
			continue
		}
		seen[id] = len(kept)
		kept = append(kept, one)
	}
	return kept
}

func (p promise) wrongFact(one evidence.Fact) string {
	i := slices.IndexFunc(p.texts, func(f FactSpec) bool { return f.Name == one.Name })
	switch {
	case i < 0:
		return "the check does not declare this fact"
	case one.Missing != "" && one.Value != "":
		return "it has both a value and a missing token"
	case one.Missing == "" && one.Value == "":
		return "it has neither a value nor a missing token"
	case one.Source == "":
		return "it names no source"
	}
	return p.place(one.Name, p.texts[i].Level, one.Subject)
}

// leftOut names the expected measurements and facts that are not there.
func (p promise) leftOut(measured evidence.MeasuredAttempt) []string {
	have := make(map[string]bool)
	for _, one := range measured.Measurements {
		have[identity(one.Metric, one.Subject, one.Labels)] = true
	}
	for _, one := range measured.Facts {
		have[identity(one.Name, one.Subject, nil)] = true
	}
	var left []string
	expect := func(name string, labels map[string]string) {
		for subject := range p.subjects[name] {
			if id := identity(name, subject, labels); !have[id] {
				left = append(left, id)
			}
		}
	}
	for _, metric := range p.metrics {
		if len(p.subjects[metric.Name]) == 0 {
			continue // and its labels are not bounded
		}
		for _, labels := range labelSets(metric.Labels) {
			expect(metric.Name, labels)
		}
	}
	for _, fact := range p.texts {
		expect(fact.Name, nil)
	}
	slices.Sort(left)
	return left
}

// labelSets is the product of the labels' values; it is empty if one of them
// is not known before the run, for then nothing can be expected.
func labelSets(labels []Label) []map[string]string {
	sets := []map[string]string{nil}
	for _, label := range labels {
		var next []map[string]string
		for _, set := range sets {
			for _, value := range label.Values {
				grown := map[string]string{label.Name: value}
				maps.Copy(grown, set)
				next = append(next, grown)
			}
		}
		sets = next
	}
	return sets
}
