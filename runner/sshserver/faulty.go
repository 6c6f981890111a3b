package sshserver

import (
	"io"
	"net"
	"sync"
)

// faulty is a connection that breaks after so many bytes to the client.
type faulty struct {
	net.Conn
	freeze, drop int64 // 0: never

	mu     sync.Mutex
	sent   int64
	frozen chan struct{} // closed when nothing goes through any more
}

func newFaulty(conn net.Conn, f Faults) net.Conn {
	if f.FreezeAfter == 0 && f.DropAfter == 0 {
		return conn
	}
	return &faulty{Conn: conn, freeze: f.FreezeAfter, drop: f.DropAfter, frozen: make(chan struct{})}
}

func (f *faulty) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	select {
	case <-f.frozen:
		// The network swallows it, and what follows.
		_, _ = io.Copy(io.Discard, f.Conn)
		return 0, io.EOF
	default:
		return n, err
	}
}

func (f *faulty) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.freeze > 0 && f.sent >= f.freeze {
		return len(p), nil
	}
	whole := len(p)
	limit := f.freeze
	if f.drop > 0 {
		limit = f.drop
	}
	if f.sent+int64(len(p)) > limit {
		p = p[:limit-f.sent]
	}
	n, err := f.Conn.Write(p)
	f.sent += int64(n)
	if err != nil || f.sent < limit {
		return n, err
	}
	if f.drop > 0 {
		reset(f.Conn)
		return n, net.ErrClosed
	}
	close(f.frozen)
	return whole, nil
}
