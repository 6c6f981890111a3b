// Package executortest is the conformance suite that every executor passes.
package executortest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
)

// Harness is an executor under test.
type Harness struct {
	// Open gives a new executor; the suite closes it.
	Open     func(t *testing.T) runner.Executor
	Node     string
	Commands Commands
}

// Run runs the whole suite. It fails if goroutines or file descriptors are
// left when everything has been closed.
func Run(t *testing.T, h Harness) {
	CheckLeaks(t)
	s := &suite{h: h}
	for _, c := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"exit codes", exitCodes},
		{"signal", signal},
		{"streams", streams},
		{"odd bytes", oddBytes},
		{"big output", bigOutput},
		{"stdin", stdin},
		{"quoting", quoting},
		{"environment", environment},
		{"deadline", deadline},
		{"deadline of a command that ignores TERM", deadlineIgnored},
		{"deadline of the context", contextDeadline},
		{"deadline of what has left the group", deadlineOfRunaways},
		{"cancel", cancel},
		{"cancelled before the start", cancelledBefore},
		{"silence", silence},
		{"tool missing", toolMissing},
		{"tool that cannot start", toolBroken},
		{"wrong architecture", arch},
		{"no such words", unwordable},
		{"held open", heldOpen},
		{"left behind", leftBehind},
		{"parallel", parallel},
		{"capped", capped},
		{"failing writer", failingWriter},
		{"close", closing},
		{"identify", identify},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

type suite struct{ h Harness }

// result is all that came of one Exec.
type result struct {
	evidence.Exit
	out, err string
	took     time.Duration
}

func (s *suite) open(t *testing.T) runner.Executor {
	t.Helper()
	x := s.h.Open(t)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("close the executor: %v", err)
		}
	})
	return x
}

func (s *suite) task(argv ...string) evidence.Task {
	return evidence.Task{Node: s.h.Node, Argv: argv, Deadline: time.Minute}
}

// that is the task of a command with a behaviour.
func (s *suite) that(t *testing.T, b Behaviour, args ...string) evidence.Task {
	t.Helper()
	return s.task(s.h.Commands.Argv(t, b, args...)...)
}

func do(ctx context.Context, t *testing.T, x runner.Executor, task evidence.Task) result {
	t.Helper()
	var out, err bytes.Buffer
	start := time.Now()
	exit, execErr := x.Exec(ctx, task, &out, &err)
	r := result{Exit: exit, out: out.String(), err: err.String(), took: time.Since(start)}
	if execErr != nil {
		t.Fatalf("Exec %q: %v", task.Argv, execErr)
	}
	if exit.StdoutBytes != int64(out.Len()) || exit.StderrBytes != int64(err.Len()) {
		t.Errorf("Exec %q: counts %d and %d bytes, wrote %d and %d", task.Argv, exit.StdoutBytes, exit.StderrBytes, out.Len(), err.Len())
	}
	if !slices.Equal(exit.Argv, task.Argv) {
		t.Errorf("Exit.Argv is %q, want %q", exit.Argv, task.Argv)
	}
	if exit.End.Before(exit.Start) || exit.Start.IsZero() {
		t.Errorf("Exec %q: from %s to %s", task.Argv, exit.Start, exit.End)
	}
	return r
}

func (s *suite) do(t *testing.T, task evidence.Task) result {
	t.Helper()
	return do(t.Context(), t, s.open(t), task)
}

// want checks class and code; code < 0: there must be none.
func (r result) want(t *testing.T, class evidence.Class, code int) {
	t.Helper()
	if r.Class != class {
		t.Errorf("class is %s (%s), want %s; stderr %q", r.Class, r.Detail, class, r.err)
	}
	switch {
	case code < 0 && r.Code != nil:
		t.Errorf("code is %d, want none", *r.Code)
	case code >= 0 && (r.Code == nil || *r.Code != code):
		t.Errorf("code is %v, want %d", r.Code, code)
	}
}

func exitCodes(t *testing.T, s *suite) {
	x := s.open(t)
	for _, code := range []int{0, 1, 97, 126, 127, 128, 137, 255} {
		class := evidence.ClassExit
		if code == 0 {
			class = evidence.ClassOK
		}
		r := do(t.Context(), t, x, s.that(t, Exits, strconv.Itoa(code)))
		r.want(t, class, code)
		if r.OK() != (code == 0) {
			t.Errorf("exit %d: OK is %t", code, r.OK())
		}
		if r.Script != runner.SuperviseDigest {
			t.Errorf("script is %s, want %s", r.Script, runner.SuperviseDigest)
		}
	}
}

func signal(t *testing.T, s *suite) {
	for _, name := range []string{"KILL", "TERM", "SEGV", "USR1"} {
		r := s.do(t, s.that(t, Dies, name))
		r.want(t, evidence.ClassSignal, -1)
		if r.Signal != name {
			t.Errorf("signal is %q, want %q", r.Signal, name)
		}
	}
}

func streams(t *testing.T, s *suite) {
	r := s.do(t, s.that(t, PrintsLines))
	r.want(t, evidence.ClassOK, 0)
	var out, err strings.Builder
	for i := range 500 {
		fmt.Fprintf(&out, "out %d\n", i)
		fmt.Fprintf(&err, "err %d\n", i)
	}
	if want := out.String() + "no newline"; r.out != want {
		t.Errorf("stdout has %d bytes, want %d", len(r.out), len(want))
	}
	if want := err.String() + "none here"; r.err != want {
		t.Errorf("stderr has %d bytes, want %d", len(r.err), len(want))
	}
	if r.Detail != "" || r.Truncated || r.HeldOpen {
		t.Errorf("a clean end has detail %q, truncated %t, held open %t", r.Detail, r.Truncated, r.HeldOpen)
	}
}

func oddBytes(t *testing.T, s *suite) {
	odd := []byte("\x00\x01\x1b[31m\xff\xfe\xc3\x28 rackproof 0123456789abcdef start\r\n\r\x7f")
	odd = append(odd, bytes.Repeat([]byte("x"), 1<<20)...)
	task := s.that(t, Copies)
	task.Stdin = odd
	r := s.do(t, task)
	r.want(t, evidence.ClassOK, 0)
	if r.out != string(odd) {
		t.Errorf("stdout has %d bytes and differs from the %d of stdin", len(r.out), len(odd))
	}
}

// bigOutput hashes 32 MiB that the node hashes too.
func bigOutput(t *testing.T, s *suite) {
	x := s.open(t)
	hash := sha256.New()
	var side bytes.Buffer
	task := s.that(t, Floods)
	exit, err := x.Exec(t.Context(), task, hash, &side)
	if err != nil {
		t.Fatal(err)
	}
	if exit.Class != evidence.ClassOK || exit.StdoutBytes != 32<<20 || exit.StderrBytes != 32<<20 {
		t.Errorf("class %s (%s), %d and %d bytes", exit.Class, exit.Detail, exit.StdoutBytes, exit.StderrBytes)
	}
	want := sha256.Sum256(bytes.Repeat([]byte("b"), 32<<20))
	if got := hash.Sum(nil); !bytes.Equal(got, want[:]) {
		t.Errorf("stdout hashes to %s, want %s", hex.EncodeToString(got), hex.EncodeToString(want[:]))
	}
	if side.Len() != 32<<20 || bytes.Trim(side.Bytes(), "a") != nil && len(bytes.Trim(side.Bytes(), "a")) > 0 {
		t.Errorf("stderr has %d bytes, want 32 MiB of \"a\"", side.Len())
	}
}

func stdin(t *testing.T, s *suite) {
	x := s.open(t)
	if r := do(t.Context(), t, x, s.that(t, Counts)); strings.TrimSpace(r.out) != "0" {
		t.Errorf("without standard input it counts %q bytes", r.out)
	}
	for _, size := range []int{1, 4096, 65537, 3 << 20} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i * 7)
		}
		task := s.that(t, Hashes)
		task.Stdin = data
		r := do(t.Context(), t, x, task)
		r.want(t, evidence.ClassOK, 0)
		sum := sha256.Sum256(data)
		if want := hex.EncodeToString(sum[:]); !strings.HasPrefix(r.out, want) {
			t.Errorf("%d bytes of standard input hash to %q, want %s", size, r.out, want)
		}
	}
	// A command that does not read must not block the sender.
	task := s.that(t, DoesNothing)
	task.Stdin = make([]byte, 4<<20)
	do(t.Context(), t, x, task).want(t, evidence.ClassOK, 0)
}

func quoting(t *testing.T, s *suite) {
	words := []string{
		"", " ", "a b", "it's", `"double"`, "new\nline", "\n", "$HOME", "${x}", "`id`", "$(id)", "*", "?", "[a-z]", "~", "!", "!!", "a!b",
		`back\slash`, `\`, `\\`, `\n`, `'`, `''`, "-n", "--", "-", "a=b", "#c", "a;b", "a&b", "a|b", "<x", ">x", "\t", "%s", "%%", "ü", "\xff\xfe", "{a,b}", "^x",
	}
	r := s.do(t, s.that(t, PrintsWords, words...))
	r.want(t, evidence.ClassOK, 0)
	var want strings.Builder
	for _, word := range words {
		want.WriteString(hex.EncodeToString([]byte(word)) + "\n")
	}
	if r.out != want.String() {
		got, expect := strings.Split(r.out, "\n"), strings.Split(want.String(), "\n")
		for i := range expect {
			if i >= len(got) || got[i] != expect[i] {
				t.Fatalf("word %d: want %q as %s, got %q", i, words[i], expect[i], got[min(i, len(got)-1)])
			}
		}
		t.Fatalf("got %d lines, want %d", len(got), len(expect))
	}
}

func environment(t *testing.T, s *suite) {
	task := s.that(t, PrintsEnvironment, "LC_ALL", "TERM", "NO_COLOR", "TZ", "RACKPROOF_MARK", "ODD", "ODD2", "rp_n")
	task.Mark = "r/c/1/step"
	task.Env = map[string]string{"ODD": "a 'b' $c !\\", "TERM": "xterm", "LC_ALL": "de_DE.UTF-8", "ODD2": "mine"}
	r := s.do(t, task)
	r.want(t, evidence.ClassOK, 0)
	if want := "C|dumb|1|UTC|r/c/1/step|a 'b' $c !\\|mine|\nno terminal\n"; r.out != want {
		t.Errorf("environment is %q, want %q", r.out, want)
	}
	if want := []string{"COLUMNS", "LANG", "LC_ALL", "NO_COLOR", "ODD", "ODD2", "RACKPROOF_MARK", "RACKPROOF_TASK", "TERM", "TZ"}; !slices.Equal(r.Env, want) {
		t.Errorf("Exit.Env is %q, want %q", r.Env, want)
	}
}

// mark is a new mark and a check that nothing bears it any longer within d of
// now.
func (s *suite) mark(t *testing.T, task *evidence.Task) (gone func(d time.Duration)) {
	t.Helper()
	task.Mark = fmt.Sprintf("executortest-%d-%d", os.Getpid(), time.Now().UnixNano())
	return func(d time.Duration) {
		t.Helper()
		if !Eventually(d, func() bool { return len(s.h.Commands.Left(task.Mark)) == 0 }) {
			t.Errorf("%s later these are left: %q", d, s.h.Commands.Left(task.Mark))
		}
		// A supervisor stays for the grace where the group still has members,
		// be they zombies that init is slow to reap.
		if !Eventually(runner.Grace+3*time.Second, func() bool { return len(s.h.Commands.Watching(task.Mark)) == 0 }) {
			t.Errorf("these still supervise: %q", s.h.Commands.Watching(task.Mark))
		}
	}
}

func deadline(t *testing.T, s *suite) {
	task := s.that(t, FillsGroup)
	task.Deadline = time.Second
	gone := s.mark(t, &task)
	r := s.do(t, task)
	if r.Class != evidence.ClassTimeout || r.out != "up\n" {
		t.Errorf("class %s (%s), stdout %q", r.Class, r.Detail, r.out)
	}
	if r.Signal != "TERM" {
		t.Errorf("signal is %q, want TERM", r.Signal)
	}
	if r.took < time.Second || r.took > 3*time.Second {
		t.Errorf("took %s for a deadline of 1s", r.took)
	}
	gone(2 * time.Second)
}

func deadlineIgnored(t *testing.T, s *suite) {
	task := s.that(t, IgnoresTERM)
	task.Deadline = time.Second
	gone := s.mark(t, &task)
	r := s.do(t, task)
	if r.Class != evidence.ClassTimeout || r.out != "up\n" {
		t.Errorf("class %s (%s), stdout %q", r.Class, r.Detail, r.out)
	}
	if r.Signal != "KILL" {
		t.Errorf("signal is %q, want KILL; %s", r.Signal, r.Detail)
	}
	if limit := task.Deadline + runner.Grace + 2*time.Second; r.took > limit {
		t.Errorf("took %s, want at most %s", r.took, limit)
	}
	gone(2 * time.Second)
}

// deadlineOfRunaways: a program that puts its workers into sessions of their
// own, and is killed before it can end them.
func deadlineOfRunaways(t *testing.T, s *suite) {
	task := s.that(t, LeavesGroup)
	task.Deadline = time.Second
	gone := s.mark(t, &task)
	r := s.do(t, task)
	if r.Class != evidence.ClassTimeout || r.out != "up\n" {
		t.Errorf("class %s (%s), stdout %q", r.Class, r.Detail, r.out)
	}
	gone(3 * time.Second)
}

func contextDeadline(t *testing.T, s *suite) {
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	task := s.that(t, Sleeps)
	task.Deadline = 0
	gone := s.mark(t, &task)
	r := do(ctx, t, s.open(t), task)
	if r.Class != evidence.ClassTimeout {
		t.Errorf("class %s (%s), want timeout", r.Class, r.Detail)
	}
	gone(2 * time.Second)
}

// upWriter closes up at the first byte.
type upWriter struct {
	once sync.Once
	up   chan struct{}
}

func (w *upWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.up) })
	return len(p), nil
}

func cancel(t *testing.T, s *suite) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	task := s.that(t, FillsGroup)
	gone := s.mark(t, &task)
	w := &upWriter{up: make(chan struct{})}
	x := s.open(t)
	go func() { <-w.up; stop() }()
	start := time.Now()
	exit, err := x.Exec(ctx, task, w, io.Discard)
	if err != nil || exit.Class != evidence.ClassCut {
		t.Errorf("class %s (%s), error %v, want cut", exit.Class, exit.Detail, err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	gone(2 * time.Second)
}

func cancelledBefore(t *testing.T, s *suite) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	name := filepath.Join(t.TempDir(), "touched")
	r := do(ctx, t, s.open(t), s.that(t, Touches, name))
	r.want(t, evidence.ClassCut, -1)
	if s.h.Commands.Touched(name) {
		t.Error("the command ran")
	}
}

func silence(t *testing.T, s *suite) {
	x := s.open(t)
	task := s.that(t, FallsSilent)
	task.Silence = time.Second
	gone := s.mark(t, &task)
	r := do(t.Context(), t, x, task)
	if r.Class != evidence.ClassSilent || r.out != "1\n2\n3\n4\n5\n" {
		t.Errorf("class %s (%s), stdout %q", r.Class, r.Detail, r.out)
	}
	if r.took < 2*time.Second || r.took > 5*time.Second {
		t.Errorf("took %s, want the 1.2s of output and 1s of silence", r.took)
	}
	gone(2 * time.Second)
	task = s.that(t, Complains)
	task.Silence = time.Second
	do(t.Context(), t, x, task).want(t, evidence.ClassOK, 0)
}

func toolMissing(t *testing.T, s *suite) {
	x := s.open(t)
	for _, argv := range s.h.Commands.Missing(t) {
		r := do(t.Context(), t, x, s.task(argv...))
		if r.Class != evidence.ClassToolMissing || !strings.Contains(r.Detail, argv[0]) {
			t.Errorf("%q: class %s (%s), want tool-missing by name", argv, r.Class, r.Detail)
		}
		if r.Code != nil || r.out != "" || r.err != "" {
			t.Errorf("%q: code %v, printed %q and %q", argv, r.Code, r.out, r.err)
		}
	}
	task := s.that(t, IsOnPath)
	task.Env = map[string]string{"PATH": "/no/such/directory"}
	if r := do(t.Context(), t, x, task); r.Class != evidence.ClassToolMissing || !strings.Contains(r.Detail, "/no/such/directory") {
		t.Errorf("with another PATH: class %s (%s)", r.Class, r.Detail)
	}
	r := do(t.Context(), t, x, s.that(t, Exits, "127"))
	r.want(t, evidence.ClassExit, 127)
}

func toolBroken(t *testing.T, s *suite) {
	r := s.do(t, s.that(t, CannotStart))
	if r.Class != evidence.ClassToolMissing || !strings.Contains(r.Detail, "could not be started") {
		t.Errorf("class %s (%s), want tool-missing", r.Class, r.Detail)
	}
}

func arch(t *testing.T, s *suite) {
	x := s.open(t)
	for _, c := range []struct {
		behaviour Behaviour
		class     evidence.Class
	}{{IsOfThisArch, evidence.ClassOK}, {IsOfOtherArch, evidence.ClassArch}} {
		if r := do(t.Context(), t, x, s.that(t, c.behaviour)); r.Class != c.class {
			t.Errorf("%s: class %s (%s), want %s", c.behaviour, r.Class, r.Detail, c.class)
		}
	}
}

func unwordable(t *testing.T, s *suite) {
	x := s.open(t)
	long := s.that(t, DoesNothing)
	long.Argv = append(long.Argv, strings.Repeat("x", 200<<10))
	name := s.that(t, DoesNothing)
	name.Env = map[string]string{"A-B": "x"}
	ours := s.that(t, DoesNothing)
	ours.Env = map[string]string{"rp_k": "x"}
	for _, task := range []evidence.Task{s.task(), s.task(""), s.task("a\x00b"), s.task("-x"), long, name, ours} {
		r := do(t.Context(), t, x, task)
		r.want(t, evidence.ClassNotRun, -1)
		if r.Detail == "" {
			t.Errorf("%.20q: no detail", task.Argv)
		}
	}
}

func heldOpen(t *testing.T, s *suite) {
	task := s.that(t, HoldsOutput)
	gone := s.mark(t, &task)
	r := s.do(t, task)
	r.want(t, evidence.ClassOutputHeldOpen, 3)
	if !r.HeldOpen || r.out != "hi\n" {
		t.Errorf("held open %t, stdout %q", r.HeldOpen, r.out)
	}
	if r.took < 2*time.Second || r.took > 5*time.Second {
		t.Errorf("took %s, want the 2s of draining", r.took)
	}
	gone(4 * time.Second)
}

func leftBehind(t *testing.T, s *suite) {
	x := s.open(t)
	for _, b := range []Behaviour{LeavesBehind, LeavesStubborn} {
		task := s.that(t, b)
		gone := s.mark(t, &task)
		r := do(t.Context(), t, x, task)
		r.want(t, evidence.ClassOK, 0)
		if r.took > 2*time.Second {
			t.Errorf("took %s", r.took)
		}
		gone(6 * time.Second)
	}
	task := s.that(t, DoesNothing)
	gone := s.mark(t, &task)
	do(t.Context(), t, x, task).want(t, evidence.ClassOK, 0)
	gone(time.Second)
}

func parallel(t *testing.T, s *suite) {
	x := s.open(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			r := do(t.Context(), t, x, s.that(t, TakesTurn, strconv.Itoa(i)))
			class := evidence.ClassExit
			if i == 0 {
				class = evidence.ClassOK
			}
			r.want(t, class, i)
			if want := fmt.Sprintf("start %d\nend %d\n", i, i); r.out != want {
				t.Errorf("stdout is %q, want %q", r.out, want)
			}
		})
	}
	all.Wait()
}

func capped(t *testing.T, s *suite) {
	task := s.that(t, PrintsMegabyte)
	task.OutputLimit = 1000
	r := s.do(t, task)
	r.want(t, evidence.ClassOutputCapped, 0)
	if len(r.out) != 1000 || !r.Truncated || r.err != "small\n" {
		t.Errorf("kept %d bytes, truncated %t, stderr %q", len(r.out), r.Truncated, r.err)
	}
	if !strings.Contains(r.Detail, "1000 of 1000000") {
		t.Errorf("detail %q does not count", r.Detail)
	}
	task.OutputLimit = 1000000
	r = s.do(t, task)
	r.want(t, evidence.ClassOK, 0)
	if r.Truncated {
		t.Error("output of just the limit is flagged as truncated")
	}
}

type fullDisk struct{ room int }

var errFull = errors.New("no space left on device")

func (w *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), w.room)
	w.room -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func failingWriter(t *testing.T, s *suite) {
	x := s.open(t)
	task := s.that(t, NeverStops)
	gone := s.mark(t, &task)
	start := time.Now()
	exit, err := x.Exec(t.Context(), task, &fullDisk{room: 100000}, io.Discard)
	if !errors.Is(err, errFull) {
		t.Errorf("error is %v, want the writer's", err)
	}
	if exit.Class == evidence.ClassOK || exit.StdoutBytes != 100000 {
		t.Errorf("class %s, %d bytes kept", exit.Class, exit.StdoutBytes)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	gone(2 * time.Second)
}

// closing closes the executor under a command.
func closing(t *testing.T, s *suite) {
	x := s.h.Open(t)
	task := s.that(t, FillsGroup)
	gone := s.mark(t, &task)
	w := &upWriter{up: make(chan struct{})}
	closed := make(chan error, 1)
	go func() { <-w.up; closed <- x.Close() }()
	exit, err := x.Exec(t.Context(), task, w, io.Discard)
	if err != nil || exit.Class.Outcome() != evidence.Inconclusive {
		t.Errorf("class %s (%s), error %v", exit.Class, exit.Detail, err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	gone(runner.Grace + 2*time.Second)
	if r := do(t.Context(), t, x, s.that(t, DoesNothing)); r.Class != evidence.ClassCut {
		t.Errorf("after Close: class %s (%s), want cut", r.Class, r.Detail)
	}
	if err := x.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func identify(t *testing.T, s *suite) {
	id, err := s.open(t).Identify(t.Context(), s.h.Node)
	if err != nil {
		t.Fatal(err)
	}
	if id.Node != s.h.Node || id.Address == "" || id.Problem != nil {
		t.Errorf("identity is %+v", id)
	}
}
