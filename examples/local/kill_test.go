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
	starts := s.records(run)
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
	cut := map[string]bool{}
	for _, c := range verdict.Coverage.Cuts {
		cut[fmt.Sprint(c.Cell, c.Attempt)] = true
	}
	if !sealed {
		for attempt := range starts {
			if !cut[attempt] {
				s.t.Errorf("attempt %s was running when the runner was killed, and no cut names it", attempt)
			}
		}
	}
	s.nothingLeft(run)
}

// records returns the attempts that were running when the runner was killed:
// started, and never ended. One whose attempt.json was written had ended, and
// lacks but its line in the journal.
func (s *scene) records(run string) map[string]bool {
	s.t.Helper()
	running := map[string]bool{}
	for _, r := range s.journal(run) {
		attempt := fmt.Sprint(r.Cell, r.Attempt)
		switch r.Event {
		case evidence.EventAttemptStart:
			if !exists(filepath.Join(run, evidence.AttemptPath(r.Cell, r.Attempt), "attempt.json")) {
				running[attempt] = true
			}
		case evidence.EventAttemptEnd:
			delete(running, attempt)
		}
	}
	return running
}

func (s *scene) journal(run string) []evidence.Record {
	s.t.Helper()
	file, err := os.Open(filepath.Join(run, "run", "journal.jsonl"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	records, _, err := evidence.ReadJournal(file)
	var damage *evidence.JournalError
	if err != nil && !(errors.As(err, &damage) && damage.Torn) {
		s.t.Fatal(err)
	}
	return records
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
	for _, r := range s.journal(run) {
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

// nothingLeft looks for processes that carry the run's mark.
func (s *scene) nothingLeft(run string) {
	s.t.Helper()
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range environments {
		environment, err := os.ReadFile(path)
		if err != nil {
			continue // it ended, or it is not ours
		}
		if bytes.Contains(environment, []byte("RACKPROOF_MARK="+filepath.Base(run))) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			s.t.Errorf("%s is left: %q", filepath.Dir(path), line)
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
		run := filepath.Dir(filepath.Dir(name))
		if exists(filepath.Join(run, evidence.InventoryPath)) && len(s.journal(run)) > 0 {
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

// findings are the verdict's findings without what differs from run to run:
// the numbers, where they were read, and the name of the machine.
func (s *scene) findings() []string {
	s.t.Helper()
	var lines []string
	for _, f := range s.verdict().Findings {
		line := fmt.Sprintf("%s %s %s: %v %s", f.Test, f.Threshold, f.Subject, f.Outcome, f.Reason)
		lines = append(lines, strings.ReplaceAll(line, filepath.Base(s.dir), ""))
	}
	return lines
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
