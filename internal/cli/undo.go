package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/thresholds"
)

func newUndoCmd(p *Process) *cobra.Command {
	return &cobra.Command{
		Use:   "undo RUN",
		Short: "Undo the faults that a run has left open",
		Long: `Undo the faults that a dead run has left in effect, in the reverse order of
their injection. Each is in the run's journal with the command that undoes it.`,
		Example: `  rackproof undo runs/2026-11-30t14-02-11z-3f9a
  rackproof undo runs/2026-11-30t14-02-11z-3f9a && rackproof resume runs/2026-11-30t14-02-11z-3f9a`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runUndo(p, cmd, args[0]) },
	}
}

func runUndo(p *Process, cmd *cobra.Command, dir string) (err error) {
	bundle, kind, err := inspectRun(dir)
	if err != nil {
		return err
	}
	out := newLines(p.Stdout)
	if openFaults(bundle.Records) == 0 {
		out.Line("no fault is open in %s", dir)
		return out.Err
	}
	tool, err := p.tool()
	if err != nil {
		return err
	}
	store, err := evidence.Reopen(dir, tool)
	if err != nil {
		return reopenError(err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	executor, err := kind.Open(cmd.Context(), bundle.Inventory.Reach, store.Plan().Fleet.NodeNames())
	if err != nil {
		return fmt.Errorf("executor %s: %w", kind.Name, err)
	}
	progress := newProgress(p, store.Plan(), false)
	undone, err := runner.Undo(cmd.Context(), runner.Options{
		Store: store, Executor: executor, Reach: bundle.Inventory.Reach, Checks: checks.Builtin(), Judge: thresholds.Judge, Progress: progress.report,
	})
	out.Line("%d faults undone", undone)
	if bundle.Sealed {
		out.Line("the seal of the run was set aside: seal it again with rackproof resume %s", dir)
	}
	return errors.Join(err, executor.Close(), out.Err)
}

// openFaults counts the faults that were opened and not closed.
func openFaults(records []evidence.Record) int {
	open := 0
	for _, r := range records {
		switch r.Event {
		case evidence.EventFaultOpen:
			open++
		case evidence.EventFaultClose:
			open--
		}
	}
	return open
}
