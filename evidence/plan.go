package evidence

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence/nodeset"
)

// Plan is what will be run, in full, before it runs. It is normalised: a Test
// holds what all its cells share, a Cell only what is its own.
type Plan struct {
	MediaType string `json:"mediaType"` // MediaPlan
	Minor     int    `json:"minor"`

	Name    string `json:"name"` // the runbook's label
	Title   string `json:"title,omitempty"`
	Version string `json:"version,omitempty"`

	Runbook   Digest     `json:"runbook"` // DigestOf the sources, see SourcesDigest
	Path      string     `json:"path"`    // the runbook's file among the sources
	Sources   []Source   `json:"sources"` // sorted by path
	Variables []Variable `json:"variables,omitempty"`
	Seed      string     `json:"seed"` // every draw comes from it

	Executor      string   `json:"executor"` // ssh, local, ...: how nodes are reached
	SharedMachine bool     `json:"sharedMachine,omitempty"`
	ClockLimit    Duration `json:"clockLimit"` // a node's clock may be this far from ours
	Parallel      int      `json:"parallel"`   // at most so many cells at once

	Fleet    Fleet     `json:"fleet"`
	Parties  []Party   `json:"parties,omitempty"`
	Owners   []Owner   `json:"owners,omitempty"`
	Captures Captures  `json:"captures,omitzero"`
	Phases   []Phase   `json:"phases"` // in an order that respects dependsOn
	Tests    []Test    `json:"tests"`
	Cells    []Cell    `json:"cells"` // in the order of their tests
	Releases []Release `json:"releases,omitempty"`
	Quorums  []Quorum  `json:"approvals,omitempty"`
	Narrowed []string  `json:"narrowed,omitempty"` // the flags that left something out
}

// Source is one file that the plan was compiled from, relative to the
// runbook's folder. It is enclosed in the bundle as run/runbook/<path>.
type Source struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
}

// SourcesDigest is the digest of the list of sources: of one line
// "<sha256 hex>  <path>\n" each, in order.
func SourcesDigest(sources []Source) Digest {
	var text strings.Builder
	for _, s := range sources {
		fmt.Fprintf(&text, "%s  %s\n", s.Digest.Hex(), s.Path)
	}
	return DigestOf([]byte(text.String()))
}

// Variable is one input of the runbook, as JSON text of its value.
type Variable struct {
	Name     string          `json:"name"`
	Value    json.RawMessage `json:"value"`
	Contract json.RawMessage `json:"contract,omitempty"`
	// OffContract is true where a contract value is declared and Value
	// differs from it: the run can be read, and not released.
	OffContract bool `json:"offContract,omitempty"`
}

// OffContract lists the variables that are off their contract, by name.
func (p *Plan) OffContract() []string {
	var names []string
	for _, v := range p.Variables {
		if v.OffContract {
			names = append(names, v.Name)
		}
	}
	return names
}

// Fleet is the machines under test.
type Fleet struct {
	Name   string        `json:"name"`
	Nodes  []Node        `json:"nodes"` // in the order of the runbook
	Expect []Expectation `json:"expect,omitempty"`
}

// Node is one machine. Labels come from the layout: rack, unit, leaf, ...
type Node struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// NodeNames returns the names of all nodes, in the runbook's order.
func (f Fleet) NodeNames() []string {
	names := make([]string, len(f.Nodes))
	for i, n := range f.Nodes {
		names[i] = n.Name
	}
	return names
}

// Expectation is one fact of inventory that every node must show.
type Expectation struct {
	Fact  string `json:"fact"`
	Value string `json:"value"` // a number in its shortest decimal form, or text
}

// Party is a side of the contract.
type Party struct {
	Name  string `json:"name"`
	Title string `json:"title,omitempty"`
}

// Owner is who answers for a test.
type Owner struct {
	Name    string `json:"name"`
	Party   string `json:"party,omitempty"`
	Title   string `json:"title,omitempty"`
	Contact string `json:"contact,omitempty"`
	Key     string `json:"key,omitempty"` // public key, PEM
}

// Captures are commands whose output is kept at the start and at the end of
// each phase, on every node of the phase, and how often checks that sample do
// so unless their test says otherwise.
type Captures struct {
	Commands       [][]string `json:"commands,omitempty"`
	SampleInterval Duration   `json:"sampleInterval,omitzero"`
	Deadline       Duration   `json:"deadline,omitzero"`
}

// IsZero reports whether nothing is captured.
func (c Captures) IsZero() bool { return len(c.Commands) == 0 && c.SampleInterval == 0 }

// Phase is an ordered group of tests.
type Phase struct {
	Name      string   `json:"name"`
	DependsOn []string `json:"dependsOn,omitempty"`
	Gate      Gate     `json:"gate"`
}

// Gate is the rule to leave a phase. The default is require all, on_fail
// continue.
type Gate struct {
	Require string `json:"require"` // "all", a count "30", or a share "90%"
	OnFail  string `json:"onFail"`  // stop, continue, exclude
}

// Needed is the number of passing nodes, of n, that the gate requires.
func (g Gate) Needed(n int) (int, error) {
	if g.Require == "all" {
		return n, nil
	}
	if share, ok := strings.CutSuffix(g.Require, "%"); ok {
		percent, err := strconv.Atoi(share)
		if err != nil || percent < 1 || percent > 100 {
			return 0, fmt.Errorf("gate requires %q: a share is 1%% to 100%%", g.Require)
		}
		return (n*percent + 99) / 100, nil
	}
	count, err := strconv.Atoi(g.Require)
	if err != nil || count < 1 {
		return 0, fmt.Errorf("gate requires %q: want \"all\", a count or a share such as \"90%%\"", g.Require)
	}
	return count, nil
}

// Test is one use of a check.
type Test struct {
	Name         string          `json:"name"`
	Phase        string          `json:"phase"`
	Owner        string          `json:"owner"`
	Check        string          `json:"check"`
	CheckVersion int             `json:"checkVersion"`
	Params       json.RawMessage `json:"params"` // an object, every default filled in
	Scope        Scope           `json:"scope"`
	Nodes        string          `json:"nodes"` // folded
	Hazard       string          `json:"hazard,omitempty"`
	Loads        []string        `json:"loads,omitempty"`

	Duration Duration `json:"duration"`
	Deadline Duration `json:"deadline"`
	Silence  Duration `json:"silence,omitzero"`
	Repeat   int      `json:"repeat"`  // at least 1
	Retries  int      `json:"retries"` // attempts after a failure

	Establishes      []Claim     `json:"establishes"`
	DoesNotEstablish []string    `json:"doesNotEstablish"`
	Thresholds       []Threshold `json:"thresholds"`
	Faults           []Fault     `json:"faults,omitempty"`
}

// Scope says how a test's nodes become cells.
type Scope string

// The scopes: one cell a node, one a pair of nodes, one for the whole set.
const (
	ScopeNode  Scope = "node"
	ScopePair  Scope = "pair"
	ScopeFleet Scope = "fleet"
)

// Claim is a sentence that the named thresholds carry.
type Claim struct {
	Sentence   string   `json:"sentence"`
	Thresholds []string `json:"thresholds"`
}

// Threshold is a bound on a statistic of a metric, or on a text fact, with
// everything that the judge needs: the judge knows no checks.
type Threshold struct {
	Name   string `json:"name"`
	Metric string `json:"metric"`         // or the name of a fact, see Text
	Text   bool   `json:"text,omitempty"` // Metric names a text fact
	Stat   string `json:"stat"`           // min max mean median p1..p99 count sum spread mad_z distinct equals
	Per    string `json:"per"`            // a level of Level, a layout label, or "test"
	Unit   string `json:"unit"`
	// Level is the path of the metric's subject: "node", "node/gpu",
	// "node/nic/peer", or "fleet" for a measurement of the whole set.
	Level string `json:"level"`
	// Subjects are the expected subjects, folded: every node set inside a
	// pattern stands for its members ("gpu[001-032]/gpu[0-7]").
	Subjects []string `json:"subjects"`
	// At binds the threshold to measurements with these labels. Every label
	// of the metric whose values the plan knows is listed here; a
	// measurement is expected for each combination, on each subject, in each
	// repetition.
	At map[string][]string `json:"at,omitempty"`

	Min    *float64 `json:"min,omitempty"`
	Max    *float64 `json:"max,omitempty"`
	Equals *string  `json:"equals,omitempty"`

	MinSamples  int     `json:"minSamples,omitempty"`
	Accumulates bool    `json:"accumulates,omitempty"` // grows with time: over max is final even in a cut attempt
	Resolution  float64 `json:"resolution,omitempty"`  // smallest step of the metric, for mad_z
	Basis       string  `json:"basis"`
}

// Fault is something that a test breaks on purpose.
type Fault struct {
	Kind  string          `json:"kind"`           // process_kill, service_stop, command, ...
	Nodes []string        `json:"nodes"`          // never empty
	Part  string          `json:"part,omitempty"` // of each node; a name for people, which no kind reads yet
	After Duration        `json:"after"`          // from when the check begins to drive
	For   Duration        `json:"for,omitzero"`   // zero: undone as soon as it was injected
	Args  json.RawMessage `json:"args,omitempty"`
}

// String is the fault's kind and part.
func (f Fault) String() string {
	if f.Part == "" {
		return f.Kind
	}
	return f.Kind + " of " + f.Part
}

// MaxPlanNodes bounds the names that all node sets of a plan stand for
// together. A few bytes stand for many names, and a plan is read whoever wrote
// it; a thousand nodes and 200 tests have half a million.
const MaxPlanNodes = 1 << 23

// CheckNodes expands the node sets of tests, cells and releases: there are not
// too many names in them, and each is of a node of the fleet. What reads a
// plan from outside does this before it expands a set that it keeps.
func (p *Plan) CheckNodes() error {
	fleet := make(map[string]struct{}, len(p.Fleet.Nodes))
	for _, n := range p.Fleet.Nodes {
		fleet[n.Name] = struct{}{}
	}
	total := 0
	check := func(what, name, set string) error {
		names, err := nodeset.Parse(set, nil)
		if err != nil {
			return fmt.Errorf("nodes of %s %q: %w", what, name, err)
		}
		for _, n := range names {
			if _, found := fleet[n]; !found {
				return fmt.Errorf("nodes of %s %q: %s is not in the fleet", what, name, n)
			}
		}
		if total += len(names); total > MaxPlanNodes {
			return fmt.Errorf("its node sets name more than %d nodes in all", MaxPlanNodes)
		}
		return nil
	}
	for i := range p.Tests {
		if err := check("test", p.Tests[i].Name, p.Tests[i].Nodes); err != nil {
			return err
		}
	}
	for i := range p.Cells {
		if err := check("cell", p.Cells[i].ID, p.Cells[i].Nodes); err != nil {
			return err
		}
	}
	for i := range p.Releases {
		if err := check("release", p.Releases[i].Name, p.Releases[i].Nodes); err != nil {
			return err
		}
	}
	return nil
}

// Cell is one entry of the plan: test × node set × repetition.
type Cell struct {
	ID         string `json:"id"` // <test>/<node or set-hash>.r<repetition>; its directory under cells/
	Test       string `json:"test"`
	Nodes      string `json:"nodes"` // folded
	Repetition int    `json:"repetition"`
}

// Release is the rule by which the release owner decides.
type Release struct {
	Name    string   `json:"name"`
	Nodes   string   `json:"nodes"` // folded
	Require []string `json:"require"`
	Waivers int      `json:"waivers"`
}

// Quorum is an approval that the runbook asks for.
type Quorum struct {
	Name   string         `json:"name"`
	Of     string         `json:"of"`
	By     []string       `json:"by"`
	Counts map[string]int `json:"counts"`
}

// Duration is a span of time; in JSON a text that ParseDuration reads.
type Duration time.Duration

// ParseDuration reads a duration of the runbook: numbers with the units d
// (24 hours), h, m, s and ms, in falling order ("1d12h", "90s"). It never
// returns a negative duration.
func ParseDuration(text string) (Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	var total time.Duration
	if found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("duration %q: want a form such as \"90s\", \"30m\", \"72h\" or \"3d\"", text)
		}
		total = time.Duration(n) * 24 * time.Hour
	} else {
		rest = text
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || strings.ContainsAny(rest, "nuµμ+-") {
			return 0, fmt.Errorf("duration %q: want a form such as \"90s\", \"30m\", \"72h\" or \"3d\"", text)
		}
		total += d
	} else if !found {
		return 0, fmt.Errorf("duration is empty: want a form such as \"90s\", \"30m\", \"72h\" or \"3d\"")
	}
	if total < 0 {
		return 0, fmt.Errorf("duration %q is too long", text)
	}
	return Duration(total), nil
}

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String is the canonical form: Go's, such as 1h30m0s.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the canonical form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}
