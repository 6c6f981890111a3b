package cli

import (
	"slices"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

func burnPlan() *evidence.Plan {
	return &evidence.Plan{
		Tests: []evidence.Test{
			{Name: "burn", Hazard: "full_power"},
			{Name: "pull", Faults: []evidence.Fault{{Kind: "service_stop"}}},
			{Name: "again", Hazard: "full_power"},
		},
		Cells: []evidence.Cell{{ID: "burn/n1.r1", Test: "burn", Nodes: "n1"}, {ID: "burn/n2.r1", Test: "burn", Nodes: "n2"}},
	}
}

func openCell(node string, class evidence.Class) evidence.OpenCell {
	return evidence.OpenCell{Cell: "burn/" + node + ".r1", Attempt: 1, Problem: evidence.Problem{Node: node, Class: class, Detail: "detail"}}
}

func TestResumeCommandCarriesItsHazards(t *testing.T) {
	for _, c := range []struct {
		plan  *evidence.Plan
		retry []string
		want  string
	}{
		{&evidence.Plan{}, nil, "rackproof resume runs/x"},
		{burnPlan(), nil, "rackproof resume runs/x --allow full_power,service_stop"},
		{burnPlan(), []string{"lost", "timeout"}, "rackproof resume runs/x --retry lost,timeout --allow full_power,service_stop"},
	} {
		if got := resumeCommand(c.plan, "runs/x", c.retry...); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// To try again is proposed for what another attempt may find otherwise, by the
// classes that there are.
func TestRetryIsProposedByClass(t *testing.T) {
	const report = "rackproof report runs/x"
	try := func(classes string) string {
		return "rackproof resume runs/x --retry " + classes + " --allow full_power,service_stop"
	}
	for _, c := range []struct {
		outcome evidence.Outcome
		classes []evidence.Class
		want    []string
	}{
		{evidence.Inconclusive, nil, []string{report}},
		{evidence.Inconclusive, []evidence.Class{evidence.ClassTCP, evidence.ClassLost}, []string{report, try("lost")}},
		{evidence.Inconclusive, []evidence.Class{evidence.ClassToolMissing}, []string{report, try("tool-missing")}},
		{evidence.Inconclusive, []evidence.Class{evidence.ClassTimeout, evidence.ClassSilent, evidence.ClassExcluded}, []string{report, try("lost,timeout")}},
		{evidence.Inconclusive, []evidence.Class{evidence.ClassExcluded, evidence.ClassNotRun, evidence.ClassUnmeasured, evidence.ClassHostKeyMismatch}, []string{report}},
		{evidence.Fail, []evidence.Class{evidence.ClassLost}, []string{report}},
	} {
		v := evidence.Verdict{Outcome: c.outcome}
		for _, class := range c.classes {
			v.Coverage.Open = append(v.Coverage.Open, openCell("n1", class))
		}
		if got := hintsOf(verdictError(burnPlan(), v, "runs/x")); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: hints %q, want %q", c.outcome, c.classes, got, c.want)
		}
	}
	for _, class := range slices.Concat(mendableClasses, lostClasses) {
		if !class.Known() || class.Outcome() != evidence.Inconclusive {
			t.Errorf("%s is no class that leaves a cell open", class)
		}
	}
}

func TestWhatIsOpenIsCountedOnce(t *testing.T) {
	finding := func(outcome evidence.Outcome, node string, class evidence.Class) evidence.Finding {
		return evidence.Finding{Test: "burn", Threshold: "watts", Subject: evidence.Subject(node), Node: node, Outcome: outcome, Class: class, Reason: "because"}
	}
	lost := []evidence.OpenCell{openCell("n1", evidence.ClassLost), openCell("n2", evidence.ClassLost)}
	for name, c := range map[string]struct {
		outcome  evidence.Outcome
		open     []evidence.OpenCell
		findings []evidence.Finding
		want     string
	}{
		"two thresholds on one lost cell": {evidence.Inconclusive, lost[:1], []evidence.Finding{
			finding(evidence.Inconclusive, "n1", evidence.ClassLost), finding(evidence.Inconclusive, "n1", evidence.ClassLost), finding(evidence.Pass, "n2", ""),
		}, "nothing measured in burn/n1.r1: n1: lost: detail"},
		"a finding on the whole that two lost cells explain": {evidence.Inconclusive, lost, []evidence.Finding{
			finding(evidence.Inconclusive, "", evidence.ClassLost),
		}, "nothing measured in burn/n1.r1: n1: lost: detail, and 1 more"},
		"a finding that no cell explains": {evidence.Inconclusive, lost[:1], []evidence.Finding{
			finding(evidence.Inconclusive, "n1", evidence.ClassLost), finding(evidence.Inconclusive, "n2", evidence.ClassUnmeasured),
		}, "nothing measured in burn/n1.r1: n1: lost: detail, and 1 more"},
		"another class on the same node": {evidence.Inconclusive, lost[:1], []evidence.Finding{
			finding(evidence.Inconclusive, "n1", ""),
		}, "nothing measured in burn/n1.r1: n1: lost: detail, and 1 more"},
		"findings alone": {evidence.Inconclusive, nil, []evidence.Finding{
			finding(evidence.Inconclusive, "n1", ""), finding(evidence.Inconclusive, "n2", ""),
		}, "burn: watts on n1: because, and 1 more"},
		"a failure, beside a lost cell": {evidence.Fail, lost[:1], []evidence.Finding{
			finding(evidence.Inconclusive, "n1", evidence.ClassLost), finding(evidence.Fail, "n2", ""),
		}, "burn: watts on n2: because"},
		"an instrument that broke, beside a lost cell": {evidence.Error, append(lost[:1:1], openCell("n2", evidence.ClassPanic)), []evidence.Finding{
			finding(evidence.Inconclusive, "n1", evidence.ClassLost), finding(evidence.Error, "n2", evidence.ClassPanic),
		}, "nothing measured in burn/n2.r1: n2: panic: detail"},
		"nothing that is named": {evidence.Inconclusive, nil, nil, "inconclusive"},
	} {
		v := evidence.Verdict{Outcome: c.outcome, Findings: c.findings, Coverage: evidence.Coverage{Open: c.open}}
		if got := firstOpen(burnPlan(), v); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
