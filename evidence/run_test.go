package evidence

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"
)

// testPlan has one test on two nodes, one cell each, and one on both.
func testPlan() *Plan {
	limit := 1.5
	test := Test{
		Name: "disk", Phase: "bare", Owner: "ops", Check: "command", CheckVersion: 1,
		Params: json.RawMessage(`{"argv":["df","-h"]}`), Scope: ScopeNode, Nodes: "n[1-2]", Repeat: 1,
		Thresholds: []Threshold{{Name: "latency", Metric: "latency", Stat: "max", Per: "node", Unit: "ms",
			Level: "node", Subjects: []string{"n[1-2]"}, Max: &limit, Basis: "contract"}},
	}
	pair := test
	pair.Name, pair.Scope = "Ping Pong", ScopeFleet
	p := &Plan{
		MediaType: MediaPlan, Minor: Minor, Name: "small", Runbook: DigestOf(nil), Path: "main.runbook.hcl",
		Sources: []Source{}, Seed: "7", Executor: "local", ClockLimit: Duration(time.Second), Parallel: 2,
		Fleet:  Fleet{Name: "lab", Nodes: []Node{{Name: "n1"}, {Name: "n2", Labels: map[string]string{"rack": "A<1>"}}}},
		Phases: []Phase{{Name: "bare", Gate: Gate{Require: "all", OnFail: "continue"}}},
		Tests:  []Test{test, pair},
	}
	for _, node := range []string{"n1", "n2"} {
		p.Cells = append(p.Cells, Cell{ID: CellID("disk", []string{node}, 1), Test: "disk", Nodes: node, Repetition: 1})
	}
	both := []string{"n1", "n2"}
	p.Cells = append(p.Cells, Cell{ID: CellID("Ping Pong", both, 1), Test: "Ping Pong", Nodes: "n[1-2]", Repetition: 1})
	return p
}

func testTool() Tool {
	return Tool{MediaType: MediaTool, Name: "rackproof", Version: "0.1.0", Go: "go1.26", Platform: "linux/amd64", Mode: "plain", Checks: map[string]int{"command": 1}}
}

func newRun(t *testing.T) *Store {
	t.Helper()
	s, err := Create(filepath.Join(t.TempDir(), "runs", "r1"), "r1", testPlan(), nil, testTool())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // most tests close it themselves
	return s
}

func exitOK() Exit {
	code := 0
	now := time.Now()
	return Exit{Argv: []string{"df", "-h"}, Class: ClassOK, Code: &code, Start: now, End: now}
}

// runStep runs one step that prints text.
func runStep(t *testing.T, a *AttemptDir, step, node, text string) {
	t.Helper()
	f, err := a.Step(step, node)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stdout().Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(exitOK()); err != nil {
		t.Fatal(err)
	}
}

// runCell runs one attempt of the cell with one step on each node.
func runCell(t *testing.T, s *Store, cell Cell, nodes ...string) Attempt {
	t.Helper()
	a := beginCell(t, s, cell, nodes...)
	for _, node := range nodes {
		runStep(t, a, "df", node, "out of "+node+"\n")
	}
	done, err := s.End(a, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func beginCell(t *testing.T, s *Store, cell Cell, nodes ...string) *AttemptDir {
	t.Helper()
	a, err := s.Begin(cell, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// runAll runs every cell once.
func runAll(t *testing.T, s *Store) {
	t.Helper()
	cells := s.Plan().Cells
	runCell(t, s, cells[0], "n1")
	runCell(t, s, cells[1], "n2")
	runCell(t, s, cells[2], "n1", "n2")
}

func passing() Verdict {
	return Verdict{Outcome: Pass, Findings: []Finding{}, Gates: []GateResult{}, Tests: []TestResult{}}
}

// sealedRun is a run of every cell, sealed and closed.
func sealedRun(t *testing.T) (dir string) {
	t.Helper()
	s := newRun(t)
	runAll(t, s)
	m := Measurement{Metric: "latency", Unit: "ms", Value: 1.25, Subject: "n1", Source: "df.n1/stdout:1"}
	results := Results(s.Plan(), s.Records(), s.FS())
	results[0].Attempts[0].Measurements = []Measurement{m}
	results[0].Attempts[0].Facts = []Fact{{Name: "model", Value: "X<1>", Subject: "n1", Source: "df.n1/stdout:2"}}
	if err := s.WriteDocument(InventoryPath, Inventory{MediaType: MediaInventory, Executor: "local", Reach: json.RawMessage(`{}`), Nodes: []NodeIdentity{{Node: "n1"}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Seal(NewDerived(results, passing())); err != nil {
		t.Fatal(err)
	}
	closeRun(t, s)
	return s.Dir()
}

func closeRun(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t *testing.T, fsys fs.FS) *Bundle {
	t.Helper()
	b, err := Open(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// problems lists all Unmeasured problems of results.
func problems(results []CellResult) []string {
	var all []string
	for _, r := range results {
		for _, a := range r.Attempts {
			for _, p := range a.Unmeasured {
				all = append(all, r.Cell.ID+": "+p.Error())
			}
		}
	}
	return all
}

func copyTree(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func fixedNow() time.Time { return time.Date(2026, 11, 30, 14, 2, 11, 0, time.UTC) }

func mapFS(files map[string][]byte) fstest.MapFS {
	fsys := fstest.MapFS{}
	for p, content := range files {
		fsys[p] = &fstest.MapFile{Data: content}
	}
	return fsys
}
