package killtest

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

func TestRunning(t *testing.T) {
	s := newRun(t, "ended", "written", "running", "again")
	cells := s.Plan().Cells
	end(t, s, begin(t, s, cells[0]))
	begin(t, s, cells[1])
	document := filepath.Join(s.Dir(), evidence.AttemptPath(cells[1].ID, 1), "attempt.json")
	if err := os.WriteFile(document, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	begin(t, s, cells[2])
	end(t, s, begin(t, s, cells[3]))
	begin(t, s, cells[3])
	edit(t, s.Dir(), func(journal []byte) []byte { return append(journal, `{"seq":`...) })

	want := []string{"running/n1.r1#1", "again/n1.r1#2"}
	if got := Running(t, s.Dir()); !slices.Equal(got, want) {
		t.Errorf("Running = %q, want %q", got, want)
	}
	var verdict evidence.Verdict
	verdict.Coverage.Cuts = []evidence.OpenCell{{Cell: cells[2].ID, Attempt: 1}, {Cell: cells[3].ID, Attempt: 2}}
	if got := Cuts(verdict); !slices.Equal(got, want) {
		t.Errorf("Cuts = %q, want %q", got, want)
	}
}

func TestFindings(t *testing.T) {
	one, other := 1.0, 2.0
	finding := evidence.Finding{Test: "reads", Threshold: "iops", Subject: "n1", Outcome: evidence.Fail, Reason: "slow", Observed: &one}
	want := Findings(t, evidence.Verdict{Findings: []evidence.Finding{finding}})
	finding.Observed = &other
	if got := Findings(t, evidence.Verdict{Findings: []evidence.Finding{finding}}); !slices.Equal(got, want) {
		t.Errorf("another number makes %q of %q", got, want)
	}
	finding.Outcome = evidence.Pass
	if got := Findings(t, evidence.Verdict{Findings: []evidence.Finding{finding}}); slices.Equal(got, want) {
		t.Errorf("another outcome is still %q", got)
	}
}

func TestLeft(t *testing.T) {
	run, other := newRun(t).Dir(), newRun(t).Dir()
	sleep := exec.Command("sleep", "60")
	sleep.Env = append(os.Environ(), "RACKPROOF_MARK="+filepath.Base(run)+"/step")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	}
	t.Cleanup(kill)

	want := []string{fmt.Sprintf("/proc/%d: %q", sleep.Process.Pid, "sleep\x0060\x00")}
	if got := Left(t, run, "redis-server"); !slices.Equal(got, want) {
		t.Errorf("Left = %q, want %q", got, want)
	}
	if got := Left(t, run, "redis-server", "sleep"); len(got) > 0 {
		t.Errorf("a process that stays is left: %q", got)
	}
	if got := Left(t, other); len(got) > 0 {
		t.Errorf("another run's process is left: %q", got)
	}
	kill()
	if got := Left(t, run); len(got) > 0 {
		t.Errorf("a process that ended is left: %q", got)
	}
}

// With nothing to look at, a test must not go on to find nothing wrong.
func TestNothingToLookAt(t *testing.T) {
	empty, torn, damaged := newRun(t).Dir(), newRun(t).Dir(), newRun(t).Dir()
	edit(t, empty, func([]byte) []byte { return nil })
	edit(t, torn, func(journal []byte) []byte { return journal[:len(journal)-1] })
	edit(t, damaged, func(journal []byte) []byte { return append([]byte("{}\n"), journal...) })
	for _, test := range []struct {
		name string
		look func(testing.TB)
		want string
	}{
		{"no journal", func(t testing.TB) { Journal(t, "no-such-run") }, "no such file"},
		{"empty journal", func(t testing.TB) { Journal(t, empty) }, "the journal is empty"},
		{"journal torn in its first line", func(t testing.TB) { Journal(t, torn) }, "the journal is empty"},
		{"damaged journal", func(t testing.TB) { Journal(t, damaged) }, "line 1"},
		{"nothing running", func(t testing.TB) { Running(t, "no-such-run") }, "no such file"},
		{"nothing left", func(t testing.TB) { Left(t, "no-such-run") }, "no such file"},
		{"no findings", func(t testing.TB) { Findings(t, evidence.Verdict{}) }, "no findings"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := failure(t, test.look); !strings.Contains(got, test.want) {
				t.Errorf("fails with %q, want %q", got, test.want)
			}
		})
	}
}

// failure runs look as a test of its own and returns what that fails with; it
// is empty if it does not fail.
func failure(t *testing.T, look func(testing.TB)) string {
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		look(f)
	}()
	<-done
	return f.message
}

type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatal(args ...any) {
	f.message = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *failing) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// newRun begins a run with one cell a test.
func newRun(t *testing.T, tests ...string) *evidence.Store {
	t.Helper()
	plan := &evidence.Plan{MediaType: evidence.MediaPlan}
	for _, test := range tests {
		plan.Cells = append(plan.Cells, evidence.Cell{ID: evidence.CellID(test, []string{"n1"}, 1), Test: test, Nodes: "n1", Repetition: 1})
	}
	// Another copy of this test may run beside it: the names must differ.
	name := strings.ToLower(rand.Text())
	s, err := evidence.Create(filepath.Join(t.TempDir(), name), name, plan, nil, evidence.Tool{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // attempts are still running
	return s
}

func begin(t *testing.T, s *evidence.Store, cell evidence.Cell) *evidence.AttemptDir {
	t.Helper()
	attempt, err := s.Begin(cell, []string{"n1"})
	if err != nil {
		t.Fatal(err)
	}
	return attempt
}

func end(t *testing.T, s *evidence.Store, attempt *evidence.AttemptDir) {
	t.Helper()
	if _, err := s.End(attempt, nil, false); err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, run string, change func([]byte) []byte) {
	t.Helper()
	name := filepath.Join(run, evidence.JournalPath)
	journal, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, change(journal), 0o644); err != nil {
		t.Fatal(err)
	}
}
