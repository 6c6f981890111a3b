package ssh

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/rackproof/rackproof/evidence"
)

const (
	// sessionsMax is how many sessions a connection carries: below sshd's
	// MaxSessions of 10, since a session that was given up may still count.
	sessionsMax = 8
	// aliveRequest is OpenSSH's own keepalive; a server that does not know it
	// answers as well.
	aliveRequest = "keepalive@openssh.com"
)

// clocks are the times of a kept connection.
type clocks struct {
	alive  time.Duration // between keepalives
	misses int           // so many unanswered ones mean that the node is lost
}

func defaultClocks() clocks { return clocks{alive: 5 * time.Second, misses: 3} }

// connection is a kept connection to a node or a jump host.
type connection struct {
	hop     hop
	via     *connection
	route   string // the addresses on the way
	wire    *wire
	client  *ssh.Client
	version string
	hostKey string

	sessions *slots

	once sync.Once
	err  error // why it ended; read after dead is closed
	dead chan struct{}
}

// watch starts what sees the connection's end.
func (c *connection) watch(work *sync.WaitGroup, k clocks) {
	work.Go(func() { c.lose(c.client.Wait()) })
	work.Go(func() { c.keepalive(work, k) })
}

// lose ends the connection for a reason; the first one counts.
func (c *connection) lose(err error) {
	c.once.Do(func() {
		if err == nil {
			err = errors.New("the connection was closed")
		}
		c.err = err
		close(c.dead)
		// The stream first: closing the client writes, which may block.
		c.wire.Close()
		c.client.Close()
	})
}

func (c *connection) gone() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// reason says why the connection is gone.
func (c *connection) reason() error {
	<-c.dead
	if c.via != nil && c.via.gone() {
		return fmt.Errorf("jump host %s: %w", c.via.hop, c.via.reason())
	}
	return c.err
}

// keepalive asks now and then, and gives the connection up when nothing at
// all has been heard for as long as the misses take.
func (c *connection) keepalive(work *sync.WaitGroup, k clocks) {
	tick := time.NewTicker(k.alive)
	defer tick.Stop()
	answered := make(chan struct{}, 1)
	asked := false
	limit := k.alive * time.Duration(k.misses)
	for {
		select {
		case <-c.dead:
			return
		case <-answered:
			asked = false
		case <-tick.C:
			if asked && c.wire.quiet() > limit {
				c.lose(fmt.Errorf("nothing was heard for %s", limit))
				return
			}
			if !asked {
				asked = true
				work.Go(func() {
					// A failure ends the connection, which Wait reports.
					_, _, _ = c.client.SendRequest(aliveRequest, true, nil)
					answered <- struct{}{}
				})
			}
		}
	}
}

// pool keeps one connection for each way.
type pool struct {
	dialer *dialer

	mu     sync.Mutex
	ways   map[string]*way
	closed bool
}

// way is the connection of one route, or the attempt to make it.
type way struct {
	mu      sync.Mutex
	conn    *connection
	attempt *attempt
}

type attempt struct {
	done    chan struct{}
	conn    *connection
	problem *evidence.Problem
}

func newPool(d *dialer) *pool { return &pool{dialer: d, ways: make(map[string]*way)} }

// get is the kept connection for r, made if it is not there. Callers that
// come while it is being made share the result; a failure is not kept.
func (p *pool) get(ctx context.Context, r route) (*connection, *evidence.Problem) {
	target := r[len(r)-1]
	p.mu.Lock()
	w := p.ways[r.key()]
	if w == nil {
		w = &way{}
		p.ways[r.key()] = w
	}
	p.mu.Unlock()
	for {
		w.mu.Lock()
		if w.conn != nil && !w.conn.gone() {
			defer w.mu.Unlock()
			return w.conn, nil
		}
		if a := w.attempt; a != nil {
			w.mu.Unlock()
			select {
			case <-a.done:
			case <-ctx.Done():
				return nil, stopped(ctx, target)
			}
			if a.problem != nil && a.problem.Class != evidence.ClassCut && a.problem.Class != evidence.ClassTimeout {
				return nil, a.problem
			}
			if ctx.Err() != nil {
				return nil, stopped(ctx, target)
			}
			continue
		}
		a := &attempt{done: make(chan struct{})}
		w.attempt = a
		w.mu.Unlock()
		a.conn, a.problem = p.make(ctx, r)
		w.mu.Lock()
		w.conn, w.attempt = a.conn, nil
		w.mu.Unlock()
		close(a.done)
		return a.conn, a.problem
	}
}

// make connects along r, by way of the kept connections of its jump hosts.
func (p *pool) make(ctx context.Context, r route) (*connection, *evidence.Problem) {
	target := r[len(r)-1]
	var via *connection
	if len(r) > 1 {
		var problem *evidence.Problem
		if via, problem = p.get(ctx, r[:len(r)-1]); problem != nil {
			return nil, &evidence.Problem{Class: problem.Class, Detail: "jump host: " + problem.Detail}
		}
	}
	c, problem := p.dialer.connect(ctx, target, via)
	if problem != nil {
		return nil, problem
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		c.lose(errors.New("the executor was closed"))
		return nil, &evidence.Problem{Class: evidence.ClassCut, Detail: "the executor was closed while connecting to " + target.String()}
	}
	return c, nil
}

// close ends every connection, nodes before their jump hosts.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	var all []*way
	for _, w := range p.ways {
		all = append(all, w)
	}
	p.mu.Unlock()
	for _, jumps := range []bool{false, true} {
		for _, w := range all {
			w.mu.Lock()
			c := w.conn
			w.mu.Unlock()
			if c != nil && (jumps || c.via != nil) {
				c.lose(errors.New("the executor was closed"))
			}
		}
	}
}
