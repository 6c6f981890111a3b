package reports

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// text is the text format: the verdict table, every open point, and what is
// and is not established, for a reader with a terminal or a printer.
type text struct{}

func (text) Name() string { return "text" }

func (text) Render(w io.Writer, b *evidence.Bundle) error {
	s, err := Summarize(b)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(w)
	out := &page{Printer{W: buffered}}
	out.head(s)
	out.tests(s)
	out.openPoints(s)
	out.coverage(s)
	out.gatesAndReleases(s)
	out.claims(s)
	if out.Err != nil {
		return out.Err
	}
	return buffered.Flush()
}

type page struct{ Printer }

func (p *page) head(s *Summary) {
	p.Line("Acceptance report of run %s", s.Run)
	p.Line("NOT VERIFIED: this shows what the evidence says of itself. To verify it:")
	p.Line("  %s", s.HowTo)
	p.Line("")
	p.Line("Verdict: %s", s.Word)
	for _, h := range s.Headline {
		p.Line("  ! %s", h)
	}
	p.Line("")
	p.Line("Runbook   %s", strings.TrimSpace(s.Runbook.Name+" "+s.Runbook.Version))
	if s.Runbook.Title != "" {
		p.Line("          %s", s.Runbook.Title)
	}
	p.Line("          %s", string(s.Runbook.Digest))
	p.Line("Plan      %s", string(s.Plan))
	p.Line("Fleet     %s, reached by executor %q", s.Fleet, s.Executor)
	if s.Tool != nil {
		p.Line("Tool      %s", strings.TrimSpace(s.Tool.Name+" "+s.Tool.Version+" "+s.Tool.Platform))
	}
	if s.Started != nil && s.Ended != nil {
		p.Line("Times     %s to %s (claimed by the runner's clock)", stamp(*s.Started), stamp(*s.Ended))
	}
	p.Line("Sealed    %s, %s", word(s.Sealed, "yes", "no"), word(s.Signed, "with a signature that was not checked here", "not signed"))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func word(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func (p *page) tests(s *Summary) {
	p.Line("")
	p.Line("Tests")
	rows := [][]string{{"TEST", "OUTCOME", "CELLS", "THRESHOLD", "WORST", "LIMIT", "MARGIN", "UNIT", "OWNER"}}
	for _, t := range s.Tests {
		first := []string{t.Test, t.Outcome.String(), fmt.Sprintf("%d/%d", t.Passed, t.Cells)}
		owner := t.Owner
		for _, th := range t.Thresholds {
			mark := ""
			if th.Outcome != evidence.Pass {
				mark = " (" + th.Outcome.String() + ")"
			}
			unit := th.Unit
			if th.Threshold.Text {
				unit = "-"
			}
			rows = append(rows, append(first, th.Name+mark, observed(th), limitText(th.Threshold), margin(th.Margin), unit, owner))
			first, owner = []string{"", "", ""}, ""
		}
	}
	p.Table(rows)
	for _, t := range s.Tests {
		if t.Retried > 0 {
			p.Line("  %s: %s passed only on a later attempt", t.Test, evidence.Count(t.Retried, "cell"))
		}
	}
}

func observed(t Threshold) string {
	switch {
	case t.Observed != nil:
		return Rounded(*t.Observed, bounds(t.Threshold)...)
	case t.Text != "":
		return t.Text
	}
	return "nothing measured"
}

// margin shows a margin with the sign that it has: positive is inside.
func margin(m *float64) string {
	if m == nil {
		return "-"
	}
	shown := Rounded(*m, 0)
	if *m > 0 {
		return "+" + shown
	}
	return shown
}

func (p *page) openPoints(s *Summary) {
	p.Line("")
	if len(s.Open) == 0 {
		p.Line("Open points: none")
		return
	}
	p.Line("Open points: %d", len(s.Open))
	for i, o := range s.WorstFirst() {
		p.Line("%4d. %s: %s: %s on %s", i+1, strings.ToUpper(o.Outcome.String()), o.Test, o.Threshold, string(o.Subject))
		p.Line("      observed %s, limit %s, margin %s", o.observed(), o.limit(), o.margin())
		if reason := o.reason(); reason != "" {
			p.Line("      reason   %s", reason)
		}
		if o.Node != "" {
			p.Line("      node     %s", o.Node)
		}
		if o.Source != "" {
			p.Line("      source   %s", o.Source)
		}
		if o.Basis != "" {
			p.Line("      basis    %s", o.Basis)
		}
		if o.Owner != "" {
			p.Line("      owner    %s", o.Owner)
		}
	}
}

func classSuffix(c evidence.Class) string {
	if c == "" {
		return ""
	}
	return " [" + string(c) + "]"
}

// reason is why the point is open, and the class of the problem.
func (o OpenPoint) reason() string { return strings.TrimPrefix(o.Reason+classSuffix(o.Class), " ") }

func (o OpenPoint) threshold() evidence.Threshold {
	return evidence.Threshold{Min: o.Min, Max: o.Max, Equals: o.Equals}
}

func (o OpenPoint) observed() string {
	switch {
	case o.Observed != nil:
		return WithUnit(Rounded(*o.Observed, bounds(o.threshold())...), o.Unit)
	case o.Text != "":
		return o.Text
	}
	return "nothing"
}

func (o OpenPoint) limit() string {
	if o.Min == nil && o.Max == nil && o.Equals == nil {
		return "none"
	}
	return WithUnit(limitText(o.threshold()), o.Unit)
}

func (o OpenPoint) margin() string {
	if o.Margin == nil {
		return "none"
	}
	return WithUnit(margin(o.Margin), o.Unit)
}

func (p *page) coverage(s *Summary) {
	c := s.Cells
	p.Line("")
	p.Line("Coverage: %s", coverageText(c))
	p.cells("Cells that were not measured", c.Open)
	p.cells("Attempts that were cut by the runner's own end or by a stop", c.Cuts)
	if len(c.Retried) > 0 {
		p.Line("  Cells that passed only on a later attempt: %d", len(c.Retried))
		for _, cell := range c.Retried {
			p.Line("    %s", cell)
		}
	}
}

func (p *page) cells(title string, cells []evidence.OpenCell) {
	if len(cells) == 0 {
		return
	}
	p.Line("  %s: %d", title, len(cells))
	for _, c := range cells {
		p.Line("    %s", cellText(c))
	}
}

func coverageText(c evidence.Coverage) string {
	return fmt.Sprintf("%d of %d cells measured, %d of %d nodes passing, %d of %d findings passing",
		c.Measured, c.Cells, c.NodesPassing, c.Nodes, c.Passing, c.Findings)
}

// cellText names a cell, or one attempt of it, and its problem.
func cellText(c evidence.OpenCell) string {
	attempt := ""
	if c.Attempt > 0 {
		attempt = fmt.Sprintf(" attempt %d", c.Attempt)
	}
	return fmt.Sprintf("%s%s: %s", c.Cell, attempt, c.Problem.Error())
}

func (p *page) gatesAndReleases(s *Summary) {
	if len(s.Gates) > 0 {
		p.Line("")
		p.Line("Gates")
	}
	for _, g := range s.Gates {
		p.Line("  %s: %s: %s needed; passing: %s; failing: %s%s", g.Phase, word(g.Met, "met", "not met"), evidence.Count(g.Needed, "node"),
			list(g.Passing), list(g.Failing), reason(g.Reason))
	}
	if len(s.Releases) > 0 {
		p.Line("")
		p.Line("Releases, as the verdict alone decides them")
	}
	for _, r := range s.Releases {
		p.Line("  %s: %s%s", r.Release, r.Outcome.String(), reason(r.Reason))
	}
	for _, q := range s.Approvals {
		p.Line("  approval %q of the %s is required; approvals were not checked here", q.Name, q.Of)
	}
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func (p *page) claims(s *Summary) {
	p.Line("")
	p.Line("Established: %s", word(len(s.Established) == 0, "nothing", evidence.Count(len(s.Established), "claim")))
	for _, c := range s.Established {
		p.Line("  + %s (%s)", c.Sentence, c.Test)
	}
	p.Line("Not established")
	for _, c := range s.NotEstablished {
		p.Line("  - %s (%s: %s)", c.Sentence, c.Test, c.Reason)
	}
}
