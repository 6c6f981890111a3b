package attest

import (
	"errors"
	"io/fs"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// Result is steps 1 to 3 of verification. Payload, Signer and PayloadDigest
// are empty unless a key of the operator's role made the signature; beside a
// failed step they say what was signed, not what is there.
type Result struct {
	Steps         [3]StepResult   `json:"steps"`
	Payload       *Predicate      `json:"payload,omitempty"`
	Signer        Signatory       `json:"signer,omitzero"`
	PayloadDigest evidence.Digest `json:"payloadDigest,omitempty"`
}

// Check runs steps 1 to 3 over a run directory: every byte matches, the
// operator signed it, approvals are there. fsys must not follow links out of
// the directory; os.Root gives such a file system. plan is the plan that the
// caller reads the bundle with; nil means that of the bundle. at is the
// moment that key validity is judged for. All failures are reported, up to a
// thousand a step.
func Check(fsys fs.FS, p Policy, plan *evidence.Plan, at time.Time) Result {
	var bundle document
	bundle.data, bundle.err = readFile(fsys, evidence.SignaturePath, maxBundle)
	return check(fsys, bundle, p, plan, at)
}

// check is Check with the bundle at hand: a signature is verified before it
// is written.
func check(fsys fs.FS, bundle document, p Policy, plan *evidence.Plan, at time.Time) Result {
	l := readLists(fsys)
	files, approvals := checkFiles(fsys, l)
	c := newSignatureCheck(p, at)
	c.checkFS(fsys, bundle, l)
	if plan == nil {
		if run, err := evidence.Open(fsys); err == nil {
			plan = run.Plan
		}
	}
	return Result{
		Steps:         [3]StepResult{files, c.result(), checkApprovals(plan, p, approvals)},
		Payload:       c.predicate,
		Signer:        c.signer,
		PayloadDigest: c.digest,
	}
}

// checkFS is step 2 over a run directory.
func (c *signatureCheck) checkFS(fsys fs.FS, bundle document, l lists) {
	switch {
	case errors.Is(bundle.err, fs.ErrNotExist):
		c.refuse(CodeNoSignature, "the run is not signed", "sign it: rackproof sign RUN --key KEY")
	case bundle.err != nil:
		c.refuse(CodeBundle, readProblem(bundle.err), nextUntrusted)
	}
	if l.unsealed() {
		c.refuse(CodeManifest, "there is nothing that a signature could cover", nextUnsealed)
		return
	}
	if err := l.manifest.err; err != nil {
		c.fails.add(Failure{Code: CodeManifest, Path: evidence.ManifestPath, Message: readProblem(err), Next: nextUntrusted})
	}
	if err := l.sums.err; err != nil {
		c.fails.add(Failure{Code: CodeSums, Path: evidence.SumsPath, Message: readProblem(err), Next: nextUntrusted})
	}
	if c.fails.count() > 0 {
		return
	}
	c.check(bundle.data, l.manifest.data, l.sums.data)
	c.checkDerived(fsys, l.manifest.data)
}
