package attest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	bundlev1 "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	commonv1 "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/rackproof/rackproof/evidence"
)

// mediaBundle is the only Sigstore bundle that is written and read.
const mediaBundle = "application/vnd.dev.sigstore.bundle.v0.3+json"

// encodeBundle wraps one DSSE signature into a Sigstore bundle.
func encodeBundle(payload, sig []byte, keyID, hint string) ([]byte, error) {
	text, err := protojson.Marshal(&bundlev1.Bundle{
		MediaType: mediaBundle,
		VerificationMaterial: &bundlev1.VerificationMaterial{
			Content: &bundlev1.VerificationMaterial_PublicKey{
				PublicKey: &commonv1.PublicKeyIdentifier{Hint: hint},
			},
		},
		Content: &bundlev1.Bundle_DsseEnvelope{
			DsseEnvelope: &dsse.Envelope{
				Payload:     payload,
				PayloadType: payloadType,
				Signatures:  []*dsse.Signature{{Sig: sig, Keyid: keyID}},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("sigstore bundle: %w", err)
	}
	// protojson varies its white space from build to build, on purpose.
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return nil, fmt.Errorf("sigstore bundle: %w", err)
	}
	line.WriteByte('\n')
	return line.Bytes(), nil
}

// envelope is what a bundle holds, decoded once: what is verified is what is
// read afterwards.
type envelope struct {
	payloadType string
	payload     []byte
	sig         []byte
	keyID       string
	hint        string
	unevaluated int // timestamps and log entries
}

// The JSON of a bundle as this package accepts it: exact names, one signature
// by a public key. Timestamps and log entries are allowed and not evaluated.
type bundleJSON struct {
	MediaType            string       `json:"mediaType"`
	VerificationMaterial materialJSON `json:"verificationMaterial"`
	DSSEEnvelope         envelopeJSON `json:"dsseEnvelope"`
}

type materialJSON struct {
	PublicKey                 *hintJSON          `json:"publicKey"`
	TlogEntries               []json.RawMessage  `json:"tlogEntries"`
	TimestampVerificationData *timestampDataJSON `json:"timestampVerificationData"`
}

type hintJSON struct {
	Hint string `json:"hint"`
}

type timestampDataJSON struct {
	RFC3161Timestamps []json.RawMessage `json:"rfc3161Timestamps"`
}

type envelopeJSON struct {
	Payload     string          `json:"payload"`
	PayloadType string          `json:"payloadType"`
	Signatures  []signatureJSON `json:"signatures"`
}

type signatureJSON struct {
	Sig   string `json:"sig"`
	KeyID string `json:"keyid"`
}

// decodeBundle reads a bundle strictly. It proves nothing.
func decodeBundle(data []byte) (envelope, error) {
	if len(data) > maxBundle {
		return envelope{}, fmt.Errorf("%d bytes: %w", len(data), errTooLarge)
	}
	var b bundleJSON
	if err := evidence.DecodeStrict(data, &b); err != nil {
		return envelope{}, err
	}
	if b.MediaType != mediaBundle {
		return envelope{}, fmt.Errorf("mediaType %q: want %q", b.MediaType, mediaBundle)
	}
	// Sigstore's own schema has the last word on the parts that are passed over.
	if err := protojson.Unmarshal(data, new(bundlev1.Bundle)); err != nil {
		return envelope{}, fmt.Errorf("not of Sigstore's schema: %w", err)
	}
	if b.VerificationMaterial.PublicKey == nil {
		return envelope{}, errors.New("verificationMaterial has no publicKey: want a bundle signed with a key")
	}
	if n := len(b.DSSEEnvelope.Signatures); n != 1 {
		return envelope{}, fmt.Errorf("%d signatures: want exactly one", n)
	}
	strict := base64.StdEncoding.Strict()
	payload, err := strict.DecodeString(b.DSSEEnvelope.Payload)
	if err != nil {
		return envelope{}, fmt.Errorf("payload: %w", err)
	}
	if len(payload) > maxStatement {
		return envelope{}, fmt.Errorf("payload of %d bytes: %w", len(payload), errTooLarge)
	}
	sig, err := strict.DecodeString(b.DSSEEnvelope.Signatures[0].Sig)
	if err != nil {
		return envelope{}, fmt.Errorf("signature: %w", err)
	}
	unevaluated := len(b.VerificationMaterial.TlogEntries)
	if stamps := b.VerificationMaterial.TimestampVerificationData; stamps != nil {
		unevaluated += len(stamps.RFC3161Timestamps)
	}
	return envelope{
		payloadType: b.DSSEEnvelope.PayloadType,
		payload:     payload,
		sig:         sig,
		keyID:       b.DSSEEnvelope.Signatures[0].KeyID,
		hint:        b.VerificationMaterial.PublicKey.Hint,
		unevaluated: unevaluated,
	}, nil
}
