package runbook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
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
	c := newCompiler(r)
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
	expected int // subjects, over all thresholds
	listed   int // subjects, over all lists that differ
}

func newCompiler(r *Runbook) *compiler {
	return &compiler{r: r, folds: map[string][]folded{}, subjects: map[string][]evidence.Subject{}, sets: map[setKey]string{}}
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
		c.tooLarge(t.rng, fmt.Sprintf("Up to this test more than %d subjects are expected. Split the runbook.", maxSubjects))
		return h.Threshold
	}
	combinations, known := h.combinations()
	groups, total := c.groups(t, h, subjects)
	if combinations > thresholds.MaxExpected/total {
		c.tooLarge(h.rng, fmt.Sprintf("This threshold expects more than %d measurements, and could not be judged. Split its test, or bind fewer labels with at.", thresholds.MaxExpected))
		return h.Threshold
	}
	if h.stat.Samples() > 1 || h.MinSamples > 0 || h.stat == thresholds.StatCount {
		c.checkSamples(h, groups, combinations, known)
	}
	out := h.Threshold
	out.Subjects = c.fold(subjects)
	if c.listed > thresholds.MaxExpected {
		c.tooLarge(h.rng, fmt.Sprintf("Up to this threshold there are more than %d subjects in lists that differ, and no more could be judged. Split the runbook.", thresholds.MaxExpected))
	}
	return out
}

// tooLarge is the one error of a plan that is too large, whatever else is
// wrong with it.
func (c *compiler) tooLarge(rng hcl.Range, detail string) {
	c.diags = hcl.Diagnostics{fail(RulePlanTooLarge, rng, "Plan too large", detail)}
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
	c.listed += len(subjects)
	to := evidence.FoldSubjects(subjects)
	c.folds[key] = append(c.folds[key], folded{from: subjects, to: to})
	return to
}

// checkSamples refuses a statistic that the plan already knows to have too few
// measurements, and bounds that it knows every rack to meet or to miss. Groups
// are the measurements of each group with one combination of labels.
func (c *compiler) checkSamples(h *threshold, groups map[string]int, combinations int, known bool) {
	if h.stat == thresholds.StatMADZ {
		switch n := len(groups); {
		case n < h.stat.Samples():
			c.add(fail(RuleTooFewSubjects, h.statRange, "Too few subjects to compare",
				fmt.Sprintf("The statistic mad_z compares each subject with its siblings and needs at least %d of them, and there are %d here, per %s. Bind a fixed bound, or use a larger node set.", h.stat.Samples(), n, h.Per)))
		case n < h.MinSamples:
			c.add(fail(RuleMinSamples, h.minRange, "Too few subjects for min_samples",
				fmt.Sprintf("The statistic mad_z compares subjects, and at least %d of them are asked for, but there are %d here, per %s. It would be inconclusive on any rack: write at most %d, or use a larger node set.", h.MinSamples, n, h.Per, n)))
		}
		return
	}
	fewest, where, total := -1, "", 0
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if h.stat != thresholds.StatSpread { // a spread is taken within each combination
			groups[name] *= combinations
		}
		if n := groups[name]; fewest < 0 || n < fewest {
			fewest, where = n, name
		}
		total += groups[name]
	}
	switch need := h.stat.Samples(); {
	case known && fewest < need:
		remedy := "bind min, max or median"
		if h.stat == thresholds.StatDistinct {
			remedy = "bind the text itself with equals"
		}
		if h.Per != perTest && total >= need {
			remedy += ", or judge more together with per = \"test\""
		}
		c.add(fail(RuleTooFewSamples, h.statRange, "Too few measurements for the statistic",
			fmt.Sprintf("The statistic %s needs at least %s, and %s has %d expected. It would be inconclusive on any rack: %s.", h.Stat, evidence.Count(need, "measurement"), where, fewest, remedy)))
	case known && fewest < h.MinSamples:
		c.add(fail(RuleMinSamples, h.minRange, "Too few measurements for min_samples",
			fmt.Sprintf("At least %s are asked for, and %s has %d expected. It would be inconclusive on any rack.", evidence.Count(h.MinSamples, "measurement"), where, fewest)))
	default:
		c.checkSatisfiable(h, groups, known)
	}
}

// checkSatisfiable refuses bounds of a counting statistic that every rack
// misses in some group, or meets in all of them.
func (c *compiler) checkSatisfiable(h *threshold, groups map[string]int, known bool) {
	largest, total, missable := "", 0, false
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		least, most, bounded := h.possible(groups[name], known)
		if !bounded {
			return
		}
		missed := h.max
		if h.Max == nil || *h.Max >= least {
			missed = h.min
		}
		if h.Max != nil && *h.Max < least || h.Min != nil && *h.Min > most {
			remedy := "Write a bound that it can meet."
			if h.stat == thresholds.StatCount {
				remedy = "Remove the threshold: a missing measurement is inconclusive without it."
			}
			c.add(c.r.withValues(missed.Expr, fail(RuleNeverMet, missed.Expr.Range(), "Threshold can never be met",
				fmt.Sprintf("The %s of %s is %s, so every rack would fail. %s", statWords[h.stat], name, between(least, most), remedy))))
			return
		}
		missable = missable || h.Min != nil && *h.Min > least || h.Max != nil && *h.Max < most
		total += groups[name]
		if largest == "" || groups[name] > groups[largest] {
			largest = name
		}
	}
	if missable {
		return
	}
	least, most, _ := h.possible(groups[largest], known)
	void := h.max
	if void == nil {
		void = h.min
	}
	detail := fmt.Sprintf("The %s of %s is %s, so every rack would pass.", statWords[h.stat], largest, between(least, most))
	switch {
	case h.stat == thresholds.StatCount:
		detail += " Remove the threshold: a missing measurement is inconclusive without it."
	case h.stat == thresholds.StatDistinct && h.Per != perTest && h.Max != nil && *h.Max < float64(total):
		detail += " Judge more together with per = \"test\"."
	case h.Max != nil:
		detail += " Write a smaller bound."
	}
	c.add(c.r.withValues(void.Expr, fail(RuleNeverFails, void.Expr.Range(), "Threshold can never fail", detail)))
}

// between says what a statistic can be.
func between(least, most float64) string {
	switch {
	case least == most:
		return number(least)
	case math.IsInf(most, 1):
		return number(least) + " at least"
	}
	return number(least) + " to " + number(most)
}

// groups counts the expected measurements of each group that is judged on its
// own, and of all together, with one combination of labels.
func (c *compiler) groups(t *test, h *threshold, subjects []evidence.Subject) (groups map[string]int, total int) {
	groups = map[string]int{}
	level := slices.Index(strings.Split(h.Level, "/"), h.Per)
	n := t.measured(h.Level)
	for _, s := range subjects {
		total += n
		switch {
		case h.Per == perTest:
			groups["the test"] += n
		case level >= 0:
			groups[prefix(string(s), level+1)] += n
		default:
			node, _, _ := strings.Cut(string(s), "/")
			groups[h.Per+" "+c.r.fleet.labelsOf[node][h.Per]] += n
		}
	}
	return groups, total
}

// measured is how many cells measure a subject of a level: those that its node
// is in, and its peer too where the level has one.
func (t *test) measured(level string) int {
	n := len(t.nodes)
	whole := level == string(evidence.SubjectFleet)
	switch {
	case whole && t.Scope == evidence.ScopeNode:
		return n * t.Repeat
	case whole && t.Scope == evidence.ScopePair:
		return pairCount(n) * t.Repeat
	case t.Scope == evidence.ScopePair && !strings.HasSuffix(level, "/peer"):
		return (n - 1) * t.Repeat
	}
	return t.Repeat
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
		cells := len(t.nodes)
		if t.Scope == evidence.ScopePair {
			cells = pairCount(cells)
		}
		if total += cells; total > maxCells {
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
			named := make(map[string][2]string, pairCount(len(t.nodes)))
			for _, pair := range pairs(t.nodes) {
				id := evidence.CellID(t.Name, pair[:], 1)
				if other, taken := named[id]; taken {
					// The name of a set has 32 bits: some thousands of pairs fit.
					c.tooLarge(t.rng, fmt.Sprintf("The pairs %s and %s would share the name %s. Use a smaller node set, or other tests for parts of it.", nodeset.Fold(other[:]), nodeset.Fold(pair[:]), id))
					return
				}
				named[id] = pair
				add(nodeset.Fold(pair[:]), pair[:]...)
			}
		case evidence.ScopeFleet:
			add(c.foldNodes(t.nodes), t.nodes...)
		}
	}
}

// pairCount is the number of pairs of n nodes.
func pairCount(n int) int { return n * (n - 1) / 2 }

// pairs are all pairs of the nodes: a node that is slow with one partner alone
// has a bad link, and one that is slow with all of them is bad itself. They
// are the rounds of a tournament, one after the other, so that in a row of
// cells each node has its turn: the first node stays in its place, and the
// others move on by one each round. With an odd number one node sits out.
func pairs(nodes []string) [][2]string {
	seats := make([]int, len(nodes))
	for i := range seats {
		seats[i] = i
	}
	if len(seats)%2 == 1 {
		seats = append(seats, -1)
	}
	n := len(seats)
	out := make([][2]string, 0, pairCount(len(nodes)))
	for range n - 1 {
		for i := range n / 2 {
			a, b := min(seats[i], seats[n-1-i]), max(seats[i], seats[n-1-i])
			if a >= 0 {
				out = append(out, [2]string{nodes[a], nodes[b]})
			}
		}
		last := seats[n-1]
		copy(seats[2:], seats[1:n-1])
		seats[1] = last
	}
	return out
}
