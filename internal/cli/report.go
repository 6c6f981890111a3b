package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/archive"
	"github.com/rackproof/rackproof/internal/verify"
	"github.com/rackproof/rackproof/reports"
	"github.com/rackproof/rackproof/thresholds"
)

type reportOptions struct {
	path   string
	format string
	out    string
}

func newReportCmd(p *Process) *cobra.Command {
	opts := &reportOptions{}
	cmd := &cobra.Command{
		Use:   "report RUN|BUNDLE",
		Short: "Show what a run measured and how it was judged",
		Long: `Render a run directory or a bundle. A report verifies nothing and says so; it
exits 0 whatever the verdict. A run that is not sealed is judged as it stands.

Formats:
  text      the verdict, every open point and what is established, for a terminal
  json      the same as one document
  html      one file for the release owner, with curves, timeline and a map of
            outcomes; it needs no script and no network
  markdown  the open points and tables, for a merge request or a wiki
  junit     a suite a test and a case a finding, for a CI system: what is no pass
            is a failure or an error, and nothing is skipped`,
		Example: `  rackproof report runs/2026-11-30t14-02-11z-3f9a
  rackproof report pod7.evidence.tar.zst -f json -o pod7.json
  rackproof report pod7.evidence.tar.zst -f html -o pod7.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			opts.path = args[0]
			return runReport(p, opts)
		},
	}
	cmd.Flags().StringVarP(&opts.format, "format", "f", reports.Formats()[0].Name(), "format: "+strings.Join(formatNames(), ", "))
	cmd.Flags().StringVarP(&opts.out, "output", "o", "", "write to this file, which must not exist")
	return cmd
}

func formatNames() []string {
	var names []string
	for _, f := range reports.Formats() {
		names = append(names, f.Name())
	}
	return names
}

func runReport(p *Process, opts *reportOptions) error {
	var format reports.Format
	for _, f := range reports.Formats() {
		if f.Name() == opts.format {
			format = f
		}
	}
	if format == nil {
		return fail(ExitUsage, fmt.Errorf("--format %q: this build has no such format", opts.format), "formats: "+strings.Join(formatNames(), ", "))
	}
	bundle, source, err := openBundle(opts.path)
	if err != nil {
		return err
	}
	defer source.Close()
	if bundle.Verdict == nil {
		bundle.Results = checks.Measure(checks.Builtin(), bundle.Plan, bundle.Records, source.FS)
		verdict := thresholds.Judge(bundle.Plan, bundle.Results)
		bundle.Verdict = &verdict
	}
	render := func(w io.Writer) error { return format.Render(w, bundle) }
	if opts.out != "" {
		return writeNew(opts.out, 0o644, render)
	}
	return render(p.Stdout)
}

// openBundle opens a run directory or an archive for reading, without
// verifying it.
func openBundle(path string) (*evidence.Bundle, *verify.Source, error) {
	source, err := verify.OpenSource(path, verify.UnsignedLimits)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fail(ExitUsage, plainPath(err))
		}
		return nil, nil, hinted(plainPath(err), "name the directory of a run, or its archive, *"+archive.Suffix)
	}
	bundle, err := evidence.Open(source.FS)
	if err != nil {
		source.Close()
		return nil, nil, hinted(fmt.Errorf("%s: %w", path, err), "rackproof verify says what is wrong with a bundle, file by file")
	}
	return bundle, source, nil
}
