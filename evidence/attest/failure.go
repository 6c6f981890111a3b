package attest

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rackproof/rackproof/evidence"
)

// The codes of failures. They are stable: scripts may match on them.
const (
	CodeFileChanged     = "E-FILE-CHANGED"     // size or digest differs from the manifest
	CodeFileExtra       = "E-FILE-EXTRA"       // on disk, in no list
	CodeFileMissing     = "E-FILE-MISSING"     // in the manifest, not on disk
	CodeFileType        = "E-FILE-TYPE"        // neither a regular file nor a directory
	CodeFileRead        = "E-FILE-READ"        // the file system refused
	CodePath            = "E-PATH"             // a name outside the alphabet, reserved or listed twice
	CodeSumsDiffer      = "E-SUMS-DIFFER"      // SHA256SUMS and manifest.json disagree
	CodeManifest        = "E-MANIFEST"         // manifest.json is absent or unreadable
	CodeSums            = "E-SUMS"             // SHA256SUMS is absent or unreadable
	CodeLimit           = "E-LIMIT"            // more than this build reads
	CodePolicy          = "E-POLICY"           // the trust policy itself is not sound
	CodeNoSignature     = "E-NO-SIGNATURE"     // there is no bundle
	CodeBundle          = "E-BUNDLE"           // not a Sigstore bundle v0.3 as this project writes it
	CodePayloadType     = "E-PAYLOAD-TYPE"     // the envelope is not of an in-toto statement
	CodeStatement       = "E-STATEMENT"        // not an acceptance statement
	CodeSubjects        = "E-SUBJECTS"         // the statement is about other files
	CodeSignature       = "E-SIGNATURE"        // made with a trusted key, over something else
	CodeKeyUnknown      = "E-KEY-UNKNOWN"      // no key of the operator's role made it
	CodeKeyExpired      = "E-KEY-EXPIRED"      // the key's validity has ended
	CodeAlgorithm       = "E-ALGORITHM"        // a kind of key that is not accepted
	CodePredicate       = "E-PREDICATE"        // the signed summary and the files disagree
	CodeTime            = "E-TIME"             // the claimed times cannot be
	CodePlan            = "E-PLAN"             // the plan cannot be read
	CodeApprovalMissing = "E-APPROVAL-MISSING" // an approval is required and none counts
	CodeMore            = "E-MORE"             // failures beyond the bound, as a number
)

// maxFailures bounds the failures that one step lists.
const maxFailures = 1000

// Failure is one thing that is wrong. Path, Message, Expected and Actual have
// every control, bidirectional and unprintable character escaped, so that
// they can be shown on a terminal.
type Failure struct {
	Code     string `json:"code"`
	Path     string `json:"path,omitempty"` // relative to the run directory
	Message  string `json:"message"`
	Expected string `json:"expected,omitempty"`
	Actual   string `json:"actual,omitempty"`
	Next     string `json:"next,omitempty"` // what to do about it
}

// String is the failure in one line: code, path, message, expected, actual.
func (f Failure) String() string {
	var b strings.Builder
	b.WriteString(f.Code)
	if f.Path != "" {
		fmt.Fprintf(&b, " %s", f.Path)
	}
	fmt.Fprintf(&b, ": %s", f.Message)
	if f.Expected != "" || f.Actual != "" {
		fmt.Fprintf(&b, " (expected %s, got %s)", orNothing(f.Expected), orNothing(f.Actual))
	}
	return b.String()
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// State is the answer of one step.
type State string

// The states of a step. NotChecked is never as good as OK.
const (
	OK         State = "ok"
	Failed     State = "failed"
	NotChecked State = "not checked"
)

// StepResult is one step of verification. A step with failures is Failed.
type StepResult struct {
	Step     int       `json:"step"`
	Name     string    `json:"name"`
	State    State     `json:"state"`
	Summary  string    `json:"summary"`
	Failures []Failure `json:"failures,omitempty"`
}

// failures collects what is wrong in one step, up to maxFailures.
type failures struct {
	list []Failure
	more int
}

func (f *failures) add(failure Failure) {
	if len(f.list) >= maxFailures {
		f.more++
		return
	}
	failure.Path = printable(failure.Path)
	failure.Message = printable(failure.Message)
	failure.Expected = printable(failure.Expected)
	failure.Actual = printable(failure.Actual)
	f.list = append(f.list, failure)
}

func (f *failures) count() int { return len(f.list) + f.more }

// result is the step's answer: ok with the summary, or failed.
func (f *failures) result(step int, name, summary string) StepResult {
	if f.count() == 0 {
		return StepResult{Step: step, Name: name, State: OK, Summary: summary}
	}
	list := f.list
	if f.more > 0 {
		list = append(list, Failure{
			Code:    CodeMore,
			Message: evidence.Count(f.more, "more failure") + " not listed",
			Next:    "mend what is listed and verify again",
		})
	}
	summary = list[0].Message
	if list[0].Path != "" {
		summary = list[0].Path + ": " + summary
	}
	if n := f.count(); n > 1 {
		summary = fmt.Sprintf("%s, the first: %s", evidence.Count(n, "failure"), summary)
	}
	return StepResult{Step: step, Name: name, State: Failed, Summary: summary, Failures: list}
}

// maxShown bounds one text of a failure, in bytes.
const maxShown = 1024

// printable escapes what could steer a terminal or reorder a line: control
// and format characters, every space but U+0020, invalid UTF-8. A backslash
// is doubled, so that an escape cannot be forged.
func printable(text string) string {
	cut := len(text) > maxShown
	if cut {
		text = text[:maxShown]
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == '\\':
			b.WriteString(`\\`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	if cut {
		b.WriteString("…")
	}
	return b.String()
}
