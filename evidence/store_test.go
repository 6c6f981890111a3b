package evidence

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRunIsReadBack(t *testing.T) {
	s := newRun(t)
	runAll(t, s)
	closeRun(t, s)
	fsys, closer, err := OpenDir(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	b := mustOpen(t, fsys)
	if b.Sealed || b.Verdict != nil || b.Torn || b.Run != "r1" {
		t.Errorf("sealed %v verdict %v torn %v run %q, want an open run r1", b.Sealed, b.Verdict, b.Torn, b.Run)
	}
	if diff := cmp.Diff(testPlan().Cells, b.Plan.Cells); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(s.Records(), b.Records); diff != "" {
		t.Errorf("records in memory and on disk differ:\n%s", diff)
	}
	results := Results(b.Plan, b.Records, fsys)
	if found := problems(results); len(found) > 0 {
		t.Errorf("problems of a good run: %q", found)
	}
	for i, r := range results {
		if len(r.Attempts) != 1 || r.Skipped != nil {
			t.Errorf("cell %s: %d attempts, skipped %v", r.Cell.ID, len(r.Attempts), r.Skipped)
		}
		if r.Attempts[0].Start.IsZero() || r.Attempts[0].End.Before(r.Attempts[0].Start) {
			t.Errorf("result %d: %v to %v", i, r.Attempts[0].Start, r.Attempts[0].End)
		}
	}
	pair := results[2].Attempts[0]
	if diff := cmp.Diff([]Step{
		{Dir: "df.n1", Step: "df", Node: "n1", Class: ClassOK},
		{Dir: "df.n2", Step: "df", Node: "n2", Class: ClassOK},
	}, pair.Steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	var paths []string
	for _, f := range pair.Files {
		paths = append(paths, f.Path)
	}
	want := "raw/df.n1/exit.json raw/df.n1/stderr raw/df.n1/stdout raw/df.n2/exit.json raw/df.n2/stderr raw/df.n2/stdout"
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("files %s\nwant  %s", got, want)
	}
	raw, err := RawFS(fsys, pair.Cell, 1)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := fs.ReadFile(raw, "df.n2/stdout"); err != nil || string(text) != "out of n2\n" {
		t.Errorf("stdout is %q, %v", text, err)
	}
	var exit Exit
	content, err := fs.ReadFile(raw, "df.n2/exit.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := DecodeStrict(content, &exit); err != nil || exit.StdoutBytes != 10 || exit.StderrBytes != 0 || !exit.OK() {
		t.Errorf("exit %+v, %v", exit, err)
	}
}

func TestEndTakesEveryFile(t *testing.T) {
	s := newRun(t)
	a := beginCell(t, s, s.Plan().Cells[0], "n1")
	f, err := a.File("faults.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{}\n"); err != nil {
		t.Fatal(err)
	}
	runStep(t, a, "df", "n1", "x")
	open, err := a.Step("never closed", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Stdout().Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	problem := Problem{Node: "n1", Step: "df", Class: ClassTimeout, Detail: "after 1m0s"}
	done, err := s.End(a, []Problem{problem}, true)
	if err != nil {
		t.Fatal(err)
	}
	if !done.Cut || len(done.Problems) != 1 || len(done.Files) != 6 {
		t.Errorf("attempt %+v", done)
	}
	if got := done.Files[5]; got.Path != "raw/never-closed-"+hash8("never closed")+".n1/stdout" || got.Size != 4 || got.Digest != DigestOf([]byte("half")) {
		t.Errorf("file of the step that was not closed: %+v", got)
	}
	if got := done.Steps[1].Class; got != ClassCut {
		t.Errorf("class of the step that was not closed: %s", got)
	}
	if _, err := open.Stdout().Write([]byte("late")); !errors.Is(err, ErrClosed) {
		t.Errorf("writing after the end: %v", err)
	}
	if err := open.Close(exitOK()); !errors.Is(err, ErrClosed) {
		t.Errorf("closing after the end: %v", err)
	}
	results := Results(s.Plan(), s.Records(), s.FS())
	if diff := cmp.Diff(done, results[0].Attempts[0].Attempt); diff != "" {
		t.Errorf("attempt read back differs:\n%s", diff)
	}
}

func TestAttemptsAreNumbered(t *testing.T) {
	s := newRun(t)
	cell := s.Plan().Cells[0]
	for want := 1; want <= 3; want++ {
		if got := runCell(t, s, cell, "n1").Number; got != want {
			t.Errorf("attempt %d has number %d", want, got)
		}
	}
	a := beginCell(t, s, cell, "n1")
	if _, err := s.Begin(cell, []string{"n1"}); err == nil || !strings.Contains(err.Error(), "attempt 4 has not ended") {
		t.Errorf("a second attempt at once: %v", err)
	}
	if _, err := s.End(a, nil, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.End(a, nil, false); err == nil {
		t.Error("an attempt ended twice")
	}
	if _, err := fs.Stat(s.FS(), AttemptPath(cell.ID, 4)+"/raw"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty raw folder is left: %v", err)
	}
}

func TestMisuseIsRefused(t *testing.T) {
	s := newRun(t)
	cell := s.Plan().Cells[0]
	a := beginCell(t, s, cell, "n1")
	runStep(t, a, "a.b", "c", "")
	if _, err := a.File("out.txt"); err != nil {
		t.Fatal(err)
	}
	ended := runCell(t, s, s.Plan().Cells[1], "n2")
	other := cell
	other.ID = "disk/other.r1"
	for name, tc := range map[string]struct {
		do   func() error
		want string
	}{
		"step twice":     {func() error { _, err := a.Step("a.b", "c"); return err }, "used before"},
		"step collision": {func() error { _, err := a.Step("a", "b.c"); return err }, "is that of step a.b on c"},
		"file twice":     {func() error { _, err := a.File("out.txt"); return err }, "file exists"},
		"file outside":   {func() error { _, err := a.File("../x"); return err }, "with a dot"},
		"file in a step": {func() error { _, err := a.File("a.b.c/x"); return err }, "not one of"},
		"foreign cell":   {func() error { _, err := s.Begin(other, []string{"n1"}); return err }, "not in the plan"},
		"foreign nodes":  {func() error { _, err := s.Begin(s.Plan().Cells[1], []string{"n1"}); return err }, "not those of the cell"},
		"exit without class": {func() error {
			f, err := a.Step("x", "n1")
			if err != nil {
				return err
			}
			return f.Close(Exit{})
		}, "no class"},
		"reserved event":  {func() error { _, err := s.Append(Record{Event: EventAttemptEnd}); return err }, "store itself"},
		"unknown event":   {func() error { _, err := s.Append(Record{Event: "party"}); return err }, "unknown event"},
		"unknown cell":    {func() error { _, err := s.Append(Record{Event: EventSkip, Cell: "x/y"}); return err }, "not in the plan"},
		"document plan":   {func() error { return s.WriteDocument(PlanPath, 1) }, "store itself"},
		"document away":   {func() error { return s.WriteDocument("cells/x", 1) }, "not a document of run/"},
		"document up":     {func() error { return s.WriteDocument("run/../x", 1) }, "dot"},
		"capture when":    {func() error { _, err := s.Capture("bare", "middle", "n1", "df"); return err }, "start and at the end"},
		"seal while open": {func() error { return s.Seal(NewDerived(nil, passing())) }, "has not ended"},
		"create again":    {func() error { _, err := Create(s.Dir(), "r1", testPlan(), nil, testTool()); return err }, "exists"},
	} {
		if err := tc.do(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if ended.Number != 1 {
		t.Errorf("attempt %d", ended.Number)
	}
}

func TestCreateRefuses(t *testing.T) {
	content := []byte("runbook")
	withSource := func(path string) *Plan {
		p := testPlan()
		p.Sources = []Source{{Path: path, Size: 7, Digest: DigestOf(content)}}
		return p
	}
	twice := testPlan()
	twice.Cells = append(twice.Cells, twice.Cells[0])
	flat := testPlan()
	flat.Cells[0].ID = "disk"
	clash := withSource("a?")
	clash.Sources = append(clash.Sources, Source{Path: SourcePath("a?"), Size: 7, Digest: DigestOf(content)})
	for name, tc := range map[string]struct {
		run     string
		plan    *Plan
		sources map[string][]byte
		want    string
	}{
		"name":           {"R1", testPlan(), nil, "not one of"},
		"cell twice":     {"r1", twice, nil, "there twice"},
		"cell path":      {"r1", flat, nil, "two segments"},
		"source missing": {"r1", withSource("a.hcl"), nil, "was not given"},
		"source changed": {"r1", withSource("a.hcl"), map[string][]byte{"a.hcl": []byte("Runbook")}, "not the file"},
		"source extra":   {"r1", testPlan(), map[string][]byte{"a.hcl": content}, "1 sources were given and 0"},
		"source clash":   {"r1", clash, map[string][]byte{"a?": content, SourcePath("a?"): content}, "both are enclosed"},
		"source deep":    {"r1", withSource("a/b/c/d/e/f/g"), map[string][]byte{"a/b/c/d/e/f/g": content}, "more than 8 segments"},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		_, err := Create(dir, tc.run, tc.plan, tc.sources, testTool())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a directory is left behind: %v", name, err)
		}
	}
}

func TestSourcesAreEnclosed(t *testing.T) {
	content := map[string][]byte{"Main.runbook.hcl": []byte("a"), "sub/b.hcl": []byte("bb")}
	p := testPlan()
	p.Sources = []Source{
		{Path: "Main.runbook.hcl", Size: 1, Digest: DigestOf([]byte("a"))},
		{Path: "sub/b.hcl", Size: 2, Digest: DigestOf([]byte("bb"))},
	}
	s, err := Create(filepath.Join(t.TempDir(), "r"), "r", p, content, testTool())
	if err != nil {
		t.Fatal(err)
	}
	closeRun(t, s)
	b := mustOpen(t, os.DirFS(s.Dir()))
	got, err := b.Sources()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(content, got); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	writeFile(t, filepath.Join(s.Dir(), "run/runbook/sub/b.hcl"), []byte("cc"))
	if _, err := b.Sources(); err == nil || !strings.Contains(err.Error(), "and the plan has") {
		t.Errorf("a changed source: %v", err)
	}
}

func TestLock(t *testing.T) {
	s := newRun(t)
	_, err := Reopen(s.Dir(), testTool())
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "by process ") {
		t.Errorf("a second holder: %v", err)
	}
	closeRun(t, s)
	if _, err := s.Append(Record{Event: EventNote}); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if err := s.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("closing twice: %v", err)
	}
	again, err := Reopen(s.Dir(), testTool())
	if err != nil {
		t.Fatal(err)
	}
	closeRun(t, again)
	if _, err := os.Stat(filepath.Join(s.Dir(), lockPath)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock is left behind: %v", err)
	}
}

func TestCapture(t *testing.T) {
	s := newRun(t)
	for range 2 {
		f, err := s.Capture("bare", "start", "n1", "uname -a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Stderr().Write([]byte("oops")); err != nil {
			t.Fatal(err)
		}
		exit := exitOK()
		exit.Class, exit.Detail = ClassToolMissing, "no uname"
		if err := f.Close(exit); err != nil {
			t.Fatal(err)
		}
	}
	records := s.Records()
	r := records[len(records)-1]
	dir := "captures/bare/start/n1/uname--a-" + hash8("uname -a") + ".2"
	if r.Event != EventCapture || r.Path != dir || r.Node != "n1" || r.Problem == nil || r.Problem.Class != ClassToolMissing {
		t.Errorf("record %+v, want path %s", r, dir)
	}
	if len(r.Files) != 3 || r.Files[1].Path != "stderr" || r.Files[1].Digest != DigestOf([]byte("oops")) {
		t.Errorf("files %+v", r.Files)
	}
}

func TestManyAtOnce(t *testing.T) {
	s := newRun(t)
	var workers sync.WaitGroup
	for i, cell := range s.Plan().Cells {
		nodes := [][]string{{"n1"}, {"n2"}, {"n1", "n2"}}[i]
		workers.Go(func() {
			for range 5 {
				a, err := s.Begin(cell, nodes)
				if err != nil {
					t.Error(err)
					return
				}
				var steps sync.WaitGroup
				for _, node := range nodes {
					steps.Go(func() {
						f, err := a.Step("df", node)
						if err != nil {
							t.Error(err)
							return
						}
						var streams sync.WaitGroup
						streams.Go(func() { _, _ = f.Stdout().Write([]byte(node)) })
						streams.Go(func() { _, _ = f.Stderr().Write([]byte(node)) })
						streams.Wait()
						if err := f.Close(exitOK()); err != nil {
							t.Error(err)
						}
					})
				}
				steps.Wait()
				if _, err := s.End(a, nil, false); err != nil {
					t.Error(err)
				}
			}
		})
		workers.Go(func() {
			for range 5 {
				if _, err := s.Append(Record{Event: EventNote, Reason: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	b := mustOpen(t, s.FS())
	if got, want := len(b.Records), 1+3*5*3; got != want {
		t.Errorf("%d records, want %d", got, want)
	}
	results := Results(b.Plan, b.Records, b.FS)
	if found := problems(results); len(found) > 0 {
		t.Errorf("problems: %q", found)
	}
	for _, r := range results {
		if len(r.Attempts) != 5 {
			t.Errorf("%s has %d attempts", r.Cell.ID, len(r.Attempts))
		}
	}
}

func TestFreeBytes(t *testing.T) {
	s := newRun(t)
	if free, err := s.FreeBytes(); err != nil || free == 0 {
		t.Errorf("%d bytes free, %v", free, err)
	}
}
