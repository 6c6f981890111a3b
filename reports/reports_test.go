package reports

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/rackproof/rackproof/evidence"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func pointer[T any](v T) *T { return &v }

// bundles are the samples that every format has a golden for.
func bundles() map[string]*evidence.Bundle {
	return map[string]*evidence.Bundle{"pass": passing(), "open": open(), "hostile": hostile()}
}

func samplePlan() *evidence.Plan {
	return &evidence.Plan{
		MediaType: evidence.MediaPlan, Name: "pod7", Title: "Pod 7 acceptance", Version: "3.2.0",
		Runbook: evidence.DigestOf([]byte("runbook")), Executor: "ssh",
		Fleet:  evidence.Fleet{Name: "pod7", Nodes: []evidence.Node{{Name: "gpu001"}, {Name: "gpu002"}}},
		Owners: []evidence.Owner{{Name: "storage", Contact: "storage@example.com"}},
		Phases: []evidence.Phase{{Name: "node", Gate: evidence.Gate{Require: "all", OnFail: "stop"}}},
		Tests: []evidence.Test{
			{
				Name: "reads", Phase: "node", Owner: "storage", Check: "storage_fio", Scope: evidence.ScopeNode, Repeat: 1,
				Establishes:      []evidence.Claim{{Sentence: "Each client reads fast enough.", Thresholds: []string{"iops", "latency"}}},
				DoesNotEstablish: []string{"Writes."},
				Thresholds: []evidence.Threshold{
					{Name: "iops", Metric: "iops", Stat: "min", Per: "node", Unit: "1/s", Level: "node", Min: pointer(125000.0), Basis: "SOW 6.1"},
					{Name: "latency", Metric: "read_clat_p99", Stat: "max", Per: "node", Unit: "ms", Level: "node", Max: pointer(2.0), Basis: "SOW 6.1"},
				},
			},
			{
				Name: "driver", Phase: "node", Owner: "storage", Check: "inventory", Scope: evidence.ScopeNode, Repeat: 1,
				Establishes:      []evidence.Claim{{Sentence: "Every node runs the ordered driver.", Thresholds: []string{"driver_version"}}},
				DoesNotEstablish: []string{"That the driver works."},
				Thresholds: []evidence.Threshold{
					{Name: "driver_version", Metric: "driver_version", Text: true, Stat: "equals", Per: "node", Unit: "1", Level: "node", Equals: pointer("580.82.07"), Basis: "order"},
				},
			},
		},
		Cells: []evidence.Cell{
			{ID: "reads/gpu001.r1", Test: "reads", Nodes: "gpu001", Repetition: 1}, {ID: "reads/gpu002.r1", Test: "reads", Nodes: "gpu002", Repetition: 1},
			{ID: "driver/gpu001.r1", Test: "driver", Nodes: "gpu001", Repetition: 1}, {ID: "driver/gpu002.r1", Test: "driver", Nodes: "gpu002", Repetition: 1},
		},
	}
}

func sample(p *evidence.Plan, v *evidence.Verdict) *evidence.Bundle {
	start := time.Date(2026, 11, 30, 14, 2, 11, 0, time.UTC)
	return &evidence.Bundle{
		Run: "2026-11-30t14-02-11z-3f9a", Plan: p, PlanBytes: []byte("plan"), Verdict: v, Sealed: true, Signed: true,
		Records:   []evidence.Record{{Event: evidence.EventOpen, Time: start}, {Event: evidence.EventClose, Time: start.Add(26 * time.Hour)}},
		Inventory: &evidence.Inventory{Executor: "ssh", Nodes: []evidence.NodeIdentity{{Node: "gpu001"}, {Node: "gpu002"}}},
		Tool:      &evidence.Tool{Name: "rackproof", Version: "0.1.0", Platform: "linux/amd64"},
	}
}

func finding(test, threshold, subject string, o evidence.Outcome, observed, margin float64) evidence.Finding {
	return evidence.Finding{Test: test, Threshold: threshold, Subject: evidence.Subject(subject), Outcome: o, Observed: &observed, Margin: &margin}
}

func text580(subject string) evidence.Finding {
	return evidence.Finding{Test: "driver", Threshold: "driver_version", Subject: evidence.Subject(subject), Outcome: evidence.Pass, Text: "580.82.07"}
}

func passing() *evidence.Bundle {
	return sample(samplePlan(), &evidence.Verdict{
		Outcome: evidence.Pass,
		Findings: []evidence.Finding{
			finding("reads", "iops", "gpu001", evidence.Pass, 131072.25, 6072.25), finding("reads", "iops", "gpu002", evidence.Pass, 125000, 0),
			finding("reads", "latency", "gpu001", evidence.Pass, 1.9999999, 0.0000001), finding("reads", "latency", "gpu002", evidence.Pass, 0.5, 1.5),
			text580("gpu001"), text580("gpu002"),
		},
		Coverage: evidence.Coverage{Cells: 4, Measured: 4, Nodes: 2, NodesPassing: 2, Findings: 6, Passing: 6, Retried: []string{"reads/gpu002.r1"}},
		Gates:    []evidence.GateResult{{Phase: "node", Met: true, Needed: 2, Passing: []string{"gpu[001-002]"}}},
		Releases: []evidence.ReleaseResult{{Release: "final", Outcome: evidence.Pass}},
		Tests: []evidence.TestResult{
			{Test: "reads", Outcome: evidence.Pass, Cells: 2, Passed: 2, Retried: 1}, {Test: "driver", Outcome: evidence.Pass, Cells: 2, Passed: 2},
		},
	})
}

// open has one of everything that is not a pass.
func open() *evidence.Bundle {
	p := samplePlan()
	p.SharedMachine = true
	p.Narrowed = []string{"--test test.reads"}
	p.Variables = []evidence.Variable{{Name: "soak", OffContract: true}}
	p.Quorums = []evidence.Quorum{{Name: "plan", Of: "plan"}}
	slow := finding("reads", "latency", "gpu001", evidence.Fail, 2.0000001, -0.0000001)
	slow.Unit, slow.Reason, slow.Node, slow.Source = "ms", "above the bound", "gpu001", "reads/gpu001.r1 attempt 2: fio.gpu001/stdout:/jobs/0/read"
	lost := evidence.Problem{Node: "gpu002", Step: "fio", Class: evidence.ClassLost, Detail: "connection reset"}
	b := sample(p, &evidence.Verdict{
		Outcome: evidence.Fail,
		Findings: []evidence.Finding{
			finding("reads", "iops", "gpu001", evidence.Pass, 125000.4, 0.4),
			{Test: "reads", Threshold: "iops", Subject: "gpu002", Outcome: evidence.Inconclusive, Reason: "nothing measured", Class: evidence.ClassLost, Node: "gpu002"},
			slow,
			{Test: "reads", Threshold: "latency", Subject: "gpu002", Outcome: evidence.Inconclusive, Reason: "nothing measured", Class: evidence.ClassLost, Node: "gpu002"},
			text580("gpu001"),
			{Test: "driver", Threshold: "driver_version", Subject: "gpu002", Outcome: evidence.Fail, Text: "570.00.01", Reason: "not the bound text"},
		},
		Coverage: evidence.Coverage{
			Cells: 4, Measured: 3, Nodes: 2, NodesPassing: 0, Findings: 6, Passing: 2,
			Open: []evidence.OpenCell{{Cell: "reads/gpu002.r1", Attempt: 1, Problem: lost}},
			Cuts: []evidence.OpenCell{{Cell: "reads/gpu001.r1", Attempt: 1, Problem: evidence.Problem{Class: evidence.ClassCut, Detail: "the runner was stopped"}}},
		},
		Gates:    []evidence.GateResult{{Phase: "node", Needed: 2, Failing: []string{"gpu[001-002]"}, Reason: "0 of 2 nodes pass"}},
		Releases: []evidence.ReleaseResult{{Release: "final", Outcome: evidence.Fail, Reason: "phase node fails"}},
		Tests: []evidence.TestResult{
			{Test: "reads", Outcome: evidence.Fail, Cells: 2}, {Test: "driver", Outcome: evidence.Fail, Cells: 2, Passed: 1},
		},
	})
	b.Sealed, b.Signed = false, false
	b.Inventory.Nodes[1].Simulated = true
	return b
}

// hostile has text from nodes that tries to rewrite the page.
func hostile() *evidence.Bundle {
	b := passing()
	b.Plan.Title = "ok\r\nVerdict: PASS\x1b[2K\u202e"
	b.Plan.Tests[0].Establishes[0].Sentence = "line one\nEstablished: everything\u2028\u0085 \xff"
	b.Verdict.Findings[4].Text = "580\x1b]0;owned\a"
	b.Verdict.Findings[4].Outcome = evidence.Fail
	b.Verdict.Findings[4].Reason = "a\u200bb\u2066c\U000e0041"
	b.Verdict.Outcome = evidence.Fail
	return b
}

func TestFormats(t *testing.T) {
	for name, bundle := range bundles() {
		for _, format := range Formats() {
			t.Run(name+"/"+format.Name(), func(t *testing.T) {
				var got bytes.Buffer
				if err := format.Render(&got, bundle); err != nil {
					t.Fatal(err)
				}
				golden(t, filepath.Join("testdata", name, format.Name()+".golden"), got.Bytes())
			})
		}
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}

// No format may let a control character or a bidi mark through, nor a line
// break that is not its own.
func TestHostileTextIsEscaped(t *testing.T) {
	for _, format := range Formats() {
		var got bytes.Buffer
		if err := format.Render(&got, hostile()); err != nil {
			t.Fatal(err)
		}
		for i, r := range got.String() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s: %q at byte %d", format.Name(), r, i)
			}
		}
		if strings.Contains(got.String(), "\nVerdict: PASS") || strings.Contains(got.String(), "\nEstablished: everything") {
			t.Errorf("%s: a text of the bundle became a line of the report", format.Name())
		}
	}
}

func TestNoVerdictIsAnError(t *testing.T) {
	b := passing()
	b.Verdict = nil
	for _, format := range Formats() {
		if err := format.Render(&bytes.Buffer{}, b); err == nil || !strings.Contains(err.Error(), "no verdict") {
			t.Errorf("%s: got %v", format.Name(), err)
		}
	}
}

func TestFailingWriterIsAnError(t *testing.T) {
	for _, format := range Formats() {
		if err := format.Render(full{}, passing()); err == nil {
			t.Errorf("%s: a full disk went unnoticed", format.Name())
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestClaimsNeedEveryFindingAndEveryCell(t *testing.T) {
	established := func(change func(*evidence.Bundle)) int {
		b := passing()
		change(b)
		s, err := Summarize(b)
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Established)
	}
	if got := established(func(*evidence.Bundle) {}); got != 2 {
		t.Fatalf("a passing bundle establishes %d claims, want 2", got)
	}
	for name, change := range map[string]func(*evidence.Bundle){
		"a finding is inconclusive": func(b *evidence.Bundle) { b.Verdict.Findings[0].Outcome = evidence.Inconclusive },
		"a finding is none":         func(b *evidence.Bundle) { b.Verdict.Findings[0].Outcome = evidence.None },
		"no findings":               func(b *evidence.Bundle) { b.Verdict.Findings = b.Verdict.Findings[4:] },
		"a cell is open":            func(b *evidence.Bundle) { b.Verdict.Coverage.Open = []evidence.OpenCell{{Cell: "reads/gpu001.r1"}} },
		"no threshold carries it":   func(b *evidence.Bundle) { b.Plan.Tests[0].Establishes[0].Thresholds = nil },
	} {
		if got := established(change); got != 1 {
			t.Errorf("%s: %d claims established, want 1", name, got)
		}
	}
}

// A claim that fails and is inconclusive fails: the reason may not hide that.
func TestReasonsAgainstAClaim(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*evidence.Bundle)
		want   string
	}{
		"the first threshold fails": {func(b *evidence.Bundle) {
			b.Verdict.Findings[0].Outcome, b.Verdict.Findings[2].Outcome = evidence.Fail, evidence.Inconclusive
		}, "threshold iops: fail; threshold latency: inconclusive"},
		"the last threshold fails": {func(b *evidence.Bundle) {
			b.Verdict.Findings[0].Outcome, b.Verdict.Findings[2].Outcome = evidence.Error, evidence.Fail
		}, "threshold latency: fail; threshold iops: error"},
		"nothing is found": {func(b *evidence.Bundle) { b.Verdict.Findings = nil }, "threshold iops: inconclusive; threshold latency: inconclusive"},
		"two cells are open": {func(b *evidence.Bundle) {
			b.Verdict.Coverage.Open = []evidence.OpenCell{{Cell: "reads/gpu001.r1"}, {Cell: "reads/gpu002.r1"}}
		}, "cell reads/gpu001.r1 was not measured, and 1 more"},
		"a cell is open, and a threshold says so": {func(b *evidence.Bundle) {
			b.Verdict.Findings[2].Outcome = evidence.Inconclusive
			b.Verdict.Coverage.Open = []evidence.OpenCell{{Cell: "reads/gpu001.r1"}}
		}, "threshold latency: inconclusive"},
		"no threshold carries it": {func(b *evidence.Bundle) { b.Plan.Tests[0].Establishes[0].Thresholds = nil }, "no threshold carries it"},
	} {
		b := passing()
		c.change(b)
		s, err := Summarize(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.NotEstablished[0]; got.Sentence != "Each client reads fast enough." || got.Reason != c.want {
			t.Errorf("%s: %q, want %q", name, got.Reason, c.want)
		}
	}
}

func TestWithUnit(t *testing.T) {
	for unit, want := range map[string]string{"": "5", "1": "5", "ms": "5 ms", "%": "5 %"} {
		if got := WithUnit("5", unit); got != want {
			t.Errorf("unit %q: %q, want %q", unit, got, want)
		}
	}
}

func TestTestWithoutResultIsNeverAPass(t *testing.T) {
	b := passing()
	b.Verdict.Tests = nil
	s, err := Summarize(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range s.Tests {
		if test.Outcome != evidence.Inconclusive {
			t.Errorf("%s: %s", test.Test, test.Outcome)
		}
	}
}

func TestRoundedNeverCrossesALimit(t *testing.T) {
	tenth := 0.1 // a variable: constants are added exactly
	for _, c := range []struct {
		v      float64
		limits []float64
		want   string
	}{
		{1.23456789, nil, "1.23457"},
		{2.0000001, []float64{2}, "2.0000001"},
		{1.9999999, []float64{2}, "1.9999999"},
		{2, []float64{2}, "2"},
		{tenth + 0.2, []float64{0.3}, "0.30000000000000004"},
		{367.999999999, []float64{368}, "367.999999999"},
		{4000000, nil, "4000000"},
		{1234567, nil, "1234567"},
		{-1234567, []float64{0}, "-1234567"},
		{1234567.5, nil, "1234570"},
		{1<<53 - 1, nil, "9007199254740991"},
		{1 << 53, nil, "9007199254740992"},
		{1<<53 + 2, nil, "9007200000000000"},
		{1e-9, []float64{0}, "1e-09"},
		{-1e-9, []float64{0}, "-1e-09"},
		{0, []float64{0}, "0"},
	} {
		if got := Rounded(c.v, c.limits...); got != c.want {
			t.Errorf("Rounded(%v, %v) = %s, want %s", c.v, c.limits, got, c.want)
		}
	}
}

func FuzzRounded(f *testing.F) {
	f.Add(2.0000001, 2.0)
	f.Add(math.Copysign(0, -1), 0.0)
	f.Add(math.MaxFloat64, math.MaxFloat64)
	f.Fuzz(func(t *testing.T, v, limit float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) || math.IsNaN(limit) || math.IsInf(limit, 0) {
			return
		}
		var shown float64
		if err := json.Unmarshal([]byte(Rounded(v, limit)), &shown); err != nil {
			t.Fatalf("Rounded(%v, %v) = %q: %v", v, limit, Rounded(v, limit), err)
		}
		if (v < limit) != (shown < limit) || (v > limit) != (shown > limit) {
			t.Fatalf("%v is shown as %v, across %v", v, shown, limit)
		}
	})
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain, naïve, 数": "plain, naïve, 数",
		"a\nb\tc\rd":      `a\nb\tc\rd`,
		"\x1b[31m\x00":    `\u001b[31m\u0000`,
		"\u202egpj.exe":   `\u202egpj.exe`,
		"\xff\xfe":        `\xff\xfe`,
		"\u00a0\u3000":    `\u00a0\u3000`,
		"\U000e0041":      `\U000e0041`,
		"\ufffd":          "\ufffd",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzPrintableJSON(f *testing.F) {
	f.Add("a\u202eb\x7f\U000e0041\n")
	f.Fuzz(func(t *testing.T, text string) {
		doc, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		shown := PrintableJSON(doc)
		for _, r := range string(shown) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q holds %q", shown, r)
			}
		}
		var want, got string
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(shown, &got); err != nil || got != want {
			t.Fatalf("%q reads back as %q, %v", want, got, err)
		}
	})
}

// Whoever reads a report learns what may still be broken in the rack.
func TestHeadlineNamesOpenFaults(t *testing.T) {
	b := passing()
	opened := func(node string, index int) evidence.Record {
		return evidence.Record{Event: evidence.EventFaultOpen, Cell: "reads/gpu001.r1", Attempt: 2, Node: node, FaultIndex: index, Fault: &evidence.Fault{Kind: "service_stop"}}
	}
	closed := opened("gpu001", 0)
	closed.Event, closed.Fault = evidence.EventFaultClose, nil
	b.Records = append(b.Records, opened("gpu001", 0), opened("gpu002", 0), closed)
	s, err := Summarize(b)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"the fault service_stop on gpu002, injected by reads/gpu001.r1 attempt 2, may still be in effect: the run has no record of its undo"}
	if !slices.Equal(s.Headline, want) {
		t.Errorf("headline %q, want %q", s.Headline, want)
	}
}
