package sshd32_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/thresholds"
)

// TestNoMeasurementIsNeverAPass damages the evidence of a passing run in every
// way in which a measurement can be lost, and lets an honest recorder redo all
// counts and digests, so that nothing but the judge stands between the damage
// and a pass.
func TestNoMeasurementIsNeverAPass(t *testing.T) {
	m := newMutator(t)
	for i := range m.results {
		m.cell(i)
	}
	for _, kind := range []string{"drop cell", "drop attempt", "drop node", "drop step", "drop file", "empty file", "halve file", "number to N/A", "drop subject"} {
		if m.count[kind] == 0 {
			t.Errorf("no mutation of kind %q was made", kind)
		}
	}
	total := 0
	for kind, n := range m.count {
		t.Logf("%6d  %s", n, kind)
		total += n
	}
	t.Logf("%6d  mutations, none of them a pass", total)
}

type mutator struct {
	t       *testing.T
	plan    *evidence.Plan
	records []evidence.Record
	catalog checks.Catalog
	results []evidence.CellResult // of the undamaged run
	run     string
	scratch string
	count   map[string]int
	// touched are the paths that a mutation wrote or removed, to be restored
	// from the undamaged run.
	touched []string
}

func newMutator(t *testing.T) *mutator {
	t.Helper()
	fsys, closer, err := evidence.OpenDir(shared.run)
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	bundle, err := evidence.Open(fsys)
	if err != nil {
		t.Fatal(err)
	}
	catalog := checks.Builtin()
	results := checks.Measure(catalog, bundle.Plan, bundle.Records, fsys)
	if verdict := thresholds.Judge(bundle.Plan, results); verdict.Outcome != evidence.Pass {
		t.Fatalf("the undamaged run is %v, so damaging it shows nothing", verdict.Outcome)
	}
	return &mutator{
		t: t, plan: bundle.Plan, records: bundle.Records, catalog: catalog, results: results,
		run: shared.run, scratch: t.TempDir(), count: map[string]int{},
	}
}

// cell makes every mutation of cell i.
func (m *mutator) cell(i int) {
	cell := m.results[i].Cell
	m.judge("drop cell", cell.ID, i, evidence.CellResult{
		Cell: cell, Skipped: &evidence.Problem{Class: evidence.ClassNotRun, Detail: "dropped"},
	})
	m.remeasured("drop attempt", cell.ID, i, m.recordsOf(cell.ID, func(r evidence.Record) bool {
		return r.Event != evidence.EventAttemptStart && r.Event != evidence.EventAttemptEnd
	}), m.run)
	m.subjects(i)

	for _, attempt := range m.results[i].Attempts {
		here := filepath.Join(m.scratch, fmt.Sprint(i))
		from := filepath.Join("cells", filepath.FromSlash(cell.ID), strconv.Itoa(attempt.Number))
		if err := os.CopyFS(filepath.Join(here, from), os.DirFS(filepath.Join(m.run, from))); err != nil {
			m.t.Fatal(err)
		}
		a := attemptDir{root: here, dir: filepath.Join(here, from), cell: i, number: attempt.Number}
		m.files(a)
		m.steps(a, attempt.Attempt)
		m.nodes(a, attempt.Attempt)
		m.numbers(a, attempt)
		if err := os.RemoveAll(here); err != nil {
			m.t.Fatal(err)
		}
	}
}

type attemptDir struct {
	root, dir    string
	cell, number int
}

func (m *mutator) files(a attemptDir) {
	for _, path := range m.rawFiles(a) {
		whole := m.read(path)
		name, _ := filepath.Rel(a.dir, path)
		m.mutate("drop file", name, a, func() { m.remove(path) })
		if len(whole) > 0 {
			m.mutate("empty file", name, a, func() { m.write(path, nil) })
		}
		if len(whole) > 1 {
			m.mutate("halve file", name, a, func() { m.write(path, whole[:len(whole)/2]) })
		}
	}
}

func (m *mutator) steps(a attemptDir, attempt evidence.Attempt) {
	for _, step := range attempt.Steps {
		m.mutate("drop step", step.Dir, a, func() { m.remove(filepath.Join(a.dir, "raw", step.Dir)) })
	}
}

func (m *mutator) nodes(a attemptDir, attempt evidence.Attempt) {
	for _, node := range attempt.Nodes {
		m.mutate("drop node", node, a, func() {
			for _, step := range attempt.Steps {
				if step.Node == node {
					m.remove(filepath.Join(a.dir, "raw", step.Dir))
				}
			}
		})
	}
}

var number = regexp.MustCompile(`[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?`)

// numbers replaces what each source names: a JSON pointer ("stdout:/jobs/0"),
// or lines ("stdout:3", "stdout:3-9"), by N/A.
func (m *mutator) numbers(a attemptDir, attempt evidence.MeasuredAttempt) {
	seen := map[string]bool{}
	for _, measurement := range attempt.Measurements {
		for _, source := range strings.Split(measurement.Source, ",") {
			if source = strings.TrimSpace(source); source == "" || seen[source] {
				continue
			}
			seen[source] = true
			file, place, ok := strings.Cut(source, ":")
			path := filepath.Join(a.dir, "raw", filepath.FromSlash(file))
			if !ok {
				m.t.Errorf("%s: source %q names no place in its file", measurement.Metric, source)
				continue
			}
			m.mutate("number to N/A", source, a, func() { m.write(path, m.blank(m.read(path), source, place)) })
		}
	}
}

// blank is text with the numbers at place replaced by N/A.
func (m *mutator) blank(text []byte, source, place string) []byte {
	if strings.HasPrefix(place, "/") {
		start := bytes.IndexByte(text, '{')
		var document any
		decoder := json.NewDecoder(bytes.NewReader(text[max(start, 0):]))
		decoder.UseNumber()
		if err := decoder.Decode(&document); err != nil {
			m.t.Fatalf("%s: %v", source, err)
		}
		if !setPointer(document, strings.Split(place[1:], "/")) {
			m.t.Fatalf("%s: no such place", source)
		}
		out, err := json.Marshal(document)
		if err != nil {
			m.t.Fatal(err)
		}
		return append(out, '\n')
	}
	first, last, ranged := strings.Cut(place, "-")
	from, err := strconv.Atoi(first)
	if err != nil {
		m.t.Fatalf("source %q: want a JSON pointer or lines", source)
	}
	to := from
	if ranged {
		if to, err = strconv.Atoi(last); err != nil {
			m.t.Fatalf("source %q: want a JSON pointer or lines", source)
		}
	}
	lines := strings.SplitAfter(string(text), "\n")
	if from < 1 || to > len(lines) {
		m.t.Fatalf("source %q: the file has %d lines", source, len(lines))
	}
	for i := from - 1; i < to; i++ {
		lines[i] = number.ReplaceAllString(lines[i], "N/A")
	}
	return []byte(strings.Join(lines, ""))
}

func setPointer(document any, path []string) bool {
	token := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	switch d := document.(type) {
	case map[string]any:
		child, ok := d[token]
		if !ok {
			return false
		}
		if len(path) == 1 {
			d[token] = "N/A"
			return true
		}
		return setPointer(child, path[1:])
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(d) {
			return false
		}
		if len(path) == 1 {
			d[i] = "N/A"
			return true
		}
		return setPointer(d[i], path[1:])
	}
	return false
}

// subjects takes each subject's measurements away, as a check would that
// forgot it.
func (m *mutator) subjects(i int) {
	subjects := map[evidence.Subject]bool{}
	for _, attempt := range m.results[i].Attempts {
		for _, measurement := range attempt.Measurements {
			subjects[measurement.Subject] = true
		}
	}
	for subject := range subjects {
		result := m.results[i]
		result.Attempts = slices.Clone(result.Attempts)
		for j := range result.Attempts {
			result.Attempts[j].Measurements = slices.DeleteFunc(slices.Clone(result.Attempts[j].Measurements),
				func(x evidence.Measurement) bool { return x.Subject == subject })
		}
		m.judge("drop subject", string(subject), i, result)
	}
}

// mutate makes one change in the copy of an attempt, redoes what an honest
// recorder would have written, judges, and restores the copy.
func (m *mutator) mutate(kind, what string, a attemptDir, change func()) {
	m.t.Helper()
	m.touched = nil
	change()
	digest := m.redo(a)
	cell := m.results[a.cell].Cell.ID
	records := m.recordsOf(cell, func(evidence.Record) bool { return true })
	for i := range records {
		if records[i].Event == evidence.EventAttemptEnd && records[i].Attempt == a.number {
			records[i].Document = digest
		}
	}
	m.remeasured(kind, cell+": "+what, a.cell, records, a.root)
	for _, path := range m.touched {
		name, err := filepath.Rel(a.root, path)
		if err != nil {
			m.t.Fatal(err)
		}
		m.restore(filepath.Join(m.run, name), path)
	}
}

// restore puts the file or folder at path back as it was in the run.
func (m *mutator) restore(from, path string) {
	if err := os.RemoveAll(path); err != nil {
		m.t.Fatal(err)
	}
	info, err := os.Stat(from)
	if err != nil {
		m.t.Fatal(err)
	}
	if info.IsDir() {
		err = os.CopyFS(path, os.DirFS(from))
	} else {
		err = os.WriteFile(path, m.read(from), 0o644)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// redo writes exit.json and attempt.json anew from what is on disk, and
// returns the digest of attempt.json.
func (m *mutator) redo(a attemptDir) evidence.Digest {
	path := filepath.Join(a.dir, "attempt.json")
	var attempt evidence.Attempt
	if err := json.Unmarshal(m.read(path), &attempt); err != nil {
		m.t.Fatal(err)
	}
	attempt.Steps = slices.DeleteFunc(attempt.Steps, func(s evidence.Step) bool {
		_, err := os.Stat(filepath.Join(a.dir, "raw", s.Dir))
		return err != nil
	})
	for _, step := range attempt.Steps {
		m.redoExit(filepath.Join(a.dir, "raw", step.Dir))
	}
	attempt.Files = nil
	for _, file := range m.rawFiles(a) {
		name, err := filepath.Rel(a.dir, file)
		if err != nil {
			m.t.Fatal(err)
		}
		content := m.read(file)
		attempt.Files = append(attempt.Files, evidence.File{Path: filepath.ToSlash(name), Size: int64(len(content)), Digest: evidence.DigestOf(content)})
	}
	slices.SortFunc(attempt.Files, func(x, y evidence.File) int { return strings.Compare(x.Path, y.Path) })
	document, err := evidence.Encode(attempt)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(path, document)
	return evidence.DigestOf(document)
}

func (m *mutator) redoExit(dir string) {
	path := filepath.Join(dir, "exit.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return
	}
	var exit evidence.Exit
	if json.Unmarshal(text, &exit) != nil {
		return // halved: an honest recorder has no other
	}
	before := exit
	for name, count := range map[string]*int64{"stdout": &exit.StdoutBytes, "stderr": &exit.StderrBytes} {
		*count = 0
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			*count = info.Size()
		}
	}
	if exit.StdoutBytes == before.StdoutBytes && exit.StderrBytes == before.StderrBytes {
		return
	}
	document, err := evidence.Encode(exit)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(path, document)
}

// recordsOf are copies of the journal's records about one cell that keep
// holds.
func (m *mutator) recordsOf(cell string, keep func(evidence.Record) bool) []evidence.Record {
	var records []evidence.Record
	for _, r := range m.records {
		if r.Cell == cell && keep(r) {
			records = append(records, r)
		}
	}
	return records
}

// remeasured derives one cell again, below root, and judges the whole.
func (m *mutator) remeasured(kind, what string, i int, records []evidence.Record, root string) {
	m.t.Helper()
	one := *m.plan
	one.Cells = []evidence.Cell{m.results[i].Cell}
	results := checks.Measure(m.catalog, &one, records, os.DirFS(root))
	if len(results) != 1 {
		m.t.Fatalf("%s: %d results for one cell", what, len(results))
	}
	m.judge(kind, what, i, results[0])
}

func (m *mutator) judge(kind, what string, i int, result evidence.CellResult) {
	m.t.Helper()
	results := slices.Clone(m.results)
	results[i] = result
	m.count[kind]++
	if verdict := thresholds.Judge(m.plan, results); verdict.Outcome == evidence.Pass {
		m.t.Errorf("%s, %s: still a pass", kind, what)
	}
}

func (m *mutator) rawFiles(a attemptDir) []string {
	var files []string
	err := filepath.WalkDir(filepath.Join(a.dir, "raw"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return files
}

func (m *mutator) read(path string) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return content
}

func (m *mutator) write(path string, content []byte) {
	m.touched = append(m.touched, path)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mutator) remove(path string) {
	m.touched = append(m.touched, path)
	if err := os.RemoveAll(path); err != nil {
		m.t.Fatal(err)
	}
}
