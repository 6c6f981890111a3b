// Package ssh runs commands on nodes over SSH: one kept connection a node,
// host keys always checked, every wait with a clock of its own, and every
// command under the supervising script, so that nothing is left behind when
// the runner goes.
package ssh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
)

// Kind is executor "ssh".
func Kind() runner.Kind {
	return runner.Kind{
		Name:   "ssh",
		Doc:    "Runs commands on the nodes over SSH. Host keys are always checked against known_hosts; ssh_config is read as OpenSSH reads it, but for ProxyCommand, which is refused.",
		Params: params(),
		Can: []evidence.Capability{
			evidence.CapExec,
			evidence.CapFault("process_kill"), evidence.CapFault("service_stop"), evidence.CapFault("command"),
		},
		Open: func(ctx context.Context, raw json.RawMessage, nodes []string) (runner.Executor, error) {
			return open(ctx, raw, nodes, defaultClocks())
		},
	}
}

type executor struct {
	become bool
	routes map[string]route
	pool   *pool

	closed chan struct{}
	mu     sync.Mutex     // orders the start of a task before Close's wait
	tasks  sync.WaitGroup // Exec and Identify under way
	work   sync.WaitGroup // what belongs to connections
}

func open(ctx context.Context, raw json.RawMessage, nodes []string, k clocks) (*executor, error) {
	c, err := parseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("executor ssh: %w", err)
	}
	r, err := newResolver(ctx, c, nodes)
	if err != nil {
		return nil, fmt.Errorf("executor ssh: %w", err)
	}
	x := &executor{become: c.Become == "sudo", routes: make(map[string]route), closed: make(chan struct{})}
	for _, node := range nodes {
		if x.routes[node], err = r.route(ctx, node); err != nil {
			return nil, fmt.Errorf("executor ssh: %w", err)
		}
	}
	x.pool = newPool(newDialer(k, &x.work))
	return x, nil
}

// begin makes ctx end when the executor is closed. end must be called.
func (x *executor) begin(ctx context.Context) (_ context.Context, end func(), ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.closed:
		return nil, nil, false
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	x.tasks.Add(1)
	x.tasks.Go(func() {
		select {
		case <-x.closed:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(); x.tasks.Done() }, true
}

var closedProblem = evidence.Problem{Class: evidence.ClassCut, Detail: "the executor has been closed"}

// Identify connects to the node, if no connection is kept, and says what the
// connection shows.
func (x *executor) Identify(ctx context.Context, node string) (evidence.NodeIdentity, error) {
	id := evidence.NodeIdentity{Node: node}
	fail := func(p evidence.Problem) (evidence.NodeIdentity, error) {
		p.Node = node
		id.Problem = &p
		return id, &p
	}
	ctx, end, ok := x.begin(ctx)
	if !ok {
		return fail(closedProblem)
	}
	defer end()
	r, ok := x.routes[node]
	if !ok {
		return fail(evidence.Problem{Class: evidence.ClassNotRun, Detail: "is not a node of the fleet"})
	}
	id.Address = r[len(r)-1].address()
	c, problem := x.pool.get(ctx, r)
	if problem != nil {
		return fail(*problem)
	}
	if c.via == nil {
		id.Address = c.wire.RemoteAddr().String()
	}
	id.HostKey = c.hostKey
	id.SSHVersion = c.version
	id.Simulated = evidence.SimulatedServer(c.version)
	return id, nil
}

// Exec runs t in a session of the node's kept connection.
func (x *executor) Exec(ctx context.Context, t evidence.Task, stdout, stderr io.Writer) (evidence.Exit, error) {
	start := time.Now()
	unstarted := func(p evidence.Problem) (evidence.Exit, error) {
		return runner.Unstarted(t, p.Class, p.Detail, start, time.Now()), nil
	}
	ctx, end, ok := x.begin(ctx)
	if !ok {
		return unstarted(closedProblem)
	}
	defer end()
	r, ok := x.routes[t.Node]
	if !ok {
		return unstarted(evidence.Problem{Class: evidence.ClassNotRun, Detail: fmt.Sprintf("%q is not a node of the fleet", t.Node)})
	}
	if ctx.Err() != nil {
		return unstarted(evidence.Problem{Class: evidence.ClassCut, Detail: "the run was stopped before the command began"})
	}
	s, err := runner.Supervise(t)
	if err != nil {
		return unstarted(evidence.Problem{Class: evidence.ClassNotRun, Detail: err.Error()})
	}
	session, problem := x.start(ctx, r, s.Exec(x.become))
	if problem != nil {
		return unstarted(*problem)
	}
	return runner.Attend(ctx, t, s, x.become, session.link(), stdout, stderr)
}

// start opens a session and starts command in it. A kept connection that
// turns out to be gone before it carried the command is made once more.
func (x *executor) start(ctx context.Context, r route, command string) (*session, *evidence.Problem) {
	for try := 1; ; try++ {
		c, problem := x.pool.get(ctx, r)
		if problem != nil {
			return nil, problem
		}
		session, requests, err := c.open(ctx, &x.work)
		if err == nil {
			if problem := session.exec(ctx, command, requests); problem != nil {
				return nil, problem
			}
			return session, nil
		}
		if errors.As(err, &problem) {
			return nil, problem
		}
		c.lose(err)
		if try == 2 {
			return nil, &evidence.Problem{Class: evidence.ClassLost, Detail: fmt.Sprintf("the connection to %s was lost: %v", c.hop, c.reason())}
		}
	}
}

// Close ends what runs, as a stop would, and then every connection.
func (x *executor) Close() error {
	x.mu.Lock()
	select {
	case <-x.closed:
	default:
		close(x.closed)
	}
	x.mu.Unlock()
	x.tasks.Wait()
	x.pool.close()
	x.work.Wait()
	return nil
}
