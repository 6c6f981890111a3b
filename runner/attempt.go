package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
)

// driveGrace is how long a check, and then an executor, may go on after the end of
// its context before the attempt goes on without it.
const driveGrace = 30 * time.Second

// runCell makes the attempts that the cell still needs. It returns early,
// leaving the cell incomplete, when the run is stopped.
func (r *run) runCell(ctx context.Context, c *cellState) error {
	for {
		problem, err := r.cellReady(ctx, c)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if problem != nil {
			return r.skipCell(c, *problem)
		}
		if r.stopped() {
			return nil
		}
		attempt, err := r.attempt(ctx, c)
		if err != nil {
			return err
		}
		c.result.Attempts = append(c.result.Attempts, attempt)
		c.result.Skipped, c.skip, c.again = nil, nil, false
		r.emitEnd(c, attempt)
		if attempt.Cut || r.stopped() || ctx.Err() != nil || r.done(c) {
			return nil
		}
	}
}

// cellReady is the first problem, in fleet order, of the nodes that the
// cell needs.
func (r *run) cellReady(ctx context.Context, c *cellState) (*evidence.Problem, error) {
	problems := make([]*evidence.Problem, len(c.locks))
	errs := make([]error, len(c.locks))
	index := make(map[string]int, len(c.locks))
	for i, node := range c.locks {
		index[node] = i
	}
	eachNode(c.locks, func(node string) {
		i := index[node]
		problems[i], errs[i] = r.ready(ctx, node)
	})
	for _, p := range problems {
		if p != nil {
			return p, errors.Join(errs...)
		}
	}
	return nil, errors.Join(errs...)
}

// skipCell records why the cell is not run. A cell that has a whole attempt
// keeps that as its result.
func (r *run) skipCell(c *cellState, problem evidence.Problem) error {
	c.settled, c.again = true, false
	r.pending.over(c)
	if c.whole() > 0 {
		return nil
	}
	if c.skip == nil || c.skip.problem != problem || c.skip.closed {
		if err := r.append(evidence.Record{Event: evidence.EventSkip, Cell: c.cell.ID, Problem: &problem}); err != nil {
			return err
		}
	}
	c.skip = &skip{problem: problem}
	if len(c.result.Attempts) == 0 {
		c.result.Skipped = &problem
	}
	r.emit(Progress{Kind: ProgressSkip, Phase: c.test.Phase, Cell: c.cell.ID, Outcome: problem.Class.Outcome(), Problem: &problem, Pending: r.pending.of(c.test.Phase)})
	return nil
}

func (r *run) emitEnd(c *cellState, a evidence.MeasuredAttempt) {
	outcome, measured := r.outcome(c)
	if r.done(c) {
		r.pending.over(c)
	}
	p := Progress{
		Kind: ProgressCellEnd, Phase: c.test.Phase, Cell: c.cell.ID,
		Attempt: a.Number, Attempts: max(c.budget, a.Number), Outcome: outcome, Measured: measured, Cut: a.Cut,
		Pending: r.pending.of(c.test.Phase),
	}
	if all := slices.Concat(a.Problems, a.Unmeasured); len(all) > 0 {
		p.Problem = &all[0]
	}
	r.emit(p)
}

// attempt executes the cell once and measures what that left. Its error is
// one of our own machine and ends the run.
func (r *run) attempt(ctx context.Context, c *cellState) (evidence.MeasuredAttempt, error) {
	check, _ := r.o.Checks.Find(c.test.Check)
	dir, err := r.o.Store.Begin(c.cell, c.nodes)
	if err != nil {
		return r.endAttempt(fmt.Errorf("cell %s: begin: %w", c.cell.ID, err))
	}
	faults, err := newInjection(r, c, dir)
	if err != nil {
		return r.endAttempt(err)
	}
	r.emit(Progress{Kind: ProgressCellStart, Phase: c.test.Phase, Cell: c.cell.ID, Attempt: dir.Number(), Attempts: max(c.budget, dir.Number()), Pending: r.pending.of(c.test.Phase)})

	problems, cut := r.drive(ctx, c, check, dir, faults)
	faultProblems, err := faults.close()
	if err != nil {
		r.broken(err)
	}
	if !cut {
		problems = append(problems, faultProblems...)
	}
	attempt, err := r.o.Store.End(dir, problems, cut)
	if err != nil {
		return r.endAttempt(fmt.Errorf("cell %s attempt %d: end: %w", c.cell.ID, dir.Number(), err))
	}
	raw, err := evidence.RawFS(r.o.Store.FS(), c.cell.ID, attempt.Number)
	if err != nil {
		return r.endAttempt(fmt.Errorf("cell %s attempt %d: raw output: %w", c.cell.ID, attempt.Number, err))
	}
	return checks.MeasureAttempt(r.o.Checks, r.plan, c.cell, evidence.MeasuredAttempt{Attempt: attempt}, raw), nil
}

func (r *run) endAttempt(err error) (evidence.MeasuredAttempt, error) {
	r.broken(err)
	return evidence.MeasuredAttempt{}, err
}

// drive runs the check and the faults, and says what went wrong and whether
// the attempt was cut by the end of the run.
func (r *run) drive(ctx context.Context, c *cellState, check checks.Check, dir *evidence.AttemptDir, faults *injection) (problems []evidence.Problem, cut bool) {
	deadline := c.test.Deadline.Std()
	until := time.Now().Add(deadline)
	attemptCtx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	faultsDone := make(chan struct{})
	b := &bench{
		run: r, cell: c, dir: dir, began: dir.Began(), until: until,
		faults: faultsDone, ended: attemptCtx.Done(), empty: make(chan struct{}),
	}
	var group sync.WaitGroup
	group.Go(func() {
		defer close(faultsDone)
		faults.carry(attemptCtx)
	})
	result := safeCall(attemptCtx, driveGrace, func(ctx context.Context) error { return check.Drive(ctx, b) })
	cut = ctx.Err() != nil
	// By the clock: a context below attemptCtx may have ended just before it.
	late := !cut && !time.Now().Before(until)
	cancel()
	group.Wait()
	stuck := b.close(driveGrace)
	leftBehind := b.cleanUp(ctx)

	problems = append(problems, driveProblems(result, cut, late, deadline)...)
	for _, s := range stuck {
		problems = append(problems, evidence.Problem{Node: s.node, Step: s.name, Class: evidence.ClassTimeout, Detail: "the executor did not end the command"})
	}
	problems = append(problems, leftBehind...)
	if !cut && len(c.test.Faults) == 0 {
		problems = append(problems, r.restarts(ctx, b.lostNodes())...)
	}
	return problems, cut
}

// driveProblems says in classes how Drive ended.
func driveProblems(result callResult, cut, late bool, deadline time.Duration) []evidence.Problem {
	var problems []evidence.Problem
	switch {
	case cut:
		problems = append(problems, evidence.Problem{Class: evidence.ClassCut, Detail: "the run was ended during this attempt"})
	case late && result.abandoned:
		problems = append(problems, evidence.Problem{Class: evidence.ClassTimeout,
			Detail: fmt.Sprintf("the deadline of %s passed, and the check was abandoned: it had not returned %s later", deadline, driveGrace)})
	case late:
		problems = append(problems, evidence.Problem{Class: evidence.ClassTimeout, Detail: fmt.Sprintf("the deadline of %s passed", deadline)})
	}
	if cut && result.abandoned {
		problems = append(problems, evidence.Problem{Class: evidence.ClassTimeout, Detail: fmt.Sprintf("the check was abandoned: it had not returned %s after the run's end", driveGrace)})
	}
	if result.panicked != "" {
		problems = append(problems, evidence.Problem{Class: evidence.ClassPanic, Detail: result.panicked})
	}
	for _, p := range flatten(result.err) {
		if (cut || late) && p.Class == contextClass {
			continue
		}
		if p.Class == contextClass {
			p.Class = evidence.ClassTimeout
		}
		problems = append(problems, p)
	}
	return problems
}

// contextClass stands, inside this file, for the error of a context.
const contextClass evidence.Class = "context"

// flatten lists the problems inside err, through joined and wrapped errors.
func flatten(err error) []evidence.Problem {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []evidence.Problem
		for _, inner := range joined.Unwrap() {
			all = append(all, flatten(inner)...)
		}
		return all
	}
	var p *evidence.Problem
	switch {
	case errors.As(err, &p):
		return []evidence.Problem{*p}
	case ended(err):
		return []evidence.Problem{{Class: contextClass, Detail: err.Error()}}
	}
	return evidence.Problems(err)
}

// restarts asks nodes of which a command was lost whether they were started
// again meanwhile.
func (r *run) restarts(ctx context.Context, nodes []string) []evidence.Problem {
	var problems []evidence.Problem
	slices.Sort(nodes)
	for _, node := range slices.Compact(nodes) {
		was := r.nodes.get(node).identity.BootID
		out, exit := r.ask(ctx, node, "identify", askDeadline/4, "cat", "/proc/sys/kernel/random/boot_id")
		if is := firstLine(out); exit.OK() && was != "" && is != "" && was != is {
			problems = append(problems, evidence.Problem{Node: node, Class: evidence.ClassInterrupted,
				Detail: fmt.Sprintf("the node was started again: its boot id was %s and is %s", was, is)})
		}
	}
	return problems
}
