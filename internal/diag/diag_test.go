package diag

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

const sample = `test "bandwidth" {
  min = local.floor
  max = 350
  hosts = "gpu[017-032"
}
`

type rule string

func (r rule) RuleID() string { return string(r) }

// wrapped is an extra around another, as hcl allows it.
type wrapped struct{ inner any }

func (w wrapped) UnwrapDiagnosticExtra() any { return w.inner }

func parsed(t *testing.T, src string) (map[string]*hcl.File, *hclsyntax.Body) {
	t.Helper()
	file, diags := hclsyntax.ParseConfig([]byte(src), "x.runbook.hcl", hcl.InitialPos)
	if body, ok := file.Body.(*hclsyntax.Body); ok {
		return map[string]*hcl.File{"x.runbook.hcl": file}, body
	}
	t.Fatal(diags)
	return nil, nil
}

// neverMet is a diagnostic with everything that one can have.
func neverMet(t *testing.T) (hcl.Diagnostics, map[string]*hcl.File) {
	files, body := parsed(t, sample)
	test := body.Blocks[0]
	low, high := test.Body.Attributes["min"], test.Body.Attributes["max"]
	subject, context := low.Expr.Range(), hcl.RangeOver(low.SrcRange, high.SrcRange)
	return hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "Threshold can never be met",
		Detail:  "The lower bound, 368 GB/s, is above the upper bound, 350 GB/s, so every rack would fail.\n\n    copy this line as it is, however long it may be, since somebody will\n\nThen mend it.",
		Subject: &subject, Context: &context,
		Expression:  low.Expr,
		EvalContext: &hcl.EvalContext{Variables: map[string]cty.Value{"local": cty.ObjectVal(map[string]cty.Value{"floor": cty.NumberFloatVal(368)})}},
		Extra:       wrapped{rule("never-met")},
	}}, files
}

func rendered(t *testing.T, diags hcl.Diagnostics, files map[string]*hcl.File, color bool, width int) string {
	t.Helper()
	var out bytes.Buffer
	if err := Text(&out, diags, files, color, width); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestText(t *testing.T) {
	diags, files := neverMet(t)
	same(t, rendered(t, diags, files, false, 60), `╷
│ Error: Threshold can never be met
│
│   on x.runbook.hcl line 2, in test "bandwidth":
│    2:   min = local.floor
│               ^^^^^^^^^^^
│    3:   max = 350
│     ├────────────────
│     │ local.floor is 368
│
│ The lower bound, 368 GB/s, is above the upper bound, 350
│ GB/s, so every rack would fail.
│
│     copy this line as it is, however long it may be, since somebody will
│
│ Then mend it.
╵
`)
}

func TestTextColor(t *testing.T) {
	diags, files := neverMet(t)
	got := rendered(t, diags, files, true, 60)
	if !strings.Contains(got, "min = \x1b[4mlocal.floor\x1b[0m\n") {
		t.Errorf("the place is not underlined:\n%q", got)
	}
	if strings.Contains(got, "^") {
		t.Errorf("carets beside colour:\n%s", got)
	}
	// Without its codes the text is the plain one without carets.
	bare := got
	for _, code := range []string{reset, bold, underline, red, yellow, dim} {
		bare = strings.ReplaceAll(bare, code, "")
	}
	plain := rendered(t, diags, files, false, 60)
	same(t, bare, strings.Replace(plain, "│               ^^^^^^^^^^^\n", "", 1))
}

func TestTextWithoutSource(t *testing.T) {
	same(t, rendered(t, hcl.Diagnostics{
		{Severity: hcl.DiagWarning, Summary: "Nothing here", Detail: "No place at all."},
		{Severity: hcl.DiagError, Summary: "Elsewhere", Subject: &hcl.Range{Filename: "gone.hcl", Start: hcl.Pos{Line: 7, Column: 1, Byte: 90}}},
	}, nil, false, 0), `╷
│ Warning: Nothing here
│
│ No place at all.
╵
╷
│ Error: Elsewhere
│
│   on gone.hcl line 7
╵
`)
}

// TestPlaces renders a subject at every pair of offsets, also outside of the
// file: no panic, and the marked text is what lies between.
func TestPlaces(t *testing.T) {
	files, _ := parsed(t, sample)
	lines := strings.Split(sample, "\n")
	for from := range len(sample) + 3 {
		for to := from - 1; to < len(sample)+3; to++ {
			line := 1 + strings.Count(sample[:min(from, len(sample))], "\n")
			d := &hcl.Diagnostic{Subject: &hcl.Range{Filename: "x.runbook.hcl", Start: hcl.Pos{Line: line, Column: 1, Byte: from}, End: hcl.Pos{Line: line, Column: 1, Byte: to}}}
			one := From(hcl.Diagnostics{d}, files)[0]
			marked, carets := "", 0
			for i, l := range one.Snippet.Lines {
				if got := l.Before + l.Marked + l.After; got != lines[line-1+i] || l.Number != line+i {
					t.Fatalf("%d-%d: line %d is %q", from, to, l.Number, got)
				}
				marked += l.Marked
				if l.Caret {
					carets++
				}
			}
			want := ""
			if from < to {
				want = strings.ReplaceAll(sample[min(from, len(sample)):min(to, len(sample))], "\n", "")
			}
			if marked != want || marked == "" && carets == 0 {
				t.Fatalf("%d-%d: marked %q with %d carets, want %q", from, to, marked, carets, want)
			}
		}
	}
}

// TestHostile: what a file holds cannot move the cursor, reorder the text or
// fill the screen.
func TestHostile(t *testing.T) {
	src := "a = \"\x1b[2J\u202egnp.exe\r\t\x01\" # " + strings.Repeat("long ", 10_000) + "\n"
	file := &hcl.File{Bytes: []byte(src + "\xff\xfe")}
	d := &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: "A \x1b[31mred\u2028summary", Detail: "A \x1b]0;title\x07 detail",
		Subject: &hcl.Range{Filename: "x\x1b.hcl", Start: hcl.Pos{Line: 1, Column: 5, Byte: 4}, End: hcl.Pos{Line: 1, Column: 9, Byte: len(src) + 2}},
	}
	got := rendered(t, hcl.Diagnostics{d}, map[string]*hcl.File{"x\x1b.hcl": file}, false, 78)
	for _, r := range got {
		if r != '\n' && r < ' ' || r == '\u202e' || r == '\u2028' || r == utf8.RuneError {
			t.Fatalf("%q is in the output:\n%q", r, got)
		}
	}
	for _, want := range []string{`\x1b[2J\u202egnp.exe\r \x01`, `A \x1b[31mred\u2028summary`, `\xff\xfe`, `x\x1b.hcl`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in the output:\n%s", want, got)
		}
	}
	if len(got) > 3000 {
		t.Errorf("the output has %d bytes", len(got))
	}
}

func TestManyLines(t *testing.T) {
	src := strings.Repeat("line\n", 1000)
	d := &hcl.Diagnostic{Subject: &hcl.Range{Filename: "x", Start: hcl.Pos{Line: 3, Column: 1, Byte: 10}, End: hcl.Pos{Line: 999, Column: 1, Byte: len(src)}}}
	one := From(hcl.Diagnostics{d}, map[string]*hcl.File{"x": {Bytes: []byte(src)}})[0]
	if len(one.Snippet.Lines) != maxLines || one.Snippet.Lines[0].Number != 3 {
		t.Errorf("%d lines from %d", len(one.Snippet.Lines), one.Snippet.Lines[0].Number)
	}
}

func TestValues(t *testing.T) {
	expr, diags := hclsyntax.ParseExpression([]byte(`[local.text, local.list, local.object.gone, local.yes, local.null, local.big, var.a["k"], local.text, nothing]`), "x", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	d := &hcl.Diagnostic{
		Subject: &hcl.Range{Filename: "x", Start: hcl.InitialPos, End: hcl.InitialPos}, Expression: expr,
		EvalContext: &hcl.EvalContext{Variables: map[string]cty.Value{
			"local": cty.ObjectVal(map[string]cty.Value{
				"text":   cty.StringVal(strings.Repeat("x", 100) + "\n"),
				"list":   cty.TupleVal([]cty.Value{cty.True}),
				"object": cty.ObjectVal(map[string]cty.Value{"a": cty.True, "b": cty.True}),
				"yes":    cty.True,
				"null":   cty.NullVal(cty.String),
				"big":    cty.MustParseNumberVal("1e400"),
			}),
			"var": cty.ObjectVal(map[string]cty.Value{"a": cty.MapVal(map[string]cty.Value{"k": cty.StringVal("v")})}),
		}},
	}
	var got []string
	for _, v := range From(hcl.Diagnostics{d}, map[string]*hcl.File{"x": {Bytes: []byte("x")}})[0].Snippet.Values {
		got = append(got, v.Traversal+" "+v.Statement)
	}
	want := []string{
		"local.big is 1e+400", "local.list is a list with 1 element", "local.null is null", "local.object is an object with 2 attributes",
		`local.text is "` + strings.Repeat("x", 80) + `…"`, "local.yes is true", `var.a["k"] is "v"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWrap(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{
		{"one two three", 7, "one two|three"},
		{"one two three", 0, "one two three"},
		{"one two three", -2, "one two three"},
		{"unbreakable is long", 5, "unbreakable|is|long"},
		{"  kept as it is", 5, "  kept as it is"},
		{"", 5, ""},
		{"äöü äöü", 3, "äöü|äöü"},
	} {
		if got := strings.Join(wrap(test.text, test.width), "|"); got != test.want {
			t.Errorf("wrap(%q, %d) = %q, want %q", test.text, test.width, got, test.want)
		}
	}
}

func TestJSON(t *testing.T) {
	diags, files := neverMet(t)
	diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "Mind <this> & that"})
	var out bytes.Buffer
	if err := JSON(&out, diags, files); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "Mind <this> & that") {
		t.Errorf("HTML escapes in %s", out.String())
	}
	var doc Document
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Valid || doc.Errors != 1 || doc.Warnings != 1 || doc.MediaType != "application/vnd.rackproof.diagnostics.v1+json" {
		t.Errorf("document %+v", doc)
	}
	if diff := cmp.Diff(From(diags, files), doc.Diagnostics); diff != "" {
		t.Errorf("not the values that the text shows (-text +json):\n%s", diff)
	}
	if doc.Diagnostics[0].Rule != "never-met" || doc.Diagnostics[0].Range.Start != (Pos{Line: 2, Column: 9, Byte: 27}) {
		t.Errorf("diagnostic %+v", doc.Diagnostics[0])
	}
	out.Reset()
	if err := JSON(&out, nil, nil); err != nil {
		t.Fatal(err)
	}
	same(t, out.String(), "{\n  \"mediaType\": \"application/vnd.rackproof.diagnostics.v1+json\",\n  \"minor\": 0,\n  \"valid\": true,\n  \"errors\": 0,\n  \"warnings\": 0,\n  \"diagnostics\": []\n}\n")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestWriteErrors(t *testing.T) {
	diags := hcl.Diagnostics{{Summary: "x"}}
	if err := Text(full{}, diags, nil, false, 0); err == nil {
		t.Error("Text hides an error")
	}
	if err := JSON(full{}, diags, nil); err == nil {
		t.Error("JSON hides an error")
	}
}
