package diag

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// The codes of colour, named for what they do.
const (
	reset     = "\x1b[0m"
	bold      = "\x1b[1m"
	underline = "\x1b[4m"
	red       = "\x1b[31m"
	yellow    = "\x1b[33m"
	dim       = "\x1b[2m"
)

// Text writes diags for a person. width is the number of columns to wrap at;
// 0 or less does not wrap. The part of the source that a diagnostic is about
// is underlined with color, and has carets below it without.
//
// The rule on the left shows where a message begins and ends, so that a copied
// one is whole.
func Text(w io.Writer, diags hcl.Diagnostics, files map[string]*hcl.File, color bool, width int) error {
	for _, d := range From(diags, files) {
		if _, err := io.WriteString(w, render(d, color, width)); err != nil {
			return fmt.Errorf("write diagnostics: %w", err)
		}
	}
	return nil
}

func render(d Diagnostic, color bool, width int) string {
	paint := func(code, text string) string {
		if !color || text == "" {
			return text
		}
		return code + text + reset
	}
	level, levelColor := "Error", red
	if d.Severity == "warning" {
		level, levelColor = "Warning", yellow
	}

	lines := wrap(escapeText(level+": "+d.Summary), width-2)
	lines[0] = paint(bold+levelColor, level+":") + paint(bold, strings.TrimPrefix(lines[0], level+":"))
	lines = append(lines, "")
	if d.Range != nil {
		lines = append(lines, source(d, paint)...)
		lines = append(lines, "")
	}
	if d.Detail != "" {
		for _, line := range strings.Split(d.Detail, "\n") {
			lines = append(lines, wrap(escapeIndented(line), width-2)...)
		}
	}
	for lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}

	var out strings.Builder
	out.WriteString(paint(levelColor, "╷") + "\n")
	for _, line := range lines {
		out.WriteString(strings.TrimRight(paint(levelColor, "│")+" "+line, " ") + "\n")
	}
	out.WriteString(paint(levelColor, "╵") + "\n")
	return out.String()
}

// source renders the place of d, its source lines and the values in them.
func source(d Diagnostic, paint func(code, text string) string) []string {
	where := fmt.Sprintf("  on %s line %d", escapeText(d.Range.Filename), d.Range.Start.Line)
	if d.Snippet == nil {
		return []string{where}
	}
	if d.Snippet.Context != "" {
		where += ", in " + d.Snippet.Context
	}
	lines := []string{where + ":"}
	for _, l := range d.Snippet.Lines {
		lines = append(lines, fmt.Sprintf("%4d: %s%s%s", l.Number, l.Before, paint(underline, l.Marked), l.After))
		// With colour the underline shows the place; an empty place has
		// nothing to underline, so it keeps its caret.
		if l.Caret || l.Marked != "" && paint(underline, "x") == "x" {
			gutter := max(4, len(fmt.Sprint(l.Number))) + 2
			pad := strings.Repeat(" ", gutter+utf8.RuneCountInString(l.Before))
			lines = append(lines, pad+strings.Repeat("^", max(1, utf8.RuneCountInString(l.Marked))))
		}
	}
	if len(d.Snippet.Values) > 0 {
		lines = append(lines, paint(dim, "    ├────────────────"))
		for _, v := range d.Snippet.Values {
			lines = append(lines, fmt.Sprintf("%s %s %s", paint(dim, "    │"), paint(bold, v.Traversal), v.Statement))
		}
	}
	return lines
}

// escapeIndented escapes a line of a detail and keeps its leading spaces.
func escapeIndented(line string) string { return escapeText(strings.TrimRight(line, " \r")) }

// wrap breaks text into lines of at most width runes at spaces. A word longer
// than that has a line of its own, and a line that begins with a space is an
// example to be copied, so it is left as it is. The result is never empty.
func wrap(text string, width int) []string {
	if width <= 0 || strings.HasPrefix(text, " ") || utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var lines []string
	line, length := "", 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if length > 0 && length+1+n > width {
			lines = append(lines, line)
			line, length = "", 0
		}
		if length > 0 {
			line += " "
			length++
		}
		line += word
		length += n
	}
	return append(lines, line)
}
