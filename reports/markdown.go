package reports

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rackproof/rackproof/evidence"
)

// markdown is a report for a merge request or a wiki, in GitHub Flavored
// Markdown. All text of the bundle stands in code spans: in no other place do
// the renderers of GitHub, GitLab and wikis leave a text alone, so that it
// cannot become markup, HTML, a link, a mention or a reference to an issue.
type markdown struct{}

func (markdown) Name() string { return "markdown" }

func (markdown) Render(w io.Writer, b *evidence.Bundle) error {
	s, err := Summarize(b)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(w)
	out := &sheet{w: buffered}
	out.head(s)
	out.coverage(s.Cells)
	out.openPoints(s.WorstFirst())
	out.tests(s.Tests)
	out.claims(s)
	out.gates(s.Gates)
	out.releases(s)
	out.origin(s)
	if out.err != nil {
		return out.err
	}
	return buffered.Flush()
}

const (
	// maxRows bounds a table or a list: a comment of GitHub holds 65,536
	// characters, and nobody reads a table of a thousand rows there.
	maxRows = 100
	// maxCode bounds one text, in characters.
	maxCode = 300
)

// sheet writes Markdown. Its arguments of type string are foreign text, which
// becomes code; words of ours are of type mark.
type sheet struct {
	w   io.Writer
	err error
}

// mark is Markdown of our own.
type mark string

func (s *sheet) line(format string, args ...any) {
	for i, a := range args {
		switch text := a.(type) {
		case string:
			args[i] = code(text)
		case evidence.Subject:
			args[i] = code(string(text))
		case evidence.Digest:
			args[i] = code(string(text))
		case evidence.Class:
			args[i] = code(string(text))
		}
	}
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format+"\n", args...)
	}
}

// code is foreign text as a code span. What would end the span or a table's
// cell is written as Printable writes what it escapes. Nothing is a dash.
func code(text string) mark {
	if strings.TrimSpace(text) == "" {
		return "-"
	}
	text = strings.NewReplacer("`", `\u0060`, "|", `\u007c`).Replace(Printable(text))
	if utf8.RuneCountInString(text) > maxCode {
		text = string([]rune(text)[:maxCode]) + " ..."
	}
	return mark("`" + text + "`")
}

func codes(names []string) mark {
	if len(names) == 0 {
		return "none"
	}
	spans := make([]string, len(names))
	for i, name := range names {
		spans[i] = string(code(name))
	}
	return mark(strings.Join(spans, ", "))
}

func (s *sheet) row(cells ...mark) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = string(c)
	}
	s.line("%s", mark("| "+strings.Join(texts, " | ")+" |"))
}

func (s *sheet) header(names ...mark) {
	rules := slices.Repeat([]mark{"---"}, len(names))
	s.row(names...)
	s.row(rules...)
}

// most says how many of n rows are shown.
func most(n int) int { return min(n, maxRows) }

// more says what a bounded list leaves out.
func (s *sheet) more(n int) {
	if n > maxRows {
		s.line("")
		s.line("and %d more: `rackproof report PATH` shows all.", n-maxRows)
	}
}

func shout(o evidence.Outcome) mark { return mark("**" + strings.ToUpper(o.String()) + "**") }

func (s *sheet) head(sum *Summary) {
	s.line("# Acceptance: %s", mark(sum.Word))
	s.line("")
	for _, h := range sum.Headline {
		s.line("- **!** %s", h)
	}
	if len(sum.Headline) > 0 {
		s.line("")
	}
	s.line("Run %s of runbook %s", sum.Run, strings.TrimSpace(sum.Runbook.Name+" "+sum.Runbook.Version))
	if sum.Runbook.Title != "" {
		s.line("(%s)", sum.Runbook.Title)
	}
	s.line("")
	s.line("**Not verified**: this shows what the evidence says of itself. To verify it:")
	s.line("%s", sum.HowTo)
}

func (s *sheet) coverage(c evidence.Coverage) {
	s.line("")
	s.line("## Coverage")
	s.line("")
	s.line("%s.", mark(coverageText(c)))
	s.cells("Cells that were not measured", c.Open)
	s.cells("Attempts that were cut by the runner's own end or by a stop", c.Cuts)
	if len(c.Retried) > 0 {
		s.line("")
		s.line("Cells that passed only on a later attempt: %d", len(c.Retried))
		s.line("")
	}
	for _, cell := range c.Retried[:most(len(c.Retried))] {
		s.line("- %s", cell)
	}
	s.more(len(c.Retried))
}

func (s *sheet) cells(title mark, cells []evidence.OpenCell) {
	if len(cells) == 0 {
		return
	}
	s.line("")
	s.line("%s: %d", title, len(cells))
	s.line("")
	s.header("cell", "attempt", "node", "step", "class", "detail")
	for _, c := range cells[:most(len(cells))] {
		attempt := mark("-")
		if c.Attempt > 0 {
			attempt = mark(strconv.Itoa(c.Attempt))
		}
		s.row(code(c.Cell), attempt, code(c.Problem.Node), code(c.Problem.Step), code(string(c.Problem.Class)), code(c.Problem.Detail))
	}
	s.more(len(cells))
}

// openPoints lists what is no pass, in the order given.
func (s *sheet) openPoints(open []OpenPoint) {
	s.line("")
	s.line("## Open points: %d", len(open))
	if len(open) == 0 {
		return
	}
	s.line("")
	s.header("outcome", "test", "threshold", "subject", "observed", "limit", "margin", "reason", "node", "source", "basis", "owner")
	for _, o := range open[:most(len(open))] {
		s.row(shout(o.Outcome), code(o.Test), code(o.Threshold), code(string(o.Subject)), code(o.observed()), code(o.limit()), code(o.margin()),
			code(o.reason()), code(o.Node), code(o.Source), code(o.Basis), code(o.Owner))
	}
	s.more(len(open))
}

func (s *sheet) tests(tests []Test) {
	s.line("")
	s.line("## Tests: %d", len(tests))
	if len(tests) == 0 {
		return
	}
	s.line("")
	s.header("test", "outcome", "cells passed", "threshold", "outcome", "worst", "limit", "margin", "subject", "owner")
	for _, t := range tests {
		first := []mark{code(t.Test), shout(t.Outcome), mark(fmt.Sprintf("%d of %d", t.Passed, t.Cells))}
		owner := code(t.Owner)
		if len(t.Thresholds) == 0 {
			s.row(append(first, "none", "-", "-", "-", "-", "-", owner)...)
		}
		for _, th := range t.Thresholds {
			s.row(append(first, code(th.Name), mark(th.Outcome.String()), code(th.worst()), code(th.limit()), code(th.margin()), code(string(th.Worst)), owner)...)
			first, owner = []mark{"", "", ""}, ""
		}
	}
	for _, t := range tests {
		if t.Retried > 0 {
			s.line("")
			s.line("%s: %s passed only on a later attempt", t.Test, mark(evidence.Count(t.Retried, "cell")))
		}
	}
}

func (t Threshold) unit() string {
	if t.Threshold.Text {
		return ""
	}
	return t.Unit
}

func (t Threshold) worst() string {
	if t.Observed == nil {
		return observed(t)
	}
	return WithUnit(observed(t), t.unit())
}

func (t Threshold) limit() string { return WithUnit(limitText(t.Threshold), t.unit()) }

func (t Threshold) margin() string {
	if t.Margin == nil {
		return ""
	}
	return WithUnit(margin(t.Margin), t.unit())
}

func (s *sheet) claims(sum *Summary) {
	s.line("")
	s.line("## Established: %s", mark(word(len(sum.Established) == 0, "nothing", evidence.Count(len(sum.Established), "claim"))))
	s.line("")
	for _, c := range sum.Established {
		s.line("- %s (%s)", c.Sentence, c.Test)
	}
	if len(sum.Established) > 0 {
		s.line("")
	}
	s.line("## Not established")
	s.line("")
	for _, c := range sum.NotEstablished {
		s.line("- %s (%s): %s", c.Sentence, c.Test, c.Reason)
	}
}

func (s *sheet) gates(gates []evidence.GateResult) {
	if len(gates) == 0 {
		return
	}
	s.line("")
	s.line("## Gates")
	s.line("")
	s.header("phase", "gate", "nodes needed", "passing", "failing", "reason")
	for _, g := range gates {
		s.row(code(g.Phase), mark(word(g.Met, "met", "**not met**")), mark(strconv.Itoa(g.Needed)), codes(g.Passing), codes(g.Failing), code(g.Reason))
	}
}

func (s *sheet) releases(sum *Summary) {
	if len(sum.Releases)+len(sum.Approvals) == 0 {
		return
	}
	s.line("")
	s.line("## Releases, as the verdict alone decides them")
	s.line("")
	for _, r := range sum.Releases {
		if r.Reason == "" {
			s.line("- %s: %s", r.Release, shout(r.Outcome))
		} else {
			s.line("- %s: %s: %s", r.Release, shout(r.Outcome), r.Reason)
		}
	}
	for _, q := range sum.Approvals {
		s.line("- approval %s of the %s is required; approvals were not checked here", q.Name, q.Of)
	}
}

// origin says what was run, by what, and when.
func (s *sheet) origin(sum *Summary) {
	s.line("")
	s.line("## Origin")
	s.line("")
	s.header("what", "value")
	s.row("runbook", code(string(sum.Runbook.Digest)))
	s.row("plan", code(string(sum.Plan)))
	s.row("fleet", code(sum.Fleet))
	s.row("executor", code(sum.Executor))
	if sum.Tool != nil {
		s.row("tool", code(strings.TrimSpace(sum.Tool.Name+" "+sum.Tool.Version+" "+sum.Tool.Platform)))
	}
	if sum.Started != nil && sum.Ended != nil {
		s.row("times", mark(stamp(*sum.Started)+" to "+stamp(*sum.Ended)+" (claimed by the runner's clock)"))
	}
	s.row("sealed", mark(word(sum.Sealed, "yes", "no")+", "+word(sum.Signed, "with a signature that was not checked here", "not signed")))
}
