package sim

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// launch is a parallel program on several nodes, as mpirun, srun and Hydra
// start it.
type launch struct {
	c     *Call // the launcher's
	argv  []string
	nodes []*rack.Node // of each rank
	local func(rank int) []string
	away  func(rank int) []string
	// stdout and stderr are where the launcher gets a rank's output.
	stdout, stderr func(rank int) io.Writer
}

// run ends when all ranks have, or when one has failed: the others are ended
// then. A launcher waits for a node that does not answer.
func (l launch) run(ctx context.Context) ended {
	if slices.ContainsFunc(l.nodes, (*rack.Node).Hung) {
		<-ctx.Done()
		return ended{exit: sshserver.Exit{Signal: "TERM"}}
	}
	argv, settings := withoutEnv(l.argv)
	calls := make([]*Call, len(l.nodes))
	for rank, n := range l.nodes {
		call := *l.c
		call.Node, call.Files, call.Argv = n, l.c.nodes.files[n.Name], argv
		// The processes beside the launcher have its environment.
		call.Env = slices.Concat(l.away(rank), settings)
		if n == l.c.Node {
			call.Env = slices.Concat(l.c.Env, l.local(rank), settings)
		}
		call.Stdin, call.Stdout, call.Stderr = strings.NewReader(""), l.stdout(rank), l.stderr(rank)
		calls[rank] = &call
	}
	if isNcclTests(argv[0]) {
		return runNccl(ctx, ncclProcs(calls))
	}
	return together(ctx, calls)
}

// withoutEnv is a command without the env before it, and what that sets: a
// program behind it is still one of all ranks.
func withoutEnv(argv []string) (bare, settings []string) {
	if path.Base(argv[0]) != "env" {
		return argv, nil
	}
	i := 1
	for i < len(argv) && strings.Contains(argv[i], "=") && !strings.HasPrefix(argv[i], "-") {
		i++
	}
	if i == len(argv) || strings.HasPrefix(argv[i], "-") {
		return argv, nil
	}
	return argv[i:], argv[1:i]
}

// ncclProcs are the ranks of one run of nccl-tests.
func ncclProcs(calls []*Call) []*ncclProc {
	procs := make([]*ncclProc, len(calls))
	beside := make(map[*rack.Node]int)
	for rank, c := range calls {
		procs[rank] = &ncclProc{
			node: c.Node, files: c.Files, argv: c.Argv, env: c.Env, local: beside[c.Node],
			pid: pid(c.Node, strings.Join(c.Argv, " ")) + beside[c.Node], stdout: c.Stdout, stderr: c.Stderr,
		}
		beside[c.Node]++
	}
	return procs
}

// together runs a program that knows nothing of ranks.
func together(ctx context.Context, calls []*Call) ended {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	exits := make([]sshserver.Exit, len(calls))
	var tasks sync.WaitGroup
	for rank, c := range calls {
		tasks.Go(func() {
			switch exits[rank] = c.run(ctx); {
			case exits[rank].Code != 0:
				cancel()
			case exits[rank].NoStatus: // its node hangs, and not the launcher's
				exits[rank] = sshserver.Exit{Signal: "TERM"}
			}
		})
	}
	tasks.Wait()
	failed := func(e sshserver.Exit) bool { return e.Code != 0 }
	rank := slices.IndexFunc(exits, failed)
	if rank < 0 {
		rank = max(0, slices.IndexFunc(exits, func(e sshserver.Exit) bool { return e != (sshserver.Exit{}) }))
	}
	return ended{exits[rank], rank}
}

// ranked writes what ranks write, each write as one piece.
type ranked struct {
	mu *sync.Mutex
	to io.Writer
	// dress is how a launcher passes a piece on.
	dress func(piece string) string
}

// Write passes a piece on.
func (w ranked) Write(piece []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := io.WriteString(w.to, w.dress(string(piece))); err != nil {
		return 0, err
	}
	return len(piece), nil
}

// maxRanks bounds the ranks of one launch: eight times those of the largest
// rack.
const maxRanks = 8 * rack.MaxNodes * rack.GPUs

// spread are the nodes of the ranks: each node in turn gets one for each of
// its slots, or each of them where that is more than 0. It is false where the
// slots do not do.
func spread(hosts []host, ranks, each int) ([]*rack.Node, bool) {
	var nodes []*rack.Node
	if ranks < 1 || ranks > maxRanks {
		return nil, false
	}
	for _, h := range hosts {
		slots := h.slots
		if each > 0 {
			if each > slots {
				return nil, false
			}
			slots = each
		}
		for range slots {
			if len(nodes) < ranks {
				nodes = append(nodes, h.node)
			}
		}
	}
	return nodes, len(nodes) == ranks
}

// host is a node that a launcher may use, and for how many ranks.
type host struct {
	node  *rack.Node
	slots int
}

// unknownHost is the name that no node of the rack has.
type unknownHost string

// Error names it.
func (u unknownHost) Error() string { return fmt.Sprintf("there is no host %q", string(u)) }

// addHost adds slots of a node to those that are there.
func (c *Call) addHost(hosts []host, name string, slots int) ([]host, error) {
	if name == "localhost" {
		name = c.Node.Name
	}
	n, ok := c.nodes.Rack.Node(name)
	if !ok {
		return nil, unknownHost(name)
	}
	if i := slices.IndexFunc(hosts, func(h host) bool { return h.node == n }); i >= 0 {
		hosts[i].slots += slots
		return hosts, nil
	}
	return append(hosts, host{n, slots}), nil
}
