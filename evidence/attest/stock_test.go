package attest

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/rackproof/rackproof/evidence"
)

// opensslVerify checks one signature with the real openssl.
func opensslVerify(t *testing.T, key, pae, sig []byte) (string, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "key.pub", key)
	write(t, dir, "pae", pae)
	write(t, dir, "sig", sig)
	cmd := exec.CommandContext(t.Context(), "openssl", "dgst", "-sha256", "-verify", "key.pub", "-signature", "sig", "pae")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestOpenSSLVerifiesTheSignature(t *testing.T) {
	dir, s, _ := signedRun(t)
	b := readLoose(t, dir)
	payload, err := base64.StdEncoding.DecodeString(b.object("dsseEnvelope")["payload"].(string))
	must(t, err)
	sig, err := base64.StdEncoding.DecodeString(b.signature()["sig"].(string))
	must(t, err)
	pae := dsse.PAE("application/vnd.in-toto+json", payload)

	out, err := opensslVerify(t, publicPEM(t, s.Public()), pae, sig)
	if err != nil || out != "Verified OK\n" {
		t.Errorf("openssl says %q, %v", out, err)
	}
	if out, err := opensslVerify(t, publicPEM(t, newSigner(t).Public()), pae, sig); err == nil {
		t.Errorf("with another key openssl says %q", out)
	}
	if out, err := opensslVerify(t, publicPEM(t, s.Public()), payload, sig); err == nil {
		t.Errorf("over the bare payload openssl says %q", out)
	}
}

// runStock runs the stock commands that need no cosign, as one script.
func runStock(t *testing.T, dir, key string) (string, error) {
	t.Helper()
	script := []string{"set -e"}
	for _, line := range StockCommands(dir, key) {
		if !strings.HasPrefix(line, "cosign ") {
			script = append(script, line)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Join(script, "\n"))
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestStockCommandsWork(t *testing.T) {
	sealed, s, _ := signedRun(t)
	dir := filepath.Join(filepath.Dir(sealed), "a run's $dir")
	must(t, os.Rename(sealed, dir))
	key := filepath.Join(t.TempDir(), "operator's key.pub")
	must(t, os.WriteFile(key, publicPEM(t, s.Public()), 0o644))

	out, err := runStock(t, dir, key)
	if want := "Verified OK\nmanifest.json: OK\nSHA256SUMS: OK\n"; err != nil || out != want {
		t.Fatalf("the commands print %q, %v; want %q", out, err, want)
	}

	for _, c := range []struct {
		name  string
		spoil func()
		want  string
	}{
		{"extra file", func() { write(t, dir, "run/extra", nil) }, "run/extra\n"},
		{"changed file", func() { write(t, dir, evidence.VerdictPath, []byte("{}")) }, "run/verdict.json: FAILED"},
		{"changed list", func() { write(t, dir, evidence.SumsPath, nil) }, "SHA256SUMS: FAILED"},
		{"other key", func() { must(t, os.WriteFile(key, publicPEM(t, newSigner(t).Public()), 0o644)) }, "Verification failure"},
	} {
		c.spoil()
		if out, _ := runStock(t, dir, key); !strings.Contains(out, c.want) {
			t.Errorf("%s: the commands print %q, want %q in it", c.name, out, c.want)
		}
	}
}

func TestStockCommandForms(t *testing.T) {
	commands := strings.Join(StockCommands("runs/x", "keys/op.pub"), "\n")
	for _, want := range []string{
		"cosign verify-blob-attestation --key keys/op.pub --bundle runs/x/evidence.sigstore.json " +
			"--type https://rackproof.dev/attestation/acceptance/v1 --trusted-root empty.json --insecure-ignore-tlog runs/x/manifest.json\n",
		"--insecure-ignore-tlog runs/x/SHA256SUMS\n",
		"openssl dgst -sha256 -verify keys/op.pub -signature statement.sig statement.pae\n",
		"sha256sum --strict --quiet -c SHA256SUMS)\n",
		"printf 'DSSEv1 28 application/vnd.in-toto+json %d '",
	} {
		if !strings.Contains(commands, want) {
			t.Errorf("the commands lack %q:\n%s", want, commands)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for given, want := range map[string]string{
		"runs/x-1.y": "runs/x-1.y",
		"":           "''",
		"a b":        "'a b'",
		"it's":       `'it'\''s'`,
		"$(rm)":      "'$(rm)'",
		"~/x":        "'~/x'",
	} {
		if got := shellQuote(given); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", given, got, want)
		}
	}
}
