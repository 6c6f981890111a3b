package runbook

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/internal/diag"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// inputsOf reads the inputs that a test file asks for in its first line:
//
//	# inputs: {"vars": {"soak": "5m"}, "files": {"a.runvars.hcl": "…"}, "toolVersion": "0.1.0"}
func inputsOf(t testing.TB, src []byte) Inputs {
	line, _, _ := bytes.Cut(src, []byte("\n"))
	text, ok := bytes.CutPrefix(line, []byte("# inputs: "))
	if !ok {
		return Inputs{}
	}
	var asked struct {
		Vars, Env   map[string]string
		Files       map[string]string
		ToolVersion string
	}
	if err := json.Unmarshal(text, &asked); err != nil {
		t.Fatalf("first line: %v", err)
	}
	in := Inputs{Vars: asked.Vars, Env: asked.Env, ToolVersion: asked.ToolVersion}
	for _, name := range slices.Sorted(maps.Keys(asked.Files)) {
		in.Files = append(in.Files, VarFile{Name: name, Bytes: []byte(asked.Files[name])})
	}
	return in
}

// compileAll loads and compiles, and gives every diagnostic.
func compileAll(fsys fs.FS, name string, in Inputs) (*Runbook, *evidence.Plan, hcl.Diagnostics) {
	r, diags := Load(fsys, name, in, catalogue())
	if diags.HasErrors() {
		return r, nil, diags
	}
	plan, more := r.Compile()
	return r, plan, append(diags, more...)
}

func runbooks(t testing.TB, dir string) []string {
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.runbook.hcl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no runbooks in %s: %v", dir, err)
	}
	return files
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}

func TestValid(t *testing.T) {
	for _, file := range runbooks(t, "valid") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, plan, diags := compileAll(os.DirFS(filepath.Dir(file)), filepath.Base(file), inputsOf(t, src))
			if len(diags) > 0 {
				t.Fatalf("diagnostics:\n%s", text(t, diags, r.Files()))
			}
			data, err := evidence.Encode(plan)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".runbook.hcl")+".plan.golden", data)
		})
	}
}

func text(t testing.TB, diags hcl.Diagnostics, files map[string]*hcl.File) string {
	t.Helper()
	var out bytes.Buffer
	if err := diag.Text(&out, diags, files, false, 78); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func ruleOf(d *hcl.Diagnostic) Rule {
	rule, ok := d.Extra.(interface{ RuleID() string })
	if !ok {
		return ""
	}
	return Rule(rule.RuleID())
}

// TestDiagnostics renders what every bad file gives, and checks that each rule
// of the language is broken by at least one of them.
func TestDiagnostics(t *testing.T) {
	broken := map[Rule]bool{}
	note := func(t *testing.T, diags hcl.Diagnostics) {
		t.Helper()
		for _, d := range diags {
			rule := ruleOf(d)
			if !slices.Contains(Rules(), rule) {
				t.Errorf("%s: %q is no rule", d.Summary, rule)
			}
			broken[rule] = true
		}
	}
	for _, dir := range []string{"invalid", "warning"} {
		for _, file := range runbooks(t, dir) {
			t.Run(dir+"/"+filepath.Base(file), func(t *testing.T) {
				src, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				r, _, diags := compileAll(os.DirFS(filepath.Dir(file)), filepath.Base(file), inputsOf(t, src))
				if diags.HasErrors() != (dir == "invalid") || len(diags) == 0 {
					t.Errorf("errors: %v, want %v", diags.HasErrors(), dir == "invalid")
				}
				note(t, diags)
				golden(t, strings.TrimSuffix(file, ".runbook.hcl")+".golden", []byte(text(t, diags, r.Files())))
			})
		}
	}
	files, err := filepath.Glob("testdata/trust/*.trust.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no trust policies: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, parsed, diags := LoadTrust(os.DirFS("testdata"), "trust/"+filepath.Base(file))
			if valid := strings.HasPrefix(filepath.Base(file), "valid"); valid == diags.HasErrors() {
				t.Errorf("errors: %v", diags.HasErrors())
			}
			note(t, diags)
			golden(t, strings.TrimSuffix(file, ".trust.hcl")+".golden", []byte(text(t, diags, parsed)))
		})
	}
	for _, test := range unfiled(t) {
		t.Run(test.name, func(t *testing.T) {
			_, _, diags := compileAll(test.fsys, test.file, Inputs{})
			if len(diags) != 1 || ruleOf(diags[0]) != test.want || diags[0].Summary != test.summary {
				t.Errorf("got %v, want one %s: %s", diags, test.want, test.summary)
			}
			note(t, diags)
		})
	}
	r, _ := Load(fstest.MapFS{}, "x.runbook.hcl", Inputs{}, catalogue())
	if plan, diags := r.Compile(); plan != nil || len(diags) != 1 {
		t.Errorf("a runbook with errors compiled: %v", diags)
	} else {
		note(t, diags)
	}
	for _, rule := range Rules() {
		if !broken[rule] {
			t.Errorf("no file breaks rule %q", rule)
		}
	}
}

type unfiledCase struct {
	name, file, summary string
	fsys                fs.FS
	want                Rule
}

// unfiled are the cases that are too large, or nothing, to be a file.
func unfiled(t *testing.T) []unfiledCase {
	minimal, err := os.ReadFile("testdata/valid/minimal.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(minimal, []byte("test \"bandwidth\""))
	huge := bytes.Replace(minimal[:at], []byte("gpu[01-08]"), []byte("gpu[1-65536]"), 1)
	for i := range 16 {
		huge = append(huge, bytes.Replace(minimal[at:], []byte("bandwidth"), []byte("bandwidth_"+string(rune('a'+i))), 1)...)
	}
	many := bytes.Replace(minimal, []byte("gpu[01-08]"), []byte("gpu[1-65536]"), 1)
	many = bytes.Replace(many, []byte("sizes = [\"1GiB\", \"16GiB\"]"), []byte("sizes = [for n in range(65) : \"${n + 1}GiB\"]"), 1)
	one := func(data []byte) fs.FS { return fstest.MapFS{"x.runbook.hcl": {Data: data}} }
	return []unfiledCase{
		{"missing file", "x.runbook.hcl", "Runbook cannot be read", fstest.MapFS{}, RuleUnreadable},
		{"directory", "x.runbook.hcl", "Runbook cannot be read", fstest.MapFS{"x.runbook.hcl/a": {}}, RuleUnreadable},
		{"too large", "x.runbook.hcl", "Runbook cannot be read", one(bytes.Repeat([]byte("# x\n"), 1<<18+1)), RuleUnreadable},
		{"binary", "x.runbook.hcl", "File is not text", one([]byte("\x7fELF\x02\x00\x00")), RuleSyntax},
		{"latin 1", "x.runbook.hcl", "File is not text", one([]byte("# \xe9t\xe9\n")), RuleSyntax},
		{"too many operators", "x.runbook.hcl", "File too complex", one([]byte("locals {\n  a = 1" + strings.Repeat("+1", maxOperators+1) + "\n}\n")), RuleTooComplex},
		{"too many cells", "x.runbook.hcl", "Plan too large", one(huge), RulePlanTooLarge},
		{"too many measurements", "x.runbook.hcl", "Plan too large", one(many), RulePlanTooLarge},
	}
}
