package thresholds

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/rackproof/rackproof/evidence"
)

// finding is a finding with what its group was.
type finding struct {
	evidence.Finding
	group *group // nil: the test as a whole
}

// whole reports whether the finding is about more than one node.
func (f *finding) whole() bool { return f.group == nil || f.group.whole() }

// title names the finding and its outcome.
func (f *finding) title() string {
	if f.Threshold == "" {
		return fmt.Sprintf("test %s is %s: %s", f.Test, f.Outcome, f.Reason)
	}
	return fmt.Sprintf("%s of %s on %s is %s", f.Threshold, f.Test, f.Subject, f.Outcome)
}

func (j *judge) judgeTest(t *test) {
	if len(t.plan.Thresholds) == 0 {
		t.findings = append(t.findings, finding{Finding: evidence.Finding{
			Test: t.plan.Name, Subject: evidence.SubjectFleet, Outcome: evidence.Inconclusive, Reason: "the test has no threshold",
		}})
		return
	}
	for i := range t.plan.Thresholds {
		j.judgeThreshold(t, &t.plan.Thresholds[i])
	}
}

var tooMany = fmt.Sprintf("it expects more than %d measurements", MaxExpected)

// judgeThreshold adds the findings of one threshold to its test.
func (j *judge) judgeThreshold(t *test, plan *evidence.Threshold) {
	reject := func(reason string) {
		t.findings = append(t.findings, finding{Finding: evidence.Finding{
			Test: t.plan.Name, Threshold: plan.Name, Subject: evidence.SubjectFleet, Outcome: evidence.Inconclusive, Unit: plan.Unit, Reason: reason,
		}})
		for _, c := range t.cells {
			c.judged, c.unsettled = true, true
		}
	}
	if reason := unusable(plan); reason != "" {
		reject(reason)
		return
	}
	subjects := j.expand(plan.Subjects)
	if subjects.problem != "" {
		reject(subjects.problem)
		return
	}
	if repeat := max(1, t.plan.Repeat); repeat > MaxExpected/len(subjects.list) {
		reject(tooMany)
		return
	}
	groups := j.groups(subjects, plan)
	if groups.problem != "" {
		reject(groups.problem)
		return
	}
	x := &threshold{test: t, plan: plan, stat: Stat(plan.Stat), subjects: subjects, groups: groups.groups, axes: axes(plan), owned: t.owners(subjects), scratch: &j.scratch}
	x.combinations = 1
	for _, a := range x.axes {
		if x.combinations *= len(a.values); x.combinations > MaxExpected {
			break
		}
	}
	if !x.expect() {
		reject(tooMany)
		return
	}
	x.collect()
	t.findings = slices.Grow(t.findings, len(x.groups))
	x.judge()
}

// unusable says why a threshold binds nothing that can be judged.
func unusable(t *evidence.Threshold) string {
	stat, err := ParseStat(t.Stat)
	if err != nil {
		return err.Error()
	}
	if t.Text != stat.Text() {
		if t.Text {
			return fmt.Sprintf("%s is a text, and %s a statistic of numbers", t.Metric, stat)
		}
		return fmt.Sprintf("%s is a number, and %s a statistic of texts", t.Metric, stat)
	}
	for _, bound := range []*float64{t.Min, t.Max, &t.Resolution} {
		if bound != nil && (math.IsNaN(*bound) || math.IsInf(*bound, 0)) {
			return "a bound or the resolution is not a finite number"
		}
	}
	for label, values := range t.At {
		if len(values) == 0 {
			return fmt.Sprintf("at lists no value of %q", label)
		}
	}
	switch {
	case stat == StatEquals && t.Equals == nil, stat != StatEquals && t.Min == nil && t.Max == nil:
		return "it has no bound"
	case stat == StatEquals && (t.Min != nil || t.Max != nil), stat != StatEquals && t.Equals != nil:
		return fmt.Sprintf("one of its bounds has no meaning for %s", stat)
	case t.Min != nil && t.Max != nil && *t.Min > *t.Max:
		return fmt.Sprintf("its bounds contradict each other: %s to %s", number(*t.Min), number(*t.Max))
	case t.Text && len(t.At) > 0:
		return "it binds labels, and a text has none"
	case !t.Text && !stat.keepsUnit() && t.Unit != stat.Unit(""):
		return fmt.Sprintf("%s has the unit %q, and its bound is in %q", stat, stat.Unit(""), t.Unit)
	}
	return ""
}

// rounded is v with six significant digits, or as many more as it takes to
// stay on its side of limit: a reason is for reading, Observed is exact. A
// whole number stays as it is: it may be a count.
func rounded(v, limit float64) float64 {
	if v == math.Trunc(v) {
		return v
	}
	for digits := 6; digits < 17; digits++ {
		short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
		if err == nil && short != limit && (short < limit) == (v < limit) {
			return short
		}
	}
	return v
}

// number writes a value in the shortest form that reads back the same.
func number(v float64) string {
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e15) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// quantity writes a value with its unit.
func quantity(v float64, unit string) string {
	if unit == "" || unit == "1" {
		return number(v)
	}
	return number(v) + " " + unit
}
