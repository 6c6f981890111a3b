package runner

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/thresholds"
)

// With the real judge: a cell is tried again because of what it measured
// itself, and not because of a statistic that needs its sisters.
func TestRetriesUnderTheRealJudge(t *testing.T) {
	nodes := names(6)
	one, ten := 1.0, 10.0
	bound := func(stat, per string, limit *float64, atLeast bool) evidence.Threshold {
		th := evidence.Threshold{Name: stat, Metric: "value", Stat: stat, Per: per, Unit: "1", Level: "node", Subjects: []string{"n[01-06]"}, Basis: "a test"}
		if th.Min = limit; !atLeast {
			th.Min, th.Max = nil, limit
		}
		return th
	}
	for _, test := range []struct {
		name       string
		scope      evidence.Scope
		thresholds []evidence.Threshold
		prints     func(cell string, attempt int) string
		attempts   map[string]int // of cells with more than one
	}{
		{"all well", evidence.ScopeNode, []evidence.Threshold{bound("min", "node", &one, true), bound("mad_z", "node", &ten, false), bound("median", "test", &one, true)},
			func(string, int) string { return "1" }, nil},
		{"one node is low", evidence.ScopeNode, []evidence.Threshold{bound("min", "node", &one, true), bound("mad_z", "node", &ten, false)},
			func(cell string, attempt int) string {
				if strings.Contains(cell, "n04") && attempt == 1 {
					return "0.5"
				}
				return "1"
			}, map[string]int{"one/n04.r1": 2, "one/n04.r2": 2, "one/n04.r3": 2}},
		{"only statistics over cells", evidence.ScopeNode, []evidence.Threshold{bound("median", "node", &one, true)},
			func(cell string, attempt int) string {
				if strings.HasSuffix(cell, "n02.r2") && attempt < 3 {
					return "?"
				}
				return "0.1"
			}, map[string]int{"one/n02.r2": 3}},
		{"whole set", evidence.ScopeFleet, []evidence.Threshold{bound("min", "node", &one, true)},
			func(cell string, attempt int) string {
				if strings.HasSuffix(cell, ".r2") {
					return fmt.Sprint(attempt - 1)
				}
				return "1"
			}, map[string]int{evidence.CellID("one", nodes, 2): 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := testOf("one", "one", test.scope, nodes)
				spec.Repeat, spec.Retries, spec.Thresholds = 3, 2, test.thresholds
				b := newBay(t, planOf(nodes, spec))
				b.set = func(o *Options) { o.Judge = thresholds.Judge }
				for _, n := range nodes {
					b.rack.on(n, "work", func(ctx context.Context, task evidence.Task, out, errs io.Writer) evidence.Exit {
						parts := strings.Split(task.Mark, "/") // run, test, cell, attempt, step
						var attempt int
						if _, err := fmt.Sscan(parts[3], &attempt); err != nil {
							t.Error(err)
						}
						return printing(test.prints(parts[1]+"/"+parts[2], attempt))(ctx, task, out, errs)
					})
				}
				if err := b.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				for id, r := range b.results() {
					want(t, "attempts of "+id, len(r.Attempts), max(1, test.attempts[id]))
				}
				own := slices.ContainsFunc(test.thresholds, func(th evidence.Threshold) bool { return th.Stat == "min" })
				for _, p := range b.progress {
					if p.Kind == ProgressCellEnd && (p.Outcome == evidence.Pass && (!own || p.Measured) || p.Measured && own) {
						t.Errorf("%s attempt %d: outcome %s, measured %t", p.Cell, p.Attempt, p.Outcome, p.Measured)
					}
				}
			})
		})
	}
}

// Where no threshold judges the cell alone, nothing is a pass, and only a
// whole measurement spares it another attempt.
func TestOutcomeWithoutAThresholdOfItsOwn(t *testing.T) {
	number, fact := []evidence.Measurement{{Metric: "value"}}, []evidence.Fact{{Name: "model"}}
	problem := func(c evidence.Class) []evidence.Problem { return []evidence.Problem{{Class: c}} }
	for _, test := range []struct {
		name     string
		attempt  evidence.MeasuredAttempt
		outcome  evidence.Outcome
		measured bool
	}{
		{"nothing", evidence.MeasuredAttempt{}, evidence.Inconclusive, false},
		{"a number", evidence.MeasuredAttempt{Measurements: number}, evidence.Inconclusive, true},
		{"a fact", evidence.MeasuredAttempt{Facts: fact}, evidence.Inconclusive, true},
		{"cut", evidence.MeasuredAttempt{Attempt: evidence.Attempt{Cut: true}, Measurements: number}, evidence.Inconclusive, false},
		{"a number in spite of an exit", evidence.MeasuredAttempt{Attempt: evidence.Attempt{Problems: problem(evidence.ClassExit)}, Measurements: number}, evidence.Inconclusive, true},
		{"only an exit", evidence.MeasuredAttempt{Attempt: evidence.Attempt{Problems: problem(evidence.ClassExit)}}, evidence.Error, false},
		{"an exit that Measure could not read", evidence.MeasuredAttempt{Measurements: number, Unmeasured: problem(evidence.ClassExit)}, evidence.Error, false},
		{"lost", evidence.MeasuredAttempt{Attempt: evidence.Attempt{Problems: problem(evidence.ClassLost)}, Measurements: number}, evidence.Inconclusive, false},
	} {
		outcome, measured := alone(test.attempt)
		if outcome != test.outcome || measured != test.measured {
			t.Errorf("%s: %s, measured %t; want %s, %t", test.name, outcome, measured, test.outcome, test.measured)
		}
	}
}
