package thresholds

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

// passing are runs that pass, of every form that a test can have.
func passing() map[string]func() *bench {
	stat := func(stat, per string) func() *bench {
		return func() *bench {
			return gpus(func(t *evidence.Threshold) {
				t.Stat, t.Per, t.Unit, t.Min, t.Max = stat, per, Stat(stat).Unit("GB/s"), nil, ptr(1e6)
			})
		}
	}
	outliers := func() *bench {
		b := newBench(6).test("hbm", evidence.ScopeNode, 2, evidence.Threshold{
			Name: "outlier", Metric: "bw", Stat: "mad_z", Per: "node", Unit: "1", Level: "node", Subjects: []string{"n[1-6]"}, Min: ptr(-3.5), Max: ptr(3.5),
		})
		for _, c := range b.plan.Cells {
			b.measure(c.ID, measured("bw", c.Nodes, 100))
		}
		return b
	}
	pairs := func() *bench {
		b := newBench(3).test("ib", evidence.ScopePair, 1, evidence.Threshold{
			Name: "bw", Metric: "bw", Stat: "min", Per: "node", Unit: "GB/s", Level: "node/peer", Subjects: []string{"n1/n2", "n2/n1", "n2/n3", "n3/n2"}, Min: ptr(40.0),
		})
		b.measure("ib/n1-n2.r1", measured("bw", "n1/n2", 48), measured("bw", "n2/n1", 48))
		return b.measure("ib/n2-n3.r1", measured("bw", "n2/n3", 48), measured("bw", "n3/n2", 48))
	}
	return map[string]func() *bench{
		"min per gpu": stat("min", "gpu"), "max per node": stat("max", "node"), "mean per test": stat("mean", "test"), "median per rack": stat("median", "rack"),
		"sum per test": stat("sum", "test"), "count per node": stat("count", "node"), "spread per test": stat("spread", "test"), "p95 per test": stat("p95", "test"),
		"outliers": outliers, "pairs": pairs, "two phases": withFabric,
		"counter": func() *bench { return counter("max", 5) },
		"texts":   func() *bench { return versions(nil) },
		"distinct": func() *bench {
			return versions(func(t *evidence.Threshold) {
				t.Stat, t.Per, t.Equals, t.Max = "distinct", "test", nil, ptr(1.0)
			})
		},
	}
}

// deep copies a bench, so that it can be damaged again and again.
func (b *bench) deep() *bench {
	c := &bench{plan: b.plan, cells: slices.Clone(b.cells)}
	for i := range c.cells {
		c.cells[i].Attempts = slices.Clone(c.cells[i].Attempts)
		for k := range c.cells[i].Attempts {
			a := &c.cells[i].Attempts[k]
			a.Measurements, a.Facts = slices.Clone(a.Measurements), slices.Clone(a.Facts)
		}
	}
	return c
}

// TestRemovingAnythingIsNeverAPass removes or damages every part of passing
// runs, one at a time.
func TestRemovingAnythingIsNeverAPass(t *testing.T) {
	for name, build := range passing() {
		whole := build()
		if v := whole.judge(); v.Outcome != evidence.Pass {
			t.Errorf("%s: the whole run is %s: %+v", name, v.Outcome, v.Findings)
			continue
		}
		check := func(what string, b *bench) {
			t.Helper()
			v := b.judge()
			if v.Outcome == evidence.Pass || v.Outcome == evidence.None {
				t.Errorf("%s without %s: %s", name, what, v.Outcome)
			}
			for _, g := range v.Gates {
				all := true
				for _, r := range v.Tests {
					if i := slices.IndexFunc(b.plan.Tests, func(t evidence.Test) bool { return t.Name == r.Test }); b.plan.Tests[i].Phase == g.Phase {
						all = all && r.Outcome == evidence.Pass
					}
				}
				if g.Met && !all {
					t.Errorf("%s without %s: the gate of %s is met", name, what, g.Phase)
				}
			}
			if v.Coverage.Measured == v.Coverage.Cells && v.Coverage.Passing == v.Coverage.Findings {
				t.Errorf("%s without %s: coverage %+v", name, what, v.Coverage)
			}
		}
		for i := range whole.cells {
			id := whole.cells[i].Cell.ID
			b := whole.deep()
			b.cells = slices.Delete(b.cells, i, i+1)
			check("the result of "+id, b)

			b = whole.deep()
			b.cells[i].Attempts = nil
			check("the attempt of "+id, b)

			b = whole.deep()
			b.cells[i].Attempts[0].Cut = true
			check("the end of "+id, b)

			b = whole.deep()
			b.plan.Cells = slices.Delete(slices.Clone(b.plan.Cells), i, i+1)
			check("the planned cell "+id, b)

			for k := range whole.cells[i].Attempts[0].Measurements {
				what := fmt.Sprintf("measurement %d of %s", k, id)
				b = whole.deep()
				ms := &b.cells[i].Attempts[0].Measurements
				*ms = slices.Delete(*ms, k, k+1)
				check(what, b)

				b = whole.deep()
				b.cells[i].Attempts[0].Measurements[k].Missing = "N/A"
				check("the number of "+what, b)

				b = whole.deep()
				b.cells[i].Attempts[0].Measurements[k].Value = math.NaN()
				check("a finite number in "+what, b)

				b = whole.deep()
				b.cells[i].Attempts[0].Measurements[k].Unit = "furlong"
				check("the unit of "+what, b)

				b = whole.deep()
				b.cells[i].Attempts[0].Measurements[k].Subject += "x"
				check("the subject of "+what, b)
			}
			for k := range whole.cells[i].Attempts[0].Facts {
				b = whole.deep()
				facts := &b.cells[i].Attempts[0].Facts
				*facts = slices.Delete(*facts, k, k+1)
				check(fmt.Sprintf("fact %d of %s", k, id), b)
			}
		}
	}
}

// TestEveryClassIsOpen: no class but ok leaves a cell without measurements
// closed.
func TestEveryClassIsOpen(t *testing.T) {
	for _, class := range []evidence.Class{
		evidence.ClassOK, evidence.ClassDNS, evidence.ClassTCP, evidence.ClassBanner, evidence.ClassKex, evidence.ClassBusy, evidence.ClassAuth, evidence.ClassNotSSH,
		evidence.ClassHostKeyMismatch, evidence.ClassHostKeyUnknown, evidence.ClassLost, evidence.ClassInterrupted, evidence.ClassSilent, evidence.ClassTimeout,
		evidence.ClassSignal, evidence.ClassOutputHeldOpen, evidence.ClassLeaseHeld, evidence.ClassCut, evidence.ClassToolMissing, evidence.ClassToolVersion,
		evidence.ClassSudoRefused, evidence.ClassArch, evidence.ClassWrongFilesystem, evidence.ClassMountMissing, evidence.ClassExit, evidence.ClassOutputCapped,
		evidence.ClassOutputCut, evidence.ClassUnparsable, evidence.ClassPanic, evidence.ClassUnmeasured, evidence.ClassNodeDiskFull, evidence.ClassClockOffset,
		evidence.ClassJournalFull, evidence.ClassExcluded, evidence.ClassNotApplicable, evidence.ClassNotRun, "", "of a newer build",
	} {
		want := evidence.Worst(evidence.Inconclusive, class.Outcome())
		for _, node := range []string{"", "n2"} {
			b := gpus()
			b.first("hbm/n2.r1").Problems = []evidence.Problem{{Node: node, Class: class}}
			b.first("hbm/n2.r1").Measurements = nil
			v := b.judge()
			if f := of(v, "n2"); v.Outcome != want || f.Outcome != want || len(v.Coverage.Open) != 1 {
				t.Errorf("%q on %q: %s, finding %s, want %s", class, node, v.Outcome, f.Outcome, want)
			}
			b = gpus()
			b.first("hbm/n2.r1").Problems = []evidence.Problem{{Node: node, Class: class}}
			if v := b.judge(); !class.ProvedByMeasure() && (v.Outcome != want || of(v, "n2").Class != class) {
				t.Errorf("%q on %q with measurements: %s", class, node, v.Outcome)
			}
		}
	}
}

// TestRandomDamage deletes and changes parts at random and checks what has to
// hold of every verdict.
func TestRandomDamage(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 30))
	for name, build := range passing() {
		whole := build()
		for range 300 {
			b := whole.deep()
			for range 1 + random.IntN(4) {
				damage(random, b)
			}
			v := b.judge()
			if again := b.judge(); !reflect.DeepEqual(v, again) {
				t.Fatalf("%s: two verdicts on the same run", name)
			}
			if v.Outcome == evidence.None {
				t.Fatalf("%s: no outcome", name)
			}
			outcomes := []evidence.Outcome{}
			for _, f := range v.Findings {
				outcomes = append(outcomes, f.Outcome)
				if f.Outcome == evidence.None || f.Outcome != evidence.Pass && f.Reason == "" {
					t.Fatalf("%s: finding without outcome or reason: %+v", name, f)
				}
			}
			if worst := evidence.Worst(outcomes...); evidence.Worst(worst, v.Outcome) != v.Outcome {
				t.Fatalf("%s: the outcome %s is better than its findings'", name, v.Outcome)
			}
			if v.Outcome == evidence.Pass && (v.Coverage.Measured != v.Coverage.Cells || len(v.Coverage.Open) > 0) {
				t.Fatalf("%s: a pass with open cells: %+v", name, v.Coverage)
			}
			if v.Coverage.Measured+len(v.Coverage.Open) != v.Coverage.Cells {
				t.Fatalf("%s: coverage does not add up: %+v", name, v.Coverage)
			}
			if _, err := json.Marshal(v); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

// damage changes one part of a bench.
func damage(random *rand.Rand, b *bench) {
	if len(b.cells) == 0 {
		return
	}
	i := random.IntN(len(b.cells))
	c := &b.cells[i]
	if random.IntN(8) == 0 {
		b.cells = slices.Delete(b.cells, i, i+1)
		return
	}
	if len(c.Attempts) == 0 {
		c.Skipped = &evidence.Problem{Class: evidence.ClassNotRun}
		return
	}
	a := &c.Attempts[random.IntN(len(c.Attempts))]
	switch random.IntN(9) {
	case 0:
		a.Cut = true
	case 1:
		c.Attempts = append(c.Attempts, numbered(*a, len(c.Attempts)+1))
	case 2:
		a.Problems = []evidence.Problem{{Node: "n2", Class: []evidence.Class{evidence.ClassExit, evidence.ClassTimeout, evidence.ClassPanic}[random.IntN(3)]}}
	case 3:
		a.Facts = nil
	case 4:
		c.Attempts = nil
	}
	if len(a.Measurements) == 0 {
		return
	}
	k := random.IntN(len(a.Measurements))
	switch random.IntN(6) {
	case 0:
		a.Measurements = slices.Delete(a.Measurements, k, k+1)
	case 1:
		a.Measurements[k].Value = []float64{math.NaN(), math.Inf(1), math.MaxFloat64, -math.MaxFloat64, 0, -1}[random.IntN(6)]
	case 2:
		a.Measurements[k].Missing = "N/A"
	case 3:
		a.Measurements[k].Unit = "MB/s"
	case 4:
		a.Measurements = append(a.Measurements, a.Measurements[k])
	}
}

// rack is a run of n nodes and tests of eight GPUs each.
func rack(n, tests int) *bench {
	b := newBench(n)
	subjects := fmt.Sprintf("n[1-%d]/gpu[0-7]", n)
	for i := range tests {
		name := fmt.Sprintf("t%03d", i)
		b.test(name, evidence.ScopeNode, 1,
			evidence.Threshold{Name: "floor", Metric: "bw", Stat: "min", Per: "node", Unit: "GB/s", Level: "node/gpu", Subjects: []string{subjects}, Min: ptr(90.0)},
			evidence.Threshold{Name: "outlier", Metric: "bw", Stat: "mad_z", Per: "node", Unit: "1", Level: "node/gpu", Subjects: []string{subjects}, Min: ptr(-3.5)})
	}
	for i := range b.cells {
		ms := make([]evidence.Measurement, 8)
		for g := range ms {
			ms[g] = measured("bw", fmt.Sprintf("%s/gpu%d", b.cells[i].Cell.Nodes, g), 100+float64(i%7))
		}
		b.cells[i].Attempts[0].Measurements = ms
	}
	return b
}

func TestLargeRun(t *testing.T) {
	v := rack(1000, 3).judge()
	if v.Outcome != evidence.Pass || len(v.Findings) != 6000 || v.Coverage.Measured != 3000 {
		t.Errorf("outcome %s, %d findings, coverage %+v", v.Outcome, len(v.Findings), v.Coverage)
	}
}

func BenchmarkJudge(b *testing.B) {
	run := rack(1000, 200)
	for b.Loop() {
		if v := run.judge(); v.Outcome != evidence.Pass {
			b.Fatal(v.Outcome)
		}
	}
}

func BenchmarkGate(b *testing.B) {
	run := rack(1000, 200)
	for i := range run.plan.Tests {
		run.plan.Tests[i].Phase = fmt.Sprintf("p%d", i)
	}
	run.plan.Phases = nil
	for i := range 200 {
		run.plan.Phases = append(run.plan.Phases, evidence.Phase{Name: fmt.Sprintf("p%d", i), Gate: evidence.Gate{Require: "all"}})
	}
	for b.Loop() {
		if g := Gate(&run.plan, run.cells, "p7"); !g.Met {
			b.Fatal(g)
		}
	}
}
