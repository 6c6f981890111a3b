//go:build peers

package attest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// cosign runs the program that the environment variable COSIGN names, in dir
// and, where the user may, without any network.
func cosign(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv("COSIGN")
	if program == "" {
		t.Fatal("COSIGN is not set: want the path of cosign v3")
	}
	argv := append([]string{program}, args...)
	if os.Geteuid() == 0 {
		argv = append([]string{"unshare", "-n"}, argv...)
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=secret", "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustCosign(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := cosign(t, dir, args...)
	if err != nil {
		t.Fatalf("cosign %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// verifyArgs are the arguments of the documented command.
func verifyArgs(dir, key, file string) []string {
	return []string{
		"verify-blob-attestation", "--key", key, "--bundle", filepath.Join(dir, "evidence.sigstore.json"),
		"--type", PredicateType, "--trusted-root", "empty.json", "--insecure-ignore-tlog", filepath.Join(dir, file),
	}
}

func TestPeersCosignVerifiesOurBundle(t *testing.T) {
	dir, s, _ := signedRun(t)
	work := t.TempDir()
	key := filepath.Join(work, "op.pub")
	must(t, os.WriteFile(key, publicPEM(t, s.Public()), 0o644))
	must(t, os.WriteFile(filepath.Join(work, "empty.json"), []byte(emptyRoot), 0o644))

	printed := strings.Join(StockCommands(dir, key), "\n")
	for _, file := range []string{"manifest.json", "SHA256SUMS"} {
		args := verifyArgs(dir, key, file)
		if !strings.Contains(printed, "cosign "+strings.Join(args, " ")+"\n") {
			t.Errorf("the printed commands lack cosign %s:\n%s", strings.Join(args, " "), printed)
		}
		if out := mustCosign(t, work, args...); !strings.Contains(out, "Verified OK") {
			t.Errorf("%s: cosign says %q", file, out)
		}
	}
	if out, err := cosign(t, work, verifyArgs(dir, key, "run/plan.json")...); err == nil {
		t.Errorf("cosign verifies a file that is no subject: %s", out)
	}
	must(t, os.WriteFile(key, publicPEM(t, newSigner(t).Public()), 0o644))
	if out, err := cosign(t, work, verifyArgs(dir, key, "manifest.json")...); err == nil {
		t.Errorf("cosign verifies with another key: %s", out)
	}
}

func TestPeersKeyOfCosignSigns(t *testing.T) {
	work := t.TempDir()
	mustCosign(t, work, "generate-key-pair")
	private, err := os.ReadFile(filepath.Join(work, "cosign.key"))
	must(t, err)
	s, err := LoadSigner(private, passphrase("secret"))
	must(t, err)
	dir := sealedRun(t, change{})
	must(t, Sign(t.Context(), dir, s))
	must(t, os.WriteFile(filepath.Join(work, "empty.json"), []byte(emptyRoot), 0o644))
	if out := mustCosign(t, work, verifyArgs(dir, filepath.Join(work, "cosign.pub"), "manifest.json")...); !strings.Contains(out, "Verified OK") {
		t.Errorf("cosign says %q", out)
	}
}

func TestPeersCosignSignsWithOurKey(t *testing.T) {
	work := t.TempDir()
	private, public, err := GenerateKey([]byte("secret"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(work, "op.key"), private, 0o600))
	dir := sealedRun(t, change{})
	payload, err := Statement(rootFS(t, dir))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(work, "statement.json"), payload, 0o644))

	mustCosign(t, work, "signing-config", "create", "--out", "signing.json")
	mustCosign(t, work, "attest-blob", "--yes", "--key", "op.key", "--statement", "statement.json",
		"--bundle", "out.json", "--signing-config", "signing.json")
	bundle, err := os.ReadFile(filepath.Join(work, "out.json"))
	must(t, err)
	write(t, dir, "evidence.sigstore.json", bundle)

	policy := Policy{
		Keys:    []Key{{Name: "lead", Owner: "compute", PEM: public}},
		Roles:   []Role{{Name: RoleOperator, AnyOf: []string{"lead"}, Quorum: 1}},
		Require: Require{Level: Attested},
	}
	result := Check(rootFS(t, dir), policy, nil, time.Now())
	for _, step := range result.Steps {
		wantStep(t, step)
	}
}
