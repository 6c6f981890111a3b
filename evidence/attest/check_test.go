package attest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

func TestSignAndCheck(t *testing.T) {
	dir, s, policy := signedRun(t)
	result := checkDir(t, dir, policy)
	for _, step := range result.Steps {
		wantStep(t, step)
	}
	fingerprint, err := Fingerprint(s.Public())
	must(t, err)
	if want := (Signatory{Key: "lead", Owner: "compute", Fingerprint: fingerprint}); result.Signer != want {
		t.Errorf("signer %+v, want %+v", result.Signer, want)
	}

	payload, err := Statement(rootFS(t, dir))
	must(t, err)
	if want := evidence.DigestOf(payload); result.PayloadDigest != want {
		t.Errorf("payload digest %s, want %s", result.PayloadDigest, want)
	}
	p := result.Payload
	if p == nil {
		t.Fatal("no payload")
	}
	journal := strings.Split(strings.TrimSuffix(string(read(t, dir, evidence.JournalPath)), "\n"), "\n")
	var last evidence.Record
	must(t, json.Unmarshal([]byte(journal[len(journal)-1]), &last))
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"run", p.Run, testRun},
		{"tool", p.Tool, ToolRef{Name: "rackproof", Version: "0.1.0", Commit: "0123abc"}},
		{"plan", p.Plan, evidence.DigestOf(read(t, dir, evidence.PlanPath))},
		{"verdict", p.Verdict, VerdictRef{Digest: evidence.DigestOf(read(t, dir, evidence.VerdictPath)), Outcome: evidence.Inconclusive}},
		{"coverage", p.Coverage, CoverageCounts{Cells: 2, Measured: 1, Nodes: 2, NodesPassing: 1, Findings: 2, Passing: 1}},
		{"passed", fmt.Sprint(p.PassedTests), "[]"},
		{"inconclusive", fmt.Sprint(p.InconclusiveTests), "[copy]"},
		{"open", p.Open.Total, 2},
		{"open finding", p.Open.Points[0], OpenPoint{Test: "copy", Threshold: "rate", Subject: "n2", Node: "n2", Outcome: evidence.Inconclusive, Class: evidence.ClassLost}},
		{"open cell", p.Open.Points[1], OpenPoint{Cell: "copy/n2.r1", Node: "n2", Outcome: evidence.Inconclusive, Class: evidence.ClassLost}},
		{"cuts", fmt.Sprint(p.Cuts), "{1 [{copy/n2.r1 1}]}"},
		{"retried", fmt.Sprint(p.Retried), "{0 []}"},
		{"simulated", p.Simulated, false},
		{"narrowed", fmt.Sprint(p.Narrowed), "[--nodes n[1-2]]"},
		{"off contract", fmt.Sprint(p.OffContract), "[]"},
		{"nodes", p.Nodes, Nodes{Expected: 2, Reached: 1}},
		{"journal", p.Journal, Journal{Records: int64(len(journal)), Head: evidence.DigestOf([]byte(journal[len(journal)-1]))}},
		{"finished", p.Finished.Equal(last.Time), true},
		{"tree", p.Merkle.Size, p.Files.Count},
		{"alg", p.Merkle.Alg, "rfc6962-sha256"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}

	var size, count int64
	must(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !evidence.Unlisted(strings.TrimPrefix(path, dir+"/")) {
			info, err := entry.Info()
			must(t, err)
			size, count = size+info.Size(), count+1
		}
		return err
	}))
	if want := (Files{Count: count, Bytes: size}); p.Files != want {
		t.Errorf("files %+v, want %+v", p.Files, want)
	}
}

func TestStatementForm(t *testing.T) {
	dir := sealedRun(t, change{})
	payload, err := Statement(rootFS(t, dir))
	must(t, err)
	again, err := Statement(rootFS(t, dir))
	must(t, err)
	if string(payload) != string(again) {
		t.Error("two statements of one run differ")
	}
	want := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"manifest.json","digest":{"sha256":"%s"}},`+
		`{"name":"SHA256SUMS","digest":{"sha256":"%s"}}],"predicateType":"https://rackproof.dev/attestation/acceptance/v1",`+
		`"predicate":{"mediaType":"application/vnd.rackproof.acceptance.v1+json","minor":0,"run":"%s",`,
		evidence.DigestOf(read(t, dir, evidence.ManifestPath)).Hex(), evidence.DigestOf(read(t, dir, evidence.SumsPath)).Hex(), testRun)
	if !strings.HasPrefix(string(payload), want) {
		t.Errorf("statement begins\n%.700s\nwant\n%s", payload, want)
	}
	if strings.Contains(string(payload), "null") || strings.ContainsAny(string(payload), "\n") {
		t.Errorf("statement has a null or a line end:\n%s", payload)
	}
}

func TestStatementListsAreBounded(t *testing.T) {
	dir := sealedRun(t, change{verdict: func(v *evidence.Verdict) {
		for i := range 1500 {
			v.Findings = append(v.Findings, evidence.Finding{Test: "copy", Threshold: "rate", Subject: evidence.Subject(fmt.Sprint("n2/gpu", i)), Outcome: evidence.Fail})
			v.Coverage.Cuts = append(v.Coverage.Cuts, evidence.OpenCell{Cell: "copy/n2.r1", Attempt: i + 2})
			v.Coverage.Retried = append(v.Coverage.Retried, fmt.Sprintf("copy/n2.r%d", i))
		}
	}})
	p := deriveFrom(t, dir)
	if p.Open.Total != 1502 || len(p.Open.Points) != 1000 || p.Cuts.Total != 1501 || len(p.Cuts.Attempts) != 1000 ||
		p.Retried.Total != 1500 || len(p.Retried.Cells) != 1000 {
		t.Errorf("open %d of %d, cuts %d of %d, retried %d of %d", len(p.Open.Points), p.Open.Total,
			len(p.Cuts.Attempts), p.Cuts.Total, len(p.Retried.Cells), p.Retried.Total)
	}
}

func TestStatementTellsWhatWeakensARun(t *testing.T) {
	dir := sealedRun(t, change{
		plan: func(p *evidence.Plan) {
			p.SharedMachine, p.Narrowed = true, nil
			p.Variables = []evidence.Variable{
				{Name: "rate", Value: json.RawMessage("1"), Contract: json.RawMessage("2"), OffContract: true},
				{Name: "size", Value: json.RawMessage("1")},
			}
		},
		verdict: func(v *evidence.Verdict) {
			v.Tests = []evidence.TestResult{
				{Test: "a", Outcome: evidence.Pass}, {Test: "b", Outcome: evidence.Fail}, {Test: "c", Outcome: evidence.Error},
				{Test: "d", Outcome: evidence.Inconclusive}, {Test: "e", Outcome: evidence.None}, {Test: "f", Outcome: evidence.Pass},
			}
			v.Coverage.Retried = []string{"copy/n1.r1"}
		},
		nodes: func(nodes []evidence.NodeIdentity) { nodes[1].Simulated, nodes[1].Problem = true, nil },
	})
	p := deriveFrom(t, dir)
	if !p.Simulated || !p.SharedMachine || p.Nodes != (Nodes{Expected: 2, Reached: 2}) {
		t.Errorf("simulated %v, shared machine %v, nodes %+v", p.Simulated, p.SharedMachine, p.Nodes)
	}
	got := fmt.Sprint(p.Narrowed, p.OffContract, p.PassedTests, p.InconclusiveTests, p.ErrorTests, p.FailedTests, p.Retried)
	if want := "[] [rate] [a f] [d e] [c] [b] {1 [copy/n1.r1]}"; got != want {
		t.Errorf("statement says %s, want %s", got, want)
	}
}

func TestSignAgainReplaces(t *testing.T) {
	dir, first, policy := signedRun(t)
	second := newSigner(t)
	write(t, dir, pathUnfinished, []byte("left by a crash"))
	must(t, Sign(t.Context(), dir, second))
	wantStep(t, checkDir(t, dir, policyOf(t, second)).Steps[1])
	wantStep(t, checkDir(t, dir, policy).Steps[1], CodeKeyUnknown)
	if _, err := os.Stat(filepath.Join(dir, pathUnfinished)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", pathUnfinished, err)
	}
	must(t, Sign(t.Context(), dir, first))
	wantStep(t, checkDir(t, dir, policy).Steps[0])
}

func TestSignRefuses(t *testing.T) {
	honest, other := newSigner(t), newSigner(t)
	original := sealedRun(t, change{})
	lying := func(sign func(string, []byte) ([]byte, error)) Signer { return lyingSigner{honest, sign} }
	for _, c := range []struct {
		name   string
		signer Signer
		spoil  func(dir string)
		want   string
	}{
		{"a file changed after sealing", honest, func(dir string) { write(t, dir, evidence.VerdictPath, append(read(t, dir, evidence.VerdictPath), ' ')) }, "E-FILE-CHANGED run/verdict.json"},
		{"a file added after sealing", honest, func(dir string) { write(t, dir, "run/notes.txt", nil) }, "E-FILE-EXTRA run/notes.txt"},
		{"not sealed", honest, func(dir string) { must(t, os.Remove(filepath.Join(dir, evidence.ManifestPath))) }, "not sealed"},
		{"no run", honest, func(dir string) { must(t, os.RemoveAll(dir)) }, "no such file"},
		{"signer signs another payload", lying(func(kind string, _ []byte) ([]byte, error) {
			return honest.Sign(t.Context(), kind, []byte(`{"_type":"https://in-toto.io/Statement/v1"}`))
		}), nil, "E-SIGNATURE"},
		{"signer uses another key", lying(func(kind string, payload []byte) ([]byte, error) {
			return other.Sign(t.Context(), kind, payload)
		}), nil, "E-SIGNATURE"},
		{"signer signs nothing", lying(func(string, []byte) ([]byte, error) { return nil, nil }), nil, "E-SIGNATURE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyRun(t, original)
			if c.spoil != nil {
				c.spoil(dir)
			}
			wantError(t, Sign(t.Context(), dir, c.signer), "sign "+dir, c.want)
			if _, err := os.Stat(filepath.Join(dir, evidence.SignaturePath)); !os.IsNotExist(err) {
				t.Errorf("a signature was written: %v", err)
			}
		})
	}
}

// A run that has not ended lists no file, and no file of it is one too many.
func TestUnsealedRunIsSaidOnce(t *testing.T) {
	dir, _, policy := signedRun(t)
	for _, name := range []string{evidence.ManifestPath, evidence.SumsPath, evidence.SignaturePath} {
		must(t, os.Remove(filepath.Join(dir, name)))
	}
	result := checkDir(t, dir, policy)
	wantStep(t, result.Steps[0], CodeManifest)
	wantStep(t, result.Steps[1], CodeNoSignature, CodeManifest)
}

// The first attacks are on the files: swap, edit, add, remove, rename, link.
func TestStep1FindsEveryChange(t *testing.T) {
	original, _, policy := signedRun(t)
	const raw = "cells/copy/n1.r1/1/raw/copy.n1/stdout"
	for _, c := range []struct {
		name  string
		spoil func(dir string)
		code  string
		path  string
	}{
		{"edited, same size", func(dir string) { write(t, dir, raw, []byte("copied 99 GB/s\n")) }, CodeFileChanged, raw},
		{"appended", func(dir string) { write(t, dir, raw, append(read(t, dir, raw), '\n')) }, CodeFileChanged, raw},
		{"emptied", func(dir string) { write(t, dir, raw, nil) }, CodeFileChanged, raw},
		{"swapped", func(dir string) { write(t, dir, raw, read(t, dir, evidence.PlanPath)) }, CodeFileChanged, raw},
		{"removed", func(dir string) { must(t, os.Remove(filepath.Join(dir, raw))) }, CodeFileMissing, raw},
		{"directory removed", func(dir string) { must(t, os.RemoveAll(filepath.Join(dir, "cells"))) }, CodeFileMissing, raw},
		{"extra", func(dir string) { write(t, dir, "cells/copy/n1.r1/1/raw/copy.n1/stdout2", nil) }, CodeFileExtra, raw + "2"},
		{"extra at the top", func(dir string) { write(t, dir, "readme.txt", nil) }, CodeFileExtra, "readme.txt"},
		{"extra, hidden", func(dir string) { write(t, dir, "run/.hidden", nil) }, CodePath, "run/.hidden"},
		{"extra, lock", func(dir string) { write(t, dir, ".lock", nil) }, CodePath, ".lock"},
		{"extra, unfinished signature", func(dir string) { write(t, dir, pathUnfinished, nil) }, CodeFileExtra, pathUnfinished},
		{"extra in approvals", func(dir string) { write(t, dir, "approvals/notes.txt", nil) }, CodeFileExtra, "approvals/notes.txt"},
		{"extra below approvals", func(dir string) { write(t, dir, "approvals/x/a.sigstore.json", nil) }, CodeFileExtra, "approvals/x/a.sigstore.json"},
		{"approval with an odd name", func(dir string) { write(t, dir, "approvals/A B.sigstore.json", nil) }, CodePath, "approvals/A B.sigstore.json"},
		{"second signature", func(dir string) { write(t, dir, "run/evidence.sigstore.json", nil) }, CodeFileExtra, "run/evidence.sigstore.json"},
		{"trust shipped inside", func(dir string) { write(t, dir, "trust/trust.hcl", nil) }, CodeFileExtra, "trust/trust.hcl"},
		{"empty directory", func(dir string) { must(t, os.Mkdir(filepath.Join(dir, "run/spare"), 0o755)) }, CodeFileExtra, "run/spare"},
		{"empty directories", func(dir string) { must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755)) }, CodeFileExtra, "a/b"},
		{"renamed to upper case", func(dir string) {
			must(t, os.Rename(filepath.Join(dir, raw), filepath.Join(dir, strings.Replace(raw, "stdout", "STDOUT", 1))))
		}, CodePath, strings.Replace(raw, "stdout", "STDOUT", 1)},
		{"case twin", func(dir string) { write(t, dir, "run/Plan.json", nil) }, CodePath, "run/Plan.json"},
		{"Unicode twin", func(dir string) { write(t, dir, "run/plan.json\u0301", nil) }, CodePath, "run/plan.json\u0301"},
		{"Windows device", func(dir string) { write(t, dir, "run/nul", nil) }, CodePath, "run/nul"},
		{"backslash", func(dir string) { write(t, dir, `run\plan.json`, nil) }, CodePath, `run\\plan.json`},
		{"terminal escape in a name", func(dir string) { write(t, dir, "run/\x1b[2K\u202epass", nil) }, CodePath, `run/\x1b[2K\u202epass`},
		{"line end in a name", func(dir string) { write(t, dir, "run/a\nb", nil) }, CodePath, `run/a\nb`},
		{"symbolic link to the same bytes", func(dir string) {
			must(t, os.Rename(filepath.Join(dir, raw), filepath.Join(dir, "..", "stdout")))
			must(t, os.Symlink(filepath.Join(dir, "..", "stdout"), filepath.Join(dir, raw)))
		}, CodeFileType, raw},
		{"symbolic link inside", func(dir string) {
			must(t, os.Remove(filepath.Join(dir, raw)))
			must(t, os.Symlink("stderr", filepath.Join(dir, raw)))
		}, CodeFileType, raw},
		{"extra symbolic link", func(dir string) { must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "run/passwd"))) }, CodeFileType, "run/passwd"},
		{"symbolic link to a directory", func(dir string) { must(t, os.Symlink("/", filepath.Join(dir, "root"))) }, CodeFileType, "root"},
		{"named pipe", func(dir string) {
			must(t, os.Remove(filepath.Join(dir, raw)))
			must(t, syscall.Mkfifo(filepath.Join(dir, raw), 0o644))
		}, CodeFileType, raw},
		{"directory in place of a file", func(dir string) {
			must(t, os.Remove(filepath.Join(dir, raw)))
			must(t, os.Mkdir(filepath.Join(dir, raw), 0o755))
		}, CodeFileType, raw},
		{"nested too deep", func(dir string) {
			must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 40)), 0o755))
		}, CodePath, strings.TrimSuffix(strings.Repeat("d/", 9), "/")},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyRun(t, original)
			c.spoil(dir)
			result := checkDir(t, dir, policy)
			wantFailure(t, result.Steps[0], c.code, c.path)
			for _, f := range result.Steps[0].Failures {
				if strings.ContainsAny(f.Path+f.Message, "\x1b\n\u202e") {
					t.Errorf("failure can steer a terminal: %q", f)
				}
			}
		})
	}
}

func TestStep1ReportsSizeAndDigest(t *testing.T) {
	const raw = "cells/copy/n1.r1/1/raw/copy.n1/stdout"
	dir, _, policy := signedRun(t)
	write(t, dir, raw, []byte("copied 99 GB/s\n"))
	f := wantFailure(t, checkDir(t, dir, policy).Steps[0], CodeFileChanged, raw)
	want := "sha256 " + evidence.DigestOf([]byte("copied 42 GB/s\n")).Hex()
	got := "sha256 " + evidence.DigestOf([]byte("copied 99 GB/s\n")).Hex()
	if f.Expected != want || f.Actual != got {
		t.Errorf("expected %s, actual %s; want %s and %s", f.Expected, f.Actual, want, got)
	}
	write(t, dir, raw, []byte("short"))
	f = wantFailure(t, checkDir(t, dir, policy).Steps[0], CodeFileChanged, raw)
	if f.Expected != "15 bytes" || f.Actual != "5 bytes" {
		t.Errorf("expected %s, actual %s; want 15 and 5 bytes", f.Expected, f.Actual)
	}
}

func TestStep1ReportsAllFailuresUpToABound(t *testing.T) {
	dir, _, policy := signedRun(t)
	for i := range 1200 {
		write(t, dir, fmt.Sprintf("run/extra-%04d", i), nil)
	}
	must(t, os.Remove(filepath.Join(dir, evidence.VerdictPath)))
	step := checkDir(t, dir, policy).Steps[0]
	if len(step.Failures) != 1001 || step.Failures[1000].Code != CodeMore || !strings.HasPrefix(step.Failures[1000].Message, "201 more") {
		t.Errorf("%d failures, the last %v", len(step.Failures), step.Failures[len(step.Failures)-1])
	}
}

func TestNamedPipesDoNotHang(t *testing.T) {
	original, _, policy := signedRun(t)
	for path, want := range map[string]struct {
		code string
		step int
	}{
		evidence.ManifestPath:  {CodeManifest, 1},
		evidence.SumsPath:      {CodeSums, 1},
		evidence.SignaturePath: {CodeBundle, 1},
		evidence.PlanPath:      {CodePlan, 2},
		evidence.JournalPath:   {CodePredicate, 1},
		evidence.VerdictPath:   {CodePredicate, 1},
	} {
		dir := copyRun(t, original)
		must(t, os.Remove(filepath.Join(dir, path)))
		must(t, syscall.Mkfifo(filepath.Join(dir, path), 0o644))
		result := checkDir(t, dir, policy)
		wantFailure(t, result.Steps[0], CodeFileType, path)
		if !slices.Contains(codes(result.Steps[want.step]), want.code) {
			t.Errorf("%s: step %d has %v, want %s", path, want.step+1, codes(result.Steps[want.step]), want.code)
		}
	}
}

// withLine returns the manifest with an entry line of its own making.
func withLine(t *testing.T, manifest []byte, path string, size int64) []byte {
	t.Helper()
	m, leaves, err := evidence.ReadManifest(manifest)
	must(t, err)
	entry := m.Files[0]
	entry.Path, entry.Size = path, size
	line, err := encodeLine(entry)
	must(t, err)
	first := string(leaves[0])
	changed := strings.Replace(string(manifest), first, string(line)+",\n"+first, 1)
	if changed == string(manifest) {
		t.Fatal("the manifest has no line to change")
	}
	return []byte(changed)
}

func TestStep1RefusesHostileManifests(t *testing.T) {
	original, _, policy := signedRun(t)
	for _, path := range []string{
		"../outside", "run/../../outside", "/etc/passwd", "./run/plan.json", "run//plan.json", "", ".", "..",
		`run\plan.json`, "c:/x", "run/plan.json\x00", "run/\x1b[2J", "Run/plan.json", "run/con", "run/nul.txt", "run/x.",
		strings.Repeat("a/", 8) + "a", strings.Repeat("a", 101),
		evidence.ManifestPath, evidence.SumsPath, evidence.SignaturePath, "approvals/01-x.sigstore.json", evidence.PlanPath,
	} {
		t.Run(printable(path), func(t *testing.T) {
			dir := copyRun(t, original)
			write(t, dir, evidence.ManifestPath, withLine(t, read(t, dir, evidence.ManifestPath), path, 1))
			result := checkDir(t, dir, policy)
			if got := codes(result.Steps[0]); result.Steps[0].State != Failed ||
				!slices.Contains(got, CodePath) && !slices.Contains(got, CodeManifest) {
				t.Errorf("step 1 is %s with %v", result.Steps[0].State, got)
			}
			wantFailure(t, result.Steps[1], CodeSubjects, evidence.ManifestPath)
		})
	}
	for _, c := range []struct {
		name   string
		change func(manifest string) string
	}{
		{"empty", func(string) string { return "" }},
		{"truncated", func(m string) string { return m[:len(m)/2] }},
		{"not JSON", func(string) string { return "hello\n" }},
		{"null", func(string) string { return "null\n" }},
		{"no files", func(string) string {
			return `{"mediaType":"application/vnd.rackproof.manifest.v1+json","minor":0,"files":[]}` + "\n"
		}},
		{"another major", func(m string) string { return strings.Replace(m, "manifest.v1+json", "manifest.v2+json", 1) }},
		{"negative size", func(m string) string { return strings.Replace(m, `"size":`, `"size":-`, 1) }},
		{"unknown field", func(m string) string { return strings.Replace(m, `"size":`, `"sizf":1,"size":`, 1) }},
		{"duplicate field", func(m string) string { return strings.Replace(m, `"size":`, `"size":1,"size":`, 1) }},
		{"case variant", func(m string) string { return strings.Replace(m, `"size":`, `"Size":`, 1) }},
		{"trailing data", func(m string) string { return m + "{}" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyRun(t, original)
			before := string(read(t, dir, evidence.ManifestPath))
			after := c.change(before)
			if after == before {
				t.Fatal("nothing changed")
			}
			write(t, dir, evidence.ManifestPath, []byte(after))
			result := checkDir(t, dir, policy)
			if result.Steps[0].State != Failed || result.Steps[1].State != Failed {
				t.Errorf("steps are %s and %s:\n%s", result.Steps[0].State, result.Steps[1].State, failureLines(result.Steps[0]))
			}
		})
	}
}

func TestStep1ComparesBothLists(t *testing.T) {
	dir, _, policy := signedRun(t)
	sums := string(read(t, dir, evidence.SumsPath))
	lines := strings.SplitAfter(sums, "\n")
	first := lines[0][66:]
	first = strings.TrimSuffix(first, "\n")
	for _, c := range []struct {
		name string
		sums string
		code string
		path string
	}{
		{"line dropped", strings.Join(lines[1:], ""), CodeSumsDiffer, first},
		{"other digest", strings.Repeat("0", 64) + sums[64:], CodeSumsDiffer, first},
		{"line added", sums + strings.Repeat("0", 64) + "  run/zzz\n", CodeSumsDiffer, "run/zzz"},
		{"garbage", "hello\n", CodeSums, evidence.SumsPath},
		{"upper-case digest", strings.ToUpper(sums[:64]) + sums[64:], CodeSums, evidence.SumsPath},
		{"line twice", lines[0] + sums, CodeSums, evidence.SumsPath},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, dir, evidence.SumsPath, []byte(c.sums))
			result := checkDir(t, dir, policy)
			wantFailure(t, result.Steps[0], c.code, c.path)
			wantFailure(t, result.Steps[1], CodeSubjects, evidence.SumsPath)
		})
	}
	t.Run("absent", func(t *testing.T) {
		must(t, os.Remove(filepath.Join(dir, evidence.SumsPath)))
		result := checkDir(t, dir, policy)
		wantFailure(t, result.Steps[0], CodeSums, evidence.SumsPath)
		wantFailure(t, result.Steps[1], CodeSums, evidence.SumsPath)
	})
}

func TestStep1LimitsApprovals(t *testing.T) {
	dir, _, policy := signedRun(t)
	for i := range 64 {
		write(t, dir, fmt.Sprintf("approvals/%02d-x-01234567.sigstore.json", i), []byte("{}"))
	}
	result := checkDir(t, dir, policy)
	wantStep(t, result.Steps[0])
	wantStep(t, result.Steps[2])
	if want := "none required; not evaluated: 64 files in approvals/"; result.Steps[2].Summary != want {
		t.Errorf("summary %q, want %q", result.Steps[2].Summary, want)
	}
	write(t, dir, "approvals/64-x-01234567.sigstore.json", []byte("{}"))
	wantStep(t, checkDir(t, dir, policy).Steps[0], CodeLimit)
}

func TestStep3FailsClosed(t *testing.T) {
	quorum := evidence.Quorum{Name: "thresholds", Of: "plan", By: []string{"customer"}, Counts: map[string]int{"customer": 2, "vendor": 1}}
	dir := sealedRun(t, change{plan: func(p *evidence.Plan) { p.Quorums = []evidence.Quorum{quorum} }})
	s := newSigner(t)
	must(t, Sign(t.Context(), dir, s))
	policy := policyOf(t, s)
	write(t, dir, "approvals/01-customer-01234567.sigstore.json", read(t, dir, evidence.SignaturePath))

	result := checkDir(t, dir, policy)
	wantStep(t, result.Steps[0])
	wantStep(t, result.Steps[1])
	wantStep(t, result.Steps[2], CodeApprovalMissing)
	if f := result.Steps[2].Failures[0]; f.Expected != "2 of customer, 1 of vendor" || f.Actual != "none counted" {
		t.Errorf("failure %+v", f)
	}
	policy.Require.Approved = true
	wantStep(t, checkDir(t, dir, policy).Steps[2], CodeApprovalMissing, CodeApprovalMissing)

	t.Run("required by trust alone", func(t *testing.T) {
		dir, _, policy := signedRun(t)
		policy.Require.Approved = true
		wantStep(t, checkDir(t, dir, policy).Steps[2], CodeApprovalMissing)
	})
	t.Run("the caller's plan counts", func(t *testing.T) {
		dir, _, policy := signedRun(t)
		result := Check(rootFS(t, dir), policy, &evidence.Plan{Quorums: []evidence.Quorum{quorum}}, time.Now())
		wantStep(t, result.Steps[2], CodeApprovalMissing)
	})
	t.Run("without a plan nobody knows", func(t *testing.T) {
		dir, _, policy := signedRun(t)
		must(t, os.Remove(filepath.Join(dir, evidence.PlanPath)))
		wantStep(t, checkDir(t, dir, policy).Steps[2], CodePlan)
	})
}
