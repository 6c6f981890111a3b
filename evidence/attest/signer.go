package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"
)

// Signer makes DSSE signatures: over the pre-authentication encoding of a
// payload and its type.
type Signer interface {
	// KeyID is the key's id in a DSSE envelope, in the form that stock
	// verifiers compare: "SHA256:" and the key's OpenSSH fingerprint.
	KeyID() string
	Public() crypto.PublicKey
	// Sign returns the raw signature, ASN.1 DER for ECDSA.
	Sign(ctx context.Context, payloadType string, payload []byte) (sig []byte, err error)
}

var errSignerKind = errors.New("runs are signed with ECDSA P-256: make a key with rackproof keygen, or with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256")

// LoadSigner reads an ECDSA P-256 private key: encrypted as cosign or
// rackproof keygen write it, PKCS#8 plain or encrypted, or SEC 1. passphrase
// is called once, and only where the key is encrypted; it may be nil.
func LoadSigner(pem []byte, passphrase func() ([]byte, error)) (Signer, error) {
	private, err := parsePrivateKey(pem, passphrase)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	switch key := private.(type) {
	case *ecdsa.PrivateKey:
		if key.Curve != elliptic.P256() {
			return nil, fmt.Errorf("private key: ECDSA %s: %w", key.Curve.Params().Name, errSignerKind)
		}
		return newKeySigner(key)
	case ed25519.PrivateKey:
		return nil, fmt.Errorf("private key: Ed25519: %w", errSignerKind)
	case *rsa.PrivateKey:
		return nil, fmt.Errorf("private key: RSA: %w", errSignerKind)
	}
	return nil, fmt.Errorf("private key: %T: %w", private, errSignerKind)
}

// keySigner signs with a key in memory.
type keySigner struct {
	id     string
	signer *signature.ECDSASigner
	public crypto.PublicKey
}

func newKeySigner(key *ecdsa.PrivateKey) (*keySigner, error) {
	signer, err := signature.LoadECDSASigner(key, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	id, err := dsse.SHA256KeyID(key.Public())
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	return &keySigner{id: id, signer: signer, public: key.Public()}, nil
}

func (s *keySigner) KeyID() string            { return s.id }
func (s *keySigner) Public() crypto.PublicKey { return s.public }

func (s *keySigner) Sign(ctx context.Context, payloadType string, payload []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.signer.SignMessage(bytes.NewReader(dsse.PAE(payloadType, payload)), options.WithContext(ctx))
}

// nonceType is the payload type of TestSign. It differs from every type that
// means something, so that a test signature is good for nothing else.
const nonceType = "application/vnd.rackproof.nonce"

// TestSign proves that s can sign now: it signs a random value and verifies
// the signature with the signer's public key.
func TestSign(ctx context.Context, s Signer) error {
	nonce := []byte(rand.Text())
	sig, err := s.Sign(ctx, nonceType, nonce)
	if err != nil {
		return fmt.Errorf("test signature with key %s: %w", s.KeyID(), err)
	}
	if err := verifyPAE(s.Public(), nonceType, nonce, sig); err != nil {
		return fmt.Errorf("test signature with key %s: it does not verify: %w", s.KeyID(), err)
	}
	return nil
}

// verifyPAE checks one DSSE signature with one key.
func verifyPAE(public crypto.PublicKey, payloadType string, payload, sig []byte) error {
	verifier, err := verifierFor(public)
	if err != nil {
		return err
	}
	return verifier.VerifySignature(bytes.NewReader(sig), bytes.NewReader(dsse.PAE(payloadType, payload)))
}
