package evidence

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const first = "cells/disk/n1.r1/1/"

// editAttempt rewrites an attempt.json and, honestly, its digest in the
// journal.
func editAttempt(t *testing.T, dir, cell string, number int, edit func(*Attempt)) {
	t.Helper()
	p := filepath.Join(dir, AttemptPath(cell, number), "attempt.json")
	var a Attempt
	if _, err := DecodeDocument(readAll(t, p), MediaAttempt, &a); err != nil {
		t.Fatal(err)
	}
	edit(&a)
	content, err := Encode(a)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, p, content)
	editJournal(t, dir, func(records []Record) []Record {
		for i, r := range records {
			if r.Event == EventAttemptEnd && r.Cell == cell && r.Attempt == number {
				records[i].Document = DigestOf(content)
			}
		}
		return records
	})
}

// editJournal rewrites the journal with a good chain, and with times that do
// not fall.
func editJournal(t *testing.T, dir string, edit func([]Record) []Record) {
	t.Helper()
	p := filepath.Join(dir, JournalPath)
	records, _, err := ReadJournal(bytes.NewReader(readAll(t, p)))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	var prev Digest
	var now time.Time
	for i, r := range edit(records) {
		r.Seq, r.Prev = int64(i), prev
		if r.Time.Before(now) {
			r.Time = now
		}
		now = r.Time
		line, err := EncodeLine(r)
		if err != nil {
			t.Fatal(err)
		}
		prev = DigestOf(trimLine(line))
		all = append(all, line...)
	}
	writeFile(t, p, all)
}

// rewrite replaces a file of the first attempt with an honest digest
// everywhere.
func rewrite(t *testing.T, dir, file, content string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, first+file), []byte(content))
	editAttempt(t, dir, "disk/n1.r1", 1, func(a *Attempt) {
		for i := range a.Files {
			if a.Files[i].Path == file {
				a.Files[i].Size, a.Files[i].Digest = int64(len(content)), DigestOf([]byte(content))
			}
		}
	})
}

func dropRecord(t *testing.T, dir string, event Event, cell string, attempt int) {
	t.Helper()
	editJournal(t, dir, func(records []Record) []Record {
		var kept []Record
		for _, r := range records {
			if r.Event != event || r.Cell != cell || r.Attempt != attempt {
				kept = append(kept, r)
			}
		}
		return kept
	})
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// TestDamageIsAProblem damages the first attempt of disk/n1.r1, which has two,
// in every way, and demands a problem that names the place.
func TestDamageIsAProblem(t *testing.T) {
	s := newRun(t)
	runAll(t, s)
	runCell(t, s, s.Plan().Cells[0], "n1")
	closeRun(t, s)
	const cell = "disk/n1.r1"
	stdout := "raw/df.n1/stdout"
	file := func(dir, name string) string { return filepath.Join(dir, first+name) }
	setFiles := func(files func([]File) []File) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			editAttempt(t, dir, cell, 1, func(a *Attempt) { a.Files = files(a.Files) })
		}
	}
	setAttempt := func(edit func(*Attempt)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { editAttempt(t, dir, cell, 1, edit) }
	}
	exit := func(old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			text := string(readAll(t, file(dir, "raw/df.n1/exit.json")))
			if !strings.Contains(text, old) {
				t.Fatalf("exit.json has no %q:\n%s", old, text)
			}
			rewrite(t, dir, "raw/df.n1/exit.json", strings.Replace(text, old, new, 1))
		}
	}
	for name, tc := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"file missing":  {func(t *testing.T, dir string) { remove(t, file(dir, stdout)) }, "n1: df: evidence-damaged: " + first + stdout + ": is missing"},
		"file halved":   {func(t *testing.T, dir string) { writeFile(t, file(dir, stdout), []byte("out o")) }, stdout + ": has 5 bytes, and 10 were recorded"},
		"file emptied":  {func(t *testing.T, dir string) { writeFile(t, file(dir, stdout), nil) }, stdout + ": has 0 bytes"},
		"file replaced": {func(t *testing.T, dir string) { writeFile(t, file(dir, stdout), []byte("OUT OF N1\n")) }, stdout + ": has changed"},
		"file is a directory": {func(t *testing.T, dir string) {
			remove(t, file(dir, stdout))
			if err := os.MkdirAll(file(dir, stdout), 0o755); err != nil {
				t.Fatal(err)
			}
		}, stdout + ": not a regular file"},
		"file is a link": {func(t *testing.T, dir string) {
			remove(t, file(dir, stdout))
			if err := os.Symlink("../../../2/raw/df.n1/stdout", file(dir, stdout)); err != nil {
				t.Fatal(err)
			}
		}, stdout + ": not a regular file"},
		"attempt.json missing": {func(t *testing.T, dir string) { remove(t, file(dir, "attempt.json")) }, first + "attempt.json: file does not exist"},
		"attempt.json edited":  {func(t *testing.T, dir string) { writeFile(t, file(dir, "attempt.json"), []byte("{}\n")) }, first + "attempt.json: has changed"},
		"attempt gone":         {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, first)) }, first + "attempt.json: file does not exist"},
		"raw gone":             {func(t *testing.T, dir string) { remove(t, file(dir, "raw")) }, stdout + ": is missing"},
		"step gone":            {func(t *testing.T, dir string) { remove(t, file(dir, "raw/df.n1")) }, stdout + ": is missing"},
		"all cells gone":       {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "cells")) }, first + "attempt.json: file does not exist"},
		"file not listed":      {func(t *testing.T, dir string) { writeFile(t, file(dir, "raw/extra"), nil) }, "raw/extra: is there and not in attempt.json"},
		"file beside raw":      {func(t *testing.T, dir string) { writeFile(t, file(dir, "extra"), nil) }, first + "extra: is there and not in attempt.json"},
		"directory not listed": {func(t *testing.T, dir string) {
			if err := os.CopyFS(file(dir, "raw/x.n1"), os.DirFS(file(dir, "raw/df.n1"))); err != nil {
				t.Fatal(err)
			}
		}, "raw/x.n1: is the directory of no step"},
		"no attempt's name": {func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "cells/disk/n1.r1/x"), nil) }, "cells/disk/n1.r1/x is no attempt"},
		"attempt not in journal": {func(t *testing.T, dir string) {
			if err := os.CopyFS(filepath.Join(dir, "cells/disk/n1.r1/3"), os.DirFS(filepath.Join(dir, first))); err != nil {
				t.Fatal(err)
			}
		}, "on the disk and not in the journal"},

		"exit.json is no JSON, digests redone":         {func(t *testing.T, dir string) { rewrite(t, dir, "raw/df.n1/exit.json", "exit 0\n") }, "raw/df.n1/exit.json: line 1: want a value"},
		"exit.json emptied, digests redone":            {func(t *testing.T, dir string) { rewrite(t, dir, "raw/df.n1/exit.json", "") }, "raw/df.n1/exit.json: line 1: the document ends too early"},
		"exit.json of another class, digests redone":   {exit(`"class": "ok"`, `"class": "timeout"`), `its class is "timeout", and attempt.json has "ok"`},
		"exit.json counts other bytes, digests redone": {exit(`"stdoutBytes": 10`, `"stdoutBytes": 11`), "it counts 11 bytes of stdout, and the file has 10"},
		"exit.json ends early, digests redone":         {exit(`"end": "2026`, `"end": "2025`), "before it starts"},
		"exit.json of another status, digests redone":  {exit(`"code": 0`, `"code": 1`), `its class is "ok", and its exit status 1`},
		"exit.json of a signal, digests redone":        {exit(`"code": 0`, `"code": 0, "signal": "KILL"`), `its class is "ok", and signal KILL ended it`},
		"stdout replaced, digests redone":              {func(t *testing.T, dir string) { rewrite(t, dir, stdout, "other output") }, "it counts 10 bytes of stdout, and the file has 12"},
		"stdout emptied, digests redone":               {func(t *testing.T, dir string) { rewrite(t, dir, stdout, "") }, "it counts 10 bytes of stdout, and the file has 0"},
		"stderr filled, digests redone":                {func(t *testing.T, dir string) { rewrite(t, dir, "raw/df.n1/stderr", "x") }, "it counts 0 bytes of stderr, and the file has 1"},
		"file left out of the list":                    {setFiles(func(f []File) []File { return f[:2] }), stdout + ": is not in attempt.json, and every step has one"},
		"file left out with its bytes": {func(t *testing.T, dir string) {
			remove(t, file(dir, stdout))
			editAttempt(t, dir, cell, 1, func(a *Attempt) { a.Files = a.Files[:2] })
		}, stdout + ": is not in attempt.json, and every step has one"},
		"file listed twice": {setFiles(func(f []File) []File { return append(f, f[2]) }), "out of order, or one is there twice, at " + stdout},
		"file outside":      {setFiles(func(f []File) []File { return append(f, File{Path: "raw/../../2/attempt.json", Digest: DigestOf(nil)}) }), "which is not below raw/"},
		"list emptied":      {setFiles(func([]File) []File { return []File{} }), stdout + ": is there and not in attempt.json"},
		"step listed, none there": {setAttempt(func(a *Attempt) {
			a.Steps = append(a.Steps, Step{Dir: "gone.n1", Step: "gone", Node: "n1", Class: ClassOK})
		}), "raw/gone.n1/stdout: is not in attempt.json"},
		"steps emptied":           {setAttempt(func(a *Attempt) { a.Steps = []Step{} }), "raw/df.n1: is the directory of no step"},
		"step twice":              {setAttempt(func(a *Attempt) { a.Steps = append(a.Steps, a.Steps[0]) }), "steps are out of order, or one is there twice, at df.n1"},
		"step under another node": {setAttempt(func(a *Attempt) { a.Steps[0].Node = "n2" }), `step "df" on "n2" has the directory df.n1`},
		"step outside":            {setAttempt(func(a *Attempt) { a.Steps[0].Dir = "../df.n1" }), `has the directory "../df.n1"`},
		"step cut, attempt whole": {func(t *testing.T, dir string) {
			remove(t, file(dir, "raw/df.n1/exit.json"))
			editAttempt(t, dir, cell, 1, func(a *Attempt) { a.Files = a.Files[1:]; a.Steps[0].Class = ClassCut })
		}, "exit.json: is not in attempt.json, and every step has one"},
		"attempt of another cell": {setAttempt(func(a *Attempt) { a.Cell = "disk/n2.r1" }), "it is of disk/n2.r1 attempt 1"},
		"attempt of another test": {setAttempt(func(a *Attempt) { a.Test = "other" }), `it is of test "other"`},
		"attempt on other nodes":  {setAttempt(func(a *Attempt) { a.Nodes = []string{"n2"} }), "it ran on n2, and the plan has n1"},
		"attempt ends early":      {setAttempt(func(a *Attempt) { a.End = a.Start.Add(-time.Second) }), "before it starts"},
		"attempt of another minor, unknown field": {func(t *testing.T, dir string) {
			writeFile(t, file(dir, "attempt.json"), []byte(`{"mediaType":"application/vnd.rackproof.attempt.v2+json","minor":0}`))
			editJournal(t, dir, func(records []Record) []Record {
				for i, r := range records {
					if r.Event == EventAttemptEnd && r.Cell == cell && r.Attempt == 1 {
						records[i].Document = DigestOf(readAll(t, file(dir, "attempt.json")))
					}
				}
				return records
			})
		}, "attempt.v2+json"},

		"journal without the start": {func(t *testing.T, dir string) { dropRecord(t, dir, EventAttemptStart, cell, 1) }, "attempt 1 ends in the journal and never started"},
		"journal without the end":   {func(t *testing.T, dir string) { dropRecord(t, dir, EventAttemptEnd, cell, 1) }, "attempt 1 has no end in the journal, and a later one is there"},
		"journal without attempt 1": {func(t *testing.T, dir string) {
			dropRecord(t, dir, EventAttemptStart, cell, 1)
			dropRecord(t, dir, EventAttemptEnd, cell, 1)
		}, "attempt 1 is not in the journal, and attempt 2 is"},
		"journal and disk without attempt 1": {func(t *testing.T, dir string) {
			dropRecord(t, dir, EventAttemptStart, cell, 1)
			dropRecord(t, dir, EventAttemptEnd, cell, 1)
			remove(t, filepath.Join(dir, first))
		}, "attempt 1 is not in the journal, and attempt 2 is"},
		"journal without the last attempt": {func(t *testing.T, dir string) {
			dropRecord(t, dir, EventAttemptStart, cell, 2)
			dropRecord(t, dir, EventAttemptEnd, cell, 2)
		}, "on the disk and not in the journal"},
		"journal with an end twice": {func(t *testing.T, dir string) {
			editJournal(t, dir, func(records []Record) []Record { return append(records, records[2]) })
		}, "attempt 1 ends twice in the journal"},
		"journal with a start twice": {func(t *testing.T, dir string) {
			editJournal(t, dir, func(records []Record) []Record { return append(records, records[1]) })
		}, "attempt 1 starts twice in the journal"},
		"journal with attempts at once": {func(t *testing.T, dir string) {
			editJournal(t, dir, func(records []Record) []Record {
				end := slices.IndexFunc(records, func(r Record) bool { return r.Event == EventAttemptEnd && r.Cell == cell })
				start := slices.IndexFunc(records, func(r Record) bool { return r.Event == EventAttemptStart && r.Cell == cell && r.Attempt == 2 })
				records[end], records[start] = records[start], records[end]
				records[end].Time, records[start].Time = records[start].Time, records[end].Time
				return records
			})
		}, "attempt 2 starts in the journal while attempt 1 runs"},
		"journal with attempt 0": {func(t *testing.T, dir string) {
			editJournal(t, dir, func(records []Record) []Record {
				return append(records, Record{Event: EventAttemptStart, Cell: cell, Time: records[0].Time})
			})
		}, "attempts count from 1"},
		"journal with a far attempt": {func(t *testing.T, dir string) {
			editJournal(t, dir, func(records []Record) []Record {
				return append(records, Record{Event: EventAttemptStart, Cell: cell, Attempt: 1 << 40, Time: records[0].Time})
			})
		}, "attempt 3 is not in the journal"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyTree(t, s.Dir())
			tc.damage(t, dir)
			b := mustOpen(t, os.DirFS(dir))
			results := Results(b.Plan, b.Records, b.FS)
			found := strings.Join(problems(results[:1]), "\n")
			if !strings.Contains(found, tc.want) {
				t.Errorf("problems:\n%s\nwant one with %q", found, tc.want)
			}
			for _, r := range results[:1] {
				if r.Skipped != nil || len(r.Attempts) == 0 {
					t.Fatalf("%s: %d attempts, skipped %v", r.Cell.ID, len(r.Attempts), r.Skipped)
				}
				for _, a := range r.Attempts {
					if len(a.Unmeasured) == 0 {
						t.Errorf("attempt %d is not spoiled by the damage", a.Number)
					}
					for _, p := range a.Unmeasured {
						if p.Class.ProvedByMeasure() || p.Class.Outcome() == Pass {
							t.Errorf("measurements could mend %v", p)
						}
					}
				}
			}
			if name != "all cells gone" {
				if found := problems(results[1:]); len(found) > 0 {
					t.Errorf("other cells have problems: %q", found)
				}
			}
		})
	}
}

func TestCellsWithoutAttempt(t *testing.T) {
	s := newRun(t)
	cells := s.Plan().Cells
	gate := &Problem{Node: "n2", Class: ClassExcluded, Detail: "the gate of phase bare excluded n2"}
	for _, r := range []Record{
		{Event: EventSkip, Cell: cells[1].ID, Problem: gate},
		{Event: EventSkip, Cell: cells[2].ID},
	} {
		if _, err := s.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	results := Results(s.Plan(), s.Records(), s.FS())
	var got []Problem
	for _, r := range results {
		if len(r.Attempts) != 0 || r.Skipped == nil {
			t.Fatalf("%s: %d attempts, skipped %v", r.Cell.ID, len(r.Attempts), r.Skipped)
		}
		got = append(got, *r.Skipped)
	}
	want := []Problem{
		{Class: ClassNotRun, Detail: "the journal has no attempt"},
		*gate,
		{Class: ClassNotRun, Detail: "skipped, and the journal does not say why"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	runCell(t, s, cells[1], "n2")
	if r := Results(s.Plan(), s.Records(), s.FS())[1]; r.Skipped != nil || len(r.Attempts) != 1 {
		t.Errorf("a cell that was run after all: %d attempts, skipped %v", len(r.Attempts), r.Skipped)
	}
}

func TestRunningAttemptIsCut(t *testing.T) {
	s := newRun(t)
	a := beginCell(t, s, s.Plan().Cells[0], "n1")
	f, err := a.Step("soak", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stdout().Write([]byte("half a li")); err != nil {
		t.Fatal(err)
	}
	got := Results(s.Plan(), s.Records(), s.FS())[0].Attempts[0]
	if !got.Cut || got.Number != 1 || len(got.Unmeasured) != 0 || len(got.Problems) != 1 || got.Problems[0].Class != ClassCut {
		t.Errorf("attempt %+v", got)
	}
	if diff := cmp.Diff([]Step{{Dir: "soak.n1", Step: "soak", Node: "n1", Class: ClassCut}}, got.Steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if len(got.Files) != 2 || got.Files[1].Digest != DigestOf([]byte("half a li")) {
		t.Errorf("files %+v", got.Files)
	}
}

// bigPlan has nodes × tests cells.
func bigPlan(nodes, tests int) *Plan {
	p := testPlan()
	p.Tests, p.Cells = nil, nil
	p.Fleet.Nodes = nil
	for n := range nodes {
		p.Fleet.Nodes = append(p.Fleet.Nodes, Node{Name: fmt.Sprintf("gpu%04d", n)})
	}
	for i := range tests {
		test := testPlan().Tests[0]
		test.Name = fmt.Sprintf("storage_read_%03d", i)
		p.Tests = append(p.Tests, test)
		for _, node := range p.Fleet.Nodes {
			p.Cells = append(p.Cells, Cell{ID: CellID(test.Name, []string{node.Name}, 1), Test: test.Name, Nodes: node.Name, Repetition: 1})
		}
	}
	return p
}

func BenchmarkEncodePlan(b *testing.B) {
	p := bigPlan(1000, 200)
	for b.Loop() {
		content, err := Encode(p)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(content)))
		if DigestOf(content) == "" {
			b.Fatal("no digest")
		}
	}
}

func BenchmarkDecodePlan(b *testing.B) {
	content, err := Encode(bigPlan(1000, 200))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		var p Plan
		if _, err := DecodeDocument(content, MediaPlan, &p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResultsOfEmptyRun(b *testing.B) {
	p := bigPlan(1000, 200)
	for b.Loop() {
		if got := Results(p, nil, fstest.MapFS{}); len(got) != len(p.Cells) || got[0].Skipped == nil {
			b.Fatal("wrong results")
		}
	}
}

func TestBigPlanStaysSmall(t *testing.T) {
	content, err := Encode(bigPlan(1000, 20))
	if err != nil {
		t.Fatal(err)
	}
	if perCell := len(content) / 20_000; perCell < 80 || perCell > 120 {
		t.Errorf("a plan has %d bytes a cell, want about 100: 200,000 cells would have %d MB", perCell, perCell/5)
	}
}
