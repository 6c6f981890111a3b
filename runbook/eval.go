package runbook

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/rackproof/rackproof/evidence"
)

// A scope evaluates expressions: it has the functions, the names that may be
// referred to, and the place where diagnostics go.
type scope struct {
	diags   hcl.Diagnostics
	files   map[string]*hcl.File // by the name that ranges use
	ctx     *hcl.EvalContext     // functions, and "var" and "local" once they have values
	symbols map[string][]string
	// broken names those "var.x" and "local.x" that had an error of their own:
	// whoever refers to them is not blamed again.
	broken map[string]bool
	// kinds says what each root of a reference is, in a sentence.
	kinds map[string]string
}

func (s *scope) add(d *hcl.Diagnostic) { s.diags = append(s.diags, d) }

// evaluate gives the value of expr, which is never unknown, or reports why
// there is none. expr may be null.
func (s *scope) evaluate(expr hclsyntax.Expression) (cty.Value, bool) {
	if !s.checkNames(expr) {
		return cty.NilVal, false
	}
	val, diags := expr.Value(s.ctx)
	for _, d := range diags {
		if !s.repeated(d) {
			s.diags = append(s.diags, s.tagEvaluation(d))
		}
	}
	if diags.HasErrors() || !val.IsWhollyKnown() {
		return cty.NilVal, false
	}
	return val, true
}

// repeated reports whether d, the very same value, was added before: a used-up
// meter answers each expression with one diagnostic.
func (s *scope) repeated(d *hcl.Diagnostic) bool {
	return d.Extra == any(RuleTooMuchWork) && len(s.diags) > 0 && s.diags[len(s.diags)-1] == d
}

func (s *scope) tagEvaluation(d *hcl.Diagnostic) *hcl.Diagnostic {
	rule := RuleExpression
	if _, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](d); ok {
		rule = RuleFunctionCall
		// hcl says "Invalid function argument" of every failed call; the
		// function's own error is the problem.
		d.Summary = "Error in function call"
	}
	return tag(rule, hcl.Diagnostics{d})[0]
}

// checkNames reports every function and reference in expr that does not exist.
func (s *scope) checkNames(expr hclsyntax.Expression) bool {
	ok := true
	_ = hclsyntax.VisitAll(expr, func(n hclsyntax.Node) hcl.Diagnostics {
		call, isCall := n.(*hclsyntax.FunctionCallExpr)
		if !isCall {
			return nil
		}
		if _, known := s.ctx.Functions[call.Name]; !known {
			rule, summary, detail := whyNot(call.Name, s.ctx.Functions)
			s.add(fail(rule, call.NameRange, summary, detail))
			ok = false
		}
		return nil
	})
	for _, t := range expr.Variables() {
		if !s.checkTraversal(t) {
			ok = false
		}
	}
	return ok
}

// checkTraversal reports a reference that an expression cannot use.
func (s *scope) checkTraversal(t hcl.Traversal) bool {
	root := t.RootName()
	rng := t.SourceRange()
	if _, valued := s.ctx.Variables[root]; !valued {
		s.add(s.strayReference(t))
		return false
	}
	step, ok := attrStep(t, 1)
	if !ok {
		s.add(fail(RuleReference, rng, "Incomplete reference", fmt.Sprintf("Write the name after %q, as in %s.", root, example(root, s.symbols[root]))))
		return false
	}
	if s.broken[root+"."+step.Name] {
		return false
	}
	for _, name := range s.symbols[root] {
		if name == step.Name {
			return true
		}
	}
	s.add(s.undeclared(root, step.Name, hcl.RangeBetween(t[0].SourceRange(), step.SrcRange)))
	return false
}

func attrStep(t hcl.Traversal, i int) (hcl.TraverseAttr, bool) {
	if len(t) <= i {
		return hcl.TraverseAttr{}, false
	}
	step, ok := t[i].(hcl.TraverseAttr)
	return step, ok
}

func example(root string, names []string) string {
	if len(names) == 0 {
		return root + ".name"
	}
	return root + "." + sorted(names)[0]
}

// undeclared reports a reference to a block that is not there.
func (s *scope) undeclared(kind, name string, rng hcl.Range) *hcl.Diagnostic {
	word, how := kind, fmt.Sprintf("No %s %q block has been declared in this runbook.", kind, name)
	switch kind {
	case "var":
		word, how = "variable", fmt.Sprintf("No variable %q block has been declared in this runbook.", name)
	case "local":
		word, how = "local value", fmt.Sprintf("No local value named %q has been declared in this runbook.", name)
	case "threshold":
		how = fmt.Sprintf("No threshold of this test is named %q.", name)
	case "key":
		how = fmt.Sprintf("No key %q block has been declared in this trust policy.", name)
	}
	detail := how
	if hint := didYouMean(name, s.symbols[kind], kind+".%s"); hint != "" {
		detail += hint
	} else if n := len(s.symbols[kind]); n > 0 && n < 10 {
		names := make([]string, n)
		for i, symbol := range s.symbols[kind] {
			names[i] = kind + "." + symbol
		}
		detail += listed("Declared are:", names)
	}
	return fail(RuleUndeclared, rng, "Reference to undeclared "+word, detail)
}

// strayReference reports a reference whose root is no value.
func (s *scope) strayReference(t hcl.Traversal) *hcl.Diagnostic {
	root, rng := t.RootName(), t.SourceRange()
	if root == "each" || root == "count" {
		return fail(RuleNotYet, rng, "Not part of this build", notYet(fmt.Sprintf("The reference %q, with for_each,", root)))
	}
	if what, ok := s.kinds[root]; ok {
		return fail(RuleReference, rng, "Reference is not a value",
			fmt.Sprintf("%s is a name and not a value: it can only stand alone where an argument wants %s.", traversalName(t), what))
	}
	var valued []string
	for name := range s.ctx.Variables {
		valued = append(valued, name)
	}
	detail := fmt.Sprintf("There is nothing named %q.%s", root, didYouMean(root, valued, "%q"))
	if len(t) == 1 {
		detail += " If it is meant as text, write it in quotes."
	} else if len(valued) > 0 {
		detail += " Expressions can refer to " + join(sortedQuoted(valued), "and") + "."
	} else {
		detail += " No reference can be made here."
	}
	return fail(RuleReference, rng, "Unknown reference", detail)
}

func sortedQuoted(names []string) []string {
	out := sorted(names)
	for i, n := range out {
		out[i] = strconv.Quote(n)
	}
	return out
}

func traversalName(t hcl.Traversal) string {
	name := t.RootName()
	for i := 1; i < len(t); i++ {
		step, ok := attrStep(t, i)
		if !ok {
			break
		}
		name += "." + step.Name
	}
	return name
}

// kindOf names what val is for a person.
func kindOf(val cty.Value) string {
	t := val.Type()
	switch {
	case val.IsNull():
		return "null"
	case t == cty.String:
		return "text"
	case t == cty.Number:
		return "a number"
	case t == cty.Bool:
		return "a bool"
	case t.IsTupleType(), t.IsListType(), t.IsSetType():
		return "a list"
	case t.IsObjectType(), t.IsMapType():
		return "an object"
	}
	return "a " + t.FriendlyName()
}

// unsuitable reports a value of the wrong type.
func unsuitable(expr hcl.Expression, name, want string, got cty.Value, ctx *hcl.EvalContext) *hcl.Diagnostic {
	d := fail(RuleType, expr.Range(), "Unsuitable value", fmt.Sprintf("The argument %q wants %s, but this is %s.", name, want, kindOf(got)))
	d.Expression, d.EvalContext = expr, ctx
	return d
}

// primitive evaluates attr to a value of t, which is a primitive type.
func (s *scope) primitive(attr *hclsyntax.Attribute, t cty.Type, want string) (cty.Value, bool) {
	val, ok := s.evaluate(attr.Expr)
	if !ok {
		return cty.NilVal, false
	}
	conv, err := convert.Convert(val, t)
	if err != nil || conv.IsNull() || !val.Type().IsPrimitiveType() {
		s.add(unsuitable(attr.Expr, attr.Name, want, val, s.ctx))
		return cty.NilVal, false
	}
	return conv, true
}

// text is a text that is not empty.
func (s *scope) text(attr *hclsyntax.Attribute) (string, bool) {
	val, ok := s.evaluate(attr.Expr)
	if !ok {
		return "", false
	}
	text, d := s.spelled(attr.Name, attr.Expr, val)
	if d != nil {
		s.add(s.withValues(attr.Expr, d))
		return "", false
	}
	if strings.TrimSpace(text) == "" {
		s.add(fail(RuleEmptyText, attr.Expr.Range(), "Empty text", fmt.Sprintf("The argument %q is empty, so it says nothing. Write it, or leave the argument out where it is optional.", attr.Name)))
		return "", false
	}
	return text, true
}

// optionalText is text, where attr may be nil.
func (s *scope) optionalText(attr *hclsyntax.Attribute) string {
	if attr == nil {
		return ""
	}
	text, _ := s.text(attr)
	return text
}

func (s *scope) boolean(attr *hclsyntax.Attribute) (bool, bool) {
	val, ok := s.primitive(attr, cty.Bool, "true or false")
	if !ok {
		return false, false
	}
	return val.True(), true
}

// whole is a whole number of at least least.
func (s *scope) whole(attr *hclsyntax.Attribute, least int) (int, bool) {
	val, ok := s.primitive(attr, cty.Number, "a whole number")
	if !ok {
		return 0, false
	}
	n, accuracy := val.AsBigFloat().Int64()
	if accuracy != 0 || n < int64(least) || n > math.MaxInt32 {
		s.add(fail(RuleType, attr.Expr.Range(), "Unsuitable value", fmt.Sprintf("The argument %q wants a whole number of %d or more.", attr.Name, least)))
		return 0, false
	}
	return int(n), true
}

// duration is a duration above zero.
func (s *scope) duration(attr *hclsyntax.Attribute) (evidence.Duration, bool) {
	val, ok := s.primitive(attr, cty.String, "a duration such as \"30m\"")
	if !ok {
		return 0, false
	}
	d, err := evidence.ParseDuration(val.AsString())
	if err != nil {
		s.add(s.withValues(attr.Expr, fail(RuleDuration, attr.Expr.Range(), "Unsuitable duration",
			fmt.Sprintf("The text %q is no duration. Write numbers with the units d, h, m, s or ms, such as \"90s\", \"30m\", \"1h30m\", \"72h\" or \"3d\".", val.AsString()))))
		return 0, false
	}
	if d.Std() > maxDuration {
		s.add(fail(RuleDuration, attr.Expr.Range(), "Unsuitable duration", tooLong(d)))
		return 0, false
	}
	return d, true
}

// tooLong says that d is over maxDuration.
func tooLong(d evidence.Duration) string {
	return fmt.Sprintf("%s is longer than %d days, the longest time that can be written. Write a shorter one.", d, maxDuration/(24*time.Hour))
}

// withValues lets the renderer show what the references in expr stand for.
func (s *scope) withValues(expr hcl.Expression, d *hcl.Diagnostic) *hcl.Diagnostic {
	d.Expression, d.EvalContext = expr, s.ctx
	return d
}

// enum is one of words.
func (s *scope) enum(attr *hclsyntax.Attribute, words []string) (string, bool) {
	val, ok := s.primitive(attr, cty.String, choices(words))
	if !ok {
		return "", false
	}
	for _, w := range words {
		if w == val.AsString() {
			return w, true
		}
	}
	s.add(s.withValues(attr.Expr, fail(RuleChoice, attr.Expr.Range(), "Unknown choice",
		fmt.Sprintf("The argument %q can be %s, and not %q.%s", attr.Name, choices(words), val.AsString(), didYouMean(val.AsString(), words, "%q")))))
	return "", false
}

// element is one element of a list or object with the smallest expression that
// holds it.
type element struct {
	expr hclsyntax.Expression
	val  cty.Value
}

// list evaluates expr to the elements of a list.
func (s *scope) list(name string, expr hclsyntax.Expression, want string) ([]element, bool) {
	val, ok := s.evaluate(expr)
	if !ok {
		return nil, false
	}
	if t := val.Type(); val.IsNull() || !t.IsTupleType() && !t.IsListType() && !t.IsSetType() {
		s.add(unsuitable(expr, name, want, val, s.ctx))
		return nil, false
	}
	return elements(expr, val), true
}

// elements are the elements of val, a list that expr gives; expr is nil where
// it was not written.
func elements(expr hclsyntax.Expression, val cty.Value) []element {
	vals := val.AsValueSlice()
	out := make([]element, len(vals))
	var exprs []hcl.Expression
	if expr != nil {
		exprs, _ = hcl.ExprList(expr) // none where the list is not written out
	}
	for i, v := range vals {
		out[i] = element{expr: expr, val: v}
		if inner, ok := literalElement(exprs, i, len(vals)); ok {
			out[i].expr = inner
		}
	}
	return out
}

// placeOf is where expr is written; nowhere for nil, the default of an
// argument.
func placeOf(expr hcl.Expression) hcl.Range {
	if expr == nil {
		return hcl.Range{}
	}
	return expr.Range()
}

// literalElement is the expression of element i where the list was written out.
func literalElement(exprs []hcl.Expression, i, n int) (hclsyntax.Expression, bool) {
	if len(exprs) != n {
		return nil, false
	}
	e, ok := exprs[i].(hclsyntax.Expression)
	return e, ok
}

// texts is a list of texts, none of them empty.
func (s *scope) texts(name string, expr hclsyntax.Expression) ([]string, bool) {
	elements, ok := s.list(name, expr, "a list of texts")
	if !ok {
		return nil, false
	}
	out, d := s.words(name, elements)
	if d != nil {
		s.add(s.withValues(expr, d))
		return nil, false
	}
	return out, true
}

// words are the texts that the elements of a list are.
func (s *scope) words(name string, list []element) ([]string, *hcl.Diagnostic) {
	out := make([]string, 0, len(list))
	for i, e := range list {
		if e.val.IsNull() || !e.val.Type().IsPrimitiveType() {
			return nil, fail(RuleType, placeOf(e.expr), "Unsuitable value", fmt.Sprintf("Each element of the argument %q is a text, but element %d is %s.", name, i+1, kindOf(e.val)))
		}
		if d := s.inexact(fmt.Sprintf("Element %d of the argument %q", i+1, name), e.expr, e.val); d != nil {
			return nil, d
		}
		text, _ := plainText(e.val)
		out = append(out, text)
	}
	return out, nil
}

// argvs is a list of commands, each a list of a program and its arguments.
func (s *scope) argvs(name string, expr hclsyntax.Expression) ([][]string, bool) {
	elements, ok := s.list(name, expr, wantCommands)
	if !ok {
		return nil, false
	}
	out, d := s.commands(name, elements)
	if d != nil {
		s.add(s.withValues(expr, d))
		return nil, false
	}
	return out, true
}

const wantCommands = "a list of commands, each a list of texts such as [\"uname\", \"-r\"]"

// commands are the commands that the elements of a list are.
func (s *scope) commands(name string, list []element) ([][]string, *hcl.Diagnostic) {
	out := make([][]string, 0, len(list))
	for i, e := range list {
		if !isSequence(e.val) {
			return nil, fail(RuleType, placeOf(e.expr), "Unsuitable value", fmt.Sprintf("The argument %q wants %s, but element %d is %s.", name, wantCommands, i+1, kindOf(e.val)))
		}
		argv, d := s.argv(name, e)
		if d != nil {
			return nil, d
		}
		out = append(out, argv)
	}
	return out, nil
}

// argv is one command; e is a list.
func (s *scope) argv(name string, e element) ([]string, *hcl.Diagnostic) {
	argv, d := s.words(name, elements(e.expr, e.val))
	if d == nil {
		d = checkArgv(argv, placeOf(e.expr))
	}
	return argv, d
}

// isSequence reports whether val has elements in an order.
func isSequence(val cty.Value) bool {
	return !val.IsNull() && (val.Type().IsTupleType() || val.Type().IsListType())
}

func checkArgv(argv []string, rng hcl.Range) *hcl.Diagnostic {
	switch {
	case len(argv) == 0 || argv[0] == "":
		return fail(RuleCommand, rng, "Empty command", "A command names its program first, such as [\"uname\", \"-r\"].")
	case strings.ContainsRune(strings.Join(argv, ""), 0):
		return fail(RuleCommand, rng, "Command cannot be run", "A program's argument cannot hold a zero byte.")
	case len(argv) == 1 && strings.ContainsAny(argv[0], " \t\n|;&<>$`"):
		return fail(RuleCommand, rng, "Command is not split into words",
			fmt.Sprintf("There is no shell: %q would be taken for the name of one program. Write the program and each argument as an element of its own, such as [\"uname\", \"-r\"].", argv[0]))
	}
	return nil
}

// plainText is a primitive value as the text that a plan holds for it. A
// number that is not whole has none: 580.10 would be 580.1.
func plainText(val cty.Value) (string, bool) {
	if val.IsNull() {
		return "", false
	}
	switch val.Type() {
	case cty.String:
		return val.AsString(), true
	case cty.Number:
		return digits(val), val.AsBigFloat().IsInt()
	case cty.Bool:
		return strconv.FormatBool(val.True()), true
	}
	return "", false
}

// digits is a number in decimal, exactly.
func digits(val cty.Value) string { return val.AsBigFloat().Text('f', -1) }

// spelled is the text that val, the value of an argument at expr, stands for.
func (s *scope) spelled(name string, expr hclsyntax.Expression, val cty.Value) (string, *hcl.Diagnostic) {
	if d := s.inexact(fmt.Sprintf("The argument %q", name), expr, val); d != nil {
		return "", d
	}
	text, ok := plainText(val)
	if !ok {
		return "", unsuitable(expr, name, "a text", val, s.ctx)
	}
	return text, nil
}

// inexact refuses a number where a text is wanted, unless its text is what was
// written: 580.10 and 580.1 are one number and two versions.
func (s *scope) inexact(what string, expr hcl.Expression, val cty.Value) *hcl.Diagnostic {
	if val.IsNull() || val.Type() != cty.Number {
		return nil
	}
	text, whole := plainText(val)
	if written, ok := s.writtenNumber(expr); whole && (!ok || written == text) {
		return nil
	}
	if len(text) > 40 {
		text = val.AsBigFloat().Text('g', 17)
	}
	return fail(RuleNumberText, placeOf(expr), "Number where a text is wanted",
		fmt.Sprintf("%s is a text, and a number does not keep how it is written: this one would be %q. Write it in quotes.", what, text))
}

// inexactIn is inexact for every part of val that becomes a text when val is
// converted to t.
func (s *scope) inexactIn(what string, expr hclsyntax.Expression, val cty.Value, t cty.Type) *hcl.Diagnostic {
	if val.IsNull() {
		return nil
	}
	from := val.Type()
	switch {
	case t == cty.String:
		return s.inexact(what, expr, val)
	case (t.IsListType() || t.IsSetType()) && (isSequence(val) || from.IsSetType()):
		for i, e := range elements(expr, val) {
			if d := s.inexactIn(fmt.Sprintf("Element %d of %s", i+1, lowerFirst(what)), e.expr, e.val, t.ElementType()); d != nil {
				return d
			}
		}
	case t.IsTupleType() && isSequence(val) && val.LengthInt() == t.Length():
		for i, e := range elements(expr, val) {
			if d := s.inexactIn(fmt.Sprintf("Element %d of %s", i+1, lowerFirst(what)), e.expr, e.val, t.TupleElementType(i)); d != nil {
				return d
			}
		}
	case (t.IsMapType() || t.IsObjectType()) && (from.IsMapType() || from.IsObjectType()):
		cells, written := val.AsValueMap(), literalCells(expr)
		for _, key := range slices.Sorted(maps.Keys(cells)) {
			inner := cty.DynamicPseudoType
			if t.IsMapType() {
				inner = t.ElementType()
			} else if t.HasAttribute(key) {
				inner = t.AttributeType(key)
			}
			if d := s.inexactIn(fmt.Sprintf("Entry %q of %s", key, lowerFirst(what)), cmp.Or(written[key], expr), cells[key], inner); d != nil {
				return d
			}
		}
	}
	return nil
}

func lowerFirst(text string) string { return strings.ToLower(text[:1]) + text[1:] }

// writtenNumber is how the number is spelled that expr is, where it is nothing
// else.
func (s *scope) writtenNumber(expr hcl.Expression) (string, bool) {
	for {
		switch e := expr.(type) {
		case *metered:
			expr = e.Expression
			continue
		case *hclsyntax.ParenthesesExpr:
			expr = e.Expression
			continue
		case *hclsyntax.UnaryOpExpr:
			if _, literal := e.Val.(*hclsyntax.LiteralValueExpr); !literal {
				return "", false
			}
		case *hclsyntax.LiteralValueExpr:
		default:
			return "", false
		}
		file := s.files[expr.Range().Filename]
		if file == nil || !expr.Range().CanSliceBytes(file.Bytes) {
			return "", false
		}
		return string(expr.Range().SliceBytes(file.Bytes)), true
	}
}
