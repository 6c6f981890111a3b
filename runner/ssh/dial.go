package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/rackproof/rackproof/evidence"
)

const (
	// handshakesTotal bounds the handshakes under way: beyond this they get
	// no faster, and each one's clock would run while it waits for our CPU.
	handshakesTotal = 32
	// handshakesAddress bounds them at one address: sshd drops connections at
	// random from the tenth on (MaxStartups 10:30:100).
	handshakesAddress = 5
	// busyTries is how often a server that drops connections is asked.
	busyTries = 6
	busyPause = 100 * time.Millisecond
)

var errNotSSH = errors.New("not an SSH server")

// dialer makes connections.
type dialer struct {
	keys      *keyring
	hostKeys  *hostKeys
	total     *slots
	mu        sync.Mutex
	addresses map[string]*slots
	clocks    clocks
	work      *sync.WaitGroup
}

func newDialer(c clocks, work *sync.WaitGroup) *dialer {
	return &dialer{
		keys:      &keyring{files: make(map[string]*keyFile)},
		hostKeys:  &hostKeys{dbs: make(map[string]*hostKeyDB)},
		total:     newSlots(handshakesTotal),
		addresses: make(map[string]*slots),
		clocks:    c,
		work:      work,
	}
}

func (d *dialer) at(address string) *slots {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.addresses[address]
	if s == nil {
		s = newSlots(handshakesAddress)
		d.addresses[address] = s
	}
	return s
}

// connect connects to h, through via if that is not nil. A server that is
// busy is asked again; nothing else is.
func (d *dialer) connect(ctx context.Context, h hop, via *connection) (*connection, *evidence.Problem) {
	for try := 1; ; try++ {
		c, problem := d.once(ctx, h, via)
		if problem == nil || problem.Class != evidence.ClassBusy || try == busyTries {
			if problem != nil && try > 1 {
				problem.Detail += fmt.Sprintf("; tried %d times", try)
			}
			return c, problem
		}
		// Half the pause is by chance, so that many do not come back at once.
		pause := busyPause << (try - 1)
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, stopped(ctx, h)
		}
	}
}

func stopped(ctx context.Context, h hop) *evidence.Problem {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &evidence.Problem{Class: evidence.ClassTimeout, Detail: "the deadline passed while connecting to " + h.String()}
	}
	return &evidence.Problem{Class: evidence.ClassCut, Detail: "the run was stopped while connecting to " + h.String()}
}

func (d *dialer) once(ctx context.Context, h hop, via *connection) (*connection, *evidence.Problem) {
	address := h.address()
	if via != nil {
		address = via.route + ">" + address
	}
	// First the address, then one of all: who waits for an address keeps
	// nobody else back.
	for _, s := range []*slots{d.at(address), d.total} {
		if err := s.acquire(ctx); err != nil {
			return nil, stopped(ctx, h)
		}
		defer s.release()
	}
	conn, problem := d.reach(ctx, h, via)
	if problem != nil {
		return nil, problem
	}
	return d.handshake(ctx, h, newWire(conn), via)
}

// reach opens the byte stream to h.
func (d *dialer) reach(ctx context.Context, h hop, via *connection) (net.Conn, *evidence.Problem) {
	clocked, stop := context.WithTimeout(ctx, h.timeout)
	defer stop()
	var conn net.Conn
	var err error
	from := ""
	if via != nil {
		from = " through " + via.hop.String()
		conn, err = via.client.DialContext(clocked, "tcp", h.address())
	} else {
		conn, err = (&net.Dialer{}).DialContext(clocked, "tcp", h.address())
	}
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, stopped(ctx, h)
	}
	var dns *net.DNSError
	var refused *ssh.OpenChannelError
	switch {
	case errors.As(err, &dns):
		return nil, &evidence.Problem{Class: evidence.ClassDNS, Detail: fmt.Sprintf("the name %s was not found: %v", h.host, dns)}
	case errors.As(err, &refused):
		return nil, &evidence.Problem{Class: evidence.ClassTCP, Detail: fmt.Sprintf("%s cannot be reached%s: %s", h, from, refused.Message)}
	case clocked.Err() != nil || isTimeout(err):
		return nil, &evidence.Problem{Class: evidence.ClassTCP, Detail: fmt.Sprintf("%s did not accept a connection%s within %s", h, from, h.timeout)}
	case via != nil && via.gone():
		return nil, &evidence.Problem{Class: evidence.ClassLost, Detail: fmt.Sprintf("the connection to the jump host was lost: %v", via.reason())}
	}
	return nil, &evidence.Problem{Class: evidence.ClassTCP, Detail: fmt.Sprintf("%s cannot be reached%s: %v", h, from, rootCause(err))}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// rootCause leaves out what the message before it says.
func rootCause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// alarm closes a connection when its clock runs out or ctx ends. A clock that
// works on every stream: channels of a jump host have no deadlines.
type alarm struct {
	conn    net.Conn
	expired atomic.Bool
	timer   *time.Timer
	stop    func() bool
}

func newAlarm(ctx context.Context, conn net.Conn, d time.Duration) *alarm {
	a := &alarm{conn: conn}
	a.timer = time.AfterFunc(d, func() { a.expired.Store(true); conn.Close() })
	a.stop = context.AfterFunc(ctx, func() { conn.Close() })
	return a
}

func (a *alarm) off() { a.timer.Stop(); a.stop() }

// handshake reads the greeting, checks the host key and authenticates. On a
// problem the stream is closed.
func (d *dialer) handshake(ctx context.Context, h hop, w *wire, via *connection) (*connection, *evidence.Problem) {
	bell := newAlarm(ctx, w, h.timeout)
	said := w.readGreeting()
	bell.off()
	if problem := d.judgeGreeting(ctx, h, said, bell); problem != nil {
		w.Close()
		return nil, problem
	}
	db, err := d.hostKeys.db(h.knownHosts)
	if err != nil {
		w.Close()
		return nil, &evidence.Problem{Class: evidence.ClassHostKeyUnknown, Detail: fmt.Sprintf("known_hosts cannot be read: %v; nothing was sent", err)}
	}
	check := &hostKeyCheck{hop: h, db: db}
	offered := &offer{}
	defer offered.close()
	bell = newAlarm(ctx, w, h.timeout)
	defer bell.off()
	var checked atomic.Bool
	config := &ssh.ClientConfig{
		User:              h.user,
		ClientVersion:     "SSH-2.0-rackproof",
		HostKeyAlgorithms: check.algorithms(),
		HostKeyCallback: func(name string, remote net.Addr, key ssh.PublicKey) error {
			if err := check.check(name, remote, key); err != nil {
				return err
			}
			// Authentication has a clock of its own, and may ask the agent
			// for its keys and for a signature.
			checked.Store(true)
			bell.timer.Reset(h.timeout + 2*agentClock)
			return nil
		},
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
			return d.keys.signers(h, offered), nil
		})},
	}
	client, channels, requests, err := ssh.NewClientConn(w, h.address(), config)
	if err != nil {
		w.Close()
		return nil, d.judgeHandshake(ctx, h, err, check, offered, bell, checked.Load())
	}
	c := &connection{
		hop: h, via: via, route: h.address(), wire: w,
		client:   ssh.NewClient(client, channels, requests),
		version:  said.version,
		hostKey:  ssh.FingerprintSHA256(plainKey(check.offered)),
		sessions: newSlots(sessionsMax),
		dead:     make(chan struct{}),
	}
	if via != nil {
		c.route = via.route + ">" + c.route
	}
	c.watch(d.work, d.clocks)
	return c, nil
}

func plainKey(key ssh.PublicKey) ssh.PublicKey {
	if cert, ok := key.(*ssh.Certificate); ok {
		return cert.Key
	}
	return key
}

func (d *dialer) judgeGreeting(ctx context.Context, h hop, said greeting, bell *alarm) *evidence.Problem {
	if said.err == nil {
		if strings.HasPrefix(said.version, "SSH-2.0-") || strings.HasPrefix(said.version, "SSH-1.99-") {
			return nil
		}
		return &evidence.Problem{Class: evidence.ClassNotSSH, Detail: fmt.Sprintf("%s speaks %q: version 2.0 is needed", h, head(said.version))}
	}
	quoted := fmt.Sprintf("%s is not an SSH server: it says %q", h, head(string(said.before)))
	switch {
	case ctx.Err() != nil:
		return stopped(ctx, h)
	case errors.Is(said.err, errNotSSH):
		return &evidence.Problem{Class: evidence.ClassNotSSH, Detail: quoted}
	case isBusy(said.before) && !bell.expired.Load():
		return &evidence.Problem{Class: evidence.ClassBusy, Detail: strings.TrimSuffix(fmt.Sprintf("%s closed the connection before its greeting: %s", h, strings.TrimSpace(string(said.before))), ": ")}
	case len(said.before) > 0:
		return &evidence.Problem{Class: evidence.ClassNotSSH, Detail: quoted}
	}
	return &evidence.Problem{Class: evidence.ClassBanner, Detail: fmt.Sprintf("%s accepted the connection and sent no greeting within %s", h, h.timeout)}
}

// isBusy reports whether what came before the connection was closed is what a
// busy sshd says: nothing, or since OpenSSH 8.5 and 9.8 one of these.
func isBusy(text []byte) bool {
	trimmed := strings.TrimSpace(string(text))
	return trimmed == "" || trimmed == "Exceeded MaxStartups" || trimmed == "Not allowed at this time"
}

// head is the first 80 bytes of text.
func head(text string) string { return text[:min(len(text), 80)] }

func (d *dialer) judgeHandshake(ctx context.Context, h hop, err error, check *hostKeyCheck, offered *offer, bell *alarm, checked bool) *evidence.Problem {
	var negotiation *ssh.AlgorithmNegotiationError
	text := strings.TrimPrefix(err.Error(), "ssh: handshake failed: ")
	switch {
	case check.problem != nil:
		return check.problem
	case ctx.Err() != nil:
		return stopped(ctx, h)
	case errors.As(err, &negotiation) && strings.Contains(text, "host key"):
		return check.noCommonKey(negotiation)
	case bell.expired.Load() && checked:
		return &evidence.Problem{Class: evidence.ClassKex, Detail: fmt.Sprintf("%s did not finish authentication within %s; %s", h, h.timeout+2*agentClock, offered)}
	case bell.expired.Load():
		return &evidence.Problem{Class: evidence.ClassKex, Detail: fmt.Sprintf("%s did not finish the key exchange within %s", h, h.timeout)}
	case checked && (strings.Contains(text, "unable to authenticate") || strings.Contains(text, "authentication")):
		return &evidence.Problem{Class: evidence.ClassAuth, Detail: fmt.Sprintf("%s does not let %s in: %s (%s)", h, h.user, offered, strings.TrimPrefix(text, "ssh: "))}
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		text = "it closed the connection"
	}
	return &evidence.Problem{Class: evidence.ClassKex, Detail: fmt.Sprintf("%s did not finish the key exchange: %s", h, text)}
}
