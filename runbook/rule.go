package runbook

import (
	"fmt"
	"sort"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2"
)

// A Rule is the id of a rule of the language. Each diagnostic of this package
// carries the one that was broken in its Extra field.
type Rule string

// RuleID returns the id itself; package diag finds it through this method.
func (r Rule) RuleID() string { return string(r) }

// ruled is a rule around what hcl itself had put into a diagnostic.
type ruled struct {
	Rule
	inner any
}

// UnwrapDiagnosticExtra gives hcl's own extra back.
func (r ruled) UnwrapDiagnosticExtra() any { return r.inner }

// fail is one error at rng.
func fail(rule Rule, rng hcl.Range, summary, detail string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &rng, Extra: rule}
}

// warn is one warning at rng.
func warn(rule Rule, rng hcl.Range, summary, detail string) *hcl.Diagnostic {
	d := fail(rule, rng, summary, detail)
	d.Severity = hcl.DiagWarning
	return d
}

// tag gives the diagnostics that hcl made a rule.
func tag(rule Rule, diags hcl.Diagnostics) hcl.Diagnostics {
	for _, d := range diags {
		if _, ok := d.Extra.(interface{ RuleID() string }); ok {
			continue
		}
		if d.Extra == nil {
			d.Extra = rule
		} else {
			d.Extra = ruled{Rule: rule, inner: d.Extra}
		}
	}
	return diags
}

// nearest is the candidate that given was most likely meant to be, or "".
func nearest(given string, candidates []string) string {
	best, distance := "", 3
	for _, c := range sorted(candidates) {
		if len(c) > 200 || len(given) > 200 {
			continue
		}
		// A short word is near to every other short word.
		limit := max(1, min(len(given), len(c))/2)
		if d := levenshtein.Distance(given, c, nil); d < distance && d <= limit {
			best, distance = c, d
		}
	}
	return best
}

func sorted(names []string) []string {
	out := append([]string(nil), names...)
	sort.Strings(out)
	return out
}

// didYouMean is " Did you mean …?" with the nearest of candidates, written by
// form, or nothing.
func didYouMean(given string, candidates []string, form string) string {
	if near := nearest(given, candidates); near != "" {
		return " Did you mean " + fmt.Sprintf(form, near) + "?"
	}
	return ""
}

// listed is a sentence that lists candidates where they are fewer than ten:
// " It reports: a, b." after the given lead.
func listed(lead string, candidates []string) string {
	if len(candidates) == 0 || len(candidates) >= 10 {
		return ""
	}
	return " " + lead + " " + strings.Join(sorted(candidates), ", ") + "."
}

// choices is "a", "b" or "c".
func choices(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return join(quoted, "or")
}

func join(words []string, last string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + last + " " + words[len(words)-1]
}
