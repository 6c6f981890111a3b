package runbook

import (
	"fmt"
	"math"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// The limits of what expressions may do. A runbook is a contract of a few
// hundred lines; these are far above any, and low enough that a hostile one
// ends in a second with an error.
const (
	maxWork     = 500_000 // units, of about a microsecond each, for all expressions of a load
	maxElements = 65_536  // of one collection
	maxText     = 4 << 20 // bytes of one text
	longNumber  = 1024    // characters of a number: reading one takes their square
	minExponent = -1024   // binary exponent of a number: below it a 64-bit float has lost most digits
)

// A meter counts the work of evaluation. hclsyntax evaluates without a limit,
// and a text of a hundred bytes can ask for 10^12 steps; so every expression
// that is not a literal is wrapped and charged.
type meter struct {
	work  int
	spent *hcl.Diagnostic // given once the work is used up; the same one each time
}

// use is what happens to a value, and so what its size costs.
type use int

const (
	handed use = iota // copied or compared by what takes it: a little for each element
	looked            // an index or a name is looked up in it: nothing
	looped            // something is done for each element: as much
)

// metered is an expression with a meter. It stands on ParenthesesExpr since
// only that lets hclsyntax see the expression inside when it walks the tree.
type metered struct {
	*hclsyntax.ParenthesesExpr
	meter *meter
	use   use
}

// UnwrapExpression lets hcl.ExprList and its kin see the expression inside.
func (m *metered) UnwrapExpression() hcl.Expression { return m.Expression }

// Value evaluates within the limits.
func (m *metered) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if m.meter.spent != nil {
		return cty.DynamicVal, hcl.Diagnostics{m.meter.spent}
	}
	val, diags := m.Expression.Value(ctx)
	if diags.HasErrors() || !val.IsKnown() || val.IsNull() {
		m.meter.charge(1, m.Range())
		return val, diags
	}
	size, d := measure(val, m.Range())
	if d != nil {
		return cty.DynamicVal, append(diags, d)
	}
	switch m.use {
	case handed:
		size /= 64
	case looked:
		size = 0
	}
	m.meter.charge(1+size, m.Range())
	if m.meter.spent != nil {
		return cty.DynamicVal, append(diags, m.meter.spent)
	}
	return val, diags
}

func (m *meter) charge(units int, rng hcl.Range) {
	m.work += units
	if m.work > maxWork && m.spent == nil {
		m.spent = fail(RuleTooMuchWork, rng, "Expressions ask for too much work",
			"Evaluating this runbook was given up here: its expressions go through too many values. Work out long tables beforehand and read them with csvdecode(file(…)).")
	}
}

// measure is the number of elements or bytes of val, or the limit that it
// exceeds. It looks at val alone and not at what is inside it, since that was
// measured when it was made.
func measure(val cty.Value, rng hcl.Range) (int, *hcl.Diagnostic) {
	t := val.Type()
	switch {
	case t == cty.String:
		text := val.AsString()
		n := len(text)
		if n > longNumber && strings.Trim(text[:longNumber], "0123456789+-.eE") == "" {
			return 0, fail(RuleValueTooLarge, rng, "Value too large", fmt.Sprintf("This reads as a number of more than %d digits.", longNumber))
		}
		if n > maxText {
			return 0, fail(RuleValueTooLarge, rng, "Value too large", fmt.Sprintf("This text has %d bytes. A text in a runbook has at most %d.", n, maxText))
		}
		return n, nil
	case t == cty.Number:
		// The exponent alone would not do: just below 2^1024 a number rounds
		// up to infinity.
		if _, ok := finite(val); !ok || val.AsBigFloat().MantExp(nil) < minExponent {
			return 0, fail(RuleValueTooLarge, rng, "Value too large", "This number is outside of what a 64-bit float can hold.")
		}
		return 0, nil
	case t.IsCollectionType() || t.IsTupleType() || t.IsObjectType():
		n := val.LengthInt()
		if n > maxElements {
			return 0, fail(RuleValueTooLarge, rng, "Value too large", fmt.Sprintf("This collection has %d elements. A collection in a runbook has at most %d.", n, maxElements))
		}
		return n, nil
	}
	return 0, nil
}

// finite is a number as a 64-bit float, where that can hold it.
func finite(val cty.Value) (float64, bool) {
	f, _ := val.AsBigFloat().Float64()
	return f, !math.IsInf(f, 0)
}

// measureAll measures val and everything inside it.
func measureAll(val cty.Value, rng hcl.Range) *hcl.Diagnostic {
	var found *hcl.Diagnostic
	total := 0
	_ = cty.Walk(val, func(_ cty.Path, v cty.Value) (bool, error) {
		if found != nil || !v.IsKnown() || v.IsNull() {
			return false, nil
		}
		total++
		if _, found = measure(v, rng); found == nil && total > 2*maxElements {
			found = fail(RuleValueTooLarge, rng, "Value too large", fmt.Sprintf("This value has more than %d parts in all.", 2*maxElements))
		}
		return found == nil, nil
	})
	return found
}

// install wraps every expression below body.
func (m *meter) install(body *hclsyntax.Body) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, attr := range body.Attributes {
		attr.Expr = m.wrap(attr.Expr, &diags)
	}
	for _, block := range body.Blocks {
		diags = append(diags, m.install(block.Body)...)
	}
	return diags
}

func (m *meter) wrap(e hclsyntax.Expression, diags *hcl.Diagnostics) hclsyntax.Expression {
	return m.wrapAs(e, handed, diags)
}

func (m *meter) wrapAs(e hclsyntax.Expression, use use, diags *hcl.Diagnostics) hclsyntax.Expression {
	each := func(list []hclsyntax.Expression) {
		for i := range list {
			list[i] = m.wrap(list[i], diags)
		}
	}
	switch e := e.(type) {
	case nil:
		return nil
	case *hclsyntax.LiteralValueExpr:
		if e.Val.IsKnown() && !e.Val.IsNull() {
			if _, d := measure(e.Val, e.SrcRange); d != nil {
				*diags = append(*diags, d)
			}
		}
		return e
	case *hclsyntax.AnonSymbolExpr:
		return e // a splat sets its value through this very pointer
	case *hclsyntax.ParenthesesExpr:
		e.Expression = m.wrap(e.Expression, diags)
	case *hclsyntax.RelativeTraversalExpr:
		e.Source = m.wrapAs(e.Source, looked, diags)
	case *hclsyntax.FunctionCallExpr:
		each(e.Args)
	case *hclsyntax.ConditionalExpr:
		e.Condition = m.wrap(e.Condition, diags)
		e.TrueResult = m.wrap(e.TrueResult, diags)
		e.FalseResult = m.wrap(e.FalseResult, diags)
	case *hclsyntax.IndexExpr:
		e.Collection = m.wrapAs(e.Collection, looked, diags)
		e.Key = m.wrap(e.Key, diags)
	case *hclsyntax.TupleConsExpr:
		each(e.Exprs)
	case *hclsyntax.ObjectConsExpr:
		for i := range e.Items {
			e.Items[i].KeyExpr = m.wrap(e.Items[i].KeyExpr, diags)
			e.Items[i].ValueExpr = m.wrap(e.Items[i].ValueExpr, diags)
		}
	case *hclsyntax.ObjectConsKeyExpr:
		if _, bare := e.Wrapped.(*hclsyntax.ScopeTraversalExpr); !bare {
			e.Wrapped = m.wrap(e.Wrapped, diags)
		}
	case *hclsyntax.ForExpr:
		e.CollExpr = m.wrapAs(e.CollExpr, looped, diags)
		e.KeyExpr = m.wrap(e.KeyExpr, diags)
		e.ValExpr = m.wrap(e.ValExpr, diags)
		e.CondExpr = m.wrap(e.CondExpr, diags)
	case *hclsyntax.SplatExpr:
		e.Source = m.wrapAs(e.Source, looped, diags)
		e.Each = m.wrap(e.Each, diags)
	case *hclsyntax.BinaryOpExpr:
		e.LHS = m.wrap(e.LHS, diags)
		e.RHS = m.wrap(e.RHS, diags)
	case *hclsyntax.UnaryOpExpr:
		e.Val = m.wrap(e.Val, diags)
	case *hclsyntax.TemplateExpr:
		each(e.Parts)
	case *hclsyntax.TemplateJoinExpr:
		e.Tuple = m.wrap(e.Tuple, diags)
	case *hclsyntax.TemplateWrapExpr:
		e.Wrapped = m.wrap(e.Wrapped, diags)
	}
	return &metered{
		ParenthesesExpr: &hclsyntax.ParenthesesExpr{Expression: e, SrcRange: e.Range()},
		meter:           m,
		use:             use,
	}
}
