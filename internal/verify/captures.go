package verify

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// accountForCaptures finds captures that the plan asks for and that the
// journal does not have: of a node that was well all the time, in a run that
// nothing interrupted. After a node was lost, or a process died, the runner
// may have had to leave one out.
func (l *ledger) accountForCaptures(s *step) {
	if len(l.c.plan.Captures.Commands) == 0 || len(l.breaks) > 0 {
		return
	}
	have := make(map[captureKey]int)
	ill := make(map[string]bool)
	gated := make(map[string]bool)
	for _, r := range l.c.records {
		switch {
		case r.Event == evidence.EventCapture:
			have[captureKey{r.Phase, captureWhen(r.Path), r.Node}]++
		case r.Event == evidence.EventGate:
			gated[r.Phase] = true
		}
		if r.Problem != nil && r.Node != "" {
			ill[r.Node] = true
		}
	}
	for _, key := range l.attempts {
		attempt, _, err := document[evidence.Attempt](l.c, attemptFolder(key)+"attempt.json", evidence.MediaAttempt)
		if err != nil {
			return // said before
		}
		for _, p := range attempt.Problems {
			if p.Node != "" {
				ill[p.Node] = true
			}
		}
	}
	for phase, nodes := range l.nodesOfPhases() {
		for _, node := range nodes {
			if ill[node] || !gated[phase] {
				continue
			}
			for _, when := range []string{"start", "end"} {
				if n, want := have[captureKey{phase, when, node}], len(l.c.plan.Captures.Commands); n != want {
					s.fail(attest.Failure{
						Code: CodeCaptureMissing, Path: path.Join(capturesFolder, phase, when, node),
						Message:  fmt.Sprintf("the captures of node %s at the %s of phase %s are not all there", node, when, phase),
						Expected: strconv.Itoa(want), Actual: strconv.Itoa(n), Next: "a capture was taken out: " + resignedNext,
					})
				}
			}
		}
	}
}

type captureKey struct{ phase, when, node string }

// captureWhen is "start" or "end", from captures/<phase>/<when>/<node>/<name>.
func captureWhen(dir string) string {
	parts := strings.Split(dir, "/")
	if len(parts) < 3 {
		return ""
	}
	return parts[2]
}

// nodesOfPhases are the nodes on which an attempt of each phase ended.
func (l *ledger) nodesOfPhases() map[string][]string {
	phases := l.phases()
	sets := make(map[string]string, len(l.c.plan.Cells)) // folded, by cell
	for _, cell := range l.c.plan.Cells {
		sets[cell.ID] = cell.Nodes
	}
	nodes := make(map[string][]string)
	for _, key := range l.attempts {
		names, err := nodeset.Parse(sets[key.cell], nil)
		if err != nil {
			continue // said where the plan is read
		}
		nodes[phases[key.cell]] = append(nodes[phases[key.cell]], names...)
	}
	for phase, list := range nodes {
		slices.Sort(list)
		nodes[phase] = slices.Compact(list)
	}
	return nodes
}
