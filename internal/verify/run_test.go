package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runbook"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/local"
	"github.com/rackproof/rackproof/thresholds"
)

const small = `
runbook "small" {
  title   = "A small acceptance"
  version = "1.0.0"
}

variable "floor" {
  type     = number
  default  = 40
  contract = 40
}

party "customer" {
  name = "Customer"
}

owner "ops" {
  party   = party.customer
  contact = "ops@example.com"
}

fleet "bench" {
  hosts = "n[01-02]"

  executor "local" {
    shared_machine = true
  }
}

phase "node" {
  gate {
    require = "all"
    on_fail = "continue"
  }
}

test "rate" {
  phase    = phase.node
  nodes    = fleet.bench
  owner    = owner.ops
  duration = "5s"

  establishes = {
    "The tool is fast enough." = [threshold.rate]
  }
  does_not_establish = ["Anything else."]

  check "command" {
    argv  = ["printf", "rate 42.5\ndone\n"]
    proof = "^done$"

    metric "rate" {
      unit  = "MB/s"
      regex = "^rate ([0-9.]+)$"
    }
  }

  threshold "rate" {
    min   = var.floor
    unit  = "MB/s"
    basis = "Order 1"
  }
}

release "final" {
  nodes   = fleet.bench
  require = [phase.node]
  waivers = 0
}
`

func known() runbook.Known {
	return runbook.Known{Checks: checks.Builtin(), Executors: []runner.Kind{local.Kind()}, Faults: runner.Faults()}
}

// rig is a signed run and the key that signed it.
type rig struct {
	dir    string
	signer attest.Signer
	public []byte
}

// newRig runs text on this machine, seals it and signs it with a new key.
func newRig(t *testing.T, text string, vars map[string]string) rig {
	t.Helper()
	r := rig{dir: filepath.Join(t.TempDir(), "run")}
	private, public, err := attest.GenerateKey(nil)
	must(t, err)
	r.public = public
	r.signer, err = attest.LoadSigner(private, nil)
	must(t, err)

	loaded, diags := runbook.Load(fstest.MapFS{"small.runbook.hcl": {Data: []byte(text)}}, "small.runbook.hcl", runbook.Inputs{Vars: vars, Dir: "/"}, known())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	plan, diags := loaded.Compile()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	_, config := loaded.Executor()
	executor, err := local.Kind().Open(t.Context(), config, plan.Fleet.NodeNames())
	must(t, err)
	store, err := evidence.Create(r.dir, "2026-11-30t14-02-11z-3f9a", plan, loaded.Sources(), tool())
	must(t, err)
	must(t, runner.Run(t.Context(), runner.Options{
		Store: store, Executor: executor, Reach: config, Checks: checks.Builtin(), Judge: thresholds.Judge, MinFree: 1,
		Allow: []string{"leaves_a_mark"},
	}))
	must(t, executor.Close())
	results := checks.Measure(checks.Builtin(), plan, store.Records(), store.FS())
	must(t, store.Seal(evidence.NewDerived(results, thresholds.Judge(plan, results))))
	must(t, store.Close())
	must(t, attest.Sign(t.Context(), r.dir, r.signer))
	return r
}

func tool() evidence.Tool {
	t := evidence.Tool{
		MediaType: evidence.MediaTool, Name: "rackproof", Version: "0.1.0", Go: "go", Platform: "test", Mode: "plain", Checks: map[string]int{},
	}
	for _, c := range checks.Builtin() {
		t.Checks[c.Spec().Name] = c.Spec().Version
	}
	return t
}

// copied is the same run in a directory of its own.
func (r rig) copied(t *testing.T) rig {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	must(t, os.CopyFS(dir, os.DirFS(r.dir)))
	r.dir = dir
	return r
}

func (r rig) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

func (r rig) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(r.path(name))
	must(t, err)
	return data
}

func (r rig) write(t *testing.T, name string, data []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
	must(t, os.WriteFile(r.path(name), data, 0o644))
}

// replace edits a file and fails if there is nothing to edit.
func (r rig) replace(t *testing.T, name, old, with string) {
	t.Helper()
	data := r.read(t, name)
	if !bytes.Contains(data, []byte(old)) {
		t.Fatalf("%s does not hold %q:\n%s", name, old, data)
	}
	r.write(t, name, bytes.Replace(data, []byte(old), []byte(with), 1))
}

// relist writes manifest.json and SHA256SUMS anew for what the directory
// holds, as someone would who wants a damage to go unnoticed.
func (r rig) relist(t *testing.T) {
	t.Helper()
	var old evidence.Manifest
	old, _, err := evidence.ReadManifest(r.read(t, evidence.ManifestPath))
	must(t, err)
	entries := make(map[string]evidence.ManifestEntry)
	for _, e := range old.Files {
		entries[e.Path] = e
	}
	var manifest, sums strings.Builder
	var lines []string
	must(t, fs.WalkDir(os.DirFS(r.dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || evidence.Unlisted(p) {
			return err
		}
		data := r.read(t, p)
		sum := sha256.Sum256(data)
		e, ok := entries[p]
		if !ok {
			e = evidence.ManifestEntry{Path: p, Role: "other", Salt: strings.Repeat("0", 32)}
		}
		e.Size, e.SHA256 = int64(len(data)), hex.EncodeToString(sum[:])
		line, err := evidence.EncodeLine(e)
		lines = append(lines, strings.TrimSuffix(string(line), "\n"))
		fmt.Fprintf(&sums, "%s  %s\n", e.SHA256, p)
		return err
	}))
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(pathOf(a), pathOf(b)) })
	fmt.Fprintf(&manifest, "{\"mediaType\":%q,\"minor\":%d,\"files\":[\n%s\n]}\n", old.MediaType, old.Minor, strings.Join(lines, ",\n"))
	r.write(t, evidence.ManifestPath, []byte(manifest.String()))
	sorted := strings.Split(strings.TrimSuffix(sums.String(), "\n"), "\n")
	slices.SortFunc(sorted, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	r.write(t, evidence.SumsPath, []byte(strings.Join(sorted, "\n")+"\n"))
}

func pathOf(line string) string {
	var e struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		panic(err)
	}
	return e.Path
}

// resign lists and signs what the directory holds: the operator cheats.
func (r rig) resign(t *testing.T) {
	t.Helper()
	r.relist(t)
	must(t, attest.Sign(t.Context(), r.dir, r.signer))
}

// journal rewrites the journal with its chain mended; a record without a time
// gets that of the one above it.
func (r rig) journal(t *testing.T, change func([]evidence.Record) []evidence.Record) {
	t.Helper()
	records, _, err := evidence.ReadJournal(bytes.NewReader(r.read(t, evidence.JournalPath)))
	must(t, err)
	var out bytes.Buffer
	prev := evidence.Digest("")
	var now time.Time
	for i, record := range change(records) {
		record.Seq, record.Prev = int64(i), prev
		if record.Time.IsZero() {
			record.Time = now
		}
		now = record.Time
		line, err := evidence.EncodeLine(record)
		must(t, err)
		prev = evidence.DigestOf(bytes.TrimSuffix(line, []byte("\n")))
		out.Write(line)
	}
	r.write(t, evidence.JournalPath, out.Bytes())
}

// rederive measures and judges again what the directory holds, and writes
// that, so that everything agrees but what a damage took away.
func (r rig) rederive(t *testing.T) {
	t.Helper()
	fsys := os.DirFS(r.dir)
	var plan evidence.Plan
	_, err := evidence.DecodeDocument(r.read(t, evidence.PlanPath), evidence.MediaPlan, &plan)
	must(t, err)
	records, _, err := evidence.ReadJournal(bytes.NewReader(r.read(t, evidence.JournalPath)))
	must(t, err)
	results := checks.Measure(checks.Builtin(), &plan, records, fsys)
	derived := evidence.NewDerived(results, thresholds.Judge(&plan, results))
	var lines bytes.Buffer
	for _, m := range derived.Measurements {
		line, err := evidence.EncodeLine(m)
		must(t, err)
		lines.Write(line)
	}
	verdict, err := evidence.Encode(derived.Verdict)
	must(t, err)
	r.write(t, evidence.MeasurementsPath, lines.Bytes())
	r.write(t, evidence.VerdictPath, verdict)
}

// attempt rewrites an attempt.json for the files that lie beside it, after one
// more change, and makes the journal name the new one.
func (r rig) attempt(t *testing.T, cell string, change func(*evidence.Attempt)) {
	t.Helper()
	name := "cells/" + cell + "/1/attempt.json"
	var a evidence.Attempt
	_, err := evidence.DecodeDocument(r.read(t, name), evidence.MediaAttempt, &a)
	must(t, err)
	for i, f := range a.Files {
		data := r.read(t, "cells/"+cell+"/1/"+f.Path)
		a.Files[i].Size, a.Files[i].Digest = int64(len(data)), evidence.DigestOf(data)
	}
	if change != nil {
		change(&a)
	}
	doc, err := evidence.Encode(a)
	must(t, err)
	r.write(t, name, doc)
	r.journal(t, func(records []evidence.Record) []evidence.Record {
		for i := range records {
			if records[i].Event == evidence.EventAttemptEnd && records[i].Cell == cell {
				records[i].Document = evidence.DigestOf(doc)
			}
		}
		return records
	})
}

// repin makes the journal speak of the plan that the directory holds.
func (r rig) repin(t *testing.T) {
	t.Helper()
	digest := evidence.DigestOf(r.read(t, evidence.PlanPath))
	r.journal(t, func(records []evidence.Record) []evidence.Record {
		records[0].Plan = digest
		return records
	})
}

func (r rig) policy() attest.Policy {
	return attest.Policy{
		Name:    "test",
		Keys:    []attest.Key{{Name: "operator", Owner: "ops", PEM: r.public}},
		Roles:   []attest.Role{{Name: attest.RoleOperator, AnyOf: []string{"operator"}, Quorum: 1}},
		Require: attest.Require{Level: attest.Reproduced},
	}
}

func (r rig) options() Options {
	return Options{Policy: r.policy(), Known: known(), At: time.Now()}
}

// verify opens the run as users do and verifies it.
func (r rig) verify(t *testing.T, o Options) *Report { return verifyPath(t, r.dir, o) }

func verifyPath(t *testing.T, path string, o Options) *Report {
	t.Helper()
	report, err := Path(t.Context(), path, o)
	must(t, err)
	return report
}

// codes lists the failures of a report as "<step> <code> <path>".
func codes(r *Report) []string {
	found := make(map[string]bool)
	for _, s := range r.Steps {
		for _, f := range s.Failures {
			found[fmt.Sprintf("%d %s %s", s.Step, f.Code, f.Path)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func has(list []string, code, where string) bool {
	return slices.ContainsFunc(list, func(one string) bool {
		parts := strings.SplitN(one, " ", 3)
		match, err := path.Match(where, parts[2])
		return err == nil && parts[1] == code && (match || strings.HasPrefix(parts[2], where))
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// edited is the small runbook with one edit.
func edited(t *testing.T, old, with string) string {
	t.Helper()
	if strings.Count(small, old) != 1 {
		t.Fatalf("the runbook does not hold %q once", old)
	}
	return strings.Replace(small, old, with, 1)
}
