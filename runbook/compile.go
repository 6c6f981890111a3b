package runbook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
	"github.com/rackproof/rackproof/thresholds"
)

// The limits of a plan.
const (
	maxCells    = 1_000_000
	maxSubjects = 20_000_000 // expected, over all thresholds
)

// Compile expands the runbook into a plan: every default written out, every
// cell, every expected subject. The plan is nil after errors.
func (r *Runbook) Compile() (*evidence.Plan, hcl.Diagnostics) {
	if r.diags.HasErrors() {
		return nil, hcl.Diagnostics{fail(RuleNotLoaded, r.here(), "Runbook has errors", "A runbook with errors has no plan. Mend what was reported when it was read.")}
	}
	c := compiler{r: r, folds: map[string][]folded{}, subjects: map[string][]evidence.Subject{}, sets: map[setKey]string{}}
	plan := c.plan()
	if c.diags.HasErrors() {
		return nil, c.diags
	}
	return plan, c.diags
}

// compiler builds one plan.
type compiler struct {
	r     *Runbook
	diags hcl.Diagnostics
	// The same subjects stand in many thresholds: what they were folded from
	// and into is kept.
	folds    map[string][]folded
	subjects map[string][]evidence.Subject
	sets     map[setKey]string
	expected int
}

// setKey tells node sets apart by where they are kept.
type setKey struct {
	first *string
	n     int
}

type folded struct {
	from []evidence.Subject
	to   []string
}

func (c *compiler) add(d *hcl.Diagnostic) { c.diags = append(c.diags, d) }

func (c *compiler) plan() *evidence.Plan {
	r := c.r
	p := &evidence.Plan{
		MediaType:     evidence.MediaPlan,
		Minor:         evidence.Minor,
		Name:          r.name,
		Title:         r.title,
		Version:       r.version,
		Path:          r.base,
		Executor:      r.fleet.executor,
		SharedMachine: r.fleet.sharedMachine,
		ClockLimit:    r.fleet.clockLimit,
		Parallel:      r.fleet.parallel,
		Fleet:         r.fleet.Fleet,
		Parties:       r.parties,
		Captures:      r.captures,
	}
	for _, name := range slices.Sorted(maps.Keys(r.from.read)) {
		data := r.from.read[name]
		p.Sources = append(p.Sources, evidence.Source{Path: name, Size: int64(len(data)), Digest: evidence.DigestOf(data)})
	}
	p.Runbook = evidence.SourcesDigest(p.Sources)
	variables, err := r.planVariables()
	if err != nil {
		c.add(fail(RuleVariableValue, r.here(), "Unsuitable value of a variable", sentence(err)))
		return nil
	}
	p.Variables = variables
	p.Seed = seed(p)
	for _, o := range r.owners {
		p.Owners = append(p.Owners, o.Owner)
	}
	for _, ph := range r.phases {
		p.Phases = append(p.Phases, ph.Phase)
	}
	total := c.countCells()
	if c.diags.HasErrors() {
		return nil
	}
	for _, t := range r.tests {
		p.Tests = append(p.Tests, c.test(t))
	}
	if c.diags.HasErrors() {
		return nil
	}
	c.cells(p, total)
	for _, l := range r.releases {
		out := l.Release
		out.Nodes = nodeset.Fold(l.nodes)
		p.Releases = append(p.Releases, out)
	}
	return p
}

// seed is what every draw of the plan comes from: the digest of the sources
// and the variables, so that the same text and inputs draw the same.
func seed(p *evidence.Plan) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", p.Runbook)
	for _, v := range p.Variables {
		fmt.Fprintf(h, "%s=%s\n", v.Name, v.Value)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (c *compiler) test(t *test) evidence.Test {
	out := t.Test
	out.Nodes = c.foldNodes(t.nodes)
	for _, h := range t.thresholds {
		out.Thresholds = append(out.Thresholds, c.threshold(t, h))
	}
	return out
}

func (c *compiler) threshold(t *test, h *threshold) evidence.Threshold {
	subjects := c.subjectsOf(t, h)
	if len(subjects) == 0 {
		c.add(fail(RuleSubjectsUnknown, h.rng, "Expected subjects are not known",
			fmt.Sprintf("The plan cannot know what check %q will measure %q of (%s), so a part that is missing would not be missed. %s", t.Check, h.Metric, h.Level, expectHint(h.Level))))
		return h.Threshold
	}
	if c.expected += len(subjects); c.expected > maxSubjects {
		c.diags = hcl.Diagnostics{fail(RulePlanTooLarge, t.rng, "Plan too large", fmt.Sprintf("Up to this test more than %d subjects are expected. Split the runbook.", maxSubjects))}
		return h.Threshold
	}
	if h.stat.Samples() > 1 || h.MinSamples > 0 {
		c.checkSamples(t, h, subjects)
	}
	out := h.Threshold
	out.Subjects = c.fold(subjects)
	return out
}

// expectHint says how the parts of a level become known.
func expectHint(level string) string {
	parts := strings.Split(level, "/")
	if last := parts[len(parts)-1]; last != "node" && last != "fleet" {
		return fmt.Sprintf("Say how many there are in each node, such as %ss = 8 in the expect block of the fleet.", last)
	}
	return "Another scope, other parameters of the check, or facts in the expect block of the fleet may tell."
}

// subjectsOf are the expected subjects of h.
func (c *compiler) subjectsOf(t *test, h *threshold) []evidence.Subject {
	if t.spec.Subjects == nil {
		return nil
	}
	key := strings.Join([]string{t.Check, h.Metric, c.foldNodes(t.nodes), string(t.Scope), string(t.params())}, "\x00")
	if known, ok := c.subjects[key]; ok {
		return known
	}
	subjects := t.spec.Subjects(c.r.fleet.Fleet, t.nodes, t.Scope, h.Metric, t.params())
	c.subjects[key] = subjects
	return subjects
}

// fold is evidence.FoldSubjects, once for each list of subjects.
func (c *compiler) fold(subjects []evidence.Subject) []string {
	key := fmt.Sprintf("%d %s %s", len(subjects), subjects[0], subjects[len(subjects)-1])
	for _, known := range c.folds[key] {
		if slices.Equal(known.from, subjects) {
			return known.to
		}
	}
	to := evidence.FoldSubjects(subjects)
	c.folds[key] = append(c.folds[key], folded{from: subjects, to: to})
	return to
}

// checkSamples refuses a statistic that the plan already knows to have too
// few measurements.
func (c *compiler) checkSamples(t *test, h *threshold, subjects []evidence.Subject) {
	combinations := 1
	for _, label := range h.labels {
		if label.Values == nil && h.At[label.Name] == nil {
			return // how many there are is not known before the run
		}
		if label.Values != nil {
			combinations *= len(h.At[label.Name])
		}
	}
	groups := c.groups(h, subjects)
	if h.stat == thresholds.StatMADZ {
		if len(groups) < h.stat.Samples() {
			c.add(fail(RuleTooFewSubjects, h.statRange, "Too few subjects to compare",
				fmt.Sprintf("The statistic mad_z compares each subject with its siblings and needs at least %d of them, and there are %d here, per %s. Bind a fixed bound, or use a larger node set.", h.stat.Samples(), len(groups), h.Per)))
		}
	} else {
		fewest, where := len(subjects)+1, ""
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			if n := groups[name]; n < fewest {
				fewest, where = n, name
			}
		}
		samples := fewest * t.Repeat
		if h.stat != thresholds.StatSpread {
			samples *= combinations
		}
		if need := h.stat.Samples(); samples < need {
			c.add(fail(RuleTooFewSamples, h.statRange, "Too few measurements for the statistic",
				fmt.Sprintf("The statistic %s needs at least %s, and %s has %d expected. It would be inconclusive on any rack: bind min, max or median, or judge more together with per = \"test\".", h.Stat, count(need, "measurement"), where, samples)))
		}
		if h.MinSamples > samples && !c.diags.HasErrors() {
			c.add(fail(RuleMinSamples, h.minRange, "Too few measurements for min_samples",
				fmt.Sprintf("At least %s are asked for, and %s has %d expected. It would be inconclusive on any rack.", count(h.MinSamples, "measurement"), where, samples)))
		}
	}
}

// groups counts the subjects of each group that is judged on its own.
func (c *compiler) groups(h *threshold, subjects []evidence.Subject) map[string]int {
	groups := map[string]int{}
	level := slices.Index(strings.Split(h.Level, "/"), h.Per)
	for _, s := range subjects {
		switch {
		case h.Per == perTest:
			groups["the test"]++
		case level >= 0:
			groups[prefix(string(s), level+1)]++
		default:
			node, _, _ := strings.Cut(string(s), "/")
			groups[h.Per+" "+c.r.fleet.labelsOf[node][h.Per]]++
		}
	}
	return groups
}

// prefix is the first n parts of a subject.
func prefix(subject string, n int) string {
	for i := range len(subject) {
		if subject[i] == '/' {
			if n--; n == 0 {
				return subject[:i]
			}
		}
	}
	return subject
}

// foldNodes is nodeset.Fold, once for each set: sets are shared by their tests.
func (c *compiler) foldNodes(nodes []string) string {
	key := setKey{&nodes[0], len(nodes)}
	text, ok := c.sets[key]
	if !ok {
		text = nodeset.Fold(nodes)
		c.sets[key] = text
	}
	return text
}

// countCells is about the number of cells, or more than a plan may have.
func (c *compiler) countCells() int {
	total := 0
	for _, t := range c.r.tests {
		if total += len(t.nodes); total > maxCells {
			c.add(fail(RulePlanTooLarge, t.rng, "Plan too large", fmt.Sprintf("Up to this test there are more than %d cells. Split the runbook.", maxCells)))
			return total
		}
	}
	return total
}

// cells lists one cell for each node, pair or set of each test; total is about
// their number.
func (c *compiler) cells(p *evidence.Plan, total int) {
	p.Cells = make([]evidence.Cell, 0, total)
	for _, t := range c.r.tests {
		add := func(folded string, nodes ...string) {
			for n := 1; n <= t.Repeat; n++ {
				p.Cells = append(p.Cells, evidence.Cell{ID: evidence.CellID(t.Name, nodes, n), Test: t.Name, Nodes: folded, Repetition: n})
			}
		}
		switch t.Scope {
		case evidence.ScopeNode:
			for _, n := range t.nodes {
				add(n, n)
			}
		case evidence.ScopePair:
			for _, pair := range pairs(t.nodes) {
				add(nodeset.Fold(pair[:]), pair[:]...)
			}
		case evidence.ScopeFleet:
			add(c.foldNodes(t.nodes), t.nodes...)
		}
	}
}

// pairs are the first and second node, the third and fourth, and so on; a node
// that is left over is paired with the first.
func pairs(nodes []string) [][2]string {
	var out [][2]string
	for i := 0; i+1 < len(nodes); i += 2 {
		out = append(out, [2]string{nodes[i], nodes[i+1]})
	}
	if n := len(nodes); n%2 == 1 && n > 1 {
		out = append(out, [2]string{nodes[n-1], nodes[0]})
	}
	return out
}
