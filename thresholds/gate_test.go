package thresholds

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

// slow makes a node miss its threshold.
func (b *bench) slow(node string) *bench {
	b.first("hbm/" + node + ".r1").Measurements[0].Value = 1
	return b
}

// withFabric adds a test of the whole set, in phase "fabric", to gpus.
func withFabric() *bench {
	b := gpus()
	f := fabric(evidence.ScopeFleet).measure("nccl/n1-n2-n3.r1", measured("busbw", "fleet", 350))
	f.plan.Tests[0].Phase = "fabric"
	b.plan.Phases = append(b.plan.Phases, evidence.Phase{Name: "fabric", DependsOn: []string{"node"}, Gate: evidence.Gate{Require: "all", OnFail: "stop"}})
	b.plan.Tests = append(b.plan.Tests, f.plan.Tests...)
	b.plan.Cells = append(b.plan.Cells, f.plan.Cells...)
	b.cells = append(b.cells, f.cells...)
	return b
}

func TestGate(t *testing.T) {
	for _, c := range []struct {
		name    string
		require string
		damage  func(*bench)
		want    evidence.GateResult
	}{
		{"all pass", "all", func(*bench) {}, evidence.GateResult{Met: true, Needed: 3, Passing: []string{"n[1-3]"}}},
		{"one fails", "all", func(b *bench) { b.slow("n2") }, evidence.GateResult{Needed: 3, Passing: []string{"n[1,3]"}, Failing: []string{"n2"}, Reason: "2 of 3 nodes pass, and 3 have to"}},
		{"one of three may fail", "60%", func(b *bench) { b.slow("n2") }, evidence.GateResult{Met: true, Needed: 2, Passing: []string{"n[1,3]"}, Failing: []string{"n2"}}},
		{"a share is rounded up", "67%", func(b *bench) { b.slow("n2") }, evidence.GateResult{Needed: 3, Passing: []string{"n[1,3]"}, Failing: []string{"n2"}, Reason: "2 of 3 nodes pass, and 3 have to"}},
		{"a count", "2", func(b *bench) { b.slow("n2") }, evidence.GateResult{Met: true, Needed: 2, Passing: []string{"n[1,3]"}, Failing: []string{"n2"}}},
		{"a count of more than there are", "4", func(*bench) {}, evidence.GateResult{Needed: 4, Passing: []string{"n[1-3]"}, Reason: "3 of 3 nodes pass, and 4 have to"}},
		{"a gate that cannot be read", "most", func(*bench) {}, evidence.GateResult{Passing: []string{"n[1-3]"}, Reason: `gate requires "most": want "all", a count or a share such as "90%"`}},
		{"a node not run", "2", func(b *bench) { b.at("hbm/n1.r2").Attempts = nil }, evidence.GateResult{Met: true, Needed: 2, Passing: []string{"n[2-3]"}, Failing: []string{"n1"}}},
		{"a problem that no threshold is about", "all", func(b *bench) {
			b.plan.Tests[0].Thresholds[0].Subjects = []string{"n[1-2]/gpu[0-1]"}
			b.first("hbm/n3.r1").Problems = []evidence.Problem{{Node: "n3", Class: evidence.ClassLost}}
		}, evidence.GateResult{Needed: 3, Passing: []string{"n[1-2]"}, Failing: []string{"n3"}, Reason: "2 of 3 nodes pass, and 3 have to"}},
		{"a node that no threshold is about", "all", func(b *bench) { b.plan.Tests[0].Thresholds[0].Subjects = []string{"n[1-2]/gpu[0-1]"} },
			evidence.GateResult{Needed: 3, Passing: []string{"n[1-2]"}, Failing: []string{"n3"}, Reason: "2 of 3 nodes pass, and 3 have to"}},
		{"a finding on the whole test fails", "1", func(b *bench) {
			whole := b.plan.Tests[0].Thresholds[0]
			whole.Name, whole.Per, whole.Min = "all", "test", ptr(101.0)
			b.plan.Tests[0].Thresholds = append(b.plan.Tests[0].Thresholds, whole)
		}, evidence.GateResult{Needed: 1, Passing: []string{"n[1-3]"}, Reason: "all of hbm on fleet is fail"}},
		{"a finding on a rack fails", "1", func(b *bench) {
			b.plan.Tests[0].Thresholds[0].Per = "rack"
			b.slow("n3")
		}, evidence.GateResult{Needed: 1, Failing: []string{"n[1-3]"}, Reason: "0 of 3 nodes pass, and 1 have to; bw of hbm on rack=A2 is fail"}},
		{"a test without a threshold", "1", func(b *bench) { b.plan.Tests[0].Thresholds = nil }, evidence.GateResult{Needed: 1, Failing: []string{"n[1-3]"}, Reason: "0 of 3 nodes pass, and 1 have to; test hbm is inconclusive: the test has no threshold"}},
		{"no test", "1", func(b *bench) { b.plan.Tests = nil }, evidence.GateResult{Reason: "the phase has no test"}},
		{"nodes outside of the fleet", "1", func(b *bench) { b.plan.Tests[0].Nodes = "n[1-4]" }, evidence.GateResult{Needed: 1, Passing: []string{"n[1-3]"}, Reason: "n4 is not in the fleet"}},
	} {
		b := gpus()
		b.plan.Phases[0].Gate.Require = c.require
		c.damage(b)
		c.want.Phase = "node"
		got := Gate(&b.plan, b.cells, "node")
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n %+v, want\n %+v", c.name, got, c.want)
		}
		if v := b.judge(); !reflect.DeepEqual(v.Gates[0], got) {
			t.Errorf("%s: Judge has the gate %+v", c.name, v.Gates[0])
		}
	}
	if g := Gate(&evidence.Plan{}, nil, "soak"); g.Met || g.Reason != `the plan has no phase "soak"` {
		t.Errorf("gate of no phase: %+v", g)
	}
}

// TestGateSteers: a gate that is met does not change the verdict.
func TestGateSteers(t *testing.T) {
	b := withFabric().slow("n2")
	b.plan.Phases[0].Gate.Require = "60%"
	v := b.judge()
	if !v.Gates[0].Met || !v.Gates[1].Met || v.Outcome != evidence.Fail {
		t.Errorf("gates %+v, outcome %s", v.Gates, v.Outcome)
	}
}

func TestGateOfPairs(t *testing.T) {
	b := newBench(3).test("ib", evidence.ScopePair, 1, evidence.Threshold{
		Name: "bw", Metric: "bw", Stat: "min", Per: "node", Unit: "GB/s", Level: "node/peer", Subjects: []string{"n1/n2", "n2/n3", "n3/n2"}, Min: ptr(40.0),
	})
	b.measure("ib/n1-n2.r1", measured("bw", "n1/n2", 48)).measure("ib/n2-n3.r1", measured("bw", "n2/n3", 48), measured("bw", "n3/n2", 48))
	b.plan.Phases[0].Gate.Require = "1"
	if g := Gate(&b.plan, b.cells, "node"); !g.Met || len(g.Failing) != 0 {
		t.Errorf("gate %+v", g)
	}
	b.first("ib/n1-n2.r1").Problems = []evidence.Problem{{Class: evidence.ClassTimeout}}
	want := evidence.GateResult{Phase: "node", Met: true, Needed: 1, Passing: []string{"n3"}, Failing: []string{"n[1-2]"}}
	if g := Gate(&b.plan, b.cells, "node"); !reflect.DeepEqual(g, want) {
		t.Errorf("gate %+v, want %+v", g, want)
	}
}

func TestRelease(t *testing.T) {
	for _, c := range []struct {
		name    string
		rule    evidence.Release
		damage  func(*bench)
		outcome evidence.Outcome
		reason  string
	}{
		{"all good", evidence.Release{Nodes: "n[1-3]", Require: []string{"node", "fabric"}}, nil, evidence.Pass, ""},
		{"reference to a phase", evidence.Release{Nodes: "n[1-3]", Require: []string{"phase.node"}}, nil, evidence.Pass, ""},
		{"a bad node", evidence.Release{Nodes: "n[1-3]", Require: []string{"node"}}, func(b *bench) { b.slow("n2") }, evidence.Fail, "bw of hbm on n2 is fail"},
		{"another node is bad", evidence.Release{Nodes: "n[1,3]", Require: []string{"node"}}, func(b *bench) { b.slow("n2") }, evidence.Pass, ""},
		{"the whole is bad", evidence.Release{Nodes: "n1", Require: []string{"fabric"}}, func(b *bench) { b.first("nccl/n1-n2-n3.r1").Measurements[0].Value = 1 }, evidence.Fail, "busbw of nccl on fleet is fail"},
		{"the whole of another phase is bad", evidence.Release{Nodes: "n1", Require: []string{"node"}}, func(b *bench) { b.first("nccl/n1-n2-n3.r1").Measurements[0].Value = 1 }, evidence.Pass, ""},
		{"not run", evidence.Release{Nodes: "n1", Require: []string{"node"}}, func(b *bench) { b.at("hbm/n1.r1").Attempts = nil }, evidence.Inconclusive, "bw of hbm on n1 is inconclusive (and 1 more)"},
		{"an open cell without a finding", evidence.Release{Nodes: "n3", Require: []string{"node", "fabric"}}, func(b *bench) {
			b.first("nccl/n1-n2-n3.r1").Problems = []evidence.Problem{{Node: "n1", Class: evidence.ClassPanic}}
		}, evidence.Error, "busbw of nccl on fleet is error (and 1 more)"},
		{"other racks", evidence.Release{Nodes: "n[1-2]", Require: []string{"node"}}, func(b *bench) {
			b.plan.Tests[0].Thresholds[0].Per = "rack"
			b.slow("n3")
		}, evidence.Pass, ""},
		{"its rack", evidence.Release{Nodes: "n3", Require: []string{"node"}}, func(b *bench) {
			b.plan.Tests[0].Thresholds[0].Per = "rack"
			b.slow("n3")
		}, evidence.Fail, "bw of hbm on rack=A2 is fail"},
		{"a test of other nodes", evidence.Release{Nodes: "n1", Require: []string{"node"}}, func(b *bench) {
			b.plan.Tests[1].Phase, b.plan.Tests[1].Nodes = "node", "n[2-3]"
			b.first("nccl/n1-n2-n3.r1").Measurements[0].Value = 1
		}, evidence.Pass, ""},
		{"a node without a finding", evidence.Release{Nodes: "n[1-3]", Require: []string{"node"}}, func(b *bench) { b.plan.Tests[0].Thresholds[0].Subjects = []string{"n[1-2]/gpu[0-1]"} }, evidence.Inconclusive, `nothing is found about n3 in phase "node"`},
		{"a node outside of the fleet", evidence.Release{Nodes: "n[3-4]", Require: []string{"fabric"}}, nil, evidence.Inconclusive, `n4 is not in the fleet`},
		{"no nodes", evidence.Release{Require: []string{"node"}}, nil, evidence.Inconclusive, "it names no nodes"},
		{"no phase", evidence.Release{Nodes: "n1"}, nil, evidence.Inconclusive, "it requires no phase"},
		{"unknown phase", evidence.Release{Nodes: "n1", Require: []string{"node", "soak"}}, nil, evidence.Inconclusive, `phase "soak" has no test`},
		{"narrowed", evidence.Release{Nodes: "n1", Require: []string{"node"}}, func(b *bench) { b.plan.Narrowed = []string{"--test=hbm"} }, evidence.Inconclusive, "narrowed: --test=hbm"},
		{"off contract", evidence.Release{Nodes: "n1", Require: []string{"node"}}, func(b *bench) {
			b.plan.Variables = []evidence.Variable{{Name: "soak", OffContract: true}}
		}, evidence.Inconclusive, "off contract: soak"},
	} {
		b := withFabric()
		if c.damage != nil {
			c.damage(b)
		}
		c.rule.Name = "final"
		b.plan.Releases = []evidence.Release{c.rule}
		want := evidence.ReleaseResult{Release: "final", Outcome: c.outcome, Reason: c.reason}
		v := b.judge()
		if v.Releases[0] != want {
			t.Errorf("%s: %+v, want %+v", c.name, v.Releases[0], want)
		}
		if (len(b.plan.Narrowed) > 0 || len(b.plan.Variables) > 0) && v.Outcome != evidence.Pass {
			t.Errorf("%s: the outcome is %s", c.name, v.Outcome)
		}
	}
}

func TestCoverageNamesWhatIsOpen(t *testing.T) {
	b := withFabric()
	b.at("hbm/n1.r1").Attempts = nil
	b.at("hbm/n1.r1").Skipped = &evidence.Problem{Node: "n1", Class: evidence.ClassExcluded, Detail: "by a gate"}
	b.first("hbm/n2.r1").Measurements = nil
	b.first("hbm/n3.r2").Problems = []evidence.Problem{{Node: "n3", Step: "run", Class: evidence.ClassTimeout, Detail: "after 60 s"}}
	cut := attempt(1)
	cut.Cut = true
	cut.Problems = []evidence.Problem{{Class: evidence.ClassCut, Detail: "stopped by the operator"}}
	b.at("nccl/n1-n2-n3.r1").Attempts = []evidence.MeasuredAttempt{cut, numbered(*b.first("nccl/n1-n2-n3.r1"), 2)}
	c := b.judge().Coverage
	want := evidence.Coverage{
		Cells: 7, Measured: 4, Nodes: 3, Findings: 4, Passing: 1,
		Open: []evidence.OpenCell{
			{Cell: "hbm/n1.r1", Problem: evidence.Problem{Node: "n1", Class: evidence.ClassExcluded, Detail: "by a gate"}},
			{Cell: "hbm/n2.r1", Attempt: 1, Problem: evidence.Problem{Node: "n2", Class: evidence.ClassUnmeasured, Detail: "n2/gpu0 at size=1GiB in repetition 1: bw was not measured"}},
			{Cell: "hbm/n3.r2", Attempt: 1, Problem: evidence.Problem{Node: "n3", Step: "run", Class: evidence.ClassTimeout, Detail: "after 60 s"}},
		},
		Cuts: []evidence.OpenCell{{Cell: "nccl/n1-n2-n3.r1", Attempt: 1, Problem: evidence.Problem{Class: evidence.ClassCut, Detail: "stopped by the operator"}}},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("coverage\n %+v, want\n %+v", c, want)
	}
	tests := b.judge().Tests
	if tests[0].Passed != 0 || tests[0].Cells != 6 || tests[1].Passed != 1 || tests[1].Outcome != evidence.Pass {
		t.Errorf("tests %+v", tests)
	}
	if !strings.Contains(of(b.judge(), "n1").Reason, "excluded: by a gate") {
		t.Errorf("reason %q", of(b.judge(), "n1").Reason)
	}
}
