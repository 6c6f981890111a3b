package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
)

// errAttemptOver is what a check hears that goes on after its attempt ended.
var errAttemptOver = errors.New("the attempt is over")

// bench is what one attempt's Drive may touch.
type bench struct {
	run    *run
	cell   *cellState
	dir    *evidence.AttemptDir
	began  time.Time // with the monotonic clock
	until  time.Time // the test's deadline
	faults <-chan struct{}
	ended  <-chan struct{} // the attempt's context ended

	mu     sync.Mutex
	over   bool
	inside int
	empty  chan struct{} // closed when over and nobody is inside
	steps  []*step
	lost   []string // nodes of which a step was lost
	// cleanups are what Cleanup was asked for, in that order.
	cleanups []cleanup
}

type cleanup struct {
	step    string
	command checks.Command
}

// cleanupBound is how long one cleanup may take.
const cleanupBound = 30 * time.Second

var _ checks.Bench = (*bench)(nil)

func (b *bench) Nodes() []string         { return append([]string(nil), b.cell.nodes...) }
func (b *bench) Test() evidence.Test     { return *b.cell.test }
func (b *bench) Fleet() evidence.Fleet   { return b.run.plan.Fleet }
func (b *bench) Faults() <-chan struct{} { return b.faults }

func (b *bench) Params(into any) error {
	if err := json.Unmarshal(b.cell.test.Params, into); err != nil {
		return fmt.Errorf("test %s: parameters: %w", b.cell.test.Name, err)
	}
	return nil
}

// enter joins ctx with the attempt's end, so that a check that passes another
// context cannot outlive its attempt.
func (b *bench) enter(ctx context.Context) (context.Context, func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return nil, nil, errAttemptOver
	}
	b.inside++
	ctx, cancel := context.WithDeadline(ctx, b.until)
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-b.ended:
			cancel()
		case <-done:
		}
	})
	return ctx, func() {
		close(done)
		watcher.Wait()
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.inside--
		if b.over && b.inside == 0 {
			close(b.empty)
		}
	}, nil
}

// close ends the bench. Steps that still run after grace, although their
// context has ended, are closed over their heads: what they write later goes
// nowhere. It reports those steps.
func (b *bench) close(grace time.Duration) []*step {
	b.mu.Lock()
	b.over = true
	idle := b.inside == 0
	b.mu.Unlock()
	if !idle {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-b.empty:
		case <-timer.C:
		}
	}
	// Only now: who was inside may have begun a step meanwhile.
	b.mu.Lock()
	steps := b.steps
	b.mu.Unlock()
	var stuck []*step
	for _, s := range steps {
		now := time.Now()
		err := s.close(evidence.Exit{Argv: s.argv, Class: evidence.ClassTimeout, Detail: "the executor did not end the command", Start: s.start, End: now})
		switch {
		case errors.Is(err, errAttemptOver):
		case err != nil:
			b.run.broken(fmt.Errorf("raw output of %s on %s: %w", s.name, s.node, err))
		default:
			stuck = append(stuck, s)
		}
	}
	return stuck
}

// step is one command's files. It takes no more bytes once it is closed.
type step struct {
	name, node string
	argv       []string
	start      time.Time

	mu     sync.Mutex
	files  *evidence.StepFiles
	closed bool
	failed error // of the first write that failed
}

func (b *bench) step(name, node string, argv []string) (*step, error) {
	files, err := b.dir.Step(name, node)
	if err != nil {
		return nil, fmt.Errorf("step %s on %s: %w", name, node, err)
	}
	s := &step{name: name, node: node, argv: argv, start: time.Now(), files: files}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps = append(b.steps, s)
	return s, nil
}

// close writes exit.json; errAttemptOver says that it had been closed.
func (s *step) close(exit evidence.Exit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errAttemptOver
	}
	s.closed = true
	return s.files.Close(exit)
}

func (s *step) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

type stepStream struct {
	step *step
	to   io.Writer
}

func (w stepStream) Write(p []byte) (int, error) {
	w.step.mu.Lock()
	defer w.step.mu.Unlock()
	if w.step.closed {
		return 0, errAttemptOver
	}
	n, err := w.to.Write(p)
	if err != nil && w.step.failed == nil {
		w.step.failed = err
	}
	return n, err
}

func (b *bench) mark(name string) string {
	return b.run.o.Store.Run() + "/" + b.cell.cell.ID + "/" + strconv.Itoa(b.dir.Number()) + "/" + name
}

// task is c as a task of step name, to end by until.
func (b *bench) task(name string, c checks.Command, until time.Time) (evidence.Task, error) {
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return evidence.Task{}, fmt.Errorf("step %s on %s: no command", name, c.Node)
	case !b.run.fleet[c.Node]:
		return evidence.Task{}, fmt.Errorf("step %s: node %q is not in the fleet", name, c.Node)
	}
	deadline := time.Until(until)
	if c.Deadline > 0 {
		deadline = min(deadline, c.Deadline)
	}
	silence := b.cell.test.Silence.Std()
	if c.Silence > 0 {
		silence = c.Silence
	}
	return evidence.Task{
		Mark: b.mark(name), Node: c.Node, Argv: c.Argv, Env: environment(c.Env), Stdin: c.Stdin,
		Deadline: deadline, Silence: silence,
	}, nil
}

// Exec implements checks.Bench.
func (b *bench) Exec(ctx context.Context, name string, c checks.Command) (evidence.Exit, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return evidence.Exit{}, err
	}
	defer leave()
	if ctx.Err() != nil {
		return evidence.Exit{}, ctx.Err()
	}
	task, err := b.task(name, c, b.until)
	if err != nil {
		return evidence.Exit{}, err
	}
	s, err := b.step(name, c.Node, task.Argv)
	if err != nil {
		return evidence.Exit{}, err
	}
	return b.exec(ctx, s, task, b.until)
}

// exec runs task as step s.
func (b *bench) exec(ctx context.Context, s *step, task evidence.Task, until time.Time) (evidence.Exit, error) {
	exit, execErr := b.run.o.Executor.Exec(ctx, task, stepStream{s, s.files.Stdout()}, stepStream{s, s.files.Stderr()})
	exit = filled(exit, task, s.start, execErr)
	if exit.Class == evidence.ClassCut && !time.Now().Before(until) {
		exit.Class = evidence.ClassTimeout // the deadline and its context race inside an executor
	}
	if away(exit.Class) && ctx.Err() == nil {
		b.wentAway(s.node, s.name, exit)
	}
	if err := b.keep(s, exit, execErr); err != nil {
		return exit, err
	}
	if exit.Class != evidence.ClassOK && !exit.Class.ProvedByMeasure() {
		return exit, exit.Problem(s.node, s.name)
	}
	return exit, nil
}

// Cleanup implements checks.Bench.
func (b *bench) Cleanup(name string, c checks.Command) error {
	if _, err := b.task(name, c, b.until); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return errAttemptOver
	}
	b.cleanups = append(b.cleanups, cleanup{name, c})
	return nil
}

// cleanUp runs the cleanups of the closed bench, whatever became of ctx: on
// all nodes at once, and on each the last one first. It gives a problem for
// each that did not succeed. Its class is one beside which measurements
// stand: that something was left behind does not make them wrong.
func (b *bench) cleanUp(ctx context.Context) []evidence.Problem {
	var nodes []string
	problems := make(map[string]*[]evidence.Problem)
	for _, c := range b.cleanups {
		if problems[c.command.Node] == nil {
			nodes = append(nodes, c.command.Node)
			problems[c.command.Node] = new([]evidence.Problem)
		}
	}
	eachNode(nodes, func(node string) {
		for _, c := range slices.Backward(b.cleanups) {
			if c.command.Node != node {
				continue
			}
			if p := b.cleanOne(context.WithoutCancel(ctx), c); p != nil {
				*problems[node] = append(*problems[node], *p)
			}
		}
	})
	var all []evidence.Problem
	for _, node := range nodes {
		all = append(all, *problems[node]...)
	}
	return all
}

func (b *bench) cleanOne(ctx context.Context, c cleanup) *evidence.Problem {
	until := time.Now().Add(cleanupBound)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	node := c.command.Node
	task, err := b.task(c.step, c.command, until)
	if err != nil {
		return &evidence.Problem{Node: node, Step: c.step, Class: evidence.ClassUnparsable, Detail: err.Error()}
	}
	task.Silence = 0 // what removes files says nothing
	s, err := b.step(c.step, node, task.Argv)
	if err != nil {
		return &evidence.Problem{Node: node, Step: c.step, Class: evidence.ClassUnparsable, Detail: err.Error()}
	}
	ends := make(chan evidence.Exit, 1)
	result := safeCall(ctx, driveGrace, func(ctx context.Context) error {
		exit, err := b.exec(ctx, s, task, until)
		ends <- exit
		return err
	})
	exit := evidence.Exit{Argv: s.argv, Class: evidence.ClassTimeout, Detail: "the executor did not end the command", Start: s.start}
	switch {
	case result.panicked != "":
		exit.Class, exit.Detail = evidence.ClassPanic, result.panicked
		fallthrough
	case result.abandoned:
		exit.End = time.Now()
		_ = b.keep(s, exit, nil) // a disk that fails ends the run
	default:
		exit = <-ends
	}
	if exit.OK() {
		return nil
	}
	return &evidence.Problem{Node: node, Step: c.step, Class: evidence.ClassExit,
		Detail: fmt.Sprintf("not cleaned up: %q: %s", c.command.Argv, exitText(exit))}
}

// filled completes what an executor may leave out.
func filled(exit evidence.Exit, task evidence.Task, start time.Time, err error) evidence.Exit {
	if exit.Class == "" {
		exit.Class = evidence.ClassOutputCut
	}
	if err != nil && exit.Detail == "" {
		exit.Detail = err.Error()
	}
	if len(exit.Argv) == 0 {
		exit.Argv = task.Argv
	}
	if exit.Start.IsZero() {
		exit.Start = start
	}
	if exit.End.IsZero() {
		exit.End = time.Now()
	}
	return exit
}

// keep closes a step's files. Raw output that our own disk does not take ends
// the run.
func (b *bench) keep(s *step, exit evidence.Exit, execErr error) error {
	err := s.failure()
	if closeErr := s.close(exit); err == nil {
		err = closeErr
	}
	if errors.Is(err, errAttemptOver) {
		return errAttemptOver
	}
	if err == nil {
		err = execErr
	}
	if err != nil {
		err = fmt.Errorf("raw output of %s on %s: %w", s.name, s.node, err)
		b.run.broken(err)
	}
	return err
}

func (b *bench) wentAway(node, name string, exit evidence.Exit) {
	b.run.nodes.mark(node, *exit.Problem(node, name))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost = append(b.lost, node)
}

func (b *bench) lostNodes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lost)
}

// ExecAll implements checks.Bench.
func (b *bench) ExecAll(ctx context.Context, name string, nodes []string, command func(node string) checks.Command) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		c := command(node)
		c.Node = node
		group.Go(func() { _, errs[i] = b.Exec(ctx, name, c) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// Wait implements checks.Bench.
func (b *bench) Wait(ctx context.Context, what string, every time.Duration, until func(context.Context) (bool, error)) error {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	defer leave()
	if every <= 0 {
		every = time.Second
	}
	for {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
		done, err := until(ctx)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if done {
			return nil
		}
		if wait(ctx, every) != nil {
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}
