package reports

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// MediaReport is the media type of the JSON report.
const MediaReport = "application/vnd.rackproof.report.v1+json"

// Summary is everything that a report tells, gathered from a bundle once and
// rendered by every format, so that they cannot drift apart. As JSON it is the
// json format's document.
type Summary struct {
	MediaType string `json:"mediaType"`
	Minor     int    `json:"minor"`

	// Verified is always false: a report shows what a bundle says. HowTo is
	// the command that verifies it.
	Verified bool   `json:"verified"`
	HowTo    string `json:"howToVerify"`
	Sealed   bool   `json:"sealed"`
	Signed   bool   `json:"signed"`

	Run     string           `json:"run"`
	Outcome evidence.Outcome `json:"outcome"`
	// Headline is what a reader must know beside the outcome: simulated,
	// shared machine, off contract, narrowed.
	Headline []string `json:"headline"`

	Runbook  Runbook         `json:"runbook"`
	Plan     evidence.Digest `json:"plan"`
	Executor string          `json:"executor"`
	Fleet    string          `json:"fleet"`
	Tool     *evidence.Tool  `json:"tool,omitempty"`
	Started  *time.Time      `json:"startedClaimed,omitempty"` // by the runner's own clock
	Ended    *time.Time      `json:"endedClaimed,omitempty"`

	Tests          []Test                   `json:"tests"`
	Open           []OpenPoint              `json:"open"`
	Cells          evidence.Coverage        `json:"coverage"`
	Gates          []evidence.GateResult    `json:"gates"`
	Releases       []evidence.ReleaseResult `json:"releases"`
	Approvals      []evidence.Quorum        `json:"approvalsRequired"`
	Established    []Claim                  `json:"established"`
	NotEstablished []Claim                  `json:"notEstablished"`
}

// Runbook names the runbook of the plan.
type Runbook struct {
	Name    string          `json:"name"`
	Title   string          `json:"title,omitempty"`
	Version string          `json:"version,omitempty"`
	Digest  evidence.Digest `json:"digest"`
}

// Test is one test of the plan with what was found.
type Test struct {
	Test       string           `json:"test"`
	Phase      string           `json:"phase"`
	Owner      string           `json:"owner"`
	Contact    string           `json:"contact,omitempty"`
	Outcome    evidence.Outcome `json:"outcome"`
	Cells      int              `json:"cells"`
	Passed     int              `json:"passed"`
	Retried    int              `json:"retried"`
	Thresholds []Threshold      `json:"thresholds"`
}

// Threshold is one threshold of a test with the worst that was observed under
// it, over all of its subjects.
type Threshold struct {
	evidence.Threshold

	Outcome  evidence.Outcome `json:"outcome"`
	Findings int              `json:"findings"`
	Passing  int              `json:"passing"`
	Observed *float64         `json:"observed,omitempty"` // the one of the smallest margin
	Text     string           `json:"observedText,omitempty"`
	Margin   *float64         `json:"margin,omitempty"`
	Worst    evidence.Subject `json:"worst,omitempty"` // whose value Observed is
}

// OpenPoint is a finding that is not a pass, joined with its threshold.
type OpenPoint struct {
	evidence.Finding

	Owner  string   `json:"owner,omitempty"`
	Metric string   `json:"metric,omitempty"`
	Stat   string   `json:"stat,omitempty"`
	Min    *float64 `json:"min,omitempty"`
	Max    *float64 `json:"max,omitempty"`
	Equals *string  `json:"equals,omitempty"`
	Basis  string   `json:"basis,omitempty"`
}

// Claim is one sentence of a test, and why it is not established where it is
// not.
type Claim struct {
	Test     string `json:"test"`
	Sentence string `json:"sentence"`
	Reason   string `json:"reason,omitempty"`
}

// Summarize gathers what b says. It fails if b has no verdict or no plan.
func Summarize(b *evidence.Bundle) (*Summary, error) {
	if b.Plan == nil || b.Verdict == nil {
		return nil, errors.New("report: the run has no plan or no verdict to show")
	}
	p, v := b.Plan, b.Verdict
	s := &Summary{
		MediaType: MediaReport,
		HowTo:     "rackproof verify PATH --trust FILE",
		Sealed:    b.Sealed,
		Signed:    b.Signed,
		Run:       b.Run,
		Outcome:   v.Outcome,
		Headline:  headline(b),
		Runbook:   Runbook{Name: p.Name, Title: p.Title, Version: p.Version, Digest: p.Runbook},
		Plan:      evidence.DigestOf(b.PlanBytes),
		Executor:  p.Executor,
		Fleet:     p.Fleet.Name,
		Tool:      b.Tool,
		Tests:     []Test{},
		Open:      []OpenPoint{},
		Cells:     v.Coverage,
		Gates:     evidence.OrEmpty(v.Gates),
		Releases:  evidence.OrEmpty(v.Releases),
		Approvals: evidence.OrEmpty(p.Quorums),
	}
	if n := len(b.Records); n > 0 {
		s.Started, s.Ended = &b.Records[0].Time, &b.Records[n-1].Time
	}
	found := findingsByThreshold(v.Findings)
	for _, t := range p.Tests {
		s.Tests = append(s.Tests, summarizeTest(p, v, t, found))
	}
	for _, f := range v.Findings {
		if f.Outcome != evidence.Pass {
			s.Open = append(s.Open, openPoint(p, f))
		}
	}
	s.Established, s.NotEstablished = claims(p, v, found)
	return s, nil
}

// headline says what limits the meaning of the verdict as a whole.
func headline(b *evidence.Bundle) []string {
	lines := []string{}
	if simulated(b) {
		lines = append(lines, "simulated: nodes of this run are not real machines")
	}
	if b.Plan.SharedMachine {
		lines = append(lines, "shared machine: several nodes of this run may be one machine")
	}
	if names := b.Plan.OffContract(); len(names) > 0 {
		lines = append(lines, "off contract: "+strings.Join(names, ", ")+"; this run cannot be released")
	}
	if len(b.Plan.Narrowed) > 0 {
		lines = append(lines, "narrowed: "+strings.Join(b.Plan.Narrowed, " ")+"; this run cannot be released")
	}
	for _, f := range openFaults(b.Records) {
		lines = append(lines, fmt.Sprintf("the fault %s on %s, injected by %s attempt %d, may still be in effect: the run has no record of its undo", f.Fault, f.Node, f.Cell, f.Attempt))
	}
	if !b.Sealed {
		lines = append(lines, "not sealed: the run has not ended, and this verdict was derived just now")
	}
	return lines
}

// simulated reports whether a node of the run said that it is no real machine.
func simulated(b *evidence.Bundle) bool {
	return b.Inventory != nil && slices.ContainsFunc(b.Inventory.Nodes, func(n evidence.NodeIdentity) bool { return n.Simulated })
}

// openFaults are the records of the faults that were opened and not closed.
func openFaults(records []evidence.Record) []evidence.Record {
	var open []evidence.Record
	for _, r := range records {
		switch {
		case r.Event == evidence.EventFaultOpen && r.Fault != nil:
			open = append(open, r)
		case r.Event == evidence.EventFaultClose:
			open = slices.DeleteFunc(open, func(o evidence.Record) bool {
				return o.Cell == r.Cell && o.Attempt == r.Attempt && o.FaultIndex == r.FaultIndex && o.Node == r.Node
			})
		}
	}
	return open
}

type thresholdKey struct{ test, threshold string }

func findingsByThreshold(findings []evidence.Finding) map[thresholdKey][]evidence.Finding {
	found := make(map[thresholdKey][]evidence.Finding)
	for _, f := range findings {
		key := thresholdKey{f.Test, f.Threshold}
		found[key] = append(found[key], f)
	}
	return found
}

func summarizeTest(p *evidence.Plan, v *evidence.Verdict, t evidence.Test, found map[thresholdKey][]evidence.Finding) Test {
	row := Test{Test: t.Name, Phase: t.Phase, Owner: t.Owner, Outcome: evidence.Inconclusive, Thresholds: []Threshold{}}
	for _, o := range p.Owners {
		if o.Name == t.Owner {
			row.Contact = o.Contact
		}
	}
	for _, r := range v.Tests {
		if r.Test == t.Name {
			row.Outcome, row.Cells, row.Passed, row.Retried = r.Outcome, r.Cells, r.Passed, r.Retried
		}
	}
	for _, threshold := range t.Thresholds {
		row.Thresholds = append(row.Thresholds, summarizeThreshold(threshold, found[thresholdKey{t.Name, threshold.Name}]))
	}
	return row
}

func summarizeThreshold(t evidence.Threshold, findings []evidence.Finding) Threshold {
	row := Threshold{Threshold: t, Outcome: worst(findings), Findings: len(findings)}
	for _, f := range findings {
		if f.Outcome == evidence.Pass {
			row.Passing++
		}
		if worseThan(f, row) {
			row.Observed, row.Text, row.Margin, row.Worst = f.Observed, f.Text, f.Margin, f.Subject
		}
	}
	return row
}

// worseThan reports whether f's value should be shown in place of the one that
// row has: the smallest margin is the worst, and a text that failed is worse
// than one that passed.
func worseThan(f evidence.Finding, row Threshold) bool {
	switch {
	case f.Observed == nil && f.Text == "":
		return false
	case row.Worst == "":
		return true
	case f.Margin != nil:
		return row.Margin == nil || *f.Margin < *row.Margin
	}
	return row.Margin == nil && f.Outcome == evidence.Fail && row.Text != ""
}

func worst(findings []evidence.Finding) evidence.Outcome {
	outcomes := make([]evidence.Outcome, len(findings))
	for i, f := range findings {
		outcomes[i] = f.Outcome
	}
	return evidence.Worst(outcomes...)
}

func openPoint(p *evidence.Plan, f evidence.Finding) OpenPoint {
	point := OpenPoint{Finding: f}
	for _, t := range p.Tests {
		if t.Name != f.Test {
			continue
		}
		point.Owner = t.Owner
		for _, th := range t.Thresholds {
			if th.Name == f.Threshold {
				point.Metric, point.Stat, point.Basis = th.Metric, th.Stat, th.Basis
				point.Min, point.Max, point.Equals = th.Min, th.Max, th.Equals
				if point.Unit == "" && !th.Text {
					point.Unit = th.Unit
				}
			}
		}
	}
	return point
}

// claims divides the plan's sentences. A claim is established when every
// threshold that carries it has findings and all of them pass, and no cell of
// its test is open: what was not measured establishes nothing.
func claims(p *evidence.Plan, v *evidence.Verdict, found map[thresholdKey][]evidence.Finding) (established, not []Claim) {
	established, not = []Claim{}, []Claim{}
	open := make(map[string][]string) // cells, by test
	testOf := make(map[string]string, len(p.Cells))
	for _, c := range p.Cells {
		testOf[c.ID] = c.Test
	}
	for _, c := range v.Coverage.Open {
		open[testOf[c.Cell]] = append(open[testOf[c.Cell]], c.Cell)
	}
	for _, t := range p.Tests {
		for _, c := range t.Establishes {
			claim := Claim{Test: t.Name, Sentence: c.Sentence}
			claim.Reason = strings.Join(reasonsAgainst(t, c, found, open[t.Name]), "; ")
			if claim.Reason == "" {
				established = append(established, claim)
			} else {
				not = append(not, claim)
			}
		}
		for _, sentence := range t.DoesNotEstablish {
			not = append(not, Claim{Test: t.Name, Sentence: sentence, Reason: "outside of what the test establishes"})
		}
	}
	return established, not
}

// reasonsAgainst says why a claim of t is not established: the worst first,
// then in the claim's order. Open cells of the test are named where no
// threshold tells of them.
func reasonsAgainst(t evidence.Test, c evidence.Claim, found map[thresholdKey][]evidence.Finding, open []string) []string {
	if len(c.Thresholds) == 0 {
		return []string{"no threshold carries it"}
	}
	byOutcome := make(map[evidence.Outcome][]string)
	for _, name := range c.Thresholds {
		o := worst(found[thresholdKey{t.Name, name}])
		byOutcome[o] = append(byOutcome[o], "threshold "+name+": "+o.String())
	}
	reasons := slices.Concat(byOutcome[evidence.Fail], byOutcome[evidence.Error], byOutcome[evidence.Inconclusive])
	if len(reasons) > 0 || len(open) == 0 {
		return reasons
	}
	reason := "cell " + open[0] + " was not measured"
	if more := len(open) - 1; more > 0 {
		reason += fmt.Sprintf(", and %d more", more)
	}
	return []string{reason}
}
