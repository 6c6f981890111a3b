package checks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/checks/checktest"
	"github.com/rackproof/rackproof/evidence"
)

var recordDir = flag.String("record", "", "keep every real run as a case below this folder")

// osBench runs the commands of every node on this machine and leaves raw
// output as the runner does.
type osBench struct {
	t      *testing.T
	dir    string
	view   evidence.CellView
	faults chan struct{}

	mu       sync.Mutex
	used     map[string]bool
	cleanups []func()
}

func newBench(t *testing.T, check string, scope evidence.Scope, duration string, nodes []string, params string) *osBench {
	t.Helper()
	span, err := evidence.ParseDuration(duration)
	if err != nil {
		t.Fatal(err)
	}
	fleet := evidence.Fleet{Name: "pod"}
	for _, node := range nodes {
		fleet.Nodes = append(fleet.Nodes, evidence.Node{Name: node})
	}
	b := &osBench{
		t: t, dir: filepath.Join(t.TempDir(), "raw"), used: make(map[string]bool), faults: make(chan struct{}),
		view: evidence.CellView{
			Cell: evidence.Cell{ID: "t/cell.r1", Test: "t", Repetition: 1}, Fleet: fleet, Nodes: nodes,
			Test: evidence.Test{
				Name: "t", Check: check, CheckVersion: 1, Params: json.RawMessage(params),
				Scope: scope, Duration: span, Deadline: 2 * span,
			},
			Attempt: evidence.Attempt{Cell: "t/cell.r1", Test: "t", Nodes: nodes, Repetition: 1, Number: 1, Start: time.Now()},
		},
	}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	close(b.faults)
	return b
}

func (b *osBench) Nodes() []string         { return b.view.Nodes }
func (b *osBench) Test() evidence.Test     { return b.view.Test }
func (b *osBench) Fleet() evidence.Fleet   { return b.view.Fleet }
func (b *osBench) Faults() <-chan struct{} { return b.faults }
func (b *osBench) Params(into any) error   { return evidence.DecodeStrict(b.view.Test.Params, into) }

func (b *osBench) Exec(ctx context.Context, step string, c checks.Command) (evidence.Exit, error) {
	stdout, stderr, exit := run(ctx, c)
	b.write(step, c.Node, stdout, stderr, exit)
	if p := exit.Problem(c.Node, step); p != nil {
		return exit, p
	}
	return exit, nil
}

func run(ctx context.Context, c checks.Command) (stdout, stderr []byte, exit evidence.Exit) {
	if c.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Deadline)
		defer cancel()
	}
	command := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	command.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	for name, value := range c.Env {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Stdin = bytes.NewReader(c.Stdin)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	exit = evidence.Exit{Argv: c.Argv, Class: evidence.ClassOK, Start: time.Now()}
	err := command.Run()
	exit.End = time.Now()
	if code := command.ProcessState.ExitCode(); command.ProcessState != nil && code >= 0 {
		exit.Code = &code
	}
	var ended *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		exit.Class, exit.Detail = evidence.ClassToolMissing, err.Error()
	case ctx.Err() != nil && c.Deadline > 0:
		exit.Class = evidence.ClassTimeout
	case ctx.Err() != nil:
		exit.Class = evidence.ClassCut
	case errors.As(err, &ended) && exit.Code == nil:
		exit.Class = evidence.ClassSignal
	case err != nil && !errors.As(err, &ended):
		exit.Class, exit.Detail = evidence.ClassExit, err.Error()
	}
	exit.StdoutBytes, exit.StderrBytes = int64(out.Len()), int64(complaint.Len())
	return out.Bytes(), complaint.Bytes(), exit
}

func (b *osBench) write(step, node string, stdout, stderr []byte, exit evidence.Exit) {
	dir := evidence.StepDir(step, node)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used[dir] {
		b.t.Errorf("step %s was used twice on %s", step, node)
		return
	}
	b.used[dir] = true
	data, err := evidence.Encode(exit)
	if err != nil {
		b.t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(b.dir, dir), 0o755); err != nil {
		b.t.Error(err)
	}
	for name, content := range map[string][]byte{"stdout": stdout, "stderr": stderr, "exit.json": data} {
		if err := os.WriteFile(filepath.Join(b.dir, dir, name), content, 0o644); err != nil {
			b.t.Error(err)
		}
	}
}

func (b *osBench) Cleanup(step string, c checks.Command) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, func() {
		stdout, stderr, exit := run(context.WithoutCancel(b.t.Context()), c)
		b.write(step, c.Node, stdout, stderr, exit)
	})
	return nil
}

func (b *osBench) ExecAll(ctx context.Context, step string, nodes []string, command func(string) checks.Command) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() { _, errs[i] = b.Exec(ctx, step, command(node)) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func (b *osBench) Probe(ctx context.Context, step, node string, period time.Duration, next func(int) (checks.Command, bool)) error {
	var lines bytes.Buffer
	exit := evidence.Exit{Class: evidence.ClassOK, Code: new(int), Start: time.Now()}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for n := 0; ; n++ {
		c, more := next(n)
		if !more || ctx.Err() != nil {
			break
		}
		stdout, stderr, one := run(ctx, c)
		line, err := evidence.EncodeLine(checks.ProbeLine{
			N: n, Start: one.Start.Sub(b.view.Attempt.Start).Seconds(), End: one.End.Sub(b.view.Attempt.Start).Seconds(),
			Class: one.Class, Code: one.Code, Stdout: string(stdout), Stderr: string(stderr),
		})
		if err != nil {
			return err
		}
		lines.Write(line)
		if n == 0 {
			exit.Argv = c.Argv
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	exit.End = time.Now()
	exit.StdoutBytes = int64(lines.Len())
	b.write(step, node, lines.Bytes(), nil, exit)
	return nil
}

func (b *osBench) Wait(ctx context.Context, what string, every time.Duration, until func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if done, err := until(ctx); done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// drive runs the check for real and measures what it left.
func (b *osBench) drive(ctx context.Context) evidence.MeasuredAttempt {
	b.t.Helper()
	check := find(b.t, b.view.Test.Check)
	err := check.Drive(ctx, b)
	for _, cleanup := range slices.Backward(b.cleanups) {
		cleanup()
	}
	b.view.Attempt.End = time.Now()
	b.view.Attempt.Problems = evidence.Problems(err)
	if *recordDir != "" {
		b.record(filepath.Join(*recordDir, b.view.Test.Check, filepath.Base(b.t.Name())))
	}
	return checktest.Measure(check, b.view, os.DirFS(b.dir))
}

// record keeps the run as a case for testdata.
func (b *osBench) record(dir string) {
	view, err := json.MarshalIndent(b.view, "", "  ")
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755), os.CopyFS(filepath.Join(dir, "raw"), os.DirFS(b.dir)),
		os.WriteFile(filepath.Join(dir, "view.json"), append(view, '\n'), 0o644)); err != nil {
		b.t.Fatal(err)
	}
}

func find(t testing.TB, name string) checks.Check {
	t.Helper()
	check, ok := checks.Builtin().Find(name)
	if !ok {
		t.Fatalf("no check %q", name)
	}
	return check
}

// value is the one measurement of a metric on a subject.
func value(t *testing.T, a evidence.MeasuredAttempt, metric, subject string, labels ...string) float64 {
	t.Helper()
	for _, one := range a.Measurements {
		if one.Metric != metric || string(one.Subject) != subject {
			continue
		}
		if len(labels) == 2 && one.Labels[labels[0]] != labels[1] {
			continue
		}
		if one.Missing != "" {
			t.Fatalf("%s of %s is missing: %s", metric, subject, one.Missing)
		}
		return one.Value
	}
	t.Fatalf("%s of %s was not measured; problems: %v", metric, subject, a.Unmeasured)
	return 0
}

func fact(t *testing.T, a evidence.MeasuredAttempt, name, subject string) evidence.Fact {
	t.Helper()
	i := slices.IndexFunc(a.Facts, func(f evidence.Fact) bool { return f.Name == name && string(f.Subject) == subject })
	if i < 0 {
		t.Fatalf("%s of %s was not read; problems: %v", name, subject, a.Unmeasured)
	}
	return a.Facts[i]
}

// wantClasses compares the classes of an attempt's problems, in any order and
// without repetition.
func wantClasses(t *testing.T, a evidence.MeasuredAttempt, want ...evidence.Class) {
	t.Helper()
	var got []evidence.Class
	for _, p := range a.Unmeasured {
		if !slices.Contains(got, p.Class) {
			got = append(got, p.Class)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("problem classes are %v, want %v; problems: %v", got, want, a.Unmeasured)
	}
}
