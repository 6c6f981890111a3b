package runbook

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/rackproof/rackproof/evidence"
)

// owner is who answers for tests.
type owner struct {
	evidence.Owner
	rng  hcl.Range
	used bool
}

// decodeSettings decodes what tests refer to.
func (r *Runbook) decodeSettings() {
	r.decodePeople()
	r.decodeFleet()
	if !r.diags.HasErrors() {
		r.decodeNodesets()
	}
	r.decodePhases()
	r.decodeEvidence()
}

func (r *Runbook) decodePeople() {
	root := Schema()
	schema, _ := root.block("party")
	for _, b := range r.root.blocks["party"] {
		if c, ok := r.content(b.Body, schema); ok {
			title, _ := r.text(c.args["name"])
			r.parties = append(r.parties, evidence.Party{Name: b.Labels[0], Title: title})
		}
	}
	schema, _ = root.block("owner")
	for _, b := range r.root.blocks["owner"] {
		c, ok := r.content(b.Body, schema)
		if !ok {
			continue
		}
		o := &owner{rng: b.DefRange()}
		o.Name = b.Labels[0]
		if attr := c.args["party"]; attr != nil {
			if party, ok := r.reference("party", attr.Expr, "party"); ok {
				o.Party = party.name
			}
		}
		o.Title = r.optionalText(c.args["name"])
		o.Contact, _ = r.text(c.args["contact"])
		o.Key = r.optionalText(c.args["key"])
		r.owners = append(r.owners, o)
	}
}

func (r *Runbook) decodeEvidence() {
	block := r.root.one("evidence")
	if block == nil {
		return
	}
	schema, _ := Schema().block("evidence")
	c, ok := r.content(block.Body, schema)
	if !ok {
		return
	}
	if attr := c.args["capture"]; attr != nil {
		if r.captures.Commands, ok = r.argvs("capture", attr.Expr); ok && len(r.captures.Commands) > 0 {
			r.captures.Deadline = captureDeadline
		}
	}
	if attr := c.args["sample_interval"]; attr != nil {
		r.captures.SampleInterval, _ = r.positive(attr)
		r.sampleRange = attr.Expr.Range()
	}
}

// positive is a duration that is not zero.
func (s *scope) positive(attr *hclsyntax.Attribute) (evidence.Duration, bool) {
	d, ok := s.duration(attr)
	if ok && d == 0 {
		s.add(s.withValues(attr.Expr, fail(RuleZeroDuration, attr.Expr.Range(), "Duration is zero", "The argument \""+attr.Name+"\" has to be longer than nothing.")))
		return 0, false
	}
	return d, ok
}
