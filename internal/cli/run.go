package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/thresholds"
)

type runOptions struct {
	target  string
	inputs  inputOptions
	key     keyOptions
	execute executeOptions
	dir     string
	tests   []string
	phases  []string
	nodes   string
}

// executeOptions are what run and resume share.
type executeOptions struct {
	allow   []string
	timeout string
	limit   evidence.Duration // timeout, once it was read
	json    bool
}

// check reads the timeout.
func (o *executeOptions) check() (err error) {
	if o.timeout == "" {
		return nil
	}
	if o.limit, err = evidence.ParseDuration(o.timeout); err != nil {
		return fail(ExitUsage, fmt.Errorf("--timeout: %w", err))
	}
	return nil
}

func (o *executeOptions) bind(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.allow, "allow", nil, "a hazard that the run may meet, by name (repeatable)")
	cmd.Flags().StringVar(&o.timeout, "timeout", "", "stop the whole run after so long, such as 26h")
	cmd.Flags().BoolVar(&o.json, "json", false, "print progress as one JSON object a line")
	cmd.Annotations = map[string]string{streamMark: ""}
}

func newRunCmd(p *Process) *cobra.Command {
	opts := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run RUNBOOK|PLANDIR",
		Short: "Run an acceptance: execute, judge, seal, and sign if there is a key",
		Long: `Run every cell of a runbook, or of a plan that "plan --out" wrote. Each run has
a directory of its own, and nothing is overwritten. At its end the run is
judged and sealed, signed if --key is given, and packed beside its directory.

The first Ctrl-C starts no further cell and waits for those that run; the
second cancels them. Faults are undone in both cases, and "resume" goes on.`,
		Example: `  rackproof run pod7.runbook.hcl --key keys/operator.key --allow full_power
  rackproof run plans/pod7 --timeout 26h --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.target = args[0]
			return runRun(p, cmd, opts)
		},
	}
	opts.inputs.bind(cmd)
	opts.key.bind(cmd)
	opts.execute.bind(cmd)
	cmd.Flags().StringVar(&opts.dir, "dir", "runs", "where the run's directory is made")
	readsEnvironment(cmd, "dir")
	cmd.Flags().StringArrayVar(&opts.tests, "test", nil, "run only this test (not yet in this build)")
	cmd.Flags().StringArrayVar(&opts.phases, "phase", nil, "run only this phase (not yet in this build)")
	cmd.Flags().StringVar(&opts.nodes, "nodes", "", "run only on these nodes (not yet in this build)")
	for _, name := range []string{"test", "phase", "nodes"} { // known, so that they are refused by name
		cmd.Flags().Lookup(name).Hidden = true
	}
	return cmd
}

func runRun(p *Process, cmd *cobra.Command, opts *runOptions) error {
	if len(opts.tests)+len(opts.phases) > 0 || opts.nodes != "" {
		return fail(ExitUsage, errors.New("--test, --phase and --nodes: narrowed runs are not yet in this build"), "run the whole runbook, or write a smaller one")
	}
	if err := opts.execute.check(); err != nil {
		return err
	}
	c, err := opts.inputs.target(p, opts.target)
	if err != nil {
		return err
	}
	if err := c.explain(p, cmd); err != nil {
		return err
	}
	if err := errors.Join(notEmpty(c.plan), checkAllowed(c.plan, opts.execute.allow)); err != nil {
		return err
	}
	var signer attest.Signer
	if opts.key.key != "" {
		if signer, err = opts.key.signer(p, cmd); err != nil {
			return err
		}
	}
	session, err := begin(p, cmd.Context(), c, opts)
	if err != nil {
		return err
	}
	return session.finish(session.execute(cmd.Context(), p, opts.execute), signer)
}

// checkAllowed refuses hazards that nobody allowed, before anything exists,
// and allowances that the plan does not ask for.
func checkAllowed(plan *evidence.Plan, allowed []string) error {
	asked := hazards(plan)
	var missing []string
	for _, name := range asked {
		if !slices.Contains(allowed, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fail(ExitUsage, fmt.Errorf("the runbook may do to the rack what was not allowed: %s", strings.Join(missing, ", ")),
			"read rackproof plan, and allow it by name: --allow "+strings.Join(missing, ","))
	}
	for _, name := range allowed {
		if !slices.Contains(asked, name) {
			return fail(ExitUsage, fmt.Errorf("--allow %s: no test of the runbook has this hazard", name), "its hazards are: "+orNone(asked))
		}
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// session is one process's work on one run directory.
type session struct {
	p        *Process
	ctx      context.Context
	store    *evidence.Store
	reach    json.RawMessage
	kind     runner.Kind
	retry    []evidence.Class
	unsealed bool // the run was sealed before this process opened it again
	key      string
	progress *progress
	stopper  *stopper
}

// begin makes the run directory and writes down how the nodes are reached, so
// that the run can be resumed from its directory alone.
func begin(p *Process, ctx context.Context, c *compiled, opts *runOptions) (*session, error) {
	name, config := c.runbook.Executor()
	kind, ok := findKind(name)
	if !ok {
		return nil, fail(ExitUsage, fmt.Errorf("this build has no executor %q", name))
	}
	reach, err := p.reach(kind, config)
	if err != nil {
		return nil, err
	}
	tool, err := p.tool()
	if err != nil {
		return nil, err
	}
	id, err := evidence.NewRunID(p.Now(), p.Random)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(opts.dir, id)
	store, err := evidence.Create(dir, id, c.plan, c.runbook.Sources(), tool)
	if err != nil {
		return nil, err
	}
	s := &session{p: p, ctx: ctx, store: store, kind: kind, reach: reach, key: opts.key.key, progress: newProgress(p, c.plan, opts.execute.json)}
	inventory := evidence.Inventory{MediaType: evidence.MediaInventory, Minor: evidence.Minor, Executor: name, Reach: reach, Nodes: []evidence.NodeIdentity{}}
	if err := store.WriteDocument(evidence.InventoryPath, inventory); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	digest, err := evidence.PlanDigest(c.plan)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	s.progress.plan(id, dir, c.plan, digest)
	return s, nil
}

// execute runs what is left of the plan. Its error is the runner's.
func (s *session) execute(ctx context.Context, p *Process, opts executeOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.stopper = p.watch(cancel, s.progress.diagnostic)
	defer s.stopper.close()
	executor, err := s.kind.Open(ctx, s.reach, s.store.Plan().Fleet.NodeNames())
	if err != nil {
		return fmt.Errorf("executor %s: %w", s.kind.Name, err)
	}
	end := s.progress.begin()
	defer end()
	err = runner.Run(ctx, runner.Options{
		Store: s.store, Executor: executor, Reach: s.reach, Checks: checks.Builtin(), Judge: thresholds.Judge,
		Stop: s.stopper.stop, Progress: s.progress.report, Timeout: opts.limit.Std(), RetryClasses: s.retry, Allow: opts.allow,
	})
	return errors.Join(err, executor.Close())
}

// finish judges, seals, signs and packs a run that is complete, and says how
// to go on with one that is not. ran is what execute returned.
func (s *session) finish(ran error, signer attest.Signer) (err error) {
	defer func() { err = errors.Join(err, s.store.Close()) }()
	var open *runner.OpenFaultError
	if ran != nil && !errors.As(ran, &open) {
		return s.unfinished(ran)
	}
	verdict, err := seal(s.store)
	if err != nil {
		return errors.Join(ran, hinted(fmt.Errorf("seal %s: %w", s.store.Dir(), err), "nothing measured is lost; once the cause is mended: "+s.resume()))
	}
	d := delivery{plan: s.store.Plan(), dir: s.store.Dir(), run: s.store.Run(), records: s.store.Records(), signer: signer, verdict: verdict, progress: s.progress}
	delivered := d.deliver(s.ctx, s.p)
	return judgedError(s.store.Plan(), verdict, s.store.Dir(), delivered, ran)
}

// resume is the command that goes on with the run.
func (s *session) resume() string {
	command := resumeCommand(s.store.Plan(), s.store.Dir())
	if s.key != "" {
		command += " --key " + s.key
	}
	return command
}

// unfinished explains a run that ended before its end.
func (s *session) unfinished(ran error) error {
	if s.unsealed {
		ran = hinted(ran, "the run is not sealed any more: its seal and its signature are kept in run/seals, and the resume that completes it seals it again; --key FILE signs it")
	}
	var hazard *runner.HazardError
	switch {
	case errors.As(ran, &hazard):
		return fail(ExitUsage, ran, s.resume())
	case errors.Is(ran, runner.ErrStopped):
		return fail(s.stopper.exit(), ran, s.resume())
	}
	return hinted(ran, "nothing measured is lost; once the cause is mended: "+s.resume())
}

// reach is the executor's configuration with what only the process knows: the
// user's ssh configuration and agent, where the kind has such parameters and
// the runbook left them out.
func (p *Process) reach(kind runner.Kind, config json.RawMessage) (json.RawMessage, error) {
	values := make(map[string]json.RawMessage)
	if len(config) > 0 {
		if err := json.Unmarshal(config, &values); err != nil {
			return nil, fmt.Errorf("executor %s: %w", kind.Name, err)
		}
	}
	fill := func(param, value string) error {
		has := slices.ContainsFunc(kind.Params, func(q evidence.Param) bool { return q.Name == param })
		if given, ok := values[param]; !has || value == "" || ok && string(given) != "null" && string(given) != `""` {
			return nil
		}
		text, err := json.Marshal(value)
		values[param] = text
		return err
	}
	userConfig := ""
	if home := p.getenv("HOME"); home != "" {
		if path := filepath.Join(home, ".ssh", "config"); isFile(path) {
			userConfig = path
		}
	}
	if err := errors.Join(fill("ssh_config", userConfig), fill("agent", p.getenv("SSH_AUTH_SOCK"))); err != nil {
		return nil, err
	}
	return json.Marshal(values)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
