package runner

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

const (
	leaseBusy    = 75 // the exit status that flock is told to use: EX_TEMPFAIL
	leaseRetries = 10 * time.Second
	leasePause   = time.Second
	leaseBound   = 20 * time.Second // for flock to say that it holds the lock
)

// leases keeps one command a node that holds a lock there, against a second
// runner. A node without flock has no lease, and the journal says so.
type leases struct {
	mu      sync.Mutex
	over    chan struct{} // ends the lease commands
	nodes   map[string]*heldLease
	without map[string]bool // nodes that cannot hold one
	group   sync.WaitGroup
}

type heldLease struct{ lost <-chan struct{} }

func newLeases() *leases {
	return &leases{over: make(chan struct{}), nodes: make(map[string]*heldLease), without: make(map[string]bool)}
}

// release ends every lease command and waits for it.
func (l *leases) release() {
	close(l.over)
	l.group.Wait()
}

// state reports whether node needs a lease, and whether it had one that was
// lost.
func (l *leases) state(node string) (needed, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.without[node] {
		return false, false
	}
	held := l.nodes[node]
	if held == nil {
		return true, false
	}
	select {
	case <-held.lost:
		return true, true
	default:
		return false, false
	}
}

func (l *leases) hold(node string, lost <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes[node] = &heldLease{lost: lost}
}

func (l *leases) giveUp(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.without[node] = true
}

// leaseAll takes the lease of every usable node.
func (r *run) leaseAll(ctx context.Context) {
	eachNode(r.plan.Fleet.NodeNames(), func(node string) {
		if r.nodes.get(node).problem != nil || ctx.Err() != nil {
			return
		}
		if problem, err := r.lease(ctx, node, int(leaseRetries/leasePause)); err == nil && problem != nil {
			r.nodes.mark(node, *problem)
			r.emit(Progress{Kind: ProgressNode, Node: node, Problem: problem})
		}
	})
}

// lease makes sure that node's lease is held, trying tries times where
// another holds it: a killed predecessor's may take a moment to go. It gives a
// problem where another runner keeps it or the node went away.
func (r *run) lease(ctx context.Context, node string, tries int) (*evidence.Problem, error) {
	needed, lost := r.leases.state(node)
	if !needed {
		return nil, nil
	}
	if lost {
		if err := r.note(node, "node %s: the lease was lost; taking it again", node); err != nil {
			return nil, err
		}
	}
	lock, exit := r.leasePath(ctx, node)
	for try := 1; lock != ""; try++ {
		var gone <-chan struct{}
		gone, exit = r.startLease(ctx, node, lock)
		if gone != nil {
			r.leases.hold(node, gone)
			return nil, nil
		}
		if exit.Code == nil || *exit.Code != leaseBusy {
			break
		}
		if try >= tries || wait(ctx, leasePause) != nil {
			return &evidence.Problem{Node: node, Step: "lease", Class: evidence.ClassLeaseHeld,
				Detail: "another runner holds " + lock + " on this node: let it end, then resume with --retry " + string(evidence.ClassLeaseHeld)}, nil
		}
	}
	if ctx.Err() != nil {
		return nil, nil
	}
	if away(exit.Class) {
		return &evidence.Problem{Node: node, Step: "lease", Class: exit.Class, Detail: exit.Detail}, nil
	}
	r.leases.giveUp(node)
	return nil, r.note(node, "node %s: no lease: a second runner would not be noticed: %s", node, exitText(exit))
}

// leasePath makes the directory of this user's locks on node and gives the
// lock of node in it, or "" and how that failed.
func (r *run) leasePath(ctx context.Context, node string) (string, evidence.Exit) {
	out, exit := r.ask(ctx, node, "lease", askDeadline, "id", "-u")
	if !exit.OK() {
		return "", exit
	}
	uid := strings.TrimSpace(out)
	if uid == "" || strings.Trim(uid, "0123456789") != "" {
		return "", evidence.Exit{Class: evidence.ClassUnparsable, Detail: fmt.Sprintf("id -u printed %q", uid)}
	}
	dir := "/var/tmp/rackproof-" + uid
	if _, exit = r.ask(ctx, node, "lease", askDeadline, "mkdir", "-p", "-m", "0700", dir); !exit.OK() {
		return "", exit
	}
	return dir + "/" + evidence.PathName(node) + ".lock", exit
}

// startLease starts the command that holds the lock. Once it does, gone is
// not nil and is closed when the command ends; otherwise exit says how it
// ended. stdbuf makes flock say so at once although its output is a pipe.
func (r *run) startLease(ctx context.Context, node, lock string) (gone <-chan struct{}, exit evidence.Exit) {
	held := newWatch("executing")
	over := make(chan struct{})
	var end evidence.Exit
	leaseCtx, cancel := context.WithCancel(ctx)
	r.leases.group.Go(func() {
		select {
		case <-r.leases.over:
			cancel()
		case <-leaseCtx.Done():
		}
	})
	r.leases.group.Go(func() {
		defer close(over)
		defer cancel()
		var err error
		end, err = r.o.Executor.Exec(leaseCtx, evidence.Task{
			Mark: r.o.Store.Run() + "/lease",
			Node: node,
			Argv: []string{"stdbuf", "-oL", "flock", "--verbose", "-n", "-E", "75", lock, "sleep", "2147483647"},
			Env:  environment(nil),
		}, held, held)
		if err != nil && end.Class == "" {
			end.Class, end.Detail = evidence.ClassLost, err.Error()
		}
	})
	silent := time.NewTimer(leaseBound)
	defer silent.Stop()
	select {
	case <-held.seen:
		return over, exit
	case <-over:
		return nil, end
	case <-ctx.Done():
	case <-silent.C:
	}
	cancel()
	<-over
	if end.Code == nil {
		end.Class, end.Detail = evidence.ClassSilent, "flock did not say that it holds the lock"
	}
	return nil, end
}

// watch is a writer that notices a word.
type watch struct {
	mu   sync.Mutex
	word []byte
	tail []byte
	once sync.Once
	seen chan struct{}
}

func newWatch(word string) *watch { return &watch{word: []byte(word), seen: make(chan struct{})} }

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = append(w.tail, p...)
	if bytes.Contains(w.tail, w.word) {
		w.once.Do(func() { close(w.seen) })
	}
	w.tail = append([]byte(nil), w.tail[max(0, len(w.tail)-len(w.word)):]...)
	return len(p), nil
}
