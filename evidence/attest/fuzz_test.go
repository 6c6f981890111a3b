package attest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// fuzzRun is the lists of a run of one file, the statement about them and the
// key that signs it.
type fuzzRun struct {
	manifest, sums, payload []byte
	files                   Files
	signer                  Signer
	policy                  Policy
}

func newFuzzRun(f *testing.F) fuzzRun {
	f.Helper()
	zeros := strings.Repeat("0", 64)
	r := fuzzRun{
		manifest: []byte(`{"mediaType":"application/vnd.rackproof.manifest.v1+json","minor":0,"files":[` + "\n" +
			`{"path":"run/plan.json","size":1,"sha256":"` + zeros + `","role":"plan","salt":"` + zeros[:32] + `"}` + "\n]}\n"),
		sums: []byte(zeros + "  run/plan.json\n"),
	}
	private, public, err := GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	if r.signer, err = LoadSigner(private, nil); err != nil {
		f.Fatal(err)
	}
	r.policy = Policy{
		Keys:    []Key{{Name: "k", Owner: "o", PEM: public}},
		Roles:   []Role{{Name: RoleOperator, AnyOf: []string{"k"}, Quorum: 1}},
		Require: Require{Level: Attested},
	}
	p := Predicate{MediaType: MediaPredicate}
	if p.Files, p.Merkle, err = totals(r.manifest); err != nil {
		f.Fatal(err)
	}
	r.files = p.Files
	p.Plan, p.Runbook, p.Verdict.Digest = zeroDigest, zeroDigest, zeroDigest
	p.Journal.Head, p.Tool.Digest = zeroDigest, zeroDigest
	if r.payload, err = statementOf(&p, r.manifest, r.sums); err != nil {
		f.Fatal(err)
	}
	return r
}

// wantReasons demands that a failed step says why, and returns its state.
func wantReasons(t testing.TB, step StepResult, predicate *Predicate) State {
	switch {
	case step.State == Failed && len(step.Failures) > 0:
		for _, failure := range step.Failures {
			if failure.Message == "" || failure.Code == "" || failure.Next == "" {
				t.Errorf("failure without code, message or next step: %+v", failure)
			}
		}
	case step.State != OK || len(step.Failures) > 0 || predicate == nil:
		t.Errorf("state %q with %d failures and predicate %v", step.State, len(step.Failures), predicate)
	}
	return step.State
}

// FuzzEnvelope: no bundle makes the verifier panic, and none passes but one
// that carries the payload that was signed.
func FuzzEnvelope(f *testing.F) {
	r := newFuzzRun(f)
	sig, err := r.signer.Sign(f.Context(), payloadType, r.payload)
	if err != nil {
		f.Fatal(err)
	}
	good, err := encodeBundle(r.payload, sig, r.signer.KeyID(), "")
	if err != nil {
		f.Fatal(err)
	}
	check := func(t testing.TB, bundle []byte) (State, evidence.Digest) {
		step, predicate, _, digest := CheckSignature(bundle, r.manifest, r.sums, r.policy, time.Now())
		return wantReasons(t, step, predicate), digest
	}
	if state, _ := check(f, good); state != OK {
		f.Fatalf("the good bundle is %s", state)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(bytes.Replace(good, []byte(`"payload"`), []byte(`"Payload"`), 1))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"mediaType":"` + mediaBundle + `","verificationMaterial":{"publicKey":{}},"dsseEnvelope":{"signatures":[{}]}}`))
	f.Fuzz(func(t *testing.T, bundle []byte) {
		if state, digest := check(t, bundle); state == OK && digest != evidence.DigestOf(r.payload) {
			t.Errorf("a bundle passes without the signed payload: %q", bundle)
		}
	})
}

// FuzzPayload: whatever a trusted key has signed, the verifier does not panic, and
// accepts only a statement about these two lists with these totals.
func FuzzPayload(f *testing.F) {
	r := newFuzzRun(f)
	f.Add(r.payload)
	f.Add(r.payload[:len(r.payload)/2])
	f.Add([]byte(`{"_type":"` + statementType + `","subject":[],"predicateType":"` + PredicateType + `","predicate":{}}`))
	f.Add(bytes.Replace(r.payload, []byte(`"minor":0`), []byte(`"minor":9`), 1))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c := newSignatureCheck(r.policy, time.Now())
		c.key, c.signer = c.keys[0], c.keys[0].signatory()
		c.checkPayload(payload, r.manifest, r.sums)
		if wantReasons(t, c.result(), c.predicate) != OK {
			return
		}
		for _, want := range []string{statementType, PredicateType, evidence.DigestOf(r.manifest).Hex(), evidence.DigestOf(r.sums).Hex()} {
			if !bytes.Contains(payload, []byte(want)) && !bytes.Contains(payload, []byte(`\u`)) && !bytes.Contains(payload, []byte(`\/`)) {
				t.Errorf("a payload without %s passes: %q", want, payload)
			}
		}
		if c.predicate.Files != r.files {
			t.Errorf("totals %+v pass, want %+v", c.predicate.Files, r.files)
		}
	})
}
