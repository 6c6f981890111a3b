package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runner"
)

type resumeOptions struct {
	dir     string
	retry   []string
	key     keyOptions
	execute executeOptions
}

func newResumeCmd(p *Process) *cobra.Command {
	opts := &resumeOptions{}
	cmd := &cobra.Command{
		Use:   "resume RUN",
		Short: "Go on with a run that was stopped, or try lost cells again",
		Long: `Go on with a run that was interrupted: everything that its journal does not
prove complete is run, after faults that were left open are undone. The plan,
the check versions and the machines must be the same.

--retry CLASS tries again the cells that ended with this class, also in a
sealed run, whose seal is set aside and kept. "lost" stands for every way in
which a node could not be reached or went away.`,
		Example: `  rackproof resume runs/2026-11-30t14-02-11z-3f9a
  rackproof resume runs/2026-11-30t14-02-11z-3f9a --retry lost --key keys/operator.key`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.dir = args[0]
			return runResume(p, cmd, opts)
		},
	}
	opts.key.bind(cmd)
	opts.execute.bind(cmd)
	cmd.Flags().StringSliceVar(&opts.retry, "retry", nil, "class of failure whose cells are tried again, such as lost (repeatable)")
	return cmd
}

func runResume(p *Process, cmd *cobra.Command, opts *resumeOptions) error {
	retry, err := retryClasses(opts.retry)
	if err != nil {
		return err
	}
	if err := opts.execute.check(); err != nil {
		return err
	}
	bundle, kind, err := inspectRun(opts.dir)
	if err != nil {
		return err
	}
	if bundle.Sealed && len(retry) == 0 && !wasStopped(bundle.Records) {
		return fail(ExitUsage, fmt.Errorf("%s is complete and sealed: there is nothing to resume", opts.dir),
			"to try lost cells again: rackproof resume "+opts.dir+" --retry lost")
	}
	var signer attest.Signer
	if opts.key.key != "" {
		if signer, err = opts.key.signer(p, cmd); err != nil {
			return err
		}
	}
	tool, err := p.tool()
	if err != nil {
		return err
	}
	store, err := evidence.Reopen(opts.dir, tool)
	if err != nil {
		return reopenError(err)
	}
	s := &session{
		p: p, ctx: cmd.Context(), store: store, kind: kind, reach: bundle.Inventory.Reach, retry: retry,
		progress: newProgress(p, store.Plan(), opts.execute.json),
	}
	s.progress.plan(store.Run(), opts.dir, store.Plan(), evidence.DigestOf(bundle.PlanBytes))
	return s.finish(s.execute(cmd.Context(), p, opts.execute), signer)
}

func reopenError(err error) error {
	if errors.Is(err, evidence.ErrLocked) {
		return hinted(err, "another rackproof works on this run: wait for it, or stop it")
	}
	return err
}

// inspectRun reads a run directory before anything in it is changed, and
// finds its executor.
func inspectRun(dir string) (*evidence.Bundle, runner.Kind, error) {
	none := runner.Kind{}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, none, fail(ExitUsage, plainPath(err))
	}
	if !info.IsDir() {
		return nil, none, fail(ExitUsage, fmt.Errorf("%s is not a run directory", dir), "an archive cannot be gone on with: name the directory under runs/")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, none, plainPath(err)
	}
	defer root.Close()
	bundle, err := evidence.Open(root.FS())
	if err != nil {
		return nil, none, fmt.Errorf("%s: %w", dir, err)
	}
	if bundle.Inventory == nil {
		return nil, none, fail(ExitError, fmt.Errorf("%s has no %s, so nothing says how its nodes are reached", dir, inventoryPath), "nothing was measured: start a new run")
	}
	kind, ok := findKind(bundle.Inventory.Executor)
	if !ok {
		return nil, none, fmt.Errorf("%s: this build has no executor %q", dir, bundle.Inventory.Executor)
	}
	return bundle, kind, nil
}

// wasStopped reports whether a sealed run was stopped before its end and
// sealed as it was.
func wasStopped(records []evidence.Record) bool {
	stopped := false
	for _, r := range records {
		switch r.Event {
		case evidence.EventStop:
			stopped = true
		case evidence.EventResume, evidence.EventReopen:
			stopped = false
		}
	}
	return stopped
}

// lostClasses are the ways in which a node cannot be reached or goes away.
var lostClasses = []evidence.Class{
	evidence.ClassDNS, evidence.ClassTCP, evidence.ClassBanner, evidence.ClassKex, evidence.ClassBusy,
	evidence.ClassLost, evidence.ClassInterrupted, evidence.ClassSilent,
}

// retryClasses reads --retry.
func retryClasses(names []string) ([]evidence.Class, error) {
	var classes []evidence.Class
	for _, name := range names {
		class := evidence.Class(strings.TrimSpace(name))
		switch {
		case class == evidence.ClassLost:
			classes = append(classes, lostClasses...)
		case class == evidence.ClassOK || !class.Known():
			return nil, fail(ExitUsage, fmt.Errorf("--retry %q: there is no such class of failure", name), "the class of a cell stands in brackets in the report; lost stands for all ways to lose a node")
		default:
			classes = append(classes, class)
		}
	}
	slices.Sort(classes)
	return slices.Compact(classes), nil
}
