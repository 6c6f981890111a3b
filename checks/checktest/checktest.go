// Package checktest holds a check's Measure against recorded raw output: good
// output must give what was written down, and damaged output must never pass
// for good.
package checktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
)

var update = flag.Bool("update", false, "rewrite want.json of every case")

// Want is what a case's want.json holds.
type Want struct {
	Measurements []evidence.Measurement `json:"measurements"`
	Facts        []evidence.Fact        `json:"facts"`
	Problems     []evidence.Problem     `json:"problems"`
}

// Case is one recorded attempt: testdata/<check>/<name>/{view.json,raw/…}.
type Case struct {
	Name string
	Dir  string
	View evidence.CellView
	Raw  fstest.MapFS
}

// Whole reports whether the case's output is whole, so that it has no
// problem: by its name, which begins with "good".
func (c Case) Whole() bool { return strings.HasPrefix(c.Name, "good") }

// Healthy reports whether what it says is good news, too: its name does not
// begin with "good_but".
func (c Case) Healthy() bool { return c.Whole() && !strings.HasPrefix(c.Name, "good_but") }

// Cases reads the cases of a check, sorted by name. A case is a folder with
// view.json and raw/…; or it holds only what differs from another one, which
// the first line of its file base names. Further lines of that file, "- path",
// take files below raw/ away.
func Cases(t testing.TB, check checks.Check) []Case {
	t.Helper()
	root := filepath.Join("testdata", check.Spec().Name)
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatalf("read cases: %v", err)
	}
	var cases []Case
	for _, entry := range entries {
		cases = append(cases, read(t, root, entry.Name()))
	}
	if len(cases) == 0 {
		t.Fatalf("%s has no cases", root)
	}
	return cases
}

func read(t testing.TB, root, name string) Case {
	t.Helper()
	c := Case{Name: name, Dir: filepath.Join(root, name), Raw: make(fstest.MapFS)}
	if base, err := os.ReadFile(filepath.Join(c.Dir, "base")); err == nil {
		lines := strings.Split(strings.TrimSuffix(string(base), "\n"), "\n")
		from := read(t, root, lines[0])
		c.View, c.Raw = from.View, from.Raw
		for _, line := range lines[1:] {
			file, ok := strings.CutPrefix(line, "- ")
			if !ok || c.Raw[file] == nil {
				t.Fatalf("%s/base: %q takes no file of %s away", c.Dir, line, lines[0])
			}
			delete(c.Raw, file)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(c.Dir, "view.json"))
	switch {
	case err == nil:
		c.View = evidence.CellView{}
		if err := json.Unmarshal(data, &c.View); err != nil {
			t.Fatalf("%s/view.json: %v", c.Dir, err)
		}
	case c.View.Test.Name == "":
		t.Fatalf("read case: %v", err)
	}
	maps.Copy(c.Raw, load(t, os.DirFS(filepath.Join(c.Dir, "raw"))))
	return c
}

func load(t testing.TB, fsys fs.FS) fstest.MapFS {
	t.Helper()
	files := make(fstest.MapFS)
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == "." {
			return nil // nothing differs
		}
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		files[name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatalf("read raw output: %v", err)
	}
	return files
}

// Measure measures the case as the product does, with the whole of
// checks.MeasureAttempt around the check.
func Measure(check checks.Check, view evidence.CellView, raw fs.FS) evidence.MeasuredAttempt {
	cell := view.Cell
	cell.Nodes = strings.Join(view.Nodes, ",")
	cell.Test = view.Test.Name
	plan := &evidence.Plan{Fleet: view.Fleet, Tests: []evidence.Test{view.Test}, Cells: []evidence.Cell{cell}}
	return checks.MeasureAttempt(checks.Catalog{check}, plan, cell, evidence.MeasuredAttempt{Attempt: view.Attempt}, raw)
}

// Golden compares what every case of the check measures with its want.json;
// with -update it writes the file.
func Golden(t *testing.T, check checks.Check) {
	t.Helper()
	for _, c := range Cases(t, check) {
		t.Run(c.Name, func(t *testing.T) {
			measured := Measure(check, c.View, c.Raw)
			want := Want{measured.Measurements, measured.Facts, measured.Unmeasured}
			got, err := json.MarshalIndent(want, "", "  ")
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			got = append(got, '\n')
			file := filepath.Join(c.Dir, "want.json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			expected, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("read golden: %v (run the test with -update to write it)", err)
			}
			if !bytes.Equal(got, expected) {
				t.Errorf("%s differs:\n%s", file, difference(string(expected), string(got)))
			}
			if clean := len(measured.Unmeasured) == 0; clean != c.Whole() {
				t.Errorf("case %s: problems are %v; a case whose name begins with \"good\" has none, and every other one has", c.Name, measured.Unmeasured)
			}
		})
	}
}

// difference shows the first line that differs, with what came before it.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			from := max(0, i-3)
			return fmt.Sprintf("line %d\nwant:\n%s\ngot:\n%s", i+1,
				strings.Join(a[min(from, len(a)):min(i+8, len(a))], "\n"), strings.Join(b[min(from, len(b)):min(i+8, len(b))], "\n"))
		}
	}
	return "(nothing)"
}

// Damage takes each healthy case and damages one file after the other: removes
// it, empties it, keeps its first half or any sixteenth, puts N/A in place of
// every number that a measurement names as its source. The byte counts of
// exit.json are redone each time, as a careful forger would. The result must
// then have a problem, or lack a value that the good case has. Alternatively
// one of the metrics named in fails has become larger than it was: damage
// that a bound of zero turns into a failure is no pass either.
func Damage(t *testing.T, check checks.Check, fails ...string) {
	t.Helper()
	tried := 0
	for _, c := range Cases(t, check) {
		if !c.Healthy() {
			continue
		}
		good := Measure(check, c.View, c.Raw)
		try := func(t *testing.T, what, name string, data []byte) {
			t.Helper()
			if data != nil && bytes.Equal(data, c.Raw[name].Data) {
				return
			}
			tried++
			bad := Measure(check, c.View, damaged(c.Raw, name, data))
			for _, p := range bad.Unmeasured {
				if p.Class == evidence.ClassPanic {
					t.Errorf("%s %s: %s", name, what, p.Detail)
				}
			}
			if Clean(good, bad) && !worse(good, bad, fails) {
				t.Errorf("%s %s is still measured without a problem", name, what)
			}
		}
		t.Run(c.Name, func(t *testing.T) {
			for _, name := range slices.Sorted(maps.Keys(c.Raw)) {
				data := c.Raw[name].Data
				try(t, "removed", name, nil)
				try(t, "emptied", name, []byte{})
				try(t, "halved", name, data[:len(data)/2])
				for i := 1; i < 16; i++ {
					try(t, fmt.Sprintf("cut at %d/16", i), name, data[:len(data)*i/16])
				}
			}
			for _, one := range good.Measurements {
				if name, data, ok := withoutNumber(c.Raw, one.Source); ok {
					try(t, "with N/A at "+one.Source, name, data)
				}
			}
		})
	}
	if tried == 0 {
		t.Fatalf("check %s has no good case to damage", check.Spec().Name)
	}
}

// OtherCommand has each step of each healthy case say that it ran another
// command, honestly and in every other respect unchanged: with a word more or
// less, with any word another one, with true alone, and with none. The result
// must have a problem of that step on that node, and nothing that was read
// from its output.
func OtherCommand(t *testing.T, check checks.Check) {
	t.Helper()
	tried := 0
	for _, c := range Cases(t, check) {
		if !c.Healthy() {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.Raw)) {
			dir, file := path.Split(name)
			if file != "exit.json" {
				continue
			}
			dir = path.Clean(dir)
			var exit evidence.Exit
			if err := json.Unmarshal(c.Raw[name].Data, &exit); err != nil {
				t.Fatalf("%s/raw/%s: %v", c.Dir, name, err)
			}
			argv := exit.Argv
			others := [][]string{nil, {"true"}, argv[:len(argv)-1], append(slices.Clone(argv), "more")}
			for i := range argv {
				other := slices.Clone(argv)
				other[i] += "0"
				others = append(others, other)
			}
			for _, other := range others {
				tried++
				exit.Argv = other
				data, err := json.Marshal(exit)
				if err != nil {
					t.Fatal(err)
				}
				a := Measure(check, c.View, damaged(c.Raw, name, data))
				if !slices.ContainsFunc(a.Unmeasured, func(p evidence.Problem) bool {
					return p.Class == evidence.ClassUnparsable && evidence.StepDir(p.Step, p.Node) == dir
				}) {
					t.Errorf("%s: %s with argv %q: no problem says so: %v", c.Name, dir, other, a.Unmeasured)
				}
				for _, one := range a.Measurements {
					if strings.HasPrefix(one.Source, dir+"/") {
						t.Errorf("%s: %s with argv %q: %s is still measured from it", c.Name, dir, other, one.Metric)
					}
				}
				for _, one := range a.Facts {
					if strings.HasPrefix(one.Source, dir+"/") {
						t.Errorf("%s: %s with argv %q: %s is still read from it", c.Name, dir, other, one.Name)
					}
				}
			}
		}
	}
	if tried == 0 {
		t.Fatalf("check %s has no step that could have run another command", check.Spec().Name)
	}
}

// Clean reports whether bad passes for good: it has no problem, and every
// value that good has.
func Clean(good, bad evidence.MeasuredAttempt) bool {
	if len(bad.Unmeasured) > 0 {
		return false
	}
	have := make(map[string]bool)
	for _, one := range bad.Measurements {
		have[fmt.Sprint(one.Metric, one.Subject, one.Labels)] = one.Missing == ""
	}
	for _, one := range bad.Facts {
		have[fmt.Sprint("fact ", one.Name, one.Subject)] = one.Missing == ""
	}
	for _, one := range good.Measurements {
		if one.Missing == "" && !have[fmt.Sprint(one.Metric, one.Subject, one.Labels)] {
			return false
		}
	}
	for _, one := range good.Facts {
		if one.Missing == "" && !have[fmt.Sprint("fact ", one.Name, one.Subject)] {
			return false
		}
	}
	return true
}

func worse(good, bad evidence.MeasuredAttempt, metrics []string) bool {
	values := make(map[string]float64)
	for _, one := range good.Measurements {
		values[fmt.Sprint(one.Metric, one.Subject, one.Labels)] = one.Value
	}
	for _, one := range bad.Measurements {
		if slices.Contains(metrics, one.Metric) && one.Value > values[fmt.Sprint(one.Metric, one.Subject, one.Labels)] {
			return true
		}
	}
	return false
}

// damaged is raw with one file replaced, or removed where data is nil, and
// the byte counts beside it redone.
func damaged(raw fstest.MapFS, name string, data []byte) fstest.MapFS {
	files := maps.Clone(raw)
	if data == nil {
		delete(files, name)
		return files
	}
	files[name] = &fstest.MapFile{Data: data}
	dir, file := path.Split(name)
	if file != "stdout" && file != "stderr" {
		return files
	}
	var exit evidence.Exit
	exitFile := files[dir+"exit.json"]
	if exitFile == nil || json.Unmarshal(exitFile.Data, &exit) != nil {
		return files
	}
	if file == "stdout" {
		exit.StdoutBytes = int64(len(data))
	} else {
		exit.StderrBytes = int64(len(data))
	}
	redone, err := json.Marshal(exit)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	files[dir+"exit.json"] = &fstest.MapFile{Data: redone}
	return files
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// withoutNumber replaces the number at a source, "dir/file:line" or
// "dir/file:/json/pointer", by N/A.
func withoutNumber(raw fstest.MapFS, source string) (name string, data []byte, ok bool) {
	source, _, _ = strings.Cut(source, " (")
	name, place, ok := strings.Cut(source, ":")
	if !ok || raw[name] == nil {
		return "", nil, false
	}
	data = raw[name].Data
	if strings.HasPrefix(place, "/") {
		key := place[strings.LastIndex(place, "/")+1:]
		at := jsonNumberAt(data, strings.Split(place[1:], "/"))
		if at == nil || key == "" {
			return "", nil, false
		}
		return name, slices.Concat(data[:at[0]], []byte(`"N/A"`), data[at[1]:]), true
	}
	line, err := strconv.Atoi(place)
	if err != nil {
		return "", nil, false
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	if line < 1 || line > len(lines) {
		return "", nil, false
	}
	lines[line-1] = number.ReplaceAll(lines[line-1], []byte("N/A"))
	return name, bytes.Join(lines, nil), true
}

// jsonNumberAt finds the bytes of the number at a path of a document.
func jsonNumberAt(data []byte, tokens []string) []int {
	start := bytes.IndexAny(data, "{[")
	if start < 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data[start:]))
	var walk func(depth int, on bool) []int
	walk = func(depth int, on bool) []int {
		token, err := decoder.Token()
		if err != nil {
			return nil
		}
		delim, nested := token.(json.Delim)
		if !nested {
			if !on || depth != len(tokens) {
				return nil
			}
			end := start + int(decoder.InputOffset())
			from := end
			for from > start && bytes.IndexByte([]byte("0123456789.+-eE"), data[from-1]) >= 0 {
				from--
			}
			return []int{from, end}
		}
		for i := 0; decoder.More(); i++ {
			key := strconv.Itoa(i)
			if delim == '{' {
				name, err := decoder.Token()
				if err != nil {
					return nil
				}
				key = name.(string)
			}
			if at := walk(depth+1, on && depth < len(tokens) && tokens[depth] == key); at != nil {
				return at
			}
		}
		if _, err := decoder.Token(); err != nil {
			return nil
		}
		return nil
	}
	at := walk(0, true)
	if at == nil || at[0] == at[1] {
		return nil
	}
	return at
}
