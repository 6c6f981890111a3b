package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

// release is step 7: the release rules of the plan that were asked for, and
// the rules of the trust policy, today.
func release(c *content, o Options, results []evidence.CellResult, verdict *evidence.Verdict, simulated []string) attest.StepResult {
	s := newStep(stepRelease)
	if c.plan == nil || verdict == nil {
		s.leave("there is no plan or no verdict, so no rule can be met")
		return s.result("")
	}
	releases := judgeReleases(c.plan, o.Release, verdict, s)
	r := rules{c: c, o: o, results: results, verdict: verdict, s: s}
	r.age()
	r.kind(simulated)
	r.limits()
	r.runbook()
	summary := "the rules of the trust policy hold"
	if releases > 0 {
		summary += ", and " + evidence.Count(releases, "release rule")
	} else {
		summary += "; the plan has no release rule"
	}
	return s.result(summary)
}

// judgeReleases holds the releases that were asked for against the verdict,
// and returns how many there were.
func judgeReleases(p *evidence.Plan, only string, verdict *evidence.Verdict, s *step) int {
	judged := 0
	for _, rule := range p.Releases {
		if only != "" && rule.Name != only {
			continue
		}
		judged++
		f := attest.Failure{Code: CodeRelease, Path: "release." + rule.Name, Expected: evidence.Pass.String()}
		at := slices.IndexFunc(verdict.Releases, func(r evidence.ReleaseResult) bool { return r.Release == rule.Name })
		switch {
		case at < 0:
			f.Message, f.Actual = "the verdict does not decide this release", absent
		case verdict.Releases[at].Outcome != evidence.Pass:
			f.Message, f.Actual = "release rule "+rule.Name+" is not met: "+verdict.Releases[at].Reason, verdict.Releases[at].Outcome.String()
		case len(p.Narrowed) > 0 || len(p.OffContract()) > 0:
			f.Message = "release rule " + rule.Name + " cannot be met by a run that is narrowed or off contract"
			f.Actual = strings.Join(slices.Concat(p.Narrowed, p.OffContract()), " ")
		default:
			continue
		}
		s.fail(f)
	}
	if only != "" && judged == 0 {
		var names []string
		for _, rule := range p.Releases {
			names = append(names, rule.Name)
		}
		s.fail(attest.Failure{
			Code: CodeReleaseUnknown, Path: "release." + only, Message: "the plan has no release of this name",
			Expected: strings.Join(names, ", "), Actual: only, Next: "choose one of the plan's releases, or leave --release out to judge all of them",
		})
	}
	return judged
}

type rules struct {
	c       *content
	results []evidence.CellResult // nil where nothing was measured again
	o       Options
	verdict *evidence.Verdict
	s       *step
}

// age compares the claimed age of the run with the policy's limit. A run is as
// old as the oldest attempt that counts: one that is opened again, or goes on
// after a year, is not young because it was closed today.
func (r rules) age() {
	limit := r.o.Policy.Require.MaxAge.Std()
	if limit == 0 {
		return
	}
	ended := r.c.ended()
	f := attest.Failure{Code: CodeAge, Path: evidence.JournalPath, Expected: "at most " + limit.String() + " old"}
	switch {
	case ended == nil:
		f.Message, f.Actual = "the run has no claimed end, so its age is not known", absent
	case ended.After(r.o.At.Add(attest.ClockTolerance)):
		f.Message, f.Actual = "the run claims to end in the future", ended.Format(time.RFC3339)
		f.Next = "compare the clocks of the runner and of this machine"
	case r.o.At.Sub(r.oldest(*ended)) > limit:
		f.Message = "the run is older than the trust policy allows (its time is claimed, not proven)"
		f.Actual = r.o.At.Sub(r.oldest(*ended)).Truncate(time.Second).String()
		f.Next = "run the acceptance again"
	default:
		return
	}
	r.s.fail(f)
}

// oldest is when the oldest attempt that counts ended, by its own claim or the
// journal's; the end of the run where there is none.
func (r rules) oldest(ended time.Time) time.Time {
	counts := make(map[attemptKey]bool)
	for _, result := range r.results {
		if a := counting(result); a != nil {
			counts[attemptKey{result.Cell.ID, a.Number}] = true
			ended = earlier(ended, a.End)
		}
	}
	for _, record := range r.c.records {
		if record.Event == evidence.EventAttemptEnd && counts[attemptKey{record.Cell, record.Attempt}] {
			ended = earlier(ended, record.Time)
		}
	}
	return ended
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// counting is the attempt on which the judge rests: the last that was not cut.
func counting(result evidence.CellResult) *evidence.MeasuredAttempt {
	for i := len(result.Attempts) - 1; i >= 0; i-- {
		if !result.Attempts[i].Cut {
			return &result.Attempts[i]
		}
	}
	return nil
}

// kind refuses runs that were not what a contract asks for.
func (r rules) kind(simulated []string) {
	accept := r.o.Policy.Accept
	if len(simulated) > 0 && !accept.Simulated {
		r.s.fail(attest.Failure{
			Code: CodeSimulated, Path: evidence.InventoryPath, Message: "these nodes are simulated: " + strings.Join(simulated, ", "),
			Expected: "real nodes", Actual: strconv.Itoa(len(simulated)) + " simulated", Next: "a rehearsal proves nothing about a rack; accept { simulated = true } admits it",
		})
	}
	if len(r.c.plan.Narrowed) > 0 && !accept.Narrowed {
		r.s.fail(attest.Failure{
			Code: CodeNarrowed, Path: evidence.PlanPath, Message: "the run was narrowed", Expected: "the whole plan",
			Actual: strings.Join(r.c.plan.Narrowed, " "), Next: "run the whole runbook",
		})
	}
	if names := r.c.plan.OffContract(); len(names) > 0 && !accept.OffContract {
		r.s.fail(attest.Failure{
			Code: CodeOffContract, Path: evidence.PlanPath, Message: "variables are off their contract values", Expected: "none",
			Actual: strings.Join(names, ", "), Next: "run with the contract's values",
		})
	}
}

// limits counts what the policy puts up with only so often.
func (r rules) limits() {
	coverage := r.verdict.Coverage
	if n, most := len(coverage.Retried)+r.overBudget(), r.o.Policy.Accept.Retried; n > most {
		r.s.fail(attest.Failure{
			Code: CodeRetried, Path: evidence.VerdictPath, Message: "cells passed only on a later attempt: " + strings.Join(coverage.Retried, ", "),
			Expected: fmt.Sprintf("at most %d", most), Actual: strconv.Itoa(n), Next: "a fault that goes away is still a fault: find its cause",
		})
	}
	if n, most := len(coverage.Cuts), r.o.Policy.Accept.Interrupted; n > most {
		var cells []string
		for _, cut := range coverage.Cuts {
			cells = append(cells, fmt.Sprintf("%s attempt %d", cut.Cell, cut.Attempt))
		}
		r.s.fail(attest.Failure{
			Code: CodeInterrupted, Path: evidence.VerdictPath, Message: "attempts were cut by the runner's own end or by a stop: " + strings.Join(cells, ", "),
			Expected: fmt.Sprintf("at most %d", most), Actual: strconv.Itoa(n), Next: "run again without interruption, or accept { interrupted = n }",
		})
	}
}

// overBudget counts, over the cells that passed late, the attempts beyond the
// first that exceeds what the plan allows: whoever tries until it passes has
// not retried once.
func (r rules) overBudget() int {
	allowed := make(map[string]int, len(r.c.plan.Tests))
	for _, t := range r.c.plan.Tests {
		allowed[t.Name] = 1 + t.Retries
	}
	late := make(map[string]bool, len(r.verdict.Coverage.Retried))
	for _, cell := range r.verdict.Coverage.Retried {
		late[cell] = true
	}
	over := 0
	for _, result := range r.results {
		if !late[result.Cell.ID] {
			continue
		}
		whole := 0
		for _, a := range result.Attempts {
			if !a.Cut {
				whole++
			}
		}
		over += max(0, whole-allowed[result.Cell.Test]-1)
	}
	return over
}

func (r rules) runbook() {
	allowed := r.o.Policy.Require.Runbooks
	if len(allowed) == 0 || slices.Contains(allowed, r.c.plan.Runbook) {
		return
	}
	names := make([]string, len(allowed))
	for i, d := range allowed {
		names[i] = string(d)
	}
	r.s.fail(attest.Failure{
		Code: CodeRunbookUnknown, Path: evidence.PlanPath, Message: "the trust policy does not list this runbook",
		Expected: strings.Join(names, " or "), Actual: string(r.c.plan.Runbook), Next: "read the enclosed runbook, then add its digest to require { runbooks }",
	})
}

// ended is when the run claims to have ended: at its last record.
func (c *content) ended() *time.Time {
	if len(c.records) == 0 {
		return nil
	}
	return &c.records[len(c.records)-1].Time
}
