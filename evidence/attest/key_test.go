package attest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// openssl runs the real tool and returns the file that it wrote as "out".
func openssl(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	out := filepath.Join(dir, "out")
	cmd := exec.CommandContext(t.Context(), "openssl", append(args, "-out", out)...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func passphrase(text string) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(text), nil }
}

func newSigner(t *testing.T) Signer {
	t.Helper()
	private, _, err := GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := LoadSigner(private, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func publicPEM(t *testing.T, public crypto.PublicKey) []byte {
	t.Helper()
	text, err := cryptoutils.MarshalPublicKeyToPEM(public)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}

func TestGenerateKey(t *testing.T) {
	for _, c := range []struct {
		name       string
		passphrase []byte
		block      string
	}{
		{"plain", nil, "PRIVATE KEY"},
		{"encrypted", []byte("correct horse"), "ENCRYPTED SIGSTORE PRIVATE KEY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			private, public, err := GenerateKey(c.passphrase)
			if err != nil {
				t.Fatal(err)
			}
			if block, _ := pem.Decode(private); block == nil || block.Type != c.block {
				t.Fatalf("private key is %.60q, want a %s block", private, c.block)
			}
			asked := 0
			s, err := LoadSigner(private, func() ([]byte, error) { asked++; return c.passphrase, nil })
			if err != nil {
				t.Fatal(err)
			}
			if want := min(1, len(c.passphrase)); asked != want {
				t.Errorf("asked %d times for the passphrase, want %d", asked, want)
			}
			parsed, err := ParsePublicKey(public)
			if err != nil {
				t.Fatal(err)
			}
			if !parsed.(*ecdsa.PublicKey).Equal(s.Public()) {
				t.Error("public file and signer hold different keys")
			}
			if err := TestSign(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	_, _, err := GenerateKey([]byte{})
	wantError(t, err, "passphrase is empty")
}

func TestLoadSignerReadsKeysOfOpenSSL(t *testing.T) {
	dir := t.TempDir()
	pkcs8 := openssl(t, dir, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("key.pem", pkcs8)
	want, err := LoadSigner(pkcs8, nil)
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode(pkcs8); block.Type != "PRIVATE KEY" {
		t.Fatalf("openssl genpkey wrote a %s block", block.Type)
	}
	for _, c := range []struct {
		name  string
		args  []string
		block string
	}{
		{"SEC 1", []string{"ec", "-in", file}, "EC PRIVATE KEY"},
		{"PBKDF2 and AES", []string{"pkcs8", "-topk8", "-in", file, "-v2", "aes-256-cbc", "-passout", "pass:secret"}, "ENCRYPTED PRIVATE KEY"},
		{"scrypt", []string{"pkcs8", "-topk8", "-in", file, "-scrypt", "-passout", "pass:secret"}, "ENCRYPTED PRIVATE KEY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := openssl(t, dir, c.args...)
			if block, _ := pem.Decode(text); block.Type != c.block {
				t.Fatalf("openssl wrote a %s block, want %s", block.Type, c.block)
			}
			s, err := LoadSigner(text, passphrase("secret"))
			if err != nil {
				t.Fatal(err)
			}
			if s.KeyID() != want.KeyID() {
				t.Errorf("key %s, want %s", s.KeyID(), want.KeyID())
			}
			if err := TestSign(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("parameters before the key", func(t *testing.T) {
		text := openssl(t, dir, "ecparam", "-name", "prime256v1", "-genkey")
		if !strings.Contains(string(text), "EC PARAMETERS") {
			t.Fatalf("openssl wrote no EC PARAMETERS:\n%s", text)
		}
		s, err := LoadSigner(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := TestSign(t.Context(), s); err != nil {
			t.Error(err)
		}
	})
}

func TestLoadSignerReadsOldCosignKeys(t *testing.T) {
	private, _, err := GenerateKey([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	old := strings.ReplaceAll(string(private), "SIGSTORE", "COSIGN")
	s, err := LoadSigner([]byte(old), passphrase("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if err := TestSign(t.Context(), s); err != nil {
		t.Error(err)
	}
}

func TestLoadSignerRefuses(t *testing.T) {
	dir := t.TempDir()
	ours, ourPublic, err := GenerateKey([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "plain.pem")
	if err := os.WriteFile(path, plain, 0o600); err != nil {
		t.Fatal(err)
	}
	encrypted := openssl(t, dir, "pkcs8", "-topk8", "-in", path, "-passout", "pass:secret")
	legacy := openssl(t, dir, "ec", "-in", path, "-aes256", "-passout", "pass:secret")
	p384 := openssl(t, dir, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384")
	rsa2048 := openssl(t, dir, "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
	edwards := openssl(t, dir, "genpkey", "-algorithm", "ed25519")
	asking := errors.New("no terminal")

	for _, c := range []struct {
		name       string
		text       []byte
		passphrase func() ([]byte, error)
		want       []string
	}{
		{"wrong passphrase", ours, passphrase("guess"), []string{"passphrase is wrong"}},
		{"wrong passphrase, PKCS#8", encrypted, passphrase("guess"), []string{"passphrase is wrong"}},
		{"empty passphrase", ours, passphrase(""), []string{"passphrase is wrong"}},
		{"no passphrase", ours, nil, []string{"no passphrase was given"}},
		{"passphrase cannot be asked", ours, func() ([]byte, error) { return nil, asking }, []string{"passphrase: no terminal"}},
		{"legacy encryption", legacy, passphrase("secret"), []string{"legacy PEM encryption", "openssl pkcs8 -topk8"}},
		{"P-384", p384, nil, []string{"ECDSA P-384", "rackproof keygen"}},
		{"RSA", rsa2048, nil, []string{"RSA", "rackproof keygen"}},
		{"Ed25519", edwards, nil, []string{"Ed25519", "rackproof keygen"}},
		{"OpenSSH", pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: []byte("openssh-key-v1")}), nil, []string{"OPENSSH", "ssh-keygen -p -m PKCS8"}},
		{"public key", ourPublic, nil, []string{"a public key"}},
		{"certificate", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}), nil, []string{"CERTIFICATE block"}},
		{"two keys", append(append([]byte{}, plain...), plain...), nil, []string{"more than one PEM block"}},
		{"empty file", nil, nil, []string{"no PEM block"}},
		{"garbage", []byte("-----BEGIN PRIVATE KEY-----\nAAAA"), nil, []string{"no PEM block"}},
		{"truncated contents", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{0x30, 0x81}}), nil, []string{"private key"}},
		{"steered name", pem.EncodeToMemory(&pem.Block{Type: "\x1b[2J KEY", Bytes: []byte{1}}), nil, []string{`\x1b[2J KEY block`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := LoadSigner(c.text, c.passphrase)
			wantError(t, err, c.want...)
		})
	}
}

func TestParsePublicKey(t *testing.T) {
	dir := t.TempDir()
	private := filepath.Join(dir, "private.pem")
	of := func(args ...string) []byte {
		if err := os.WriteFile(private, openssl(t, dir, append([]string{"genpkey"}, args...)...), 0o600); err != nil {
			t.Fatal(err)
		}
		return openssl(t, dir, "pkey", "-in", private, "-pubout")
	}
	p256 := of("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
	secret, err := os.ReadFile(private)
	if err != nil {
		t.Fatal(err)
	}
	rsa3072 := of("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:3072")
	pkcs1 := openssl(t, dir, "rsa", "-in", private, "-RSAPublicKey_out")

	for name, text := range map[string][]byte{
		"P-256":    p256,
		"Ed25519":  of("-algorithm", "ed25519"),
		"RSA 3072": rsa3072,
	} {
		if _, err := ParsePublicKey(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		name string
		text []byte
		want []string
	}{
		{"P-384", of("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"), []string{"ECDSA P-384", "not accepted"}},
		{"P-521", of("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"), []string{"ECDSA P-521", "not accepted"}},
		{"RSA 2048", of("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"), []string{"RSA of 2048 bits", "3072"}},
		{"X25519", of("-algorithm", "X25519"), []string{"not accepted"}},
		{"PKCS#1", pkcs1, []string{"openssl rsa -RSAPublicKey_in -pubout"}},
		{"private key", secret, []string{"public half"}},
		{"two keys", append(append([]byte{}, p256...), rsa3072...), []string{"more than one PEM block"}},
		{"OpenSSH", []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me"), []string{"ssh-keygen -e -m PKCS8"}},
		{"certificate", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}), []string{"openssl x509 -pubkey"}},
		{"garbage", []byte("hello"), []string{"no PEM block"}},
		{"point not on the curve", offCurve(p256), []string{"public key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParsePublicKey(c.text)
			wantError(t, err, c.want...)
		})
	}
}

func offCurve(text []byte) []byte {
	block, _ := pem.Decode(text)
	block.Bytes[len(block.Bytes)-1] ^= 1
	return pem.EncodeToMemory(block)
}

func TestFingerprint(t *testing.T) {
	s := newSigner(t)
	block, _ := pem.Decode(publicPEM(t, s.Public()))
	sum := sha256.Sum256(block.Bytes)
	hint, err := Hint(s.Public())
	if err != nil {
		t.Fatal(err)
	}
	if want := base64.StdEncoding.EncodeToString(sum[:]); hint != want {
		t.Errorf("hint %s, want %s", hint, want)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key.pub"), publicPEM(t, s.Public()), 0o600); err != nil {
		t.Fatal(err)
	}
	der := openssl(t, dir, "pkey", "-pubin", "-in", "key.pub", "-outform", "DER")
	fingerprint, err := Fingerprint(s.Public())
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(der)
	if want := "sha256:" + hexOf(digest[:]); string(fingerprint) != want {
		t.Errorf("fingerprint %s, want that of openssl's DER: %s", fingerprint, want)
	}
	if _, err := Fingerprint("no key"); err == nil {
		t.Error("a text has a fingerprint")
	}
	if _, err := Hint("no key"); err == nil {
		t.Error("a text has a hint")
	}
}

// lyingSigner signs something else than it is asked to, or with another key.
type lyingSigner struct {
	Signer
	sign func(payloadType string, payload []byte) ([]byte, error)
}

func (s lyingSigner) Sign(_ context.Context, payloadType string, payload []byte) ([]byte, error) {
	return s.sign(payloadType, payload)
}

func TestTestSignFindsALyingSigner(t *testing.T) {
	honest := newSigner(t)
	other := newSigner(t)
	for name, sign := range map[string]func(string, []byte) ([]byte, error){
		"another payload": func(kind string, _ []byte) ([]byte, error) {
			return honest.Sign(t.Context(), kind, []byte("something else"))
		},
		"another type": func(_ string, payload []byte) ([]byte, error) {
			return honest.Sign(t.Context(), "text/plain", payload)
		},
		"another key": func(kind string, payload []byte) ([]byte, error) {
			return other.Sign(t.Context(), kind, payload)
		},
		"nothing": func(string, []byte) ([]byte, error) { return nil, nil },
	} {
		if err := TestSign(t.Context(), lyingSigner{honest, sign}); err == nil {
			t.Errorf("%s: the signer passes", name)
		} else {
			wantError(t, err, honest.KeyID(), "does not verify")
		}
	}
	refuses := errors.New("agent is locked")
	err := TestSign(t.Context(), lyingSigner{honest, func(string, []byte) ([]byte, error) { return nil, refuses }})
	if !errors.Is(err, refuses) {
		t.Errorf("error %v, want %v", err, refuses)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := TestSign(canceled, honest); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after cancel", err)
	}
}

// signWith makes a DSSE signature with each kind of key that is accepted for
// verification.
func TestVerificationAcceptsEachAllowedKind(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("DSSEv1 4 type 7 payload")
	digest := sha256.Sum256(message)
	for name, c := range map[string]struct {
		key  crypto.Signer
		data []byte
		opts crypto.SignerOpts
	}{
		"Ed25519":     {edwards, message, crypto.Hash(0)},
		"RSA PKCS1":   {rsaKey, digest[:], crypto.SHA256},
		"ECDSA P-256": {curve, digest[:], crypto.SHA256},
	} {
		sig, err := c.key.Sign(rand.Reader, c.data, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifyPAE(c.key.Public(), "type", []byte("payload"), sig); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := verifyPAE(c.key.Public(), "typf", []byte("payload"), sig); err == nil {
			t.Errorf("%s: verifies with another payload type", name)
		}
		if err := verifyPAE(c.key.Public(), "type", []byte("payload"), append(sig, 0)); err == nil {
			t.Errorf("%s: verifies with a trailing byte", name)
		}
	}
	pss, err := rsa.SignPSS(rand.Reader, rsaKey, crypto.SHA256, digest[:], nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyPAE(rsaKey.Public(), "type", []byte("payload"), pss); err == nil {
		t.Error("an RSA-PSS signature verifies")
	}
	prehashed, err := edwards.Sign(rand.Reader, sha512Of(message), crypto.SHA512)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyPAE(edwards.Public(), "type", []byte("payload"), prehashed); err == nil {
		t.Error("an Ed25519ph signature verifies")
	}
	sha1, err := rsa.SignPKCS1v15(rand.Reader, rsaKey, crypto.SHA1, sha1Of(message))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyPAE(rsaKey.Public(), "type", []byte("payload"), sha1); err == nil {
		t.Error("an RSA signature with SHA-1 verifies")
	}
}
