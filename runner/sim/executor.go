package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// Version is how a simulated node names itself, over SSH as in the process.
const Version = "SSH-2.0-rackproof-sim"

// Kind is executor "sim": the fleet is a simulated rack inside the process.
func Kind() runner.Kind {
	return runner.Kind{
		Name: evidence.ExecutorSim,
		Doc:  "Runs commands on a simulated rack inside this process, with a seed and without sockets. Evidence, verdict and reports say that it is simulated.",
		Params: []evidence.Param{
			{Name: "seed", Type: evidence.ParamNumber, Whole: true, Default: 1, Doc: "What the rack is made from: one seed gives one rack."},
			{Name: "speed", Type: evidence.ParamNumber, Default: 1, Doc: "How many seconds pass for heat, and for the schedule of faults, in one second of the clock."},
			{Name: "fault", Type: evidence.ParamBlocks, Doc: "A fault of the rack, by a name of its own.", Nested: []evidence.Param{
				{Name: "kind", Type: evidence.ParamString, Required: true, Enum: kindNames(), Doc: "What goes wrong."},
				{Name: "node", Type: evidence.ParamString, Required: true, Doc: "The node that it strikes."},
				{Name: "part", Type: evidence.ParamString, Doc: "The part of the node, such as gpu3 or mlx5_2, where it strikes one."},
				{Name: "after", Type: evidence.ParamDuration, Default: "0s", Doc: "How long after the start of the run."},
				{Name: "for", Type: evidence.ParamDuration, Default: "0s", Doc: "How long it lasts; 0s: to the end."},
			}},
			{Name: "clock_limit", Type: evidence.ParamDuration, Default: "5s", Doc: "How far a node's clock may be from the runner's."},
			{Name: "parallel", Type: evidence.ParamNumber, Whole: true, Unit: "1", Default: 64, Doc: "How many cells may run at once."},
		},
		Can: []evidence.Capability{
			evidence.CapExec,
			evidence.CapFault("process_kill"), evidence.CapFault("service_stop"), evidence.CapFault("command"),
		},
		Open: open,
	}
}

func kindNames() []string {
	var names []string
	for _, k := range rack.FaultKinds() {
		names = append(names, k.Name)
	}
	return names
}

type config struct {
	Seed   uint64        `json:"seed"`
	Speed  float64       `json:"speed"`
	Faults []faultConfig `json:"fault"`
}

type faultConfig struct {
	Name  string            `json:"name"`
	Kind  string            `json:"kind"`
	Node  string            `json:"node"`
	Part  string            `json:"part"`
	After evidence.Duration `json:"after"`
	For   evidence.Duration `json:"for"`
}

func open(_ context.Context, raw json.RawMessage, nodes []string) (runner.Executor, error) {
	var c config
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, fmt.Errorf("executor sim: configuration: %w", err)
		}
	}
	r, err := rack.New(rack.Config{Nodes: nodes, Seed: c.Seed, Speed: c.Speed})
	if err != nil {
		return nil, fmt.Errorf("executor sim: %w", err)
	}
	for _, f := range c.Faults {
		if err := r.Inject(rack.Fault{Kind: f.Kind, Node: f.Node, Part: f.Part, After: f.After.Std(), For: f.For.Std()}); err != nil {
			return nil, fmt.Errorf("executor sim: %w", err)
		}
	}
	return NewExecutor(NewNodes(r, nil)), nil
}

// NewExecutor gives an executor for nodes, which stay when it is closed.
func NewExecutor(nodes *Nodes) runner.Executor {
	return &executor{nodes: nodes, closed: make(chan struct{})}
}

type executor struct {
	nodes  *Nodes
	closed chan struct{}
	close  sync.Once
	tasks  sync.WaitGroup
	mu     sync.Mutex // orders the start of a task before Close's wait
}

func (x *executor) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.closed:
		return false
	default:
		x.tasks.Add(1)
		return true
	}
}

// Identify says that the node is simulated; a hung node says nothing.
func (x *executor) Identify(ctx context.Context, node string) (evidence.NodeIdentity, error) {
	id := evidence.NodeIdentity{Node: node, Address: "simulated"}
	n, ok := x.nodes.Rack.Node(node)
	if !ok {
		id.Problem = &evidence.Problem{Node: node, Class: evidence.ClassNotRun, Detail: "is not a node of the simulated rack"}
		return id, id.Problem
	}
	if n.Hung() {
		<-ctx.Done()
		id.Problem = &evidence.Problem{Node: node, Class: evidence.ClassBanner, Detail: "the simulated node does not answer"}
		return id, id.Problem
	}
	id.SSHVersion, id.Simulated = Version, true
	return id, nil
}

// Exec runs t under the contract of the supervising script, which a simulated
// node does by itself.
func (x *executor) Exec(ctx context.Context, t evidence.Task, stdout, stderr io.Writer) (evidence.Exit, error) {
	start := time.Now()
	if !x.begin() {
		return runner.Unstarted(t, evidence.ClassCut, "the executor has been closed", start, time.Now()), nil
	}
	defer x.tasks.Done()
	if ctx.Err() != nil {
		return runner.Unstarted(t, evidence.ClassCut, "the run was stopped before the command began", start, time.Now()), nil
	}
	s, err := runner.Supervise(t)
	if err != nil {
		return runner.Unstarted(t, evidence.ClassNotRun, err.Error(), start, time.Now()), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x.tasks.Go(func() {
		select {
		case <-x.closed:
			cancel()
		case <-ctx.Done():
		}
	})
	return runner.Attend(ctx, t, s, false, x.link(ctx, t.Node, sshserver.CommandOf(s)), stdout, stderr)
}

// link starts a command on a node. The session has no context of its own: it
// ends with its standard input, as one over SSH does.
func (x *executor) link(ctx context.Context, node string, c sshserver.Command) runner.Link {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	ended := make(chan runner.Ending, 1)
	session, end := context.WithCancel(context.WithoutCancel(ctx))
	x.tasks.Go(func() {
		defer end()
		reported := false
		sshserver.Supervise(session, c, x.nodes.Handler(node), sshserver.Link{
			Stdin: inR, Stdout: outW, Stderr: errW, Go: x.tasks.Go,
			Status: func(exit sshserver.Exit) {
				reported = true
				ended <- ending(exit)
				if !exit.HeldOpen {
					outW.Close()
					errW.Close()
				}
			},
		})
		if !reported {
			ended <- runner.Ending{}
		}
		inR.Close()
		outW.Close()
		errW.Close()
	})
	return runner.Link{
		Stdin: inW, Stdout: outR, Stderr: errR, Ended: ended,
		Close: func() { outR.Close(); errR.Close() },
		Go:    x.tasks.Go,
	}
}

func ending(exit sshserver.Exit) runner.Ending {
	if exit.Signal != "" {
		return runner.Ending{Signal: exit.Signal}
	}
	return runner.Ending{Code: &exit.Code}
}

// Close ends what runs and waits for it.
func (x *executor) Close() error {
	x.mu.Lock()
	x.close.Do(func() { close(x.closed) })
	x.mu.Unlock()
	x.tasks.Wait()
	return nil
}
