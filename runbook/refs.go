package runbook

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// referenceKinds are the roots of references that are names and not values.
var referenceKinds = map[string]string{
	"party":     "a party",
	"owner":     "an owner",
	"approval":  "an approval",
	"fleet":     "a fleet",
	"nodeset":   "a node set",
	"phase":     "a phase",
	"test":      "a test",
	"threshold": "a threshold",
	"release":   "a release",
	"key":       "a key",
}

// ref is a reference such as phase.node.
type ref struct {
	kind, name string
	rng        hcl.Range
}

func (r ref) String() string { return r.kind + "." + r.name }

// reference reads expr as a reference to one of kinds that is declared.
func (s *scope) reference(arg string, expr hcl.Expression, kinds ...string) (ref, bool) {
	want := make([]string, len(kinds))
	for i, k := range kinds {
		want[i] = example(k, s.symbols[k])
	}
	expects := fmt.Sprintf("The argument %q wants a reference such as %s", arg, join(want, "or"))
	traversal, diags := hcl.AbsTraversalForExpr(expr)
	if diags.HasErrors() {
		s.add(s.notReference(expr, expects, kinds))
		return ref{}, false
	}
	rng := traversal.SourceRange()
	root := traversal.RootName()
	if !slices.Contains(kinds, root) {
		detail := expects + fmt.Sprintf(", and not %s.", traversalName(traversal))
		if _, known := referenceKinds[root]; !known {
			if near := nearest(root, kinds); near != "" {
				detail += fmt.Sprintf(" Did you mean %q?", near)
			}
		}
		s.add(fail(RuleReference, rng, "Unsuitable reference", detail))
		return ref{}, false
	}
	step, ok := attrStep(traversal, 1)
	if !ok || len(traversal) > 2 {
		s.add(fail(RuleReference, rng, "Unsuitable reference", expects+": one name after the dot, and nothing else."))
		return ref{}, false
	}
	if !slices.Contains(s.symbols[root], step.Name) {
		s.add(s.undeclared(root, step.Name, rng))
		return ref{}, false
	}
	return ref{kind: root, name: step.Name, rng: rng}, true
}

// notReference says what expr is instead of a reference.
func (s *scope) notReference(expr hcl.Expression, expects string, kinds []string) *hcl.Diagnostic {
	if call, diags := hcl.ExprCall(expr); !diags.HasErrors() {
		if slices.Contains(laterFunctions, call.Name) {
			return fail(RuleNotYet, expr.Range(), "Not part of this build", notYet(fmt.Sprintf("The function %q", call.Name)))
		}
	}
	if text, ok := literalText(expr); ok {
		detail := expects + ", without quotes."
		for _, k := range kinds {
			if name := strings.TrimPrefix(text, k+"."); slices.Contains(s.symbols[k], name) {
				detail = fmt.Sprintf("References are not quoted, so that they can be checked. Write %s.%s.", k, name)
				break
			}
		}
		return fail(RuleReference, expr.Range(), "Quoted reference", detail)
	}
	return fail(RuleReference, expr.Range(), "Unsuitable reference", expects+", and not an expression.")
}

// literalText is the text of a quoted literal without interpolation.
func literalText(expr hcl.Expression) (string, bool) {
	inner := hcl.UnwrapExpressionUntil(expr, func(e hcl.Expression) bool {
		_, ok := e.(*hclsyntax.TemplateExpr)
		return ok
	})
	t, ok := inner.(*hclsyntax.TemplateExpr)
	if !ok || !t.IsStringLiteral() {
		return "", false
	}
	val, diags := t.Value(nil)
	if diags.HasErrors() || val.Type() != cty.String {
		return "", false
	}
	return val.AsString(), true
}

// references reads a written-out list of references, without repetition.
func (s *scope) references(arg string, expr hclsyntax.Expression, kinds ...string) ([]ref, bool) {
	items, diags := hcl.ExprList(expr)
	if diags.HasErrors() {
		s.add(fail(RuleReference, expr.Range(), "Unsuitable reference",
			fmt.Sprintf("The argument %q wants a list of references, written out, such as [%s].", arg, example(kinds[0], s.symbols[kinds[0]]))))
		return nil, false
	}
	refs, ok := make([]ref, 0, len(items)), true
	for _, item := range items {
		r, good := s.reference(arg, item, kinds...)
		if !good {
			ok = false
			continue
		}
		if slices.ContainsFunc(refs, func(o ref) bool { return o.String() == r.String() }) {
			s.add(fail(RuleRepeated, r.rng, "Repeated reference", fmt.Sprintf("%s is in this list already.", r)))
			ok = false
			continue
		}
		refs = append(refs, r)
	}
	return refs, ok
}

func refNames(refs []ref) []string {
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.name
	}
	return names
}

// order sorts names so that each follows those it depends on, and keeps their
// order otherwise. If that cannot be, cycle is a way around, which begins and
// ends with its first name in the order given.
func order(names []string, dependsOn map[string][]string) (out, cycle []string) {
	const (
		open = 1
		done = 2
	)
	state := map[string]int{}
	// An explicit stack: a chain may be as long as the file has lines.
	type frame struct {
		name string
		next int
	}
	for _, root := range names {
		if state[root] != 0 {
			continue
		}
		stack := []frame{{name: root}}
		state[root] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.next == len(dependsOn[top.name]) {
				state[top.name] = done
				out = append(out, top.name)
				stack = stack[:len(stack)-1]
				continue
			}
			dep := dependsOn[top.name][top.next]
			top.next++
			switch state[dep] {
			case open:
				for i := range stack {
					if stack[i].name == dep {
						for _, f := range stack[i:] {
							cycle = append(cycle, f.name)
						}
						return nil, rotate(cycle, names)
					}
				}
			case 0:
				state[dep] = open
				stack = append(stack, frame{name: dep})
			}
		}
	}
	return out, nil
}

// rotate makes the cycle begin with its member that is first in names, and
// closes it.
func rotate(cycle, names []string) []string {
	first := 0
	for i, c := range cycle {
		if slices.Index(names, c) < slices.Index(names, cycle[first]) {
			first = i
		}
	}
	turned := append(slices.Clone(cycle[first:]), cycle[:first]...)
	return append(turned, turned[0])
}
