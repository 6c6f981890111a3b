package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

const (
	connectTries   = 4
	connectBackoff = 500 * time.Millisecond // doubled at each try, plus up to half of it
	connectBound   = time.Minute            // of one try
	clockSamples   = 3
)

// nodeBook is what is known of the nodes now.
type nodeBook struct {
	mu    sync.Mutex
	nodes map[string]nodeState
	first map[string]evidence.NodeIdentity // as first reached, in this run's whole history
}

type nodeState struct {
	identity evidence.NodeIdentity
	problem  *evidence.Problem // why it may not be used now
	final    bool              // the problem cannot go away in this process
}

func newNodeBook(first map[string]evidence.NodeIdentity) *nodeBook {
	return &nodeBook{nodes: make(map[string]nodeState), first: first}
}

func (b *nodeBook) get(node string) nodeState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[node]
}

func (b *nodeBook) set(node string, s nodeState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes[node] = s
	if _, known := b.first[node]; !known && s.problem == nil {
		b.first[node] = s.identity
	}
}

func (b *nodeBook) firstOf(node string) (evidence.NodeIdentity, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, known := b.first[node]
	return id, known
}

// mark remembers that a node went away, so that the next cell on it tries to
// connect once before anything else.
func (b *nodeBook) mark(node string, p evidence.Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.nodes[node]
	if !s.final {
		s.problem = &p
		b.nodes[node] = s
	}
}

// inventory lists, in fleet order, each node as it was first reached, or why
// it was not.
func (b *nodeBook) inventory(fleet evidence.Fleet) []evidence.NodeIdentity {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []evidence.NodeIdentity
	for _, n := range fleet.Nodes {
		id, known := b.first[n.Name]
		if !known {
			id = b.nodes[n.Name].identity
		}
		all = append(all, id)
	}
	return all
}

// identify reaches node and reads who it is. A node that cannot be used has a
// Problem in its identity. tries bounds the connection attempts.
func (r *run) identify(ctx context.Context, node string, tries int) evidence.NodeIdentity {
	id, err := r.connect(ctx, node, tries)
	id.Node = node
	if err != nil {
		id.Problem = nodeProblem(node, err)
		return id
	}
	if id.Problem != nil {
		return id
	}
	out, exit := r.ask(ctx, node, "identify", askDeadline, append([]string{"head", "-v", "-n", "1"}, identityFiles...)...)
	// head exits with 1 where a file is missing, and prints the others.
	if exit.Class != evidence.ClassOK && exit.Class != evidence.ClassExit {
		id.Problem = &evidence.Problem{Node: node, Step: "identify", Class: exit.Class, Detail: "head " + strings.Join(identityFiles, " ") + ": " + exit.Detail}
		return id
	}
	lines := headLines(out)
	for i, into := range []*string{&id.MachineID, &id.BootID, &id.Serial} {
		if *into == "" {
			*into = lines[identityFiles[i]]
		}
	}
	id.ClockOffset, id.Problem = r.clockOffset(ctx, node)
	return id
}

// identityFiles say who a node is: its machine id, boot id and serial number.
// Each command costs a busy node some tens of milliseconds, so one reads all.
var identityFiles = []string{"/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/sys/class/dmi/id/product_serial"}

// headLines reads what head -v -n 1 printed: the first line of each file.
func headLines(text string) map[string]string {
	lines := map[string]string{}
	for _, section := range strings.Split("\n"+text, "\n==> ") {
		path, content, found := strings.Cut(section, " <==\n")
		if line, _, whole := strings.Cut(content, "\n"); found && whole {
			lines[path] = strings.ToValidUTF8(line, "\uFFFD")
		}
	}
	return lines
}

// connect asks the executor to identify node, again after a pause where the
// fault is one of the connection alone.
func (r *run) connect(ctx context.Context, node string, tries int) (evidence.NodeIdentity, error) {
	pause := connectBackoff
	for try := 1; ; try++ {
		bound, cancel := context.WithTimeout(ctx, connectBound)
		id, err := r.o.Executor.Identify(bound, node)
		cancel()
		var p *evidence.Problem
		if err == nil || try == tries || !errors.As(err, &p) || !p.Class.Retryable() {
			return id, err
		}
		if waitErr := wait(ctx, pause+rand.N(pause/2)); waitErr != nil {
			return id, err
		}
		pause *= 2
	}
}

// wait returns after d, or with ctx's cause when that ends first.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func nodeProblem(node string, err error) *evidence.Problem {
	var p *evidence.Problem
	if errors.As(err, &p) {
		named := *p
		named.Node = node
		return &named
	}
	class := evidence.ClassLost
	if ended(err) {
		class = evidence.ClassTimeout
	}
	return &evidence.Problem{Node: node, Step: "identify", Class: class, Detail: err.Error()}
}

// clockOffset reads node's clock: seconds that it is before ours, taken at
// half of the round trip, from the quickest of a few samples. A clock that is
// off by more than the plan allows, or cannot be read, is a problem.
func (r *run) clockOffset(ctx context.Context, node string) (*float64, *evidence.Problem) {
	limit := r.plan.ClockLimit.Std()
	var best, quickest time.Duration
	for sample := range clockSamples {
		start := time.Now()
		out, exit := r.ask(ctx, node, "clock", askDeadline, "date", "+%s.%N")
		trip := time.Since(start)
		if !exit.OK() {
			class := exit.Class
			if class == evidence.ClassOK || class == evidence.ClassExit {
				class = evidence.ClassClockOffset
			}
			return nil, &evidence.Problem{Node: node, Step: "clock", Class: class, Detail: "the node's clock was not read: date: " + exitText(exit)}
		}
		there, err := parseClock(strings.TrimSpace(out))
		if err != nil {
			return nil, &evidence.Problem{Node: node, Step: "clock", Class: evidence.ClassClockOffset, Detail: err.Error()}
		}
		if sample == 0 || trip < quickest {
			quickest, best = trip, there.Sub(start.Add(trip/2))
		}
		if best.Abs()+quickest/2 <= limit {
			break
		}
	}
	seconds := best.Seconds()
	if limit > 0 && best.Abs() > limit {
		return &seconds, &evidence.Problem{Node: node, Step: "clock", Class: evidence.ClassClockOffset,
			Detail: fmt.Sprintf("the node's clock is %+.3f s from ours, and the plan allows %s: set the clocks and resume", seconds, limit)}
	}
	return &seconds, nil
}

// parseClock reads the output of date +%s.%N. A date that does not know %N
// prints it as it is; the middle of the second is then the best guess.
func parseClock(text string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the node's clock was not read: date printed %q", text)
	}
	nanos, err := strconv.ParseInt(fraction, 10, 64)
	if err != nil || len(fraction) != 9 || nanos < 0 {
		nanos = int64(time.Second / 2)
	}
	return time.Unix(seconds, nanos), nil
}
