package thresholds

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

func TestPass(t *testing.T) {
	v := gpus().judge()
	if v.Outcome != evidence.Pass || len(v.Findings) != 3 {
		t.Fatalf("outcome %s, findings %+v", v.Outcome, v.Findings)
	}
	want := evidence.Finding{
		Test: "hbm", Threshold: "bw", Subject: "n1", Outcome: evidence.Pass, Observed: ptr(100.0), Margin: ptr(10.0), Unit: "GB/s",
		Node: "n1", Source: "hbm/n1.r1#1 out:1",
	}
	if !reflect.DeepEqual(v.Findings[0], want) {
		t.Errorf("finding %+v, want %+v", v.Findings[0], want)
	}
	wantCoverage := evidence.Coverage{Cells: 6, Measured: 6, Nodes: 3, NodesPassing: 3, Findings: 3, Passing: 3}
	if !reflect.DeepEqual(v.Coverage, wantCoverage) {
		t.Errorf("coverage %+v, want %+v", v.Coverage, wantCoverage)
	}
	if want := (evidence.TestResult{Test: "hbm", Outcome: evidence.Pass, Cells: 6, Passed: 6}); v.Tests[0] != want {
		t.Errorf("test %+v, want %+v", v.Tests[0], want)
	}
	if want := (evidence.GateResult{Phase: "node", Met: true, Needed: 3, Passing: []string{"n[1-3]"}}); !reflect.DeepEqual(v.Gates[0], want) {
		t.Errorf("gate %+v, want %+v", v.Gates[0], want)
	}
	if v.MediaType != evidence.MediaVerdict {
		t.Errorf("media type %q", v.MediaType)
	}
}

// TestNoMeasurementIsNeverAPass damages a passing run in one way at a time.
func TestNoMeasurementIsNeverAPass(t *testing.T) {
	const cell = "hbm/n2.r1"
	problem := func(class evidence.Class, node string) func(*bench) {
		return func(b *bench) {
			b.first(cell).Problems = []evidence.Problem{{Node: node, Step: "s", Class: class, Detail: "detail"}}
		}
	}
	first := func(change func(*evidence.Measurement)) func(*bench) {
		return func(b *bench) { change(&b.first(cell).Measurements[0]) }
	}
	threshold := func(change func(*evidence.Threshold)) func(*bench) {
		return func(b *bench) { change(&b.plan.Tests[0].Thresholds[0]) }
	}
	for _, c := range []struct {
		name    string
		damage  func(*bench)
		outcome evidence.Outcome
		subject string // of the finding that has to say why
		reason  string
	}{
		{"no sample at all", func(b *bench) { b.first(cell).Measurements = nil }, evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: bw was not measured (and 3 more of 8)"},
		{"a GPU missing", func(b *bench) { b.first(cell).Measurements = b.first(cell).Measurements[:3] }, evidence.Inconclusive, "n2",
			"n2/gpu1 at size=2GiB in repetition 1: bw was not measured"},
		{"another subject", first(func(m *evidence.Measurement) { m.Subject = "n2/gpu7" }), evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: bw was not measured"},
		{"another node's subject", first(func(m *evidence.Measurement) { m.Subject = "n1/gpu0" }), evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: bw was not measured"},
		{"another metric", first(func(m *evidence.Measurement) { m.Metric = "bandwidth" }), evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: bw was not measured"},
		{"another label value", first(func(m *evidence.Measurement) { m.Labels["size"] = "1024MiB" }), evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: bw was not measured"},
		{"no labels", first(func(m *evidence.Measurement) { m.Labels = nil }), evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: bw was not measured"},
		{"a missing token", first(func(m *evidence.Measurement) { m.Missing, m.Value = "[Not Supported]", 0 }), evidence.Inconclusive, "n2",
			`n2/gpu0 at size=1GiB in repetition 1: bw is "[Not Supported]"`},
		{"a missing token beside a number", func(b *bench) {
			b.measure(cell, evidence.Measurement{Metric: "bw", Unit: "GB/s", Missing: "N/A", Subject: "n2/gpu0", Labels: map[string]string{"size": "1GiB"}})
		}, evidence.Inconclusive, "n2", `n2/gpu0 at size=1GiB in repetition 1: bw is "N/A"`},
		{"NaN", first(func(m *evidence.Measurement) { m.Value = math.NaN() }), evidence.Inconclusive, "n2", "n2/gpu0 at size=1GiB in repetition 1: bw is not a finite number"},
		{"infinity", first(func(m *evidence.Measurement) { m.Value = math.Inf(1) }), evidence.Inconclusive, "n2", "n2/gpu0 at size=1GiB in repetition 1: bw is not a finite number"},
		{"wrong unit", first(func(m *evidence.Measurement) { m.Unit = "Gb/s" }), evidence.Error, "n2",
			`n2/gpu0 at size=1GiB in repetition 1: bw is in "Gb/s", not in "GB/s" ("b" is bits and "B" is bytes: a factor of eight)`},
		{"no unit", first(func(m *evidence.Measurement) { m.Unit = "" }), evidence.Error, "n2", `n2/gpu0 at size=1GiB in repetition 1: bw is in "", not in "GB/s"`},
		{"no result of a cell", func(b *bench) { b.cells = append(b.cells[:2], b.cells[3:]...) }, evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: not-run: there is no result of the cell (and 3 more of 8)"},
		{"no attempt", func(b *bench) { b.at(cell).Attempts = nil }, evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: not-run: the cell was never run (and 3 more of 8)"},
		{"skipped", func(b *bench) {
			b.at(cell).Attempts = nil
			b.at(cell).Skipped = &evidence.Problem{Node: "n2", Class: evidence.ClassExcluded, Detail: "by gate of phase burn"}
		}, evidence.Inconclusive, "n2", "n2/gpu0 at size=1GiB in repetition 1: no measurement counts: excluded: by gate of phase burn (and 3 more of 8)"},
		{"skipped with an attempt", func(b *bench) { b.at(cell).Skipped = &evidence.Problem{Class: evidence.ClassNotApplicable} }, evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: not-applicable (and 3 more of 8)"},
		{"cut only", func(b *bench) { b.first(cell).Cut = true }, evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: cut: 1 attempt of the cell: cut by a stop or by the runner's own end (and 3 more of 8)"},
		{"two results of one cell", func(b *bench) { b.cells = append(b.cells, *b.at(cell)) }, evidence.Error, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: unparsable: there are two results for the cell hbm/n2.r1 (and 3 more of 8)"},
		{"a repetition that the plan has not", func(b *bench) { b.plan.Cells = append(b.plan.Cells[:2], b.plan.Cells[3:]...) }, evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no cell of the plan measures it (and 3 more of 8)"},
		{"timeout of the node", problem(evidence.ClassTimeout, "n2"), evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: timeout: detail (and 3 more of 8)"},
		{"lost cell", problem(evidence.ClassLost, ""), evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: lost: detail (and 3 more of 8)"},
		{"problem of a node outside of the cell", problem(evidence.ClassLost, "n3"), evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: n3: lost: detail (and 3 more of 8)"},
		{"unparsable", problem(evidence.ClassUnparsable, "n2"), evidence.Error, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: unparsable: detail (and 3 more of 8)"},
		{"panic", problem(evidence.ClassPanic, ""), evidence.Error, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: panic: detail (and 3 more of 8)"},
		{"a class of a newer build", problem("frobnicated", "n2"), evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no measurement counts: frobnicated: detail (and 3 more of 8)"},
		{"exit and a measurement missing", func(b *bench) {
			problem(evidence.ClassExit, "n2")(b)
			b.first(cell).Measurements = b.first(cell).Measurements[1:]
		}, evidence.Error, "n2", "n2/gpu0 at size=1GiB in repetition 1: no measurement counts: exit: detail"},
		{"output cut and a measurement missing", func(b *bench) {
			b.first(cell).Unmeasured = []evidence.Problem{{Class: evidence.ClassOutputCut, Detail: "raw/x is gone"}}
			b.first(cell).Measurements = b.first(cell).Measurements[1:]
		}, evidence.Error, "n2", "n2/gpu0 at size=1GiB in repetition 1: no measurement counts: output-cut: raw/x is gone"},
		{"output cut, seen by the check, beside whole measurements", func(b *bench) {
			b.first(cell).Unmeasured = []evidence.Problem{{Node: "n2", Class: evidence.ClassOutputCut, Detail: "half a document"}}
		}, evidence.Error, "n2", "n2/gpu0 at size=1GiB in repetition 1: no measurement counts: output-cut: half a document (and 3 more of 8)"},
		{"unmeasured by the check", func(b *bench) {
			b.first(cell).Unmeasured = []evidence.Problem{{Node: "n2", Class: evidence.ClassToolVersion, Detail: "too old"}}
		}, evidence.Inconclusive, "n2", "n2/gpu0 at size=1GiB in repetition 1: no measurement counts: tool-version: too old (and 3 more of 8)"},
		{"the worst problem counts", func(b *bench) {
			b.first(cell).Problems = []evidence.Problem{{Node: "n2", Class: evidence.ClassSilent}, {Class: evidence.ClassPanic, Detail: "boom"}}
		}, evidence.Error, "n2", "n2/gpu0 at size=1GiB in repetition 1: no measurement counts: panic: boom (and 3 more of 8)"},

		{"unknown statistic", threshold(func(t *evidence.Threshold) { t.Stat = "average" }), evidence.Inconclusive, "fleet",
			`unknown statistic "average": want one of min, max, mean, median, p1 to p99, count, sum, spread, mad_z, distinct, equals`},
		{"no statistic", threshold(func(t *evidence.Threshold) { t.Stat = "" }), evidence.Inconclusive, "fleet",
			`unknown statistic "": want one of min, max, mean, median, p1 to p99, count, sum, spread, mad_z, distinct, equals`},
		{"no bound", threshold(func(t *evidence.Threshold) { t.Min = nil }), evidence.Inconclusive, "fleet", "it has no bound"},
		{"bound is NaN", threshold(func(t *evidence.Threshold) { t.Min = ptr(math.NaN()) }), evidence.Inconclusive, "fleet", "a bound or the resolution is not a finite number"},
		{"bound is infinite", threshold(func(t *evidence.Threshold) { t.Min = ptr(math.Inf(-1)) }), evidence.Inconclusive, "fleet", "a bound or the resolution is not a finite number"},
		{"bounds contradict", threshold(func(t *evidence.Threshold) { t.Max = ptr(80.0) }), evidence.Inconclusive, "fleet", "its bounds contradict each other: 90 to 80"},
		{"a text bound on a number", threshold(func(t *evidence.Threshold) { t.Equals = ptr("x") }), evidence.Inconclusive, "fleet", "one of its bounds has no meaning for min"},
		{"equals of a number", threshold(func(t *evidence.Threshold) { t.Stat = "equals" }), evidence.Inconclusive, "fleet", "bw is a number, and equals a statistic of texts"},
		{"min of a text", threshold(func(t *evidence.Threshold) { t.Text = true }), evidence.Inconclusive, "fleet", "bw is a text, and min a statistic of numbers"},
		{"count in the metric's unit", threshold(func(t *evidence.Threshold) { t.Stat = "count" }), evidence.Inconclusive, "fleet", `count has the unit "1", and its bound is in "GB/s"`},
		{"no subjects", threshold(func(t *evidence.Threshold) { t.Subjects = nil }), evidence.Inconclusive, "fleet", "it expects no subject"},
		{"unreadable subjects", threshold(func(t *evidence.Threshold) { t.Subjects = []string{"n[1-"} }), evidence.Inconclusive, "fleet", "its expected subjects cannot be read: "},
		{"subjects of another form", threshold(func(t *evidence.Threshold) { t.Subjects = []string{"n[1-3]"} }), evidence.Inconclusive, "n1", "n1 is not of the form node/gpu"},
		{"no values of a label", threshold(func(t *evidence.Threshold) { t.At["size"] = nil }), evidence.Inconclusive, "fleet", `at lists no value of "size"`},
		{"another label", threshold(func(t *evidence.Threshold) { t.At["op"] = []string{"read"} }), evidence.Inconclusive, "n1",
			"n1/gpu0 at op=read, size=1GiB in repetition 1: bw was not measured (and 7 more of 8)"},
		{"unknown per", threshold(func(t *evidence.Threshold) { t.Per = "nic" }), evidence.Inconclusive, "fleet", `per = "nic" is neither a part of "node/gpu", nor a label of the layout, nor "test"`},
		{"more subjects expected than measured", threshold(func(t *evidence.Threshold) { t.Subjects = []string{"n[1-3]/gpu[0-7]"} }), evidence.Inconclusive, "n1",
			"n1/gpu2 at size=1GiB in repetition 1: bw was not measured (and 23 more of 32)"},
		{"a subject outside of the cells", threshold(func(t *evidence.Threshold) { t.Subjects = []string{"n[1-4]/gpu0"} }), evidence.Inconclusive, "n4",
			"n4/gpu0 at size=1GiB in repetition 1: no cell of the plan measures it (and 3 more of 4)"},
		{"too few samples", threshold(func(t *evidence.Threshold) { t.MinSamples = 9 }), evidence.Inconclusive, "n1", "n1: min of bw needs 9 samples and has 8"},
		{"percentile of too few", threshold(func(t *evidence.Threshold) { t.Stat = "p95" }), evidence.Inconclusive, "n1", "n1: bw: p95 needs 20 samples and has 8"},
		{"mad_z of too few", threshold(func(t *evidence.Threshold) { t.Stat, t.Unit = "mad_z", "1" }), evidence.Inconclusive, "n1", "n1: bw: mad_z compares at least 5 subjects and has 3"},
		{"hostile number of combinations", threshold(func(t *evidence.Threshold) {
			many := make([]string, 3000)
			for i := range many {
				many[i] = fmt.Sprint(i)
			}
			t.At = map[string][]string{"a": many, "b": many, "c": many, "d": many, "e": many, "f": many}
		}), evidence.Inconclusive, "fleet", "it expects more than 4194304 measurements"},
		{"hostile number of repetitions", func(b *bench) { b.plan.Tests[0].Repeat = 1 << 40 }, evidence.Inconclusive, "fleet", "it expects more than 4194304 measurements"},
		{"hostile number of subjects", func(b *bench) {
			more := b.plan.Tests[0].Thresholds[0]
			for i := range 100 {
				more.Name, more.Subjects = fmt.Sprintf("more%d", i), []string{fmt.Sprintf("x%d-[1-65536]/gpu[0-63]", i)}
				b.plan.Tests[0].Thresholds = append(b.plan.Tests[0].Thresholds, more)
			}
		}, evidence.Inconclusive, "fleet", "the plan's thresholds expect more than 4194304 subjects in all"},
		{"no threshold", func(b *bench) { b.plan.Tests[0].Thresholds = nil }, evidence.Inconclusive, "fleet", "the test has no threshold"},
		{"no test", func(b *bench) { b.plan.Tests, b.plan.Cells, b.plan.Phases = nil, nil, nil }, evidence.Inconclusive, "fleet", "the plan has no test"},
		{"no cell", func(b *bench) { b.plan.Cells = nil }, evidence.Inconclusive, "n1", "n1/gpu0 at size=1GiB in repetition 1: no cell of the plan measures it (and 7 more of 8)"},
		{"an empty phase", func(b *bench) { b.plan.Phases = append(b.plan.Phases, evidence.Phase{Name: "soak"}) }, evidence.Inconclusive, "fleet", `phase "soak" has no test`},
		{"a cell of no test", func(b *bench) {
			b.plan.Cells = append(b.plan.Cells, evidence.Cell{ID: "x/n1.r1", Test: "x", Nodes: "n1"})
		}, evidence.Inconclusive, "fleet",
			`cell "x/n1.r1" belongs to no test of the plan`},
		{"no results", func(b *bench) { b.cells = nil }, evidence.Inconclusive, "n1",
			"n1/gpu0 at size=1GiB in repetition 1: no measurement counts: not-run: there is no result of the cell (and 7 more of 8)"},
		{"unreadable nodes of a cell", func(b *bench) { b.plan.Cells[2].Nodes = "n[2" }, evidence.Inconclusive, "n2",
			"n2/gpu0 at size=1GiB in repetition 1: no cell of the plan measures it (and 3 more of 8)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := gpus()
			c.damage(b)
			v := b.judge()
			if v.Outcome != c.outcome {
				t.Errorf("outcome %s, want %s", v.Outcome, c.outcome)
			}
			f := of(v, c.subject)
			if f.Outcome != c.outcome || !strings.HasPrefix(f.Reason, c.reason) {
				t.Errorf("%s on %s: %s\nwant %s", f.Outcome, f.Subject, f.Reason, c.reason)
			}
			for _, g := range v.Gates {
				if open := len(v.Tests) == 0 || v.Tests[0].Outcome != evidence.Pass; g.Met && (open || g.Phase != "node") {
					t.Errorf("gate of %s is met: %+v", g.Phase, g)
				}
			}
		})
	}
}

// TestProvedByMeasure: a tool may exit 1 and still have measured everything.
func TestProvedByMeasure(t *testing.T) {
	for _, class := range []evidence.Class{evidence.ClassExit, evidence.ClassOutputCapped, evidence.ClassOutputCut, evidence.ClassOK} {
		b := gpus()
		b.first("hbm/n2.r1").Problems = []evidence.Problem{{Node: "n2", Class: class}}
		if v := b.judge(); v.Outcome != evidence.Pass || v.Coverage.Measured != 6 {
			t.Errorf("%s: %s, %+v", class, v.Outcome, v.Coverage.Open)
		}
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		low, high *float64
		value     float64
		outcome   evidence.Outcome
		margin    float64
		reason    string
	}{
		{ptr(90.0), nil, 90, evidence.Pass, 0, ""},
		{ptr(90.0), nil, 89.5, evidence.Fail, -0.5, "n1/gpu0 at size=1GiB: min of bw is 89.5 GB/s, below 90 GB/s"},
		{ptr(90.0), ptr(110.0), 105, evidence.Pass, 5, ""},
		{ptr(90.0), ptr(110.0), 92, evidence.Pass, 2, ""},
		{nil, ptr(95.0), 94, evidence.Pass, 1, ""},
		{nil, ptr(95.0), 96, evidence.Fail, -1, "n1/gpu0 at size=1GiB: min of bw is 96 GB/s, over 95 GB/s"},
		{ptr(0.0), nil, math.Copysign(0, -1), evidence.Pass, 0, ""},
		{ptr(90.0), nil, 89.9999999, evidence.Fail, -1e-7, "n1/gpu0 at size=1GiB: min of bw is 89.9999999 GB/s, below 90 GB/s"},
		{ptr(89.999999), nil, 89.9999985, evidence.Fail, -5e-7, "n1/gpu0 at size=1GiB: min of bw is 89.9999985 GB/s, below 89.999999 GB/s"},
		{ptr(90.0), nil, 1.0 / 3, evidence.Fail, 1.0/3 - 90, "n1/gpu0 at size=1GiB: min of bw is 0.333333 GB/s, below 90 GB/s"},
		{nil, ptr(90.0), 123456789.5, evidence.Fail, 90 - 123456789.5, "n1/gpu0 at size=1GiB: min of bw is 123457000 GB/s, over 90 GB/s"},
		{nil, ptr(90.0), 123456789, evidence.Fail, 90 - 123456789, "n1/gpu0 at size=1GiB: min of bw is 123456789 GB/s, over 90 GB/s"},
		{ptr(1e-5), nil, 0, evidence.Fail, -1e-5, "n1/gpu0 at size=1GiB: min of bw is 0 GB/s, below 1e-05 GB/s"},
	} {
		b := gpus(func(t *evidence.Threshold) { t.Min, t.Max = c.low, c.high })
		for i := range b.cells {
			for k := range b.cells[i].Attempts[0].Measurements {
				b.cells[i].Attempts[0].Measurements[k].Value = c.value
			}
		}
		f := of(b.judge(), "n1")
		if f.Outcome != c.outcome || *f.Observed != c.value || math.Signbit(*f.Observed) || math.Abs(*f.Margin-c.margin) > 1e-9 || f.Reason != c.reason {
			t.Errorf("%v: %s, observed %v, margin %v, %q", c.value, f.Outcome, *f.Observed, *f.Margin, f.Reason)
		}
	}
}

// TestFailDespiteGaps: where something is missing, a breach that nothing can
// mend is a failure, and any other is not.
func TestFailDespiteGaps(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*evidence.Threshold)
		outcome evidence.Outcome
	}{
		{"min under its min", func(t *evidence.Threshold) { t.Min = ptr(101.0) }, evidence.Fail},
		{"min over its max", func(t *evidence.Threshold) { t.Min, t.Max = nil, ptr(99.0) }, evidence.Inconclusive},
		{"max over its max", func(t *evidence.Threshold) { t.Stat, t.Min, t.Max = "max", nil, ptr(99.0) }, evidence.Fail},
		{"max under its min", func(t *evidence.Threshold) { t.Stat, t.Min = "max", ptr(101.0) }, evidence.Inconclusive},
		{"mean under its min", func(t *evidence.Threshold) { t.Stat, t.Min = "mean", ptr(101.0) }, evidence.Inconclusive},
		{"median over its max", func(t *evidence.Threshold) { t.Stat, t.Min, t.Max = "median", nil, ptr(99.0) }, evidence.Inconclusive},
		{"sum over its max", func(t *evidence.Threshold) { t.Stat, t.Min, t.Max = "sum", nil, ptr(99.0) }, evidence.Inconclusive},
		{"accumulating sum over its max", func(t *evidence.Threshold) { t.Stat, t.Min, t.Max, t.Accumulates = "sum", nil, ptr(699.0), true }, evidence.Fail},
		{"accumulating sum not yet over its max", func(t *evidence.Threshold) { t.Stat, t.Min, t.Max, t.Accumulates = "sum", nil, ptr(700.0), true }, evidence.Inconclusive},
		{"count over its max", func(t *evidence.Threshold) { t.Stat, t.Unit, t.Min, t.Max = "count", "1", nil, ptr(6.0) }, evidence.Fail},
		{"count under its min", func(t *evidence.Threshold) { t.Stat, t.Unit, t.Min = "count", "1", ptr(8.0) }, evidence.Inconclusive},
		{"min under its min with few samples", func(t *evidence.Threshold) { t.Min, t.MinSamples = ptr(101.0), 100 }, evidence.Fail},
	} {
		b := gpus(c.change)
		a := b.first("hbm/n2.r1")
		a.Measurements = a.Measurements[1:]
		if f := of(b.judge(), "n2"); f.Outcome != c.outcome {
			t.Errorf("%s: %s, %s", c.name, f.Outcome, f.Reason)
		}
	}
}

// counter is a test "soak" of errors, which accumulate, on two nodes.
func counter(stat string, limit float64) *bench {
	t := evidence.Threshold{
		Name: "errors", Metric: "errors", Stat: stat, Per: "node", Unit: "GB/s", Level: "node/gpu",
		Subjects: []string{"n[1-2]/gpu[0-1]"}, Max: ptr(limit), Accumulates: true,
	}
	if stat == "count" {
		t.Unit = "1"
	}
	b := newBench(2).test("soak", evidence.ScopeNode, 1, t)
	for _, n := range nodes(2) {
		b.measure("soak/"+n+".r1", measured("errors", n+"/gpu0", 0), measured("errors", n+"/gpu1", 0))
	}
	return b
}

func TestAccumulatedBreachStands(t *testing.T) {
	broken := func(cut bool, class evidence.Class, ms ...evidence.Measurement) func(*bench) {
		return func(b *bench) {
			c := b.at("soak/n1.r1")
			old := attempt(1, ms...)
			old.Cut = cut
			if class != "" {
				old.Problems = []evidence.Problem{{Node: "n1", Class: class}}
			}
			c.Attempts = []evidence.MeasuredAttempt{old, c.Attempts[0]}
			c.Attempts[1].Number = 2
		}
	}
	three := measured("errors", "n1/gpu0", 3)
	for _, c := range []struct {
		name    string
		stat    string
		limit   float64
		damage  func(*bench)
		outcome evidence.Outcome
		reason  string
	}{
		{"in a cut attempt", "max", 2, broken(true, "", three), evidence.Fail, "n1/gpu0: max of errors is 3 GB/s, over 2 GB/s, in attempt 1, which was cut; time cannot mend that"},
		{"in a retried attempt", "max", 2, broken(false, "", three), evidence.Fail, "n1/gpu0: max of errors is 3 GB/s, over 2 GB/s, in attempt 1; time cannot mend that"},
		{"in a lost attempt", "max", 2, broken(false, evidence.ClassLost, three), evidence.Fail, "n1/gpu0: max of errors is 3 GB/s, over 2 GB/s, in attempt 1; time cannot mend that"},
		{"in a last, timed out attempt", "max", 2, func(b *bench) {
			b.first("soak/n1.r1").Measurements[0].Value = 3
			b.first("soak/n1.r1").Problems = []evidence.Problem{{Class: evidence.ClassTimeout}}
		}, evidence.Fail, "n1/gpu0: max of errors is 3 GB/s, over 2 GB/s, in attempt 1; time cannot mend that"},
		{"in the only attempt, cut", "max", 2, func(b *bench) {
			b.first("soak/n1.r1").Measurements[0].Value = 3
			b.first("soak/n1.r1").Cut = true
		}, evidence.Fail, "n1/gpu0: max of errors is 3 GB/s, over 2 GB/s, in attempt 1, which was cut; time cannot mend that"},
		{"at the limit", "max", 3, broken(true, "", three), evidence.Pass, ""},
		{"sum of parts", "sum", 5, broken(true, "", three, measured("errors", "n1/gpu1", 3)), evidence.Fail, "n1: sum of errors is 6 GB/s, over 5 GB/s, in attempt 1, which was cut; time cannot mend that"},
		{"sum of parts within", "sum", 6, broken(true, "", three, measured("errors", "n1/gpu1", 3)), evidence.Pass, ""},
		{"count", "count", 2, broken(true, "", three, three, three), evidence.Fail, "n1: count of errors is 3, over 2, in attempt 1, which was cut; time cannot mend that"},
		{"sum of what can fall", "sum", 5, broken(true, "", measured("errors", "n1/gpu0", 9), measured("errors", "n1/gpu1", -1)), evidence.Pass, ""},
		{"of another statistic", "mean", 2, broken(true, "", three), evidence.Pass, ""},
		{"of a subject that is not expected", "max", 2, broken(true, "", measured("errors", "n1/gpu9", 3)), evidence.Pass, ""},
		{"not a number", "max", 2, broken(true, "", measured("errors", "n1/gpu0", math.Inf(1))), evidence.Pass, ""},
		{"in another unit", "max", 2, broken(true, "", evidence.Measurement{Metric: "errors", Unit: "h", Value: 3, Subject: "n1/gpu0"}), evidence.Pass, ""},
	} {
		b := counter(c.stat, c.limit)
		c.damage(b)
		f := of(b.judge(), "n1")
		if f.Outcome != c.outcome || c.reason != "" && f.Reason != c.reason {
			t.Errorf("%s: %s: %s", c.name, f.Outcome, f.Reason)
		}
		if other := of(b.judge(), "n2"); other.Outcome != evidence.Pass {
			t.Errorf("%s: n2 is %s: %s", c.name, other.Outcome, other.Reason)
		}
	}

	// One that is under its min says nothing.
	b := gpus()
	c := b.at("hbm/n2.r1")
	old := attempt(1, measured("bw", "n2/gpu0", 1, "size", "1GiB"))
	old.Cut = true
	c.Attempts = []evidence.MeasuredAttempt{old, c.Attempts[0]}
	c.Attempts[1].Number = 2
	if v := b.judge(); v.Outcome != evidence.Pass || len(v.Coverage.Cuts) != 1 || len(v.Coverage.Retried) != 0 {
		t.Errorf("under min in a cut attempt: %s, %+v", v.Outcome, v.Coverage)
	}
}

func TestWhichAttemptCounts(t *testing.T) {
	slow := func(number int, cut bool) evidence.MeasuredAttempt {
		var ms []evidence.Measurement
		for _, size := range []string{"1GiB", "2GiB"} {
			for g := range 2 {
				ms = append(ms, measured("bw", fmt.Sprintf("n2/gpu%d", g), 1, "size", size))
			}
		}
		a := attempt(number, ms...)
		a.Cut = cut
		return a
	}
	const cell = "hbm/n2.r1"
	for _, c := range []struct {
		name     string
		attempts func(good evidence.MeasuredAttempt) []evidence.MeasuredAttempt
		outcome  evidence.Outcome
		reason   string
		cuts     int
		retried  []string
	}{
		{"failed, then passed", func(good evidence.MeasuredAttempt) []evidence.MeasuredAttempt {
			return []evidence.MeasuredAttempt{slow(1, false), numbered(good, 2)}
		}, evidence.Pass, "passed on attempt 2", 0, []string{cell}},
		{"passed, then failed", func(good evidence.MeasuredAttempt) []evidence.MeasuredAttempt {
			return []evidence.MeasuredAttempt{good, slow(2, false)}
		}, evidence.Fail, "n2/gpu0 at size=1GiB: min of bw is 1 GB/s, below 90 GB/s", 0, nil},
		{"cut, then passed", func(good evidence.MeasuredAttempt) []evidence.MeasuredAttempt {
			return []evidence.MeasuredAttempt{slow(1, true), numbered(good, 2)}
		}, evidence.Pass, "", 1, nil},
		{"passed, then cut", func(good evidence.MeasuredAttempt) []evidence.MeasuredAttempt {
			return []evidence.MeasuredAttempt{good, slow(2, true)}
		}, evidence.Pass, "", 1, nil},
		{"failed, then cut", func(evidence.MeasuredAttempt) []evidence.MeasuredAttempt {
			return []evidence.MeasuredAttempt{slow(1, false), slow(2, true)}
		}, evidence.Fail, "n2/gpu0 at size=1GiB: min of bw is 1 GB/s, below 90 GB/s", 1, nil},
		{"failed, cut, passed", func(good evidence.MeasuredAttempt) []evidence.MeasuredAttempt {
			return []evidence.MeasuredAttempt{slow(1, false), slow(2, true), numbered(good, 3)}
		}, evidence.Pass, "passed on attempt 3", 1, []string{cell}},
	} {
		b := gpus()
		b.at(cell).Attempts = c.attempts(*b.first(cell))
		v := b.judge()
		f := of(v, "n2")
		if f.Outcome != c.outcome || f.Reason != c.reason || v.Outcome != c.outcome {
			t.Errorf("%s: %s, %q", c.name, f.Outcome, f.Reason)
		}
		if len(v.Coverage.Cuts) != c.cuts || !reflect.DeepEqual(v.Coverage.Retried, c.retried) || v.Tests[0].Retried != len(c.retried) {
			t.Errorf("%s: cuts %+v, retried %v, tests %+v", c.name, v.Coverage.Cuts, v.Coverage.Retried, v.Tests)
		}
	}
}

func numbered(a evidence.MeasuredAttempt, n int) evidence.MeasuredAttempt {
	a.Number = n
	return a
}

func TestPer(t *testing.T) {
	for _, c := range []struct {
		per, stat string
		want      string // subject observed …
	}{
		{"gpu", "min", "n1/gpu0 100; n1/gpu1 100; n2/gpu0 50; n2/gpu1 100; n3/gpu0 100; n3/gpu1 100"},
		{"node", "min", "n1 100; n2 50; n3 100"},
		{"rack", "min", "rack=A1 50; rack=A2 100"},
		{"test", "min", "fleet 50"},
		{"test", "sum", "fleet 2350"},
		{"node", "count", "n1 8; n2 8; n3 8"},
		{"node", "mean", "n1 100; n2 93.75; n3 100"},
		{"node", "spread", "n1 0; n2 50; n3 0"},
		{"test", "p5", "fleet 100"},
	} {
		b := gpus(func(t *evidence.Threshold) {
			t.Per, t.Stat, t.Min, t.Max, t.Unit = c.per, c.stat, nil, ptr(1e6), Stat(c.stat).Unit("GB/s")
		})
		b.first("hbm/n2.r2").Measurements[0].Value = 50
		var got []string
		for _, f := range b.judge().Findings {
			if f.Outcome != evidence.Pass {
				t.Errorf("per %s: %s: %s", c.per, f.Outcome, f.Reason)
				continue
			}
			got = append(got, fmt.Sprintf("%s %v", f.Subject, *f.Observed))
		}
		if got := strings.Join(got, "; "); got != c.want {
			t.Errorf("%s per %s: %s, want %s", c.stat, c.per, got, c.want)
		}
	}
}

func TestPerLabelThatANodeLacks(t *testing.T) {
	b := gpus(func(t *evidence.Threshold) { t.Per = "rack" })
	b.plan.Fleet.Nodes[1].Labels = nil
	v := b.judge()
	f := of(v, "n2")
	if f.Outcome != evidence.Inconclusive || f.Reason != `n2 has no label "rack" in the layout` || f.Node != "n2" {
		t.Errorf("finding %+v", f)
	}
	if of(v, "rack=A1").Outcome != evidence.Pass || v.Outcome != evidence.Inconclusive {
		t.Errorf("verdict %+v", v)
	}
}

func TestSpreadIsPerCombination(t *testing.T) {
	b := gpus(func(t *evidence.Threshold) {
		t.Stat, t.Per, t.Unit, t.Min, t.Max = "spread", "test", "%", nil, ptr(5.0)
	})
	for i := range b.cells {
		ms := b.cells[i].Attempts[0].Measurements
		for k := range ms {
			if ms[k].Labels["size"] == "2GiB" {
				ms[k].Value = 200
			}
		}
	}
	if v := b.judge(); v.Outcome != evidence.Pass {
		t.Errorf("spread of two sizes: %+v", v.Findings)
	}
	b.first("hbm/n3.r1").Measurements[2].Value = 180
	f := of(b.judge(), "fleet")
	if f.Outcome != evidence.Fail || *f.Observed != 10 || f.Node != "n3" || f.Reason != "fleet at size=2GiB: spread of bw is 10 %, over 5 %" {
		t.Errorf("finding %+v", f)
	}
}

func TestOutlier(t *testing.T) {
	values := []float64{462.1, 461.8, 463.0, 462.5, 460.9, 461.5, 462.7, 430.2}
	build := func() *bench {
		b := newBench(8).test("hbm", evidence.ScopeNode, 3, evidence.Threshold{
			Name: "outlier", Metric: "bw", Stat: "mad_z", Per: "node", Unit: "1", Level: "node", Subjects: []string{"n[1-8]"}, Min: ptr(-3.5), Resolution: 0.1,
		})
		for i, n := range nodes(8) {
			for r := 1; r <= 3; r++ {
				b.measure(fmt.Sprintf("hbm/%s.r%d", n, r), measured("bw", n, values[i]))
			}
		}
		return b
	}
	b := build()
	// One bad repetition of three is not the node's median.
	b.first("hbm/n1.r2").Measurements[0].Value = 100
	v := b.judge()
	for i, n := range nodes(8) {
		f := of(v, n)
		want := evidence.Pass
		if i == 7 {
			want = evidence.Fail
		}
		if f.Outcome != want {
			t.Errorf("%s: %s %s", n, f.Outcome, f.Reason)
		}
	}
	if f := of(v, "n8"); !strings.HasPrefix(f.Reason, "n8: mad_z of bw is -9.27") || !strings.HasSuffix(f.Reason, ", below -3.5; its median is 430.2 GB/s") || f.Node != "n8" {
		t.Errorf("reason %q", f.Reason)
	}

	// A subject without a measurement is inconclusive; the others are compared
	// without it.
	b = build()
	b.at("hbm/n2.r1").Attempts = nil
	v = b.judge()
	if of(v, "n2").Outcome != evidence.Inconclusive || of(v, "n1").Outcome != evidence.Pass || of(v, "n8").Outcome != evidence.Fail {
		t.Errorf("with one node missing: %+v", v.Findings)
	}
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		b.at("hbm/" + n + ".r1").Attempts = nil
	}
	v = b.judge()
	if f := of(v, "n8"); f.Outcome != evidence.Inconclusive || f.Reason != "n8: bw: mad_z compares at least 5 subjects and has 4" {
		t.Errorf("among four: %s %s", f.Outcome, f.Reason)
	}

	// More subjects may be asked for.
	b = build()
	b.plan.Tests[0].Thresholds[0].MinSamples = 9
	if f := of(b.judge(), "n1"); f.Outcome != evidence.Inconclusive || f.Reason != "n1: bw: mad_z needs 9 subjects and has 8" {
		t.Errorf("nine asked for: %s %s", f.Outcome, f.Reason)
	}

	// Two units among the samples cannot be compared.
	b = build()
	b.first("hbm/n3.r1").Measurements[0].Unit = "MB/s"
	if f := of(b.judge(), "n3"); f.Outcome != evidence.Error {
		t.Errorf("two units: %s %s", f.Outcome, f.Reason)
	}
}

func TestOutlierWithoutScale(t *testing.T) {
	b := newBench(5).test("hbm", evidence.ScopeNode, 1, evidence.Threshold{
		Name: "outlier", Metric: "bw", Stat: "mad_z", Per: "node", Unit: "1", Level: "node", Subjects: []string{"n[1-5]"}, Max: ptr(3.5),
	})
	for i, n := range nodes(5) {
		b.measure("hbm/"+n+".r1", measured("bw", n, float64(i/4)))
	}
	v := b.judge()
	if of(v, "n1").Outcome != evidence.Pass || of(v, "n5").Outcome != evidence.Inconclusive || v.Outcome != evidence.Inconclusive {
		t.Errorf("findings %+v", v.Findings)
	}
}

// versions is a test "inv" of a text fact on three nodes.
func versions(change func(*evidence.Threshold)) *bench {
	t := evidence.Threshold{Name: "driver", Metric: "driver", Text: true, Stat: "equals", Per: "node", Level: "node", Subjects: []string{"n[1-3]"}, Equals: ptr("570.1")}
	if change != nil {
		change(&t)
	}
	b := newBench(3).test("inv", evidence.ScopeNode, 1, t)
	for _, n := range nodes(3) {
		a := b.first("inv/" + n + ".r1")
		a.Facts = append(a.Facts, fact("driver", n, "570.1"))
	}
	return b
}

func TestTexts(t *testing.T) {
	distinct := func(t *evidence.Threshold) {
		t.Stat, t.Per, t.Equals, t.Max = "distinct", "test", nil, ptr(1.0)
	}
	other := func(b *bench) { b.first("inv/n2.r1").Facts[0].Value = "560.9" }
	missing := func(b *bench) {
		b.first("inv/n2.r1").Facts[0] = evidence.Fact{Name: "driver", Missing: "N/A", Subject: "n2"}
	}
	gone := func(b *bench) { b.first("inv/n3.r1").Facts = nil }
	for _, c := range []struct {
		name    string
		change  func(*evidence.Threshold)
		damage  []func(*bench)
		subject string
		outcome evidence.Outcome
		reason  string
		text    string
	}{
		{"equals", nil, nil, "n2", evidence.Pass, "", "570.1"},
		{"equals another", nil, []func(*bench){other}, "n2", evidence.Fail, `n2: driver is "560.9", not "570.1"`, "560.9"},
		{"equals of a missing text", nil, []func(*bench){missing}, "n2", evidence.Inconclusive, `n2: driver is "N/A"`, ""},
		{"equals of nothing", nil, []func(*bench){gone}, "n3", evidence.Inconclusive, "n3: driver was not measured", ""},
		{"equals per test, one missing and one wrong", func(t *evidence.Threshold) { t.Per = "test" }, []func(*bench){other, gone}, "fleet", evidence.Fail, `n2: driver is "560.9", not "570.1"`, "560.9"},
		{"equals the empty text", func(t *evidence.Threshold) { t.Equals = ptr("") }, nil, "n2", evidence.Fail, `n2: driver is "570.1", not ""`, "570.1"},
		{"distinct", distinct, nil, "fleet", evidence.Pass, "", "570.1"},
		{"distinct, each alone", func(t *evidence.Threshold) { distinct(t); t.Per = "node" }, nil, "n1", evidence.Inconclusive, "n1: driver needs 2 texts and has 1", ""},
		{"distinct, two", distinct, []func(*bench){other}, "fleet", evidence.Fail, `fleet: distinct of driver is 2, over 1: "570.1" and "560.9"`, "560.9"},
		{"distinct, one missing", distinct, []func(*bench){missing}, "fleet", evidence.Inconclusive, `n2: driver is "N/A"`, ""},
		{"distinct, two and one missing", distinct, []func(*bench){other, gone}, "fleet", evidence.Fail, `fleet: distinct of driver is 2, over 1: "570.1" and "560.9"`, "560.9"},
		{"too few", func(t *evidence.Threshold) { distinct(t); t.MinSamples = 4 }, nil, "fleet", evidence.Inconclusive, "fleet: driver needs 4 texts and has 3", ""},
	} {
		b := versions(c.change)
		for _, d := range c.damage {
			d(b)
		}
		f := of(b.judge(), c.subject)
		if f.Outcome != c.outcome || f.Reason != c.reason || f.Text != c.text {
			t.Errorf("%s: %s, %q, text %q", c.name, f.Outcome, f.Reason, f.Text)
		}
	}
}

func fabric(scope evidence.Scope) *bench {
	return newBench(3).test("nccl", scope, 1, evidence.Threshold{
		Name: "busbw", Metric: "busbw", Stat: "min", Per: "test", Unit: "GB/s", Level: "fleet", Subjects: []string{"fleet"}, Min: ptr(300.0),
	})
}

func TestWholeSet(t *testing.T) {
	const cell = "nccl/n1-n2-n3.r1"
	b := fabric(evidence.ScopeFleet).measure(cell, measured("busbw", "fleet", 350))
	if v := b.judge(); v.Outcome != evidence.Pass || !v.Gates[0].Met || v.Coverage.NodesPassing != 3 {
		t.Errorf("verdict %+v", v)
	}
	// A problem on any node hits the measurement of all.
	b.first(cell).Problems = []evidence.Problem{{Node: "n2", Class: evidence.ClassInterrupted, Detail: "rebooted"}}
	v := b.judge()
	f := of(v, "fleet")
	if f.Outcome != evidence.Inconclusive || f.Node != "n2" || f.Class != evidence.ClassInterrupted || f.Reason != "fleet: no measurement counts: n2: interrupted: rebooted" {
		t.Errorf("finding %+v", f)
	}
	if v.Gates[0].Met || v.Coverage.NodesPassing != 0 {
		t.Errorf("gate %+v, coverage %+v", v.Gates[0], v.Coverage)
	}
	// An exit that the measurement proves harmless does not.
	b.first(cell).Problems[0].Class = evidence.ClassExit
	if v := b.judge(); v.Outcome != evidence.Pass {
		t.Errorf("with an exit: %+v", v.Findings)
	}
	// Every pair has to give the measurement of its set.
	b = fabric(evidence.ScopePair).measure("nccl/n1-n2.r1", measured("busbw", "fleet", 350))
	if f := of(b.judge(), "fleet"); f.Outcome != evidence.Inconclusive {
		t.Errorf("one pair of two: %+v", f)
	}
	b.measure("nccl/n2-n3.r1", measured("busbw", "fleet", 310))
	if f := of(b.judge(), "fleet"); f.Outcome != evidence.Pass || *f.Observed != 310 {
		t.Errorf("both pairs: %+v", f)
	}
}

func TestPairs(t *testing.T) {
	build := func() *bench {
		b := newBench(3).test("ib", evidence.ScopePair, 1, evidence.Threshold{
			Name: "bw", Metric: "bw", Stat: "min", Per: "peer", Unit: "GB/s", Level: "node/nic/peer",
			Subjects: []string{"n1/mlx0/n2", "n2/mlx0/n1", "n2/mlx0/n3", "n3/mlx0/n2"}, Min: ptr(40.0),
		})
		b.measure("ib/n1-n2.r1", measured("bw", "n1/mlx0/n2", 48), measured("bw", "n2/mlx0/n1", 48))
		b.measure("ib/n2-n3.r1", measured("bw", "n2/mlx0/n3", 48), measured("bw", "n3/mlx0/n2", 48))
		return b
	}
	if v := build().judge(); v.Outcome != evidence.Pass || len(v.Findings) != 4 {
		t.Fatalf("verdict %+v", v)
	}
	// A measurement counts in the cell of its own pair only.
	b := build()
	b.first("ib/n1-n2.r1").Measurements[1].Subject = "n2/mlx0/n3"
	if f := of(b.judge(), "n2/mlx0/n1"); f.Outcome != evidence.Inconclusive {
		t.Errorf("finding %+v", f)
	}
	// A problem on the far node hits the measurement too.
	b = build()
	b.first("ib/n2-n3.r1").Problems = []evidence.Problem{{Node: "n3", Class: evidence.ClassLost, Detail: "gone"}}
	v := b.judge()
	f := of(v, "n2/mlx0/n3")
	if f.Outcome != evidence.Inconclusive || f.Node != "n3" || of(v, "n2/mlx0/n1").Outcome != evidence.Pass {
		t.Errorf("finding %+v", f)
	}
	// A subject that is on one node of several pairs is expected of each pair.
	b = newBench(3).test("ib", evidence.ScopePair, 1, evidence.Threshold{
		Name: "bw", Metric: "bw", Stat: "min", Per: "node", Unit: "GB/s", Level: "node", Subjects: []string{"n[1-3]"}, Min: ptr(40.0),
	})
	b.measure("ib/n1-n2.r1", measured("bw", "n1", 48), measured("bw", "n2", 48)).measure("ib/n2-n3.r1", measured("bw", "n3", 48))
	v = b.judge()
	if of(v, "n1").Outcome != evidence.Pass || of(v, "n2").Outcome != evidence.Inconclusive || of(v, "n3").Outcome != evidence.Pass {
		t.Errorf("findings %+v", v.Findings)
	}
}

func TestTimeSeries(t *testing.T) {
	b := newBench(1).test("soak", evidence.ScopeNode, 1,
		evidence.Threshold{Name: "hot", Metric: "temp", Stat: "p95", Per: "node", Unit: "C", Level: "node", Subjects: []string{"n1"}, Max: ptr(90.0)},
		evidence.Threshold{Name: "seen", Metric: "temp", Stat: "count", Per: "node", Unit: "1", Level: "node", Subjects: []string{"n1"}, Min: ptr(20.0)})
	for i := range 20 {
		b.measure("soak/n1.r1", evidence.Measurement{Metric: "temp", Unit: "C", Value: float64(75 + i), Subject: "n1"})
	}
	v := b.judge()
	if f := v.Findings[0]; f.Outcome != evidence.Fail || *f.Observed != 93 || *f.Margin != -3 {
		t.Errorf("p95: %+v", f)
	}
	if f := v.Findings[1]; f.Outcome != evidence.Pass || *f.Observed != 20 {
		t.Errorf("count: %+v", f)
	}
}

// TestOrderOfInput: the order of results and measurements means nothing.
func TestOrderOfInput(t *testing.T) {
	for _, stat := range StatNames() {
		if Stat(stat).Text() {
			continue
		}
		build := func() *bench {
			b := gpus(func(t *evidence.Threshold) {
				t.Stat, t.Per, t.Unit, t.Min = stat, "test", Stat(stat).Unit("GB/s"), ptr(0.5)
			})
			g := generator(7)
			for i := range b.cells {
				for k := range b.cells[i].Attempts[0].Measurements {
					b.cells[i].Attempts[0].Measurements[k].Value = g.next() * 1e3
				}
			}
			return b
		}
		want := build().judge()
		b := build()
		for i, j := 0, len(b.cells)-1; i < j; i, j = i+1, j-1 {
			b.cells[i], b.cells[j] = b.cells[j], b.cells[i]
		}
		for i := range b.cells {
			ms := b.cells[i].Attempts[0].Measurements
			for k, l := 0, len(ms)-1; k < l; k, l = k+1, l-1 {
				ms[k], ms[l] = ms[l], ms[k]
			}
		}
		got := b.judge()
		for i := range want.Findings {
			want.Findings[i].Source, got.Findings[i].Source = "", ""
			want.Findings[i].Node, got.Findings[i].Node = "", ""
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", stat, got.Findings, want.Findings)
		}
	}
}

// TestSubjectOfManyCells: what every cell has to measure is looked for in
// every cell.
func TestSubjectOfManyCells(t *testing.T) {
	build := func(subject string) *bench {
		b := newBench(40)
		b.test("ib", evidence.ScopeNode, 1, evidence.Threshold{
			Name: "bw", Metric: "bw", Stat: "min", Per: "test", Unit: "GB/s", Level: subject, Subjects: []string{subject}, Min: ptr(40.0),
		})
		for i := range b.cells {
			b.measure(b.cells[i].Cell.ID, measured("bw", subject, 48+float64(i)))
		}
		return b
	}
	b := build("fleet")
	if f := of(b.judge(), "fleet"); f.Outcome != evidence.Pass || *f.Observed != 48 {
		t.Errorf("all forty: %+v", f)
	}
	b.first("ib/n30.r1").Measurements[0].Value = 20
	if f := of(b.judge(), "fleet"); f.Outcome != evidence.Fail || *f.Observed != 20 || f.Source != "ib/n30.r1#1 out:1" {
		t.Errorf("one slow: %+v", f)
	}
	b.first("ib/n30.r1").Measurements = nil
	if f := of(b.judge(), "fleet"); f.Outcome != evidence.Inconclusive || f.Source != "ib/n30.r1#1" {
		t.Errorf("one of forty missing: %+v", f)
	}
}

func TestProblemOfAnotherNodeExplains(t *testing.T) {
	b := newBench(2).test("nccl", evidence.ScopeFleet, 1, evidence.Threshold{
		Name: "bw", Metric: "bw", Stat: "min", Per: "node", Unit: "GB/s", Level: "node", Subjects: []string{"n[1-2]"}, Min: ptr(40.0),
	})
	b.measure("nccl/n1-n2.r1", measured("bw", "n1", 48))
	b.first("nccl/n1-n2.r1").Problems = []evidence.Problem{{Node: "n1", Step: "mpirun", Class: evidence.ClassExit, Detail: "exit status 2"}}
	v := b.judge()
	if f := of(v, "n2"); f.Outcome != evidence.Error || f.Reason != "n2: no measurement counts: n1: exit: exit status 2" || f.Node != "n1" {
		t.Errorf("n2: %+v", f)
	}
	if f := of(v, "n1"); f.Outcome != evidence.Pass {
		t.Errorf("n1: %+v", f)
	}
	// The node's own problem explains it better.
	b.first("nccl/n1-n2.r1").Problems = append(b.first("nccl/n1-n2.r1").Problems, evidence.Problem{Node: "n2", Class: evidence.ClassOutputCapped, Detail: "16MiB"})
	if f := of(b.judge(), "n2"); f.Outcome != evidence.Error || f.Class != evidence.ClassOutputCapped || f.Node != "n2" {
		t.Errorf("n2 with a problem of its own: %+v", f)
	}
}

func TestTooLargeForANumber(t *testing.T) {
	b := gpus(func(t *evidence.Threshold) { t.Min = ptr(-math.MaxFloat64) })
	b.first("hbm/n1.r1").Measurements[0].Value = math.MaxFloat64
	for i := range b.cells {
		for k := range b.cells[i].Attempts[0].Measurements {
			b.cells[i].Attempts[0].Measurements[k].Value = math.MaxFloat64
		}
	}
	if f := of(b.judge(), "n1"); f.Outcome != evidence.Pass || f.Margin != nil || *f.Observed != math.MaxFloat64 {
		t.Errorf("a margin without end: %+v", f)
	}
	b.plan.Tests[0].Thresholds[0].Stat = "sum"
	if f := of(b.judge(), "n1"); f.Outcome != evidence.Inconclusive || f.Reason != "n1: bw: the result is too large for a number" {
		t.Errorf("a sum without end: %+v", f)
	}
}

// TestUnexpectedResults: what the plan does not have counts for nothing.
func TestUnexpectedResults(t *testing.T) {
	b := gpus()
	extra := evidence.CellResult{Cell: evidence.Cell{ID: "hbm/n9.r1", Test: "hbm", Nodes: "n9", Repetition: 1}, Attempts: []evidence.MeasuredAttempt{attempt(1, measured("bw", "n2/gpu0", 1, "size", "1GiB"))}}
	b.cells = append(b.cells, extra)
	// A result cannot change what the plan says of its cell.
	b.at("hbm/n1.r1").Cell.Nodes = "n2"
	if v := b.judge(); v.Outcome != evidence.Pass || v.Coverage.Cells != 6 {
		t.Errorf("verdict %+v", v)
	}
}

// TestOpenCellWithoutAFinding: a problem counts although no threshold is about
// its node.
func TestOpenCellWithoutAFinding(t *testing.T) {
	b := gpus(func(t *evidence.Threshold) { t.Subjects = []string{"n[1-2]/gpu[0-1]"} })
	if v := b.judge(); v.Outcome != evidence.Pass {
		t.Fatalf("verdict %+v", v)
	}
	b.first("hbm/n3.r1").Problems = []evidence.Problem{{Node: "n3", Class: evidence.ClassLost}}
	v := b.judge()
	if v.Outcome != evidence.Inconclusive || v.Tests[0].Outcome != evidence.Inconclusive || v.Coverage.Passing != 2 || len(v.Coverage.Open) != 1 {
		t.Errorf("verdict %+v", v)
	}
}

// A few bytes of a plan stand for many nodes: what names more than a judge can
// hold has no nodes, and says so.
func TestNodeSetsAreBounded(t *testing.T) {
	const over = "the nodes of the cell: the plan's node sets name more than 8388608 nodes in all"
	for repeat, want := range map[int]evidence.Outcome{127: evidence.Pass, 128: evidence.Inconclusive} {
		b := newBench(65536)
		b.plan.Tests = []evidence.Test{{Name: "sum", Phase: "node", Scope: evidence.ScopeFleet, Nodes: "n[1-65536]", Repeat: repeat, Thresholds: []evidence.Threshold{fleetBandwidth}}}
		for r := 1; r <= repeat; r++ {
			c := evidence.Cell{ID: fmt.Sprintf("sum/set.r%d", r), Test: "sum", Nodes: "n[1-65536]", Repetition: r}
			b.plan.Cells = append(b.plan.Cells, c)
			b.cells = append(b.cells, evidence.CellResult{Cell: c, Attempts: []evidence.MeasuredAttempt{attempt(1, measured("bw", "fleet", 100))}})
		}
		v := b.judge()
		if v.Outcome != want {
			t.Errorf("%d repetitions: %s, want %s", repeat, v.Outcome, want)
		}
		if want == evidence.Pass {
			continue
		}
		open := v.Coverage.Open
		if len(open) != 1 || open[0].Cell != "sum/set.r128" || open[0].Problem.Detail != over {
			t.Errorf("%d repetitions: %d open cells: %+v", repeat, len(open), open)
		}
	}
}

var fleetBandwidth = evidence.Threshold{
	Name: "bw", Metric: "bw", Stat: "min", Per: "fleet", Level: "fleet", Subjects: []string{"fleet"}, Unit: "GB/s", Min: ptr(90.0),
}

// Sets of nodes that the fleet does not have are not kept, however many there
// are, and a cell that names one is no pass.
func TestNodesOutsideOfTheFleetAreNotKept(t *testing.T) {
	b := newBench(2).test("sum", evidence.ScopeFleet, 1, fleetBandwidth)
	b.cells[0].Attempts[0].Measurements = []evidence.Measurement{measured("bw", "fleet", 100)}
	if v := b.judge(); v.Outcome != evidence.Pass {
		t.Fatalf("undamaged: %s", v.Outcome)
	}
	b.plan.Cells[0].Nodes = "n[1-2],y[1-65534]"
	for i := range 40 {
		b.plan.Cells = append(b.plan.Cells, evidence.Cell{ID: fmt.Sprintf("sum/%d", i), Test: "sum", Nodes: fmt.Sprintf("x%dy[1-65536]", i)})
	}
	b.cells[0].Cell = b.plan.Cells[0]
	v := b.judge()
	want := evidence.OpenCell{Cell: b.plan.Cells[0].ID, Attempt: 1, Problem: evidence.Problem{
		Class: evidence.ClassUnmeasured, Detail: "the nodes of the cell: y1 and 65533 more are not in the fleet",
	}}
	if v.Outcome != evidence.Inconclusive || len(v.Coverage.Open) != 41 || v.Coverage.Open[0] != want {
		t.Errorf("%s, %d open, the first %+v", v.Outcome, len(v.Coverage.Open), v.Coverage.Open[0])
	}
	j := newJudge(&b.plan, b.cells)
	tests := j.tests(func(*evidence.Test) bool { return true })
	kept := 0
	for _, set := range j.sets {
		kept += len(set.nodes)
	}
	for _, c := range tests[0].cells {
		kept += len(c.nodes)
	}
	if kept != 6 { // the test's set and the first cell's, and that again in the cell
		t.Errorf("%d names are kept", kept)
	}
}
