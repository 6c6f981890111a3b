// Package diag renders hcl.Diagnostics for people and for programs. Both forms
// are made from one value, a Diagnostic, so that they cannot drift apart.
package diag

import (
	"github.com/hashicorp/hcl/v2"
)

// A Diagnostic is one diagnostic with all that is shown of it.
type Diagnostic struct {
	Severity string   `json:"severity"` // error or warning
	Summary  string   `json:"summary"`
	Detail   string   `json:"detail,omitempty"`
	Rule     string   `json:"rule,omitempty"` // the id of the broken rule, stable between releases
	Range    *Range   `json:"range,omitempty"`
	Snippet  *Snippet `json:"snippet,omitempty"`
}

// Range is a place in a source file. The end is exclusive.
type Range struct {
	Filename string `json:"filename"`
	Start    Pos    `json:"start"`
	End      Pos    `json:"end"`
}

// Pos is a position: line and column count from 1, columns in grapheme
// clusters, and Byte counts from 0.
type Pos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Byte   int `json:"byte"`
}

// Snippet is the source around a diagnostic, with control characters escaped
// and long lines shortened.
type Snippet struct {
	Context string  `json:"context,omitempty"` // the block it is in, such as: test "allreduce_32"
	Lines   []Line  `json:"lines"`
	Values  []Value `json:"values,omitempty"`
}

// Line is one source line. Its parts joined are the line; Marked is the part
// that the diagnostic is about.
type Line struct {
	Number int    `json:"number"`
	Before string `json:"before,omitempty"`
	Marked string `json:"marked,omitempty"`
	After  string `json:"after,omitempty"`
	// Caret says that the diagnostic is about this line although Marked is
	// empty: about the place between Before and After.
	Caret bool `json:"caret,omitempty"`
}

// Value is what a reference in the snippet stands for: "local.floor" and
// "is 368".
type Value struct {
	Traversal string `json:"traversal"`
	Statement string `json:"statement"`
}

// From collects what is shown of each diagnostic. files are the sources by the
// name that the diagnostics' ranges carry; a file that is not among them is
// named without a snippet.
func From(diags hcl.Diagnostics, files map[string]*hcl.File) []Diagnostic {
	all := make([]Diagnostic, 0, len(diags))
	for _, d := range diags {
		one := Diagnostic{Severity: "error", Summary: d.Summary, Detail: d.Detail, Rule: ruleOf(d)}
		if d.Severity == hcl.DiagWarning {
			one.Severity = "warning"
		}
		if d.Subject != nil {
			r := rangeOf(*d.Subject)
			one.Range = &r
			one.Snippet = snippet(d, files[d.Subject.Filename])
		}
		all = append(all, one)
	}
	return all
}

// ruleOf finds the rule that d breaks, through wrapped extras.
func ruleOf(d *hcl.Diagnostic) string {
	extra := d.Extra
	for extra != nil {
		if rule, ok := extra.(interface{ RuleID() string }); ok {
			return rule.RuleID()
		}
		wrapped, ok := extra.(hcl.DiagnosticExtraUnwrapper)
		if !ok {
			return ""
		}
		extra = wrapped.UnwrapDiagnosticExtra()
	}
	return ""
}

func rangeOf(r hcl.Range) Range {
	return Range{
		Filename: r.Filename,
		Start:    Pos{Line: r.Start.Line, Column: r.Start.Column, Byte: r.Start.Byte},
		End:      Pos{Line: r.End.Line, Column: r.End.Column, Byte: r.End.Byte},
	}
}
