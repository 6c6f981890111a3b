package reports

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// share is n of N.
type share struct {
	What    string
	Have    int
	Of      int
	Missing int
}

// uncovered is one kind of things that were not covered, by name.
type uncovered struct {
	Title string
	Items []uncoveredItem
	Fold  bool
}

type uncoveredItem struct{ Name, Why string }

const foldedItems = 12

func shares(s *Summary, b *evidence.Bundle) []share {
	c := s.Cells
	partial, parts := map[evidence.Subject]bool{}, map[evidence.Subject]bool{}
	observed := 0
	for _, f := range b.Verdict.Findings {
		seen := f.Observed != nil || f.Text != ""
		if seen {
			observed++
		}
		if strings.Contains(string(f.Subject), "/") {
			parts[f.Subject] = true
			if !seen {
				partial[f.Subject] = true
			}
		}
	}
	list := []share{
		{What: "Nodes of which a serial number or a machine id was read", Have: s.Identity.Identified, Of: s.Identity.Nodes},
		{What: "Cells measured", Have: c.Measured, Of: c.Cells},
		{What: "Findings with an observed value", Have: observed, Of: len(b.Verdict.Findings)},
	}
	if len(parts) > 0 {
		list = append(list, share{What: "Parts of nodes with every value observed", Have: len(parts) - len(partial), Of: len(parts)})
	}
	list = append(list,
		share{What: "Findings that pass", Have: c.Passing, Of: c.Findings},
		share{What: "Nodes of which every finding passes", Have: c.NodesPassing, Of: c.Nodes},
	)
	for i := range list {
		list[i].Missing = list[i].Of - list[i].Have
	}
	return list
}

// hoursRow is the time under load of one test.
type hoursRow struct {
	Test, Sum, Least, LeastOf string
	Subjects                  int
	Missing                   string
}

func (m *measured) hoursRows(p *evidence.Plan, limits limitsOf) []hoursRow {
	var rows []hoursRow
	for _, t := range p.Tests {
		h := m.hours[t.Name]
		if h == nil {
			continue
		}
		row := hoursRow{Test: t.Name, Subjects: len(h.of), Sum: "none", Least: "none", Missing: strings.Join(foldNames(slices.Collect(maps.Keys(h.missing))), ", ")}
		sum, least := 0.0, ""
		for _, s := range slices.SortedFunc(maps.Keys(h.of), nodeset.Compare) {
			sum += h.of[s]
			if least == "" || h.of[s] < h.of[least] {
				least = s
			}
		}
		if least != "" {
			row.Sum = WithUnit(Rounded(sum), h.unit)
			row.Least, row.LeastOf = WithUnit(Rounded(h.of[least], limits.values(t.Name, hoursMetric)...), h.unit), least
		}
		rows = append(rows, row)
	}
	return rows
}

func foldNames(names []string) []string {
	subjects := make([]evidence.Subject, len(names))
	for i, n := range names {
		subjects[i] = evidence.Subject(n)
	}
	return evidence.FoldSubjects(subjects)
}

func notCovered(b *evidence.Bundle) []uncovered {
	c := b.Verdict.Coverage
	all := []uncovered{
		{Title: "Cells that were not measured", Items: openCells(c.Open)},
		{Title: "Attempts that were cut by the runner's own end or by a stop", Items: openCells(c.Cuts)},
		{Title: "Cells that passed only on a later attempt"},
		{Title: "Nodes that were not reached, or may not be used", Items: unreached(b.Inventory)},
		{Title: "Nodes of which neither a serial number nor a machine id was read", Items: unidentified(b)},
		{Title: "Captures that were left out", Items: uncaptured(b.Records)},
		{Title: "Left out by flags of the command"},
		{Title: "Inputs that are off their contract"},
	}
	for _, cell := range c.Retried {
		all[2].Items = append(all[2].Items, uncoveredItem{Name: cell})
	}
	for _, flag := range b.Plan.Narrowed {
		all[6].Items = append(all[6].Items, uncoveredItem{Name: flag})
	}
	for _, v := range b.Plan.Variables {
		if v.OffContract {
			all[7].Items = append(all[7].Items, uncoveredItem{v.Name, fmt.Sprintf("is %s, and the contract says %s", v.Value, v.Contract)})
		}
	}
	all = slices.DeleteFunc(all, func(u uncovered) bool { return len(u.Items) == 0 })
	for i := range all {
		all[i].Fold = len(all[i].Items) > foldedItems
	}
	return all
}

func openCells(cells []evidence.OpenCell) []uncoveredItem {
	var items []uncoveredItem
	for _, c := range cells {
		name := c.Cell
		if c.Attempt > 0 {
			name += fmt.Sprintf(" attempt %d", c.Attempt)
		}
		items = append(items, uncoveredItem{name, c.Problem.Error()})
	}
	return items
}

func unreached(i *evidence.Inventory) []uncoveredItem {
	if i == nil {
		return nil
	}
	var items []uncoveredItem
	for _, n := range i.Nodes {
		if n.Problem != nil {
			items = append(items, uncoveredItem{n.Node, n.Problem.Error()})
		}
	}
	return items
}

func unidentified(b *evidence.Bundle) []uncoveredItem {
	known := map[string]bool{}
	if b.Inventory != nil {
		for _, n := range b.Inventory.Nodes {
			known[n.Node] = n.Serial != "" || n.MachineID != ""
		}
	}
	var items []uncoveredItem
	for _, n := range b.Plan.Fleet.Nodes {
		if !known[n.Name] {
			items = append(items, uncoveredItem{Name: n.Name})
		}
	}
	return items
}

func uncaptured(records []evidence.Record) []uncoveredItem {
	var items []uncoveredItem
	for _, r := range records {
		if r.Problem == nil || r.Event != evidence.EventCaptureSkip && r.Event != evidence.EventCapture {
			continue
		}
		items = append(items, uncoveredItem{strings.TrimSpace(r.Node + " " + r.Path), r.Problem.Error()})
	}
	return items
}
