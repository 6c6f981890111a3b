package runbook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/thresholds"
)

// maxSetNames is the most names that all node sets of a runbook have.
const maxSetNames = 4 * nodeset.MaxNames

// keyColumn is the column of a layout that names the node.
const keyColumn = "node"

// fleet is the machines under test and how they are reached.
type fleet struct {
	evidence.Fleet
	names         []string
	member        map[string]int // its place among names, from 1
	labelsOf      map[string]map[string]string
	labels        []string // of the layout, sorted
	layoutRange   hcl.Range
	kind          runner.Kind
	executor      string
	reach         json.RawMessage
	parallel      int
	clockLimit    evidence.Duration
	sharedMachine bool
	expect        *hclsyntax.Block
}

func (r *Runbook) decodeFleet() {
	block := r.root.one("fleet")
	schema, _ := Schema().block("fleet")
	c, ok := r.content(block.Body, schema)
	if !ok {
		return
	}
	f := &r.fleet
	f.Name = block.Labels[0]
	text, ok := r.hostsText(c.args["hosts"])
	if !ok {
		return
	}
	names, ok := r.hosts(c.args["hosts"], text, nil)
	if !ok {
		return
	}
	f.names = names
	f.member = make(map[string]int, len(names))
	f.labelsOf = make(map[string]map[string]string, len(names))
	f.Nodes = make([]evidence.Node, len(names))
	for i, name := range names {
		f.Nodes[i] = evidence.Node{Name: name}
		f.member[name] = i + 1
	}
	if attr := c.args["layout"]; attr != nil {
		r.decodeLayout(attr)
	}
	r.decodeExecutor(c.one("executor"))
	if expect := c.one("expect"); expect != nil {
		r.decodeExpect(expect)
	}
}

// hostsText is the node set that attr stands for, not yet expanded.
func (r *Runbook) hostsText(attr *hclsyntax.Attribute) (string, bool) {
	val, ok := r.primitive(attr, cty.String, "a node set such as \"gpu[001-032]\"")
	if !ok {
		return "", false
	}
	return val.AsString(), true
}

// hosts expands text, the node set of attr; an error points inside it.
func (r *Runbook) hosts(attr *hclsyntax.Attribute, text string, groups func(name string) ([]string, bool)) ([]string, bool) {
	if at := strings.IndexByte(text, '@'); at >= 0 {
		if i := strings.IndexByte(text[at:], '='); i >= 0 && !strings.ContainsAny(text[at:at+i], ",!& ") {
			r.add(fail(RuleNotYet, within(r.files, attr.Expr, text, at, i+1), "Not part of this build", notYet("A layout label as a node set, such as \"@rack=A3\",")))
			return nil, false
		}
	}
	names, err := nodeset.Parse(text, groups)
	if err != nil {
		d := fail(RuleNodeSet, attr.Expr.Range(), "Unsuitable node set", sentence(err))
		var inside *nodeset.Error
		if errors.As(err, &inside) {
			d.Detail = inside.Summary + ": " + inside.Detail
			rng := within(r.files, attr.Expr, text, inside.Offset, inside.Length)
			d.Subject = &rng
			if !strings.Contains(d.Detail, "\"gpu[") {
				d.Detail += " Node sets use the folded syntax of ClusterShell and Slurm, for example \"gpu[001-032]\" or \"gpu[001-008,017]\"."
			}
		}
		r.add(r.withValues(attr.Expr, d))
		return nil, false
	}
	return names, true
}

// within is the range of length bytes at offset inside the text that expr
// gives, or expr's own where the text is not written there as it is.
func within(files map[string]*hcl.File, expr hcl.Expression, text string, offset, length int) hcl.Range {
	whole := expr.Range()
	file := files[whole.Filename]
	literal, ok := literalText(expr)
	if file == nil || !ok || literal != text || whole.End.Byte > len(file.Bytes) || whole.End.Byte-whole.Start.Byte != len(text)+2 {
		return whole
	}
	src := file.Bytes[whole.Start.Byte:whole.End.Byte]
	if string(src[1:len(src)-1]) != text || offset < 0 || length < 0 || offset+length > len(text) {
		return whole
	}
	start := advance(whole.Start, src[:1+offset])
	return hcl.Range{Filename: whole.Filename, Start: start, End: advance(start, src[1+offset:1+offset+length])}
}

// advance is the position after text, which has no line end, from pos on.
func advance(pos hcl.Pos, text []byte) hcl.Pos {
	whole := func(data []byte, _ bool) (int, []byte, error) { return len(data), data, nil }
	columns := 0
	if sc := hcl.NewRangeScanner(text, "", whole); sc.Scan() {
		columns = sc.Range().End.Column - hcl.InitialPos.Column
	}
	return hcl.Pos{Line: pos.Line, Column: pos.Column + columns, Byte: pos.Byte + len(text)}
}

// decodeLayout gives the nodes their labels.
func (r *Runbook) decodeLayout(attr *hclsyntax.Attribute) {
	val, ok := r.evaluate(attr.Expr)
	if !ok {
		return
	}
	rng := attr.Expr.Range()
	rows, d := r.table(attr.Name, attr.Expr, val)
	if d != nil {
		r.add(r.withValues(attr.Expr, d))
		return
	}
	r.fleet.layoutRange = rng
	labels := map[string]bool{}
	seen := map[string]int{}
	for i, row := range rows {
		name, has := row[keyColumn]
		if !has {
			detail := fmt.Sprintf("Row %d has no column %q, which names the node.", i+1, keyColumn)
			for _, column := range slices.Sorted(maps.Keys(row)) {
				if strings.TrimPrefix(column, "\ufeff") == keyColumn {
					detail = fmt.Sprintf("The first column is called %q with a byte-order mark in front, so there is no column %q. Save the file as UTF-8 without a byte-order mark.", keyColumn, keyColumn)
				}
			}
			if len(row) > 0 && !strings.Contains(detail, "mark") {
				detail += listed("Its columns are:", slices.Collect(maps.Keys(row)))
			}
			r.add(fail(RuleLayout, rng, "Unsuitable layout", detail))
			return
		}
		if r.fleet.member[name] == 0 {
			r.add(fail(RuleLayoutNode, rng, "Layout and fleet differ",
				fmt.Sprintf("Row %d of the layout places the node %q, which is not in the fleet.%s", i+1, name, didYouMean(name, near(r.fleet.names), "%q"))))
			return
		}
		if first, twice := seen[name]; twice {
			r.add(fail(RuleLayoutNode, rng, "Layout and fleet differ", fmt.Sprintf("Rows %d and %d of the layout both place the node %q.", first, i+1, name)))
			return
		}
		seen[name] = i + 1
		for column := range row {
			labels[column] = true
		}
	}
	delete(labels, keyColumn)
	var missing []string
	for i, node := range r.fleet.Nodes {
		at, placed := seen[node.Name]
		if !placed {
			missing = append(missing, node.Name)
			continue
		}
		row := maps.Clone(rows[at-1])
		// A blank cell is a node without the label, and no rack of the name "".
		maps.DeleteFunc(row, func(column, cell string) bool { return column == keyColumn || blank(cell) })
		r.fleet.Nodes[i].Labels = row
		r.fleet.labelsOf[node.Name] = row
	}
	if len(missing) > 0 {
		r.add(fail(RuleLayoutNode, rng, "Layout and fleet differ", fmt.Sprintf("The layout has no row for %s of the fleet: %s.", evidence.Count(len(missing), "node"), nodeset.Fold(missing))))
		return
	}
	r.fleet.labels = slices.Sorted(maps.Keys(labels))
	for _, label := range r.fleet.labels {
		if !r.goodName(label, rng, "column of the layout") {
			return
		}
		if label == perTest || label == string(evidence.SubjectFleet) {
			r.add(ambiguousColumn(label, rng))
			return
		}
	}
}

// ambiguousColumn refuses a label that a per would not reach.
func ambiguousColumn(label string, rng hcl.Range) *hcl.Diagnostic {
	return fail(RuleLayout, rng, "Unsuitable layout", fmt.Sprintf("A column of the layout is called %q, and per = %q means a level of what is measured, or everything together where it is \"test\": nothing could be judged by this column. Rename it.", label, label))
}

// checkLabels refuses columns of the layout that are called like a level of
// what is measured; the tests have to be known.
func (r *Runbook) checkLabels() {
	levels := map[string]bool{}
	note := func(level string) {
		for part := range strings.SplitSeq(level, "/") {
			levels[part] = true
		}
	}
	for _, t := range r.tests {
		for _, m := range t.metrics {
			note(checks.LevelIn(m.Level, t.Scope))
		}
		for _, f := range t.facts {
			note(checks.LevelIn(f.Level, t.Scope))
		}
	}
	for _, label := range r.fleet.labels {
		if levels[label] {
			r.add(ambiguousColumn(label, r.fleet.layoutRange))
		}
	}
}

// near keeps suggestions cheap where there are many names.
func near(names []string) []string { return names[:min(len(names), 2000)] }

// table reads a list of objects of text.
func (s *scope) table(name string, expr hclsyntax.Expression, val cty.Value) ([]map[string]string, *hcl.Diagnostic) {
	wrong := func(at hclsyntax.Expression, problem string) *hcl.Diagnostic {
		return fail(RuleType, placeOf(at), "Unsuitable value", fmt.Sprintf("The argument %q wants a list of rows, usually csvdecode(file(\"%s.csv\")): %s", name, name, problem))
	}
	if !isSequence(val) && (val.IsNull() || !val.Type().IsSetType()) {
		return nil, wrong(expr, fmt.Sprintf("this is %s.", kindOf(val)))
	}
	var rows []map[string]string
	for i, e := range elements(expr, val) {
		if t := e.val.Type(); e.val.IsNull() || !t.IsObjectType() && !t.IsMapType() {
			return nil, wrong(e.expr, fmt.Sprintf("element %d is %s.", i+1, kindOf(e.val)))
		}
		row := map[string]string{}
		cells := e.val.AsValueMap()
		written := literalCells(e.expr)
		for _, key := range slices.Sorted(maps.Keys(cells)) {
			at := cmp.Or(written[key], e.expr)
			if d := s.inexact(fmt.Sprintf("Column %q of row %d", key, i+1), at, cells[key]); d != nil {
				return nil, d
			}
			text, ok := plainText(cells[key])
			if !ok {
				return nil, wrong(at, fmt.Sprintf("column %q of row %d is %s.", key, i+1, kindOf(cells[key])))
			}
			row[key] = text
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, wrong(expr, "it has no rows.")
	}
	return rows, nil
}

// literalCells are the expressions of a row that is written out, by column.
func literalCells(expr hclsyntax.Expression) map[string]hclsyntax.Expression {
	if expr == nil {
		return nil
	}
	cells := map[string]hclsyntax.Expression{}
	pairs, _ := hcl.ExprMap(expr) // none where the row is not written out
	for _, pair := range pairs {
		value, ok := pair.Value.(hclsyntax.Expression)
		if key := hcl.ExprAsKeyword(pair.Key); ok && key != "" {
			cells[key] = value
		} else if text, literal := literalText(pair.Key); ok && literal {
			cells[text] = value
		}
	}
	return cells
}

func (r *Runbook) decodeExecutor(block *hclsyntax.Block) {
	schema, _ := Schema().block("fleet")
	schema, _ = schema.block("executor")
	f := &r.fleet
	label := block.Labels[0]
	i := slices.IndexFunc(r.known.Executors, func(k runner.Kind) bool { return k.Name == label })
	if i < 0 {
		var names []string
		for _, k := range r.known.Executors {
			names = append(names, k.Name)
		}
		r.add(fail(RuleUnknownExecutor, block.LabelRanges[0], "Unsupported executor",
			fmt.Sprintf("This build of rackproof has no executor named %q.%s%s", label, didYouMean(label, names, "%q"), listed("It has:", names))))
		return
	}
	f.kind, f.executor = r.known.Executors[i], label
	own, config, ok := r.extended(block.Body, schema, f.kind.Params, r.in.Dir)
	if !ok {
		return
	}
	f.reach = config
	f.parallel = min(len(f.names), 64)
	if attr := own.args["parallel"]; attr != nil {
		f.parallel, _ = r.whole(attr, 1)
	}
	f.clockLimit = defaultClockLimit
	if attr := own.args["clock_limit"]; attr != nil {
		f.clockLimit, _ = r.positive(attr)
	}
	if attr := own.args["shared_machine"]; attr != nil {
		f.sharedMachine, _ = r.boolean(attr)
	}
}

func (r *Runbook) decodeExpect(block *hclsyntax.Block) {
	schema, _ := Schema().block("fleet")
	schema, _ = schema.block("expect")
	c, ok := r.content(block.Body, schema)
	if !ok {
		return
	}
	r.fleet.expect = block
	for _, attr := range attributes(block.Body) {
		val, ok := r.evaluate(c.args[attr.Name].Expr)
		if !ok {
			continue
		}
		if d := r.inexact(fmt.Sprintf("The fact %q", attr.Name), attr.Expr, val); d != nil {
			r.add(r.withValues(attr.Expr, d))
			continue
		}
		text, ok := plainText(val)
		if !ok || blank(text) {
			r.add(unsuitable(attr.Expr, attr.Name, "a text that is not empty, a whole number or a bool", val, r.ctx))
			continue
		}
		r.fleet.Expect = append(r.fleet.Expect, evidence.Expectation{Fact: attr.Name, Value: text})
	}
}

// checkExpect compares the expected facts with those that can be judged, and
// wants each node judged. Facts depend on the parameters of a check, so this
// waits for the tests.
func (r *Runbook) checkExpect() {
	if r.fleet.expect == nil || len(r.fleet.Expect) == 0 {
		return
	}
	var facts, readers, remedies []string
	note := func(spec checks.Spec, params json.RawMessage) {
		if spec.Mismatches == "" || spec.Facts == nil {
			return
		}
		for _, fact := range spec.Facts(params) {
			if !slices.Contains(facts, fact.Name) {
				facts = append(facts, fact.Name)
			}
		}
	}
	for _, check := range r.known.Checks {
		if spec := check.Spec(); spec.Mismatches != "" {
			note(spec, json.RawMessage("{}"))
			readers = append(readers, strconv.Quote(spec.Name))
			remedies = append(remedies, fmt.Sprintf("check %q and threshold %q { max = 0 … }", spec.Name, spec.Mismatches))
		}
	}
	for _, t := range r.tests {
		note(t.spec, t.params())
	}
	unknown := false
	for _, attr := range attributes(r.fleet.expect.Body) {
		if slices.Contains(facts, attr.Name) {
			continue
		}
		unknown = true
		if check, param, ok := r.switchFor(attr.Name); ok {
			r.add(fail(RuleUnknownFact, attr.NameRange, "Fact is not read",
				fmt.Sprintf("No test of this runbook with the check %q reads the fact %q, so nothing could show it. Write %s = true in the check block of such a test.", check, attr.Name, param)))
		} else {
			r.add(fail(RuleUnknownFact, attr.NameRange, "Unknown fact",
				fmt.Sprintf("The check %s reads no fact named %q, so nothing could show it.%s%s", join(readers, "or"), attr.Name, didYouMean(attr.Name, facts, "%q"), listed("It reads:", facts))))
		}
	}
	if unknown {
		return
	}
	judged := map[string]bool{}
	for _, t := range r.tests {
		if t.judgesExpect(r.fleet.Expect) {
			for _, n := range t.nodes {
				judged[n] = true
			}
		}
	}
	missing := slices.DeleteFunc(slices.Clone(r.fleet.names), func(n string) bool { return judged[n] })
	if len(missing) > 0 {
		r.add(fail(RuleExpectUnjudged, r.fleet.expect.DefRange(), "Expectations are not judged",
			fmt.Sprintf("No test holds %s against these facts: %s. Each of them could show anything, and pass. Give them a test that reads all of these facts, with %s.", evidence.Count(len(missing), "node"), nodeset.Fold(missing), join(remedies, "or"))))
	}
}

// switchFor names the bool parameter that makes a check read a fact which it
// does not read by itself.
func (r *Runbook) switchFor(fact string) (check, param string, ok bool) {
	for _, c := range r.known.Checks {
		spec := c.Spec()
		if spec.Mismatches == "" || spec.Facts == nil {
			continue
		}
		for _, p := range spec.Params {
			if p.Type != evidence.ParamBool {
				continue
			}
			facts := spec.Facts(json.RawMessage(fmt.Sprintf("{%q: true}", p.Name)))
			if slices.ContainsFunc(facts, func(f checks.FactSpec) bool { return f.Name == fact }) {
				return spec.Name, p.Name, true
			}
		}
	}
	return "", "", false
}

// judgesExpect reports whether the test fails on each node that is not as
// expected: whether it reads every fact and binds the worst of its mismatches
// to none.
func (t *test) judgesExpect(expected []evidence.Expectation) bool {
	unread := func(e evidence.Expectation) bool {
		_, reads := t.fact(e.Fact)
		return !reads
	}
	for _, h := range t.thresholds {
		none := h.Max != nil && *h.Max == 0 && (h.stat == thresholds.StatMax || h.stat == thresholds.StatSum)
		if h.Metric == t.spec.Mismatches && none {
			return !slices.ContainsFunc(expected, unread)
		}
	}
	return false
}

// decodeNodesets expands the node sets; they may refer to each other.
func (r *Runbook) decodeNodesets() {
	schema, _ := Schema().block("nodeset")
	blocks := map[string]*hclsyntax.Block{}
	args := map[string]*hclsyntax.Attribute{}
	texts := map[string]string{}
	needs := map[string][]string{}
	var names []string
	for _, b := range r.root.blocks["nodeset"] {
		c, ok := r.content(b.Body, schema)
		if !ok {
			continue
		}
		name := b.Labels[0]
		if name == r.fleet.Name {
			r.add(fail(RuleDuplicateName, b.LabelRanges[0], "Duplicate nodeset name", fmt.Sprintf("The fleet is named %q already, and \"@%s\" could mean either.", name, name)))
			continue
		}
		blocks[name], args[name] = b, c.args["hosts"]
		names = append(names, name)
	}
	// What a set needs is in its value: "@${local.which}" names another too.
	for _, name := range names {
		text, ok := r.hostsText(args[name])
		if !ok {
			return
		}
		texts[name], needs[name] = text, groupsIn(text, blocks)
	}
	ordered, cycle := order(names, needs)
	if cycle != nil {
		r.add(fail(RuleCycle, args[cycle[0]].Expr.Range(), "Dependency cycle", cycleDetail("These node sets stand for each other, so none of them has nodes:", "nodeset.", cycle, "Write out the nodes of one of them.")))
		return
	}
	r.nodesets = map[string][]string{r.fleet.Name: r.fleet.names}
	total := 0
	for _, name := range ordered {
		set, ok := r.hosts(args[name], texts[name], func(group string) ([]string, bool) {
			names, ok := r.nodesets[group]
			return names, ok
		})
		if !ok {
			continue
		}
		if total += len(set); total > maxSetNames {
			r.add(fail(RuleTooMuchWork, blocks[name].DefRange(), "Too many names", fmt.Sprintf("The node sets of this runbook have more than %d names in all.", maxSetNames)))
			return
		}
		outside := slices.DeleteFunc(slices.Clone(set), func(n string) bool { return r.fleet.member[n] > 0 })
		if len(outside) > 0 {
			rng := args[name].Expr.Range()
			if text, ok := literalText(args[name].Expr); ok && len(outside) == 1 {
				if at := strings.Index(text, outside[0]); at >= 0 {
					rng = within(r.files, args[name].Expr, text, at, len(outside[0]))
				}
			}
			r.add(r.withValues(args[name].Expr, fail(RuleOutsideFleet, rng, "Node set outside the fleet",
				fmt.Sprintf("Of this node set, %s %s not in fleet %q: %s. Padding is part of a name: \"n1\" and \"n01\" are two nodes.", evidence.Count(len(outside), "node"), isAre(len(outside)), r.fleet.Name, nodeset.Fold(outside)))))
			continue
		}
		// Cells take nodes in the fleet's order, however a set is written.
		slices.SortFunc(set, func(a, b string) int { return cmp.Compare(r.fleet.member[a], r.fleet.member[b]) })
		r.nodesets[name] = set
	}
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// groupsIn lists the node sets that text names with "@".
func groupsIn(text string, blocks map[string]*hclsyntax.Block) []string {
	var groups []string
	for _, part := range strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(",!& ", c) }) {
		if name, ok := strings.CutPrefix(part, "@"); ok && blocks[name] != nil {
			groups = append(groups, name)
		}
	}
	return groups
}

// nodesOf are the nodes that a reference to a fleet or node set stands for.
func (r *Runbook) nodesOf(to ref) []string {
	if to.kind == "fleet" {
		return r.fleet.names
	}
	return r.nodesets[to.name]
}
