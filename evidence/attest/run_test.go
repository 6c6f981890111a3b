package attest

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

const testRun = "2026-11-30t14-02-11z-3f9a"

// testPlan is a plan of one test on two nodes.
func testPlan(sources map[string][]byte) *evidence.Plan {
	p := &evidence.Plan{
		MediaType: evidence.MediaPlan, Minor: evidence.Minor,
		Name: "two_nodes", Path: "two.runbook.hcl", Seed: "seed", Executor: "local", Parallel: 1,
		ClockLimit: evidence.Duration(time.Second),
		Fleet:      evidence.Fleet{Name: "pair", Nodes: []evidence.Node{{Name: "n1"}, {Name: "n2"}}},
		Phases:     []evidence.Phase{{Name: "burn_in", Gate: evidence.Gate{Require: "all", OnFail: "continue"}}},
		Tests: []evidence.Test{{
			Name: "copy", Phase: "burn_in", Owner: "compute", Check: "command", CheckVersion: 1,
			Params: json.RawMessage(`{}`), Scope: evidence.ScopeNode, Nodes: "n[1-2]", Repeat: 1,
			Duration: evidence.Duration(time.Minute), Deadline: evidence.Duration(2 * time.Minute),
			Establishes: []evidence.Claim{}, DoesNotEstablish: []string{}, Thresholds: []evidence.Threshold{},
		}},
		Narrowed: []string{"--nodes n[1-2]"},
	}
	for _, path := range []string{"two.runbook.hcl"} {
		data := sources[path]
		p.Sources = append(p.Sources, evidence.Source{Path: path, Size: int64(len(data)), Digest: evidence.DigestOf(data)})
	}
	p.Runbook = evidence.SourcesDigest(p.Sources)
	for _, node := range []string{"n1", "n2"} {
		p.Cells = append(p.Cells, evidence.Cell{
			ID: evidence.CellID("copy", []string{node}, 1), Test: "copy", Nodes: node, Repetition: 1,
		})
	}
	return p
}

func testVerdict(p *evidence.Plan) evidence.Verdict {
	return evidence.Verdict{
		MediaType: evidence.MediaVerdict, Minor: evidence.Minor, Outcome: evidence.Inconclusive,
		Findings: []evidence.Finding{
			{Test: "copy", Threshold: "rate", Subject: "n1", Outcome: evidence.Pass},
			{Test: "copy", Threshold: "rate", Subject: "n2", Outcome: evidence.Inconclusive, Class: evidence.ClassLost, Node: "n2", Reason: "node lost"},
		},
		Coverage: evidence.Coverage{
			Cells: 2, Measured: 1, Nodes: 2, NodesPassing: 1, Findings: 2, Passing: 1,
			Open: []evidence.OpenCell{{Cell: p.Cells[1].ID, Problem: evidence.Problem{Node: "n2", Class: evidence.ClassLost, Detail: "connection reset"}}},
			Cuts: []evidence.OpenCell{{Cell: p.Cells[1].ID, Attempt: 1, Problem: evidence.Problem{Class: evidence.ClassCut}}},
		},
		Gates: []evidence.GateResult{},
		Tests: []evidence.TestResult{{Test: "copy", Outcome: evidence.Inconclusive, Cells: 2, Passed: 1}},
	}
}

// change alters a test run before it is sealed.
type change struct {
	plan    func(*evidence.Plan)
	verdict func(*evidence.Verdict)
	nodes   func([]evidence.NodeIdentity)
}

// sealedRun writes a small sealed run, unsigned, and returns its directory.
func sealedRun(t *testing.T, with change) string {
	t.Helper()
	sources := map[string][]byte{"two.runbook.hcl": []byte("runbook \"two_nodes\" {}\n")}
	plan := testPlan(sources)
	if with.plan != nil {
		with.plan(plan)
	}
	tool := evidence.Tool{
		MediaType: evidence.MediaTool, Minor: evidence.Minor, Name: "rackproof", Version: "0.1.0", Commit: "0123abc",
		Go: "go1.26.8", Platform: "linux/amd64", Mode: "plain", Checks: map[string]int{"command": 1},
	}
	dir := filepath.Join(t.TempDir(), testRun)
	store, err := evidence.Create(dir, testRun, plan, sources, tool)
	must(t, err)
	inventory := evidence.Inventory{
		MediaType: evidence.MediaInventory, Minor: evidence.Minor, Executor: "local", Reach: json.RawMessage(`{}`),
		Nodes: []evidence.NodeIdentity{
			{Node: "n1", MachineID: "m1"},
			{Node: "n2", Problem: &evidence.Problem{Node: "n2", Class: evidence.ClassTCP, Detail: "refused"}},
		},
	}
	if with.nodes != nil {
		with.nodes(inventory.Nodes)
	}
	for i := range inventory.Nodes {
		_, err := store.Append(evidence.Record{Event: evidence.EventNode, Node: inventory.Nodes[i].Node, Identity: &inventory.Nodes[i]})
		must(t, err)
	}
	must(t, store.WriteDocument("run/inventory.json", inventory))
	attempt, err := store.Begin(plan.Cells[0], []string{"n1"})
	must(t, err)
	step, err := attempt.Step("copy", "n1")
	must(t, err)
	_, err = step.Stdout().Write([]byte("copied 42 GB/s\n"))
	must(t, err)
	zero := 0
	must(t, step.Close(evidence.Exit{
		Argv: []string{"copy"}, Class: evidence.ClassOK, Code: &zero, Start: attempt.Began(), End: attempt.Began(),
	}))
	_, err = store.End(attempt, nil, false)
	must(t, err)
	verdict := testVerdict(plan)
	if with.verdict != nil {
		with.verdict(&verdict)
	}
	must(t, store.Seal(evidence.NewDerived(nil, verdict)))
	must(t, store.Close())
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rootFS is the file system of a run directory as verify opens it.
func rootFS(t *testing.T, dir string) fs.FS {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { must(t, root.Close()) })
	return root.FS()
}

// signedRun is a sealed run signed by the returned signer, and the policy
// that trusts it.
func signedRun(t *testing.T) (dir string, s Signer, p Policy) {
	t.Helper()
	dir = sealedRun(t, change{})
	s = newSigner(t)
	must(t, Sign(t.Context(), dir, s))
	return dir, s, policyOf(t, s)
}

// copyRun is a copy of a run directory, to be spoilt.
func copyRun(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), testRun)
	must(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func checkDir(t *testing.T, dir string, p Policy) Result {
	t.Helper()
	return Check(rootFS(t, dir), p, nil, time.Now())
}

func read(t *testing.T, dir, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, path))
	must(t, err)
	return data
}

func write(t *testing.T, dir, path string, data []byte) {
	t.Helper()
	full := filepath.Join(dir, path)
	must(t, os.MkdirAll(filepath.Dir(full), 0o755))
	must(t, os.WriteFile(full, data, 0o644))
}

func codes(step StepResult) []string {
	all := []string{}
	for _, f := range step.Failures {
		all = append(all, f.Code)
	}
	return all
}

// wantStep demands the state and exactly the codes, in order.
func wantStep(t *testing.T, step StepResult, want ...string) {
	t.Helper()
	state := OK
	if len(want) > 0 {
		state = Failed
	}
	if step.State != state || !slices.Equal(codes(step), append([]string{}, want...)) {
		t.Errorf("step %d (%s) is %s with %v, want %s with %v:\n%s", step.Step, step.Name, step.State, codes(step), state, want, failureLines(step))
	}
	for _, f := range step.Failures {
		if f.Message == "" || f.Next == "" {
			t.Errorf("failure without a message or a next step: %+v", f)
		}
	}
}

func failureLines(step StepResult) string {
	var lines strings.Builder
	for _, f := range step.Failures {
		lines.WriteString("  " + f.String() + "\n")
	}
	return lines.String()
}

// wantFailure demands a failure with the code and path, and returns it.
func wantFailure(t *testing.T, step StepResult, code, path string) Failure {
	t.Helper()
	for _, f := range step.Failures {
		if f.Code == code && f.Path == path {
			if step.State != Failed {
				t.Errorf("step %d is %s with failures", step.Step, step.State)
			}
			return f
		}
	}
	t.Fatalf("step %d lacks %s at %q:\n%s", step.Step, code, path, failureLines(step))
	return Failure{}
}

// looseBundle is a bundle as loosely typed JSON, for attacks.
type looseBundle map[string]any

func readLoose(t *testing.T, dir string) looseBundle {
	t.Helper()
	var b looseBundle
	must(t, json.Unmarshal(read(t, dir, evidence.SignaturePath), &b))
	return b
}

func (b looseBundle) object(name string) map[string]any { return b[name].(map[string]any) }

func (b looseBundle) signature() map[string]any {
	return b.object("dsseEnvelope")["signatures"].([]any)[0].(map[string]any)
}

func (b looseBundle) bytes(t *testing.T) []byte {
	t.Helper()
	data, err := json.Marshal(b)
	must(t, err)
	return data
}

// signedPayload is a bundle over any payload, properly signed.
func signedPayload(t *testing.T, s Signer, kind string, payload []byte) []byte {
	t.Helper()
	sig, err := s.Sign(t.Context(), kind, payload)
	must(t, err)
	hint, err := Hint(s.Public())
	must(t, err)
	b := looseBundle{
		"mediaType":            mediaBundle,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": hint}},
		"dsseEnvelope": map[string]any{
			"payloadType": kind,
			"payload":     base64.StdEncoding.EncodeToString(payload),
			"signatures":  []any{map[string]any{"sig": base64.StdEncoding.EncodeToString(sig)}},
		},
	}
	return b.bytes(t)
}

// deriveFrom is the predicate of the run in dir.
func deriveFrom(t *testing.T, dir string) *Predicate {
	t.Helper()
	p, err := derive(rootFS(t, dir), read(t, dir, evidence.ManifestPath))
	must(t, err)
	return p
}
