package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

const (
	// DefaultOutputLimit caps each stream of a task that names no limit.
	DefaultOutputLimit = 256 << 20
	// drainClock is how long output may come after the command has ended.
	drainClock = 2 * time.Second
	// closeClock is how long the streams may take to end once the link was
	// closed; on a frozen one they do not.
	closeClock = 500 * time.Millisecond
	// noiseLimit is how much may come before the script's first line.
	noiseLimit = 64 << 10
	// endSlack is how long, after TERM and KILL, the far side may take to say
	// that the command has ended.
	endSlack = 2 * time.Second
)

// A Link is one supervised command under way, as its transport shows it.
type Link struct {
	Stdin          io.WriteCloser // closing it ends the command's group
	Stdout, Stderr io.Reader
	// Ended gives one value: how the command ended, or what became of the
	// transport.
	Ended <-chan Ending
	// Close gives the transport up. It does not wait.
	Close func()
	// Go starts a goroutine that the executor waits for when it is closed: a
	// read on a dead transport may outlive the task.
	Go func(func())
}

// Ending is how a command ended: Code, or Signal, or a Problem of the
// transport (lost).
type Ending struct {
	Code    *int
	Signal  string // KILL, TERM, ...
	Problem *evidence.Problem
}

func (e Ending) status() string {
	switch {
	case e.Code != nil:
		return fmt.Sprintf("exited with %d", *e.Code)
	case e.Signal != "":
		return "ended by signal " + e.Signal
	}
	return "ended without a status"
}

// Unstarted is the Exit of a task of which nothing was run.
func Unstarted(t evidence.Task, class evidence.Class, detail string, start, end time.Time) evidence.Exit {
	return evidence.Exit{Argv: t.Argv, Class: class, Detail: detail, Start: start.UTC(), End: end.UTC()}
}

// Attend sees a supervised command through to its end: it sends standard
// input, streams both outputs to the writers, watches deadline, silence and
// ctx, and gives the result its class. The command's group has been told to
// end when Attend returns. The error is a writer's; Attend then has ended the
// command.
func Attend(ctx context.Context, t evidence.Task, s Supervised, become bool, l Link, stdout, stderr io.Writer) (evidence.Exit, error) {
	start := time.Now()
	limit := t.OutputLimit
	if limit <= 0 {
		limit = DefaultOutputLimit
	}
	a := &attendance{link: l, began: start, failed: make(chan struct{}), drained: make(chan struct{})}
	a.out = &stream{name: "stdout", from: l.Stdout, to: stdout, mark: []byte(s.StartLine()), limit: limit}
	a.err = &stream{name: "stderr", from: l.Stderr, to: stderr, mark: []byte(s.StartLine()), limit: limit}
	a.pump()
	l.Go(func() { a.feed(t.Stdin) })

	ending, cause := a.watch(ctx, t)
	held := false
	if ending.Code != nil || ending.Signal != "" {
		// The input stays open for so long: its end would end what still
		// holds the output, and nobody would know.
		held = !a.drain(drainClock) && cause.class == ""
	}
	a.endInput()
	l.Close()
	a.drain(closeClock)
	a.out.shut()
	a.err.shut()

	e := evidence.Exit{
		Argv:        t.Argv,
		Env:         s.EnvNames(),
		Code:        ending.Code,
		Signal:      ending.Signal,
		Start:       start.UTC(),
		End:         time.Now().UTC(),
		StdoutBytes: a.out.kept,
		StderrBytes: a.err.kept,
		Truncated:   a.out.total > a.out.kept || a.err.total > a.err.kept,
		Script:      SuperviseDigest,
		HeldOpen:    held,
	}
	if class, detail := a.unstarted(s, become, ending); class != "" && cause.class == "" {
		// The status was the script's or sudo's, not the command's.
		e.Class, e.Detail, e.Code, e.Signal, e.HeldOpen = class, detail, nil, "", false
	} else {
		e.Class, e.Detail = a.classify(ending, cause, held)
	}
	if err := errors.Join(a.out.failure, a.err.failure); err != nil {
		return e, err
	}
	return e, nil
}

// cause is why the runner ended the command; the zero value: it did not.
type cause struct {
	class  evidence.Class
	detail string
}

type attendance struct {
	link     Link
	out, err *stream
	began    time.Time
	last     atomic.Int64  // when output last came, since began
	failed   chan struct{} // a writer failed, or there was too much noise
	failOnce sync.Once
	drained  chan struct{} // both streams have ended
	inputEnd sync.Once
}

func (a *attendance) pump() {
	var both sync.WaitGroup
	for _, st := range []*stream{a.out, a.err} {
		both.Add(1)
		a.link.Go(func() {
			defer both.Done()
			st.run(func() { a.last.Store(int64(time.Since(a.began))) }, func() {
				a.failOnce.Do(func() { close(a.failed) })
			})
		})
	}
	a.link.Go(func() { both.Wait(); close(a.drained) })
}

// feed sends the command's standard input and leaves it open: its end would
// end the command.
func (a *attendance) feed(input []byte) {
	if len(input) > 0 {
		// A command that has gone does not read; how it ended says enough.
		_, _ = a.link.Stdin.Write(input)
	}
}

// endInput tells the far side to end the group. It does not wait: on a frozen
// transport the close itself may block.
func (a *attendance) endInput() {
	a.inputEnd.Do(func() { a.link.Go(func() { _ = a.link.Stdin.Close() }) })
}

// drain waits for both streams to end, for at most d.
func (a *attendance) drain(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-a.drained:
		return true
	case <-timer.C:
		return false
	}
}

// watch waits for the command to end, or ends it.
func (a *attendance) watch(ctx context.Context, t evidence.Task) (Ending, cause) {
	deadline := clock(t.Deadline)
	defer deadline.Stop()
	silence := clock(t.Silence)
	defer silence.Stop()
	for {
		var c cause
		select {
		case ending := <-a.link.Ended:
			return ending, cause{}
		case <-deadline.C:
			c = cause{evidence.ClassTimeout, fmt.Sprintf("ended at its deadline of %s", t.Deadline)}
		case <-silence.C:
			if quiet := time.Since(a.began) - time.Duration(a.last.Load()); quiet < t.Silence {
				silence.Reset(t.Silence - quiet)
				continue
			}
			c = cause{evidence.ClassSilent, fmt.Sprintf("no output for %s", t.Silence)}
		case <-a.failed:
			c = cause{evidence.ClassOutputCut, "the output could not be kept"}
		case <-ctx.Done():
			c = cause{evidence.ClassCut, "ended because the run was stopped"}
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				c = cause{evidence.ClassTimeout, "ended at the deadline of what it is a part of"}
			}
		}
		ending, confirmed := a.finish()
		if !confirmed {
			c.detail += "; the node did not confirm the end within " + (Grace + endSlack).String()
		}
		return ending, c
	}
}

// finish ends the command and waits until the far side says that it has
// ended.
func (a *attendance) finish() (Ending, bool) {
	a.endInput()
	timer := time.NewTimer(Grace + endSlack)
	defer timer.Stop()
	select {
	case ending := <-a.link.Ended:
		return ending, ending.Problem == nil
	case <-timer.C:
		return Ending{}, false
	}
}

// clock is a timer for d; one that never fires if d is zero.
func clock(d time.Duration) *time.Timer {
	if d > 0 {
		return time.NewTimer(d)
	}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}

// classify gives the result its class. What the runner did comes before what
// the transport did, and that before what the command did.
func (a *attendance) classify(ending Ending, c cause, held bool) (evidence.Class, string) {
	var notes []string
	class := evidence.ClassOK
	switch {
	case a.out.noisy || a.err.noisy:
		class = evidence.ClassNotRun
		notes = append(notes, fmt.Sprintf("the login shell printed %d KiB and the command had not begun", noiseLimit>>10))
	case c.class != "":
		class = c.class
		notes = append(notes, c.detail)
	case ending.Problem != nil:
		class = ending.Problem.Class
		notes = append(notes, ending.Problem.Detail)
	case ending.Code == nil && ending.Signal == "":
		class = evidence.ClassLost
		notes = append(notes, "the node ended the session without a status")
	case ending.Signal != "":
		class = evidence.ClassSignal
		notes = append(notes, ending.status())
	case held:
		class = evidence.ClassOutputHeldOpen
		notes = append(notes, fmt.Sprintf("%s, and %s later something that it started still held its output", ending.status(), drainClock))
	case a.out.total > a.out.kept || a.err.total > a.err.kept:
		class = evidence.ClassOutputCapped
	case *ending.Code != 0:
		class = evidence.ClassExit
		notes = append(notes, ending.status())
	}
	for _, st := range []*stream{a.out, a.err} {
		if st.total > st.kept && st.failure == nil {
			notes = append(notes, fmt.Sprintf("%s: %d of %d bytes were kept", st.name, st.kept, st.total))
		}
		if st.started && len(st.noise) > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d bytes came before the command and were left out: %s", st.name, len(st.noise), quoteHead(st.noise)))
		}
	}
	return class, strings.Join(notes, "; ")
}

// unstarted recognises an ending before the command, or instead of it.
func (a *attendance) unstarted(s Supervised, become bool, ending Ending) (evidence.Class, string) {
	if ending.Problem != nil {
		return "", ""
	}
	said := a.err.noise
	if a.err.started {
		said = a.err.tail
	}
	if reason, rest, ok := scriptSays(said, s); ok {
		class := evidence.Class(reason)
		switch class {
		case evidence.ClassToolMissing:
			return class, fmt.Sprintf("%s is not there as a program; PATH is %s", s.Argv[0], rest)
		case evidence.ClassArch:
			return class, fmt.Sprintf("%s is a program for another machine architecture (ELF e_machine %s)", s.Argv[0], rest)
		case evidence.ClassNodeDiskFull, evidence.ClassLost, evidence.ClassNotRun:
			return class, rest
		}
		if reason == "exec-failed" && (ending.Code == nil || *ending.Code == 126 || *ending.Code == 127) {
			return evidence.ClassToolMissing, fmt.Sprintf("%s could not be started: %s", s.Argv[0], quoteHead(beforeLastLine(said)))
		}
	}
	if a.err.started || a.err.noisy || a.out.noisy {
		return "", ""
	}
	status := ending.status()
	heard := a.err.noise
	if len(heard) == 0 {
		heard = a.out.noise
	}
	if become {
		return evidence.ClassSudoRefused, fmt.Sprintf("sudo -n did not start the command (%s): %s", status, quoteHead(heard))
	}
	return evidence.ClassNotRun, fmt.Sprintf("the node's login shell did not start the command (%s): %s", status, quoteHead(heard))
}

// scriptSays finds the script's own last line in text: its reason and what
// follows it. The start line is not one.
func scriptSays(text []byte, s Supervised) (reason, rest string, ok bool) {
	at := bytes.LastIndex(text, []byte(s.LinePrefix()))
	if at < 0 {
		return "", "", false
	}
	line, _, whole := strings.Cut(string(text[at+len(s.LinePrefix()):]), "\n")
	if !whole {
		return "", "", false
	}
	reason, rest, _ = strings.Cut(line, " ")
	return reason, rest, reason != "start"
}

func beforeLastLine(text []byte) []byte {
	text = bytes.TrimRight(text, "\n")
	if at := bytes.LastIndexByte(text, '\n'); at >= 0 {
		return text[:at]
	}
	return nil
}

// quoteHead is the first 200 bytes of text as one escaped line.
func quoteHead(text []byte) string {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return "nothing was printed"
	}
	more := ""
	if len(text) > 200 {
		text, more = text[:200], "…"
	}
	return fmt.Sprintf("%q%s", text, more)
}

// stream carries one output to its writer.
type stream struct {
	name  string
	from  io.Reader
	mark  []byte // the script's start line
	limit int64

	mu sync.Mutex // guards all below: shut may come while a read still blocks
	to io.Writer  // nil once shut

	started bool
	noisy   bool   // too much came before mark
	noise   []byte // what came before mark
	tail    []byte // the last bytes after it
	kept    int64
	total   int64
	failure error
}

const streamTail = 8 << 10

const streamBuffer = 32 << 10

var streamBuffers = sync.Pool{New: func() any { b := make([]byte, streamBuffer); return &b }}

// run reads until the stream ends or is shut. It begins with a small buffer:
// a lease reads for the whole run and hears nothing, on every node.
func (st *stream) run(heard, fail func()) {
	buffer := make([]byte, 2<<10)
	for {
		n, err := st.from.Read(buffer)
		if n > 0 {
			heard()
			if !st.take(buffer[:n]) {
				fail()
			}
		}
		if err != nil {
			return
		}
		if n == len(buffer) && n < streamBuffer {
			large := streamBuffers.Get().(*[]byte)
			defer streamBuffers.Put(large)
			buffer = *large
		}
	}
}

// take keeps p; false means that the task cannot go on.
func (st *stream) take(p []byte) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.to == nil {
		return true
	}
	if !st.started {
		st.noise = append(st.noise, p...)
		at := bytes.Index(st.noise, st.mark)
		if at < 0 {
			st.noisy = len(st.noise) > noiseLimit
			if st.noisy {
				st.to = nil
			}
			return !st.noisy
		}
		st.started = true
		p = bytes.Clone(st.noise[at+len(st.mark):])
		st.noise = st.noise[:at]
	}
	st.total += int64(len(p))
	if len(p) >= streamTail {
		st.tail = append(st.tail[:0], p[len(p)-streamTail:]...)
	} else {
		if over := len(st.tail) + len(p) - streamTail; over > 0 {
			st.tail = append(st.tail[:0], st.tail[over:]...)
		}
		st.tail = append(st.tail, p...)
	}
	if room := st.limit - st.kept; int64(len(p)) > room {
		p = p[:max(room, 0)]
	}
	if len(p) == 0 {
		return true
	}
	n, err := st.to.Write(p)
	st.kept += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		st.failure = fmt.Errorf("write %s: %w", st.name, err)
		st.to = nil
		return false
	}
	return true
}

// shut lets nothing more through.
func (st *stream) shut() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.to = nil
}
