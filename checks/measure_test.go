package checks_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/checks/checktest"
	"github.com/rackproof/rackproof/evidence"
)

// stub is a check whose Measure is given.
type stub struct {
	version int
	measure func() ([]evidence.Measurement, []evidence.Fact, error)
}

func (s stub) Spec() checks.Spec {
	return checks.Spec{
		Name: "stub", Version: 1 + s.version, Scopes: []evidence.Scope{evidence.ScopeNode},
		Metrics: func(json.RawMessage) []checks.Metric {
			return []checks.Metric{
				{Name: "rate", Unit: "1/s", Level: "node", Labels: []checks.Label{{Name: "size", Values: []string{"8", "16"}}}},
				{Name: "count", Unit: "1", Level: "node"},
			}
		},
		Facts: func(json.RawMessage) []checks.FactSpec { return []checks.FactSpec{{Name: "model", Level: "node"}} },
		Subjects: func(_ evidence.Fleet, nodes []string, _ evidence.Scope, _ string, _ json.RawMessage) []evidence.Subject {
			var all []evidence.Subject
			for _, n := range nodes {
				all = append(all, evidence.Subject(n))
			}
			return all
		},
	}
}
func (stub) Drive(context.Context, checks.Bench) error { return nil }
func (s stub) Measure(evidence.CellView, fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	return s.measure()
}

func stubView() evidence.CellView {
	return evidence.CellView{Nodes: []string{"n1"}, Test: evidence.Test{Name: "t", Check: "stub", CheckVersion: 1, Scope: evidence.ScopeNode}}
}

func wholeStub() ([]evidence.Measurement, []evidence.Fact) {
	return []evidence.Measurement{
			{Metric: "rate", Unit: "1/s", Value: 1, Subject: "n1", Labels: map[string]string{"size": "8"}, Source: "x"},
			{Metric: "rate", Unit: "1/s", Value: 2, Subject: "n1", Labels: map[string]string{"size": "16"}, Source: "x"},
			{Metric: "count", Unit: "1", Subject: "n1", Source: "x"},
		}, []evidence.Fact{
			{Name: "model", Value: "m", Subject: "n1", Source: "x"},
		}
}

func TestMeasureAttemptRefusesWhatIsNotDeclared(t *testing.T) {
	for name, test := range map[string]struct {
		change func(m []evidence.Measurement, f []evidence.Fact) ([]evidence.Measurement, []evidence.Fact)
		want   string
	}{
		"whole": {func(m []evidence.Measurement, f []evidence.Fact) ([]evidence.Measurement, []evidence.Fact) {
			return m, f
		}, ""},
		"metric":         {edit(func(m *evidence.Measurement) { m.Metric = "other" }), "does not declare this metric"},
		"unit":           {edit(func(m *evidence.Measurement) { m.Unit = "1/min" }), `the check declares "1/s"`},
		"no label":       {edit(func(m *evidence.Measurement) { m.Labels = nil }), "declares the labels"},
		"other label":    {edit(func(m *evidence.Measurement) { m.Labels = map[string]string{"clients": "8"} }), "declares the labels"},
		"level":          {edit(func(m *evidence.Measurement) { m.Subject = "n1/gpu0" }), "level"},
		"fleet":          {edit(func(m *evidence.Measurement) { m.Subject = evidence.SubjectFleet }), "level"},
		"other node":     {edit(func(m *evidence.Measurement) { m.Subject = "n2" }), "not expected of this cell"},
		"NaN":            {edit(func(m *evidence.Measurement) { m.Value = math.NaN() }), "finite"},
		"infinite":       {edit(func(m *evidence.Measurement) { m.Value = math.Inf(1) }), "finite"},
		"value, missing": {edit(func(m *evidence.Measurement) { m.Missing = "N/A" }), "both a value and a missing token"},
		"no source":      {edit(func(m *evidence.Measurement) { m.Source = "" }), "no source"},
		"twice": {func(m []evidence.Measurement, f []evidence.Fact) ([]evidence.Measurement, []evidence.Fact) {
			return append(m, m[0]), f
		}, "reported twice"},
		"left out": {func(m []evidence.Measurement, f []evidence.Fact) ([]evidence.Measurement, []evidence.Fact) {
			return m[1:], f
		}, `left out rate of n1, size "8"`},
		"fact left out": {func(m []evidence.Measurement, f []evidence.Fact) ([]evidence.Measurement, []evidence.Fact) {
			return m, nil
		}, "left out model of n1"},
		"empty fact": {func(m []evidence.Measurement, f []evidence.Fact) ([]evidence.Measurement, []evidence.Fact) {
			f[0].Value = ""
			return m, f
		}, "neither a value nor a missing token"},
	} {
		t.Run(name, func(t *testing.T) {
			check := stub{measure: func() ([]evidence.Measurement, []evidence.Fact, error) {
				m, f := test.change(wholeStub())
				return m, f, nil
			}}
			a := checktest.Measure(check, stubView(), fstest.MapFS{})
			if test.want == "" {
				if len(a.Unmeasured) > 0 || len(a.Measurements) != 3 || len(a.Facts) != 1 {
					t.Fatalf("problems %v, %d measurements, %d facts", a.Unmeasured, len(a.Measurements), len(a.Facts))
				}
				return
			}
			if len(a.Unmeasured) == 0 || !strings.Contains(a.Unmeasured[0].Detail, test.want) {
				t.Errorf("problems are %v, want one with %q", a.Unmeasured, test.want)
			}
			for _, m := range a.Measurements {
				if m.Metric == "rate" && m.Labels["size"] == "8" && m.Missing == "" {
					if name != "fact left out" && name != "empty fact" {
						t.Errorf("kept %+v", m)
					}
				}
			}
		})
	}
}

func edit(change func(*evidence.Measurement)) func([]evidence.Measurement, []evidence.Fact) ([]evidence.Measurement, []evidence.Fact) {
	return func(m []evidence.Measurement, f []evidence.Fact) ([]evidence.Measurement, []evidence.Fact) {
		change(&m[0])
		return m, f
	}
}

func TestMeasureAttemptCatchesPanics(t *testing.T) {
	check := stub{measure: func() ([]evidence.Measurement, []evidence.Fact, error) {
		m, f := wholeStub()
		return m[len(f)+3:], f, nil
	}}
	a := checktest.Measure(check, stubView(), fstest.MapFS{})
	wantClasses(t, a, evidence.ClassPanic)
	if detail := a.Unmeasured[0].Detail; !strings.Contains(detail, "measure_test.go") {
		t.Errorf("the detail does not name the place:\n%s", detail)
	}
}

func TestMeasureAttemptNeedsTheSameVersion(t *testing.T) {
	a := checktest.Measure(stub{version: 1}, stubView(), fstest.MapFS{})
	wantClasses(t, a, evidence.ClassToolVersion)
}

func TestMeasureAttemptKeepsEarlierProblems(t *testing.T) {
	m, f := wholeStub()
	check := stub{measure: func() ([]evidence.Measurement, []evidence.Fact, error) { return m, f, nil }}
	view := stubView()
	plan := &evidence.Plan{Tests: []evidence.Test{view.Test}}
	earlier := evidence.Problem{Class: evidence.ClassOutputCut, Detail: "a file is missing"}
	a := checks.MeasureAttempt(checks.Catalog{check}, plan, evidence.Cell{ID: "t/n1.r1", Test: "t", Nodes: "n1"}, evidence.MeasuredAttempt{Unmeasured: []evidence.Problem{earlier}}, fstest.MapFS{})
	if len(a.Unmeasured) != 1 || a.Unmeasured[0] != earlier || len(a.Measurements) != 3 {
		t.Errorf("problems %v, %d measurements", a.Unmeasured, len(a.Measurements))
	}
	unknown := checks.MeasureAttempt(checks.Catalog{}, plan, evidence.Cell{ID: "t/n1.r1", Test: "t", Nodes: "n1"}, evidence.MeasuredAttempt{}, fstest.MapFS{})
	wantClasses(t, unknown, evidence.ClassToolVersion)
}

// An attempt that left nothing has a problem for every check: no measurement
// is never a pass.
func TestNothingMeasuresNothing(t *testing.T) {
	for _, check := range checks.Builtin() {
		for _, c := range checktest.Cases(t, check) {
			a := checktest.Measure(check, c.View, fstest.MapFS{})
			if len(a.Unmeasured) == 0 || len(a.Measurements) > 0 {
				t.Errorf("%s %s: problems %v, %d measurements from nothing", check.Spec().Name, c.Name, a.Unmeasured, len(a.Measurements))
			}
		}
	}
}

// What a lost node did not leave is the lost node's problem, not ours.
func TestLostNodeIsNotAnError(t *testing.T) {
	for _, check := range checks.Builtin() {
		for _, c := range checktest.Cases(t, check) {
			if !c.Healthy() {
				continue
			}
			c.View.Attempt.Problems = []evidence.Problem{{Class: evidence.ClassLost, Detail: "connection reset"}}
			a := checktest.Measure(check, c.View, fstest.MapFS{})
			wantClasses(t, a, evidence.ClassLost)
		}
	}
}
