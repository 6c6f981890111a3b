package runbook_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/internal/diag"
	"github.com/rackproof/rackproof/runbook"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/local"
	"github.com/rackproof/rackproof/runner/ssh"
)

// values gives every variable of file that has no default a value: a path, or
// what its name asks for.
func values(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, diags := hclparse.NewParser().ParseHCLFile(file)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	named := map[string]string{"filesystem": "ext4", "service_host": "127.0.0.1", "service_port": "6379"}
	given := map[string]string{}
	for _, b := range parsed.Body.(*hclsyntax.Body).Blocks {
		if b.Type == "variable" && b.Body.Attributes["default"] == nil {
			given[b.Labels[0]] = cmp.Or(named[b.Labels[0]], "/srv/"+b.Labels[0])
		}
	}
	return given
}

// TestCommandsAreWords: a command that is not split into words is refused
// wherever one can be written, and an empty one where it means nothing.
func TestCommandsAreWords(t *testing.T) {
	dir := "../examples/local/"
	src, err := os.ReadFile(dir + "local.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	given := values(t, dir+"local.runbook.hcl")
	const undo = `undo   = ["rm", "-f", "${var.scratch}/broken"]`
	const inject = `inject = ["touch", "${var.scratch}/broken"]`
	const argv = `argv  = ["stress-ng", "--cpu", "1", "--cpu-method", "matrixprod", "--verify", "--timeout", "1s", "--stdout"]`
	for _, edit := range []struct{ old, with, want string }{
		{undo, `undo = []`, ""},
		{undo, `undo = ["rm -f /tmp/x"]`, "Command is not split into words"},
		{undo, `undo = ["rm", "a\u0000b"]`, "Command cannot be run"},
		{inject, `inject = []`, "Empty command"},
		{inject, `inject = ["touch x"]`, "Command is not split into words"},
		{argv, `argv = []`, "Empty command"},
		{argv, `argv = ["uname -r"]`, "Command is not split into words"},
		{argv, argv + "\nexpect_exit = 1.5", "wants a whole number"},
		{`check "inventory" {}`, "check \"inventory\" {\nversion \"fio\" {\nargv = [\"fio --version\"]\n}\n}", "Command is not split into words"},
	} {
		if !strings.Contains(string(src), edit.old) {
			t.Fatalf("the example has no %s", edit.old)
		}
		fsys := fstest.MapFS{"x.runbook.hcl": {Data: []byte(strings.Replace(string(src), edit.old, edit.with, 1))}}
		_, diags := runbook.Load(fsys, "x.runbook.hcl", runbook.Inputs{Vars: given}, builtin())
		errs := diags.Errs()
		if edit.want == "" && len(errs) > 0 || edit.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), edit.want)) {
			t.Errorf("%s: %v, want %q", edit.with, errs, edit.want)
		}
	}
}

// builtin is what this build really has.
func builtin() runbook.Known {
	return runbook.Known{Checks: checks.Builtin(), Executors: []runner.Kind{ssh.Kind(), local.Kind()}, Faults: runner.Faults()}
}

// TestExamples: every runbook of the examples compiles with what this build
// really has.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../examples/*/*.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			dir, name := filepath.Split(file)
			r, diags := runbook.Load(os.DirFS(dir), name, runbook.Inputs{Dir: dir, Vars: values(t, file), ToolVersion: "0.1.0"}, builtin())
			var plan *evidence.Plan
			if !diags.HasErrors() {
				p, more := r.Compile()
				plan, diags = p, append(diags, more...)
			}
			if len(diags) > 0 {
				var out strings.Builder
				if err := diag.Text(&out, diags, r.Files(), false, 78); err != nil {
					t.Fatal(err)
				}
				t.Fatal(out.String())
			}
			if _, err := evidence.Encode(plan); err != nil {
				t.Error(err)
			}
		})
	}
}
