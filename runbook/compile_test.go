package runbook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/thresholds"
)

// compiled is the bytes of the plan; any diagnostic fails the test.
func compiled(t testing.TB, fsys fs.FS, name string, in Inputs) ([]byte, *Runbook) {
	t.Helper()
	r, plan, diags := compileAll(fsys, name, in)
	if len(diags) > 0 {
		t.Fatalf("diagnostics:\n%s", text(t, diags, r.Files()))
	}
	data, err := evidence.Encode(plan)
	if err != nil {
		t.Fatal(err)
	}
	return data, r
}

// TestRecompile holds the promise that verify stands on: the sources and the
// variables of a plan give the same plan, byte for byte.
func TestRecompile(t *testing.T) {
	for _, file := range runbooks(t, "valid") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, name := inputsOf(t, src), filepath.Base(file)
			in.Dir = "/somewhere"
			first, r := compiled(t, os.DirFS("testdata/valid"), name, in)
			again, _ := compiled(t, os.DirFS("testdata"), "valid/"+name, in)
			if !bytes.Equal(first, again) {
				t.Error("two compilations differ")
			}
			if second, diags := r.Compile(); diags.HasErrors() {
				t.Error(diags)
			} else if data, err := evidence.Encode(second); err != nil || !bytes.Equal(first, data) {
				t.Errorf("Compile twice differs: %v", err)
			}

			var plan evidence.Plan
			if err := json.Unmarshal(first, &plan); err != nil {
				t.Fatal(err)
			}
			enclosed := fstest.MapFS{}
			for path, data := range r.Sources() {
				enclosed[path] = &fstest.MapFile{Data: data}
			}
			if len(plan.Sources) != len(enclosed) {
				t.Errorf("%d sources in the plan, %d enclosed", len(plan.Sources), len(enclosed))
			}
			values := map[string]json.RawMessage{}
			for _, v := range plan.Variables {
				values[v.Name] = v.Value
			}
			alone, _ := compiled(t, enclosed, plan.Path, Inputs{Values: values, Dir: "/elsewhere", SkipRequiredVersion: true, ToolVersion: "9.0.0"})
			if !bytes.Equal(first, alone) {
				t.Errorf("recompiled from its sources the plan differs:\n%s", alone)
			}
		})
	}
}

// TestSeed: another text or another value draws differently.
func TestSeed(t *testing.T) {
	src, err := os.ReadFile("testdata/valid/minimal.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	src = append(src, "variable \"soak\" {\n  type = string\n}\n"...)
	seeds := map[string]bool{}
	for _, edit := range []struct{ text, soak string }{{"", "1h"}, {"", "2h"}, {"# more\n", "1h"}, {"", "1h"}} {
		fsys := fstest.MapFS{"x.runbook.hcl": {Data: append([]byte(edit.text), src...)}}
		_, plan, diags := compileAll(fsys, "x.runbook.hcl", Inputs{Vars: map[string]string{"soak": edit.soak}})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		seeds[plan.Seed] = true
	}
	if len(seeds) != 3 {
		t.Errorf("%d different seeds, want 3", len(seeds))
	}
}

func TestExecutor(t *testing.T) {
	_, r := compiled(t, os.DirFS("testdata/valid"), "minimal.runbook.hcl", Inputs{Dir: "/srv/pod 7"})
	kind, config := r.Executor()
	want := `{"user":"acceptance","port":22,"known_hosts":"` + filepath.Join("/srv/pod 7", "known_hosts") + `","identity":"agent"}`
	if kind != "ssh" || string(config) != want {
		t.Errorf("executor %s %s, want ssh %s", kind, config, want)
	}
}

func TestExecutorPaths(t *testing.T) {
	minimal, err := os.ReadFile("testdata/valid/minimal.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"../hosts": "/srv/hosts", "/etc/hosts": "/etc/hosts", "~/.ssh/hosts": "~/.ssh/hosts", "a/../b": "/srv/pod/b"} {
		src := strings.Replace(string(minimal), "user = \"acceptance\"", fmt.Sprintf("user = \"acceptance\"\n    known_hosts = %q", given), 1)
		_, r := compiled(t, fstest.MapFS{"x.runbook.hcl": {Data: []byte(src)}}, "x.runbook.hcl", Inputs{Dir: "/srv/pod"})
		_, config := r.Executor()
		var got struct {
			KnownHosts string `json:"known_hosts"`
		}
		if err := json.Unmarshal(config, &got); err != nil || got.KnownHosts != want {
			t.Errorf("known_hosts = %q gives %q, want %q (%v)", given, got.KnownHosts, want, err)
		}
	}
}

func TestPairs(t *testing.T) {
	for _, test := range []struct {
		nodes string
		want  string
	}{
		{"a", "[]"},
		{"a b", "[[a b]]"},
		{"a b c", "[[b c] [a c] [a b]]"},
		{"a b c d", "[[a d] [b c] [a c] [b d] [a b] [c d]]"},
	} {
		if got := fmt.Sprint(pairs(strings.Fields(test.nodes))); got != test.want {
			t.Errorf("pairs of %s: %s, want %s", test.nodes, got, test.want)
		}
	}
}

// TestTournament: each pair has one cell, and in each round each node meets one
// other.
func TestTournament(t *testing.T) {
	for n := 2; n <= 33; n++ {
		var nodes []string
		for i := range n {
			nodes = append(nodes, fmt.Sprintf("n%02d", i))
		}
		all := pairs(nodes)
		if len(all) != pairCount(n) {
			t.Fatalf("%d nodes: %d pairs, want %d", n, len(all), pairCount(n))
		}
		met := map[[2]string]bool{}
		for round := range slices.Chunk(all, n/2) {
			busy := map[string]bool{}
			for _, pair := range round {
				if pair[0] >= pair[1] || met[pair] || busy[pair[0]] || busy[pair[1]] {
					t.Errorf("%d nodes: pair %v is out of order, there twice, or has a node that is busy in its round", n, pair)
				}
				met[pair], busy[pair[0]], busy[pair[1]] = true, true, true
			}
		}
	}
}

// TestPairsThatShareAName: a cell that would lie where another lies is refused.
func TestPairsThatShareAName(t *testing.T) {
	r, diags := loadBytes(minimalWith(t, "", ""), Inputs{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	r.tests = r.tests[:1]
	r.tests[0].Name, r.tests[0].Scope, r.tests[0].nodes = "x", evidence.ScopePair, nil
	for i := range 512 {
		r.tests[0].nodes = append(r.tests[0].nodes, fmt.Sprintf("gpu%03d", i+1))
	}
	c := newCompiler(r)
	c.cells(&evidence.Plan{}, 0)
	if len(c.diags) != 1 || ruleOf(c.diags[0]) != RulePlanTooLarge || !strings.Contains(c.diags[0].Detail, "would share the name x/set-") {
		t.Errorf("diagnostics: %v", c.diags)
	}
}

// TestMeasured: what is expected is what the cells give.
func TestMeasured(t *testing.T) {
	for _, row := range []struct {
		nodes, level string
		scope        evidence.Scope
		want         int
	}{
		{"a b c", "node/gpu", evidence.ScopeNode, 2},
		{"a b c", "fleet", evidence.ScopeNode, 6},
		{"a b c", "node", evidence.ScopeFleet, 2},
		{"a b c", "fleet", evidence.ScopeFleet, 2},
		{"a b", "node", evidence.ScopePair, 2},
		{"a b", "fleet", evidence.ScopePair, 2},
		{"a b c", "node", evidence.ScopePair, 4},
		{"a b c", "node/nic", evidence.ScopePair, 4},
		{"a b c", "node/nic/peer", evidence.ScopePair, 2},
		{"a b c", "node/peer", evidence.ScopePair, 2},
		{"a b c d", "node", evidence.ScopePair, 6},
		{"a b c d", "fleet", evidence.ScopePair, 12},
	} {
		measuring := &test{nodes: strings.Fields(row.nodes)}
		measuring.Scope, measuring.Repeat = row.scope, 2
		if got := measuring.measured(row.level); got != row.want {
			t.Errorf("%s of %s by %s: %d cells, want %d", row.level, row.nodes, row.scope, got, row.want)
		}
	}
}

// TestListsOfSubjects: a list that is there already costs the judge nothing,
// and one too many cannot be judged.
func TestListsOfSubjects(t *testing.T) {
	r, diags := loadBytes(minimalWith(t, "", ""), Inputs{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	c := newCompiler(r)
	c.listed = thresholds.MaxExpected - 8
	for range 2 {
		if c.test(r.tests[0]); len(c.diags) > 0 {
			t.Fatalf("%d subjects: %v", c.listed, c.diags)
		}
	}
	c = newCompiler(r)
	c.listed = thresholds.MaxExpected - 7
	if c.test(r.tests[0]); len(c.diags) != 1 || ruleOf(c.diags[0]) != RulePlanTooLarge {
		t.Errorf("%d subjects: %v", c.listed, c.diags)
	}
}

// TestFileStaysInside: file() reads nothing outside of the runbook's folder,
// also through links.
func TestFileStaysInside(t *testing.T) {
	dir := t.TempDir()
	minimal, err := os.ReadFile("testdata/valid/minimal.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, data string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("secret.txt", "secret")
	write("book/basis.txt", "inside")
	write("book/sub/deep.txt", "deep")
	link("../secret.txt", "book/out.txt")
	link(filepath.Join(dir, "secret.txt"), "book/absolute.txt")
	link("..", "book/up")
	link("loop.txt", "book/loop.txt")
	link("sub/deep.txt", "book/in.txt")
	for path, want := range map[string]string{
		"basis.txt":     "inside",
		"sub/deep.txt":  "deep",
		"in.txt":        "deep",
		"out.txt":       "leads out",
		"absolute.txt":  "leads out",
		"up/secret.txt": "leads out",
		"loop.txt":      "leads out",
		"../secret.txt": "leads out",
		"sub/../x.txt":  "leads out",
		"/etc/hostname": "not a path inside",
		"C:/x.txt":      "not a path inside",
		"sub\\\\x.txt":  "not a path inside",
		"./basis.txt":   "plain spelling",
		"sub":           "not a regular file",
		"none.txt":      "no file",
		"":              "empty",
		"a\\u0007b.txt": "cannot be printed",
	} {
		src := strings.Replace(string(minimal), "\"Contract, annex B\"", "file(\""+path+"\")", 1)
		write("book/x.runbook.hcl", src)
		r, plan, diags := compileAll(os.DirFS(dir), "book/x.runbook.hcl", Inputs{})
		if diags.HasErrors() {
			if !strings.Contains(diags[0].Detail, want) || len(diags) != 1 {
				t.Errorf("file(%q): %v, want %q", path, diags, want)
			}
			continue
		}
		if got := plan.Tests[0].Thresholds[0].Basis; got != want {
			t.Errorf("file(%q) = %q, want %q", path, got, want)
		}
		if _, recorded := r.Sources()[path]; !recorded {
			t.Errorf("file(%q) is not among the sources", path)
		}
	}
}

// large is a runbook of 1,000 nodes and 201 tests, a third of them by GPU.
func large(t testing.TB) fs.FS {
	minimal, err := os.ReadFile("testdata/valid/minimal.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(minimal, []byte("test \"bandwidth\""))
	src := bytes.Replace(minimal[:at], []byte("gpu[01-08]"), []byte("gpu[0001-1000]"), 1)
	src = bytes.Replace(src, []byte("  executor"), []byte("  layout = csvdecode(file(\"layout.csv\"))\n\n  expect {\n    gpus = 8\n  }\n\n  executor"), 1)
	for i := range 200 {
		test := strings.Replace(string(minimal[at:]), "bandwidth", fmt.Sprintf("bandwidth_%d", i), 1)
		if i%3 == 0 {
			test = strings.NewReplacer("nccl_allreduce", "gpu_burn", "    sizes = [\"1GiB\", \"16GiB\"]\n", "", "busbw", "gflops",
				"GB/s", "1", "440", "-3.5\n    stat  = \"mad_z\"", "\"10m\"", "\"10m\"\n  hazard   = \"full_power\"").Replace(test)
		}
		src = append(src, test...)
	}
	src = append(src, strings.NewReplacer("bandwidth", "parts", "nccl_allreduce", "inventory", "    sizes = [\"1GiB\", \"16GiB\"]\n", "",
		"busbw", "mismatches", "min   = 440", "max   = 0", "GB/s", "1").Replace(string(minimal[at:]))...)
	layout := []byte("node,rack,unit\n")
	for i := range 1000 {
		layout = fmt.Appendf(layout, "gpu%04d,R%02d,%d\n", i+1, i/20, i%20)
	}
	return fstest.MapFS{"x.runbook.hcl": {Data: src}, "layout.csv": {Data: layout}}
}

func TestLarge(t *testing.T) {
	fsys := large(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, plan, diags := compileAll(fsys, "x.runbook.hcl", Inputs{})
	runtime.ReadMemStats(&after)
	if diags.HasErrors() {
		t.Fatalf("diagnostics:\n%s", text(t, diags, r.Files()))
	}
	if len(plan.Cells) != 201_000 || len(plan.Tests) != 201 {
		t.Errorf("%d cells of %d tests", len(plan.Cells), len(plan.Tests))
	}
	data, err := evidence.Encode(plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 48<<20 {
		t.Errorf("the plan has %d MiB", len(data)>>20)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
		t.Errorf("compiling allocated %d MiB", used>>20)
	}
}

func BenchmarkLarge(b *testing.B) {
	fsys := large(b)
	b.ReportAllocs()
	for b.Loop() {
		_, plan, diags := compileAll(fsys, "x.runbook.hcl", Inputs{})
		if diags.HasErrors() {
			b.Fatal(diags)
		}
		if _, err := evidence.Encode(plan); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzLoad: no crash and no hang on any text; what compiles, compiles again
// from its sources.
func FuzzLoad(f *testing.F) {
	for _, dir := range []string{"valid", "invalid", "warning"} {
		for _, file := range runbooks(f, dir) {
			src, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		in := Inputs{Vars: map[string]string{"soak": string(src[:min(len(src), 20)])}}
		r, plan, diags := compileAll(fstest.MapFS{"x.runbook.hcl": {Data: src}}, "x.runbook.hcl", in)
		_ = text(t, diags, r.Files())
		if diags.HasErrors() {
			return
		}
		first, err := evidence.Encode(plan)
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]json.RawMessage{}
		for _, v := range plan.Variables {
			values[v.Name] = v.Value
		}
		enclosed := fstest.MapFS{}
		for path, data := range r.Sources() {
			enclosed[path] = &fstest.MapFile{Data: data}
		}
		again, _ := compiled(t, enclosed, plan.Path, Inputs{Values: values})
		if !bytes.Equal(first, again) {
			t.Error("recompiled from its sources the plan differs")
		}
	})
}
