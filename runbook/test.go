package runbook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
)

// The defaults of times.
const (
	maxDuration       = 366 * 24 * time.Hour
	maxOverrun        = 30 * time.Minute // a deadline's default is at most so long after the duration
	captureDeadline   = evidence.Duration(2 * time.Minute)
	defaultClockLimit = evidence.Duration(5 * time.Second)
)

// test is a test with what is needed to expand it and to point at it.
type test struct {
	evidence.Test
	rng        hcl.Range
	nodes      []string
	nodesRange hcl.Range
	scopeRange hcl.Range
	check      checks.Check
	spec       checks.Spec
	metrics    []checks.Metric
	facts      []checks.FactSpec
	checkRange hcl.Range
	thresholds []*threshold
}

func (r *Runbook) decodeTests() {
	schema, _ := Schema().block("test")
	for _, b := range r.root.blocks["test"] {
		c, ok := r.content(b.Body, schema)
		if len(b.Body.Blocks) == 0 || !hasBlock(b, "threshold") {
			r.add(fail(RuleNoThreshold, b.DefRange(), "Test can never fail",
				"A test with no threshold block judges nothing, so it would pass on any rack. Add at least one threshold, or move the capture you want to the evidence block."))
			ok = false
		}
		if !ok {
			continue
		}
		r.tests = append(r.tests, r.decodeTest(b, c))
	}
}

func hasBlock(b *hclsyntax.Block, typ string) bool {
	return slices.ContainsFunc(b.Body.Blocks, func(sub *hclsyntax.Block) bool { return sub.Type == typ })
}

func (r *Runbook) decodeTest(b *hclsyntax.Block, c content) *test {
	t := &test{rng: b.DefRange()}
	t.Name = b.Labels[0]
	t.Repeat = 1
	if to, ok := r.reference("phase", c.args["phase"].Expr, "phase"); ok {
		t.Phase = to.name
	}
	if to, ok := r.reference("owner", c.args["owner"].Expr, "owner"); ok {
		t.Owner = to.name
		for _, o := range r.owners {
			o.used = o.used || o.Name == to.name
		}
	}
	if to, ok := r.reference("nodes", c.args["nodes"].Expr, "fleet", "nodeset"); ok {
		t.nodes, t.nodesRange = r.nodesOf(to), to.rng
	}
	for _, p := range r.phases {
		if p.Name == t.Phase {
			p.tests++
			for _, n := range t.nodes {
				p.nodes[n] = true
			}
		}
	}
	r.decodeTimes(t, c)
	r.decodeCheck(t, c)
	r.decodeScope(t, c)
	r.decodeHazard(t, c)
	r.decodeClaims(t, b, c)
	if t.check != nil && t.metrics != nil {
		r.decodeThresholds(t, c.blocks["threshold"])
	}
	for _, f := range c.blocks["fault"] {
		r.decodeFault(t, f)
	}
	return t
}

func (r *Runbook) decodeTimes(t *test, c content) {
	var ok bool
	if t.Duration, ok = r.positive(c.args["duration"]); !ok {
		return
	}
	t.Deadline = t.Duration + evidence.Duration(min(t.Duration.Std()/2, maxOverrun))
	if attr := c.args["deadline"]; attr != nil {
		if d, ok := r.positive(attr); ok {
			t.Deadline = d
			if d < t.Duration {
				r.add(r.withValues(attr.Expr, fail(RuleDeadline, attr.Expr.Range(), "Deadline before the end",
					fmt.Sprintf("The test is expected to take %s and would be ended after %s, so it could never be complete. Write a deadline of at least the duration, or leave it out: it is then %s.",
						t.Duration, d, t.Duration+evidence.Duration(min(t.Duration.Std()/2, maxOverrun))))))
			}
		}
	}
	if attr := c.args["silence"]; attr != nil {
		t.Silence, _ = r.positive(attr)
	}
}

func (r *Runbook) decodeCheck(t *test, c content) {
	block := c.one("check")
	label := block.Labels[0]
	t.checkRange = block.DefRange()
	check, ok := r.known.Checks.Find(label)
	if !ok {
		if slices.Contains(laterChecks, label) {
			r.add(fail(RuleNotYet, block.LabelRanges[0], "Not part of this build", notYet(fmt.Sprintf("The check %q", label))))
			return
		}
		var names []string
		for _, c := range r.known.Checks {
			names = append(names, c.Spec().Name)
		}
		r.add(fail(RuleUnknownCheck, block.LabelRanges[0], "Unsupported check type",
			fmt.Sprintf("This build of rackproof has no check named %q.%s Run \"rackproof checks\" for the list.", label, didYouMean(label, names, "%q"))))
		return
	}
	spec := check.Spec()
	root := Schema()
	testSchema, _ := root.block("test")
	schema, _ := testSchema.block("check")
	_, params, ok := r.extended(block.Body, schema, spec.Params, "")
	if !ok {
		return
	}
	if spec.Validate != nil {
		if err := spec.Validate(params); err != nil {
			r.add(fail(RuleCheckParams, t.checkRange, "Unsuitable parameters of a check", fmt.Sprintf("Check %q cannot be used like this: %s.", label, strings.TrimSuffix(err.Error(), "."))))
			return
		}
	}
	for _, need := range spec.Needs {
		if !r.fleet.kind.Has(need) {
			r.add(fail(RuleNeeds, block.LabelRanges[0], "Executor cannot do this",
				fmt.Sprintf("Check %q needs an executor that can do %q, and %q cannot. Choose another executor for the fleet, or another check.", label, need, r.fleet.executor)))
			return
		}
	}
	t.check, t.spec = check, spec
	t.Check, t.CheckVersion, t.Params = spec.Name, spec.Version, params
	t.metrics = []checks.Metric{}
	if spec.Metrics != nil {
		t.metrics = append(t.metrics, spec.Metrics(params)...)
	}
	if spec.Facts != nil {
		t.facts = spec.Facts(params)
	}
}

// laterChecks are part of the language and not yet of this build.
var laterChecks = []string{"manual"}

func (r *Runbook) decodeScope(t *test, c content) {
	attr := c.args["scope"]
	var scopes []string
	for _, s := range t.spec.Scopes {
		scopes = append(scopes, string(s))
	}
	if attr == nil {
		if len(scopes) > 0 {
			t.Scope, t.scopeRange = t.spec.Scopes[0], t.checkRange
		}
	} else if word, ok := r.enum(attr, []string{string(evidence.ScopeNode), string(evidence.ScopePair), string(evidence.ScopeFleet)}); ok {
		t.Scope, t.scopeRange = evidence.Scope(word), attr.Expr.Range()
		if t.check != nil && !slices.Contains(scopes, word) {
			r.add(r.withValues(attr.Expr, fail(RuleScope, attr.Expr.Range(), "Check has no such scope",
				fmt.Sprintf("Check %q cannot run with scope %q, only with %s.", t.Check, word, choices(scopes)))))
			return
		}
	}
	t.Loads = t.spec.LoadsIn(t.Scope)
	if t.Scope == evidence.ScopePair && len(t.nodes) == 1 {
		r.add(fail(RulePairs, t.scopeRange, "No pair of nodes", "A test with scope \"pair\" needs at least two nodes, and its node set has one."))
	}
}

func (r *Runbook) decodeHazard(t *test, c content) {
	attr := c.args["hazard"]
	if attr != nil {
		text, ok := r.text(attr)
		if !ok || !r.goodName(text, attr.Expr.Range(), "hazard") {
			return
		}
		t.Hazard = text
	}
	if t.spec.Hazard != "" && t.Hazard != t.spec.Hazard && len(c.blocks["fault"]) == 0 {
		rng, has := t.checkRange, "names none"
		if attr != nil {
			rng, has = attr.Expr.Range(), fmt.Sprintf("names %q", t.Hazard)
		}
		r.add(fail(RuleHazard, rng, "Hazard is not named",
			fmt.Sprintf("Check %q means the hazard %q, and this test %s. What a test may do to the rack is said in its text: write hazard = %q.", t.Check, t.spec.Hazard, has, t.spec.Hazard)))
	}
	if len(c.blocks["fault"]) > 0 && attr == nil {
		r.add(fail(RuleHazard, c.blocks["fault"][0].DefRange(), "Hazard is not named",
			"A test that breaks something on purpose names a hazard, by which it is allowed again when it is run: write such as hazard = \"kills_process\" in the test."))
	}
}

// decodeClaims reads establishes and does_not_establish.
func (r *Runbook) decodeClaims(t *test, b *hclsyntax.Block, c content) {
	if attr := c.args["does_not_establish"]; attr != nil {
		sentences, ok := r.texts(attr.Name, attr.Expr)
		switch {
		case ok && len(sentences) == 0:
			r.add(fail(RuleClaimEmpty, attr.Expr.Range(), "Nothing is left open",
				"No test establishes everything. Name at least one thing that this one does not show: whoever reads the acceptance must not assume it."))
		case ok && slices.ContainsFunc(sentences, blank):
			r.add(fail(RuleEmptyText, attr.Expr.Range(), "Empty text", "A sentence in this list is empty."))
		}
		t.DoesNotEstablish = sentences
	}
	r.symbols["threshold"] = thresholdNames(b)
	attr := c.args["establishes"]
	pairs, diags := hcl.ExprMap(attr.Expr)
	if diags.HasErrors() {
		r.add(fail(RuleClaims, attr.Expr.Range(), "Unsuitable claims",
			"The argument \"establishes\" is written out as { \"sentence\" = [threshold.name] }, so that each claim is bound to what carries it."))
		return
	}
	if len(pairs) == 0 {
		r.add(fail(RuleClaimEmpty, attr.Expr.Range(), "Claims nothing", "A test that establishes nothing is not worth its time. Say what it shows, as { \"sentence\" = [threshold.name] }."))
	}
	seen := map[string]int{}
	for _, pair := range pairs {
		key, isSyntax := pair.Key.(hclsyntax.Expression)
		if !isSyntax {
			continue
		}
		text, ok := r.sentence(key)
		refs, good := r.references("establishes", pair.Value.(hclsyntax.Expression), "threshold")
		if !ok || !good {
			continue
		}
		if line, twice := seen[text]; twice {
			r.add(fail(RuleClaimTwice, pair.Key.Range(), "Claim written twice", fmt.Sprintf("The same sentence is on line %d. The later one would silently replace the earlier: put all its thresholds into one list.", line)))
			continue
		}
		seen[text] = pair.Key.Range().Start.Line
		if len(refs) == 0 {
			r.add(fail(RuleClaimUnbound, pair.Value.Range(), "Claim without a threshold", "Nothing carries this claim, so it would be established on any rack. Name the thresholds that show it, or move the sentence to does_not_establish."))
			continue
		}
		t.Establishes = append(t.Establishes, evidence.Claim{Sentence: text, Thresholds: refNames(refs)})
	}
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

// sentence evaluates the key of a claim.
func (r *Runbook) sentence(key hclsyntax.Expression) (string, bool) {
	val, ok := r.evaluate(key)
	if !ok {
		return "", false
	}
	text, plain := plainText(val)
	if !plain || blank(text) {
		r.add(fail(RuleEmptyText, key.Range(), "Empty text", "A claim is a sentence in quotes."))
		return "", false
	}
	return text, true
}

// thresholdNames are the names of the thresholds in a test's block, as far as
// they are written out.
func thresholdNames(b *hclsyntax.Block) []string {
	var names []string
	for _, sub := range b.Body.Blocks {
		if sub.Type != "threshold" || len(sub.Labels) != 1 {
			continue
		}
		name := sub.Labels[0]
		if attr := sub.Body.Attributes["name"]; attr != nil {
			if text, ok := literalText(attr.Expr); ok {
				name = text
			}
		}
		names = append(names, name)
	}
	return names
}

func (r *Runbook) decodeFault(t *test, b *hclsyntax.Block) {
	schema, _ := Schema().block("test")
	schema, _ = schema.block("fault")
	kind := b.Labels[0]
	i := slices.IndexFunc(r.known.Faults, func(k runner.FaultKind) bool { return k.Name == kind })
	if i < 0 {
		var names []string
		for _, k := range r.known.Faults {
			names = append(names, k.Name)
		}
		r.add(fail(RuleUnknownFault, b.LabelRanges[0], "Unsupported fault",
			fmt.Sprintf("This build of rackproof has no fault named %q.%s%s", kind, didYouMean(kind, names, "%q"), listed("It has:", names))))
		return
	}
	if !r.fleet.kind.Has(evidence.CapFault(kind)) {
		r.add(fail(RuleFaultExecutor, b.LabelRanges[0], "Executor cannot do this",
			fmt.Sprintf("The executor %q cannot inject and undo the fault %q. Choose another executor for the fleet, or another fault.", r.fleet.executor, kind)))
		return
	}
	c, args, ok := r.extended(b.Body, schema, r.known.Faults[i].Params, "")
	if !ok {
		return
	}
	f := evidence.Fault{Kind: kind, Args: args}
	if to, ok := r.reference("nodes", c.args["nodes"].Expr, "fleet", "nodeset"); ok {
		f.Nodes = r.nodesOf(to)
		inside := map[string]bool{}
		for _, n := range t.nodes {
			inside[n] = true
		}
		if t.nodes != nil && slices.ContainsFunc(f.Nodes, func(n string) bool { return !inside[n] }) {
			r.add(fail(RuleFaultNodes, to.rng, "Fault outside the test", fmt.Sprintf("%s has nodes that test %q does not run on, so what the fault does there would be seen by nobody.", to, t.Name)))
			return
		}
	}
	f.Part = r.optionalText(c.args["part"])
	if attr := c.args["after"]; attr != nil {
		f.After, ok = r.duration(attr)
		if ok && t.Duration > 0 && f.After >= t.Duration {
			r.add(r.withValues(attr.Expr, fail(RuleFaultLate, attr.Expr.Range(), "Fault after the end", fmt.Sprintf("The test takes %s, and the fault would come after %s: it might never happen.", t.Duration, f.After))))
			return
		}
	}
	if attr := c.args["for"]; attr != nil {
		f.For, ok = r.positive(attr)
		if ok && t.Deadline > 0 && f.After+f.For > t.Deadline {
			r.add(r.withValues(attr.Expr, fail(RuleFaultLate, attr.Expr.Range(), "Fault after the end", fmt.Sprintf("The fault would be undone after %s, and the test is ended after %s.", f.After+f.For, t.Deadline))))
			return
		}
	}
	if commands := r.known.Faults[i].Commands; commands != nil && len(f.Nodes) > 0 {
		if _, _, err := commands(f); err != nil {
			r.add(fail(RuleFaultArgs, b.DefRange(), "Unsuitable arguments of a fault",
				fmt.Sprintf("The fault cannot be injected like this: %s.", strings.TrimSuffix(err.Error(), "."))))
			return
		}
	}
	if string(f.Args) == "{}" {
		f.Args = nil
	}
	t.Faults = append(t.Faults, f)
}

// metric finds a metric of the test's check.
func (t *test) metric(name string) (checks.Metric, bool) {
	for _, m := range t.metrics {
		if m.Name == name {
			return m, true
		}
	}
	return checks.Metric{}, false
}

func (t *test) fact(name string) (checks.FactSpec, bool) {
	for _, f := range t.facts {
		if f.Name == name {
			return f, true
		}
	}
	return checks.FactSpec{}, false
}

// params is the test's parameters, or an empty object.
func (t *test) params() json.RawMessage {
	if t.Params == nil {
		return json.RawMessage("{}")
	}
	return t.Params
}
