package verify

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// checkNodes holds the inventory against the journal and the plan: nothing was
// run on a node before it was reached and identified, each entry is one of the
// journal's identifications, a node stays the machine that it was, and two
// nodes are not one machine unless the plan says so.
func checkNodes(c *content, s *step) {
	if c.journalErr != nil || len(c.records) == 0 {
		return
	}
	n := nodeCheck{c: c, s: s, usable: make(map[string]bool), known: make(map[string][]evidence.NodeIdentity)}
	n.readJournal()
	n.compareMachines()
	n.readInventory()
}

type nodeCheck struct {
	c      *content
	s      *step
	usable map[string]bool // by the newest record of each node
	known  map[string][]evidence.NodeIdentity
	ran    bool // an attempt was made

	lastSet   string
	lastNodes []string
}

func (n *nodeCheck) fail(where, message, expected, actual string) {
	n.s.fail(attest.Failure{Code: CodeInventory, Path: where, Message: message, Expected: expected, Actual: actual, Next: resignedNext})
}

func (n *nodeCheck) readJournal() {
	fleet := make(map[string]bool, len(n.c.plan.Fleet.Nodes))
	for _, node := range n.c.plan.Fleet.Nodes {
		fleet[node.Name] = true
	}
	sets := n.c.setOf()
	for i, r := range n.c.records {
		at := fmt.Sprintf("%s:%d", evidence.JournalPath, i+1)
		switch r.Event {
		case evidence.EventNode:
			switch {
			case r.Identity == nil || r.Identity.Node != r.Node || !fleet[r.Node]:
				n.fail(at, "this line identifies no node of the fleet", "a node of the fleet", r.Node)
			default:
				n.known[r.Node] = append(n.known[r.Node], *r.Identity)
				n.checkClock(at, *r.Identity)
				n.usable[r.Node] = r.Identity.Problem == nil && r.Problem == nil
			}
		case evidence.EventAttemptStart:
			n.ran = true
			for _, node := range n.expand(sets[r.Cell]) {
				if !n.usable[node] {
					n.fail(at, "an attempt began on node "+node+", which was not reached and identified before", "a node without a problem", n.standing(node))
				}
			}
		}
	}
}

// checkClock repeats the runner's rule of a node's clock.
func (n *nodeCheck) checkClock(at string, id evidence.NodeIdentity) {
	limit := n.c.plan.ClockLimit.Std().Seconds()
	if limit <= 0 || id.Problem != nil {
		return
	}
	switch {
	case id.ClockOffset == nil:
		n.fail(at, "the clock of node "+id.Node+" was not read, and the node was used", "an offset of at most "+n.c.plan.ClockLimit.String(), absent)
	case math.Abs(*id.ClockOffset) > limit:
		n.fail(at, "the clock of node "+id.Node+" is further off than the plan allows, and the node was used",
			"an offset of at most "+n.c.plan.ClockLimit.String(), strconv.FormatFloat(*id.ClockOffset, 'f', -1, 64)+" s")
	}
}

func (n *nodeCheck) standing(node string) string {
	all := n.known[node]
	if len(all) == 0 {
		return "never identified"
	}
	if p := all[len(all)-1].Problem; p != nil {
		return p.Error()
	}
	return "identified with a problem"
}

// expand reads a folded node set of the plan, which CheckNodes has read before.
// Attempts of one set follow each other, so the last one is kept.
func (n *nodeCheck) expand(set string) []string {
	if n.lastSet != set {
		names, err := nodeset.Parse(set, nil)
		if err != nil {
			names = nil // a cell that the plan does not have
		}
		n.lastSet, n.lastNodes = set, names
	}
	return n.lastNodes
}

// compareMachines applies the runner's own rules of who is who, to what the
// runner says that it found.
func (n *nodeCheck) compareMachines() {
	taken := make(map[string]string)
	for _, node := range n.c.plan.Fleet.Nodes {
		var was evidence.NodeIdentity
		for _, id := range n.known[node.Name] {
			if id.Problem != nil && id.MachineID == "" {
				continue
			}
			for _, one := range []struct {
				what string
				was  *string
				is   string
			}{{"machine id", &was.MachineID, id.MachineID}, {"serial number", &was.Serial, id.Serial}, {"host key", &was.HostKey, id.HostKey}} {
				if *one.was == "" {
					*one.was = one.is
				}
				if one.is != "" && *one.was != one.is && id.Problem == nil {
					n.fail(evidence.JournalPath, "another machine answers by the name of node "+node.Name+": its "+one.what+" has changed", *one.was, one.is)
				}
			}
		}
		if was.MachineID == "" || n.c.plan.SharedMachine {
			continue
		}
		if other, both := taken[was.MachineID]; both {
			n.fail(evidence.JournalPath, "nodes "+other+" and "+node.Name+" are one machine, and the plan does not allow that", "two machine ids", was.MachineID)
			continue
		}
		taken[was.MachineID] = node.Name
	}
}

// readInventory compares the inventory with the identifications. A run that
// was stopped before it made an attempt may have none.
func (n *nodeCheck) readInventory() {
	if n.c.inventory == nil {
		if n.ran {
			n.fail(evidence.InventoryPath, "the inventory cannot be read: "+n.c.inventoryErr.Error(), "", "")
		}
		return
	}
	if n.c.inventory.Executor != n.c.plan.Executor {
		n.fail(evidence.InventoryPath, "the nodes were reached by another executor than the plan's", n.c.plan.Executor, n.c.inventory.Executor)
	}
	// A node that the run never came to, because it was stopped early, is left
	// out or blank; no attempt can have begun there.
	var names, listed []string
	for _, node := range n.c.plan.Fleet.Nodes {
		if len(n.known[node.Name]) > 0 {
			names = append(names, node.Name)
		}
	}
	for _, entry := range n.c.inventory.Nodes {
		if entry.Node != "" {
			listed = append(listed, entry.Node)
		}
	}
	if !slices.Equal(listed, names) {
		n.fail(evidence.InventoryPath, "its nodes are not those that the journal identified", strings.Join(names, " "), strings.Join(listed, " "))
		return
	}
	for _, entry := range n.c.inventory.Nodes {
		same := func(id evidence.NodeIdentity) bool {
			differences, err := diffValues(id, entry)
			return err == nil && len(differences) == 0
		}
		if entry.Node != "" && !slices.ContainsFunc(n.known[entry.Node], same) {
			n.fail(evidence.InventoryPath+"#nodes["+entry.Node+"]", "the journal never identified this node so", "one of the journal's identifications", "another")
		}
	}
}
