package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func walked(t *testing.T, fsys fs.FS) []string {
	t.Helper()
	var paths []string
	if err := Walk(fsys, func(p string, _ int64) error { paths = append(paths, p); return nil }); err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestSealedRun(t *testing.T) {
	dir := sealedRun(t)
	fsys := os.DirFS(dir)
	b := mustOpen(t, fsys)
	if !b.Sealed || b.Signed || b.Verdict == nil || b.Verdict.Outcome != Pass || b.Verdict.MediaType != MediaVerdict || b.Inventory.Nodes[0].Node != "n1" || b.Tool.Version != "0.1.0" {
		t.Errorf("bundle %+v", b)
	}
	if last := b.Records[len(b.Records)-1].Event; last != EventClose {
		t.Errorf("the journal ends with %q", last)
	}
	lines := allMeasurements(t, b)
	if len(lines) != 2 || lines[0].Measurement.Value != 1.25 || lines[1].Fact.Value != "X<1>" || lines[0].Cell != "disk/n1.r1" || lines[0].Attempt != 1 {
		t.Errorf("measurements %+v", lines)
	}
	m, leaves, err := ReadManifest(readAll(t, filepath.Join(dir, ManifestPath)))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := ReadSums(readAll(t, filepath.Join(dir, SumsPath)))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	salts := map[string]bool{}
	for i, e := range m.Files {
		listed = append(listed, e.Path)
		salts[e.Salt] = true
		content := readAll(t, filepath.Join(dir, e.Path))
		if DigestOf(content).Hex() != e.SHA256 || int64(len(content)) != e.Size || sums[e.Path] != e.SHA256 {
			t.Errorf("%s: entry %+v, sum %s", e.Path, e, sums[e.Path])
		}
		if line, err := EncodeLine(e); err != nil || !bytes.Equal(trimLine(line), leaves[i]) {
			t.Errorf("leaf %d is %s, want %s (%v)", i, leaves[i], line, err)
		}
	}
	if len(salts) != len(m.Files) {
		t.Errorf("%d salts for %d files", len(salts), len(m.Files))
	}
	if !slices.IsSorted(listed) || len(sums) != len(listed) {
		t.Errorf("%d sums, listed %q", len(sums), listed)
	}
	want := slices.Sorted(slices.Values(append(listed, SumsPath, ManifestPath)))
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(walked(t, fsys)))); diff != "" {
		t.Errorf("the lists and the directory differ:\n%s", diff)
	}
	roles := map[string]string{}
	for _, e := range m.Files {
		roles[e.Path] = e.Role + " " + e.Node
	}
	pair := "cells/" + b.Plan.Cells[2].ID + "/1/"
	for p, role := range map[string]string{
		PlanPath: "plan ", JournalPath: "journal ", VerdictPath: "verdict ", MeasurementsPath: "measurements ",
		InventoryPath: "inventory ", ToolPath: "tool ",
		first + "attempt.json":       "attempt n1",
		first + "raw/df.n1/stdout":   "raw-stdout n1",
		pair + "attempt.json":        "attempt ",
		pair + "raw/df.n2/stderr":    "raw-stderr n2",
		pair + "raw/df.n1/exit.json": "raw-exit n1",
	} {
		if roles[p] != role {
			t.Errorf("%s has role and node %q, want %q", p, roles[p], role)
		}
	}
}

// TestStockToolsReadTheSums demands that no program of ours is needed.
func TestStockToolsReadTheSums(t *testing.T) {
	dir := sealedRun(t)
	check := exec.Command("sha256sum", "-c", "--strict", "--quiet", SumsPath)
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum -c: %v\n%s", err, out)
	}
}

func TestSealedIsClosed(t *testing.T) {
	s := newRun(t)
	runAll(t, s)
	if err := s.Seal(NewDerived(nil, passing())); err != nil {
		t.Fatal(err)
	}
	_, appended := s.Append(Record{Event: EventNote})
	_, begun := s.Begin(s.Plan().Cells[0], []string{"n1"})
	_, captured := s.Capture("bare", "end", "n1", "df")
	for name, err := range map[string]error{
		"seal": s.Seal(NewDerived(nil, passing())), "append": appended, "begin": begun, "capture": captured,
		"document": s.WriteDocument(InventoryPath, Inventory{}),
	} {
		if !errors.Is(err, ErrSealed) {
			t.Errorf("%s on a sealed run: %v", name, err)
		}
	}
	closeRun(t, s)
}

// The manifest locks a sealed run against everyone who would write to it, from
// before its own writer lets go of it.
func TestSealedRunIsLocked(t *testing.T) {
	s := newRun(t)
	runAll(t, s)
	if err := s.Seal(Derived{Verdict: passing()}); err != nil {
		t.Fatal(err)
	}
	if _, err := LockSealed(s.Dir()); !errors.Is(err, ErrLocked) {
		t.Errorf("the store is open: %v", err)
	}
	closeRun(t, s)
	unlock, err := LockSealed(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockSealed(s.Dir()); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	if _, err := Reopen(s.Dir(), testTool()); !errors.Is(err, ErrLocked) {
		t.Errorf("reopened: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := Reopen(s.Dir(), testTool())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockSealed(again.Dir()); err == nil {
		t.Error("a run that is not sealed was locked as one that is")
	}
	closeRun(t, again)
}

// A place that cannot be looked at is not one where a signature is.
func TestSealSaysWhyItCannotLook(t *testing.T) {
	s := newRun(t)
	runAll(t, s)
	if err := s.root.Close(); err != nil {
		t.Fatal(err)
	}
	err := s.Seal(Derived{Verdict: passing()})
	if err == nil || strings.Contains(err.Error(), "there is a") || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v", err)
	}
}

func TestReopenSealed(t *testing.T) {
	dir := sealedRun(t)
	manifest := readAll(t, filepath.Join(dir, ManifestPath))
	writeFile(t, filepath.Join(dir, SignaturePath), []byte("{}"))
	s := reopen(t, dir)
	records := s.Records()
	if last := records[len(records)-1]; last.Event != EventReopen || last.Seal != DigestOf(manifest) || last.Tool == nil {
		t.Errorf("record %+v", last)
	}
	if b := mustOpen(t, os.DirFS(dir)); b.Sealed || b.Signed || b.Verdict != nil {
		t.Errorf("the run is still sealed %v, signed %v", b.Sealed, b.Signed)
	}
	if number := runCell(t, s, s.Plan().Cells[0], "n1").Number; number != 2 {
		t.Errorf("attempt %d", number)
	}
	if err := s.Seal(NewDerived(nil, passing())); err != nil {
		t.Fatal(err)
	}
	closeRun(t, s)
	m, _, err := ReadManifest(readAll(t, filepath.Join(dir, ManifestPath)))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for _, e := range m.Files {
		paths[e.Path] = e.Role
	}
	for _, name := range []string{"manifest.json", "sha256sums", "evidence.sigstore.json", "verdict.json", "measurements.jsonl"} {
		if role := paths["run/seals/1/"+name]; role != "seal" {
			t.Errorf("run/seals/1/%s has role %q", name, role)
		}
	}
	if !bytes.Equal(readAll(t, filepath.Join(dir, "run/seals/1/manifest.json")), manifest) {
		t.Error("the manifest that was set aside has changed")
	}
	third := reopen(t, dir)
	if seals := entries(third.FS(), "run/seals"); len(seals) != 2 {
		t.Errorf("seals %q", seals)
	}
}

func TestReopenSealedRefusesAnotherJournal(t *testing.T) {
	dir := sealedRun(t)
	editJournal(t, dir, func(records []Record) []Record { return slices.Delete(records, 1, 3) })
	if _, err := Reopen(dir, testTool()); err == nil || !strings.Contains(err.Error(), "not the one that was sealed") {
		t.Errorf("an edited journal: %v", err)
	}
	torn := sealedRun(t)
	content := readAll(t, filepath.Join(torn, JournalPath))
	writeFile(t, filepath.Join(torn, JournalPath), content[:len(content)-3])
	for name, err := range map[string]error{
		"reopen": func() error { _, err := Reopen(torn, testTool()); return err }(),
		"open":   func() error { _, err := Open(os.DirFS(torn)); return err }(),
	} {
		var damaged *JournalError
		if !errors.As(err, &damaged) {
			t.Errorf("%s of a sealed run with a torn journal: %v", name, err)
		}
	}
	short := sealedRun(t)
	editJournal(t, short, func(records []Record) []Record { return records[:len(records)-1] })
	if _, err := Open(os.DirFS(short)); err == nil || !strings.Contains(err.Error(), `a sealed run ends with "close"`) {
		t.Errorf("open of a sealed run without a close: %v", err)
	}
}

// TestSealDiesBetweenItsSteps rebuilds what is on the disk after each step of
// sealing and of setting a seal aside, and demands that the run goes on and
// can be sealed.
func TestSealDiesBetweenItsSteps(t *testing.T) {
	sealed := sealedRun(t)
	writeFile(t, filepath.Join(sealed, SignaturePath), []byte("{}"))
	manifest := DigestOf(readAll(t, filepath.Join(sealed, ManifestPath)))
	aside := func(n int) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "run/seals/1"), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, f := range sealedFiles[:n] {
				if err := os.Rename(filepath.Join(dir, f.from), filepath.Join(dir, "run/seals/1", f.to)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	drop := func(paths ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, SignaturePath))
			for _, p := range paths {
				remove(t, filepath.Join(dir, p))
			}
		}
	}
	for name, tc := range map[string]struct {
		state func(t *testing.T, dir string)
		seal  Digest // that the journal goes on from
	}{
		"closed":               {drop(ManifestPath, SumsPath, VerdictPath, MeasurementsPath), ""},
		"measurements written": {drop(ManifestPath, SumsPath, VerdictPath), ""},
		"verdict written":      {drop(ManifestPath, SumsPath), ""},
		"sums written":         {drop(ManifestPath), ""},
		"manifest half written": {func(t *testing.T, dir string) {
			drop()(t, dir)
			if err := os.Rename(filepath.Join(dir, ManifestPath), filepath.Join(dir, lockPath)); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"sealed":              {drop(), manifest},
		"nothing set aside":   {aside(0), manifest},
		"signature set aside": {aside(1), manifest},
		"sums set aside":      {aside(2), manifest},
		"derived set aside":   {aside(4), manifest},
		"manifest set aside":  {aside(5), manifest},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyTree(t, sealed)
			tc.state(t, dir)
			s := reopen(t, dir)
			r := resumeRecord(t, s.Records())
			if r.Event != EventReopen || r.Seal != tc.seal || (r.Reason == "") != (tc.seal != "") {
				t.Errorf("record %+v, want seal %q", r, tc.seal)
			}
			results := Results(s.Plan(), s.Records(), s.FS())
			if found := problems(results); len(found) > 0 {
				t.Errorf("problems %q", found)
			}
			if err := s.Seal(NewDerived(results, passing())); err != nil {
				t.Fatal(err)
			}
			closeRun(t, s)
			m, _, err := ReadManifest(readAll(t, filepath.Join(dir, ManifestPath)))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := len(walked(t, os.DirFS(dir))), len(m.Files)+2; got != want {
				t.Errorf("%d files in the directory, want %d", got, want)
			}
			if !mustOpen(t, os.DirFS(dir)).Sealed {
				t.Error("the run is not sealed")
			}
		})
	}
}

func TestWalkIsClosed(t *testing.T) {
	mkfifo := func(p string) error { return exec.Command("mkfifo", p).Run() }
	for name, tc := range map[string]struct {
		add  func(dir string) error
		code string
		path string
	}{
		"link":      {func(dir string) error { return os.Symlink("journal.jsonl", dir+"/run/link") }, CodeFileType, "run/link"},
		"dir link":  {func(dir string) error { return os.Symlink("/etc", dir+"/etc") }, CodeFileType, "etc"},
		"fifo":      {func(dir string) error { return mkfifo(dir + "/run/fifo") }, CodeFileType, "run/fifo"},
		"hidden":    {func(dir string) error { return os.WriteFile(dir+"/run/.x", nil, 0o644) }, CodePath, "run/.x"},
		"upper":     {func(dir string) error { return os.WriteFile(dir+"/run/X", nil, 0o644) }, CodePath, "run/X"},
		"lock":      {func(dir string) error { return os.WriteFile(dir+"/.lock", nil, 0o644) }, CodePath, ".lock"},
		"space":     {func(dir string) error { return os.WriteFile(dir+"/run/a b", nil, 0o644) }, CodePath, "run/a b"},
		"unicode":   {func(dir string) error { return os.WriteFile(dir+"/run/ä", nil, 0o644) }, CodePath, "run/ä"},
		"line end":  {func(dir string) error { return os.WriteFile(dir+"/run/a\nb", nil, 0o644) }, CodePath, "run/a\nb"},
		"device":    {func(dir string) error { return os.WriteFile(dir+"/run/nul.txt", nil, 0o644) }, CodePath, "run/nul.txt"},
		"empty dir": {func(dir string) error { return os.MkdirAll(dir+"/cells/disk/n1.r1/2", 0o755) }, CodeFileExtra, "cells/disk/n1.r1/2"},
		"bad dir":   {func(dir string) error { return os.MkdirAll(dir+"/run/A/b", 0o755) }, CodePath, "run/A"},
		"deep":      {func(dir string) error { return os.MkdirAll(dir+"/a/b/c/d/e/f/g/h/i", 0o755) }, CodePath, "a/b/c/d/e/f/g/h/i"},
	} {
		dir := sealedRun(t)
		if err := tc.add(dir); err != nil {
			t.Fatal(err)
		}
		err := Walk(os.DirFS(dir), func(string, int64) error { return nil })
		var entry *EntryError
		if !errors.As(err, &entry) || entry.Code != tc.code || entry.Path != tc.path {
			t.Errorf("%s: %v (%+v), want %s %q", name, err, entry, tc.code, tc.path)
		}
		_, closer, err := OpenDir(dir)
		if refused := err != nil; refused != (tc.code == CodeFileType) {
			t.Errorf("%s: OpenDir: %v", name, err)
		}
		if err == nil {
			if err := closer.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestWalkReportsAll(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("X%d", i)), nil)
	}
	writeFile(t, filepath.Join(dir, "fine"), []byte("abc"))
	sizes := map[string]int64{}
	err := Walk(os.DirFS(dir), func(p string, size int64) error { sizes[p] = size; return nil })
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 30 {
		t.Errorf("errors: %v", err)
	}
	if !maps.Equal(sizes, map[string]int64{"fine": 3}) {
		t.Errorf("visited %v", sizes)
	}
	stop := errors.New("stop")
	if err := Walk(os.DirFS(dir), func(string, int64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of visit: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	p := testPlan()
	plan, err := Encode(p)
	if err != nil {
		f.Fatal(err)
	}
	var b bytes.Buffer
	j := journal{file: &memoryFile{Buffer: &b}, now: fixedNow}
	for _, r := range []Record{
		{Event: EventOpen, Media: MediaJournal, Run: "r1", Plan: DigestOf(plan)},
		{Event: EventAttemptStart, Cell: "disk/n1.r1", Attempt: 1},
		{Event: EventAttemptEnd, Cell: "disk/n1.r1", Attempt: 1, Document: DigestOf(nil)},
	} {
		if _, err := j.append(r); err != nil {
			f.Fatal(err)
		}
	}
	tool, err := Encode(testTool())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plan, b.Bytes(), tool, []byte("{}"), []byte("raw"))
	f.Add([]byte("{}"), []byte{}, []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, plan, journal, tool, attempt, raw []byte) {
		fsys := mapFS(map[string][]byte{
			PlanPath: plan, JournalPath: journal, ToolPath: tool,
			first + "attempt.json": attempt, first + "raw/df.n1/stdout": raw,
		})
		b, err := Open(fsys)
		if err != nil {
			return
		}
		for _, r := range Results(b.Plan, b.Records, fsys) {
			if (len(r.Attempts) == 0) != (r.Skipped != nil) {
				t.Fatalf("%s: %d attempts, skipped %v", r.Cell.ID, len(r.Attempts), r.Skipped)
			}
			for _, a := range r.Attempts {
				// Only the one file can be there, so no step can be whole.
				if len(a.Unmeasured) == 0 && !a.Cut {
					t.Fatalf("%s attempt %d has no problem", r.Cell.ID, a.Number)
				}
			}
		}
	})
}
