package sshd32_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

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
	var mutations []mutation
	for i := range m.results {
		mutations = append(mutations, m.ofCell(i)...)
	}
	work := make(chan mutation)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for mutation := range work {
				if m.judge(mutation) == evidence.Pass {
					t.Errorf("%s, %s, %s: still a pass", mutation.kind, m.results[mutation.cell].Cell.ID, mutation.what)
				}
			}
		})
	}
	count := map[string]int{}
	for _, mutation := range mutations {
		count[mutation.kind]++
		work <- mutation
	}
	close(work)
	group.Wait()

	for _, kind := range []string{"drop cell", "drop attempt", "drop node", "drop step", "drop file", "empty file", "halve file", "number to N/A", "drop subject"} {
		if count[kind] == 0 {
			t.Errorf("no mutation of kind %q was made", kind)
		}
		t.Logf("%6d  %s", count[kind], kind)
	}
	t.Logf("%6d  mutations, none of which may be a pass", len(mutations))
}

// A mutation is one damage to one cell.
type mutation struct {
	kind, what string
	cell       int
	// result replaces the cell's result; or else
	result *evidence.CellResult
	// change damages the files of attempt number, and everything is derived
	// again from them; or else, with no change, the journal has no attempt.
	number int
	change func(files)
}

// files are an attempt's, by path inside the run directory.
type files map[string][]byte

func (f files) below(dir string) []string {
	var paths []string
	for name := range f {
		if strings.HasPrefix(name, dir+"/") {
			paths = append(paths, name)
		}
	}
	slices.Sort(paths)
	return paths
}

func (f files) dropBelow(dir string) {
	for _, name := range f.below(dir) {
		delete(f, name)
	}
}

// forget takes a node out of an attempt's list of nodes.
func (f files) forget(t *testing.T, name, node string) {
	var attempt evidence.Attempt
	if err := json.Unmarshal(f[name], &attempt); err != nil {
		t.Error(err)
	}
	attempt.Nodes = slices.DeleteFunc(attempt.Nodes, func(n string) bool { return n == node })
	document, err := evidence.Encode(attempt)
	if err != nil {
		t.Error(err)
	}
	f[name] = document
}

type mutator struct {
	t        *testing.T
	plan     *evidence.Plan
	records  map[string][]evidence.Record // by cell
	catalog  checks.Catalog
	results  []evidence.CellResult // of the undamaged run
	attempts map[string]files      // by directory
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
	m := &mutator{t: t, plan: bundle.Plan, records: map[string][]evidence.Record{}, catalog: checks.Builtin(), attempts: map[string]files{}}
	m.results = checks.Measure(m.catalog, bundle.Plan, bundle.Records, fsys)
	if verdict := thresholds.Judge(bundle.Plan, m.results); verdict.Outcome != evidence.Pass {
		t.Fatalf("the undamaged run is %v, so damaging it shows nothing", verdict.Outcome)
	}
	for _, r := range bundle.Records {
		m.records[r.Cell] = append(m.records[r.Cell], r)
	}
	for _, result := range m.results {
		for _, attempt := range result.Attempts {
			dir := evidence.AttemptPath(result.Cell.ID, attempt.Number)
			content := files{}
			for _, f := range append(attempt.Files, evidence.File{Path: "attempt.json"}) {
				content[path.Join(dir, f.Path)] = read(t, filepath.Join(shared.run, dir, f.Path))
			}
			m.attempts[dir] = content
		}
	}
	return m
}

// ofCell lists every mutation of cell i.
func (m *mutator) ofCell(i int) []mutation {
	cell := m.results[i].Cell
	all := []mutation{
		{kind: "drop cell", what: "the whole", cell: i, result: &evidence.CellResult{
			Cell: cell, Skipped: &evidence.Problem{Class: evidence.ClassNotRun, Detail: "dropped"},
		}},
		{kind: "drop attempt", what: "all records", cell: i},
	}
	all = append(all, m.subjects(i)...)
	for _, attempt := range m.results[i].Attempts {
		all = append(all, m.ofAttempt(i, attempt)...)
	}
	return all
}

func (m *mutator) ofAttempt(i int, attempt evidence.MeasuredAttempt) []mutation {
	dir := evidence.AttemptPath(m.results[i].Cell.ID, attempt.Number)
	var all []mutation
	add := func(kind, what string, change func(files)) {
		all = append(all, mutation{kind: kind, what: what, cell: i, number: attempt.Number, change: change})
	}
	content := m.attempts[dir]
	for _, name := range content.below(path.Join(dir, "raw")) {
		whole, short := content[name], strings.TrimPrefix(name, dir+"/")
		add("drop file", short, func(f files) { delete(f, name) })
		if len(whole) > 0 {
			add("empty file", short, func(f files) { f[name] = nil })
		}
		if len(whole) > 1 {
			add("halve file", short, func(f files) { f[name] = whole[:len(whole)/2] })
		}
	}
	for _, step := range attempt.Steps {
		add("drop step", step.Dir, func(f files) { f.dropBelow(path.Join(dir, "raw", step.Dir)) })
	}
	for _, node := range attempt.Nodes {
		add("drop node", node, func(f files) {
			f.forget(m.t, path.Join(dir, "attempt.json"), node)
			for _, step := range attempt.Steps {
				if step.Node == node {
					f.dropBelow(path.Join(dir, "raw", step.Dir))
				}
			}
		})
	}
	for _, source := range sources(attempt) {
		file, place, ok := strings.Cut(source, ":")
		if !ok {
			m.t.Errorf("%s: source %q names no place in its file", dir, source)
			continue
		}
		name := path.Join(dir, "raw", file)
		damaged := m.blank(content[name], source, place)
		add("number to N/A", source, func(f files) { f[name] = damaged })
	}
	return all
}

// sources are the places that the attempt's measurements name, each once.
func sources(attempt evidence.MeasuredAttempt) []string {
	var places []string
	for _, measurement := range attempt.Measurements {
		// What stands in brackets explains, and names no place.
		source, _, _ := strings.Cut(measurement.Source, " (")
		for place := range strings.SplitSeq(source, ",") {
			if place = strings.TrimSpace(place); place != "" && !slices.Contains(places, place) {
				places = append(places, place)
			}
		}
	}
	return places
}

var number = regexp.MustCompile(`[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?`)

// blank is text with the numbers at place replaced by N/A; a place is a JSON
// pointer ("/jobs/0") or lines ("3", "3-9").
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
func (m *mutator) subjects(i int) []mutation {
	subjects := map[evidence.Subject]bool{}
	for _, attempt := range m.results[i].Attempts {
		for _, measurement := range attempt.Measurements {
			subjects[measurement.Subject] = true
		}
	}
	var all []mutation
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		result := m.results[i]
		result.Attempts = slices.Clone(result.Attempts)
		for j := range result.Attempts {
			result.Attempts[j].Measurements = slices.DeleteFunc(slices.Clone(result.Attempts[j].Measurements),
				func(x evidence.Measurement) bool { return x.Subject == subject })
		}
		all = append(all, mutation{kind: "drop subject", what: string(subject), cell: i, result: &result})
	}
	return all
}

// judge makes the mutation, lets the recorder redo its documents, derives the
// cell again and judges the whole run with it.
func (m *mutator) judge(x mutation) evidence.Outcome {
	results := slices.Clone(m.results)
	if x.result != nil {
		results[x.cell] = *x.result
	} else {
		results[x.cell] = m.derive(x)
	}
	return thresholds.Judge(m.plan, results).Outcome
}

func (m *mutator) derive(x mutation) evidence.CellResult {
	cell := m.results[x.cell].Cell
	content := files{}
	for _, attempt := range m.results[x.cell].Attempts {
		maps.Copy(content, m.attempts[evidence.AttemptPath(cell.ID, attempt.Number)])
	}
	var records []evidence.Record
	if x.change != nil {
		records = slices.Clone(m.records[cell.ID])
		x.change(content)
		document := m.redo(content, evidence.AttemptPath(cell.ID, x.number))
		for i := range records {
			if records[i].Event == evidence.EventAttemptEnd && records[i].Attempt == x.number {
				records[i].Document = document
			}
		}
	}
	fsys := fstest.MapFS{}
	for name, data := range content {
		fsys[name] = &fstest.MapFile{Data: data, Mode: 0o644}
	}
	one := *m.plan
	one.Cells = []evidence.Cell{cell}
	derived := checks.Measure(m.catalog, &one, records, fsys)
	if len(derived) != 1 {
		m.t.Errorf("%s: %d results for one cell", cell.ID, len(derived))
		return evidence.CellResult{Cell: cell}
	}
	return derived[0]
}

// redo writes exit.json and attempt.json anew, as they would have been had the
// recorder never seen more, and returns the digest of attempt.json.
func (m *mutator) redo(f files, dir string) evidence.Digest {
	name := path.Join(dir, "attempt.json")
	var attempt evidence.Attempt
	if err := json.Unmarshal(f[name], &attempt); err != nil {
		m.t.Error(err)
	}
	left := f.below(path.Join(dir, "raw"))
	there := map[string]bool{}
	for _, file := range left {
		there[path.Base(path.Dir(file))] = true
	}
	attempt.Steps = slices.DeleteFunc(attempt.Steps, func(s evidence.Step) bool { return !there[s.Dir] })
	for _, step := range attempt.Steps {
		m.redoExit(f, path.Join(dir, "raw", step.Dir))
	}
	attempt.Files = nil
	for _, file := range left {
		attempt.Files = append(attempt.Files, evidence.File{Path: strings.TrimPrefix(file, dir+"/"), Size: int64(len(f[file])), Digest: evidence.DigestOf(f[file])})
	}
	document, err := evidence.Encode(attempt)
	if err != nil {
		m.t.Error(err)
	}
	f[name] = document
	return evidence.DigestOf(document)
}

func (m *mutator) redoExit(f files, dir string) {
	name := path.Join(dir, "exit.json")
	var exit evidence.Exit
	if json.Unmarshal(f[name], &exit) != nil {
		return // dropped or halved: an honest recorder has no other
	}
	stdout, stderr := int64(len(f[path.Join(dir, "stdout")])), int64(len(f[path.Join(dir, "stderr")]))
	if exit.StdoutBytes == stdout && exit.StderrBytes == stderr {
		return
	}
	exit.StdoutBytes, exit.StderrBytes = stdout, stderr
	document, err := evidence.Encode(exit)
	if err != nil {
		m.t.Error(err)
	}
	f[name] = document
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
