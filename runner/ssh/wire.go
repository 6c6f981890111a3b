package ssh

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// greetingLimit is how much a server may send before its greeting; RFC 4253,
// section 4.2, allows lines there.
const greetingLimit = 64 << 10

// quickReads is how many reads at the start of a connection acknowledge at
// once. Without it the server's Nagle algorithm meets our delayed
// acknowledgement and the first session of each connection waits 40 ms.
const quickReads = 12

// wire is a connection below SSH: it knows when it last heard anything, and
// hands on what has been read ahead.
type wire struct {
	net.Conn
	reader *bufio.Reader
	ahead  io.Reader // reader, after the greeting that was put back
	born   time.Time
	last   atomic.Int64 // since born
	reads  int
}

func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn, born: time.Now()}
	w.reader = bufio.NewReader(rawReader{w})
	w.ahead = w.reader
	return w
}

func (w *wire) Read(p []byte) (int, error) { return w.ahead.Read(p) }

// quiet is how long nothing has been heard.
func (w *wire) quiet() time.Duration { return time.Since(w.born) - time.Duration(w.last.Load()) }

type rawReader struct{ w *wire }

func (r rawReader) Read(p []byte) (int, error) {
	n, err := r.w.Conn.Read(p)
	if n > 0 {
		r.w.last.Store(int64(time.Since(r.w.born)))
	}
	if r.w.reads < quickReads {
		r.w.reads++
		quickAck(r.w.Conn)
	}
	return n, err
}

// greeting is what a server said first.
type greeting struct {
	version string // SSH-2.0-…, or ""
	before  []byte // everything that came before, or instead
	err     error  // why there is no version
}

// readGreeting reads to the end of the server's version line and puts that
// line back.
func (w *wire) readGreeting() greeting {
	var g greeting
	for {
		var line []byte
		for {
			b, err := w.reader.ReadByte()
			if err != nil {
				g.before = append(g.before, line...)
				g.err = err
				return g
			}
			line = append(line, b)
			if b == '\n' || len(g.before)+len(line) > greetingLimit {
				break
			}
		}
		if bytes.HasPrefix(line, []byte("SSH-")) && line[len(line)-1] == '\n' {
			g.version = string(bytes.TrimRight(line, "\r\n"))
			w.ahead = io.MultiReader(bytes.NewReader(line), w.reader)
			return g
		}
		g.before = append(g.before, line...)
		if len(g.before) > greetingLimit || neverSSH(g.before) {
			g.err = errNotSSH
			return g
		}
	}
}

// neverSSH knows text that no SSH server sends before its greeting.
func neverSSH(text []byte) bool {
	return bytes.HasPrefix(text, []byte("HTTP/")) || bytes.IndexByte(text, 0) >= 0
}
