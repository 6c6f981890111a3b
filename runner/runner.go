package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
)

// Options is everything that a run needs from its caller.
type Options struct {
	Store    *evidence.Store
	Executor Executor
	Reach    json.RawMessage // the executor's configuration, without secrets, for the inventory
	Checks   checks.Catalog
	// Judge decides gates and retries. It is pure.
	Judge func(*evidence.Plan, []evidence.CellResult) evidence.Verdict
	// Stop, once closed, lets the running attempts finish and starts no other.
	Stop <-chan struct{}
	// Progress is called from one goroutine. A slow one delays the run.
	Progress func(Progress)
	// Timeout bounds the whole run; zero means no bound.
	Timeout time.Duration
	// RetryClasses are the classes whose cells a resumed run tries again: of
	// the last attempt's problems, or of the skip.
	RetryClasses []evidence.Class
	// Allow names the hazards that may be met. A fault of a test that names
	// no hazard is allowed by the fault's kind.
	Allow []string
	// MinFree is the free disk space, in bytes, without which the run does
	// not begin; zero means DefaultMinFree.
	MinFree uint64
}

// DefaultMinFree is the least free space of a run directory: 256 MiB.
const DefaultMinFree = 256 << 20

var (
	// ErrStopped says that the run was stopped before its end: by Stop, by
	// its context or by its timeout. It can be resumed.
	ErrStopped = errors.New("the run was stopped and can be resumed")
	// ErrHazard is what a *HazardError wraps.
	ErrHazard = errors.New("hazard not allowed")
)

// A HazardError says that a test may do something to the rack that nobody
// allowed. Nothing was sent to any node.
type HazardError struct {
	Test   string
	Hazard string // the name to allow
	Faults []string
}

// Error names test, hazard and remedy.
func (e *HazardError) Error() string {
	because := "has the hazard " + e.Hazard
	if len(e.Faults) > 0 {
		because += " (it injects " + strings.Join(e.Faults, ", ") + ")"
	}
	return fmt.Sprintf("test %s %s: allow it with --allow %s", e.Test, because, e.Hazard)
}

// Unwrap makes errors.Is(err, ErrHazard) true.
func (e *HazardError) Unwrap() error { return ErrHazard }

// An OpenFaultError says that faults of this run are still in effect: their
// undo did not succeed. Resuming the run, or Undo, tries again.
type OpenFaultError struct {
	Faults []string // "cell: kind on node: cause", in the order of their injection
}

// Error names every fault that is still open.
func (e *OpenFaultError) Error() string {
	return fmt.Sprintf("%d faults are not undone: %s", len(e.Faults), strings.Join(e.Faults, "; "))
}

// run is one process's work on one run directory.
type run struct {
	o       Options
	plan    *evidence.Plan
	tests   map[string]*evidence.Test
	fleet   map[string]bool
	cellsOf map[string]int // by test
	own     *ownSubjects
	cells   []*cellState
	history history
	nodes   *nodeBook
	leases  *leases
	faults  *faultBook
	pending *phaseCount
	events  chan<- Progress
	fail    context.CancelCauseFunc // ends the run because of our own fault
	// fault is the first fault of our own. The context's cause does not do:
	// it may be an earlier stop.
	fault atomic.Pointer[runError]
}

// Run executes what the store's journal does not prove complete, and returns
// nil when all of it is, whatever the verdict. It does not seal.
//
// On a store that was reopened it first undoes faults that were left open, on
// nodes that are still the machines that the journal knows, then compares the
// others, and goes on. A cell is complete when it has an attempt that was not
// cut and either passed, was measured where no threshold judges it alone, or
// used up its retries. A cell that was skipped because of its node is tried
// again unless the run had been closed since; then only RetryClasses brings it
// back. Cells that a gate kept from running are run when a later decision of
// that gate, after retried cells, allows them.
//
// Errors: ErrStopped (resumable), *evidence.JournalFull inside (resumable
// once there is space), *HazardError, *IdentityError, *SharedMachineError and
// *DiskError (nothing was run), *OpenFaultError (complete, but faults are
// still in effect).
func Run(ctx context.Context, o Options) error {
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

	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("the timeout of %s passed", o.Timeout))
		defer cancel()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	r, err := newRun(o, events, cancel)
	if err != nil {
		return err
	}
	return r.finish(ctx, r.execute(ctx))
}

func newRun(o Options, events chan<- Progress, fail context.CancelCauseFunc) (*run, error) {
	if o.Store == nil || o.Executor == nil || o.Judge == nil {
		return nil, errors.New("run: store, executor and judge are required")
	}
	plan := o.Store.Plan()
	r := &run{
		o: o, plan: plan, events: events, fail: fail,
		tests: make(map[string]*evidence.Test, len(plan.Tests)),
		fleet: make(map[string]bool, len(plan.Fleet.Nodes)), cellsOf: make(map[string]int),
	}
	r.own = newOwnSubjects(r.fleet)
	for i := range plan.Tests {
		r.tests[plan.Tests[i].Name] = &plan.Tests[i]
	}
	for _, n := range plan.Fleet.Nodes {
		r.fleet[n.Name] = true
	}
	for _, c := range plan.Cells {
		r.cellsOf[c.Test]++
	}
	if err := r.checkVersions(); err != nil {
		return nil, err
	}
	if err := r.checkPlan(); err != nil {
		return nil, err
	}
	records := o.Store.Records()
	r.history = readHistory(records)
	r.nodes = newNodeBook(r.history.identities)
	r.faults = &faultBook{open: r.history.openFaults}
	r.leases = newLeases()
	r.pending = newPhaseCount()
	cells, err := r.loadCells(records)
	if err != nil {
		return nil, err
	}
	r.cells = cells
	return r, nil
}

// checkVersions refuses to measure with checks other than the plan's.
func (r *run) checkVersions() error {
	for i := range r.plan.Tests {
		test := &r.plan.Tests[i]
		check, ok := r.o.Checks.Find(test.Check)
		if !ok {
			return fmt.Errorf("test %s: this build has no check %q: run the plan with the build that made it", test.Name, test.Check)
		}
		if have := check.Spec().Version; have != test.CheckVersion {
			return fmt.Errorf("test %s: check %s has version %d here and %d in the plan: run the plan with the build that made it",
				test.Name, test.Check, have, test.CheckVersion)
		}
	}
	return nil
}

// checkPlan refuses a plan that leaves a deadline or a capture's command to
// whoever runs it: everything that decides is in the plan.
func (r *run) checkPlan() error {
	for _, test := range r.plan.Tests {
		if test.Deadline <= 0 {
			return fmt.Errorf("plan: test %s has no deadline: make the plan again", test.Name)
		}
	}
	if len(r.plan.Captures.Commands) > 0 && r.plan.Captures.Deadline <= 0 {
		return errors.New("plan: its captures have no deadline: make the plan again")
	}
	if slices.ContainsFunc(r.plan.Captures.Commands, func(argv []string) bool { return len(argv) == 0 }) {
		return errors.New("plan: one of its captures has no command: make the plan again")
	}
	return nil
}

// execute does the run's work in order. It returns early, with nil, when the
// run is stopped; finish tells that from completion.
func (r *run) execute(ctx context.Context) error {
	if r.complete() && len(r.faults.list()) == 0 {
		return nil
	}
	if err := r.checkHazards(); err != nil {
		return err
	}
	if err := r.checkDisk(); err != nil {
		return err
	}
	defer r.leases.release()
	r.undoLeftovers(ctx)
	if err := r.identifyAll(ctx); err != nil {
		return err
	}
	r.leaseAll(ctx)
	if err := r.runPhases(ctx); err != nil {
		return &runError{err}
	}
	if ctx.Err() == nil && !r.stopped() {
		r.undoLeftovers(ctx)
	}
	return nil
}

// finish turns the end of execute into Run's error and records a stop.
func (r *run) finish(ctx context.Context, err error) error {
	own := r.fault.Load()
	if own == nil {
		errors.As(err, &own)
	}
	if err == nil && own == nil && r.complete() {
		return r.faults.stillOpen()
	}
	cause := context.Cause(ctx)
	if own != nil {
		stopped := fmt.Errorf("run %s: stopped, resumable once this is mended: %w", r.o.Store.Run(), own.err)
		if full := (*evidence.JournalFull)(nil); errors.As(own.err, &full) {
			return stopped
		}
		if stop := r.recordStop(own.Error()); !errors.Is(stop, ErrStopped) {
			return errors.Join(stopped, stop)
		}
		return stopped
	}
	switch {
	case err != nil:
		return err
	case errors.Is(cause, context.Canceled):
		return r.recordStop("cancelled")
	case cause != nil:
		return r.recordStop(cause.Error())
	}
	return r.recordStop("stop requested")
}

// recordStop journals why the run stopped, and gives Run's error.
func (r *run) recordStop(reason string) error {
	r.emit(Progress{Kind: ProgressStop, Reason: reason})
	if _, err := r.o.Store.Append(evidence.Record{Event: evidence.EventStop, Reason: reason}); err != nil {
		return fmt.Errorf("run %s: record the stop: %w", r.o.Store.Run(), err)
	}
	return fmt.Errorf("%w: %s", ErrStopped, reason)
}

// stopped reports whether a soft stop was asked for.
func (r *run) stopped() bool {
	select {
	case <-r.o.Stop:
		return true
	default:
		return false
	}
}

// runError is a fault of our own machine, such as a full disk, that ends the
// run. It is told apart from a cancellation by its type.
type runError struct{ err error }

func (e *runError) Error() string { return e.err.Error() }
func (e *runError) Unwrap() error { return e.err }

// broken ends the run because our own machine failed: what runs is cancelled.
func (r *run) broken(err error) {
	fault := &runError{err}
	r.fault.CompareAndSwap(nil, fault)
	r.fail(fault)
}

// append writes a journal record; a journal that cannot be written ends the
// run.
func (r *run) append(record evidence.Record) error {
	if _, err := r.o.Store.Append(record); err != nil {
		err = fmt.Errorf("journal %s: %w", record.Event, err)
		r.broken(err)
		return err
	}
	return nil
}

func (r *run) note(node, format string, args ...any) error {
	return r.append(evidence.Record{Event: evidence.EventNote, Node: node, Reason: fmt.Sprintf(format, args...)})
}
