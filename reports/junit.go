package reports

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// junit is the format that CI systems read: JUnit XML in the form of Ant's
// junit task, which Jenkins, GitLab and the test reporters of GitHub share.
//
// The first suite is the acceptance as a whole: its verdict and its releases.
// Each test is a suite after it, with a case for every finding and one for
// every cell that was not measured. A miss of the rack is a failure; all else
// that is no pass is an error. Nothing is ever skipped: consumers show a
// skipped case as green.
type junit struct{}

func (junit) Name() string { return "junit" }

func (junit) Render(w io.Writer, b *evidence.Bundle) error {
	s, err := Summarize(b)
	if err != nil {
		return err
	}
	doc := junitDocument{Name: xmlText(s.Runbook.Name), Suites: []*junitSuite{acceptanceSuite(b, s)}}
	found, periods := findingsByThreshold(b.Verdict.Findings), cellPeriods(b.Records)
	for i, t := range s.Tests {
		doc.Suites = append(doc.Suites, testSuite(b, b.Plan.Tests[i], t, found, periods))
	}
	for _, suite := range doc.Suites {
		suite.count()
		doc.Tests += suite.Tests
		doc.Failures += suite.Failures
		doc.Errors += suite.Errors
	}
	doc.Time = doc.Suites[0].Time
	out, err := xml.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, out)
	return err
}

// maxCases bounds the cases of one threshold: CI systems refuse documents of
// tens of megabytes, and a thousand nodes have 8,000 GPUs. Beyond it what
// passes is one case, and so is what is left of the rest.
const maxCases = 1000

// xmlText is an attribute of foreign text. XML 1.0 has no way to write most
// control characters, not even as a reference.
type xmlText string

func (p xmlText) MarshalXMLAttr(name xml.Name) (xml.Attr, error) {
	return xml.Attr{Name: name, Value: Printable(string(p))}, nil
}

// seconds is a period of time as an attribute.
type seconds time.Duration

func (s seconds) MarshalXMLAttr(name xml.Name) (xml.Attr, error) {
	return xml.Attr{Name: name, Value: fmt.Sprintf("%.3f", time.Duration(s).Seconds())}, nil
}

type junitDocument struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     xmlText  `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`
	Time     seconds  `xml:"time,attr"`
	Suites   []*junitSuite
}

type junitSuite struct {
	XMLName    xml.Name        `xml:"testsuite"`
	Name       xmlText         `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"` // always 0
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Time       seconds         `xml:"time,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  xmlText `xml:"name,attr"`
	Value xmlText `xml:"value,attr"`
}

type junitCase struct {
	Class   xmlText    `xml:"classname,attr"`
	Name    xmlText    `xml:"name,attr"`
	Time    seconds    `xml:"time,attr"`
	Failure *junitOpen `xml:"failure"`
	Error   *junitOpen `xml:"error"`
}

// junitOpen is why a case is no pass: one line for lists, and the rest.
type junitOpen struct {
	message string
	kind    string // class of the problem, or the outcome's word
	lines   []string
}

func (o *junitOpen) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	start.Attr = []xml.Attr{
		{Name: xml.Name{Local: "message"}, Value: Printable(o.message)},
		{Name: xml.Name{Local: "type"}, Value: Printable(o.kind)},
	}
	lines := make([]string, len(o.lines))
	for i, line := range o.lines {
		lines[i] = Printable(line)
	}
	if err := e.EncodeToken(start); err != nil {
		return err
	}
	if err := e.EncodeToken(xml.CharData(strings.Join(lines, "\n"))); err != nil {
		return err
	}
	return e.EncodeToken(start.End())
}

func (s *junitSuite) property(name, value string) {
	s.Properties = append(s.Properties, junitProperty{xmlText(name), xmlText(value)})
}

// add adds a case. Only a pass is green, and only a fail is the rack's.
func (s *junitSuite) add(class, name string, outcome evidence.Outcome, open junitOpen) {
	c := junitCase{Class: xmlText(class), Name: xmlText(name)}
	if open.kind == "" {
		open.kind = evidence.Worst(outcome).String()
	}
	switch outcome {
	case evidence.Pass:
	case evidence.Fail:
		c.Failure = &open
	default:
		c.Error = &open
	}
	s.Cases = append(s.Cases, c)
}

// red reports whether the suite has a case that is no pass.
func (s *junitSuite) red() bool {
	return slices.ContainsFunc(s.Cases, func(c junitCase) bool { return c.Failure != nil || c.Error != nil })
}

func (s *junitSuite) count() {
	s.Tests = len(s.Cases)
	for _, c := range s.Cases {
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		}
	}
}

// acceptanceSuite is what is said of the run as a whole.
func acceptanceSuite(b *evidence.Bundle, s *Summary) *junitSuite {
	suite := &junitSuite{Name: "acceptance"}
	if s.Started != nil && s.Ended != nil {
		suite.lasted(*s.Started, *s.Ended)
	}
	yes := func(is bool) string { return word(is, "true", "false") }
	suite.property("run", s.Run)
	suite.property("outcome", s.Outcome.String())
	suite.property("verified", "false: "+s.HowTo)
	suite.property("sealed", yes(s.Sealed))
	suite.property("signed", yes(s.Signed))
	suite.property("simulated", yes(simulated(b) > 0))
	suite.property("shared machine", yes(b.Plan.SharedMachine))
	suite.property("narrowed", strings.Join(b.Plan.Narrowed, " "))
	suite.property("off contract", strings.Join(b.Plan.OffContract(), " "))
	for _, line := range s.Headline {
		suite.property("headline", line)
	}
	suite.property("runbook", strings.TrimSpace(s.Runbook.Name+" "+s.Runbook.Version))
	suite.property("runbook digest", string(s.Runbook.Digest))
	suite.property("plan digest", string(s.Plan))
	suite.property("executor", s.Executor)
	suite.property("fleet", s.Fleet)
	if s.Tool != nil {
		suite.property("tool", strings.TrimSpace(s.Tool.Name+" "+s.Tool.Version+" "+s.Tool.Platform))
	}
	suite.property("coverage", coverageText(s.Cells))
	for _, g := range s.Gates {
		suite.property("gate "+g.Phase, word(g.Met, "met", "not met")+reason(g.Reason))
	}
	for _, c := range s.Cells.Cuts {
		suite.property("cut", cellText(c))
	}
	for _, cell := range s.Cells.Retried {
		suite.property("passed only on a later attempt", cell)
	}
	for _, q := range s.Approvals {
		suite.property("approval "+q.Name, "required of the "+q.Of+"; not checked here")
	}

	outcome, lines := s.Outcome, []string{coverageText(s.Cells)}
	if s.Cells.Measured == 0 || s.Cells.Passing == 0 {
		lines = append(lines, "no measurement carries this verdict")
		if outcome == evidence.Pass {
			outcome = evidence.Inconclusive
		}
	}
	suite.add("acceptance", "verdict", outcome, junitOpen{message: "verdict: " + outcome.String(), lines: append(lines, s.Headline...)})
	for _, r := range s.Releases {
		suite.add("acceptance", "release "+r.Release+", as the verdict alone decides it", r.Outcome,
			junitOpen{message: "release " + r.Release + ": " + r.Outcome.String() + reason(r.Reason)})
	}
	return suite
}

// testSuite is one test. At least one case of it is red where the test is no
// pass, whatever the reason.
func testSuite(b *evidence.Bundle, t evidence.Test, row Test, found map[thresholdKey][]evidence.Finding, periods map[string]period) *junitSuite {
	suite := &junitSuite{Name: xmlText(t.Name)}
	class := b.Plan.Name + "." + t.Name
	suite.property("phase", t.Phase)
	suite.property("owner", t.Owner)
	if row.Contact != "" {
		suite.property("contact", row.Contact)
	}
	suite.property("check", fmt.Sprintf("%s version %d", t.Check, t.CheckVersion))
	suite.property("cells", fmt.Sprintf("%d of %d pass", row.Passed, row.Cells))
	testOf := make(map[string]bool)
	var all period
	for _, c := range b.Plan.Cells {
		if c.Test == t.Name {
			testOf[c.ID] = true
			all = all.join(periods[c.ID])
		}
	}
	suite.lasted(all.start, all.end)
	for _, threshold := range t.Thresholds {
		suite.findings(b.Plan, class, threshold, found[thresholdKey{t.Name, threshold.Name}])
	}
	for _, c := range b.Verdict.Coverage.Open {
		if !testOf[c.Cell] {
			continue
		}
		// A cell that was not measured is no miss of the rack, whatever hit it.
		suite.add(class, "cell "+c.Cell, evidence.Inconclusive, junitOpen{message: c.Problem.Error(), kind: string(c.Problem.Class), lines: []string{cellText(c)}})
		last := &suite.Cases[len(suite.Cases)-1]
		last.Time = seconds(periods[c.Cell].end.Sub(periods[c.Cell].start))
	}
	if len(t.Thresholds) == 0 || row.Outcome != evidence.Pass && !suite.red() {
		outcome := evidence.Worst(evidence.Inconclusive, row.Outcome)
		suite.add(class, "outcome", outcome, junitOpen{message: "the test is " + outcome.String()})
	}
	return suite
}

// findings adds a case for each finding of one threshold.
func (s *junitSuite) findings(p *evidence.Plan, class string, t evidence.Threshold, findings []evidence.Finding) {
	if len(findings) == 0 {
		s.add(class, t.Name, evidence.Inconclusive, junitOpen{message: "no subject was judged", kind: string(evidence.ClassUnmeasured)})
		return
	}
	if len(findings) > maxCases {
		findings = slices.Clone(findings)
		slices.SortStableFunc(findings, func(a, b evidence.Finding) int {
			return int(evidence.Worst(b.Outcome)) - int(evidence.Worst(a.Outcome))
		})
		open := slices.IndexFunc(findings, func(f evidence.Finding) bool { return f.Outcome == evidence.Pass })
		if open < 0 {
			open = len(findings)
		}
		if passing := len(findings) - open; passing > 0 {
			s.add(class, fmt.Sprintf("%s on %d of %d subjects", t.Name, passing, len(findings)), evidence.Pass, junitOpen{})
		}
		findings = findings[:open]
		if more := len(findings) - maxCases; more > 0 {
			outcome := worst(findings[maxCases:])
			s.add(class, fmt.Sprintf("%s on %d more subjects", t.Name, more), outcome, junitOpen{message: "each of them is no pass, and the worst is " + outcome.String()})
			findings = findings[:maxCases]
		}
	}
	at := places(p)
	for _, f := range findings {
		point := openPoint(p, at, f)
		message := fmt.Sprintf("observed %s, limit %s", point.observed(), point.limit())
		if f.Reason != "" {
			message = f.Reason + ": " + message
		}
		s.add(class, t.Name+" on "+string(f.Subject), f.Outcome, junitOpen{message: message, kind: string(f.Class), lines: point.lines()})
	}
}

// lines tells all of a finding, a line each.
func (o OpenPoint) lines() []string {
	lines := []string{
		fmt.Sprintf("%s: %s: %s on %s", o.Outcome, o.Test, o.Threshold, o.Subject),
		fmt.Sprintf("observed %s, limit %s, margin %s", o.observed(), o.limit(), o.margin()),
	}
	for _, line := range []struct{ word, text string }{
		{"reason", o.reason()}, {"node", o.Node}, {"place", o.Place}, {"source", o.Source}, {"basis", o.Basis}, {"owner", o.Owner},
	} {
		if line.text != "" {
			lines = append(lines, line.word+" "+line.text)
		}
	}
	return lines
}

// period is when something began and ended, by the runner's clock.
type period struct{ start, end time.Time }

func (s period) join(other period) period {
	if s.start.IsZero() {
		return other
	}
	if !other.start.IsZero() && other.start.Before(s.start) {
		s.start = other.start
	}
	if other.end.After(s.end) {
		s.end = other.end
	}
	return s
}

// cellPeriods are from the first to the last record of each cell's attempts.
func cellPeriods(records []evidence.Record) map[string]period {
	periods := make(map[string]period)
	for _, r := range records {
		if r.Event == evidence.EventAttemptStart || r.Event == evidence.EventAttemptEnd {
			periods[r.Cell] = periods[r.Cell].join(period{r.Time, r.Time})
		}
	}
	return periods
}

// spanOf dates the suite. The schema of Ant has no place for a zone: it is UTC.
func (s *junitSuite) lasted(start, end time.Time) {
	if start.IsZero() {
		return
	}
	s.Timestamp = start.UTC().Format("2006-01-02T15:04:05")
	s.Time = seconds(max(0, end.Sub(start)))
}
