package checks_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
)

// TestMeasureRun writes a run as the runner does, measures it from its
// directory alone, and again after one of its files was changed.
func TestMeasureRun(t *testing.T) {
	plan := &evidence.Plan{
		MediaType: evidence.MediaPlan, Name: "r", Executor: "local", Parallel: 1, Seed: "s",
		Runbook: evidence.SourcesDigest(nil),
		Fleet:   evidence.Fleet{Name: "pod", Nodes: []evidence.Node{{Name: "n1"}}},
		Phases:  []evidence.Phase{{Name: "p", Gate: evidence.Gate{Require: "all", OnFail: "continue"}}},
		Tests: []evidence.Test{{
			Name: "t", Phase: "p", Check: "command", CheckVersion: 1, Scope: evidence.ScopeNode, Nodes: "n1", Repeat: 1,
			Params: json.RawMessage(`{"argv":["tool"],"expect_exit":0,"proof":"^done$","metric":[{"name":"rate","unit":"1/s","regex":"^rate (.*)$"}]}`),
		}},
		Cells: []evidence.Cell{{ID: evidence.CellID("t", []string{"n1"}, 1), Test: "t", Nodes: "n1", Repetition: 1}},
	}
	dir := filepath.Join(t.TempDir(), "run")
	store, err := evidence.Create(dir, "2026-11-30t14-02-11z-3f9a", plan, nil, evidence.Tool{MediaType: evidence.MediaTool, Name: "rackproof", Checks: map[string]int{"command": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	attempt, err := store.Begin(plan.Cells[0], []string{"n1"})
	if err != nil {
		t.Fatal(err)
	}
	step, err := attempt.Step("command", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := step.Stdout().Write([]byte("rate 42.5\ndone\n")); err != nil {
		t.Fatal(err)
	}
	if err := step.Close(evidence.Exit{Argv: []string{"tool"}, Class: evidence.ClassOK, Code: new(int), Start: time.Now(), End: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.End(attempt, nil, false); err != nil {
		t.Fatal(err)
	}

	results := checks.Measure(checks.Builtin(), plan, store.Records(), os.DirFS(dir))
	if len(results) != 1 || len(results[0].Attempts) != 1 {
		t.Fatalf("results are %+v", results)
	}
	a := results[0].Attempts[0]
	wantClasses(t, a)
	if got := value(t, a, "rate", "n1"); got != 42.5 {
		t.Errorf("rate is %g, want 42.5", got)
	}

	stdout := filepath.Join(dir, "cells", filepath.FromSlash(plan.Cells[0].ID), "1", "raw", evidence.StepDir("command", "n1"), "stdout")
	if err := os.WriteFile(stdout, []byte("rate 99.5\ndone\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	results = checks.Measure(checks.Builtin(), plan, store.Records(), os.DirFS(dir))
	if a := results[0].Attempts[0]; len(a.Unmeasured) == 0 {
		t.Errorf("a changed file gives no problem; measured %+v", a.Measurements)
	}
}
