package runbook

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/rackproof/rackproof/evidence"
)

// phase is a phase with what is needed to point at it.
type phase struct {
	evidence.Phase
	rng       hcl.Range
	dependsOn *hclsyntax.Attribute
	require   *hclsyntax.Attribute
	nodes     map[string]bool // of its tests
	tests     int
}

func (r *Runbook) decodePhases() {
	schema, _ := Schema().block("phase")
	gate, _ := schema.block("gate")
	for _, b := range r.root.blocks["phase"] {
		c, ok := r.content(b.Body, schema)
		if !ok {
			continue
		}
		p := &phase{rng: b.DefRange(), dependsOn: c.args["depends_on"], nodes: map[string]bool{}}
		p.Name = b.Labels[0]
		p.Gate = evidence.Gate{Require: "all", OnFail: "continue"}
		if p.dependsOn != nil {
			refs, _ := r.references("depends_on", p.dependsOn.Expr, "phase")
			p.DependsOn = refNames(refs)
		}
		if g := c.one("gate"); g != nil {
			if inside, ok := r.content(g.Body, gate); ok {
				r.decodeGate(p, inside)
			}
		}
		r.phases = append(r.phases, p)
	}
	if r.diags.HasErrors() {
		return
	}
	r.orderPhases()
}

func (r *Runbook) decodeGate(p *phase, c content) {
	if attr := c.args["on_fail"]; attr != nil {
		if word, ok := r.enum(attr, []string{"stop", "continue", "exclude"}); ok {
			p.Gate.OnFail = word
		}
	}
	p.require = c.args["require"]
	if p.require == nil {
		return
	}
	val, ok := r.evaluate(p.require.Expr)
	if !ok {
		return
	}
	text, plain := plainText(val)
	form := evidence.Gate{Require: text}
	if _, err := form.Needed(1); err != nil || !plain || val.Type() == cty.Bool || !canonicalRequire(text) {
		r.add(r.withValues(p.require.Expr, fail(RuleGateRequire, p.require.Expr.Range(), "Unsuitable gate",
			"The argument \"require\" is \"all\", a whole number of nodes from 1, or a share from \"1%\" to \"100%\".")))
		return
	}
	p.Gate.Require = text
}

// canonicalRequire refuses the spellings that only strconv would accept.
func canonicalRequire(text string) bool {
	number := strings.TrimSuffix(text, "%")
	n, err := strconv.Atoi(number)
	return text == "all" || err == nil && strconv.Itoa(n) == number
}

// orderPhases sorts the phases so that each follows those it depends on.
func (r *Runbook) orderPhases() {
	byName := map[string]*phase{}
	needs := map[string][]string{}
	var names []string
	for _, p := range r.phases {
		byName[p.Name] = p
		needs[p.Name] = p.DependsOn
		names = append(names, p.Name)
	}
	ordered, cycle := order(names, needs)
	if cycle != nil {
		p := byName[cycle[0]]
		r.add(fail(RuleCycle, p.dependsOn.Expr.Range(), "Dependency cycle",
			cycleDetail("These phases wait for each other, so none of them can start:", "phase.", cycle, "Remove one of these depends_on entries.")))
		return
	}
	r.phases = r.phases[:0]
	for _, name := range ordered {
		r.phases = append(r.phases, byName[name])
	}
}

// checkPhases looks at the phases once all tests are known.
func (r *Runbook) checkPhases() {
	for _, p := range r.phases {
		if p.tests == 0 {
			r.add(fail(RuleEmptyPhase, p.rng, "Phase without tests",
				fmt.Sprintf("No test belongs to phase %q, so it would be passed by doing nothing. Give it a test, or remove it and what refers to it.", p.Name)))
			continue
		}
		needed, err := p.Gate.Needed(len(p.nodes))
		if err == nil && p.require != nil && needed > len(p.nodes) {
			r.add(r.withValues(p.require.Expr, fail(RuleGateImpossible, p.require.Expr.Range(), "Gate can never be met",
				fmt.Sprintf("The gate wants %s to pass, but the tests of phase %q run on %d, so it would never be met.", evidence.Count(needed, "node"), p.Name, len(p.nodes)))))
		}
	}
}
