package attest

import (
	"fmt"
	"strings"
	"testing"
)

func TestPrintable(t *testing.T) {
	for given, want := range map[string]string{
		"gpu017/stdout":            "gpu017/stdout",
		"Überprüfung":              "Überprüfung",
		"\x1b[31mred\x1b[0m":       `\x1b[31mred\x1b[0m`,
		"a\u202egpj.exe":           `a\u202egpj.exe`,
		"\u2066iso\u2069":          `\u2066iso\u2069`,
		"line\nfeed\r\t":           `line\nfeed\r\t`,
		"zero\u200bwidth\ufeff":    `zero\u200bwidth\ufeff`,
		"no\u00a0break":            `no\u00a0break`,
		"nul\x00del\x7f":           `nul\x00del\x7f`,
		"\xff\xfe":                 `\xff\xfe`,
		`forged \x1b`:              `forged \\x1b`,
		"c1\u009bcsi":              `c1\u009bcsi`,
		"\u2028sep":                `\u2028sep`,
		strings.Repeat("x", 1100):  strings.Repeat("x", 1024) + "…",
		"\U000e0041tag":            `\U000e0041tag`,
		"replacement \ufffd stays": "replacement \ufffd stays",
	} {
		if got := printable(given); got != want {
			t.Errorf("printable(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestFailuresAreBounded(t *testing.T) {
	var f failures
	for i := range 1234 {
		f.add(Failure{Code: CodeFileExtra, Path: fmt.Sprint("p", i), Message: "extra"})
	}
	step := f.result(1, "files", "all is well")
	if step.State != Failed || len(step.Failures) != 1001 {
		t.Fatalf("state %s with %d failures, want failed with 1001", step.State, len(step.Failures))
	}
	last := step.Failures[1000]
	if last.Code != CodeMore || !strings.HasPrefix(last.Message, "234 more") {
		t.Errorf("last failure is %v, want 234 more", last)
	}
	if want := "1234 failures, the first: p0: extra"; step.Summary != want {
		t.Errorf("summary %q, want %q", step.Summary, want)
	}
	var none failures
	if step := none.result(1, "files", "all is well"); step.State != OK || step.Summary != "all is well" || step.Failures != nil {
		t.Errorf("without failures: %+v", step)
	}
}

func TestFailureText(t *testing.T) {
	f := Failure{Code: CodeFileChanged, Path: "run/plan.json", Message: "its size is not that of the manifest", Expected: "5 bytes", Actual: "6 bytes"}
	want := "E-FILE-CHANGED run/plan.json: its size is not that of the manifest (expected 5 bytes, got 6 bytes)"
	if f.String() != want {
		t.Errorf("got %q, want %q", f, want)
	}
	f = Failure{Code: CodeSubjects, Message: "the statement lacks a subject", Expected: "SHA256SUMS"}
	want = "E-SUBJECTS: the statement lacks a subject (expected SHA256SUMS, got nothing)"
	if f.String() != want {
		t.Errorf("got %q, want %q", f, want)
	}
}
