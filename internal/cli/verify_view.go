package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/internal/verify"
	"github.com/rackproof/rackproof/reports"
)

// showVerification prints a report: what was required, one line a step with
// every failure below it, then level, verdict, times and stock commands.
func showVerification(p *Process, path string, r *verify.Report) error {
	out := newLines(p.Stdout)
	showRequired(out, path, r)
	out.Line("")
	for _, s := range r.Steps {
		out.Line("%d %-13s %-11s %s", s.Step, s.Name, string(s.State), s.Summary)
		for _, f := range s.Failures {
			showFailure(out, f)
		}
	}
	out.Line("")
	out.Line("Trust     %s (required: %s)", strings.ToUpper(r.Level.String()), r.Required.Level.String())
	showVerified(out, r)
	showOpen(out, r.Verdict)
	if len(r.Stock) > 0 {
		out.Line("")
		out.Line("The same without rackproof:")
	}
	for _, command := range r.Stock {
		out.Line("  %s", command)
	}
	return out.Err
}

func showRequired(out *reports.Printer, path string, r *verify.Report) {
	out.Line("Verifying %s", path)
	out.Line("Required  level %s, by policy %q, at %s", r.Required.Level.String(), r.Required.Policy, r.At.Format(time.RFC3339))
	for _, k := range r.Required.Keys {
		out.Line("          signed as operator with key %s of %s", k.Name, k.Owner)
	}
	if age := r.Required.Rules.MaxAge; age > 0 {
		out.Line("          at most %s old", age.String())
	}
	for _, d := range r.Required.Rules.Runbooks {
		out.Line("          runbook %s", string(d))
	}
	if r.Required.Rules.Approved {
		out.Line("          the plan is approved")
	}
	accept := r.Required.Accept
	out.Line("          accepts: simulated %t, narrowed %t, off contract %t, retried %d, interrupted %d",
		accept.Simulated, accept.Narrowed, accept.OffContract, accept.Retried, accept.Interrupted)
	if len(r.Required.Releases) > 0 {
		out.Line("          release %s", strings.Join(r.Required.Releases, ", "))
	}
}

func showFailure(out *reports.Printer, f attest.Failure) {
	where := f.Code
	if f.Path != "" {
		where += " " + f.Path
	}
	out.Line("    %s: %s", where, f.Message)
	if f.Expected != "" || f.Actual != "" {
		out.Line("      expected %s", orDash(f.Expected))
		out.Line("      actual   %s", orDash(f.Actual))
	}
	if f.Next != "" {
		out.Line("      next     %s", f.Next)
	}
}

func showVerified(out *reports.Printer, r *verify.Report) {
	if r.Verdict == nil {
		out.Line("Verdict   none")
	} else {
		origin := "as enclosed; not derived again"
		if r.Derived {
			origin = "derived again from the raw files"
		}
		out.Line("Verdict   %s (%s)", strings.ToUpper(r.Verdict.Outcome.String()), origin)
		out.Line("          %s", verdictLine(*r.Verdict))
	}
	for _, mark := range marks(r) {
		out.Line("          ! %s", mark)
	}
	if r.Plan != nil {
		out.Line("Plan      %s %s: %s", strings.TrimSpace(r.Plan.Name+" "+r.Plan.Version), string(r.Plan.Digest), sizeOf(r.Plan.Tests, r.Plan.Cells))
		out.Line("Runbook   %s", string(r.Plan.Runbook))
	}
	out.Line("Run       %s", orUnknown(r.Run))
	if r.Signer.Key != "" {
		out.Line("Signer    %s, key %s, %s", r.Signer.Owner, r.Signer.Key, string(r.Signer.Fingerprint))
		out.Line("Payload   %s", string(r.PayloadDigest))
	}
	if r.Times.Started != nil && r.Times.Ended != nil {
		out.Line("Times     %s to %s, %s", r.Times.Started.UTC().Format(time.RFC3339), r.Times.Ended.UTC().Format(time.RFC3339), r.Times.Kind)
	}
}

// marks are what limits the meaning of a verdict as a whole.
func marks(r *verify.Report) []string {
	var found []string
	if r.Simulated {
		found = append(found, simulatedLine)
	}
	if r.SharedMachine {
		found = append(found, "shared machine: several nodes of this run may be one machine")
	}
	if len(r.OffContract) > 0 {
		found = append(found, "off contract: "+strings.Join(r.OffContract, ", "))
	}
	if len(r.Narrowed) > 0 {
		found = append(found, "narrowed: "+strings.Join(r.Narrowed, " "))
	}
	return found
}

// showOpen lists what is open in the verdict.
func showOpen(out *reports.Printer, v *evidence.Verdict) {
	if v == nil {
		return
	}
	for _, f := range v.Findings {
		if f.Outcome == evidence.Pass {
			continue
		}
		text := ""
		if f.Observed != nil {
			text = ": observed " + reports.WithUnit(reports.Exact(*f.Observed), f.Unit)
		}
		if f.Reason != "" {
			text += ": " + f.Reason
		}
		out.Line("  open    %s: %s: %s on %s%s", f.Outcome.String(), f.Test, f.Threshold, string(f.Subject), text)
	}
	for _, c := range v.Coverage.Open {
		out.Line("  open    not measured: %s: %s", c.Cell, c.Problem.Error())
	}
	for _, c := range v.Coverage.Cuts {
		out.Line("  cut     %s attempt %d: %s", c.Cell, c.Attempt, c.Problem.Error())
	}
	for _, cell := range v.Coverage.Retried {
		out.Line("  retried %s", cell)
	}
	for _, rule := range v.Releases {
		out.Line("  release %s", strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", rule.Release, rule.Outcome, rule.Reason), ": "))
	}
}
