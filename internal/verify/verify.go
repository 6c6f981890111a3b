// Package verify composes the seven steps of verification: the bytes, the
// signature and the approvals (evidence/attest), the plan compiled again, the
// raw files measured again, the verdict judged again, and the rules that hold
// today. It reads nothing but the bundle and the policy that it is given, and
// never the network.
package verify

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runbook"
)

// Options is what a verifier brings.
type Options struct {
	Policy attest.Policy
	Known  runbook.Known
	// Release is the one release rule to judge; empty: all of the plan.
	Release string
	// MinLevel replaces the policy's required level where it is not nil.
	MinLevel *attest.Level
	// At is the moment at which keys must be valid and ages are taken.
	At time.Time
}

// required is the level without which nothing is accepted.
func (o Options) required() attest.Level {
	if o.MinLevel != nil {
		return *o.MinLevel
	}
	return o.Policy.Require.Level
}

// Verify takes the seven steps on one bundle. The steps after a failed one
// still run as far as there are bytes to read, and never raise the level. The
// error is only of a policy that is not sound, or of ctx: whatever is wrong
// with the bundle is in the Report.
func Verify(ctx context.Context, fsys fs.FS, o Options) (*Report, error) {
	if err := o.Policy.Validate(); err != nil {
		return nil, fmt.Errorf("trust policy %s: %w", o.Policy.Name, err)
	}
	fsys = regular{fsys}
	v := &verification{c: read(fsys), o: o, report: newReport(o)}
	r := v.report
	checked := attest.Check(fsys, o.Policy, v.c.plan, o.At)
	copy(r.Steps[:], checked.Steps[:])
	r.Signer, r.PayloadDigest = checked.Signer, checked.PayloadDigest
	for index, check := range []func() attest.StepResult{
		stepPlan: v.recompile, stepMeasurements: v.remeasure, stepVerdict: v.rejudge, stepRelease: v.release,
	} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if check != nil {
			r.Steps[index] = guarded(index, check)
		}
	}
	r.describe(v.c, o)
	r.Level = level(r.Steps)
	r.Exit = exit(r.Steps, r.Level, o.required(), r.Verdict)
	return r, nil
}

// verification is one pass over one bundle.
type verification struct {
	c       *content
	o       Options
	report  *Report
	results []evidence.CellResult // measured again
}

func (v *verification) recompile() attest.StepResult { return recompile(v.c, v.o.Known) }

func (v *verification) remeasure() (result attest.StepResult) {
	v.results, result = remeasure(v.c, v.o.Known)
	return result
}

func (v *verification) rejudge() attest.StepResult {
	v.report.Verdict = v.c.verdict
	verdict, result := rejudge(v.c, v.results, v.o.Known.Checks)
	if verdict != nil {
		v.report.Verdict, v.report.Derived = verdict, true
	}
	return result
}

func (v *verification) release() attest.StepResult {
	simulated := evidence.SimulatedNodes(v.c.plan, v.c.inventory, v.c.records)
	v.report.Simulated = len(simulated) > 0
	return release(v.c, v.o, v.results, v.report.Verdict, simulated)
}
