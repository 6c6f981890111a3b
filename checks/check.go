// Package checks is what can be measured. A Check drives real tools through a
// Bench and, apart from that, derives measurements from what they printed.
// One file holds one check; catalog.go lists them.
package checks

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// A Check is a kind of thing that can be measured.
//
// Drive needs a rack and Measure must not: so an auditor can measure a sealed
// bundle again, and a parser is tested on files alone.
type Check interface {
	// Spec is static: it is the same at every call.
	Spec() Spec
	// Drive makes the rack do it; all that it leaves is raw output. Its error
	// says that the attempt could not be made as planned; a *evidence.Problem
	// (joined, if several) names node and class.
	Drive(ctx context.Context, b Bench) error
	// Measure derives measurements and facts from raw, the attempt's raw
	// folder. It is pure. What it cannot measure it reports as
	// *evidence.Problem, joined with errors.Join, beside what it could: no
	// expected measurement may be left out without one. It never guesses: a
	// value that the tool did not print is a Measurement with Missing. Output
	// of another command than Drive would run is none of the step's: both take
	// the argv from one function of the plan.
	Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error)
}

// Spec describes a check: what runbooks may say and what the check can report.
type Spec struct {
	Name    string
	Doc     string // one paragraph
	Version int    // rises when Measure changes meaning
	Scopes  []evidence.Scope
	// Loads are what other cells must not disturb: gpu and cpu, which each
	// node has for itself, and fabric, storage and power, which the fleet
	// shares, so that no two cells of which both load one run at once.
	Loads []string
	// FleetLoads are loads that a cell has besides in scope "fleet": what one
	// node does inside itself, or two between them, disturbs no other.
	FleetLoads []string
	Hazard     string // the hazard that using it means; empty: none
	Needs      []evidence.Capability
	Params     []evidence.Param
	// Validate checks what types cannot express; nil means nothing. The error
	// is shown at the check's block.
	Validate func(p json.RawMessage) error
	Metrics  func(p json.RawMessage) []Metric
	Facts    func(p json.RawMessage) []FactSpec
	// Mismatches is the metric that counts the facts of a node that differ from
	// the fleet's expect block: zero says that each was read and is as expected.
	// Empty: the check does not look at the block.
	Mismatches string
	// Subjects are the expected subjects of one metric or fact, for a test on
	// nodes, at the metric's finest level. Nil means that the plan cannot
	// know them, which is a plan error.
	Subjects func(f evidence.Fleet, nodes []string, scope evidence.Scope, metric string, p json.RawMessage) []evidence.Subject
}

// LoadsIn are the loads of a cell of a scope.
func (s Spec) LoadsIn(scope evidence.Scope) []string {
	if scope != evidence.ScopeFleet {
		return slices.Clone(s.Loads)
	}
	return slices.Concat(s.Loads, s.FleetLoads)
}

// Metric is a number that a check can report.
type Metric struct {
	Name  string
	Unit  string
	Level string // the path of its subject: "node", "node/gpu", "fleet", or LevelCell
	Doc   string
	// Labels are its labels and, where the plan knows them, the values that
	// must each be measured.
	Labels      []Label
	Accumulates bool    // grows with time, so a breach of max cannot mend
	Resolution  float64 // its smallest step, in Unit
}

// LevelCell is the level of what is measured of a cell as a whole: its node in
// scope "node", each of its nodes with the other as its peer in scope "pair",
// the fleet in scope "fleet".
const LevelCell = "cell"

// LevelIn is the path of the subjects of a level in a scope.
func LevelIn(level string, scope evidence.Scope) string {
	switch {
	case level != LevelCell:
		return level
	case scope == evidence.ScopePair:
		return "node/peer"
	}
	return string(scope)
}

// Label is a label of a metric.
type Label struct {
	Name   string
	Values []string // in the canonical spelling; nil: not known before the run
}

// FactSpec is a text that a check can report.
type FactSpec struct {
	Name  string
	Level string
	Doc   string
}

// Command is what a check runs on one node. There is no shell.
type Command struct {
	Node     string
	Argv     []string
	Env      map[string]string
	Stdin    []byte
	Deadline time.Duration // zero: the test's
	Silence  time.Duration // zero: the test's
}

// Bench is all that a running check may touch.
type Bench interface {
	// Nodes are the cell's nodes, in fleet order.
	Nodes() []string
	// Params decodes the test's parameters.
	Params(into any) error
	// Test is the test, for its duration and faults.
	Test() evidence.Test
	// Fleet is the whole fleet, for a check that needs a node outside of its
	// cell or an expectation.
	Fleet() evidence.Fleet
	// Exec runs c and writes raw/<step>.<node>/{stdout,stderr,exit.json}. A
	// step name is used once per node. The error is a *evidence.Problem where
	// the class is one that no measurement can mend (the node is gone, the
	// tool is missing); a nonzero exit is not an error.
	Exec(ctx context.Context, step string, c Command) (evidence.Exit, error)
	// ExecAll runs one command a node on all of nodes at once, as Exec does,
	// and joins the errors.
	ExecAll(ctx context.Context, step string, nodes []string, command func(node string) Command) error
	// Cleanup has the runner run c when the attempt has ended, for whatever
	// reason: a deadline and a stop too. Ask for it before making what it
	// removes. On each node the last one asked for runs first; each has its
	// own deadline of at most 30 s, and leaves a step as Exec does. One that
	// does not exit with 0 is a problem of the attempt, of class exit: the
	// measurements may stand, and what was left behind is said.
	Cleanup(step string, c Command) error
	// Probe runs the command that next gives for n = 0, 1, … every period,
	// measured from the first start, until ctx is done or next says false. A
	// probe that overruns skips the starts that it covers; none overlap. Each
	// becomes one line of raw/<step>.<node>/stdout, a ProbeLine; the step has
	// the usual exit.json.
	Probe(ctx context.Context, step, node string, period time.Duration, next func(n int) (Command, bool)) error
	// Wait polls until until says true or fails, or ctx ends.
	Wait(ctx context.Context, what string, every time.Duration, until func(context.Context) (bool, error)) error
	// Faults is closed when all of the test's faults have been injected and
	// undone; with no faults it is closed from the start.
	Faults() <-chan struct{}
}

// ProbeLine is one line of a probe step's stdout, as JSON.
type ProbeLine struct {
	N      int            `json:"n"`
	Start  float64        `json:"start"` // seconds since the attempt began, on the runner's monotonic clock
	End    float64        `json:"end"`
	Class  evidence.Class `json:"class"`
	Code   *int           `json:"code,omitempty"`
	Stdout string         `json:"stdout"` // at most 4 KiB, invalid UTF-8 replaced
	Stderr string         `json:"stderr,omitempty"`
}

// Catalog is a list of checks.
type Catalog []Check

// Find returns the check named name.
func (c Catalog) Find(name string) (Check, bool) {
	for _, check := range c {
		if check.Spec().Name == name {
			return check, true
		}
	}
	return nil, false
}

// everywhere does one thing on each node at once.
func everywhere(nodes []string, do func(node string) error) error {
	failed := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() { failed[i] = do(node) })
	}
	group.Wait()
	return errors.Join(failed...)
}
