// Package local_test kills the runner at random moments of a short run, and
// resumes it.
package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/internal/killtest"
)

const moments = 45

func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "rackproof")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/rackproof")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	undisturbed := scene{t: t, program: program, dir: filepath.Join(dir, "undisturbed")}
	began := time.Now()
	if code := undisturbed.run(nil); code != 0 {
		t.Fatalf("the undisturbed run exits with %d\n%s", code, undisturbed.output.String())
	}
	length := time.Since(began)
	want := undisturbed.findings()

	random := rand.New(rand.NewPCG(1, 2))
	t.Run("moments", func(t *testing.T) {
		for i := range moments {
			after := time.Duration(random.Int64N(int64(length)))
			t.Run(fmt.Sprintf("%02d", i), func(t *testing.T) {
				t.Parallel()
				s := scene{t: t, program: program, dir: filepath.Join(dir, fmt.Sprintf("killed-%02d", i))}
				s.run(&after)
				s.resumed(want)
			})
		}
	})
}

// scene is one run of the example in a folder of its own.
type scene struct {
	t       *testing.T
	program string
	dir     string
	output  bytes.Buffer
}

func (s *scene) scratch() string { return filepath.Join(s.dir, "scratch") }

// run runs the example; with killAfter it is killed so long after its start.
func (s *scene) run(killAfter *time.Duration) (code int) {
	s.t.Helper()
	if err := os.MkdirAll(s.scratch(), 0o755); err != nil {
		s.t.Fatal(err)
	}
	return s.command(killAfter, "run", "local.runbook.hcl", "--var", "scratch="+s.scratch(), "--var", "machine="+filepath.Base(s.dir),
		"--allow", "leaves_a_mark", "--dir", filepath.Join(s.dir, "runs"))
}

func (s *scene) command(killAfter *time.Duration, arguments ...string) (code int) {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context())
	if killAfter != nil {
		// The context kills with SIGKILL.
		timed, cancel := context.WithTimeout(ctx, *killAfter)
		defer cancel()
		ctx = timed
	}
	command := exec.CommandContext(ctx, s.program, arguments...)
	command.Stdout, command.Stderr = &s.output, &s.output
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		s.t.Fatal(err)
	}
	return command.ProcessState.ExitCode()
}

// resumed goes on with what was killed, and compares it with an undisturbed
// run.
func (s *scene) resumed(want []string) {
	s.t.Helper()
	run, ok := s.directory()
	if !ok {
		// Killed before the run directory was whole: there is nothing to
		// resume, and nothing that was measured.
		if code := s.run(nil); code != 0 {
			s.t.Errorf("a new run exits with %d\n%s", code, s.output.String())
		}
		return
	}
	running := killtest.Running(s.t, run)
	sealed := exists(filepath.Join(run, "manifest.json"))
	if code := s.command(nil, "resume", run, "--allow", "leaves_a_mark"); code != 0 {
		s.t.Fatalf("resume exits with %d\n%s", code, s.output.String())
	}
	verdict := s.verdict()
	if verdict.Outcome != evidence.Pass {
		s.t.Errorf("the outcome is %v", verdict.Outcome)
	}
	if got := s.findings(); !slices.Equal(got, want) {
		s.t.Errorf("findings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if exists(filepath.Join(s.scratch(), "broken")) {
		s.t.Error("the fault is still there")
	}
	s.eachCellPassesOnce(run, verdict)
	if !sealed {
		cuts := killtest.Cuts(verdict)
		for _, attempt := range running {
			if !slices.Contains(cuts, attempt) {
				s.t.Errorf("%s was running when the runner was killed, and is not among the cuts %q", attempt, cuts)
			}
		}
	}
	for _, process := range killtest.Left(s.t, run) {
		s.t.Errorf("left: %s", process)
	}
}

// eachCellPassesOnce holds the journal and the plan side by side: every cell
// has exactly one attempt that was not cut.
func (s *scene) eachCellPassesOnce(run string, verdict evidence.Verdict) {
	s.t.Helper()
	cut := map[string]int{}
	for _, c := range verdict.Coverage.Cuts {
		cut[c.Cell]++
	}
	ended := map[string]int{}
	for _, r := range killtest.Journal(s.t, run) {
		if r.Event == evidence.EventAttemptEnd {
			ended[r.Cell]++
		}
	}
	var plan evidence.Plan
	text, err := os.ReadFile(filepath.Join(run, "run", "plan.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		s.t.Fatal(err)
	}
	for _, cell := range plan.Cells {
		if whole := ended[cell.ID] - cut[cell.ID]; whole != 1 {
			s.t.Errorf("cell %s has %d whole attempts, want 1", cell.ID, whole)
		}
	}
}

func (s *scene) directory() (string, bool) {
	s.t.Helper()
	journals, err := filepath.Glob(filepath.Join(s.dir, "runs", "*", "run", "journal.jsonl"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range journals {
		// Without an inventory nothing says how nodes are reached, and none was.
		// It is written after the journal's first record.
		run := filepath.Dir(filepath.Dir(name))
		if exists(filepath.Join(run, evidence.InventoryPath)) {
			return run, true
		}
	}
	return "", false
}

func (s *scene) verdict() evidence.Verdict {
	s.t.Helper()
	run, ok := s.directory()
	if !ok {
		s.t.Fatalf("no run in %s\n%s", s.dir, s.output.String())
	}
	text, err := os.ReadFile(filepath.Join(run, "run", "verdict.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	var verdict evidence.Verdict
	if err := json.Unmarshal(text, &verdict); err != nil {
		s.t.Fatal(err)
	}
	return verdict
}

// findings are the verdict's, without the name of the machine, which differs
// from scene to scene.
func (s *scene) findings() []string {
	s.t.Helper()
	lines := killtest.Findings(s.t, s.verdict())
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(line, filepath.Base(s.dir), "")
	}
	return lines
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
