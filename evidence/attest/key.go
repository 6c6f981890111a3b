package attest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/rackproof/rackproof/evidence"
)

// PEM block types. Cosign wrote "COSIGN" before version 2.0 and "SIGSTORE"
// since.
const (
	pemSigstore       = "ENCRYPTED SIGSTORE PRIVATE KEY"
	pemCosign         = "ENCRYPTED COSIGN PRIVATE KEY"
	pemPKCS8          = "PRIVATE KEY"
	pemEncryptedPKCS8 = "ENCRYPTED PRIVATE KEY"
	pemSEC1           = "EC PRIVATE KEY"
	pemECParameters   = "EC PARAMETERS" // openssl ecparam -genkey writes it before the key
	pemPublic         = "PUBLIC KEY"
)

// minRSABits is the least RSA modulus that is accepted: 128 bits of security
// by NIST SP 800-57 part 1, table 2.
const minRSABits = 3072

// GenerateKey makes an ECDSA P-256 key pair. The private half is encrypted as
// cosign does it, or plain PKCS#8 where passphrase is nil. The public half is
// a PUBLIC KEY block.
func GenerateKey(passphrase []byte) (private, public []byte, err error) {
	var pass cryptoutils.PassFunc
	if passphrase != nil {
		if len(passphrase) == 0 {
			return nil, nil, errors.New("generate key: the passphrase is empty: give one, or ask for an unencrypted key")
		}
		pass = cryptoutils.StaticPasswordFunc(passphrase)
	}
	private, public, err = cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), pass)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	return private, public, nil
}

// ParsePublicKey reads one PUBLIC KEY block and refuses every kind of key
// that a signature is not accepted from. Accepted are ECDSA P-256 with
// SHA-256, Ed25519, and RSA PKCS #1 v1.5 with SHA-256 from 3,072 bits up.
func ParsePublicKey(text []byte) (crypto.PublicKey, error) {
	block, rest := pem.Decode(text)
	if block == nil {
		if bytes.HasPrefix(bytes.TrimSpace(text), []byte("ssh-")) || bytes.HasPrefix(bytes.TrimSpace(text), []byte("ecdsa-")) {
			return nil, errors.New("public key: an OpenSSH key: convert it with ssh-keygen -e -m PKCS8 -f FILE")
		}
		return nil, errors.New("public key: no PEM block: want -----BEGIN PUBLIC KEY-----")
	}
	switch {
	case block.Type == pemPublic:
	case strings.Contains(block.Type, "PRIVATE KEY"):
		return nil, fmt.Errorf("public key: a %s block: name the public half, and keep the private key to yourself", printable(block.Type))
	case block.Type == "RSA PUBLIC KEY":
		return nil, errors.New("public key: an RSA PUBLIC KEY block: convert it with openssl rsa -RSAPublicKey_in -pubout -in FILE")
	case block.Type == "CERTIFICATE":
		return nil, errors.New("public key: a CERTIFICATE block: take its key with openssl x509 -pubkey -noout -in FILE")
	default:
		return nil, fmt.Errorf("public key: a %s block: want PUBLIC KEY", printable(block.Type))
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("public key: more than one PEM block: keep one key in a file")
	}
	public, err := cryptoutils.UnmarshalPEMToPublicKey(text)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	if _, err := verifierFor(public); err != nil {
		return nil, err
	}
	return public, nil
}

// errAlgorithm is wrapped by the refusal of a kind of key.
var errAlgorithm = errors.New("this kind of key is not accepted: use ECDSA P-256 (rackproof keygen), Ed25519 or RSA of at least 3072 bits")

// verifierFor chooses the algorithm from the trusted key alone; nothing in a
// bundle has a say in it.
func verifierFor(public crypto.PublicKey) (signature.Verifier, error) {
	kind := fmt.Sprintf("%T", public)
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return signature.LoadECDSAVerifier(key, crypto.SHA256)
		}
		kind = "ECDSA " + key.Curve.Params().Name
	case ed25519.PublicKey:
		return signature.LoadED25519Verifier(key)
	case *rsa.PublicKey:
		if key.N.BitLen() >= minRSABits {
			return signature.LoadRSAPKCS1v15Verifier(key, crypto.SHA256)
		}
		kind = fmt.Sprintf("RSA of %d bits", key.N.BitLen())
	}
	return nil, fmt.Errorf("public key: %s: %w", kind, errAlgorithm)
}

// Fingerprint is the SHA-256 of the key's SubjectPublicKeyInfo in DER.
func Fingerprint(public crypto.PublicKey) (evidence.Digest, error) {
	der, err := cryptoutils.MarshalPublicKeyToDER(public)
	if err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	return evidence.DigestOf(der), nil
}

// Hint is the key's fingerprint as cosign writes it into a bundle: the same
// 32 bytes in base64.
func Hint(public crypto.PublicKey) (string, error) {
	der, err := cryptoutils.MarshalPublicKeyToDER(public)
	if err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.StdEncoding.EncodeToString(sum[:]), nil
}

// parsePrivateKey reads one private key in any of the forms that LoadSigner
// accepts. passphrase is asked once, and only for an encrypted key.
func parsePrivateKey(text []byte, passphrase func() ([]byte, error)) (crypto.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block != nil && block.Type == pemECParameters {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("no PEM block: want a private key such as rackproof keygen, cosign or openssl writes")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("more than one PEM block: keep one key in a file")
	}
	if block.Headers["DEK-Info"] != "" {
		return nil, errors.New("legacy PEM encryption, whose key derivation is weak: convert it with openssl pkcs8 -topk8 -in FILE -out NEW")
	}

	ask := func() ([]byte, error) {
		if passphrase == nil {
			return nil, errors.New("encrypted, and no passphrase was given")
		}
		secret, err := passphrase()
		if err != nil {
			return nil, fmt.Errorf("passphrase: %w", err)
		}
		if secret == nil {
			secret = []byte{}
		}
		return secret, nil
	}

	switch block.Type {
	case pemSigstore, pemCosign:
		secret, err := ask()
		if err != nil {
			return nil, err
		}
		der, err := encrypted.Decrypt(block.Bytes, secret)
		if err != nil {
			return nil, fmt.Errorf("cannot be decrypted: the passphrase is wrong or the file is damaged: %w", err)
		}
		return unmarshalPrivate(pemPKCS8, der, nil)
	case pemEncryptedPKCS8:
		secret, err := ask()
		if err != nil {
			return nil, err
		}
		key, err := unmarshalPrivate(block.Type, block.Bytes, cryptoutils.StaticPasswordFunc(secret))
		if err != nil {
			return nil, fmt.Errorf("cannot be decrypted: the passphrase is wrong or the file is damaged: %w", err)
		}
		return key, nil
	case pemPKCS8, pemSEC1:
		return unmarshalPrivate(block.Type, block.Bytes, nil)
	case "RSA PRIVATE KEY":
		return nil, fmt.Errorf("an RSA key: %w", errSignerKind)
	case "OPENSSH PRIVATE KEY":
		return nil, errors.New("an OPENSSH PRIVATE KEY block: convert a copy of an ECDSA key with ssh-keygen -p -m PKCS8 -f COPY, or make a key with rackproof keygen")
	case pemPublic:
		return nil, errors.New("a public key: signing needs the private half")
	}
	return nil, fmt.Errorf("a %s block: want a private key such as rackproof keygen, cosign or openssl writes", printable(block.Type))
}

func unmarshalPrivate(kind string, der []byte, pass cryptoutils.PassFunc) (crypto.PrivateKey, error) {
	return cryptoutils.UnmarshalPEMToPrivateKey(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), pass)
}
