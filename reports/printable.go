package reports

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns s with everything escaped that could move a cursor, hide
// or reorder text, or pass for a line of ours: control characters, bidi marks,
// invisible and unassigned characters, every space but the plain one, and
// bytes that are not UTF-8. All text that came from a node, a runbook or a
// bundle passes through it before it reaches a terminal.
func Printable(s string) string {
	if isPrintable(s) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&out, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == '\r':
			out.WriteString(`\r`)
		case r > 0xffff:
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		s = s[size:]
	}
	return out.String()
}

func isPrintable(s string) bool {
	for i, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size <= 1 {
				return false
			}
		}
	}
	return true
}

// PrintableJSON returns a JSON document with every character of its texts that
// Printable would escape written as \u and four hex digits. It is the same
// document to a JSON reader.
func PrintableJSON(doc []byte) []byte {
	out := make([]byte, 0, len(doc))
	for len(doc) > 0 {
		r, size := utf8.DecodeRune(doc)
		switch {
		case r < utf8.RuneSelf && r != 0x7f || unicode.IsPrint(r):
			out = append(out, doc[:size]...)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		doc = doc[size:]
	}
	return out
}

// Printer writes lines in which all foreign text is escaped, and keeps the
// first error of its writer.
type Printer struct {
	W   io.Writer
	Err error
}

// Line writes one line. Arguments of type string are escaped: any of them may
// be foreign.
func (p *Printer) Line(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = Printable(s)
		}
	}
	if p.Err == nil {
		_, p.Err = fmt.Fprintf(p.W, format+"\n", args...)
	}
}

// Table writes rows in columns, indented by two; the last cell of a row is not
// padded.
func (p *Printer) Table(rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(Printable(cell)))
		}
	}
	for _, row := range rows {
		var out strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&out, "  %-*s", widths[i], Printable(cell))
		}
		p.Line("%s", strings.TrimRight(out.String(), " "))
	}
}
