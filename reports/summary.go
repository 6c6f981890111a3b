package reports

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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
	// Word is the verdict as it is to be read and quoted: the outcome with
	// what limits its meaning, "PASS — SIMULATED RACK, NOT A REAL MACHINE".
	Word string `json:"word"`
	// Headline is what a reader must know beside the outcome: simulated,
	// shared machine, off contract, narrowed.
	Headline []string `json:"headline"`

	Runbook  Runbook          `json:"runbook"`
	Plan     evidence.Digest  `json:"plan"`
	Manifest evidence.Digest  `json:"manifest,omitempty"` // of manifest.json, where the run is sealed
	Executor string           `json:"executor"`
	Fleet    string           `json:"fleet"`
	Identity Identity         `json:"identity"`
	Parties  []evidence.Party `json:"parties"`
	Owners   []evidence.Owner `json:"owners"` // without their keys
	Tool     *evidence.Tool   `json:"tool,omitempty"`
	Started  *time.Time       `json:"startedClaimed,omitempty"` // by the runner's own clock
	Ended    *time.Time       `json:"endedClaimed,omitempty"`

	Tests          []Test                   `json:"tests"`
	Open           []OpenPoint              `json:"open"`
	Cells          evidence.Coverage        `json:"coverage"`
	Gates          []evidence.GateResult    `json:"gates"`
	Releases       []evidence.ReleaseResult `json:"releases"`
	Approvals      []evidence.Quorum        `json:"approvalsRequired"`
	ApprovalFiles  []string                 `json:"approvalFiles"` // that are there, unread
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

// Identity counts what is known of who the nodes were. A serial number or
// machine id that two nodes share counts once.
type Identity struct {
	Nodes      int `json:"nodes"`      // of the plan
	Identified int `json:"identified"` // of which a serial number or a machine id was read
	Serials    int `json:"serials"`
	MachineIDs int `json:"machineIds"`
	Simulated  int `json:"simulated"`
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

	Owner   string   `json:"owner,omitempty"`
	Contact string   `json:"contact,omitempty"`
	Place   string   `json:"place,omitempty"` // rack and unit of its node, by the layout
	Metric  string   `json:"metric,omitempty"`
	Stat    string   `json:"stat,omitempty"`
	Min     *float64 `json:"min,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	Equals  *string  `json:"equals,omitempty"`
	Basis   string   `json:"basis,omitempty"`
}

// Claim is one sentence of a test, and why it is not established where it is
// not.
type Claim struct {
	Test       string   `json:"test"`
	Sentence   string   `json:"sentence"`
	Thresholds []string `json:"thresholds,omitempty"` // that carry it, by name
	Reason     string   `json:"reason,omitempty"`
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
		Word:      verdictWord(b),
		Headline:  headline(b),
		Runbook:   Runbook{Name: p.Name, Title: p.Title, Version: p.Version, Digest: p.Runbook},
		Plan:      evidence.DigestOf(b.PlanBytes),
		Executor:  p.Executor,
		Fleet:     p.Fleet.Name,
		Identity:  identity(b),
		Parties:   evidence.OrEmpty(p.Parties),
		Owners:    owners(p),
		Tool:      b.Tool,
		Tests:     []Test{},
		Open:      []OpenPoint{},
		Cells:     v.Coverage,
		Gates:     evidence.OrEmpty(v.Gates),
		Releases:  evidence.OrEmpty(v.Releases),
		Approvals: evidence.OrEmpty(p.Quorums),

		ApprovalFiles: []string{},
	}
	if b.FS != nil {
		manifest, err := b.ManifestDigest()
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		s.Manifest, s.ApprovalFiles = manifest, evidence.OrEmpty(b.ApprovalFiles())
	}
	if n := len(b.Records); n > 0 {
		s.Started, s.Ended = &b.Records[0].Time, &b.Records[n-1].Time
	}
	found := findingsByThreshold(v.Findings)
	for _, t := range p.Tests {
		s.Tests = append(s.Tests, summarizeTest(p, v, t, found))
	}
	at := places(p)
	for _, f := range v.Findings {
		if f.Outcome != evidence.Pass {
			s.Open = append(s.Open, openPoint(p, at, f))
		}
	}
	s.Established, s.NotEstablished = claims(p, v, found)
	return s, nil
}

// verdictWord is the outcome together with everything that limits what it is
// the verdict of, so that neither is told without the other.
func verdictWord(b *evidence.Bundle) string {
	var limits []string
	switch n, all := simulated(b), len(b.Plan.Fleet.Nodes); {
	case n >= all && n > 0:
		limits = append(limits, "SIMULATED RACK, NOT A REAL MACHINE")
	case n > 0:
		limits = append(limits, fmt.Sprintf("%d OF %d NODES SIMULATED, NOT REAL MACHINES", n, all))
	}
	for _, limit := range []struct {
		holds bool
		word  string
	}{
		{b.Plan.SharedMachine, "SHARED MACHINE"},
		{len(b.Plan.OffContract()) > 0, "OFF CONTRACT"},
		{len(b.Plan.Narrowed) > 0, "NARROWED"},
		{len(openFaults(b.Records)) > 0, "A FAULT MAY STILL BE IN EFFECT"},
		{!b.Sealed, "NOT SEALED"},
	} {
		if limit.holds {
			limits = append(limits, limit.word)
		}
	}
	word := strings.ToUpper(b.Verdict.Outcome.String())
	if len(limits) > 0 {
		word += " — " + strings.Join(limits, "; ")
	}
	return word
}

// simulated counts the nodes that are not real machines.
func simulated(b *evidence.Bundle) int {
	return len(evidence.SimulatedNodes(b.Plan, b.Inventory, b.Records))
}

func identity(b *evidence.Bundle) Identity {
	id := Identity{Nodes: len(b.Plan.Fleet.Nodes), Simulated: simulated(b)}
	if b.Inventory == nil {
		return id
	}
	serials, machines := map[string]bool{}, map[string]bool{}
	for _, n := range b.Inventory.Nodes {
		if n.Serial != "" || n.MachineID != "" {
			id.Identified++
		}
		if n.Serial != "" {
			serials[n.Serial] = true
		}
		if n.MachineID != "" {
			machines[n.MachineID] = true
		}
	}
	id.Serials, id.MachineIDs = len(serials), len(machines)
	return id
}

// owners are those of p without their keys, which are for whoever verifies.
func owners(p *evidence.Plan) []evidence.Owner {
	list := []evidence.Owner{}
	for _, o := range p.Owners {
		o.Key = ""
		list = append(list, o)
	}
	return list
}

// places says where each node of p stands, as far as the layout's labels rack
// and unit tell.
func places(p *evidence.Plan) map[string]string {
	at := make(map[string]string, len(p.Fleet.Nodes))
	for _, n := range p.Fleet.Nodes {
		var words []string
		for _, label := range []string{"rack", "unit"} {
			if value := n.Labels[label]; value != "" {
				words = append(words, label+" "+value)
			}
		}
		at[n.Name] = strings.Join(words, ", ")
	}
	return at
}

// WorstFirst lists the open points in the order in which they should be read:
// by outcome, then by how far outside of its limit the value is, as a share of
// the limit, then in the order of the plan. A limit of zero has no share: what
// missed it comes first.
func (s *Summary) WorstFirst() []OpenPoint {
	points := slices.Clone(s.Open)
	slices.SortStableFunc(points, func(a, b OpenPoint) int {
		return cmp.Or(severity(b.Outcome)-severity(a.Outcome), cmp.Compare(a.share(), b.share()), cmp.Compare(a.distance(), b.distance()))
	})
	return points
}

// severity orders outcomes as evidence.Worst does, which takes one that says
// nothing as inconclusive.
func severity(o evidence.Outcome) int { return int(evidence.Worst(o)) }

// share is the margin as a share of the nearer limit.
func (o OpenPoint) share() float64 {
	distance := o.distance()
	if math.IsInf(distance, 1) {
		return distance
	}
	limit := 0.0
	switch {
	case o.Min != nil && (o.Max == nil || *o.Observed-*o.Min == distance):
		limit = *o.Min
	case o.Max != nil:
		limit = *o.Max
	}
	if limit == 0 {
		return math.Copysign(math.Inf(1), distance)
	}
	return distance / math.Abs(limit)
}

// distance is the margin; a point without a number comes after those with one.
func (o OpenPoint) distance() float64 {
	if o.Margin == nil || o.Observed == nil {
		return math.Inf(1)
	}
	return *o.Margin
}

// headline says what limits the meaning of the verdict as a whole.
func headline(b *evidence.Bundle) []string {
	lines := []string{}
	if simulated(b) > 0 {
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
	row := Test{Test: t.Name, Phase: t.Phase, Owner: t.Owner, Contact: contact(p, t.Owner), Outcome: evidence.Inconclusive, Thresholds: []Threshold{}}
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

// contact is how an owner of p is reached.
func contact(p *evidence.Plan, owner string) string {
	for _, o := range p.Owners {
		if o.Name == owner {
			return o.Contact
		}
	}
	return ""
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

func openPoint(p *evidence.Plan, places map[string]string, f evidence.Finding) OpenPoint {
	point := OpenPoint{Finding: f, Place: places[f.Node]}
	if point.Place == "" {
		point.Place = places[firstLevel(string(f.Subject))]
	}
	for _, t := range p.Tests {
		if t.Name != f.Test {
			continue
		}
		point.Owner, point.Contact = t.Owner, contact(p, t.Owner)
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
			claim := Claim{Test: t.Name, Sentence: c.Sentence, Thresholds: c.Thresholds}
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
