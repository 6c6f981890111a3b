package runbook

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
	"github.com/rackproof/rackproof/thresholds"
)

// threshold is a threshold with what is needed to expand it and to point at
// it.
type threshold struct {
	evidence.Threshold
	rng       hcl.Range
	statRange hcl.Range
	perRange  hcl.Range
	minRange  hcl.Range // of min_samples
	min, max  *hclsyntax.Attribute
	stat      thresholds.Stat
	labels    []checks.Label
}

func (r *Runbook) decodeThresholds(t *test, blocks []*hclsyntax.Block) {
	schema, _ := Schema().block("test")
	schema, _ = schema.block("threshold")
	first := map[string]*threshold{}
	for _, b := range blocks {
		c, ok := r.content(b.Body, schema)
		if !ok {
			continue
		}
		h, ok := r.decodeThreshold(t, b, c)
		if !ok {
			continue
		}
		if other := first[h.Name]; other != nil {
			detail := fmt.Sprintf("A threshold named %q is on line %d already. References could mean either: give one of them a name of its own, such as name = \"%s_%s\".", h.Name, other.rng.Start.Line, h.Metric, h.Stat)
			r.add(fail(RuleThresholdTwice, b.DefRange(), "Duplicate threshold name", detail))
			continue
		}
		first[h.Name] = h
		t.thresholds = append(t.thresholds, h)
	}
}

func (r *Runbook) decodeThreshold(t *test, b *hclsyntax.Block, c content) (*threshold, bool) {
	before := len(r.diags)
	h := &threshold{rng: b.DefRange(), statRange: b.DefRange(), perRange: b.DefRange(), minRange: b.DefRange()}
	h.Metric = b.Labels[0]
	h.Name = h.Metric
	if attr := c.args["name"]; attr != nil {
		if text, ok := r.text(attr); ok && r.goodName(text, attr.Expr.Range(), "threshold") {
			h.Name = text
			if literal, ok := literalText(attr.Expr); !ok || literal != text {
				r.add(fail(RuleName, attr.Expr.Range(), "Unsuitable name", "The name of a threshold is written out, since references use it."))
			}
		}
	}
	h.Basis, _ = r.text(c.args["basis"])

	metric, isMetric := t.metric(h.Metric)
	fact, isFact := t.fact(h.Metric)
	var unit string
	switch {
	case isMetric:
		h.Level, unit, h.labels = checks.LevelIn(metric.Level, t.Scope), metric.Unit, metric.Labels
		h.Accumulates, h.Resolution = metric.Accumulates, metric.Resolution
	case isFact:
		h.Level, h.Text = checks.LevelIn(fact.Level, t.Scope), true
	default:
		r.add(unknownMetric(t, b))
		return nil, false
	}
	r.decodeBounds(h, c)
	if len(r.diags) > before {
		return nil, false
	}
	if !r.decodeStat(h, c, t) {
		return nil, false
	}
	r.decodeUnit(h, c, t, unit)
	r.decodePer(h, c, t)
	r.decodeAt(h, c, t)
	r.checkOrder(h)
	if attr := c.args["min_samples"]; attr != nil {
		h.MinSamples, _ = r.whole(attr, 1)
		h.minRange = attr.Expr.Range()
	}
	return h, len(r.diags) == before
}

func unknownMetric(t *test, b *hclsyntax.Block) *hcl.Diagnostic {
	var names []string
	for _, m := range t.metrics {
		names = append(names, m.Name)
	}
	for _, f := range t.facts {
		names = append(names, f.Name)
	}
	name := b.Labels[0]
	return fail(RuleUnknownMetric, b.LabelRanges[0], "Unknown metric",
		fmt.Sprintf("Check %q does not report a metric named %q.%s%s", t.Check, name, didYouMean(name, names, "%q"), listed("It reports:", names)))
}

// decodeBounds reads min, max and equals.
func (r *Runbook) decodeBounds(h *threshold, c content) {
	h.min, h.max = c.args["min"], c.args["max"]
	h.Min, h.Max = r.bound(h.min), r.bound(h.max)
	equals := c.args["equals"]
	if equals != nil {
		val, ok := r.evaluate(equals.Expr)
		if !ok {
			return
		}
		if d := r.inexact("The argument \"equals\"", equals.Expr, val); d != nil {
			r.add(r.withValues(equals.Expr, d))
			return
		}
		text, plain := plainText(val)
		if !plain || blank(text) {
			r.add(r.withValues(equals.Expr, fail(RuleBound, equals.Expr.Range(), "Unsuitable bound", "The argument \"equals\" is a text that is not empty.")))
			return
		}
		h.Equals = &text
	}
	numeric := c.args["min"] != nil || c.args["max"] != nil
	switch {
	case !numeric && equals == nil:
		r.add(fail(RuleNoBound, h.rng, "Threshold without a bound", "Without min, max or equals every value would pass. Write at least one of them."))
	case numeric && equals != nil:
		r.add(fail(RuleBoundKind, equals.NameRange, "Two kinds of bound", "A threshold binds either a number, with min and max, or a text, with equals. Write two thresholds."))
	case equals != nil && !h.Text:
		r.add(fail(RuleBoundKind, equals.NameRange, "Number bound as a text", fmt.Sprintf("%q is a number. Bind it with min and max: equal texts of numbers are not equal numbers.", h.Metric)))
	}
}

// bound is a finite number, or nil where attr is nil or not one.
func (r *Runbook) bound(attr *hclsyntax.Attribute) *float64 {
	if attr == nil {
		return nil
	}
	val, ok := r.evaluate(attr.Expr)
	if !ok {
		return nil
	}
	switch {
	case val.IsNull():
		r.add(r.withValues(attr.Expr, fail(RuleBound, attr.Expr.Range(), "Unsuitable bound",
			fmt.Sprintf("The argument %q is null, so nothing would be judged. Write a number, or leave the argument out.", attr.Name))))
		return nil
	case val.Type() != cty.Number:
		detail := fmt.Sprintf("The argument %q is a number, but this is %s.", attr.Name, kindOf(val))
		if val.Type() == cty.String {
			detail += " Write the number alone and its unit in the argument \"unit\"."
		}
		r.add(r.withValues(attr.Expr, fail(RuleBound, attr.Expr.Range(), "Unsuitable bound", detail)))
		return nil
	}
	f, _ := finite(val) // the meter refuses what is not
	if f == 0 {
		f = 0 // without a sign
	}
	return &f
}

// decodeStat decides the statistic.
func (r *Runbook) decodeStat(h *threshold, c content, t *test) bool {
	attr := c.args["stat"]
	if attr == nil {
		switch {
		case h.Equals != nil:
			h.stat = thresholds.StatEquals
		case h.Text:
			r.add(fail(RuleBoundKind, h.rng, "Text bound as a number", fmt.Sprintf("%q is a text. Bind it with equals, or write stat = \"distinct\" to bind how many different texts there are.", h.Metric)))
			return false
		case h.Min != nil && h.Max != nil:
			r.add(fail(RuleStatNeeded, h.rng, "Statistic is not named",
				"With both bounds the worst value could be the least or the greatest. Name a stat, or write two thresholds, one with min and one with max."))
			return false
		case h.Min != nil:
			h.stat = thresholds.StatMin
		default:
			h.stat = thresholds.StatMax
		}
		h.Stat = string(h.stat)
		return true
	}
	h.statRange = attr.Expr.Range()
	val, ok := r.primitive(attr, cty.String, "the name of a statistic")
	if !ok {
		return false
	}
	name := val.AsString()
	if slices.Contains(laterStats, name) {
		r.add(fail(RuleNotYet, h.statRange, "Not part of this build", notYet(fmt.Sprintf("The statistic %q", name))))
		return false
	}
	stat, err := thresholds.ParseStat(name)
	if err != nil {
		r.add(r.withValues(attr.Expr, fail(RuleUnknownStat, h.statRange, "Unknown statistic",
			fmt.Sprintf("There is no statistic %q.%s Write one of min, max, mean, median, p1 to p99, count, sum, spread, mad_z, distinct or equals.", name, didYouMean(name, thresholds.StatNames(), "%q")))))
		return false
	}
	h.stat, h.Stat = stat, string(stat)
	switch {
	case h.Text != stat.Text():
		is, want := "a number", "distinct and equals are statistics of texts"
		if h.Text {
			is, want = "a text", "only equals and distinct are statistics of texts"
		}
		r.add(r.withValues(attr.Expr, fail(RuleBoundKind, h.statRange, "Statistic does not fit", fmt.Sprintf("%q of check %q is %s; %s.", h.Metric, t.Check, is, want))))
		return false
	case (h.stat == thresholds.StatEquals) != (h.Equals != nil):
		r.add(fail(RuleBoundKind, h.statRange, "Statistic does not fit", "The statistic \"equals\" goes with the bound equals, and every other one with min and max."))
		return false
	}
	return true
}

// laterStats are part of the language and not yet of this build.
var laterStats = []string{"change"}

// decodeUnit compares the unit with the one that the check reports.
func (r *Runbook) decodeUnit(h *threshold, c content, t *test, metricUnit string) {
	want := h.stat.Unit(metricUnit)
	h.Unit = want
	attr := c.args["unit"]
	if attr == nil {
		if h.Equals == nil {
			r.add(fail(RuleMissingArgument, h.rng, "Missing required argument", fmt.Sprintf("The argument \"unit\" is required with min and max, but no definition was found. The %s of %q is in %q.", h.Stat, h.Metric, want)))
		}
		return
	}
	val, ok := r.primitive(attr, cty.String, "a unit such as \"GB/s\"")
	if !ok || val.AsString() == want {
		return
	}
	given := val.AsString()
	var detail string
	switch {
	case h.Equals != nil:
		detail = fmt.Sprintf("%q is a text, and has no unit. Leave the argument out.", h.Metric)
	case want != metricUnit:
		detail = fmt.Sprintf("The %s of metric %q is in %s, whatever the unit of the metric is, but this threshold is written in %s.", h.Stat, h.Metric, unitWord(want), given)
	default:
		detail = fmt.Sprintf("Metric %q of check %q is reported in %s, but this threshold is written in %s.", h.Metric, t.Check, unitWord(want), given)
		if hint := thresholds.Hint(given, want); hint != "" {
			detail += " " + sentence(fmt.Errorf("%s", hint))
		}
	}
	if h.Equals == nil {
		detail += " Thresholds are never converted: write the bound in the unit the check reports."
	}
	r.add(r.withValues(attr.Expr, fail(RuleUnit, attr.Expr.Range(), "Threshold unit does not match its metric", detail)))
}

func unitWord(unit string) string {
	if unit == "1" {
		return "\"1\", a plain number"
	}
	return unit
}

// perTest is the per of everything together.
const perTest = "test"

// decodePer decides what is judged on its own.
func (r *Runbook) decodePer(h *threshold, c content, t *test) {
	levels := strings.Split(h.Level, "/")
	h.Per = levels[len(levels)-1]
	attr := c.args["per"]
	if attr == nil {
		return
	}
	h.perRange = attr.Expr.Range()
	val, ok := r.primitive(attr, cty.String, "a level such as \"node\"")
	if !ok {
		return
	}
	h.Per = val.AsString()
	if h.Per == perTest || slices.Contains(levels, h.Per) {
		return
	}
	can := append(slices.Clone(levels), perTest)
	if levels[0] == string(evidence.ScopeNode) {
		can = append(can, r.fleet.labels...)
		if slices.Contains(r.fleet.labels, h.Per) {
			r.checkPlaced(h, t)
			return
		}
	}
	r.add(r.withValues(attr.Expr, fail(RulePer, h.perRange, "Cannot be judged per "+h.Per,
		fmt.Sprintf("Metric %q of check %q is measured by %s, so it cannot be grouped per %q.%s%s", h.Metric, t.Check, h.Level, h.Per, didYouMean(h.Per, can, "%q"), listed("It can be judged per:", can)))))
}

// checkPlaced reports nodes that the layout gives no label to group them by.
func (r *Runbook) checkPlaced(h *threshold, t *test) {
	var missing []string
	for _, n := range t.nodes {
		if _, placed := r.fleet.labelsOf[n][h.Per]; !placed {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		r.add(fail(RulePer, h.perRange, "Cannot be judged per "+h.Per,
			fmt.Sprintf("The layout gives %s no %q: %s. Fill its column in for them, or judge per another level.", evidence.Count(len(missing), "node"), h.Per, nodeset.Fold(missing))))
	}
}

// decodeAt binds the threshold to labels; labels that are not named and whose
// values are known are all expected.
func (r *Runbook) decodeAt(h *threshold, c content, t *test) {
	at := map[string][]string{}
	for _, label := range h.labels {
		if label.Values != nil {
			at[label.Name] = label.Values
		}
	}
	if attr := c.args["at"]; attr != nil {
		entries, ok := r.labelValues(attr)
		if !ok {
			return
		}
		for _, e := range entries {
			r.bindLabel(h, t, at, e)
		}
	}
	if len(at) > 0 {
		h.At = at
	}
}

// labelValue is one entry of at.
type labelValue struct {
	name, value string
	nameRange   hcl.Range
	valueRange  hcl.Range
}

func (r *Runbook) labelValues(attr *hclsyntax.Attribute) ([]labelValue, bool) {
	pairs, diags := hcl.ExprMap(attr.Expr)
	if diags.HasErrors() {
		r.add(fail(RuleType, attr.Expr.Range(), "Unsuitable value", "The argument \"at\" is written out as { label = value }, such as { size = \"16GiB\" }."))
		return nil, false
	}
	var out []labelValue
	for _, pair := range pairs {
		key, ok := pair.Key.(hclsyntax.Expression)
		if !ok {
			return nil, false
		}
		name, ok := r.evaluate(key)
		if !ok {
			return nil, false
		}
		value := pair.Value.(hclsyntax.Expression)
		if _, diags := hcl.ExprList(value); !diags.HasErrors() {
			r.add(fail(RuleNotYet, value.Range(), "Not part of this build", notYet("A list of values in \"at\"")))
			return nil, false
		}
		val, ok := r.evaluate(value)
		if !ok {
			return nil, false
		}
		if ty := val.Type(); ty.IsTupleType() || ty.IsListType() || ty.IsSetType() {
			r.add(fail(RuleNotYet, value.Range(), "Not part of this build", notYet("A list of values in \"at\"")))
			return nil, false
		}
		if d := r.inexact("A label's value", value, val); d != nil {
			r.add(r.withValues(value, d))
			return nil, false
		}
		text, plain := plainText(val)
		label, isText := plainText(name)
		if !plain || !isText {
			r.add(unsuitable(value, "at", "a text or a number for each label", val, r.ctx))
			return nil, false
		}
		if slices.ContainsFunc(out, func(o labelValue) bool { return o.name == label }) {
			r.add(fail(RuleRepeated, key.Range(), "Repeated label", fmt.Sprintf("The label %q is bound twice.", label)))
			return nil, false
		}
		out = append(out, labelValue{name: label, value: text, nameRange: key.Range(), valueRange: value.Range()})
	}
	return out, true
}

// bindLabel narrows at to one value of a label.
func (r *Runbook) bindLabel(h *threshold, t *test, at map[string][]string, e labelValue) {
	i := slices.IndexFunc(h.labels, func(l checks.Label) bool { return l.Name == e.name })
	if i < 0 {
		var names []string
		for _, l := range h.labels {
			names = append(names, l.Name)
		}
		detail := fmt.Sprintf("Metric %q of check %q has no label %q, so no measurement would match.%s", h.Metric, t.Check, e.name, didYouMean(e.name, names, "%q"))
		if len(names) == 0 {
			detail += " It has no labels."
		} else {
			detail += listed("It has:", names)
		}
		r.add(fail(RuleUnknownLabel, e.nameRange, "Unknown label", detail))
		return
	}
	values := h.labels[i].Values
	if values == nil {
		at[e.name] = []string{e.value}
		return
	}
	value, ok := canonicalLabel(e.value, values)
	if !ok {
		r.add(fail(RuleUnknownLabelValue, e.valueRange, "Nothing is measured there",
			fmt.Sprintf("The test measures no %q with %s = %q, so the threshold would have nothing to judge.%s", h.Metric, e.name, e.value, measured(values))))
		return
	}
	at[e.name] = []string{value}
}

// measured lists label values in the check's own order.
func measured(values []string) string {
	if len(values) >= 10 {
		return fmt.Sprintf(" It measures %d values, from %s to %s.", len(values), values[0], values[len(values)-1])
	}
	return " It measures: " + strings.Join(values, ", ") + "."
}

// canonicalLabel finds the spelling that the check uses for a value: the same
// text, or the same size in bytes.
func canonicalLabel(given string, values []string) (string, bool) {
	if slices.Contains(values, given) {
		return given, true
	}
	n, err := evidence.ParseBytes(given)
	if err != nil {
		return "", false
	}
	for _, v := range values {
		if m, err := evidence.ParseBytes(v); err == nil && m == n {
			return v, true
		}
	}
	return "", false
}

// checkOrder refuses bounds that exclude each other.
func (r *Runbook) checkOrder(h *threshold) {
	if h.Min == nil || h.Max == nil || *h.Min <= *h.Max {
		return
	}
	unit := ""
	if h.Unit != "1" {
		unit = " " + h.Unit
	}
	d := fail(RuleNeverMet, h.min.Expr.Range(), "Threshold can never be met",
		fmt.Sprintf("The lower bound, %s%s, is above the upper bound, %s%s, so every rack would fail.", number(*h.Min), unit, number(*h.Max), unit))
	whole := hcl.RangeOver(h.min.SrcRange, h.max.SrcRange)
	d.Context = &whole
	r.add(r.withValues(h.min.Expr, d))
}

// combinations is how many combinations of label values are expected. There
// may be more where a label has values that are not known before the run.
func (h *threshold) combinations() (n int, known bool) {
	n, known = 1, true
	for _, label := range h.labels {
		if values := h.At[label.Name]; values != nil {
			n *= len(values)
		} else {
			known = false
		}
	}
	return n, known
}

// possible is what the statistic of a group with so many expected measurements
// can be at all; false where it can be anything. More are measured only where
// they are not all known.
func (h *threshold) possible(samples int, known bool) (least, most float64, bounded bool) {
	switch h.stat {
	case thresholds.StatCount:
		least, most = float64(samples), float64(samples)
	case thresholds.StatDistinct:
		least, most = 1, float64(samples)
	case thresholds.StatSpread:
		return 0, math.Inf(1), true
	default:
		return 0, 0, false
	}
	if !known {
		most = math.Inf(1)
	}
	return least, most, true
}

// statWords names the statistics that possible knows for a person.
var statWords = map[thresholds.Stat]string{
	thresholds.StatCount:    "number of measurements",
	thresholds.StatDistinct: "number of different texts",
	thresholds.StatSpread:   "spread",
}
