package reports

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// What a consumer reads of the document.
type readDocument struct {
	XMLName  xml.Name    `xml:"testsuites"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Suites   []readSuite `xml:"testsuite"`
}

type readSuite struct {
	Name       string  `xml:"name,attr"`
	Tests      int     `xml:"tests,attr"`
	Failures   int     `xml:"failures,attr"`
	Errors     int     `xml:"errors,attr"`
	Skipped    int     `xml:"skipped,attr"`
	Timestamp  string  `xml:"timestamp,attr"`
	Time       float64 `xml:"time,attr"`
	Properties []struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	} `xml:"properties>property"`
	Cases []readCase `xml:"testcase"`
}

type readCase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	Time    float64   `xml:"time,attr"`
	Failure *readOpen `xml:"failure"`
	Error   *readOpen `xml:"error"`
}

type readOpen struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

func readJUnit(t *testing.T, b *evidence.Bundle) readDocument {
	t.Helper()
	var out bytes.Buffer
	if err := (junit{}).Render(&out, b); err != nil {
		t.Fatal(err)
	}
	var doc readDocument
	if err := xml.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if strings.Contains(out.String(), "<skipped") {
		t.Errorf("a case is skipped, which is shown as green:\n%s", out.String())
	}
	return doc
}

// cases gives every case as "failure", "error" with its type, or "".
func (d readDocument) cases() map[string]string {
	all := make(map[string]string)
	for _, s := range d.Suites {
		for _, c := range s.Cases {
			key := s.Name + ": " + c.Name
			switch {
			case c.Failure != nil:
				all[key] = "failure " + c.Failure.Type
			case c.Error != nil:
				all[key] = "error " + c.Error.Type
			default:
				all[key] = ""
			}
		}
	}
	return all
}

func TestJUnitCountsWhatIsThere(t *testing.T) {
	for name, bundle := range bundles() {
		doc := readJUnit(t, bundle)
		var tests, failures, errors int
		for _, s := range doc.Suites {
			var failed, broken int
			for _, c := range s.Cases {
				if c.Failure != nil {
					failed++
				}
				if c.Error != nil {
					broken++
				}
			}
			if s.Tests != len(s.Cases) || s.Failures != failed || s.Errors != broken || s.Skipped != 0 {
				t.Errorf("%s: suite %s says %d tests, %d failures, %d errors, %d skipped, and has %d, %d, %d",
					name, s.Name, s.Tests, s.Failures, s.Errors, s.Skipped, len(s.Cases), failed, broken)
			}
			tests, failures, errors = tests+len(s.Cases), failures+failed, errors+broken
		}
		if doc.Tests != tests || doc.Failures != failures || doc.Errors != errors {
			t.Errorf("%s: the document says %d, %d, %d, and has %d, %d, %d", name, doc.Tests, doc.Failures, doc.Errors, tests, failures, errors)
		}
		if green := failures+errors == 0; green != (name == "pass") {
			t.Errorf("%s: green is %v", name, green)
		}
	}
}

// Whatever the documents say of themselves, no measurement is never green.
func TestJUnitIsNeverGreenWithoutAMeasurement(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*evidence.Bundle)
		want   map[string]string
	}{
		"nothing at all": {func(b *evidence.Bundle) {
			b.Plan.Tests, b.Plan.Cells = nil, nil
			b.Verdict = &evidence.Verdict{Outcome: evidence.Pass}
		}, map[string]string{"acceptance: verdict": "error inconclusive"}},
		"no findings": {func(b *evidence.Bundle) { b.Verdict.Findings = nil },
			map[string]string{"reads: iops": "error unmeasured", "reads: latency": "error unmeasured", "driver: driver_version": "error unmeasured"}},
		"nothing measured": {func(b *evidence.Bundle) { b.Verdict.Coverage = evidence.Coverage{Cells: 4} },
			map[string]string{"acceptance: verdict": "error inconclusive"}},
		"no outcome":            {func(b *evidence.Bundle) { b.Verdict.Outcome = evidence.None }, map[string]string{"acceptance: verdict": "error inconclusive"}},
		"a finding of none":     {func(b *evidence.Bundle) { b.Verdict.Findings[0].Outcome = evidence.None }, map[string]string{"reads: iops on gpu001": "error inconclusive"}},
		"a test without result": {func(b *evidence.Bundle) { b.Verdict.Tests = b.Verdict.Tests[1:] }, map[string]string{"reads: outcome": "error inconclusive"}},
		"a test that fails as a whole": {func(b *evidence.Bundle) { b.Verdict.Tests[0].Outcome = evidence.Fail },
			map[string]string{"reads: outcome": "failure fail"}},
		"a test without thresholds": {func(b *evidence.Bundle) { b.Plan.Tests[1].Thresholds = nil }, map[string]string{"driver: outcome": "error inconclusive"}},
		"a release that does not hold": {func(b *evidence.Bundle) { b.Verdict.Releases[0].Outcome = evidence.Inconclusive },
			map[string]string{"acceptance: release final, as the verdict alone decides it": "error inconclusive"}},
	} {
		b := passing()
		c.change(b)
		got := readJUnit(t, b).cases()
		for key, outcome := range got {
			if outcome != c.want[key] {
				t.Errorf("%s: %s: %q, want %q", name, key, outcome, c.want[key])
			}
		}
		for key := range c.want {
			if _, found := got[key]; !found {
				t.Errorf("%s: there is no case %q among %v", name, key, got)
			}
		}
	}
}

// What a gate kept away, what does not apply and what was not run are errors.
func TestJUnitNamesEveryOpenCell(t *testing.T) {
	for _, class := range []evidence.Class{evidence.ClassExcluded, evidence.ClassNotApplicable, evidence.ClassNotRun, evidence.ClassExit, evidence.ClassLost, "of-the-future"} {
		b := passing()
		b.Verdict.Coverage.Open = []evidence.OpenCell{{Cell: "driver/gpu002.r1", Problem: evidence.Problem{Node: "gpu002", Class: class, Detail: "why"}}}
		if got, want := readJUnit(t, b).cases()["driver: cell driver/gpu002.r1"], "error "+string(class); got != want {
			t.Errorf("%s: %q, want %q", class, got, want)
		}
	}
}

func TestJUnitProperties(t *testing.T) {
	properties := make(map[string][]string)
	for _, p := range readJUnit(t, open()).Suites[0].Properties {
		properties[p.Name] = append(properties[p.Name], p.Value)
	}
	for name, want := range map[string]string{
		"simulated": "true", "narrowed": "--test test.reads", "off contract": "soak", "sealed": "false", "signed": "false",
		"runbook digest": string(evidence.DigestOf([]byte("runbook"))), "plan digest": string(evidence.DigestOf([]byte("plan"))),
		"verified": "false: rackproof verify PATH --trust FILE",
	} {
		if got := properties[name]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := len(properties["headline"]); got != 5 {
		t.Errorf("%d headlines, want 5", got)
	}
}

func TestJUnitTimesAreOfTheJournal(t *testing.T) {
	b := passing()
	start := b.Records[0].Time
	at := func(event evidence.Event, cell string, seconds int) evidence.Record {
		return evidence.Record{Event: event, Cell: cell, Time: start.Add(time.Duration(seconds) * time.Second)}
	}
	b.Records = []evidence.Record{
		b.Records[0],
		at(evidence.EventAttemptStart, "reads/gpu002.r1", 20), at(evidence.EventAttemptStart, "reads/gpu001.r1", 30),
		at(evidence.EventAttemptEnd, "reads/gpu002.r1", 50), at(evidence.EventAttemptEnd, "reads/gpu001.r1", 90),
		b.Records[1],
	}
	b.Verdict.Coverage.Open = []evidence.OpenCell{{Cell: "reads/gpu002.r1", Problem: evidence.Problem{Class: evidence.ClassLost}}}
	reads := readJUnit(t, b).Suites[1]
	if reads.Timestamp != "2026-11-30T14:02:31" || reads.Time != 70 {
		t.Errorf("the suite began at %s and took %v s, want 2026-11-30T14:02:31 and 70 s", reads.Timestamp, reads.Time)
	}
	if last := reads.Cases[len(reads.Cases)-1]; last.Name != "cell reads/gpu002.r1" || last.Time != 30 {
		t.Errorf("%s took %v s, want cell reads/gpu002.r1 and 30 s", last.Name, last.Time)
	}
}

// A document that a CI system refuses for its size tells nothing.
func TestJUnitIsBounded(t *testing.T) {
	b := passing()
	b.Verdict.Findings = nil
	for i := range 5000 {
		outcome := evidence.Inconclusive
		switch {
		case i%2 == 0:
			outcome = evidence.Pass
		case i == 4999:
			outcome = evidence.Fail
		}
		b.Verdict.Findings = append(b.Verdict.Findings, finding("reads", "iops", fmt.Sprintf("gpu001/gpu%d", i), outcome, 1, -1))
	}
	cases := readJUnit(t, b).cases()
	for key, want := range map[string]string{
		"reads: iops on 2500 of 5000 subjects": "",
		"reads: iops on 1500 more subjects":    "error inconclusive",
		"reads: iops on gpu001/gpu4999":        "failure fail",
		"reads: iops on gpu001/gpu1":           "error inconclusive",
	} {
		if got, found := cases[key]; !found || got != want {
			t.Errorf("%s: %q, %v, want %q", key, got, found, want)
		}
	}
	if got := len(cases); got > maxCases+10 {
		t.Errorf("%d cases", got)
	}
}

// XML forbids what nodes print, even as a reference.
func TestJUnitWritesWhatXMLForbids(t *testing.T) {
	b := open()
	const text = "]]><skipped/>\x00\x0b\x1b\ufffe\uffff\xff&amp;\r\n"
	const shown = `]]><skipped/>\u0000\u000b\u001b\ufffe\uffff\xff&amp;\r\n`
	b.Verdict.Findings[2].Reason = text
	b.Verdict.Coverage.Open[0].Problem.Detail = text
	b.Plan.Narrowed = []string{text}
	doc := readJUnit(t, b)
	failure := doc.Suites[1].Cases[2].Failure
	if want := shown + ": observed 2.0000001 ms, limit <= 2 ms"; failure == nil || failure.Message != want || !strings.Contains(failure.Text, "\nreason "+shown+"\n") {
		t.Errorf("failure %+v", failure)
	}
	if last := doc.Suites[1].Cases[4].Error; last == nil || last.Text != "reads/gpu002.r1 attempt 1: gpu002: fio: lost: "+shown {
		t.Errorf("error %+v", last)
	}
}

func FuzzJUnit(f *testing.F) {
	f.Add("]]>\x00", "\xff\ud7ff\"'<&")
	f.Fuzz(func(t *testing.T, reason, subject string) {
		b := open()
		b.Verdict.Findings[2].Reason, b.Verdict.Findings[2].Subject = reason, evidence.Subject(subject)
		b.Plan.Name, b.Verdict.Coverage.Open[0].Problem.Detail = subject, reason
		doc := readJUnit(t, b)
		if got, want := doc.Suites[1].Cases[2].Name, "latency on "+Printable(subject); got != want {
			t.Fatalf("case %q, want %q", got, want)
		}
	})
}
