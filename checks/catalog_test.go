package checks_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/checks/checktest"
	"github.com/rackproof/rackproof/evidence"
)

// typeName is how the type of a check in <name>.go is called.
func typeName(check string) string {
	words := strings.Split(check, "_")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

// TestMismatches: what is said to judge the expect block is a metric of nodes.
func TestMismatches(t *testing.T) {
	for _, check := range checks.Builtin() {
		spec := check.Spec()
		if spec.Mismatches == "" {
			continue
		}
		if !slices.ContainsFunc(spec.Metrics(json.RawMessage("{}")), func(m checks.Metric) bool { return m.Name == spec.Mismatches && m.Level == "node" }) {
			t.Errorf("check %s: no metric %q of a node", spec.Name, spec.Mismatches)
		}
	}
}

// TestCatalogIsComplete finds every type with the three methods of a Check in
// the source, and wants it in Builtin, in a file of its name, with cases.
func TestCatalogIsComplete(t *testing.T) {
	methods := make(map[string]map[string]string) // type, method, file
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok || function.Recv == nil {
				continue
			}
			receiver := function.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			name := receiver.(*ast.Ident).Name
			if methods[name] == nil {
				methods[name] = make(map[string]string)
			}
			methods[name][function.Name.Name] = source
		}
	}
	var defined []string
	for name, set := range methods {
		if set["Spec"] != "" && set["Drive"] != "" && set["Measure"] != "" {
			defined = append(defined, name)
		}
	}
	slices.Sort(defined)
	var listed []string
	for _, check := range checks.Builtin() {
		name := check.Spec().Name
		listed = append(listed, typeName(name))
		if file := methods[typeName(name)]["Spec"]; file != name+".go" {
			t.Errorf("check %s is defined in %q, want %s.go", name, file, name)
		}
	}
	slices.Sort(listed)
	if !slices.Equal(defined, listed) {
		t.Errorf("the source defines the checks %v and Builtin lists %v", defined, listed)
	}
}

func TestEveryCheckHasCases(t *testing.T) {
	folders, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if _, ok := checks.Builtin().Find(folder.Name()); !ok && folder.Name() != "fuzz" {
			t.Errorf("testdata/%s belongs to no check", folder.Name())
		}
	}
	for _, check := range checks.Builtin() {
		healthy, damaged := 0, 0
		for _, c := range checktest.Cases(t, check) {
			if c.Healthy() {
				healthy++
			}
			if !c.Whole() {
				damaged++
			}
		}
		if healthy == 0 || damaged == 0 {
			t.Errorf("check %s has %d healthy and %d damaged cases, want at least one of each", check.Spec().Name, healthy, damaged)
		}
	}
}

// defaults are the parameters of a check as a plan has them where a runbook
// writes only what is required.
func defaults(t *testing.T, params []evidence.Param, required map[string]any) json.RawMessage {
	t.Helper()
	object := make(map[string]any)
	for _, p := range params {
		if p.Default != nil {
			object[p.Name] = p.Default
		}
		if given, ok := required[p.Name]; ok {
			object[p.Name] = given
		} else if p.Required {
			t.Fatalf("the test gives no %s", p.Name)
		}
	}
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var requiredParams = map[string]map[string]any{
	"command": {"argv": []string{"true"}, "proof": "^done$",
		"metric": []any{map[string]any{"name": "m", "unit": "1", "count": "x"}}},
	"inventory": {"version": []any{map[string]any{"name": "fio", "argv": []string{"fio", "--version"}}},
		"gpus": true, "gpu_slots": []string{"0000:1b:00.0"}, "links": true, "nics": []string{"mlx5_0"}},
	"storage_fio":    {"path": "/mnt/pfs/a", "filesystem": "lustre", "clients": []int{1, 2}},
	"host_burn":      {"kernel_log": true},
	"gpu_burn":       {"kernel_log": true},
	"nccl_allreduce": {"sizes": []string{"8GiB", "16GiB"}},
	"failover": {"accepted": []string{"uname"}, "probe": map[string]any{
		"period": "1s", "timeout": "10s", "write": []string{"put", "{record}"}, "read": []string{"get"}}},
}

func TestSpecs(t *testing.T) {
	for _, check := range checks.Builtin() {
		spec := check.Spec()
		t.Run(spec.Name, func(t *testing.T) {
			if spec.Doc == "" || spec.Version < 1 || len(spec.Scopes) == 0 || len(spec.Loads) == 0 {
				t.Errorf("doc, version, scopes or loads are missing: %+v", spec)
			}
			checkParams(t, spec.Params)
			p := defaults(t, spec.Params, requiredParams[spec.Name])
			if err := spec.Validate(p); err != nil {
				t.Fatalf("Validate(%s): %v", p, err)
			}
			names := make(map[string]bool)
			fleet := evidence.Fleet{Name: "pod", Nodes: []evidence.Node{{Name: "n1"}, {Name: "n2"}}, Expect: []evidence.Expectation{{Fact: "arch", Value: "x86_64"}}}
			scope := spec.Scopes[len(spec.Scopes)-1]
			metrics := spec.Metrics(p)
			if len(metrics) == 0 {
				t.Error("there are no metrics")
			}
			for _, m := range metrics {
				if m.Name == "" || m.Unit == "" || m.Doc == "" || m.Level == "" || names[m.Name] {
					t.Errorf("metric without name, unit, doc or level, or there twice: %+v", m)
				}
				if !slices.Contains([]string{"1", "%", "s", "ms", "h", "1/s", "MiB/s", "Gb/s", "GiB", "C", "W", "MHz", "GFLOP/s", "GB/s", "us"}, m.Unit) {
					t.Errorf("metric %s has the unknown unit %q", m.Name, m.Unit)
				}
				names[m.Name] = true
				if len(spec.Subjects(fleet, []string{"n1", "n2"}, scope, m.Name, p)) == 0 {
					t.Errorf("metric %s has no subjects in scope %s", m.Name, scope)
				}
				for _, label := range m.Labels {
					// A curve has as many slices as the run turns out to be long.
					if label.Name == "" || len(label.Values) == 0 && label.Name != "slice" {
						t.Errorf("metric %s has a label without name or values", m.Name)
					}
				}
			}
			for _, f := range spec.Facts(p) {
				if f.Name == "" || f.Doc == "" || f.Level == "" || names[f.Name] {
					t.Errorf("fact without name, doc or level, or there twice: %+v", f)
				}
				names[f.Name] = true
			}
			for _, garbage := range []string{"", "{}", "null", "[]", `{"x": 1}`} {
				spec.Metrics(json.RawMessage(garbage)) // must not panic
				spec.Facts(json.RawMessage(garbage))
				spec.Subjects(fleet, []string{"n1"}, scope, "x", json.RawMessage(garbage))
				if err := spec.Validate(json.RawMessage(garbage)); err == nil && garbage != "{}" {
					t.Errorf("Validate(%q) accepts it", garbage)
				}
			}
		})
	}
}

func checkParams(t *testing.T, params []evidence.Param) {
	t.Helper()
	for _, p := range params {
		if p.Name == "" || p.Type == "" || p.Doc == "" {
			t.Errorf("parameter without name, type or doc: %+v", p)
		}
		if p.Required && p.Default != nil {
			t.Errorf("parameter %s is required and has a default", p.Name)
		}
		checkParams(t, p.Nested)
	}
}
