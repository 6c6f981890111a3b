package evidence

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func reopen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Reopen(dir, testTool())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // most tests close it themselves
	return s
}

// killed is a copy of a run directory in the state that it has on the disk.
func killed(t *testing.T, s *Store) string {
	t.Helper()
	dir := copyTree(t, s.Dir())
	return dir
}

func events(records []Record) string {
	var words []string
	for _, r := range records {
		words = append(words, string(r.Event))
	}
	return strings.Join(words, " ")
}

// TestReopenAtEveryByte kills a run at every byte of its journal. Whatever
// was on the disk then still counts, and the run can be finished and sealed.
func TestReopenAtEveryByte(t *testing.T) {
	s := newRun(t)
	runCell(t, s, s.Plan().Cells[0], "n1")
	a := beginCell(t, s, s.Plan().Cells[1], "n2")
	runStep(t, a, "df", "n2", "whole\n")
	half, err := a.Step("soak", "n2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := half.Stdout().Write([]byte("ha")); err != nil {
		t.Fatal(err)
	}
	dir := killed(t, s)
	whole := readAll(t, filepath.Join(dir, JournalPath))
	firstLine := bytes.IndexByte(whole, '\n') + 1
	for cut := 0; cut <= len(whole); cut++ {
		if cut > firstLine && cut%29 != 0 && whole[min(cut, len(whole)-1)] != '\n' && whole[cut-1] != '\n' {
			continue // every byte of the first line, and around each line end
		}
		if cut < firstLine && cut%59 != 0 && cut < firstLine-2 {
			continue
		}
		dir := copyTree(t, dir)
		writeFile(t, filepath.Join(dir, JournalPath), whole[:cut])
		again, err := Reopen(dir, testTool())
		if cut < firstLine {
			if err == nil || !strings.Contains(err.Error(), "the journal was lost") {
				t.Fatalf("cut at %d, inside the first record: %v", cut, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		results := Results(again.Plan(), again.Records(), again.FS())
		if found := problems(results); len(found) > 0 {
			t.Fatalf("cut at %d: %q", cut, found)
		}
		finished, cutOff := results[0].Attempts, results[1].Attempts
		if len(finished) != 1 || finished[0].Cut {
			t.Fatalf("cut at %d: the attempt that had ended is %+v", cut, finished)
		}
		if len(cutOff) != 1 || !cutOff[0].Cut || cutOff[0].Start.IsZero() || cutOff[0].End.Before(cutOff[0].Start) {
			t.Fatalf("cut at %d: the attempt that ran is %+v", cut, cutOff)
		}
		if diff := cmp.Diff([]Step{
			{Dir: "df.n2", Step: "df", Node: "n2", Class: ClassOK},
			{Dir: "soak.n2", Step: "soak", Node: "n2", Class: ClassCut},
		}, cutOff[0].Steps); diff != "" {
			t.Fatalf("cut at %d: steps (-want +got):\n%s", cut, diff)
		}
		torn := bytes.LastIndexByte(whole[:cut], '\n') + 1
		first := resumeRecord(t, again.Records())
		if kept := first.Torn; (cut == torn) != (kept == "") {
			t.Fatalf("cut at %d: the torn tail is kept as %q", cut, kept)
		} else if kept != "" && !bytes.Equal(readAll(t, filepath.Join(dir, kept)), whole[torn:cut]) {
			t.Fatalf("cut at %d: %s is not the tail", cut, kept)
		}
		if number := runCell(t, again, again.Plan().Cells[1], "n2").Number; number != 2 {
			t.Fatalf("cut at %d: the next attempt has number %d", cut, number)
		}
		closeRun(t, again)
		if b := mustOpen(t, os.DirFS(dir)); len(b.Records) != len(again.Records()) {
			t.Fatalf("cut at %d: %d records on the disk, %d in memory", cut, len(b.Records), len(again.Records()))
		}
	}
}

func resumeRecord(t *testing.T, records []Record) Record {
	t.Helper()
	for _, r := range records {
		if r.Event == EventResume || r.Event == EventReopen {
			return r
		}
	}
	t.Fatalf("no resume in %s", events(records))
	return Record{}
}

func TestResumeIsRepeatable(t *testing.T) {
	s := newRun(t)
	beginCell(t, s, s.Plan().Cells[0], "n1")
	dir := killed(t, s)
	f, err := os.OpenFile(filepath.Join(dir, JournalPath), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":2,"pr`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// A death after the tail was kept and before it was cut off, and one after
	// that and before the record.
	writeFile(t, filepath.Join(dir, "run/torn-1"), []byte(`{"seq":2,"pr`))
	writeFile(t, filepath.Join(dir, "run/torn-2"), []byte("older"))
	if err := os.MkdirAll(filepath.Join(dir, ".tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, ".tmp/7"), []byte("half"))
	again := reopen(t, dir)
	if got, want := events(again.Records()), "open attempt_start resume note attempt_end"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	if r := again.Records()[2]; r.Torn != "run/torn-1" || r.Tool == nil || again.Records()[3].Path != "run/torn-2" {
		t.Errorf("records %+v", again.Records()[2:4])
	}
	closeRun(t, again)
	third := reopen(t, dir)
	if got, want := events(third.Records()[5:]), "resume"; got != want {
		t.Errorf("events of the second resume %q, want %q", got, want)
	}
	if r := third.Records()[5]; r.Torn != "" {
		t.Errorf("the second resume names %q again", r.Torn)
	}
	if err := third.Seal(NewDerived(nil, passing())); err != nil {
		t.Errorf("seal: %v", err)
	}
	closeRun(t, third)
	if err := Walk(os.DirFS(dir), func(string, int64) error { return nil }); err != nil {
		t.Errorf("the sealed directory: %v", err)
	}
}

func TestAttemptThatOnlyLacksItsRecord(t *testing.T) {
	s := newRun(t)
	done := runCell(t, s, s.Plan().Cells[0], "n1")
	dir := killed(t, s)
	dropRecord(t, dir, EventAttemptEnd, "disk/n1.r1", 1)

	good := reopen(t, copyTree(t, dir))
	got := Results(good.Plan(), good.Records(), good.FS())[0].Attempts
	if len(got) != 1 || len(got[0].Unmeasured) > 0 {
		t.Fatalf("attempts %+v", got)
	}
	if diff := cmp.Diff(done, got[0].Attempt); diff != "" {
		t.Errorf("the attempt has changed:\n%s", diff)
	}

	writeFile(t, filepath.Join(dir, first, "raw/df.n1/stdout"), []byte("other"))
	bad := reopen(t, dir)
	results := Results(bad.Plan(), bad.Records(), bad.FS())
	if a := results[0].Attempts[0]; !a.Cut || len(a.Unmeasured) != 1 || !strings.Contains(a.Unmeasured[0].Detail, "it counts 10 bytes of stdout, and the file has 5") {
		t.Errorf("an attempt whose files changed: %+v", a)
	}
	records := bad.Records()
	if note := records[len(records)-2]; note.Event != EventNote || note.Path != "run/torn-1" {
		t.Errorf("note %+v", note)
	}
}

func TestCutAttemptWithoutDirectory(t *testing.T) {
	s := newRun(t)
	a := beginCell(t, s, s.Plan().Cells[2], "n1", "n2")
	if _, err := a.Step("df", "n1"); err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(dir string) error{
		"no directory":    func(dir string) error { return os.RemoveAll(filepath.Join(dir, "cells")) },
		"empty directory": func(dir string) error { return os.RemoveAll(filepath.Join(dir, a.rawPath(""))) },
		"empty step": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, a.rawPath("df.n1/stdout"))), os.Remove(filepath.Join(dir, a.rawPath("df.n1/stderr"))))
		},
		"one of two files":  func(dir string) error { return os.Remove(filepath.Join(dir, a.rawPath("df.n1/stderr"))) },
		"as it was, closed": func(string) error { return nil },
	} {
		dir := killed(t, s)
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		again := reopen(t, dir)
		results := Results(again.Plan(), again.Records(), again.FS())
		if found := problems(results); len(found) > 0 {
			t.Errorf("%s: %q", name, found)
		}
		if got := results[2].Attempts; len(got) != 1 || !got[0].Cut {
			t.Errorf("%s: %+v", name, got)
		}
		if err := again.Seal(NewDerived(results, passing())); err != nil {
			t.Errorf("%s: seal: %v", name, err)
		}
		closeRun(t, again)
		if err := Walk(os.DirFS(dir), func(string, int64) error { return nil }); err != nil {
			t.Errorf("%s: the sealed directory: %v", name, err)
		}
	}
}

func TestNeverStarted(t *testing.T) {
	s := newRun(t)
	dir := killed(t, s)
	for name, journal := range map[string][]byte{"empty": {}, "half": []byte(`{"seq":0`)} {
		writeFile(t, filepath.Join(dir, JournalPath), journal)
		if _, err := Reopen(dir, testTool()); !errors.Is(err, ErrNeverStarted) || !strings.Contains(err.Error(), "remove the directory and run again") {
			t.Errorf("%s journal: %v", name, err)
		}
	}
	remove(t, filepath.Join(dir, JournalPath))
	if _, err := Reopen(dir, testTool()); !errors.Is(err, ErrNeverStarted) {
		t.Errorf("no journal: %v", err)
	}
	if _, err := Open(os.DirFS(dir)); !errors.Is(err, ErrNeverStarted) {
		t.Errorf("open without a journal: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, lockPath)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock is left behind: %v", err)
	}
}

func TestReopenRefuses(t *testing.T) {
	s := newRun(t)
	runAll(t, s)
	dir := killed(t, s)
	for name, tc := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"plan replaced": {func(t *testing.T, dir string) {
			p := testPlan()
			p.Seed = "8"
			content, err := Encode(p)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, PlanPath), content)
		}, "the plan was replaced"},
		"plan newer": {func(t *testing.T, dir string) {
			content := readAll(t, filepath.Join(dir, PlanPath))
			writeFile(t, filepath.Join(dir, PlanPath), bytes.Replace(content, []byte(`"minor": 0`), []byte(`"minor": 1`), 1))
		}, "newer version"},
		"plan missing": {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, PlanPath)) }, "this is no run directory"},
		"journal edited": {func(t *testing.T, dir string) {
			content := readAll(t, filepath.Join(dir, JournalPath))
			writeFile(t, filepath.Join(dir, JournalPath), bytes.Replace(content, []byte(`"attempt":1`), []byte(`"attempt":2`), 1))
		}, "a damaged journal cannot go on"},
		"foreign cell": {func(t *testing.T, dir string) {
			editJournal(t, dir, func(records []Record) []Record {
				return append(records, Record{Event: EventSkip, Cell: "other/n1.r1", Time: time.Unix(0, 0).UTC()})
			})
		}, `cell "other/n1.r1" is not in the plan`},
		"far attempt": {func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "cells/disk/n1.r1/5/raw"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "move it away"},
		"no run": {func(t *testing.T, dir string) { remove(t, dir) }, "no such file"},
	} {
		dir := copyTree(t, dir)
		tc.damage(t, dir)
		if _, err := Reopen(dir, testTool()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestCloseWhileRunning: a store that is closed with an attempt running leaves
// what a kill leaves.
func TestCloseWhileRunning(t *testing.T) {
	s := newRun(t)
	a := beginCell(t, s, s.Plan().Cells[0], "n1")
	f, err := a.Step("df", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.File("faults.jsonl"); err != nil {
		t.Fatal(err)
	}
	closeRun(t, s)
	if _, err := f.Stdout().Write([]byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("writing after close: %v", err)
	}
	if _, err := s.End(a, nil, false); !errors.Is(err, ErrClosed) {
		t.Errorf("ending after close: %v", err)
	}
	again := reopen(t, s.Dir())
	if got := Results(again.Plan(), again.Records(), again.FS())[0].Attempts; len(got) != 1 || !got[0].Cut || len(got[0].Files) != 3 {
		t.Errorf("attempts %+v", got)
	}
}
