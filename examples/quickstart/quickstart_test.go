package quickstart_test

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runbook"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/ssh"
	"github.com/rackproof/rackproof/thresholds"
)

// speed makes heat and faults as fast as the example's short tests need it.
// The demo raises its rack with the same.
const speed = 60

const hazard = "kills_service"

// load compiles a runbook with the example's layout.
func load(t testing.TB, text string, vars map[string]string) (*runbook.Runbook, *evidence.Plan) {
	t.Helper()
	layout, err := os.ReadFile("layout.csv")
	if err != nil {
		t.Fatal(err)
	}
	return loadWith(t, text, string(layout), vars)
}

func loadWith(t testing.TB, text, layout string, vars map[string]string) (*runbook.Runbook, *evidence.Plan) {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{"quickstart.runbook.hcl": text, "layout.csv": layout} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := runbook.Inputs{Dir: dir, ToolVersion: "0.1.0", Vars: map[string]string{"ssh_config": "ssh_config", "known_hosts": "known_hosts"}}
	for name, value := range vars {
		in.Vars[name] = value
	}
	known := runbook.Known{Checks: checks.Builtin(), Executors: []runner.Kind{ssh.Kind()}, Faults: runner.Faults()}
	book, diags := runbook.Load(os.DirFS(dir), "quickstart.runbook.hcl", in, known)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	plan, diags := book.Compile()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return book, plan
}

func source(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("quickstart.runbook.hcl")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// accept runs the plan with an executor and judges what came of it.
func accept(t testing.TB, book *runbook.Runbook, plan *evidence.Plan, executor runner.Executor) evidence.Verdict {
	t.Helper()
	id, err := evidence.NewRunID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	store, err := evidence.Create(filepath.Join(inMemory(t), id), id, plan, book.Sources(), evidence.Tool{Version: "0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := runner.Run(t.Context(), runner.Options{
		Store: store, Executor: executor, Reach: json.RawMessage(`{}`), Checks: checks.Builtin(), Judge: thresholds.Judge, Allow: []string{hazard},
	}); err != nil {
		t.Fatal(err)
	}
	return thresholds.Judge(plan, checks.Measure(checks.Builtin(), plan, store.Records(), store.FS()))
}

// inMemory is a temporary folder on a filesystem without a disk where there is
// one: every file of a run is synced, which tests of 30 runs need not wait for.
func inMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "quickstart-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
