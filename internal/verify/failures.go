package verify

import (
	"fmt"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

// The codes of steps 4 to 7, stable like those of attest.
const (
	CodePlanDiffers        = "E-PLAN-DIFFERS"        // the enclosed runbook compiles to another plan
	CodeRunbook            = "E-RUNBOOK"             // the enclosed runbook does not compile
	CodeSourceDiffers      = "E-SOURCE-DIFFERS"      // a source is not the one that the plan names
	CodeJournal            = "E-JOURNAL"             // a line is damaged, out of order or unchained
	CodeJournalPlan        = "E-JOURNAL-PLAN"        // the journal is of another plan or run
	CodeJournalOpen        = "E-JOURNAL-OPEN"        // the journal does not end with close
	CodeCellMissing        = "E-CELL-MISSING"        // a planned cell that the journal does not know
	CodeCellUnknown        = "E-CELL-UNKNOWN"        // a cell that the plan does not have
	CodeAttemptMissing     = "E-ATTEMPT-MISSING"     // an attempt number is left out
	CodeAttemptDiffers     = "E-ATTEMPT-DIFFERS"     // attempt.json is not the one that the journal names
	CodeAttemptExtra       = "E-ATTEMPT-EXTRA"       // files of an attempt that the journal does not know
	CodeRawDiffers         = "E-RAW-DIFFERS"         // a raw file is not the one that attempt.json names
	CodeRawTwice           = "E-RAW-TWICE"           // one command's output stands for two
	CodeFileUnexplained    = "E-FILE-UNEXPLAINED"    // signed, and neither plan nor journal says what it is
	CodeCutUnexplained     = "E-CUT-UNEXPLAINED"     // an attempt is said to be cut, and nothing cut it
	CodeCaptureMissing     = "E-CAPTURE-MISSING"     // a node was left without a capture that the plan asks for
	CodeFaultDiffers       = "E-FAULT-DIFFERS"       // the journal breaks or mends something else than the plan
	CodeTool               = "E-TOOL"                // the tool that wrote the run cannot have run this plan
	CodeGateMissing        = "E-GATE-MISSING"        // a phase was run and its gate not decided
	CodeMeasurement        = "E-MEASUREMENT"         // a line of the measurements cannot be read
	CodeMeasurementDiffers = "E-MEASUREMENT-DIFFERS" // measuring the raw files again gives something else
	CodeVerdict            = "E-VERDICT"             // the verdict cannot be read
	CodeVerdictDiffers     = "E-VERDICT-DIFFERS"     // judging again gives something else
	CodeGateDiffers        = "E-GATE-DIFFERS"        // a gate was decided otherwise than the judge does
	CodeInventory          = "E-INVENTORY"           // the inventory cannot be read or is not the journal's
	CodeRelease            = "E-RELEASE"             // a release rule is not met
	CodeReleaseUnknown     = "E-RELEASE-UNKNOWN"     // the plan has no release of that name
	CodeAge                = "E-AGE"                 // older than the policy allows
	CodeSimulated          = "E-SIMULATED"           // simulated nodes
	CodeNarrowed           = "E-NARROWED"            // a narrowed run
	CodeOffContract        = "E-OFF-CONTRACT"        // a variable off its contract
	CodeRetried            = "E-RETRIED"             // more cells passed late than the policy allows
	CodeInterrupted        = "E-INTERRUPTED"         // more attempts were cut than the policy allows
	CodePanic              = "E-PANIC"               // a step of ours broke on this bundle
	CodeRunbookUnknown     = "E-RUNBOOK-UNKNOWN"     // a runbook that the policy does not list
)

// maxFailures bounds the failures that one step lists.
const maxFailures = 1000

// step gathers one step's failures, and why it could not be checked.
type step struct {
	number     int // from 1
	name       string
	failures   []attest.Failure
	more       int
	notChecked []string
}

func newStep(index int) *step { return &step{number: index + 1, name: stepNames[index]} }

// guarded runs one step. A bundle on which this program breaks is refused and
// not trusted, and the other steps still run.
func guarded(index int, check func() attest.StepResult) (result attest.StepResult) {
	defer func() {
		if cause := recover(); cause != nil {
			s := newStep(index)
			s.fail(attest.Failure{
				Code: CodePanic, Message: fmt.Sprintf("rackproof broke on this bundle: %v", cause),
				Next: "this is a fault of rackproof: report it, and do not trust the bundle until it is mended",
			})
			result = s.result("")
		}
	}()
	return check()
}

func (s *step) fail(f attest.Failure) {
	if len(s.failures) == maxFailures {
		s.more++
		return
	}
	f.Expected, f.Actual = shorten(f.Expected), shorten(f.Actual)
	s.failures = append(s.failures, f)
}

// leave says that a part of the step could not be checked, and why.
func (s *step) leave(format string, args ...any) {
	s.notChecked = append(s.notChecked, fmt.Sprintf(format, args...))
}

// result is the step's answer: failed if anything failed, else not checked if
// anything was left, else ok with summary.
func (s *step) result(summary string) attest.StepResult {
	r := attest.StepResult{Step: s.number, Name: s.name, State: attest.OK, Summary: summary, Failures: s.failures}
	switch {
	case len(s.failures) > 0:
		if s.more > 0 {
			r.Failures = append(r.Failures, attest.Failure{Code: attest.CodeMore, Message: evidence.Count(s.more, "more failure") + " not listed"})
		}
		r.State = attest.Failed
		r.Summary = s.failures[0].Message
		if n := len(s.failures) + s.more; n > 1 {
			r.Summary = fmt.Sprintf("%s, the first: %s", evidence.Count(n, "failure"), r.Summary)
		}
	case len(s.notChecked) > 0:
		r.State = attest.NotChecked
		r.Summary = s.notChecked[0]
		if n := len(s.notChecked); n > 1 {
			r.Summary = fmt.Sprintf("%s, and %s", r.Summary, evidence.Count(n-1, "more reason"))
		}
	}
	return r
}
