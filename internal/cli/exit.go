package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/internal/diag"
	"github.com/rackproof/rackproof/internal/verify"
	"github.com/rackproof/rackproof/reports"
)

// Exit is an exit code of the program.
type Exit int

// The exit codes. exitTable says what each means. Those of a verdict are the
// numbers that a verification writes into its own document.
const (
	ExitOK           Exit = 0
	ExitError        Exit = 1
	ExitUsage        Exit = 2
	ExitFail         Exit = verify.ExitFail
	ExitInconclusive Exit = verify.ExitInconclusive
	ExitUntrusted    Exit = verify.ExitUntrusted
	ExitPolicy       Exit = verify.ExitPolicy
	ExitPartial      Exit = 7
	ExitInterrupt    Exit = 130
	ExitTerminate    Exit = 143
)

var exitTable = []struct {
	code    Exit
	meaning string
	typical string
}{
	{ExitOK, "done; and if something was judged, it passed", "all"},
	{ExitError, "rackproof could not do what was asked (I/O, network, bug)", "all"},
	{ExitUsage, "usage, a file that was named and is not there, or the runbook or the trust policy is invalid", "validate, plan, run, verify"},
	{ExitFail, "judged, and not acceptable: a threshold failed", "run, resume, verify"},
	{ExitInconclusive, "inconclusive: cells missing, nodes lost, instrument error", "run, resume, verify"},
	{ExitUntrusted, "evidence not trusted: digest, signature, identity, or a verdict that differs when judged again", "verify"},
	{ExitPolicy, "an approval is missing or stale, or a rule of the trust policy or of the release is not met", "run, sign, verify"},
	{ExitPartial, "verified, but a partial disclosure; not used by this build", "verify"},
	{ExitInterrupt, "stopped by SIGINT; the run can be resumed", "run, resume"},
	{ExitTerminate, "stopped by SIGTERM; the run can be resumed", "run, resume"},
}

// failure is an error with the exit code and the hints that the command line
// adds to it.
type failure struct {
	code  Exit
	err   error
	hints []string
	diags []diag.Diagnostic // what is wrong with the runbook, where it is that
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail is an error that ends the program with code.
func fail(code Exit, err error, hints ...string) error {
	return &failure{code: code, err: err, hints: hints}
}

// usageError is a mistake in the command line.
func usageError(format string, args ...any) error {
	return &failure{code: ExitUsage, err: fmt.Errorf(format, args...)}
}

// hinted adds hints to err and leaves its exit code alone.
func hinted(err error, hints ...string) error {
	return &failure{code: exitOf(err), err: err, hints: hints}
}

// exitOf is the exit code of err: that of the outermost failure in it, or 1.
func exitOf(err error) Exit {
	if err == nil {
		return ExitOK
	}
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	return ExitError
}

// exitOfOutcome is the exit code of a verdict. Whatever is not a pass is not 0.
func exitOfOutcome(o evidence.Outcome) Exit {
	switch o {
	case evidence.Pass:
		return ExitOK
	case evidence.Fail:
		return ExitFail
	default:
		return ExitInconclusive
	}
}

// printError writes err and all of its hints, each on lines of its own.
func printError(w io.Writer, err error) {
	out := &reports.Printer{W: w}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		out.Line("rackproof: error: %s", line)
	}
	for _, hint := range hintsOf(err) {
		out.Line("rackproof: hint: %s", hint)
	}
}

// hintsOf lists the hints of err and of all that it wraps.
func hintsOf(err error) []string {
	var hints []string
	walkFailures(err, func(f *failure) { hints = append(hints, f.hints...) })
	return hints
}

// walkFailures visits every failure in err, the outer ones first.
func walkFailures(err error, visit func(*failure)) {
	if f, ok := err.(*failure); ok {
		visit(f)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			walkFailures(inner, visit)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			walkFailures(inner, visit)
		}
	}
}
