package runbook

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// release is a release rule with what is needed to point at it.
type release struct {
	evidence.Release
	nodes   []string
	require []ref
}

func (r *Runbook) decodeReleases() {
	schema, _ := Schema().block("release")
	for _, b := range r.root.blocks["release"] {
		c, ok := r.content(b.Body, schema)
		if !ok {
			continue
		}
		l := &release{}
		l.Name = b.Labels[0]
		if to, ok := r.reference("nodes", c.args["nodes"].Expr, "fleet", "nodeset"); ok {
			l.nodes = r.nodesOf(to)
		}
		refs, ok := r.references("require", c.args["require"].Expr, "phase")
		if ok && len(refs) == 0 {
			r.add(fail(RuleReleaseEmpty, c.args["require"].Expr.Range(), "Release requires nothing", "A release that requires no phase would release any rack. Name the phases that must pass."))
		}
		l.require = refs
		l.Require = refNames(refs)
		if attr := c.args["waivers"]; attr != nil {
			if n, ok := r.whole(attr, 0); ok && n > 0 {
				r.add(fail(RuleNotYet, attr.Expr.Range(), "Not part of this build", notYet("A number of waivers above 0")))
			}
		}
		r.releases = append(r.releases, l)
	}
}

// checkWhole checks the rules about the runbook as a whole.
func (r *Runbook) checkWhole() {
	r.checkExpect()
	r.checkLabels()
	r.checkPhases()
	for _, o := range r.owners {
		if !o.used {
			r.add(warn(RuleUnusedOwner, o.rng, "Owner without a test", fmt.Sprintf("No test names owner.%s. Remove the block, or give the owner the tests that they answer for.", o.Name)))
		}
	}
	if r.captures.SampleInterval > 0 && !r.sampled {
		r.add(fail(RuleNothingSampled, r.sampleRange, "Nothing is sampled",
			"No test samples anything at this interval: either its check does not, or it says so itself. Remove the argument, or add a test that samples."))
	}
	for _, l := range r.releases {
		r.checkRelease(l)
	}
}

// checkRelease refuses a release of nodes that a required phase never touches:
// the judge wants something found about each of them in each phase.
func (r *Runbook) checkRelease(l *release) {
	for _, to := range l.require {
		i := slices.IndexFunc(r.phases, func(p *phase) bool { return p.Name == to.name })
		if i < 0 || r.phases[i].tests == 0 {
			continue // reported as a phase without tests
		}
		missing := slices.DeleteFunc(slices.Clone(l.nodes), func(n string) bool { return r.phases[i].nodes[n] })
		if len(missing) > 0 {
			r.add(fail(RuleReleaseUnmeasured, to.rng, "Release can never be given",
				fmt.Sprintf("No test of phase %q runs on %s of release %q, so the phase says nothing about them: %s. Add a test, release fewer nodes, or do not require the phase.", to.name, evidence.Count(len(missing), "node"), l.Name, nodeset.Fold(missing))))
		}
	}
}

// number is f in its shortest decimal form.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// here is the beginning of the file, for what concerns it as a whole.
func (r *Runbook) here() hcl.Range {
	return hcl.Range{Filename: r.base, Start: hcl.InitialPos, End: hcl.InitialPos}
}
