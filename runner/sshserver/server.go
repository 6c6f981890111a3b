// Package sshserver is an SSH server inside the process, for tests and
// simulated nodes. It has no shell: a command line becomes argv through
// Config.Parse or is refused. Its faults are those of real nodes and networks.
package sshserver

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Command is one supervised command, as Config.Parse reads it.
type Command struct {
	Argv     []string
	Env      []string // NAME=value
	Stdin    int64    // so many bytes of the session's input are the command's
	Deadline time.Duration
	Grace    time.Duration // between TERM and KILL
	// LinePrefix begins the supervising script's own lines, which the server
	// writes in its place.
	LinePrefix string
}

// Exit is how a command ended. The zero value is exit status 0.
type Exit struct {
	Code   int
	Signal string // KILL, TERM, ...: instead of Code
	// Refused says in the supervising script's words why nothing was
	// started: "tool-missing …", "arch …". Code is then 97 unless it is set.
	Refused string
	// HeldOpen keeps the output open after the status, as a grandchild does.
	HeldOpen bool
	// NoStatus ends the session without a status.
	NoStatus bool
}

// Handler runs a command. ctx ends when the script would send TERM: at the
// end of the session's input, at the deadline, or with the connection. The
// server gives Grace more and then counts the command as killed; what the
// handler writes later goes nowhere. A zero Exit after the end of ctx counts
// as ended by TERM.
type Handler func(ctx context.Context, c Command, stdin io.Reader, stdout, stderr io.Writer) Exit

// Config is what a server is.
type Config struct {
	Address string // to listen on; empty: 127.0.0.1 and a free port
	Version string // SSH-2.0-…; empty: SSH-2.0-rackproof-sim
	// HostKey is made if it is nil.
	HostKey ssh.Signer
	// Authorized are the user keys that are let in; empty: none.
	Authorized []ssh.PublicKey
	// Parse reads a command line; what it refuses is not run.
	Parse   func(line string) (Command, error)
	Handler Handler
	// MaxSessions of one connection; 0 means 10, as sshd has it.
	MaxSessions int
	Faults      Faults
	// FaultsNow gives the faults of each new connection, in place of Faults;
	// nil: those stay as they were set.
	FaultsNow func() Faults
}

// Faults are what goes wrong, on every connection that begins after they were
// set.
type Faults struct {
	Refuse        int           // so many connections are closed before the greeting
	RefuseText    string        // is sent before that
	NoGreeting    bool          // accepts, and says nothing
	Greeting      string        // is sent instead of the server's, and then nothing
	Flood         bool          // endless lines before a greeting
	SlowHandshake time.Duration // before the greeting
	FreezeAfter   int64         // after so many bytes nothing is sent or heard; 0: never
	DropAfter     int64         // after so many bytes the connection is reset; 0: never
	RefuseExec    bool          // refuses commands
	StallSession  bool          // never answers to the opening of a session
	Forward       bool          // allows direct-tcpip, as a jump host does
}

// Server is a listening server.
type Server struct {
	config   Config
	listener net.Listener
	hostKey  ssh.Signer
	work     sync.WaitGroup
	stop     context.CancelFunc

	mu     sync.Mutex
	faults Faults
	conns  map[net.Conn]bool
	seen   int
	closed bool
}

// Start listens and serves until Close, or the end of ctx.
func Start(ctx context.Context, c Config) (*Server, error) {
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	if c.Version == "" {
		c.Version = "SSH-2.0-rackproof-sim"
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = 10
	}
	if c.HostKey == nil {
		key, err := NewKey()
		if err != nil {
			return nil, err
		}
		c.HostKey = key
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("start an SSH server: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Server{config: c, listener: l, hostKey: c.HostKey, stop: stop, faults: c.Faults, conns: make(map[net.Conn]bool)}
	s.work.Go(func() { s.accept(ctx) })
	return s, nil
}

// NewKey makes an ed25519 key, of a host or a user.
func NewKey() (ssh.Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return ssh.NewSignerFromKey(private)
}

// Addr is where the server listens.
func (s *Server) Addr() *net.TCPAddr { return s.listener.Addr().(*net.TCPAddr) }

// HostKey is the server's public key.
func (s *Server) HostKey() ssh.PublicKey { return s.hostKey.PublicKey() }

// SetFaults changes the faults of connections to come.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Connections is how many were accepted so far.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// DropAll resets every connection.
func (s *Server) DropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		reset(conn)
	}
}

// Close ends everything and waits for handlers to return.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	err := s.listener.Close()
	s.DropAll()
	s.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// A reset instead of an orderly end.
		_ = tcp.SetLinger(0)
	}
	conn.Close()
}

// acceptPause is how long a server that has no file descriptor left waits for
// one.
const acceptPause = 50 * time.Millisecond

// Accept takes the next connection of l. It fails only when ctx ends or l is
// closed: what else goes wrong, such as a process without a file descriptor
// left, passes.
func Accept(ctx context.Context, l net.Listener) (net.Conn, error) {
	for {
		conn, err := l.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		timer := time.NewTimer(acceptPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

func (s *Server) accept(ctx context.Context) {
	for {
		conn, err := Accept(ctx, s.listener)
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			conn.Close()
			return
		}
		s.seen++
		s.conns[conn] = true
		f := s.faults
		if s.faults.Refuse > 0 {
			s.faults.Refuse--
		}
		if s.config.FaultsNow != nil {
			f = s.config.FaultsNow()
		}
		s.mu.Unlock()
		s.work.Go(func() {
			defer func() {
				s.mu.Lock()
				delete(s.conns, conn)
				s.mu.Unlock()
				conn.Close()
			}()
			s.serve(ctx, conn, f)
		})
	}
}

// serve is one connection.
// loginGrace is how long a client may take to log in, as sshd's LoginGraceTime
// has it.
const loginGrace = 2 * time.Minute

func (s *Server) serve(ctx context.Context, conn net.Conn, f Faults) {
	switch {
	case f.Refuse > 0:
		_, _ = io.WriteString(conn, f.RefuseText)
		return
	case f.NoGreeting:
		hold(conn)
		return
	case f.Greeting != "":
		_, _ = io.WriteString(conn, f.Greeting)
		hold(conn)
		return
	case f.Flood:
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(conn, "line %d\r\n", i); err != nil {
				return
			}
		}
	}
	if f.SlowHandshake > 0 {
		timer := time.NewTimer(f.SlowHandshake)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
	config := &ssh.ServerConfig{
		ServerVersion: s.config.Version,
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			for _, known := range s.config.Authorized {
				if string(known.Marshal()) == string(key.Marshal()) {
					return nil, nil
				}
			}
			return nil, errors.New("key is not authorized")
		},
	}
	config.AddHostKey(s.hostKey)
	_ = conn.SetDeadline(time.Now().Add(loginGrace))
	server, channels, requests, err := ssh.NewServerConn(newFaulty(conn, f), config)
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	// Everything of this connection ends with it.
	ctx, end := context.WithCancel(ctx)
	defer end()
	var work sync.WaitGroup
	work.Go(func() { ssh.DiscardRequests(requests) })
	slots := make(chan struct{}, s.config.MaxSessions)
	for incoming := range channels {
		switch {
		case incoming.ChannelType() == "direct-tcpip" && f.Forward:
			work.Go(func() { forward(ctx, incoming) })
		case incoming.ChannelType() != "session":
			_ = incoming.Reject(ssh.UnknownChannelType, "only sessions")
		case f.StallSession:
		default:
			select {
			case slots <- struct{}{}:
				work.Go(func() {
					defer func() { <-slots }()
					s.session(ctx, incoming, f)
				})
			default:
				_ = incoming.Reject(ssh.ConnectionFailed, "open failed")
			}
		}
	}
	end()
	server.Close()
	work.Wait()
}

// hold keeps a connection open until the other side ends it.
func hold(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
