package reports

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// pointsShown is how many open points stand unfolded.
const pointsShown = 40

// testsShown is up to how many tests those that pass stand unfolded.
const testsShown = 12

// htmlPage is what the template shows. It holds texts and numbers that are
// ready to be shown: the template decides nothing but where they stand.
type htmlPage struct {
	*Summary
	Symbol  string
	Limited bool   // the outcome is not the whole verdict
	Kind    string // how it looks: a limited pass is not green
	Nodes   string
	Claims  int
	Serial  string // how many nodes are known by serial number and machine id
	Period  string
	Length  string
	Sides   []side

	Shares    []share
	Hours     []hoursRow
	Uncovered []uncovered

	Points     []pointRow
	MorePoints []pointGroup
	More       int
	PointCount []outcomeCount

	TestBlocks   []testBlock
	ApprovalRows []approvalRow

	Timeline *timeline
	GateRows []gateRow

	Heat     heatMap
	Curves   []chart
	Soak     []chart
	Outliers []outlier
	Racks    []rackCount

	Unmeasured string // why there are no measurements to draw
	Checks     []checkRow
	Versions   []htmlVersion
}

// side is a party with the owners that belong to it.
type side struct {
	Name, Title string
	Owners      []ownerRow
}

type ownerRow struct{ Name, Title, Contact, Tests string }

type pointRow struct {
	Outcome                 evidence.Outcome
	Symbol                  string
	Test, Threshold, Stat   string
	Subject, Place          string
	Observed, Limit, Margin string
	Owner, Contact          string
	Reason, Class, Source   string
	Basis                   string
}

// pointGroup is the folded points of one threshold, which share what the
// threshold says.
type pointGroup struct {
	Test, Threshold, Stat, Limit, Owner, Contact string
	Counts                                       []outcomeCount
	Points                                       []pointRow

	count map[evidence.Outcome]int
}

type testBlock struct {
	Name, Phase, Check, Owner, Contact string
	Outcome                            evidence.Outcome
	Symbol                             string
	Passed, Cells, Retried             int
	Fold                               bool
	Claims                             []claimRow
	Thresholds                         []thresholdRow
	Not                                []string
}

type claimRow struct {
	Holds            bool
	Sentence, Reason string
	Thresholds       string
}

type thresholdRow struct {
	Name, Bound, Limit             string
	Observed, Worst, Margin, Basis string
	Passing, Findings              int
	Outcome                        evidence.Outcome
	Symbol                         string
}

type approvalRow struct{ Name, Of, Needs string }

type gateRow struct {
	Phase, Outcome, Symbol, Kind string
	Needed                       int
	Passing, Failing, Reason     string
}

type checkRow struct {
	Check   string
	Version int
	Tests   int
}

type htmlVersion struct{ Name, Value, Count, Subjects string }

type rackCount struct {
	Rack  string
	Count int
}

func newHTMLPage(b *evidence.Bundle) (*htmlPage, error) {
	s, err := Summarize(b)
	if err != nil {
		return nil, err
	}
	p := &htmlPage{
		Summary: s, Symbol: symbols[s.Outcome], Limited: s.Word != strings.ToUpper(s.Outcome.String()),
		Nodes: evidence.Count(s.Identity.Nodes, "node"), Serial: serialWords(s.Identity),
	}
	p.Kind = s.Outcome.String()
	if p.Limited && s.Outcome == evidence.Pass {
		p.Kind = "qualified"
	}
	if s.Started != nil && s.Ended != nil {
		p.Period = stamp(*s.Started) + " to " + stamp(*s.Ended)
		p.Length = s.Ended.Sub(*s.Started).Round(time.Second).String()
	}
	p.Sides = sides(s)
	p.Shares, p.Uncovered = shares(s, b), notCovered(b)
	p.addPoints()
	p.TestBlocks = testBlocks(s, b.Plan)
	for _, t := range p.TestBlocks {
		p.Claims += len(t.Claims)
	}
	for _, q := range s.Approvals {
		p.ApprovalRows = append(p.ApprovalRows, approvalRow{q.Name, q.Of, needs(q)})
	}
	p.Timeline = newTimeline(b)
	p.addGates()
	p.Heat = newHeatMap(b)
	p.addMeasured(b)
	p.Checks = checkRows(b.Plan)
	return p, nil
}

func serialWords(id Identity) string {
	return fmt.Sprintf("identified %d of %d: %s, %s", id.Identified, id.Nodes, evidence.Count(id.Serials, "serial number"), evidence.Count(id.MachineIDs, "machine id"))
}

func sides(s *Summary) []side {
	tests := map[string][]string{}
	for _, t := range s.Tests {
		tests[t.Owner] = append(tests[t.Owner], t.Test)
	}
	var list []side
	for _, p := range s.Parties {
		list = append(list, side{Name: p.Name, Title: p.Title})
	}
	for _, o := range s.Owners {
		at := slices.IndexFunc(list, func(x side) bool { return x.Name == o.Party })
		if at < 0 {
			list = append(list, side{Name: o.Party})
			at = len(list) - 1
		}
		list[at].Owners = append(list[at].Owners, ownerRow{o.Name, o.Title, o.Contact, strings.Join(tests[o.Name], ", ")})
	}
	return list
}

func (p *htmlPage) addPoints() {
	counts := map[evidence.Outcome]int{}
	at := map[thresholdKey]int{}
	for i, o := range p.WorstFirst() {
		row := newPointRow(o)
		counts[row.Outcome]++
		if i < pointsShown {
			p.Points = append(p.Points, row)
			continue
		}
		p.More++
		key := thresholdKey{o.Test, o.Threshold}
		k, known := at[key]
		if !known {
			k = len(p.MorePoints)
			at[key] = k
			p.MorePoints = append(p.MorePoints, pointGroup{
				Test: row.Test, Threshold: row.Threshold, Stat: row.Stat, Limit: row.Limit, Owner: row.Owner, Contact: row.Contact,
				count: map[evidence.Outcome]int{},
			})
		}
		p.MorePoints[k].count[row.Outcome]++
		p.MorePoints[k].Points = append(p.MorePoints[k].Points, row)
	}
	p.PointCount = outcomeCounts(counts)
	for i := range p.MorePoints {
		p.MorePoints[i].Counts = outcomeCounts(p.MorePoints[i].count)
	}
}

func outcomeCounts(counts map[evidence.Outcome]int) []outcomeCount {
	var list []outcomeCount
	for _, o := range fromWorst {
		if counts[o] > 0 {
			list = append(list, outcomeCount{o.String(), symbols[o], counts[o]})
		}
	}
	return list
}

func newPointRow(o OpenPoint) pointRow {
	outcome := evidence.Worst(o.Outcome)
	return pointRow{
		Outcome: outcome, Symbol: symbols[outcome],
		Test: o.Test, Threshold: o.Threshold, Stat: strings.TrimSpace(o.Stat + " " + o.Metric),
		Subject: string(o.Subject), Place: o.Place,
		Observed: o.observed(), Limit: prettyLimit(o.threshold(), o.Unit), Margin: o.margin(),
		Owner: o.Owner, Contact: o.Contact, Reason: o.Reason, Class: string(o.Class), Source: o.Source,
	}
}

// prettyLimit is a limit with the signs of print.
func prettyLimit(t evidence.Threshold, unit string) string {
	text := limitText(t)
	if t.Equals == nil {
		text = strings.NewReplacer(">=", "≥", "<=", "≤").Replace(text)
		if t.Min != nil || t.Max != nil {
			text = WithUnit(text, unit)
		}
	}
	return text
}

func testBlocks(s *Summary, plan *evidence.Plan) []testBlock {
	established := map[[2]string]bool{}
	for _, c := range s.Established {
		established[[2]string{c.Test, c.Sentence}] = true
	}
	reasons := map[[2]string]string{}
	for _, c := range s.NotEstablished {
		reasons[[2]string{c.Test, c.Sentence}] = c.Reason
	}
	var list []testBlock
	for i, t := range s.Tests {
		of := plan.Tests[i]
		block := testBlock{
			Name: t.Test, Phase: t.Phase, Check: of.Check, Owner: t.Owner, Contact: t.Contact,
			Outcome: evidence.Worst(t.Outcome), Symbol: symbols[evidence.Worst(t.Outcome)], Passed: t.Passed, Cells: t.Cells, Retried: t.Retried,
			Not: of.DoesNotEstablish,
		}
		block.Fold = block.Outcome == evidence.Pass && len(s.Tests) > testsShown
		for _, c := range of.Establishes {
			key := [2]string{t.Test, c.Sentence}
			block.Claims = append(block.Claims, claimRow{established[key], c.Sentence, reasons[key], strings.Join(c.Thresholds, ", ")})
		}
		for _, th := range t.Thresholds {
			block.Thresholds = append(block.Thresholds, newThresholdRow(th))
		}
		list = append(list, block)
	}
	return list
}

func newThresholdRow(th Threshold) thresholdRow {
	outcome := evidence.Worst(th.Outcome)
	row := thresholdRow{
		Name: th.Name, Bound: boundWords(th.Threshold), Limit: prettyLimit(th.Threshold, th.Unit),
		Observed: observed(th), Worst: string(th.Worst), Margin: margin(th.Margin), Basis: th.Basis,
		Passing: th.Passing, Findings: th.Findings, Outcome: outcome, Symbol: symbols[outcome],
	}
	if th.Observed != nil {
		row.Observed = WithUnit(row.Observed, th.Unit)
	}
	if th.Margin != nil {
		row.Margin = WithUnit(row.Margin, th.Unit)
	}
	return row
}

// boundWords says what a threshold binds: "min of busbw per node at
// size=8GiB, 16GiB".
func boundWords(t evidence.Threshold) string {
	words := t.Stat + " of " + t.Metric + " per " + t.Per
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(t.At)) {
		labels = append(labels, name+"="+fewWords(t.At[name]))
	}
	if len(labels) > 0 {
		words += " at " + strings.Join(labels, "; ")
	}
	return words
}

// valuesShown is up to how many values of a label are spelled out.
const valuesShown = 8

func fewWords(values []string) string {
	if n := len(values); n > valuesShown {
		return fmt.Sprintf("%s … %s (%d values)", values[0], values[n-1], n)
	}
	return strings.Join(values, ", ")
}

func needs(q evidence.Quorum) string {
	var words []string
	for _, party := range slices.Sorted(maps.Keys(q.Counts)) {
		words = append(words, fmt.Sprintf("%d of %s", q.Counts[party], party))
	}
	if len(q.By) > 0 {
		words = append(words, "by "+strings.Join(q.By, ", "))
	}
	return strings.Join(words, ", ")
}

func (p *htmlPage) addGates() {
	for _, g := range p.Gates {
		row := gateRow{Phase: g.Phase, Outcome: "not met", Symbol: "✗", Kind: "fail", Needed: g.Needed, Passing: list(g.Passing), Failing: list(g.Failing), Reason: g.Reason}
		if g.Met {
			row.Outcome, row.Symbol, row.Kind = "met", "✓", "pass"
		}
		p.GateRows = append(p.GateRows, row)
	}
}

func (p *htmlPage) addMeasured(b *evidence.Bundle) {
	m := measure(b)
	order := make(map[string]int, len(b.Plan.Tests))
	for i, t := range b.Plan.Tests {
		order[t.Name] = i
	}
	limits := newLimits(b.Plan)
	p.Unmeasured = m.problem
	p.Hours = m.hoursRows(b.Plan, limits)
	p.Curves, p.Soak = m.sizeCurves(limits, order), m.soakSeries(limits, order)
	p.Outliers, p.Versions = m.outliers(b.Plan, limits, order), m.foldVersions()
	racks := map[string]int{}
	rackOf := make(map[string]string, len(b.Plan.Fleet.Nodes))
	for _, n := range b.Plan.Fleet.Nodes {
		rackOf[n.Name] = n.Labels["rack"]
	}
	for _, o := range p.Outliers {
		if rack := rackOf[firstLevel(o.Subject)]; rack != "" {
			racks[rack]++
		}
	}
	for _, rack := range slices.Sorted(maps.Keys(racks)) {
		p.Racks = append(p.Racks, rackCount{rack, racks[rack]})
	}
	slices.SortStableFunc(p.Racks, func(a, b rackCount) int { return b.Count - a.Count })
}

func checkRows(p *evidence.Plan) []checkRow {
	var rows []checkRow
	for _, t := range p.Tests {
		at := slices.IndexFunc(rows, func(r checkRow) bool { return r.Check == t.Check && r.Version == t.CheckVersion })
		if at < 0 {
			rows = append(rows, checkRow{Check: t.Check, Version: t.CheckVersion})
			at = len(rows) - 1
		}
		rows[at].Tests++
	}
	return rows
}
