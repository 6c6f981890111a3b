package runbook_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// TestExamples: every runbook of the examples compiles with what this build
// really has.
func TestExamples(t *testing.T) {
	known := runbook.Known{Checks: checks.Builtin(), Executors: []runner.Kind{ssh.Kind(), local.Kind()}, Faults: runner.Faults()}
	files, err := filepath.Glob("../examples/*/*.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			dir, name := filepath.Split(file)
			r, diags := runbook.Load(os.DirFS(dir), name, runbook.Inputs{Dir: dir, Vars: values(t, file), ToolVersion: "0.1.0"}, known)
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
