package runbook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/rackproof/rackproof/evidence"
)

// member is one entry of a JSON object whose order is that of the Params.
type member struct {
	name  string
	value json.RawMessage
}

func object(members []member) json.RawMessage {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(encode(m.name))
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// encode is v as JSON without HTML escaping. v has strings, bools, slices and
// maps of these, which always encode, and numbers that numberJSON has let
// through.
func encode(v any) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

// extended decodes a body that holds the arguments of schema and params. It
// returns the former as content and the latter as a JSON object in the order
// of params, with defaults filled in. Paths are joined to dir unless it is "".
func (r *Runbook) extended(body *hclsyntax.Body, schema Block, params []evidence.Param, dir string) (content, json.RawMessage, bool) {
	c, ok := r.content(body, withParams(schema, params))
	if !ok {
		return c, nil, false
	}
	config, ok := r.params(c, params, dir)
	return c, config, ok
}

// withParams adds params to the arguments and blocks of schema.
func withParams(schema Block, params []evidence.Param) Block {
	schema.Arguments = slices.Clone(schema.Arguments)
	schema.Blocks = slices.Clone(schema.Blocks)
	for _, p := range params {
		switch p.Type {
		case evidence.ParamBlock, evidence.ParamBlocks:
			b := withParams(Block{Type: p.Name, Doc: p.Doc, Required: p.Required, Single: p.Type == evidence.ParamBlock}, p.Nested)
			if p.Type == evidence.ParamBlocks {
				b.Label = "name"
			}
			schema.Blocks = append(schema.Blocks, b)
		default:
			if _, taken := schema.argument(p.Name); !taken {
				schema.Arguments = append(schema.Arguments, Argument{Name: p.Name, Type: string(p.Type), Doc: p.Doc, Required: p.Required})
			}
		}
	}
	return schema
}

// params encodes the values that c has for params.
func (r *Runbook) params(c content, params []evidence.Param, dir string) (json.RawMessage, bool) {
	var members []member
	ok := true
	for _, p := range params {
		if p.Type == evidence.ParamBlock || p.Type == evidence.ParamBlocks {
			value, good := r.nested(c.blocks[p.Name], p, dir)
			ok = ok && good
			if value != nil {
				members = append(members, member{p.Name, value})
			}
			continue
		}
		attr := c.args[p.Name]
		if attr == nil {
			value, good := r.defaultOf(p, dir)
			ok = ok && good
			if value != nil {
				members = append(members, member{p.Name, value})
			}
			continue
		}
		val, good := r.evaluate(attr.Expr)
		if !good {
			ok = false
			continue
		}
		value, d := r.canonical(p, val, attr.Expr, dir)
		if d != nil {
			r.add(r.withValues(attr.Expr, d))
			ok = false
			continue
		}
		members = append(members, member{p.Name, value})
	}
	return object(members), ok
}

// nested encodes the blocks of a param: an object, or a list of objects with
// the label as "name".
func (r *Runbook) nested(blocks []*hclsyntax.Block, p evidence.Param, dir string) (json.RawMessage, bool) {
	if len(blocks) == 0 {
		return nil, true
	}
	ok := true
	var list []json.RawMessage
	if p.Type == evidence.ParamBlocks {
		before := len(r.diags)
		r.unique(blocks)
		ok = len(r.diags) == before
	}
	for _, b := range blocks {
		c, good := r.content(b.Body, withParams(Block{Type: p.Name}, p.Nested))
		if !good {
			ok = false
			continue
		}
		value, good := r.params(c, p.Nested, dir)
		ok = ok && good
		if p.Type == evidence.ParamBlock {
			return value, ok
		}
		name := append([]byte(`{"name":`), encode(b.Labels[0])...)
		if string(value) != "{}" {
			name = append(name, ',')
		}
		list = append(list, append(name, value[1:]...))
	}
	return encode(list), ok
}

// defaultOf is the canonical JSON of p's default, or nil.
func (r *Runbook) defaultOf(p evidence.Param, dir string) (json.RawMessage, bool) {
	if p.Sampling && r.captures.SampleInterval > 0 {
		r.sampled = true
		return encode(r.captures.SampleInterval.String()), true
	}
	if p.Default == nil {
		return nil, true
	}
	raw := encode(p.Default)
	t, err := ctyjson.ImpliedType(raw)
	if err != nil {
		return nil, true
	}
	val, err := ctyjson.Unmarshal(raw, t)
	if err != nil {
		return nil, true
	}
	// A check that contradicts itself is shown as it is declared; its own
	// Validate sees it.
	value, d := r.canonical(p, val, nil, dir)
	if d != nil {
		return raw, true
	}
	return value, true
}

// canonical is val as the JSON of p's type, in its one spelling. expr is where
// val was written, or nil.
func (s *scope) canonical(p evidence.Param, val cty.Value, expr hclsyntax.Expression, dir string) (json.RawMessage, *hcl.Diagnostic) {
	rng := hcl.Range{}
	if expr != nil {
		rng = expr.Range()
	}
	wrong := func(want string) (json.RawMessage, *hcl.Diagnostic) {
		return nil, fail(RuleType, rng, "Unsuitable value", fmt.Sprintf("The argument %q wants %s, but this is %s.", p.Name, want, kindOf(val)))
	}
	if val.IsNull() {
		return wrong(paramWords[p.Type])
	}
	switch p.Type {
	case evidence.ParamString, evidence.ParamPath:
		if d := s.inexact(fmt.Sprintf("The argument %q", p.Name), expr, val); d != nil {
			return nil, d
		}
		text, ok := plainText(val)
		if !ok {
			return wrong("a text")
		}
		if d := checkEnum(p, text, rng); d != nil {
			return nil, d
		}
		if p.Type == evidence.ParamPath && dir != "" && !filepath.IsAbs(text) && !strings.HasPrefix(text, "~") {
			text = filepath.Join(dir, filepath.FromSlash(text))
		}
		return encode(text), nil
	case evidence.ParamNumber:
		conv, err := convert.Convert(val, cty.Number)
		if err != nil || val.Type() == cty.Bool {
			return wrong("a number" + inUnit(p.Unit))
		}
		return numberJSON(p, conv, rng)
	case evidence.ParamBool:
		conv, err := convert.Convert(val, cty.Bool)
		if err != nil {
			return wrong("true or false")
		}
		return encode(conv.True()), nil
	case evidence.ParamDuration:
		if val.Type() != cty.String {
			return wrong("a duration such as \"30m\"")
		}
		d, err := evidence.ParseDuration(val.AsString())
		if err != nil {
			return nil, fail(RuleDuration, rng, "Unsuitable duration", fmt.Sprintf("The text %q is no duration. Write such as \"90s\", \"30m\", \"72h\" or \"3d\".", val.AsString()))
		}
		if d.Std() > maxDuration {
			return nil, fail(RuleDuration, rng, "Unsuitable duration", tooLong(d))
		}
		return encode(d.String()), nil
	case evidence.ParamBytes:
		n, ok := asBytes(val)
		if !ok {
			return nil, fail(RuleType, rng, "Unsuitable value", fmt.Sprintf("The argument %q wants a size such as \"4KiB\", \"16GiB\" or \"1500B\".", p.Name))
		}
		return encode(evidence.FormatBytes(n)), nil
	case evidence.ParamStrings, evidence.ParamArgv:
		if !isSequence(val) {
			return wrong(paramWords[p.Type])
		}
		list := elements(expr, val)
		texts, d := s.words(p.Name, list)
		if d != nil {
			return nil, d
		}
		for i, text := range texts {
			if d := checkEnum(p, text, placeOf(list[i].expr)); d != nil {
				return nil, d
			}
		}
		if p.Type == evidence.ParamArgv && (len(texts) > 0 || !p.Empty) {
			if d := checkArgv(texts, rng); d != nil {
				return nil, d
			}
		}
		return encode(texts), nil
	case evidence.ParamNumbers:
		if !isSequence(val) && !val.Type().IsSetType() {
			return wrong(paramWords[p.Type])
		}
		return numbersJSON(p, elements(expr, val))
	case evidence.ParamArgvs:
		if !isSequence(val) {
			return wrong(paramWords[p.Type])
		}
		list, d := s.commands(p.Name, elements(expr, val))
		if d != nil {
			return nil, d
		}
		return encode(list), nil
	case evidence.ParamTable:
		rows, d := s.table(p.Name, expr, val)
		if d != nil {
			return nil, d
		}
		return encode(rows), nil
	}
	return wrong(paramWords[p.Type])
}

// paramWords names the types of parameters for a person.
var paramWords = map[evidence.ParamType]string{
	evidence.ParamString:   "a text",
	evidence.ParamPath:     "a path",
	evidence.ParamNumber:   "a number",
	evidence.ParamBool:     "true or false",
	evidence.ParamDuration: "a duration",
	evidence.ParamBytes:    "a size",
	evidence.ParamStrings:  "a list of texts",
	evidence.ParamNumbers:  "a list of numbers",
	evidence.ParamArgv:     "a command, a list of texts such as [\"uname\", \"-r\"]",
	evidence.ParamArgvs:    wantCommands,
	evidence.ParamTable:    "a list of rows",
}

func inUnit(unit string) string {
	if unit == "" {
		return ""
	}
	return " in " + unit
}

func asBytes(val cty.Value) (uint64, bool) {
	switch val.Type() {
	case cty.String:
		n, err := evidence.ParseBytes(val.AsString())
		return n, err == nil
	case cty.Number:
		n, accuracy := val.AsBigFloat().Uint64()
		return n, accuracy == 0
	}
	return 0, false
}

func numberJSON(p evidence.Param, val cty.Value, rng hcl.Range) (json.RawMessage, *hcl.Diagnostic) {
	if p.Whole {
		n, accuracy := val.AsBigFloat().Int64()
		if accuracy != 0 {
			return nil, fail(RuleType, rng, "Unsuitable value", fmt.Sprintf("The argument %q wants a whole number%s, and this is %s.", p.Name, inUnit(p.Unit), val.AsBigFloat().Text('g', 10)))
		}
		return encode(n), nil
	}
	f, ok := finite(val)
	if !ok {
		return nil, fail(RuleValueTooLarge, rng, "Value too large", fmt.Sprintf("The argument %q wants a number that a 64-bit float can hold.", p.Name))
	}
	return encode(f), nil
}

// numbersJSON is a list of numbers.
func numbersJSON(p evidence.Param, list []element) (json.RawMessage, *hcl.Diagnostic) {
	out := []json.RawMessage{}
	for i, e := range list {
		conv, err := convert.Convert(e.val, cty.Number)
		if err != nil || conv.IsNull() || e.val.Type() == cty.Bool {
			return nil, fail(RuleType, placeOf(e.expr), "Unsuitable value", fmt.Sprintf("Each element of the argument %q is a number, but element %d is %s.", p.Name, i+1, kindOf(e.val)))
		}
		number, d := numberJSON(p, conv, placeOf(e.expr))
		if d != nil {
			return nil, d
		}
		out = append(out, number)
	}
	return encode(out), nil
}

func checkEnum(p evidence.Param, text string, rng hcl.Range) *hcl.Diagnostic {
	if len(p.Enum) == 0 || slices.Contains(p.Enum, text) {
		return nil
	}
	return fail(RuleChoice, rng, "Unknown choice", fmt.Sprintf("The argument %q can be %s, and not %q.%s", p.Name, choices(p.Enum), text, didYouMean(text, p.Enum, "%q")))
}
