package verify

import (
	"slices"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

// MediaReport is the media type of the JSON form of a Report.
const MediaReport = "application/vnd.rackproof.verification.v1+json"

// Exit codes of a verification, the worst first.
const (
	ExitUntrusted    = 5 // a step failed, or one under the required level was not checked
	ExitFail         = 3 // trusted, and the verdict is fail
	ExitInconclusive = 4 // trusted, and the verdict is neither pass nor fail
	ExitPolicy       = 6 // trusted and passing, but an approval or a rule is not met
)

// Report is everything that a verification found. Its texts are as found:
// whoever shows them escapes them. The same facts are in it whether the
// bundle is good or not.
type Report struct {
	MediaType string    `json:"mediaType"`
	Minor     int       `json:"minor"`
	Required  Required  `json:"required"`
	At        time.Time `json:"at"`

	Run   string               `json:"run,omitempty"`
	Steps [7]attest.StepResult `json:"steps"`
	Level attest.Level         `json:"level"`
	// Exit is the exit code of `rackproof verify`.
	Exit int `json:"exit"`

	// Verdict is the one that this verification derived, where it could
	// derive one, else the enclosed one, else nil.
	Verdict *evidence.Verdict `json:"verdict,omitempty"`
	// Derived says that Verdict was derived again from the raw files.
	Derived   bool   `json:"derived"`
	Plan      *Named `json:"plan,omitempty"`
	Simulated bool   `json:"simulated"`
	// SharedMachine, OffContract and Narrowed are the plan's.
	SharedMachine bool     `json:"sharedMachine"`
	OffContract   []string `json:"offContract,omitempty"`
	Narrowed      []string `json:"narrowed,omitempty"`

	Signer        attest.Signatory `json:"signer,omitzero"`
	PayloadDigest evidence.Digest  `json:"payloadDigest,omitempty"`
	Times         Times            `json:"times"`
	// Stock are commands that check the same files without this program.
	Stock []string `json:"stockCommands"`
}

// Required is what the verifier asked for, said before any result.
type Required struct {
	Policy string         `json:"policy"`
	Level  attest.Level   `json:"level"`
	Keys   []RequiredKey  `json:"keys"`
	Rules  attest.Require `json:"require"`
	Accept attest.Accept  `json:"accept"`
	// Releases are the release rules that step 7 judges.
	Releases []string `json:"releases"`
}

// RequiredKey is a key that may have signed as operator.
type RequiredKey struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
}

// Named is the plan by name and digest.
type Named struct {
	Name    string          `json:"name"`
	Version string          `json:"version,omitempty"`
	Digest  evidence.Digest `json:"digest"`
	Runbook evidence.Digest `json:"runbook"`
	Tests   int             `json:"tests"`
	Cells   int             `json:"cells"`
}

// Times are the runner's own claims: nothing proves them.
type Times struct {
	Started *time.Time `json:"started,omitempty"`
	Ended   *time.Time `json:"ended,omitempty"`
	Kind    string     `json:"kind"` // "claimed"
}

func newReport(o Options) *Report {
	r := &Report{
		MediaType: MediaReport,
		At:        o.At.UTC(),
		Required: Required{
			Policy: o.Policy.Name, Level: o.required(), Keys: []RequiredKey{}, Rules: o.Policy.Require, Accept: o.Policy.Accept, Releases: []string{},
		},
		Times: Times{Kind: "claimed"},
		Stock: []string{},
	}
	for _, role := range o.Policy.Roles {
		if role.Name != attest.RoleOperator {
			continue
		}
		for _, key := range o.Policy.Keys {
			if slices.Contains(role.AnyOf, key.Name) {
				r.Required.Keys = append(r.Required.Keys, RequiredKey{Name: key.Name, Owner: key.Owner})
			}
		}
	}
	if o.Release != "" {
		r.Required.Releases = append(r.Required.Releases, o.Release)
	}
	return r
}

// describe copies what the documents say of the run as a whole.
func (r *Report) describe(c *content, o Options) {
	r.Run = c.run()
	if len(c.records) > 0 {
		r.Times.Started, r.Times.Ended = &c.records[0].Time, c.ended()
	}
	if c.plan == nil {
		return
	}
	r.Plan = &Named{
		Name: c.plan.Name, Version: c.plan.Version, Digest: evidence.DigestOf(c.planBytes), Runbook: c.plan.Runbook,
		Tests: len(c.plan.Tests), Cells: len(c.plan.Cells),
	}
	r.SharedMachine, r.OffContract, r.Narrowed = c.plan.SharedMachine, c.plan.OffContract(), c.plan.Narrowed
	if o.Release == "" {
		for _, rule := range c.plan.Releases {
			r.Required.Releases = append(r.Required.Releases, rule.Name)
		}
	}
}

// The numbers of the steps, as indexes into Report.Steps.
const (
	stepBytes = iota
	stepSignature
	stepApprovals
	stepPlan
	stepMeasurements
	stepVerdict
	stepRelease
)

// stepNames are the names of the steps, in their order.
var stepNames = [7]string{"files", "signature", "approvals", "plan", "measurements", "verdict", "release"}

// level is how far the steps carry trust. A step that is not ok carries none,
// and the later ones never raise what an earlier one left low.
func level(steps [7]attest.StepResult) attest.Level {
	ok := func(i int) bool { return steps[i].State == attest.OK }
	switch {
	case !ok(stepBytes):
		return attest.Unknown
	case !ok(stepSignature):
		return attest.Intact
	case !ok(stepPlan) || !ok(stepMeasurements) || !ok(stepVerdict):
		return attest.Attested
	}
	return attest.Reproduced
}

// exit is the worst of what was found, in the order 5, 3, 4, 6, 0.
func exit(steps [7]attest.StepResult, reached, required attest.Level, verdict *evidence.Verdict) int {
	for _, i := range []int{stepBytes, stepSignature, stepPlan, stepMeasurements, stepVerdict} {
		if steps[i].State == attest.Failed {
			return ExitUntrusted
		}
	}
	if reached < required || verdict == nil {
		return ExitUntrusted
	}
	switch verdict.Outcome {
	case evidence.Pass:
	case evidence.Fail:
		return ExitFail
	default:
		return ExitInconclusive
	}
	if steps[stepApprovals].State != attest.OK || steps[stepRelease].State != attest.OK {
		return ExitPolicy
	}
	return 0
}
