package sshserver

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"
)

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
	Supervise(ctx, c, s.config.Handler, Link{
		Stdin: channel, Stdout: channel, Stderr: channel.Stderr(),
		Status: func(exit Exit) { sendStatus(channel, exit) },
		Go:     s.work.Go,
	})
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
