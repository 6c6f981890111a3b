package sshserver

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// refusedCode is the exit status of the supervising script where it could not
// start the command.
const refusedCode = 97

// session serves one session: one command.
func (s *Server) session(ctx context.Context, incoming ssh.NewChannel, f Faults) {
	channel, requests, err := incoming.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	var work sync.WaitGroup
	defer work.Wait()
	defer end()
	started := false
	done := make(chan struct{})
	for {
		select {
		case <-done:
			// The client is told so by the close; it then closes its side.
			channel.Close()
			for request := range requests {
				refuse(request)
			}
			return
		case request, ok := <-requests:
			if !ok {
				end()
				return
			}
			if request.Type != "exec" || started || f.RefuseExec {
				refuse(request)
				continue
			}
			started = true
			var payload struct{ Line string }
			if ssh.Unmarshal(request.Payload, &payload) != nil {
				refuse(request)
				continue
			}
			if request.WantReply {
				_ = request.Reply(true, nil)
			}
			work.Go(func() {
				defer close(done)
				s.command(ctx, payload.Line, channel)
			})
		}
	}
}

func refuse(request *ssh.Request) {
	if request.WantReply {
		_ = request.Reply(false, nil)
	}
}

// command parses and runs one command line, and reports its status.
func (s *Server) command(ctx context.Context, line string, channel ssh.Channel) {
	if s.config.Parse == nil || s.config.Handler == nil {
		_, _ = io.WriteString(channel.Stderr(), "this server runs no commands\n")
		sendStatus(channel, Exit{Code: 127})
		return
	}
	c, err := s.config.Parse(line)
	if err != nil {
		_, _ = io.WriteString(channel.Stderr(), "this node has no shell: "+err.Error()+"\n")
		sendStatus(channel, Exit{Code: 127})
		return
	}
	s.supervise(ctx, c, channel)
}

func sendStatus(channel ssh.Channel, exit Exit) {
	// A client that has gone needs no status.
	if exit.Signal != "" {
		_, _ = channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal     string
			CoreDumped bool
			Message    string
			Language   string
		}{Signal: exit.Signal}))
		return
	}
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(exit.Code)}))
}

// supervise does the supervising script's contract around the handler, and
// reports the status.
func (s *Server) supervise(session context.Context, c Command, channel ssh.Channel) {
	ctx, stop := context.WithCancel(session)
	defer stop()
	if c.Deadline > 0 {
		ctx, stop = context.WithTimeout(ctx, c.Deadline)
		defer stop()
	}
	inputR, inputW := io.Pipe()
	defer inputR.Close()
	streams := &streams{prefix: c.LinePrefix, channel: channel}
	var work sync.WaitGroup
	defer func() { stop(); work.Wait() }()
	inputEnd := make(chan struct{})
	// Not waited for: it reads until the session's end.
	go func() {
		defer close(inputEnd)
		_, err := io.CopyN(inputW, channel, c.Stdin)
		inputW.CloseWithError(err)
		// A handler that does not read its input must not hide the end.
		_, _ = io.Copy(io.Discard, channel)
	}()
	work.Go(func() {
		select {
		case <-inputEnd:
			stop()
		case <-ctx.Done():
		}
	})
	result := make(chan Exit, 1)
	s.work.Go(func() {
		result <- s.config.Handler(ctx, c, inputR, stream{streams, channel}, stream{streams, channel.Stderr()})
	})
	exit := s.await(ctx, c, result)
	if exit.Refused == "" {
		streams.begin()
	} else {
		streams.refuse(exit.Refused)
		if exit.Code == 0 {
			exit.Code = refusedCode
		}
	}
	streams.shut()
	if !exit.NoStatus {
		sendStatus(channel, exit)
	}
	if exit.HeldOpen {
		select {
		case <-inputEnd:
		case <-session.Done():
		}
	}
}

// await waits for the handler, and for Grace more after ctx has ended.
func (s *Server) await(ctx context.Context, c Command, result <-chan Exit) Exit {
	select {
	case exit := <-result:
		return exit
	case <-ctx.Done():
	}
	timer := time.NewTimer(c.Grace)
	defer timer.Stop()
	select {
	case exit := <-result:
		if exit == (Exit{}) {
			exit.Signal = "TERM"
		}
		return exit
	case <-timer.C:
		return Exit{Signal: "KILL"}
	}
}

// streams writes the script's own lines before the command's output.
type streams struct {
	mu      sync.Mutex
	prefix  string
	channel ssh.Channel
	begun   bool
	over    bool
}

func (s *streams) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
}

func (s *streams) beginLocked() {
	if s.begun {
		return
	}
	s.begun = true
	_, _ = io.WriteString(s.channel, s.prefix+"start\n")
	_, _ = io.WriteString(s.channel.Stderr(), s.prefix+"start\n")
}

func (s *streams) refuse(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.channel.Stderr(), s.prefix+why+"\n")
}

func (s *streams) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

var errOver = errors.New("the command has ended")

// stream is one output of a command.
type stream struct {
	streams *streams
	to      io.Writer
}

func (s stream) Write(p []byte) (int, error) {
	s.streams.mu.Lock()
	over := s.streams.over
	if !over {
		s.streams.beginLocked()
	}
	s.streams.mu.Unlock()
	if over {
		return 0, errOver
	}
	return s.to.Write(p)
}

// forward carries a direct-tcpip channel, as a jump host does.
func forward(ctx context.Context, incoming ssh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(incoming.ExtraData(), &to); err != nil {
		_ = incoming.Reject(ssh.ConnectionFailed, "malformed request")
		return
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = incoming.Reject(ssh.ConnectionFailed, "Connection refused")
		return
	}
	defer conn.Close()
	channel, requests, err := incoming.Accept()
	if err != nil {
		return
	}
	var work sync.WaitGroup
	work.Go(func() { ssh.DiscardRequests(requests) })
	work.Go(func() {
		_, _ = io.Copy(channel, conn)
		channel.Close()
	})
	stop := context.AfterFunc(ctx, func() { conn.Close(); channel.Close() })
	defer stop()
	_, _ = io.Copy(conn, channel)
	conn.Close()
	work.Wait()
}
