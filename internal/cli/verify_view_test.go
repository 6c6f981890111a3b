package cli

import (
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

func TestOpenFindingsHaveTheirUnit(t *testing.T) {
	observed := 5.0
	for unit, want := range map[string]string{
		"1":    "  open    fail: soak: errors on n1: observed 5: over 0\n",
		"GB/s": "  open    fail: soak: errors on n1: observed 5 GB/s: over 0\n",
	} {
		var out strings.Builder
		showOpen(newLines(&out), &evidence.Verdict{Findings: []evidence.Finding{
			{Test: "soak", Threshold: "errors", Subject: "n1", Outcome: evidence.Fail, Observed: &observed, Unit: unit, Reason: "over 0"},
		}})
		if out.String() != want {
			t.Errorf("unit %q: %q, want %q", unit, out.String(), want)
		}
	}
}
