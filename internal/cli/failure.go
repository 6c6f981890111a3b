package cli

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/internal/diag"
)

const mediaFailure = "application/vnd.rackproof.failure.v1+json"

// failureDocument is what a command prints with --json where it has no
// document of its own to print.
type failureDocument struct {
	MediaType   string            `json:"mediaType"`
	Minor       int               `json:"minor"`
	Exit        Exit              `json:"exit"`
	Error       string            `json:"error"`
	Hints       []string          `json:"hints"`
	Diagnostics []diag.Diagnostic `json:"diagnostics"`
}

// watchedWriter knows whether anything was written to it.
type watchedWriter struct {
	w    io.Writer
	used bool
}

func (w *watchedWriter) Write(data []byte) (int, error) {
	w.used = w.used || len(data) > 0
	return w.w.Write(data)
}

// streams marks the commands whose --json is one object a line.
const streamMark = "stream"

// printFailure tells a program that asked for JSON why cmd failed.
func (p *Process) printFailure(cmd *cobra.Command, out *watchedWriter, err error) error {
	if asked, _ := cmd.Flags().GetBool("json"); !asked {
		return nil
	}
	hints, diags := hintsOf(err), diagnosticsOf(err)
	if _, streams := cmd.Annotations[streamMark]; streams {
		t := newEvents(p, true, !out.used)
		code := exitOf(err)
		t.say(message{Type: "error", Time: p.Now(), Exit: &code, Text: err.Error(), Hints: hints, Diagnostics: diags}, "", "")
		return nil
	}
	if out.used {
		return nil
	}
	return printJSON(out, failureDocument{
		MediaType: mediaFailure, Exit: exitOf(err), Error: err.Error(), Hints: evidence.OrEmpty(hints), Diagnostics: evidence.OrEmpty(diags),
	})
}

// diagnosticsOf lists the diagnostics of err and of all that it wraps.
func diagnosticsOf(err error) []diag.Diagnostic {
	var all []diag.Diagnostic
	walkFailures(err, func(f *failure) { all = append(all, f.diags...) })
	return slices.Clip(all)
}
