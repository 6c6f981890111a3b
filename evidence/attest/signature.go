package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/rackproof/rackproof/evidence"
)

// ClockTolerance is how far ahead of the verifier's clock the signer's may
// have been.
const ClockTolerance = time.Hour

const (
	nextKey  = "add the operator's public key to the trust policy if you trust it, or ask who signed"
	nextSign = "sign the run again with this build: rackproof sign RUN --key KEY"
)

// Signatory is whose key made a signature, in the words of the trust policy.
type Signatory struct {
	Key         string          `json:"key"`
	Owner       string          `json:"owner"`
	Fingerprint evidence.Digest `json:"fingerprint"` // SHA-256 of the SubjectPublicKeyInfo
}

// CheckSignature is step 2 as far as the three leading files of a bundle
// allow: signature, key, subjects, and the signed totals against the
// manifest. Nothing is returned beside a failed step unless the signature
// itself is that of a key of the operator's role. at is the moment that
// key validity is judged for.
func CheckSignature(bundle, manifest, sums []byte, p Policy, at time.Time) (step StepResult, payload *Predicate, signer Signatory, digest evidence.Digest) {
	c := newSignatureCheck(p, at)
	c.check(bundle, manifest, sums)
	return c.result(), c.predicate, c.signer, c.digest
}

// signatureCheck is one pass of step 2.
type signatureCheck struct {
	fails     failures
	keys      []trustedKey
	at        time.Time
	env       envelope
	key       trustedKey
	signer    Signatory
	digest    evidence.Digest // of the payload, once its signature is verified
	predicate *Predicate      // verified and decoded
	newer     bool
}

func newSignatureCheck(p Policy, at time.Time) *signatureCheck {
	c := &signatureCheck{at: at}
	keys, err := p.compile()
	if err != nil {
		for _, one := range joined(err) {
			code := CodePolicy
			if errors.Is(one, errAlgorithm) {
				code = CodeAlgorithm
			}
			c.fails.add(Failure{Code: code, Message: "trust policy: " + one.Error(), Next: "mend the trust policy"})
		}
		return c
	}
	c.keys = keys
	return c
}

// joined takes errors.Join apart.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

func (c *signatureCheck) result() StepResult {
	summary := fmt.Sprintf("signed by %s (key %s, %s); time claimed, not proven", c.signer.Owner, c.signer.Key, c.signer.Fingerprint)
	if c.env.unevaluated > 0 {
		summary += fmt.Sprintf("; timestamps or log entries not evaluated: %d", c.env.unevaluated)
	}
	if c.newer {
		summary += fmt.Sprintf("; a newer minor version (%d): what this build does not know was left alone", c.predicate.Minor)
	}
	return c.fails.result(2, "signature", printable(summary))
}

func (c *signatureCheck) refuse(code, message, next string) {
	c.fails.add(Failure{Code: code, Path: evidence.SignaturePath, Message: message, Next: next})
}

// check goes as far as it can: what is not verified is not parsed.
func (c *signatureCheck) check(bundle, manifest, sums []byte) {
	if c.fails.count() > 0 {
		return
	}
	env, err := decodeBundle(bundle)
	if err != nil {
		c.refuse(CodeBundle, "not a Sigstore bundle v0.3 with one signature: "+err.Error(), nextSign)
		return
	}
	c.env = env
	if env.payloadType != payloadType {
		c.fails.add(Failure{
			Code: CodePayloadType, Path: evidence.SignaturePath, Message: "the envelope does not hold an in-toto statement",
			Expected: payloadType, Actual: env.payloadType, Next: nextSign,
		})
		return
	}
	if !c.verify() {
		return
	}
	c.digest = evidence.DigestOf(env.payload)
	c.checkPayload(env.payload, manifest, sums)
}

// checkPayload reads what a key of the operator's role has signed.
func (c *signatureCheck) checkPayload(payload, manifest, sums []byte) {
	var st statement
	if err := evidence.DecodeStrict(payload, &st); err != nil {
		c.refuse(CodeStatement, "the signed payload is not an in-toto statement: "+err.Error(), nextSign)
		return
	}
	c.exact(CodeStatement, "_type", statementType, st.Type)
	c.checkSubjects(st.Subject, manifest, sums)
	if st.PredicateType != PredicateType {
		c.exact(CodeStatement, "predicateType", PredicateType, st.PredicateType)
		return
	}
	var predicate Predicate
	newer, err := evidence.DecodeDocument(st.Predicate, MediaPredicate, &predicate)
	if err != nil {
		c.refuse(CodePredicate, "the signed predicate cannot be read: "+err.Error(), nextSign)
		return
	}
	c.predicate, c.newer = &predicate, newer
	c.checkTimes()
	c.checkTotals(manifest)
}

func (c *signatureCheck) exact(code, field, want, got string) {
	if got != want {
		c.fails.add(Failure{
			Code: code, Path: evidence.SignaturePath, Message: "the signed statement is of another kind: " + field,
			Expected: want, Actual: got, Next: nextSign,
		})
	}
}

// verify finds the operator's key that made the signature. Every one is tried;
// what the bundle says about its key only words the refusal.
func (c *signatureCheck) verify() bool {
	for _, key := range c.keys {
		if !key.operator || !c.madeBy(key) {
			continue
		}
		if id, err := dsse.SHA256KeyID(key.public); c.env.keyID != "" && (err != nil || c.env.keyID != id) {
			c.fails.add(Failure{
				Code: CodeBundle, Path: evidence.SignaturePath, Message: "the envelope's keyid is not that of the key that signed it",
				Expected: id, Actual: c.env.keyID, Next: nextUntrusted,
			})
		}
		c.key, c.signer = key, key.signatory()
		return true
	}
	c.refuseSigner()
	return false
}

func (c *signatureCheck) madeBy(key trustedKey) bool {
	return verifyPAE(key.public, c.env.payloadType, c.env.payload, c.env.sig) == nil
}

// refuseSigner words a signature that no key of the operator's role made.
func (c *signatureCheck) refuseSigner() {
	var operators []string
	for _, key := range c.keys {
		if !key.operator {
			if c.madeBy(key) {
				c.fails.add(Failure{
					Code: CodeKeyUnknown, Path: evidence.SignaturePath,
					Message:  fmt.Sprintf("signed with key %q, which the trust policy does not bind to the role %q", key.Name, RoleOperator),
					Expected: "a key of the role " + RoleOperator, Actual: string(key.fingerprint), Next: nextKey,
				})
				return
			}
			continue
		}
		if hint, err := Hint(key.public); err == nil && hint == c.env.hint {
			c.fails.add(Failure{
				Code: CodeSignature, Path: evidence.SignaturePath,
				Message: fmt.Sprintf("the signature does not verify with key %q, which the bundle names: payload or signature were changed", key.Name),
				Next:    nextUntrusted,
			})
			return
		}
		operators = append(operators, string(key.fingerprint))
	}
	c.fails.add(Failure{
		Code: CodeKeyUnknown, Path: evidence.SignaturePath,
		Message:  fmt.Sprintf("no key of the role %q made this signature", RoleOperator),
		Expected: strings.Join(operators, " or "), Actual: "a key with the hint " + c.env.hint, Next: nextKey,
	})
}

// checkSubjects wants exactly the two lists, by name and digest.
func (c *signatureCheck) checkSubjects(subjects []subject, manifest, sums []byte) {
	want := map[string]string{
		evidence.ManifestPath: evidence.DigestOf(manifest).Hex(),
		evidence.SumsPath:     evidence.DigestOf(sums).Hex(),
	}
	seen := make(map[string]bool)
	for _, s := range subjects {
		sum, ok := want[s.Name]
		switch {
		case !ok:
			c.fails.add(Failure{
				Code: CodeSubjects, Path: evidence.SignaturePath, Message: "the statement has a subject that it must not have",
				Expected: evidence.ManifestPath + " and " + evidence.SumsPath, Actual: s.Name, Next: nextSign,
			})
		case seen[s.Name]:
			c.fails.add(Failure{
				Code: CodeSubjects, Path: evidence.SignaturePath, Message: "the statement has a subject twice",
				Actual: s.Name, Next: nextSign,
			})
		case s.Digest.SHA256 != sum:
			c.fails.add(Failure{
				Code: CodeSubjects, Path: s.Name, Message: "this is not the file that was signed",
				Expected: "sha256 " + s.Digest.SHA256, Actual: "sha256 " + sum, Next: nextUntrusted,
			})
		}
		seen[s.Name] = true
	}
	for _, name := range []string{evidence.ManifestPath, evidence.SumsPath} {
		if !seen[name] {
			c.fails.add(Failure{
				Code: CodeSubjects, Path: evidence.SignaturePath, Message: "the statement lacks a subject",
				Expected: name, Next: nextSign,
			})
		}
	}
}

// checkTimes judges the claimed times, and the key's validity by them and by
// the verifier's clock: without a timestamp authority neither alone says when
// the signature was made.
func (c *signatureCheck) checkTimes() {
	p := c.predicate
	if p.Finished.Before(p.Started) {
		c.fails.add(Failure{
			Code: CodeTime, Path: evidence.SignaturePath, Message: "the run claims to have finished before it started",
			Expected: "after " + stamp(p.Started), Actual: stamp(p.Finished), Next: nextUntrusted,
		})
	}
	if p.Finished.After(c.at.Add(ClockTolerance)) {
		c.fails.add(Failure{
			Code: CodeTime, Path: evidence.SignaturePath, Message: "the run claims to have finished in the future",
			Expected: "before " + stamp(c.at), Actual: stamp(p.Finished),
			Next: "compare the clocks of runner and verifier; verify --at TIME judges another moment",
		})
	}
	end := c.key.NotAfter
	if end == nil {
		return
	}
	expired := func(what string, moment time.Time, next string) {
		if moment.After(*end) {
			c.fails.add(Failure{
				Code: CodeKeyExpired, Path: evidence.SignaturePath, Message: fmt.Sprintf("key %q is no longer valid %s", c.key.Name, what),
				Expected: "not after " + stamp(*end), Actual: stamp(moment), Next: next,
			})
		}
	}
	expired("now", c.at, "verify --at TIME judges an earlier moment, if you know that the bundle existed then")
	expired("at the run's claimed end", p.Finished, "sign with a valid key")
}

// stamp is a time as failures show it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// checkTotals compares the signed totals and tree with the manifest.
func (c *signatureCheck) checkTotals(manifest []byte) {
	files, tree, err := totals(manifest)
	if err != nil {
		c.fails.add(Failure{Code: CodeManifest, Path: evidence.ManifestPath, Message: err.Error(), Next: nextUntrusted})
		return
	}
	c.compare(Predicate{Files: c.predicate.Files, Merkle: c.predicate.Merkle}, Predicate{Files: files, Merkle: tree})
}

// checkDerived compares the whole predicate with what the files give.
func (c *signatureCheck) checkDerived(fsys fs.FS, manifest []byte) {
	if c.predicate == nil {
		return
	}
	derived, err := derive(fsys, manifest)
	if err != nil {
		c.fails.add(Failure{
			Code: CodePredicate, Path: "run", Message: "the files that the signed predicate speaks of cannot be read: " + err.Error(),
			Next: nextUntrusted,
		})
		return
	}
	// The totals have been compared already, and a newer minor is no difference.
	derived.Files, derived.Merkle = c.predicate.Files, c.predicate.Merkle
	if c.newer {
		derived.Minor = c.predicate.Minor
	}
	c.compare(*c.predicate, *derived)
}

// compare adds a failure for every field that was signed otherwise than the
// files say.
func (c *signatureCheck) compare(signed, derived Predicate) {
	got, errGot := fields(signed)
	want, errWant := fields(derived)
	if err := errors.Join(errGot, errWant); err != nil {
		c.refuse(CodePredicate, "the predicate cannot be compared: "+err.Error(), nextSign)
		return
	}
	for i := range got {
		if string(got[i].value) != string(want[i].value) {
			c.fails.add(Failure{
				Code: CodePredicate, Path: evidence.SignaturePath,
				Message:  "the signed " + got[i].name + " is not that of the files",
				Expected: string(want[i].value), Actual: string(got[i].value), Next: nextUntrusted,
			})
		}
	}
}

type field struct {
	name  string
	value json.RawMessage
}

// fields takes a predicate apart, in the order of its JSON.
func fields(p Predicate) ([]field, error) {
	text, err := encodeLine(p)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	var all []field
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		one := field{name: fmt.Sprint(name)}
		if err := decoder.Decode(&one.value); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
