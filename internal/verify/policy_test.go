package verify

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

func TestVerdictSetsTheExit(t *testing.T) {
	for _, c := range []struct {
		name, text string
		vars       map[string]string
		outcome    evidence.Outcome
		exit       int
		codes      []string
	}{
		{"pass", small, nil, evidence.Pass, 0, nil},
		{"fail", edited(t, "default  = 40\n  contract = 40", "default  = 100\n  contract = 100"), nil, evidence.Fail, ExitFail, []string{"7 E-RELEASE release.final"}},
		{"unreadable", edited(t, `"^done$"`, `"^ready$"`), nil, evidence.Inconclusive, ExitInconclusive, []string{"7 E-RELEASE release.final"}},
		{"off contract", small, map[string]string{"floor": "10"}, evidence.Pass, ExitPolicy, []string{"7 E-OFF-CONTRACT run/plan.json", "7 E-RELEASE release.final"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.text, c.vars)
			report := r.verify(t, r.options())
			if report.Level != attest.Reproduced || report.Exit != c.exit || !slices.Equal(codes(report), c.codes) {
				t.Fatalf("level %s, exit %d, failures %q", report.Level, report.Exit, codes(report))
			}
			// An unreadable output is a fault of our instrument or of the node,
			// and never anything better.
			if c.outcome == evidence.Inconclusive {
				if report.Verdict.Outcome == evidence.Pass || report.Verdict.Outcome == evidence.Fail {
					t.Fatalf("verdict %s", report.Verdict.Outcome)
				}
			} else if report.Verdict.Outcome != c.outcome {
				t.Fatalf("verdict %s, want %s", report.Verdict.Outcome, c.outcome)
			}
		})
	}
}

func TestNothingRaisesTheExit(t *testing.T) {
	pass, fail, open, none := verdict(evidence.Pass), verdict(evidence.Fail), verdict(evidence.Inconclusive), verdict(evidence.None)
	all := func(states ...attest.State) (steps [7]attest.StepResult) {
		for i := range steps {
			steps[i].State = attest.OK
			if i < len(states) && states[i] != "" {
				steps[i].State = states[i]
			}
		}
		return steps
	}
	const ok, bad, left = attest.OK, attest.Failed, attest.NotChecked
	for _, c := range []struct {
		name     string
		steps    [7]attest.StepResult
		required attest.Level
		verdict  *evidence.Verdict
		level    attest.Level
		exit     int
	}{
		{"all ok", all(), attest.Reproduced, pass, attest.Reproduced, 0},
		{"fail", all(), attest.Reproduced, fail, attest.Reproduced, ExitFail},
		{"inconclusive", all(), attest.Reproduced, open, attest.Reproduced, ExitInconclusive},
		{"error", all(), attest.Reproduced, verdict(evidence.Error), attest.Reproduced, ExitInconclusive},
		{"none is no pass", all(), attest.Reproduced, none, attest.Reproduced, ExitInconclusive},
		{"no verdict", all(), attest.Reproduced, nil, attest.Reproduced, ExitUntrusted},
		{"bytes", all(bad), attest.Intact, pass, attest.Unknown, ExitUntrusted},
		{"signature", all(ok, bad), attest.Intact, pass, attest.Intact, ExitUntrusted},
		{"approvals", all(ok, ok, bad), attest.Reproduced, pass, attest.Reproduced, ExitPolicy},
		{"approvals and fail", all(ok, ok, bad), attest.Reproduced, fail, attest.Reproduced, ExitFail},
		{"approvals and inconclusive", all(ok, ok, bad), attest.Reproduced, open, attest.Reproduced, ExitInconclusive},
		{"plan differs under a low level", all(ok, ok, ok, bad), attest.Intact, pass, attest.Attested, ExitUntrusted},
		{"plan not checked", all(ok, ok, ok, left), attest.Reproduced, pass, attest.Attested, ExitUntrusted},
		{"plan not checked, attested is enough", all(ok, ok, ok, left), attest.Attested, pass, attest.Attested, 0},
		{"measurements not checked", all(ok, ok, ok, ok, left), attest.Reproduced, pass, attest.Attested, ExitUntrusted},
		{"verdict not checked", all(ok, ok, ok, ok, ok, left), attest.Reproduced, pass, attest.Attested, ExitUntrusted},
		{"bytes bad, the rest ok", all(bad, ok, ok, ok, ok, ok, ok), attest.Reproduced, pass, attest.Unknown, ExitUntrusted},
		{"release", all(ok, ok, ok, ok, ok, ok, bad), attest.Reproduced, pass, attest.Reproduced, ExitPolicy},
		{"release not checked", all(ok, ok, ok, ok, ok, ok, left), attest.Reproduced, pass, attest.Reproduced, ExitPolicy},
		{"nothing was checked", [7]attest.StepResult{}, attest.Unknown, pass, attest.Unknown, ExitPolicy},
	} {
		reached := level(c.steps)
		if got := exit(c.steps, reached, c.required, c.verdict); reached != c.level || got != c.exit {
			t.Errorf("%s: level %s, exit %d: want %s, %d", c.name, reached, got, c.level, c.exit)
		}
	}
}

func verdict(o evidence.Outcome) *evidence.Verdict { return &evidence.Verdict{Outcome: o} }

func TestRules(t *testing.T) {
	ended := time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)
	good := func() (*content, Options, *evidence.Verdict) {
		c := &content{
			plan:    &evidence.Plan{Runbook: evidence.DigestOf(nil), Releases: []evidence.Release{{Name: "su1"}, {Name: "final"}}},
			records: []evidence.Record{{Event: evidence.EventOpen, Time: ended.Add(-time.Hour)}, {Event: evidence.EventClose, Time: ended}},
		}
		v := verdict(evidence.Pass)
		v.Releases = []evidence.ReleaseResult{{Release: "su1", Outcome: evidence.Pass}, {Release: "final", Outcome: evidence.Pass}}
		return c, Options{At: ended.Add(time.Hour)}, v
	}
	for _, c := range []struct {
		name   string
		change func(*content, *Options, *evidence.Verdict)
		codes  []string
	}{
		{"all good", func(*content, *Options, *evidence.Verdict) {}, nil},
		{"young enough", func(_ *content, o *Options, _ *evidence.Verdict) {
			o.Policy.Require.MaxAge = evidence.Duration(time.Hour)
		}, nil},
		{"too old", func(_ *content, o *Options, _ *evidence.Verdict) {
			o.Policy.Require.MaxAge = evidence.Duration(time.Hour - time.Second)
		}, []string{CodeAge}},
		{"in the future", func(_ *content, o *Options, _ *evidence.Verdict) {
			o.Policy.Require.MaxAge, o.At = evidence.Duration(time.Hour), ended.Add(-attest.ClockTolerance-time.Second)
		}, []string{CodeAge}},
		{"by a clock that is a little ahead", func(_ *content, o *Options, _ *evidence.Verdict) {
			o.Policy.Require.MaxAge, o.At = evidence.Duration(time.Hour), ended.Add(-time.Second)
		}, nil},
		{"of unknown age", func(c *content, o *Options, _ *evidence.Verdict) {
			o.Policy.Require.MaxAge, c.records = evidence.Duration(time.Hour), nil
		}, []string{CodeAge}},
		{"simulated by its inventory", func(c *content, _ *Options, _ *evidence.Verdict) {
			c.inventory = &evidence.Inventory{Nodes: []evidence.NodeIdentity{{Node: "n1", Simulated: true}}}
		}, []string{CodeSimulated}},
		{"simulated by an SSH version", func(c *content, _ *Options, _ *evidence.Verdict) {
			c.records[0].Identity = &evidence.NodeIdentity{Node: "n1", SSHVersion: "SSH-2.0-rackproof-sim_1"}
		}, []string{CodeSimulated}},
		{"simulated and accepted", func(c *content, o *Options, _ *evidence.Verdict) {
			c.records[0].Identity = &evidence.NodeIdentity{Node: "n1", Simulated: true}
			o.Policy.Accept.Simulated = true
		}, nil},
		{"narrowed", func(c *content, _ *Options, _ *evidence.Verdict) { c.plan.Narrowed = []string{"--test x"} }, []string{CodeNarrowed, CodeRelease, CodeRelease}},
		{"narrowed and accepted is still no release", func(c *content, o *Options, _ *evidence.Verdict) {
			c.plan.Narrowed, o.Policy.Accept.Narrowed = []string{"--test x"}, true
		}, []string{CodeRelease, CodeRelease}},
		{"off contract", func(c *content, _ *Options, _ *evidence.Verdict) {
			c.plan.Variables = []evidence.Variable{{Name: "soak", OffContract: true}}
		}, []string{CodeOffContract, CodeRelease, CodeRelease}},
		{"off contract and accepted is still no release", func(c *content, o *Options, _ *evidence.Verdict) {
			c.plan.Variables, o.Policy.Accept.OffContract = []evidence.Variable{{Name: "soak", OffContract: true}}, true
		}, []string{CodeRelease, CodeRelease}},
		{"retried", func(_ *content, _ *Options, v *evidence.Verdict) { v.Coverage.Retried = []string{"a"} }, []string{CodeRetried}},
		{"retried as often as accepted", func(_ *content, o *Options, v *evidence.Verdict) {
			v.Coverage.Retried, o.Policy.Accept.Retried = []string{"a", "b"}, 2
		}, nil},
		{"retried too often", func(_ *content, o *Options, v *evidence.Verdict) {
			v.Coverage.Retried, o.Policy.Accept.Retried = []string{"a", "b", "c"}, 2
		}, []string{CodeRetried}},
		{"interrupted", func(_ *content, _ *Options, v *evidence.Verdict) {
			v.Coverage.Cuts = []evidence.OpenCell{{Cell: "a", Attempt: 1}}
		}, []string{CodeInterrupted}},
		{"interrupted as often as accepted", func(_ *content, o *Options, v *evidence.Verdict) {
			v.Coverage.Cuts, o.Policy.Accept.Interrupted = []evidence.OpenCell{{Cell: "a", Attempt: 1}}, 1
		}, nil},
		{"listed runbook", func(_ *content, o *Options, _ *evidence.Verdict) {
			o.Policy.Require.Runbooks = []evidence.Digest{evidence.DigestOf([]byte("x")), evidence.DigestOf(nil)}
		}, nil},
		{"another runbook", func(_ *content, o *Options, _ *evidence.Verdict) {
			o.Policy.Require.Runbooks = []evidence.Digest{evidence.DigestOf([]byte("x"))}
		}, []string{CodeRunbookUnknown}},
		{"one release of two fails", func(_ *content, _ *Options, v *evidence.Verdict) { v.Releases[1].Outcome = evidence.Fail }, []string{CodeRelease}},
		{"the other release is asked for", func(_ *content, o *Options, v *evidence.Verdict) {
			v.Releases[1].Outcome, o.Release = evidence.Fail, "su1"
		}, nil},
		{"a release that the verdict leaves out", func(_ *content, _ *Options, v *evidence.Verdict) { v.Releases = v.Releases[:1] }, []string{CodeRelease}},
		{"a release that nobody decided", func(_ *content, _ *Options, v *evidence.Verdict) { v.Releases[0].Outcome = evidence.None }, []string{CodeRelease}},
		{"an unknown release", func(_ *content, o *Options, _ *evidence.Verdict) { o.Release = "su9" }, []string{CodeReleaseUnknown}},
	} {
		content, options, v := good()
		c.change(content, &options, v)
		result := release(content, options, nil, v, evidence.SimulatedNodes(content.plan, content.inventory, content.records))
		var got []string
		for _, f := range result.Failures {
			got = append(got, f.Code)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.codes) || (result.State == attest.OK) != (len(c.codes) == 0) {
			t.Errorf("%s: %s %q, want %q", c.name, result.State, got, c.codes)
		}
	}
}

func TestNoReleaseIsAskedOfAPlanWithoutOne(t *testing.T) {
	c := &content{plan: &evidence.Plan{}}
	if got := release(c, Options{}, nil, verdict(evidence.Pass), nil); got.State != attest.OK {
		t.Errorf("%+v", got)
	}
	if got := release(c, Options{Release: "final"}, nil, verdict(evidence.Pass), nil); got.State != attest.Failed {
		t.Errorf("%+v", got)
	}
	if got := release(c, Options{}, nil, nil, nil); got.State != attest.NotChecked {
		t.Errorf("%+v", got)
	}
}

// newer is a check as another build has it.
type newer struct{ checks.Check }

func (n newer) Spec() checks.Spec {
	spec := n.Check.Spec()
	spec.Version++
	return spec
}

func TestAnotherCheckVersionIsNotChecked(t *testing.T) {
	r := newRig(t, small, nil)
	other := r.options()
	other.Known.Checks = nil
	for _, c := range checks.Builtin() {
		other.Known.Checks = append(other.Known.Checks, newer{c})
	}
	without := r.options()
	without.Known.Checks = checks.Catalog{}
	for name, o := range map[string]Options{"another version": other, "no such check": without} {
		report := r.verify(t, o)
		for _, i := range []int{stepPlan, stepMeasurements, stepVerdict} {
			if report.Steps[i].State != attest.NotChecked {
				t.Errorf("%s: step %d is %s: %s %q", name, i+1, report.Steps[i].State, report.Steps[i].Summary, codes(report))
			}
		}
		if report.Level != attest.Attested || report.Exit != ExitUntrusted || report.Derived {
			t.Errorf("%s: level %s, exit %d, derived %t", name, report.Level, report.Exit, report.Derived)
		}
		enough := attest.Attested
		o.MinLevel = &enough
		if report := r.verify(t, o); report.Exit != 0 || report.Verdict.Outcome != evidence.Pass {
			t.Errorf("%s, attested is enough: exit %d", name, report.Exit)
		}
	}
}

// Another version hides nothing that is wrong with journal or bytes.
func TestAnotherCheckVersionStillFails(t *testing.T) {
	r := newRig(t, small, nil)
	r.replace(t, rawFile, "42.5", "99.5")
	r.resign(t)
	o := r.options()
	o.Known.Checks = checks.Catalog{}
	if report := r.verify(t, o); !has(codes(report), CodeRawDiffers, rawFile) || report.Exit != ExitUntrusted {
		t.Errorf("exit %d, %q", report.Exit, codes(report))
	}
}

func TestReportIsOneDocument(t *testing.T) {
	r := newRig(t, small, nil)
	for name, o := range map[string]Options{"good": r.options(), "untrusted": func() Options {
		o := r.options()
		other, _, err := otherKey()
		must(t, err)
		o.Policy.Keys[0].PEM = other
		return o
	}()} {
		report := r.verify(t, o)
		doc, err := evidence.Encode(report)
		must(t, err)
		var members map[string]json.RawMessage
		must(t, json.Unmarshal(doc, &members))
		for _, member := range []string{"mediaType", "required", "steps", "level", "exit", "verdict", "plan", "times", "simulated", "stockCommands"} {
			if members[member] == nil {
				t.Errorf("%s: no member %q in %s", name, member, doc)
			}
		}
	}
}

func otherKey() (public, private []byte, err error) {
	private, public, err = attest.GenerateKey(nil)
	return public, private, err
}

func TestUnsoundPolicyIsAnError(t *testing.T) {
	r := newRig(t, small, nil)
	o := r.options()
	o.Policy.Roles = nil
	if report, err := Path(t.Context(), r.dir, o); err == nil {
		t.Fatalf("exit %d without an operator", report.Exit)
	}
}
