package thresholds

import (
	"fmt"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// bench is a plan with its results, small enough to damage one part at a time.
type bench struct {
	plan  evidence.Plan
	cells []evidence.CellResult
}

func ptr[T any](v T) *T { return &v }

func nodes(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i+1)
	}
	return names
}

// newBench is a fleet of n nodes, two to a rack, and one phase "node".
func newBench(n int) *bench {
	b := &bench{}
	b.plan.Phases = []evidence.Phase{{Name: "node", Gate: evidence.Gate{Require: "all", OnFail: "continue"}}}
	for i, name := range nodes(n) {
		b.plan.Fleet.Nodes = append(b.plan.Fleet.Nodes, evidence.Node{Name: name, Labels: map[string]string{"rack": fmt.Sprintf("A%d", i/2+1)}})
	}
	return b
}

// test adds a test on all nodes, with one passed attempt in every cell and no
// measurement yet.
func (b *bench) test(name string, scope evidence.Scope, repeat int, thresholds ...evidence.Threshold) *bench {
	all := b.plan.Fleet.NodeNames()
	t := evidence.Test{Name: name, Phase: "node", Scope: scope, Nodes: nodeset.Fold(all), Repeat: repeat, Thresholds: thresholds}
	b.plan.Tests = append(b.plan.Tests, t)
	var sets [][]string
	switch scope {
	case evidence.ScopeNode:
		for _, n := range all {
			sets = append(sets, []string{n})
		}
	case evidence.ScopePair:
		for i := 0; i+1 < len(all); i++ {
			sets = append(sets, all[i:i+2])
		}
	case evidence.ScopeFleet:
		sets = [][]string{all}
	}
	for _, set := range sets {
		for r := 1; r <= repeat; r++ {
			c := evidence.Cell{ID: fmt.Sprintf("%s/%s.r%d", name, strings.Join(set, "-"), r), Test: name, Nodes: nodeset.Fold(set), Repetition: r}
			b.plan.Cells = append(b.plan.Cells, c)
			b.cells = append(b.cells, evidence.CellResult{Cell: c, Attempts: []evidence.MeasuredAttempt{attempt(1)}})
		}
	}
	return b
}

func attempt(number int, ms ...evidence.Measurement) evidence.MeasuredAttempt {
	return evidence.MeasuredAttempt{Attempt: evidence.Attempt{Number: number}, Measurements: ms}
}

func measured(metric, subject string, value float64, labels ...string) evidence.Measurement {
	m := evidence.Measurement{Metric: metric, Unit: "GB/s", Value: value, Subject: evidence.Subject(subject), Source: "out:1"}
	for i := 0; i < len(labels); i += 2 {
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[labels[i]] = labels[i+1]
	}
	return m
}

func fact(name, subject, value string) evidence.Fact {
	return evidence.Fact{Name: name, Subject: evidence.Subject(subject), Value: value, Source: "out:1"}
}

// at is the result of one cell, by its id.
func (b *bench) at(id string) *evidence.CellResult {
	for i := range b.cells {
		if b.cells[i].Cell.ID == id {
			return &b.cells[i]
		}
	}
	panic("no cell " + id)
}

// first is the first attempt of one cell.
func (b *bench) first(id string) *evidence.MeasuredAttempt { return &b.at(id).Attempts[0] }

// measure adds measurements to the first attempt of a cell.
func (b *bench) measure(id string, ms ...evidence.Measurement) *bench {
	a := b.first(id)
	a.Measurements = append(a.Measurements, ms...)
	return b
}

// gpus is a test "hbm" of three nodes with two GPUs each, at two sizes and in
// two repetitions; all its 24 measurements are 100 GB/s.
func gpus(change ...func(*evidence.Threshold)) *bench {
	t := evidence.Threshold{
		Name: "bw", Metric: "bw", Stat: "min", Per: "node", Unit: "GB/s", Level: "node/gpu",
		Subjects: []string{"n[1-3]/gpu[0-1]"}, At: map[string][]string{"size": {"1GiB", "2GiB"}}, Min: ptr(90.0),
	}
	for _, c := range change {
		c(&t)
	}
	b := newBench(3).test("hbm", evidence.ScopeNode, 2, t)
	for _, n := range nodes(3) {
		for r := 1; r <= 2; r++ {
			for _, size := range []string{"1GiB", "2GiB"} {
				for g := range 2 {
					b.measure(fmt.Sprintf("hbm/%s.r%d", n, r), measured("bw", fmt.Sprintf("%s/gpu%d", n, g), 100, "size", size))
				}
			}
		}
	}
	return b
}

func (b *bench) judge() evidence.Verdict { return Judge(&b.plan, b.cells) }

// of is the finding on a subject, of the verdict's first threshold on it.
func of(v evidence.Verdict, subject string) evidence.Finding {
	for _, f := range v.Findings {
		if string(f.Subject) == subject {
			return f
		}
	}
	return evidence.Finding{Reason: "no finding on " + subject}
}
