package verify

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// accountForCaptures finds captures that the plan asks for of a node that a
// completed phase ran on, and that are neither there nor left out for a reason.
func (l *ledger) accountForCaptures(s *step) {
	want := len(l.c.plan.Captures.Commands)
	if want == 0 || l.stopped {
		return
	}
	type place struct{ phase, when, node string }
	have, excused := make(map[place]int), make(map[place]bool)
	for _, r := range l.c.records {
		at := place{r.Phase, evidence.CaptureWhen(r.Path), r.Node}
		switch r.Event {
		case evidence.EventCapture:
			have[at]++
		case evidence.EventCaptureSkip:
			excused[at] = r.Problem != nil
		}
	}
	for phase, nodes := range l.nodesOfPhases() {
		if _, decided := l.lastGate[phase]; !decided {
			continue
		}
		for _, node := range nodes {
			for _, when := range []string{"start", "end"} {
				at := place{phase, when, node}
				if have[at] >= want || excused[at] {
					continue
				}
				s.fail(attest.Failure{
					Code: CodeCaptureMissing, Path: path.Join(capturesFolder, phase, when, node),
					Message:  fmt.Sprintf("the captures of node %s at the %s of phase %s are not all there, and the journal does not say why", node, when, phase),
					Expected: strconv.Itoa(want), Actual: strconv.Itoa(have[at]), Next: "a capture was taken out: " + resignedNext,
				})
			}
		}
	}
}

// nodesOfPhases are the nodes on which an attempt of each phase ended.
func (l *ledger) nodesOfPhases() map[string][]string {
	tests, sets := l.c.testOf(), l.c.setOf()
	nodes := make(map[string][]string)
	for _, key := range l.attempts {
		names, err := nodeset.Parse(sets[key.cell], nil)
		t, known := tests[key.cell]
		if err != nil || !known {
			continue // said where the plan is read, and compiled again
		}
		nodes[t.Phase] = append(nodes[t.Phase], names...)
	}
	for phase, list := range nodes {
		slices.Sort(list)
		nodes[phase] = slices.Compact(list)
	}
	return nodes
}
