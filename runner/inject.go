package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

const (
	injectBound = 30 * time.Second
	undoBound   = 30 * time.Second
	undoPause   = 3 * time.Second
)

// openFault is a fault that the journal says is in effect on one node.
type openFault struct {
	record evidence.Record // its fault_open
	cause  string          // why the last undo did not succeed
}

func (f openFault) closedBy(r evidence.Record) bool {
	return f.record.Cell == r.Cell && f.record.Attempt == r.Attempt && f.record.FaultIndex == r.FaultIndex && f.record.Node == r.Node
}

// faultBook is the faults whose undo did not succeed, in the order of their
// injection: of an earlier process, or of this one.
type faultBook struct {
	mu   sync.Mutex
	open []openFault
}

func (b *faultBook) list() []openFault {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.open)
}

func (b *faultBook) add(f openFault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, f)
}

func (b *faultBook) remove(f openFault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = slices.DeleteFunc(b.open, func(o openFault) bool { return o.closedBy(f.record) })
}

// blame remembers why the last undo of f did not succeed.
func (b *faultBook) blame(f openFault, cause string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.open {
		if b.open[i].closedBy(f.record) {
			b.open[i].cause = cause
		}
	}
}

// stillOpen is an *OpenFaultError, or nil.
func (b *faultBook) stillOpen() error {
	var faults []string
	for _, f := range b.list() {
		faults = append(faults, fmt.Sprintf("%s attempt %d: %s on %s: %s", f.record.Cell, f.record.Attempt, f.record.Fault, f.record.Node, f.cause))
	}
	if faults == nil {
		return nil
	}
	return &OpenFaultError{Faults: faults}
}

// Undo undoes every fault that the store's journal says is in effect, the
// last one first, and returns how many it undid. An *OpenFaultError names
// those that it could not.
func Undo(ctx context.Context, o Options) (undone int, err error) {
	if o.Store == nil || o.Executor == nil {
		return 0, errors.New("undo: store and executor are required")
	}
	events := make(chan Progress, 64)
	var reporter sync.WaitGroup
	reporter.Go(func() {
		for p := range events {
			if o.Progress != nil {
				o.Progress(p)
			}
		}
	})
	defer reporter.Wait()
	defer close(events)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{o: o, plan: o.Store.Plan(), events: events, fail: cancel, history: readHistory(o.Store.Records())}
	r.nodes = newNodeBook(r.history.identities)
	r.faults = &faultBook{open: r.history.openFaults}
	r.leases = newLeases()
	defer r.leases.release()
	before := len(r.faults.list())
	r.undoLeftovers(ctx)
	undone = before - len(r.faults.list())
	if own := r.fault.Load(); own != nil {
		return undone, own.err
	}
	return undone, r.faults.stillOpen()
}

// undoLeftovers tries to undo the open faults in reverse order of their
// injection. Those that stay open keep their nodes from being used. An undo
// changes a node, so none is sent before the node is known to be the machine
// that was broken, and to be ours.
func (r *run) undoLeftovers(ctx context.Context) {
	open := r.faults.list()
	barred := make(map[string]*error)
	for _, f := range open {
		barred[f.record.Node] = new(error)
	}
	eachNode(slices.Sorted(maps.Keys(barred)), func(node string) { *barred[node] = r.barsUndo(ctx, node) })
	for _, f := range slices.Backward(open) {
		if err := *barred[f.record.Node]; err != nil {
			r.faults.blame(f, err.Error())
			continue
		}
		r.undoLeftover(ctx, f)
	}
}

// barsUndo says why no undo may be sent to node, or nil once its lease is
// held. A clock that is off is no reason: nothing is measured.
func (r *run) barsUndo(ctx context.Context, node string) error {
	id := r.identify(ctx, node, connectTries)
	if was, known := r.nodes.firstOf(node); known {
		if err := sameMachine(was, id); err != nil {
			return err
		}
	}
	if id.Problem != nil && id.Problem.Class != evidence.ClassClockOffset {
		return id.Problem
	}
	problem, err := r.lease(ctx, node, int(leaseRetries/leasePause))
	if problem != nil {
		return problem
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the lease may not be held
	}
	return err
}

func (r *run) undoLeftover(ctx context.Context, f openFault) {
	if err := r.undoFault(ctx, f); err != nil {
		r.faults.blame(f, err.Error())
		return
	}
	r.faults.remove(f)
}

// undoBefore undoes what is still broken on node before a cell uses it.
func (r *run) undoBefore(ctx context.Context, node string) *evidence.Problem {
	for _, f := range slices.Backward(r.faults.list()) {
		if f.record.Node != node {
			continue
		}
		r.undoLeftover(ctx, f)
	}
	for _, f := range r.faults.list() {
		if f.record.Node == node {
			return &evidence.Problem{Node: node, Step: "undo", Class: evidence.ClassNotRun,
				Detail: fmt.Sprintf("the fault %s of %s is still in effect: %s", f.record.Fault, f.record.Cell, f.cause)}
		}
	}
	return nil
}

// undoFault runs a fault's undo command until it succeeds or its own deadline
// passes, whatever becomes of ctx: the rack must not be left broken because we
// end. Success is journaled.
func (r *run) undoFault(ctx context.Context, f openFault) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	rec := f.record
	if len(rec.Undo) > 0 {
		step := rec.Cell + "/" + strconv.Itoa(rec.Attempt) + "/undo-" + strconv.Itoa(rec.FaultIndex)
		for {
			_, exit := r.ask(ctx, rec.Node, step, undoBound, rec.Undo...)
			if exit.OK() {
				break
			}
			// A key or a password that was refused is not offered again.
			if refused := away(exit.Class) && !exit.Class.Retryable() && exit.Class != evidence.ClassLost; refused || wait(ctx, undoPause) != nil {
				return fmt.Errorf("undo %q: %s", rec.Undo, exitText(exit))
			}
		}
	}
	r.emit(Progress{Kind: ProgressFault, Cell: rec.Cell, Attempt: rec.Attempt, Node: rec.Node, Fault: rec.Fault, FaultEvent: "undone"})
	return r.append(evidence.Record{Event: evidence.EventFaultClose, Cell: rec.Cell, Attempt: rec.Attempt, FaultIndex: rec.FaultIndex, Node: rec.Node})
}

// injection carries the faults of one attempt out.
type injection struct {
	run     *run
	cell    *cellState
	attempt int
	began   time.Time // the attempt

	mu       sync.Mutex
	log      io.WriteCloser
	problems []evidence.Problem
}

// pendingFault is one fault of the test on its way.
type pendingFault struct {
	index int
	fault evidence.Fault
	due   time.Time // of the injection, then of the undo
	open  []openFault
}

func newInjection(r *run, c *cellState, dir *evidence.AttemptDir) (*injection, error) {
	in := &injection{run: r, cell: c, attempt: dir.Number(), began: dir.Began()}
	if len(c.test.Faults) == 0 {
		return in, nil
	}
	file, err := dir.File("faults.jsonl")
	if err != nil {
		return nil, fmt.Errorf("fault log of %s: %w", c.cell.ID, err)
	}
	in.log = file
	return in, nil
}

// carry injects and undoes the faults at their times, counted from now. It
// returns when all are done; when ctx ends before, it undoes what is in effect
// in reverse order and calls what was left out a problem.
func (in *injection) carry(ctx context.Context) {
	driven := time.Now()
	var waiting, active []*pendingFault
	for i, f := range in.cell.test.Faults {
		waiting = append(waiting, &pendingFault{index: i, fault: f, due: driven.Add(f.After.Std())})
	}
	byDue := func(a, b *pendingFault) int { return a.due.Compare(b.due) }
	slices.SortStableFunc(waiting, byDue)
	for len(waiting)+len(active) > 0 {
		var next *pendingFault
		if len(active) > 0 {
			next = slices.MinFunc(active, byDue)
		}
		inject := len(waiting) > 0 && (next == nil || waiting[0].due.Before(next.due))
		if inject {
			next = waiting[0]
		}
		if wait(ctx, time.Until(next.due)) != nil {
			break
		}
		if inject {
			waiting = waiting[1:]
			in.inject(ctx, next)
			next.due = time.Now().Add(next.fault.For.Std())
			active = append(active, next)
			continue
		}
		active = slices.DeleteFunc(active, func(p *pendingFault) bool { return p == next })
		in.undo(ctx, next)
	}
	for _, p := range slices.Backward(active) {
		if left := time.Until(p.due); left >= time.Second && len(p.open) > 0 {
			in.problem("fault %d (%s) was undone %s before its time: the check ended first", p.index, p.fault.Kind, left.Round(time.Second))
		}
		in.undo(ctx, p)
	}
	for _, p := range waiting {
		in.problem("fault %d (%s) was not injected: the check ended first", p.index, p.fault.Kind)
	}
}

// problem says that the cell's measurements do not mean what the test says.
// Its class is one that no measurement can mend.
func (in *injection) problem(format string, args ...any) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.problems = append(in.problems, evidence.Problem{Step: "fault", Class: evidence.ClassUnparsable, Detail: fmt.Sprintf(format, args...)})
}

// inject injects one fault on all its nodes at once. Every undo is in the
// journal before.
func (in *injection) inject(ctx context.Context, p *pendingFault) {
	kind, err := findFault(p.fault.Kind)
	var inject, undo []string
	if err == nil {
		inject, undo, err = kind.Commands(p.fault)
	}
	if err != nil {
		in.problem("fault %d was not injected: %v", p.index, err)
		return
	}
	for _, node := range p.fault.Nodes {
		record := evidence.Record{
			Event: evidence.EventFaultOpen, Cell: in.cell.cell.ID, Attempt: in.attempt,
			Fault: &p.fault, FaultIndex: p.index, Node: node, Undo: undo,
		}
		if err := in.run.append(record); err != nil {
			in.problem("fault %d (%s) was not injected: %v", p.index, p.fault.Kind, err)
			return
		}
		p.open = append(p.open, openFault{record: record})
	}
	step := fmt.Sprintf("%s/%d/inject-%d", in.cell.cell.ID, in.attempt, p.index)
	var group sync.WaitGroup
	for _, f := range p.open {
		group.Go(func() {
			node := f.record.Node
			in.event(p, node, "inject_start", "")
			_, exit := in.run.ask(ctx, node, step, injectBound, inject...)
			if exit.OK() {
				in.event(p, node, "injected", "")
				return
			}
			in.event(p, node, "error", fmt.Sprintf("inject %q: %s", inject, exitText(exit)))
			in.problem("fault %d (%s) was not injected on %s: %s", p.index, p.fault.Kind, node, exitText(exit))
			if away(exit.Class) && ctx.Err() == nil {
				in.run.nodes.mark(node, *exit.Problem(node, "fault"))
			}
		})
	}
	group.Wait()
}

// undo undoes one fault on all its nodes at once. What stays in effect keeps
// its node from being used.
func (in *injection) undo(ctx context.Context, p *pendingFault) {
	var group sync.WaitGroup
	for _, f := range p.open {
		group.Go(func() {
			node := f.record.Node
			if len(f.record.Undo) > 0 {
				in.event(p, node, "undo_start", "")
			}
			if err := in.run.undoFault(ctx, f); err != nil {
				f.cause = err.Error()
				in.run.faults.add(f)
				in.event(p, node, "error", f.cause)
				in.problem("fault %d (%s) is still in effect on %s: %s", p.index, p.fault.Kind, node, f.cause)
				return
			}
			if len(f.record.Undo) > 0 {
				in.event(p, node, "undone", "")
			}
		})
	}
	group.Wait()
}

func (in *injection) event(p *pendingFault, node, event, cause string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := time.Now()
	line := evidence.FaultEvent{Fault: p.index, Event: event, Time: in.run.o.Store.Time(now), At: now.Sub(in.began).Seconds(), Node: node, Error: cause}
	if err := writeLine(in.log, line); err != nil {
		in.run.broken(fmt.Errorf("fault log of %s: %w", in.cell.cell.ID, err))
	}
	if event == "undone" {
		return
	}
	progress := Progress{Kind: ProgressFault, Cell: in.cell.cell.ID, Attempt: in.attempt, Node: node, Fault: &p.fault, FaultEvent: event}
	if cause != "" {
		progress.Problem = &evidence.Problem{Node: node, Step: "fault", Class: evidence.ClassUnparsable, Detail: cause}
	}
	in.run.emit(progress)
}

// close ends the fault log and gives what went wrong.
func (in *injection) close() ([]evidence.Problem, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.log == nil {
		return in.problems, nil
	}
	if file, ok := in.log.(*os.File); ok {
		if err := file.Sync(); err != nil {
			return in.problems, fmt.Errorf("fault log of %s: %w", in.cell.cell.ID, err)
		}
	}
	return in.problems, in.log.Close()
}

func writeLine(w io.Writer, v any) error {
	line, err := evidence.EncodeLine(v)
	if err != nil {
		return err
	}
	_, err = w.Write(line)
	return err
}
