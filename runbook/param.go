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
		out.Write(textJSON(m.name))
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes()
}

func textJSON(text string) json.RawMessage { return encode(text) }

// encode is v as JSON without HTML escaping. v has strings, finite numbers,
// bools, slices and maps of these, which always encode.
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
	own := len(schema.Arguments)
	whole := withParams(schema, params)
	c, ok := r.content(body, whole)
	if !ok {
		return c, nil, false
	}
	config, ok := r.params(c, params, schema.Arguments[:own], dir)
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

// params encodes the values that c has for params; own are the arguments that
// are not the params' business unless they are declared there too.
func (r *Runbook) params(c content, params []evidence.Param, own []Argument, dir string) (json.RawMessage, bool) {
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
		value, d := canonical(p, val, attr.Expr, dir)
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
		value, good := r.params(c, p.Nested, nil, dir)
		ok = ok && good
		if p.Type == evidence.ParamBlock {
			return value, ok
		}
		name := append([]byte(`{"name":`), textJSON(b.Labels[0])...)
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
	value, d := canonical(p, val, nil, dir)
	if d != nil {
		return raw, true
	}
	return value, true
}

// canonical is val as the JSON of p's type, in its one spelling. expr is where
// val was written, or nil.
func canonical(p evidence.Param, val cty.Value, expr hclsyntax.Expression, dir string) (json.RawMessage, *hcl.Diagnostic) {
	rng := hcl.Range{}
	if expr != nil {
		rng = expr.Range()
	}
	wrong := func(want string) (json.RawMessage, *hcl.Diagnostic) {
		is := "null"
		if !val.IsNull() {
			is = kindOf(val.Type())
		}
		return nil, fail(RuleType, rng, "Unsuitable value", fmt.Sprintf("The argument %q wants %s, but this is %s.", p.Name, want, is))
	}
	if val.IsNull() {
		return wrong(paramWords[p.Type])
	}
	switch p.Type {
	case evidence.ParamString, evidence.ParamPath:
		text, ok := asText(val)
		if !ok {
			return wrong("a text")
		}
		if d := checkEnum(p, text, rng); d != nil {
			return nil, d
		}
		if p.Type == evidence.ParamPath && dir != "" && !filepath.IsAbs(text) && !strings.HasPrefix(text, "~") {
			text = filepath.Join(dir, filepath.FromSlash(text))
		}
		return textJSON(text), nil
	case evidence.ParamNumber:
		conv, err := convert.Convert(val, cty.Number)
		if err != nil || val.Type() == cty.Bool {
			return wrong("a number" + inUnit(p.Unit))
		}
		return numberJSON(conv), nil
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
		return textJSON(d.String()), nil
	case evidence.ParamBytes:
		n, ok := asBytes(val)
		if !ok {
			return nil, fail(RuleType, rng, "Unsuitable value", fmt.Sprintf("The argument %q wants a size such as \"4KiB\", \"16GiB\" or \"1500B\".", p.Name))
		}
		return textJSON(evidence.FormatBytes(n)), nil
	case evidence.ParamStrings:
		texts, problem := argvOf(val)
		if problem {
			return wrong("a list of texts")
		}
		for _, text := range texts {
			if d := checkEnum(p, text, rng); d != nil {
				return nil, d
			}
		}
		return encode(orEmpty(texts)), nil
	case evidence.ParamNumbers:
		return numbersJSON(val, wrong)
	case evidence.ParamArgvs:
		return argvsJSON(val, rng, wrong)
	case evidence.ParamTable:
		rows, problem := tableOf(val)
		if problem != "" {
			return nil, fail(RuleType, rng, "Unsuitable value", fmt.Sprintf("The argument %q wants a list of rows, usually csvdecode(file(…)): %s", p.Name, problem))
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
	evidence.ParamArgvs:    "a list of commands",
	evidence.ParamTable:    "a list of rows",
}

func inUnit(unit string) string {
	if unit == "" {
		return ""
	}
	return " in " + unit
}

func orEmpty(texts []string) []string {
	if texts == nil {
		return []string{}
	}
	return texts
}

func asText(val cty.Value) (string, bool) {
	if !val.Type().IsPrimitiveType() {
		return "", false
	}
	return plainText(val)
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

func numberJSON(val cty.Value) json.RawMessage {
	f, _ := val.AsBigFloat().Float64()
	return encode(f)
}

func numbersJSON(val cty.Value, wrong func(string) (json.RawMessage, *hcl.Diagnostic)) (json.RawMessage, *hcl.Diagnostic) {
	t := val.Type()
	if !t.IsTupleType() && !t.IsListType() && !t.IsSetType() {
		return wrong("a list of numbers")
	}
	list := []json.RawMessage{}
	for _, v := range val.AsValueSlice() {
		conv, err := convert.Convert(v, cty.Number)
		if err != nil || conv.IsNull() || v.Type() == cty.Bool {
			return wrong("a list of numbers")
		}
		list = append(list, numberJSON(conv))
	}
	return encode(list), nil
}

func argvsJSON(val cty.Value, rng hcl.Range, wrong func(string) (json.RawMessage, *hcl.Diagnostic)) (json.RawMessage, *hcl.Diagnostic) {
	t := val.Type()
	if !t.IsTupleType() && !t.IsListType() {
		return wrong("a list of commands")
	}
	list := [][]string{}
	for _, v := range val.AsValueSlice() {
		argv, problem := argvOf(v)
		if problem {
			return wrong("a list of commands, each a list of texts")
		}
		if d := checkArgv(argv, rng); d != nil {
			return nil, d
		}
		list = append(list, argv)
	}
	return encode(list), nil
}

func checkEnum(p evidence.Param, text string, rng hcl.Range) *hcl.Diagnostic {
	if len(p.Enum) == 0 || slices.Contains(p.Enum, text) {
		return nil
	}
	return fail(RuleChoice, rng, "Unknown choice", fmt.Sprintf("The argument %q can be %s, and not %q.%s", p.Name, choices(p.Enum), text, didYouMean(text, p.Enum, "%q")))
}
