package thresholds

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// release decides a release rule from the verdict alone: in each phase that it
// requires, everything about its nodes passes, and everything about more than
// one node in a test or group that has one of them. Waivers and approvals are
// not for the judge.
func (j *judge) release(rule *evidence.Release, tests []*test) evidence.ReleaseResult {
	var outcomes []evidence.Outcome
	var reasons []string
	hold := func(outcome evidence.Outcome, reason string) {
		outcomes = append(outcomes, outcome)
		if outcome != evidence.Pass {
			reasons = append(reasons, reason)
		}
	}
	set := j.set(rule.Nodes)
	nodes := map[string]bool{}
	for _, n := range set.nodes {
		nodes[n] = true
	}
	switch {
	case rule.Nodes == "":
		hold(evidence.Inconclusive, "it names no nodes")
	case set.defect != "":
		hold(evidence.Inconclusive, set.defect)
	}
	if len(rule.Require) == 0 {
		hold(evidence.Inconclusive, "it requires no phase")
	}
	for _, required := range rule.Require {
		phase := strings.TrimPrefix(required, "phase.")
		in := inPhase(tests, phase)
		if len(in) == 0 {
			hold(evidence.Inconclusive, fmt.Sprintf("phase %q has no test", phase))
		}
		covered := map[string]bool{}
		for _, t := range in {
			j.releaseTest(t, nodes, covered, hold)
		}
		for _, n := range set.nodes {
			if !covered[n] && len(in) > 0 {
				hold(evidence.Inconclusive, fmt.Sprintf("nothing is found about %s in phase %q", n, phase))
			}
		}
	}
	if len(j.plan.Narrowed) > 0 {
		hold(evidence.Inconclusive, "narrowed: "+strings.Join(j.plan.Narrowed, " "))
	}
	if off := j.plan.OffContract(); len(off) > 0 {
		hold(evidence.Inconclusive, "off contract: "+strings.Join(off, ", "))
	}
	r := evidence.ReleaseResult{Release: rule.Name, Outcome: evidence.Worst(outcomes...)}
	if len(reasons) > 0 {
		r.Reason = andMore(reasons)
	}
	return r
}

// releaseTest holds a release against one test. Covered gains the nodes about
// which something was found.
func (j *judge) releaseTest(t *test, nodes, covered map[string]bool, hold func(evidence.Outcome, string)) {
	if !slices.ContainsFunc(t.nodes, func(n string) bool { return nodes[n] }) {
		return
	}
	for i := range t.findings {
		f := &t.findings[i]
		switch {
		case !f.whole():
			if !nodes[f.group.node] {
				continue
			}
			covered[f.group.node] = true
		case f.group != nil && f.group.label != "":
			touched := false
			for _, n := range t.nodes {
				if value, ok := j.nodes[n].Labels[f.group.label]; ok && value == f.group.value && nodes[n] {
					touched, covered[n] = true, true
				}
			}
			if !touched {
				continue
			}
		default:
			for _, n := range t.nodes {
				covered[n] = true
			}
		}
		hold(f.Outcome, f.title())
	}
	for _, c := range t.cells {
		problem, outcome := c.open()
		if problem == nil {
			continue
		}
		if slices.ContainsFunc(c.nodes, func(n string) bool { return nodes[n] }) || len(c.nodes) == 0 {
			hold(outcome, fmt.Sprintf("cell %s is %s", c.plan.ID, outcome))
		}
	}
}
