package runbook

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// content is the body of a block, sorted by name.
type content struct {
	args   map[string]*hclsyntax.Attribute
	blocks map[string][]*hclsyntax.Block // in the order of the text
}

// one is the single block of a type, or nil.
func (c content) one(typ string) *hclsyntax.Block {
	if blocks := c.blocks[typ]; len(blocks) > 0 {
		return blocks[0]
	}
	return nil
}

// identifier is the form of every name: names become paths and references.
var identifier = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

const maxIdentifier = 63

// content sorts body by schema s and reports what does not belong there. ok is
// false where something required is missing.
func (s *scope) content(body *hclsyntax.Body, schema Block) (content, bool) {
	c := content{args: map[string]*hclsyntax.Attribute{}, blocks: map[string][]*hclsyntax.Block{}}
	before := len(s.diags)
	for _, attr := range attributes(body) {
		if schema.Open != "" {
			c.args[attr.Name] = attr
			continue
		}
		arg, ok := schema.argument(attr.Name)
		switch {
		case !ok:
			s.add(s.unknownArgument(attr, schema))
		case arg.Later:
			s.add(fail(RuleNotYet, attr.NameRange, "Not part of this build", notYet(fmt.Sprintf("The argument %q of %s block", attr.Name, article(schema.Type)))))
		default:
			c.args[attr.Name] = attr
		}
	}
	for _, block := range body.Blocks {
		sub, ok := schema.block(block.Type)
		switch {
		case !ok:
			s.add(s.unknownBlock(block, schema))
		case sub.Later:
			s.add(fail(RuleNotYet, block.DefRange(), "Not part of this build", notYet(fmt.Sprintf("The block %q", block.Type))))
		case s.labels(block, sub):
			if first := c.one(block.Type); first != nil && sub.Single {
				s.add(fail(RuleDuplicateBlock, block.DefRange(), fmt.Sprintf("Duplicate %s block", block.Type),
					fmt.Sprintf("Only one %s block is allowed here. Another is on line %d.", block.Type, first.TypeRange.Start.Line)))
				continue
			}
			c.blocks[block.Type] = append(c.blocks[block.Type], block)
		}
	}
	for _, arg := range schema.Arguments {
		if arg.Required && body.Attributes[arg.Name] == nil {
			s.add(fail(RuleMissingArgument, body.MissingItemRange(), "Missing required argument",
				fmt.Sprintf("The argument %q is required, but no definition was found.", arg.Name)))
		}
	}
	for _, sub := range schema.Blocks {
		if sub.Required && !slices.ContainsFunc(body.Blocks, func(b *hclsyntax.Block) bool { return b.Type == sub.Type }) {
			s.add(missingBlock(body, schema, sub))
		}
	}
	for _, d := range s.diags[before:] {
		if d.Severity == hcl.DiagError {
			return c, false
		}
	}
	return c, true
}

// attributes are the attributes of body in the order of the text.
func attributes(body *hclsyntax.Body) []*hclsyntax.Attribute {
	list := make([]*hclsyntax.Attribute, 0, len(body.Attributes))
	for _, attr := range body.Attributes {
		list = append(list, attr)
	}
	slices.SortFunc(list, func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.SrcRange.Start.Byte, b.SrcRange.Start.Byte)
	})
	return list
}

func missingBlock(body *hclsyntax.Body, schema, sub Block) *hcl.Diagnostic {
	form := sub.Type
	if sub.Label != "" {
		form += fmt.Sprintf(" %q", sub.Label)
	}
	where := "This file"
	if schema.Type != "" {
		where = fmt.Sprintf("This %s block", schema.Type)
	}
	detail := fmt.Sprintf("%s needs a block %s { … }.", where, form)
	if schema.Type == "" && sub.Type == "test" {
		detail += " A runbook without a test measures nothing, so it would accept any rack."
	}
	return fail(RuleMissingBlock, body.MissingItemRange(), fmt.Sprintf("Missing %s block", sub.Type), detail)
}

// notYet is the detail of every refusal of a later piece.
func notYet(what string) string {
	return what + " is part of the language, and not yet of this build of rackproof. It is refused, since a piece that is ignored would change what the runbook means. Remove it, or use a later release."
}

func article(typ string) string {
	if typ == "" {
		return "the file"
	}
	if strings.ContainsRune("aeiou", rune(typ[0])) {
		return "an " + typ
	}
	return "a " + typ
}

func (s *scope) unknownArgument(attr *hclsyntax.Attribute, schema Block) *hcl.Diagnostic {
	if _, isBlock := schema.block(attr.Name); isBlock {
		return fail(RuleUnsupportedArgument, attr.NameRange, "Unsupported argument",
			fmt.Sprintf("An argument named %q is not expected here. Did you mean to define a block of type %q?", attr.Name, attr.Name))
	}
	var names []string
	for _, a := range schema.Arguments {
		names = append(names, a.Name)
	}
	detail := fmt.Sprintf("An argument named %q is not expected here.", attr.Name)
	if hint := didYouMean(attr.Name, names, "%q"); hint != "" {
		detail += hint
	} else if len(names) > 0 {
		detail += listed(fmt.Sprintf("The arguments of %s are:", article(schema.Type)), names)
	}
	return fail(RuleUnsupportedArgument, attr.NameRange, "Unsupported argument", detail)
}

func (s *scope) unknownBlock(block *hclsyntax.Block, schema Block) *hcl.Diagnostic {
	if _, isArg := schema.argument(block.Type); isArg {
		return fail(RuleUnsupportedBlock, block.TypeRange, "Unsupported block type",
			fmt.Sprintf("Blocks of type %q are not expected here. Did you mean to define argument %q? If so, use the equals sign to assign it a value.", block.Type, block.Type))
	}
	if block.Type == "dynamic" || block.Type == "module" || block.Type == "include" || block.Type == "import" {
		return fail(RuleUnsupportedBlock, block.TypeRange, "Unsupported block type",
			fmt.Sprintf("There is no %s block: a runbook is a contract, and is read from top to bottom in one file.", block.Type))
	}
	var names []string
	for _, b := range schema.Blocks {
		names = append(names, b.Type)
	}
	detail := fmt.Sprintf("Blocks of type %q are not expected here.", block.Type)
	if hint := didYouMean(block.Type, names, "%q"); hint != "" {
		detail += hint
	} else {
		detail += listed(fmt.Sprintf("The blocks of %s are:", article(schema.Type)), names)
	}
	return fail(RuleUnsupportedBlock, block.TypeRange, "Unsupported block type", detail)
}

// labels checks the number and the form of a block's labels.
func (s *scope) labels(block *hclsyntax.Block, schema Block) bool {
	want := 0
	if schema.Label != "" {
		want = 1
	}
	switch {
	case len(block.Labels) < want:
		s.add(fail(RuleLabel, block.DefRange(), fmt.Sprintf("Missing %s for %s", schema.Label, block.Type),
			fmt.Sprintf("All %s blocks must have 1 label (%s).", block.Type, schema.Label)))
		return false
	case len(block.Labels) > want:
		expect := "no labels"
		if want == 1 {
			expect = fmt.Sprintf("only 1 label (%s)", schema.Label)
		}
		s.add(fail(RuleLabel, block.LabelRanges[want], fmt.Sprintf("Extraneous label for %s", block.Type),
			fmt.Sprintf("%s may be written for %s blocks.", strings.ToUpper(expect[:1])+expect[1:], block.Type)))
		return false
	}
	if schema.Label == "name" {
		return s.goodName(block.Labels[0], block.LabelRanges[0], block.Type)
	}
	return true
}

// goodName checks the form of a name.
func (s *scope) goodName(name string, rng hcl.Range, what string) bool {
	if identifier.MatchString(name) && len(name) <= maxIdentifier {
		return true
	}
	detail := fmt.Sprintf("The name %q cannot be used: a name of %s begins with a letter from a to z and goes on with such letters, digits and \"_\", at most %d in all, since it becomes part of paths and of references.", name, article(what), maxIdentifier)
	if fixed := nameFrom(name); fixed != "" && fixed != name {
		detail += fmt.Sprintf(" For example, write %q.", fixed)
	}
	s.add(fail(RuleName, rng, "Unsuitable name", detail))
	return false
}

// nameFrom makes a name from text, or "".
func nameFrom(text string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9' && out.Len() > 0:
			out.WriteRune(r)
		case out.Len() > 0 && !strings.HasSuffix(out.String(), "_"):
			out.WriteByte('_')
		}
		if out.Len() == maxIdentifier {
			break
		}
	}
	return strings.TrimRight(out.String(), "_")
}

// unique reports every block whose label repeats that of an earlier one.
func (s *scope) unique(blocks []*hclsyntax.Block) {
	first := map[string]*hclsyntax.Block{}
	for _, b := range blocks {
		name := b.Labels[0]
		if other, twice := first[name]; twice {
			article := "A"
			if strings.ContainsAny(b.Type[:1], "aeiou") {
				article = "An"
			}
			s.add(fail(RuleDuplicateName, b.LabelRanges[0], fmt.Sprintf("Duplicate %s name", b.Type),
				fmt.Sprintf("%s %s named %q is declared on line %d already. Each %s needs a name of its own.", article, b.Type, name, other.TypeRange.Start.Line, b.Type)))
			continue
		}
		first[name] = b
	}
}

// symbolsOf are the labels of blocks.
func symbolsOf(blocks []*hclsyntax.Block) []string {
	var names []string
	for _, b := range blocks {
		names = append(names, b.Labels[0])
	}
	return names
}
