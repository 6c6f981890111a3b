package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/checks"
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
the check versions and the machines must be the same. A complete run that was
never packed, because its process died or the disk was full, is packed.

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
	bundle, err := inspectRun(opts.dir)
	if err != nil {
		return err
	}
	var signer attest.Signer
	if opts.key.key != "" {
		if signer, err = opts.key.signer(p, cmd); err != nil {
			return err
		}
	}
	if bundle.Sealed && !wasStopped(bundle.Records) {
		if len(retry) == 0 {
			return resumeSealed(p, cmd, opts, bundle, signer)
		}
		if err := somethingToRetry(opts, bundle.Plan, bundle.Records, retry); err != nil {
			return err
		}
	}
	kind, err := executorOf(opts.dir, bundle)
	if err != nil {
		return err
	}
	if bundle.Sealed {
		if err := mayGoOn(opts, bundle.Plan); err != nil {
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
		unsealed: bundle.Sealed, key: opts.key.key, progress: newProgress(p, store.Plan(), opts.execute.json),
	}
	s.progress.recall(store.Records())
	s.progress.plan(store.Run(), opts.dir, store.Plan(), evidence.DigestOf(bundle.PlanBytes))
	return s.finish(s.execute(cmd.Context(), p, opts.execute), signer)
}

// mayGoOn refuses what the runner would refuse, while the run is still as it
// was: reopening takes the seal and the signature of a sealed run away.
func mayGoOn(opts *resumeOptions, plan *evidence.Plan) error {
	if err := checkAllowed(plan, opts.execute.allow); err != nil {
		return err
	}
	for _, test := range plan.Tests {
		have := 0 // this build does not have it
		if check, ok := checks.Builtin().Find(test.Check); ok {
			have = check.Spec().Version
		}
		if have != test.CheckVersion {
			return fail(ExitError, fmt.Errorf("test %s: the plan has check %s in version %d, and this build has version %d", test.Name, test.Check, test.CheckVersion, have),
				"go on with the build that began the run: rackproof inspect "+opts.dir+" names it")
		}
	}
	free, err := evidence.FreeBytes(opts.dir)
	if err == nil && free < runner.DefaultMinFree {
		err = &runner.DiskError{Dir: opts.dir, Free: free, Need: runner.DefaultMinFree}
	}
	return err
}

// resumeSealed does what is left to do with a run that is complete and sealed.
func resumeSealed(p *Process, cmd *cobra.Command, opts *resumeOptions, bundle *evidence.Bundle, signer attest.Signer) (err error) {
	d := delivery{plan: bundle.Plan, dir: opts.dir, run: bundle.Run, records: bundle.Records, signer: signer, signed: bundle.Signed}
	undelivered, err := d.undelivered()
	if err != nil {
		return err
	}
	if !undelivered || bundle.Verdict == nil {
		var hints []string
		if bundle.Verdict != nil {
			hints = retryHints(bundle.Plan, bundle.Verdict.Coverage.Open, opts.dir)
		}
		if openFaults(bundle.Records) > 0 {
			hints = []string{"its faults may still be in effect: rackproof undo " + opts.dir}
		}
		return fail(ExitUsage, fmt.Errorf("%s is complete and sealed: there is nothing to resume", opts.dir), hints...)
	}
	unlock, err := evidence.LockSealed(opts.dir)
	if err != nil {
		return reopenError(err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	d.verdict, d.progress = *bundle.Verdict, newProgress(p, bundle.Plan, opts.execute.json)
	if err := d.deliver(cmd.Context(), p); err != nil {
		return err
	}
	return verdictError(bundle.Plan, d.verdict, opts.dir)
}

// somethingToRetry refuses to break a seal, and to give up its signature, for
// a run in which nothing ended in one of the classes.
func somethingToRetry(opts *resumeOptions, plan *evidence.Plan, records []evidence.Record, retry []evidence.Class) error {
	root, err := os.OpenRoot(opts.dir)
	if err != nil {
		return plainPath(err)
	}
	defer root.Close()
	var ended []string
	for _, cell := range checks.Measure(checks.Builtin(), plan, records, root.FS()) {
		for _, class := range endedWith(cell) {
			if slices.Contains(retry, class) {
				return nil
			}
			if class != evidence.ClassOK {
				ended = append(ended, string(class))
			}
		}
	}
	slices.Sort(ended)
	hint := "every cell of it was measured without a problem"
	if ended = slices.Compact(ended); len(ended) > 0 {
		hint = "its cells ended with: " + strings.Join(ended, ", ")
	}
	return fail(ExitUsage, fmt.Errorf("%s: no cell ended with %s: there is nothing to try again, and its seal stays", opts.dir, strings.Join(opts.retry, ", ")), hint)
}

// endedWith lists the classes of how a cell ended, as the runner asks for them.
func endedWith(cell evidence.CellResult) []evidence.Class {
	var classes []evidence.Class
	if cell.Skipped != nil {
		classes = append(classes, cell.Skipped.Class)
	}
	if len(cell.Attempts) == 0 {
		return classes
	}
	last := cell.Attempts[len(cell.Attempts)-1]
	for _, problem := range append(slices.Clone(last.Problems), last.Unmeasured...) {
		classes = append(classes, problem.Class)
	}
	for _, step := range last.Steps {
		classes = append(classes, step.Class)
	}
	return classes
}

func reopenError(err error) error {
	if errors.Is(err, evidence.ErrLocked) {
		return hinted(err, "another rackproof works on this run: wait for it, or stop it")
	}
	return err
}

// inspectRun reads a run directory before anything in it is changed.
func inspectRun(dir string) (*evidence.Bundle, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fail(ExitUsage, plainPath(err))
	}
	if !info.IsDir() {
		return nil, fail(ExitUsage, fmt.Errorf("%s is not a run directory", dir), "an archive cannot be gone on with: name the directory under runs/")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, plainPath(err)
	}
	defer root.Close()
	bundle, err := evidence.Open(root.FS())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return bundle, nil
}

// executorOf finds the executor by which the nodes of the run in dir are
// reached.
func executorOf(dir string, bundle *evidence.Bundle) (runner.Kind, error) {
	if bundle.Inventory == nil {
		return runner.Kind{}, fail(ExitError, fmt.Errorf("%s has no %s, so nothing says how its nodes are reached", dir, evidence.InventoryPath), "nothing was measured: start a new run")
	}
	kind, ok := findKind(bundle.Inventory.Executor)
	if !ok {
		return runner.Kind{}, fmt.Errorf("%s: this build has no executor %q", dir, bundle.Inventory.Executor)
	}
	return kind, nil
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

// resumeCommand is how to go on with the run in dir. It carries the hazards of
// the plan, because each process is to be allowed them again.
func resumeCommand(plan *evidence.Plan, dir string, retry ...string) string {
	command := "rackproof resume " + dir
	if len(retry) > 0 {
		command += " --retry " + strings.Join(retry, ",")
	}
	if asked := hazards(plan); len(asked) > 0 {
		command += " --allow " + strings.Join(asked, ",")
	}
	return command
}

// retryHints propose to try open cells again, where another attempt may find
// what this one lacked: a node that is back, a tool that was installed.
func retryHints(plan *evidence.Plan, open []evidence.OpenCell, dir string) []string {
	var retry []string
	for _, c := range open {
		name := string(c.Problem.Class)
		switch {
		case slices.Contains(lostClasses, c.Problem.Class):
			name = string(evidence.ClassLost)
		case !slices.Contains(mendableClasses, c.Problem.Class):
			continue
		}
		if !slices.Contains(retry, name) {
			retry = append(retry, name)
		}
	}
	if len(retry) == 0 {
		return nil
	}
	slices.Sort(retry)
	return []string{resumeCommand(plan, dir, retry...)}
}

// mendableClasses are those beside lostClasses whose cause is in the rack and
// may be gone at another attempt. Where a gate kept a cell away, or the machine
// may be another one, a retry is not for us to propose.
var mendableClasses = []evidence.Class{
	evidence.ClassAuth, evidence.ClassTimeout, evidence.ClassSignal, evidence.ClassOutputHeldOpen, evidence.ClassLeaseHeld,
	evidence.ClassToolMissing, evidence.ClassToolVersion, evidence.ClassSudoRefused, evidence.ClassWrongFilesystem, evidence.ClassMountMissing,
	evidence.ClassNodeDiskFull, evidence.ClassClockOffset,
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
