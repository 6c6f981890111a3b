package runner

import (
	"context"
	"fmt"
	"slices"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// steering is what the gates so far mean for the phases to come.
type steering struct {
	blocked  map[string]string // by phase: why what depends on it is not run
	excluded map[string]string // node: the phase whose gate excluded it
	stop     string            // why the phase at hand is not run; empty: it is
}

// runPhases runs the phases in the plan's order. A gate that was decided and
// whose phase has nothing left to run is not decided again.
func (r *run) runPhases(ctx context.Context) error {
	s := steering{blocked: make(map[string]string), excluded: make(map[string]string)}
	for i, phase := range r.plan.Phases {
		if ctx.Err() != nil || r.stopped() {
			return nil
		}
		s.follow(r.plan.Phases, i)
		gate, err := r.runPhase(ctx, phase, &s)
		if err != nil {
			return err
		}
		if gate == nil { // stopped, or not entered at all
			continue
		}
		if err := s.heed(phase, *gate); err != nil {
			return err
		}
	}
	return nil
}

// follow stops the phase if one that it depends on was not met, or was itself
// not run because of that. A phase that names no dependency follows the one
// before it.
func (s *steering) follow(phases []evidence.Phase, i int) {
	s.stop = ""
	depends := phases[i].DependsOn
	if len(depends) == 0 && i > 0 {
		depends = []string{phases[i-1].Name}
	}
	for _, name := range depends {
		if why := s.blocked[name]; why != "" {
			s.stop, s.blocked[phases[i].Name] = why, why
			return
		}
	}
}

func gateText(g evidence.GateResult) string {
	if g.Reason != "" {
		return g.Reason
	}
	return fmt.Sprintf("%d nodes must pass", g.Needed)
}

// heed takes in a gate's decision.
func (s *steering) heed(phase evidence.Phase, gate evidence.GateResult) error {
	if gate.Met {
		return nil
	}
	switch phase.Gate.OnFail {
	case "stop":
		s.blocked[phase.Name] = fmt.Sprintf("the gate of phase %s was not met: %s", phase.Name, gateText(gate))
	case "exclude":
		for _, folded := range gate.Failing {
			nodes, err := nodeset.Parse(folded, nil)
			if err != nil {
				return fmt.Errorf("gate of phase %s: failing nodes: %w", phase.Name, err)
			}
			for _, node := range nodes {
				if _, already := s.excluded[node]; !already {
					s.excluded[node] = phase.Name
				}
			}
		}
	}
	return nil
}

// barred says why a gate keeps the cell from running, or nil.
func (s *steering) barred(c *cellState) *evidence.Problem {
	if s.stop != "" {
		return &evidence.Problem{Class: evidence.ClassNotRun, Detail: s.stop}
	}
	for _, node := range c.nodes {
		if phase, excluded := s.excluded[node]; excluded {
			return &evidence.Problem{Node: node, Class: evidence.ClassExcluded,
				Detail: fmt.Sprintf("excluded by the gate of phase %s", phase)}
		}
	}
	return nil
}

// runPhase runs what is left of one phase and gives its gate's decision, or
// nil if there is none because the run was stopped.
func (r *run) runPhase(ctx context.Context, phase evidence.Phase, s *steering) (*evidence.GateResult, error) {
	var open, pending, all []*cellState
	for _, c := range r.cells {
		if c.test.Phase != phase.Name {
			continue
		}
		all = append(all, c)
		if !r.done(c) && !c.skippedForGood() {
			open = append(open, c)
		}
	}
	r.pending.begin(phase.Name, open)
	for _, c := range open {
		if problem := s.barred(c); problem != nil {
			if err := r.skipCell(c, *problem); err != nil {
				return nil, err
			}
			continue
		}
		pending = append(pending, c)
	}
	if s.stop != "" {
		return nil, nil
	}
	recorded, decided := r.history.gates[phase.Name]
	if len(pending) == 0 && decided && r.history.ended[phase.Name] {
		return &recorded, nil
	}
	if err := r.enterPhase(ctx, phase, all, len(pending)); err != nil {
		return nil, err
	}
	if len(pending) > 0 {
		r.history.forgetCaptures(phase.Name, "end") // of before these cells
	}
	if err := r.schedule(ctx, pending); err != nil {
		return nil, err
	}
	if ctx.Err() != nil || r.stopped() && r.left(pending) {
		return nil, nil
	}
	if err := r.leavePhase(ctx, phase, all); err != nil {
		return nil, err
	}
	return r.decide(phase)
}

// left reports whether a cell is neither done nor skipped.
func (r *run) left(cells []*cellState) bool {
	return slices.ContainsFunc(cells, func(c *cellState) bool { return !c.settled && !r.done(c) })
}

func (r *run) enterPhase(ctx context.Context, phase evidence.Phase, cells []*cellState, pending int) error {
	r.emit(Progress{Kind: ProgressPhaseStart, Phase: phase.Name, Pending: pending})
	if !r.history.started[phase.Name] {
		if err := r.append(evidence.Record{Event: evidence.EventPhaseStart, Phase: phase.Name}); err != nil {
			return err
		}
		r.history.started[phase.Name] = true
	}
	return r.capture(ctx, phase.Name, "start", cells)
}

func (r *run) leavePhase(ctx context.Context, phase evidence.Phase, cells []*cellState) error {
	if !r.history.ended[phase.Name] {
		if err := r.capture(ctx, phase.Name, "end", cells); err != nil || ctx.Err() != nil {
			return err
		}
		if err := r.append(evidence.Record{Event: evidence.EventPhaseEnd, Phase: phase.Name}); err != nil {
			return err
		}
		r.history.ended[phase.Name] = true
	}
	r.emit(Progress{Kind: ProgressPhaseEnd, Phase: phase.Name})
	return r.writeInventory()
}

// decide judges the phase's gate over the results so far and journals the
// decision before anybody acts on it.
func (r *run) decide(phase evidence.Phase) (*evidence.GateResult, error) {
	results := make([]evidence.CellResult, len(r.cells))
	for i, c := range r.cells {
		results[i] = c.result
	}
	gate := evidence.GateResult{Phase: phase.Name, Reason: "the judge did not decide it"}
	for _, g := range r.o.Judge(r.plan, results).Gates {
		if g.Phase == phase.Name {
			gate = g
		}
	}
	if err := r.append(evidence.Record{Event: evidence.EventGate, Phase: phase.Name, Gate: &gate}); err != nil {
		return nil, err
	}
	r.history.gates[phase.Name] = gate
	r.emit(Progress{Kind: ProgressGate, Phase: phase.Name, Gate: &gate, OnFail: phase.Gate.OnFail})
	return &gate, nil
}
