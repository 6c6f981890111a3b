package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	bundle, err := inspectRun(dir)
	if err != nil {
		return err
	}
	out := newLines(p.Stdout)
	if openFaults(bundle.Records) == 0 {
		out.Line("no fault is open in %s", dir)
		return out.Err
	}
	kind, err := executorOf(dir, bundle)
	if err != nil {
		return err
	}
	tool, err := p.tool()
	if err != nil {
		return err
	}
	progress := newProgress(p, bundle.Plan, false)
	// A signal must not end us between an undo and its record.
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	watch := p.watch(cancel, func(string) {
		progress.diagnostic("an undo that was begun is brought to its end; a second signal gives up those that were not")
	})
	defer watch.close()
	executor, err := kind.Open(ctx, bundle.Inventory.Reach, bundle.Plan.Fleet.NodeNames())
	if err != nil {
		return fmt.Errorf("executor %s: %w", kind.Name, err)
	}
	defer func() { err = errors.Join(err, executor.Close()) }()
	store, err := evidence.Reopen(dir, tool)
	if err != nil {
		return reopenError(err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	undone, err := runner.Undo(ctx, runner.Options{
		Store: store, Executor: executor, Reach: bundle.Inventory.Reach, Checks: checks.Builtin(), Judge: thresholds.Judge, Progress: progress.report,
	})
	out.Line("%s undone", evidence.Count(undone, "fault"))
	if bundle.Sealed {
		out.Line("the seal of the run was set aside: seal it again with %s", resumeCommand(bundle.Plan, dir))
	}
	if err != nil && ctx.Err() != nil {
		return errors.Join(fail(watch.exit(), err, "rackproof undo "+dir), out.Err)
	}
	return errors.Join(err, out.Err)
}

// openFaults counts the faults that were opened and not closed.
func openFaults(records []evidence.Record) int { return len(stillOpen(records)) }

// faultOf says what a record of a fault broke, and where.
func faultOf(r evidence.Record) string {
	kind := "a fault"
	if r.Fault != nil {
		kind = r.Fault.Kind
	}
	return fmt.Sprintf("%s on %s (%s attempt %d)", kind, r.Node, r.Cell, r.Attempt)
}

// stillOpen are the records of the faults that were opened and not closed.
func stillOpen(records []evidence.Record) []evidence.Record {
	var open []evidence.Record
	for _, r := range records {
		switch r.Event {
		case evidence.EventFaultOpen:
			open = append(open, r)
		case evidence.EventFaultClose:
			open = slices.DeleteFunc(open, func(o evidence.Record) bool {
				return o.Cell == r.Cell && o.Attempt == r.Attempt && o.FaultIndex == r.FaultIndex && o.Node == r.Node
			})
		}
	}
	return open
}
