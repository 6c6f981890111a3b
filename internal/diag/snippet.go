package diag

import (
	"bytes"
	"fmt"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcled"
	"github.com/zclconf/go-cty/cty"
)

const (
	maxLines = 10  // source lines of one snippet
	maxPart  = 160 // runes kept of each part of a source line
	maxValue = 80  // runes kept of a referenced text
)

// snippet cuts the lines that d is about out of file.
func snippet(d *hcl.Diagnostic, file *hcl.File) *Snippet {
	if file == nil || d.Subject.Start.Line < 1 {
		return nil
	}
	src := file.Bytes
	from, to := clamp(d.Subject.Start.Byte, len(src)), clamp(d.Subject.End.Byte, len(src))
	to = max(from, to)
	first, last := from, to
	if d.Context != nil {
		first = min(first, clamp(d.Context.Start.Byte, len(src)))
		last = max(last, clamp(d.Context.End.Byte, len(src)))
	}
	number := d.Subject.Start.Line - bytes.Count(src[first:from], []byte{'\n'})
	first = bytes.LastIndexByte(src[:first], '\n') + 1
	s := &Snippet{Context: context(file, d.Subject.Start.Byte), Values: values(d)}
	for start := first; len(s.Lines) < maxLines; number++ {
		end := len(src)
		if i := bytes.IndexByte(src[start:], '\n'); i >= 0 {
			end = start + i
		}
		text := src[start:end]
		text = bytes.TrimSuffix(text, []byte{'\r'})
		a, b := clamp(from-start, len(text)), clamp(to-start, len(text))
		line := Line{
			Number: number,
			Before: shortenLeft(escape(text[:a])),
			Marked: shortenRight(escape(text[a:b])),
			After:  shortenRight(escape(text[b:])),
		}
		line.Caret = line.Marked == "" && from >= start && from <= end
		s.Lines = append(s.Lines, line)
		if end >= len(src) || end >= last {
			break
		}
		start = end + 1
	}
	return s
}

func clamp(n, most int) int { return max(0, min(n, most)) }

// context names the block around offset, unless the diagnostic begins where
// the block does: then the first line says it already.
func context(file *hcl.File, offset int) string {
	text := hcled.ContextString(file, offset)
	if text == "" || hcled.ContextDefRange(file, offset).Start.Byte == offset {
		return ""
	}
	return escapeText(text)
}

// escapeText replaces what could move the cursor, change colours or reorder the
// text of a terminal by its escape in the style of Go. A tab becomes a space.
func escapeText(text string) string { return escape([]byte(text)) }

func escape(text []byte) string {
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[0])
		case r == '\t':
			out.WriteByte(' ')
		case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co):
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		default:
			out.WriteRune(r)
		}
		text = text[size:]
	}
	return out.String()
}

func shortenRight(text string) string {
	if utf8.RuneCountInString(text) <= maxPart {
		return text
	}
	return string([]rune(text)[:maxPart]) + "…"
}

func shortenLeft(text string) string {
	n := utf8.RuneCountInString(text)
	if n <= maxPart {
		return text
	}
	return "…" + string([]rune(text)[n-maxPart:])
}

// values says what the references in d's expression stand for.
func values(d *hcl.Diagnostic) []Value {
	if d.Expression == nil || d.EvalContext == nil {
		return nil
	}
	seen := map[string]bool{}
	var all []Value
	for _, traversal := range d.Expression.Variables() {
		// The longest prefix that has a value is the one worth showing: a
		// reference that fails at its last step still shows where it stands.
		for ; len(traversal) > 1; traversal = traversal[:len(traversal)-1] {
			val, diags := traversal.TraverseAbs(d.EvalContext)
			if diags.HasErrors() {
				continue
			}
			name := escapeText(traversalText(traversal))
			if !seen[name] && val != cty.NilVal {
				seen[name] = true
				all = append(all, Value{Traversal: name, Statement: statement(val)})
			}
			break
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Traversal < all[j].Traversal })
	return all
}

func traversalText(traversal hcl.Traversal) string {
	var out strings.Builder
	for _, step := range traversal {
		switch s := step.(type) {
		case hcl.TraverseRoot:
			out.WriteString(s.Name)
		case hcl.TraverseAttr:
			out.WriteString("." + s.Name)
		case hcl.TraverseIndex:
			out.WriteString("[" + plain(s.Key) + "]")
		}
	}
	return out.String()
}

func statement(val cty.Value) string {
	switch {
	case !val.IsKnown():
		return "is not known"
	case val.IsNull():
		return "is null"
	case val.Type().IsPrimitiveType():
		return "is " + plain(val)
	}
	kind := "a " + val.Type().FriendlyName()
	n := val.LengthInt()
	things := "elements"
	switch {
	case val.Type().IsObjectType():
		kind, things = "an object", "attributes"
	case val.Type().IsTupleType():
		kind = "a list"
	}
	if n == 1 {
		things = things[:len(things)-1]
	}
	return fmt.Sprintf("is %s with %d %s", kind, n, things)
}

func plain(val cty.Value) string {
	if !val.IsKnown() || val.IsNull() {
		return "…"
	}
	switch val.Type() {
	case cty.String:
		text := val.AsString()
		if utf8.RuneCountInString(text) > maxValue {
			text = string([]rune(text)[:maxValue]) + "…"
		}
		return `"` + escapeText(text) + `"`
	case cty.Number:
		f := val.AsBigFloat()
		if f.IsInt() && f.MantExp(nil) < 64 {
			return f.Text('f', 0)
		}
		return new(big.Float).Copy(f).Text('g', 10)
	case cty.Bool:
		return strconv.FormatBool(val.True())
	}
	return "…"
}
