package runbook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/rackproof/rackproof/evidence"
)

// variable is one input.
type variable struct {
	name     string
	rng      hcl.Range // of its header
	typ      cty.Type
	fallback cty.Value // NilVal: none
	contract cty.Value // NilVal: none
	checks   []content
	value    cty.Value
	origin   hcl.Range // of what gave the value
}

// given is a value from outside, with where it came from.
type given struct {
	expr hclsyntax.Expression // of a file or of a flag's text
	text string               // of a flag, where the variable is a string
	json json.RawMessage
	rng  hcl.Range
}

func (r *Runbook) decodeVariables() {
	schema, _ := Schema().block("variable")
	// What a variable is by itself must not depend on anything else.
	bare := scope{files: r.files, ctx: &hcl.EvalContext{Functions: r.ctx.Functions}, kinds: r.kinds, symbols: r.symbols}
	for _, block := range r.root.blocks["variable"] {
		c, ok := bare.content(block.Body, schema)
		if !ok {
			continue
		}
		if v, ok := bare.variable(block, c); ok {
			r.variables = append(r.variables, v)
		}
	}
	r.diags = append(r.diags, bare.diags...)
	if r.diags.HasErrors() {
		return
	}
	values := r.givenValues()
	for _, v := range r.variables {
		r.setValue(v, values[v.name])
	}
	if r.diags.HasErrors() {
		return
	}
	all := map[string]cty.Value{}
	for _, v := range r.variables {
		all[v.name] = v.value
	}
	r.ctx.Variables["var"] = cty.ObjectVal(all)
	for _, v := range r.variables {
		r.validate(v)
	}
}

// variable decodes one block.
func (s *scope) variable(block *hclsyntax.Block, c content) (*variable, bool) {
	v := &variable{name: block.Labels[0], rng: block.DefRange(), fallback: cty.NilVal, contract: cty.NilVal}
	typ, diags := typeexpr.Type(c.args["type"].Expr)
	if diags.HasErrors() {
		s.diags = append(s.diags, tag(RuleVariableType, diags)...)
		return nil, false
	}
	v.typ = typ
	if attr := c.args["description"]; attr != nil {
		s.text(attr)
	}
	ok := true
	for _, one := range []struct {
		attr *hclsyntax.Attribute
		to   *cty.Value
	}{{c.args["default"], &v.fallback}, {c.args["contract"], &v.contract}} {
		if one.attr == nil {
			continue
		}
		val, good := s.evaluate(one.attr.Expr)
		if !good {
			ok = false
			continue
		}
		what := fmt.Sprintf("The argument %q of variable %q", one.attr.Name, v.name)
		d := s.inexactIn(what, one.attr.Expr, val, typ)
		var conv cty.Value
		if d == nil {
			conv, d = typed(val, typ, one.attr.Expr.Range(), what)
		}
		if d != nil {
			s.add(s.withValues(one.attr.Expr, d))
			ok = false
			continue
		}
		*one.to = conv
	}
	schema, _ := Schema().block("variable")
	validation, _ := schema.block("validation")
	for _, b := range c.blocks["validation"] {
		check, good := s.content(b.Body, validation)
		if !good {
			ok = false
			continue
		}
		v.checks = append(v.checks, check)
	}
	return v, ok
}

// typed converts val to typ. Null is no value: what decides is never left out.
func typed(val cty.Value, typ cty.Type, rng hcl.Range, what string) (cty.Value, *hcl.Diagnostic) {
	conv, err := convert.Convert(val, typ)
	if err != nil {
		return cty.NilVal, fail(RuleVariableValue, rng, "Unsuitable value of a variable",
			fmt.Sprintf("%s wants %s: %s.", what, typ.FriendlyName(), convert.MismatchMessage(val.Type(), typ)))
	}
	null := conv.IsNull()
	if !null {
		_ = cty.Walk(conv, func(_ cty.Path, v cty.Value) (bool, error) {
			null = null || v.IsNull()
			return !null, nil
		})
	}
	if null {
		return cty.NilVal, fail(RuleVariableValue, rng, "Unsuitable value of a variable",
			fmt.Sprintf("%s is null, or has a null inside. What decides is written out: give a value.", what))
	}
	return conv, measureAll(conv, rng)
}

// givenValues collects the values from outside and reports those of unknown
// variables.
func (r *Runbook) givenValues() map[string]given {
	values := map[string]given{}
	if r.in.Values != nil {
		for _, name := range slices.Sorted(maps.Keys(r.in.Values)) {
			rng := inputRange(name)
			if r.knownVariable(name, rng, "The plan", "It was made of another runbook.") {
				values[name] = given{json: r.in.Values[name], rng: rng}
			}
		}
		return values
	}
	for _, name := range slices.Sorted(maps.Keys(r.in.Env)) {
		rng := hcl.Range{Filename: fmt.Sprintf("<environment variable %s%s>", EnvPrefix, name), Start: hcl.InitialPos, End: hcl.InitialPos}
		if r.knownVariable(name, rng, "The environment variable "+EnvPrefix+name, "Unset it, or declare the variable.") {
			values[name] = r.givenText(name, r.in.Env[name], rng)
		}
	}
	for _, f := range r.in.Files {
		body := r.parseFile(f.Bytes, f.Name)
		if body == nil {
			continue
		}
		for _, b := range body.Blocks {
			r.add(fail(RuleVarFile, b.DefRange(), "Block in a variable file", "A variable file holds values alone, such as soak = \"24h\"."))
		}
		for _, attr := range attributes(body) {
			if r.knownVariable(attr.Name, attr.NameRange, "The variable file", "Remove it, or declare the variable.") {
				values[attr.Name] = given{expr: attr.Expr, rng: attr.Expr.Range()}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.in.Vars)) {
		rng := inputRange(name)
		if r.knownVariable(name, rng, "The flag --var", "Leave it out, or declare the variable.") {
			values[name] = r.givenText(name, r.in.Vars[name], rng)
		}
	}
	return values
}

// inputRange names the value of a flag or of a plan as a file, so that a
// diagnostic has a place.
func inputRange(name string) hcl.Range {
	return hcl.Range{Filename: fmt.Sprintf("<value of var.%s>", name), Start: hcl.InitialPos, End: hcl.InitialPos}
}

func (r *Runbook) knownVariable(name string, rng hcl.Range, where, remedy string) bool {
	if slices.Contains(r.symbols["var"], name) {
		return true
	}
	detail := fmt.Sprintf("%s gives a value to %q, but the runbook declares no such variable.", where, name)
	if hint := didYouMean(name, r.symbols["var"], "%q"); hint != "" {
		detail += hint
	} else {
		detail += listed("It declares:", r.symbols["var"])
	}
	detail += " " + remedy
	r.add(fail(RuleUnknownVariable, rng, "Value of an unknown variable", detail))
	return false
}

// givenText is the text of a flag: itself for a string, else an expression.
func (r *Runbook) givenText(name, text string, rng hcl.Range) given {
	i := slices.IndexFunc(r.variables, func(v *variable) bool { return v.name == name })
	if i >= 0 && r.variables[i].typ == cty.String {
		return given{text: text, rng: rng}
	}
	src := []byte(text)
	r.files[rng.Filename] = &hcl.File{Bytes: src}
	if d := complexity(src, rng.Filename); d != nil {
		r.add(d)
		return given{rng: rng}
	}
	expr, diags := hclsyntax.ParseExpression(src, rng.Filename, hcl.InitialPos)
	r.diags = append(r.diags, tag(RuleSyntax, firstError(diags))...)
	if diags.HasErrors() {
		return given{rng: rng}
	}
	expr = r.meter.wrap(expr, &r.diags)
	return given{expr: expr, rng: expr.Range()}
}

// setValue decides the value of v.
func (r *Runbook) setValue(v *variable, g given) {
	what := fmt.Sprintf("The value of variable %q", v.name)
	v.origin = v.rng
	if g.rng.Filename != "" {
		v.origin = g.rng
	}
	switch {
	case g.json != nil:
		val, err := ctyjson.Unmarshal(g.json, v.typ)
		if err != nil {
			r.add(fail(RuleVariableValue, g.rng, "Unsuitable value of a variable", fmt.Sprintf("%s in the plan is not of type %s.", what, v.typ.FriendlyName())))
			return
		}
		r.accept(v, val, g.rng, what)
	case g.expr != nil:
		// Files and flags are evaluated without functions and references, so
		// that what they say is what the plan records.
		none := scope{files: r.files, ctx: &hcl.EvalContext{}, kinds: r.kinds, symbols: r.symbols}
		if val, ok := none.evaluate(g.expr); ok {
			if d := none.inexactIn(what, g.expr, val, v.typ); d != nil {
				none.add(d)
			} else {
				r.accept(v, val, g.rng, what)
			}
		}
		r.diags = append(r.diags, none.diags...)
	case g.rng.Filename != "":
		if v.typ == cty.String {
			r.accept(v, cty.StringVal(g.text), g.rng, what)
		}
	case v.fallback != cty.NilVal:
		v.value = v.fallback
	default:
		r.add(fail(RuleUnsetVariable, v.rng, "Variable without a value",
			fmt.Sprintf("The variable %q has no default, so a value must be given: with --var %s=…, RACKPROOF_VAR_%s or a variable file.", v.name, v.name, v.name)))
	}
}

func (r *Runbook) accept(v *variable, val cty.Value, rng hcl.Range, what string) {
	conv, d := typed(val, v.typ, rng, what)
	if d != nil {
		r.add(d)
		return
	}
	v.value = conv
}

// validate checks the conditions of v.
func (r *Runbook) validate(v *variable) {
	for _, c := range v.checks {
		condition, message := c.args["condition"], c.args["error_message"]
		about := false
		for _, t := range condition.Expr.Variables() {
			step, ok := attrStep(t, 1)
			about = about || ok && t.RootName() == "var" && step.Name == v.name
		}
		if !about {
			r.add(fail(RuleValidation, condition.Expr.Range(), "Condition does not check the variable",
				fmt.Sprintf("The condition does not refer to var.%s, so it is the same for every value.", v.name)))
			continue
		}
		good, ok := r.boolean(condition)
		text, said := r.text(message)
		if !ok || !said || good {
			continue
		}
		r.add(r.withValues(condition.Expr, fail(RuleValidationFailed, v.origin, "Value of a variable is not allowed",
			fmt.Sprintf("%s\n\nThis was checked by the rule on line %d of %s.", text, condition.SrcRange.Start.Line, condition.SrcRange.Filename))))
	}
}

// planVariables are the variables as the plan records them, by name.
func (r *Runbook) planVariables() ([]evidence.Variable, error) {
	var out []evidence.Variable
	for _, v := range r.variables {
		value, err := ctyjson.Marshal(v.value, v.typ)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.name, err)
		}
		one := evidence.Variable{Name: v.name, Value: value}
		if v.contract != cty.NilVal {
			if one.Contract, err = ctyjson.Marshal(v.contract, v.typ); err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.name, err)
			}
			one.OffContract = !bytes.Equal(one.Value, one.Contract)
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b evidence.Variable) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out, nil
}

// decodeLocals evaluates the local values in the order of their references.
func (r *Runbook) decodeLocals() {
	exprs := map[string]*hclsyntax.Attribute{}
	var names []string
	for _, block := range r.root.blocks["locals"] {
		for _, b := range block.Body.Blocks {
			r.add(fail(RuleUnsupportedBlock, b.DefRange(), "Unsupported block type", "A locals block holds names and values alone."))
		}
		for _, attr := range attributes(block.Body) {
			if first := exprs[attr.Name]; first != nil {
				r.add(fail(RuleDuplicateName, attr.NameRange, "Duplicate local value",
					fmt.Sprintf("A local value named %q is declared on line %d already. Each needs a name of its own.", attr.Name, first.SrcRange.Start.Line)))
				continue
			}
			exprs[attr.Name] = attr
			names = append(names, attr.Name)
		}
	}
	r.symbols["local"] = names
	needs := map[string][]string{}
	for _, name := range names {
		for _, t := range exprs[name].Expr.Variables() {
			if step, ok := attrStep(t, 1); ok && t.RootName() == "local" && exprs[step.Name] != nil {
				needs[name] = append(needs[name], step.Name)
			}
		}
	}
	ordered, cycle := order(names, needs)
	if cycle != nil {
		r.add(fail(RuleCycle, exprs[cycle[0]].Expr.Range(), "Dependency cycle", cycleDetail("These local values refer to each other, so none of them has a value:", "local.", cycle, "Replace one of these references by its value.")))
		return
	}
	values := map[string]cty.Value{}
	outer := r.ctx
	for _, name := range ordered {
		// Each expression sees the values it refers to and no others: an
		// object of all would be built anew for each.
		seen := map[string]cty.Value{}
		blocked := false
		for _, need := range needs[name] {
			if r.broken["local."+need] {
				blocked = true
			} else {
				seen[need] = values[need]
			}
		}
		r.ctx = &hcl.EvalContext{Functions: outer.Functions, Variables: map[string]cty.Value{"var": outer.Variables["var"], "local": cty.ObjectVal(seen)}}
		val, ok := cty.NilVal, false
		if !blocked {
			val, ok = r.evaluate(exprs[name].Expr)
		}
		if ok {
			if d := measureAll(val, exprs[name].Expr.Range()); d != nil {
				r.add(d)
				ok = false
			}
		}
		if !ok {
			r.broken["local."+name] = true
			continue
		}
		values[name] = val
	}
	r.ctx = outer
	r.ctx.Variables["local"] = cty.ObjectVal(values)
}

// cycleDetail draws a cycle.
func cycleDetail(lead, prefix string, cycle []string, remedy string) string {
	line := "    "
	for i, name := range cycle {
		if i > 0 {
			line += " -> "
		}
		line += prefix + name
	}
	return lead + "\n\n" + line + "\n\n" + remedy
}
