package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

func newLabCmd(p *Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "The simulated rack: raise it, look at it, break it",
		Long: `The simulated rack is one SSH server a node on loopback. Its nodes have the
tools that checks call, which print in the real formats what one physical model
works out, and faults that can be switched on. Whatever is run against it says
that it is simulated.`,
		Example: `  rackproof lab up --nodes 'gpu[001-032]'
  rackproof lab inject hot_gpu gpu007/gpu3`,
	}
	asGroup(p, cmd)
	cmd.PersistentFlags().String("lab", "lab", "the lab's folder")
	cmd.AddCommand(newLabUpCmd(p), newLabStatusCmd(p), newLabInjectCmd(p), newLabDownCmd(p))
	return cmd
}

// labFile names the control socket, in the lab's folder. The socket itself
// lies elsewhere: the path of one has at most 107 bytes.
const labFile = "lab.json"

type labDocument struct {
	Control string `json:"control"`
}

type labUpOptions struct {
	nodes string
	seed  uint64
	speed float64
}

func newLabUpCmd(p *Process) *cobra.Command {
	opts := &labUpOptions{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Raise a simulated rack, and keep it up until it is told to end",
		Long: `Raise a simulated rack and keep it up until Ctrl-C or "lab down". The lab's
folder gets ssh_config and known_hosts for the executor, and a key. One seed
gives one rack, host keys and serial numbers included.`,
		Example: `  rackproof lab up --nodes 'gpu[001-032]'
  ssh -F lab/ssh_config -o UserKnownHostsFile=lab/known_hosts gpu001 nvidia-smi -L`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runLabUp(p, cmd, opts) },
	}
	cmd.Flags().StringVar(&opts.nodes, "nodes", "gpu[001-032]", fmt.Sprintf("names of the nodes, at most %d", rack.MaxNodes))
	cmd.Flags().Uint64Var(&opts.seed, "seed", 1, "what the rack is made from")
	cmd.Flags().Float64Var(&opts.speed, "speed", 1, "seconds that pass for heat and for faults in one second of the clock")
	return cmd
}

func runLabUp(p *Process, cmd *cobra.Command, opts *labUpOptions) (err error) {
	names, err := nodeset.Parse(opts.nodes, nil)
	if err != nil {
		return usageError("--nodes %q: %w", opts.nodes, err)
	}
	r, err := rack.New(rack.Config{Nodes: names, Seed: opts.seed, Speed: opts.speed})
	if err != nil {
		return fail(ExitUsage, err)
	}
	dir, err := labDir(cmd)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return plainPath(err)
	}
	const another = `end it with "rackproof lab down", or choose another folder with --lab`
	switch status, err := askLab(cmd, sim.Request{Do: sim.DoStatus}); {
	case err == nil:
		return fail(ExitUsage, fmt.Errorf("a lab of %s is up in %s", evidence.Count(len(status.Ports), "node"), dir), another)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fail(ExitUsage, fmt.Errorf("a lab is up in %s and does not answer", dir), another)
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	signals, quiet := p.Signals()
	defer quiet()
	stop := context.AfterFunc(ctx, quiet)
	defer stop()
	lab, access, err := sim.Serve(ctx, sim.NewNodes(r, nil), dir)
	if errors.Is(err, syscall.EMFILE) {
		return fail(ExitError, err, `each node takes a file and each connection another: raise the limit with "ulimit -n", or raise fewer nodes`)
	}
	if err != nil {
		return plainPath(err)
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	control, leave, err := listenControl(ctx, dir)
	if err != nil {
		return err
	}
	defer leave()
	out := newLines(p.Stdout)
	out.Line("simulated rack: %s, seed %d: no real machine answers", evidence.Count(len(names), "node"), opts.seed)
	out.Line("ssh_config   %s", access.SSHConfig)
	out.Line("known_hosts  %s", access.KnownHosts)
	out.Line("up until Ctrl-C or \"rackproof lab down\"")
	if out.Err != nil {
		return out.Err
	}
	var interrupted sync.WaitGroup
	interrupted.Go(func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	})
	err = lab.Control(ctx, control)
	cancel()
	interrupted.Wait()
	return err
}

// listenControl opens the control socket and writes where it is. leave removes
// both.
func listenControl(ctx context.Context, dir string) (listener net.Listener, leave func(), err error) {
	private, err := os.MkdirTemp("", "rackproof-lab-")
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(private, "control")
	leave = func() {
		os.RemoveAll(private)
		// Another lab may have come up in the same folder meanwhile.
		if document, err := readLabDocument(dir); err == nil && document.Control == path {
			os.Remove(filepath.Join(dir, labFile))
		}
	}
	var listen net.ListenConfig
	if listener, err = listen.Listen(ctx, "unix", path); err != nil {
		leave()
		return nil, nil, fmt.Errorf("control socket of the simulated rack: %w", err)
	}
	text, err := json.Marshal(labDocument{Control: path})
	if err == nil {
		// An earlier lab that was killed has left its own.
		err = os.WriteFile(filepath.Join(dir, labFile), append(text, '\n'), 0o600)
	}
	if err != nil {
		listener.Close()
		leave()
		return nil, nil, plainPath(err)
	}
	return listener, leave, nil
}

func labDir(cmd *cobra.Command) (string, error) {
	dir, err := cmd.Flags().GetString("lab")
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

func readLabDocument(dir string) (labDocument, error) {
	path := filepath.Join(dir, labFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return labDocument{}, plainPath(err)
	}
	var document labDocument
	if err := json.Unmarshal(text, &document); err != nil {
		return labDocument{}, fmt.Errorf("%s: %w", path, err)
	}
	return document, nil
}

// askLab asks the lab of the folder that the command names.
func askLab(cmd *cobra.Command, r sim.Request) (sim.Status, error) {
	dir, err := labDir(cmd)
	if err != nil {
		return sim.Status{}, err
	}
	document, err := readLabDocument(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return sim.Status{}, fail(ExitUsage, fmt.Errorf("no lab is up in %s", dir), `raise one with "rackproof lab up", or name its folder with --lab`)
	}
	if err != nil {
		return sim.Status{}, err
	}
	status, err := sim.Ask(cmd.Context(), document.Control, r)
	var unreachable *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return sim.Status{}, fmt.Errorf("the lab in %s does not answer: %w", dir, err)
	case errors.As(err, &unreachable):
		return sim.Status{}, fail(ExitUsage, fmt.Errorf("the lab in %s is not up any more: %w", dir, err), `raise it again with "rackproof lab up"`)
	}
	return status, err
}

func newLabStatusCmd(p *Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a lab's nodes and faults",
		Example: `  rackproof lab status
  rackproof lab status --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := askLab(cmd, sim.Request{Do: sim.DoStatus})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(p.Stdout, status)
			}
			return showLab(p, status)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON document")
	return cmd
}

func showLab(p *Process, s sim.Status) error {
	out := newLines(p.Stdout)
	names := slices.Sorted(maps.Keys(s.Ports))
	out.Line("simulated rack: %s, seed %d, up for %s", nodeset.Fold(names), s.Seed, time.Duration(s.Up*float64(time.Second)).Round(time.Second))
	if s.Leader != "" {
		out.Line("leader of the service: %s", s.Leader)
	}
	out.Line("%s", evidence.Count(len(s.Faults), "fault"))
	for _, f := range s.Faults {
		until := ""
		if f.End != nil {
			until = " until " + f.End.Format(time.TimeOnly)
		}
		out.Line("  %s from %s%s", f.Fault, f.Begin.Format(time.TimeOnly), until)
	}
	return out.Err
}

type labInjectOptions struct {
	after, lasts string
	clear, list  bool
}

func newLabInjectCmd(p *Process) *cobra.Command {
	opts := &labInjectOptions{}
	cmd := &cobra.Command{
		Use:   "inject KIND NODE[/PART]",
		Short: "Break something in a lab, or mend it",
		Long: `Break something in a lab, now or later. --clear mends what KIND and NODE[/PART]
name, or everything without them; --list says what can be broken.`,
		Example: `  rackproof lab inject slow_link gpu012/mlx5_3 --after 30s --for 5m
  rackproof lab inject --clear`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case opts.list && len(args) > 0:
				return errors.New("--list takes no arguments")
			case opts.list || opts.clear && len(args) <= 2 || len(args) == 2:
				return nil
			}
			return fmt.Errorf("inject takes a kind and a node: %d arguments were given", len(args))
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runLabInject(p, cmd, opts, args) },
	}
	cmd.Flags().StringVar(&opts.after, "after", "0s", "how long from now")
	cmd.Flags().StringVar(&opts.lasts, "for", "0s", "how long it lasts; 0s: until it is cleared")
	cmd.Flags().BoolVar(&opts.clear, "clear", false, "mend instead")
	cmd.Flags().BoolVar(&opts.list, "list", false, "list what can be broken")
	return cmd
}

func runLabInject(p *Process, cmd *cobra.Command, opts *labInjectOptions, args []string) error {
	out := newLines(p.Stdout)
	if opts.list {
		for _, k := range rack.FaultKinds() {
			out.Line("%-14s %-5s %s", k.Name, k.Part, k.Doc)
		}
		return out.Err
	}
	fault := &rack.Fault{}
	if len(args) > 0 {
		fault.Kind = args[0]
	}
	if len(args) > 1 {
		fault.Node, fault.Part, _ = strings.Cut(args[1], "/")
	}
	if opts.clear {
		status, err := askLab(cmd, sim.Request{Do: sim.DoClear, Fault: fault})
		if err != nil {
			return err
		}
		out.Line("%s cleared", evidence.Count(status.Cleared, "fault"))
		return out.Err
	}
	for _, d := range []struct {
		flag, text string
		into       *time.Duration
	}{{"after", opts.after, &fault.After}, {"for", opts.lasts, &fault.For}} {
		parsed, err := evidence.ParseDuration(d.text)
		if err != nil {
			return usageError("--%s %q: %w", d.flag, d.text, err)
		}
		*d.into = parsed.Std()
	}
	if _, err := askLab(cmd, sim.Request{Do: sim.DoInject, Fault: fault}); err != nil {
		return err
	}
	out.Line("injected: %s", fault)
	return out.Err
}

func newLabDownCmd(p *Process) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End a lab",
		Example: `  rackproof lab down
  rackproof lab down --lab /tmp/lab`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := askLab(cmd, sim.Request{Do: sim.DoDown})
			if err != nil {
				return err
			}
			out := newLines(p.Stdout)
			out.Line("ended: %s", evidence.Count(len(status.Ports), "simulated node"))
			return out.Err
		},
	}
}
