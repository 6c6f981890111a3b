package reports

import (
	"slices"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

const (
	heatColumns  = 32  // nodes side by side
	heatUnfolded = 128 // with more nodes than this, blocks are folded
)

// heatMap is the outcome of every test on every node, in blocks of nodes that
// stand together, and of what was judged of all nodes at once.
type heatMap struct {
	Blocks []heatBlock
	Open   bool
	Whole  []wholeSet
}

type heatBlock struct {
	Nodes  string // folded
	Racks  []heatRack
	Names  []string
	Rows   []heatRow
	Counts []outcomeCount
}

// heatRack is the head above the neighbours that are in one rack.
type heatRack struct {
	Name  string
	Width int
}

type heatRow struct {
	Test  string
	Cells []heatCell
}

// heatCell is the outcome of one test on one node; its kind is the outcome's
// word, "set" where the test was judged of its nodes together, or "apart"
// where the node is not in the test.
type heatCell struct{ Kind, Symbol string }

type wholeSet struct {
	Test, Threshold, Subject string
	Outcome                  evidence.Outcome
	Symbol                   string
}

type outcomeCount struct {
	Kind, Symbol string
	Count        int
}

// symbols say an outcome without colour.
var symbols = map[evidence.Outcome]string{
	evidence.Pass: "✓", evidence.Fail: "✗", evidence.Error: "!", evidence.Inconclusive: "?", evidence.None: "?",
}

// fromWorst are the outcomes in the order in which they are told.
var fromWorst = []evidence.Outcome{evidence.Fail, evidence.Error, evidence.Inconclusive, evidence.Pass}

type onNode struct{ test, node string }

func newHeatMap(b *evidence.Bundle) heatMap {
	p := b.Plan
	h := heatMap{Open: len(p.Fleet.Nodes) <= heatUnfolded}
	outcomes, whole := outcomesByNode(b)
	h.Whole = whole
	inTest := make(map[string]map[string]bool, len(p.Tests))
	for _, t := range p.Tests {
		inTest[t.Name] = map[string]bool{}
		names, _ := nodeset.Parse(t.Nodes, nil) // a set that cannot be read has findings of its own
		for _, n := range names {
			inTest[t.Name][n] = true
		}
	}
	asSet := map[string]bool{}
	for _, w := range whole {
		asSet[w.Test] = true
	}
	for _, nodes := range blocks(p.Fleet.Nodes) {
		block := heatBlock{Racks: racks(nodes), Names: evidence.Fleet{Nodes: nodes}.NodeNames()}
		block.Nodes = nodeset.Fold(block.Names)
		counts := map[evidence.Outcome]int{}
		for _, t := range p.Tests {
			row := heatRow{Test: t.Name}
			for _, node := range block.Names {
				found, judged := outcomes[onNode{t.Name, node}]
				cell := heatCell{"apart", "·"}
				switch {
				case judged || inTest[t.Name][node] && !asSet[t.Name]:
					o := evidence.Worst(found...)
					counts[o]++
					cell = heatCell{o.String(), symbols[o]}
				case inTest[t.Name][node]:
					cell = heatCell{"set", "○"}
				}
				row.Cells = append(row.Cells, cell)
			}
			block.Rows = append(block.Rows, row)
		}
		for _, o := range fromWorst {
			if counts[o] > 0 {
				block.Counts = append(block.Counts, outcomeCount{o.String(), symbols[o], counts[o]})
			}
		}
		h.Blocks = append(h.Blocks, block)
	}
	return h
}

// outcomesByNode sorts findings and open cells by the node that they are of.
// What is of no one node is judged of the whole set.
func outcomesByNode(b *evidence.Bundle) (map[onNode][]evidence.Outcome, []wholeSet) {
	fleet := places(b.Plan)
	outcomes := map[onNode][]evidence.Outcome{}
	var whole []wholeSet
	for _, f := range b.Verdict.Findings {
		node := firstLevel(string(f.Subject))
		if _, ok := fleet[node]; !ok {
			if f.Test != "" {
				o := evidence.Worst(f.Outcome)
				whole = append(whole, wholeSet{f.Test, f.Threshold, string(f.Subject), o, symbols[o]})
			}
			continue
		}
		key := onNode{f.Test, node}
		outcomes[key] = append(outcomes[key], f.Outcome)
	}
	cells := make(map[string]evidence.Cell, len(b.Plan.Cells))
	for _, c := range b.Plan.Cells {
		cells[c.ID] = c
	}
	for _, open := range b.Verdict.Coverage.Open {
		cell, known := cells[open.Cell]
		if !known {
			continue
		}
		nodes, _ := nodeset.Parse(cell.Nodes, nil)
		if slices.Contains(nodes, open.Problem.Node) {
			nodes = []string{open.Problem.Node}
		}
		for _, n := range nodes {
			key := onNode{cell.Test, n}
			outcomes[key] = append(outcomes[key], evidence.Worst(evidence.Inconclusive, open.Problem.Class.Outcome()))
		}
	}
	return outcomes, whole
}

// blocks divides nodes, in the plan's order, into groups of at most
// heatColumns that keep a rack together where it fits.
func blocks(nodes []evidence.Node) [][]evidence.Node {
	var list [][]evidence.Node
	var block []evidence.Node
	for len(nodes) > 0 {
		n := 1
		for n < len(nodes) && n < heatColumns && nodes[n].Labels["rack"] == nodes[0].Labels["rack"] {
			n++
		}
		if len(block) > 0 && len(block)+n > heatColumns {
			list, block = append(list, block), nil
		}
		block = append(block, nodes[:n]...)
		nodes = nodes[n:]
	}
	if len(block) > 0 {
		list = append(list, block)
	}
	return list
}

func racks(nodes []evidence.Node) []heatRack {
	var heads []heatRack
	for _, n := range nodes {
		rack := n.Labels["rack"]
		if last := len(heads) - 1; last >= 0 && heads[last].Name == rack {
			heads[last].Width++
			continue
		}
		heads = append(heads, heatRack{rack, 1})
	}
	if len(heads) == 1 && heads[0].Name == "" {
		return nil
	}
	return heads
}
