package cli

import (
	"errors"
	"maps"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/internal/diag"
)

type validateOptions struct {
	paths  []string
	inputs inputOptions
	json   bool
}

func newValidateCmd(p *Process) *cobra.Command {
	opts := &validateOptions{}
	cmd := &cobra.Command{
		Use:   "validate [RUNBOOK...]",
		Short: "Check runbooks, offline",
		Long: `Check runbooks and say all that is wrong with them. Nothing is contacted.
Without a path, every *.runbook.hcl of the current directory is checked.`,
		Example: `  rackproof validate pod7.runbook.hcl
  rackproof validate --json --var soak=2h pod7.runbook.hcl`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.paths = args
			return runValidate(p, cmd, opts)
		},
	}
	opts.inputs.bind(cmd)
	cmd.Flags().BoolVar(&opts.json, "json", false, "print one JSON document")
	return cmd
}

func runValidate(p *Process, cmd *cobra.Command, opts *validateOptions) error {
	if len(opts.paths) == 0 {
		found, err := filepath.Glob("*" + runbookSuffix)
		if err != nil {
			return err
		}
		opts.paths = found
	}
	if len(opts.paths) == 0 {
		return fail(ExitUsage, errors.New("there is no *"+runbookSuffix+" here"), "name a runbook: rackproof validate PATH")
	}
	var all hcl.Diagnostics
	files := make(map[string]*hcl.File)
	for _, path := range opts.paths {
		c, err := opts.inputs.compile(p, path)
		if err != nil {
			return err
		}
		all = append(all, c.diags...)
		maps.Copy(files, c.files)
		if !opts.json {
			if err := c.explain(p, cmd); err != nil && exitOf(err) != ExitUsage {
				return err
			}
		}
	}
	if opts.json {
		if err := diag.JSON(p.Stdout, all, files); err != nil {
			return err
		}
	}
	return invalid(all, files)
}
