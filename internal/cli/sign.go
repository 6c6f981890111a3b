package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/archive"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/reports"
)

type signOptions struct {
	dir  string
	key  keyOptions
	out  string
	asIs bool
}

func newSignCmd(p *Process) *cobra.Command {
	opts := &signOptions{}
	cmd := &cobra.Command{
		Use:   "sign RUN",
		Short: "Sign a sealed run; with --as-is, seal a stopped one first",
		Long: `Sign a sealed run; its signature is replaced if it has one. A run that was
stopped is sealed only with --as-is: what it did not measure is inconclusive
then, by name.`,
		Example: `  rackproof sign runs/2026-11-30t14-02-11z-3f9a --key keys/operator.key
  rackproof sign runs/2026-11-30t14-02-11z-3f9a --key keys/operator.key --as-is -o stopped.evidence.tar.zst`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.dir = args[0]
			return runSign(p, cmd, opts)
		},
	}
	opts.key.bind(cmd)
	cmd.Flags().StringVarP(&opts.out, "output", "o", "", "write the archive to this file, which must not exist")
	cmd.Flags().BoolVar(&opts.asIs, "as-is", false, "seal a stopped run as it is")
	return cmd
}

func runSign(p *Process, cmd *cobra.Command, opts *signOptions) (err error) {
	if opts.key.key == "" {
		return fail(ExitUsage, errors.New("sign needs a key"), "rackproof sign "+opts.dir+" --key FILE; rackproof keygen makes one")
	}
	bundle, err := inspectRun(opts.dir)
	if err != nil {
		return err
	}
	if !bundle.Sealed && !opts.asIs {
		return fail(ExitUsage, fmt.Errorf("%s is not sealed: it was stopped before its end", opts.dir),
			"to go on with it: "+resumeCommand(bundle.Plan, opts.dir), "to seal it as it is, inconclusive: rackproof sign "+opts.dir+" --as-is --key "+opts.key.key)
	}
	if opts.out != "" {
		if err := notThere(opts.out); err != nil {
			return err
		}
	}
	signer, err := opts.key.signer(p, cmd)
	if err != nil {
		return err
	}
	if open := stillOpen(bundle.Records); len(open) > 0 && !bundle.Sealed {
		var faults []string
		for _, r := range open {
			faults = append(faults, faultOf(r))
		}
		return fail(ExitError, fmt.Errorf("%s is not sealed while faults are in effect: %s", opts.dir, strings.Join(faults, "; ")), "rackproof undo "+opts.dir)
	} else if n := len(open); n > 0 {
		// To sign touches no node, and a seal must not make anyone forget.
		(&reports.Printer{W: p.Stderr}).Line("rackproof: warning: %d of the faults that this run injected may still be in effect: rackproof undo %s", n, opts.dir)
	}
	if !bundle.Sealed {
		if err := sealAsIs(p, opts.dir); err != nil {
			return err
		}
	}
	unlock, err := evidence.LockSealed(opts.dir)
	if err != nil {
		return reopenError(err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := attest.Sign(cmd.Context(), opts.dir, signer); err != nil {
		return err
	}
	if opts.out != "" {
		if err := packDir(opts.dir, opts.out); err != nil {
			return err
		}
	}
	fingerprint, err := attest.Fingerprint(signer.Public())
	if err != nil {
		return err
	}
	out := newLines(p.Stdout)
	out.Line("signed    %s", opts.dir)
	out.Line("key       %s", string(fingerprint))
	if opts.out != "" {
		out.Line("evidence  %s", opts.out)
		return out.Err
	}
	if beside := filepath.Clean(opts.dir) + archive.Suffix; notThere(beside) != nil {
		(&reports.Printer{W: p.Stderr}).Line("rackproof: warning: %s was packed before and does not hold this signature: pack it again with -o FILE", beside)
	}
	return out.Err
}

// sealAsIs seals a run that was stopped. Its cut attempts are written down
// first, and what was never run is judged inconclusive.
func sealAsIs(p *Process, dir string) (err error) {
	tool, err := p.tool()
	if err != nil {
		return err
	}
	store, err := evidence.Reopen(dir, tool)
	if err != nil {
		return reopenError(err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	// The record tells a reader why cells are missing: they were not taken out.
	if _, err := store.Append(evidence.Record{Event: evidence.EventStop, Reason: "sealed as it is, before the end of its plan"}); err != nil {
		return fmt.Errorf("seal %s: %w", dir, err)
	}
	if _, err := seal(store); err != nil {
		return fmt.Errorf("seal %s: %w", dir, err)
	}
	return nil
}
