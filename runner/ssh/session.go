package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
)

// lostClock is how long, after a session ended without a status, the
// connection's own end may take to show.
const lostClock = time.Second

// errStale says that a kept connection was gone before anything was started
// on it.
var errStale = errors.New("the kept connection is gone")

// session is one command's channel.
type session struct {
	conn    *connection
	channel ssh.Channel
	work    *sync.WaitGroup
	ended   chan runner.Ending
}

// open opens a session on c. errStale: another connection should be tried.
func (c *connection) open(ctx context.Context, work *sync.WaitGroup) (*session, <-chan *ssh.Request, error) {
	for {
		if err := c.sessions.acquire(ctx); err != nil {
			return nil, nil, stopped(ctx, c.hop)
		}
		channel, requests, err := c.openChannel(ctx, work)
		if err == nil {
			return &session{conn: c, channel: channel, work: work, ended: make(chan runner.Ending, 1)}, requests, nil
		}
		var refused *ssh.OpenChannelError
		if !errors.As(err, &refused) {
			c.sessions.release()
			return nil, nil, err
		}
		if !c.sessions.refused() {
			return nil, nil, &evidence.Problem{Class: evidence.ClassBusy, Detail: fmt.Sprintf("%s opens no session: %s", c.hop, refused.Message)}
		}
	}
}

// openChannel is OpenChannel with a clock. A channel that opens after that is
// closed again.
func (c *connection) openChannel(ctx context.Context, work *sync.WaitGroup) (ssh.Channel, <-chan *ssh.Request, error) {
	type opened struct {
		channel  ssh.Channel
		requests <-chan *ssh.Request
		err      error
	}
	result := make(chan opened)
	given := make(chan struct{})
	defer close(given)
	work.Go(func() {
		channel, requests, err := c.client.OpenChannel("session", nil)
		select {
		case result <- opened{channel, requests, err}:
		case <-given:
			if err == nil {
				work.Go(func() { ssh.DiscardRequests(requests) })
				channel.Close()
			}
		}
	})
	timer := time.NewTimer(c.hop.timeout)
	defer timer.Stop()
	select {
	case r := <-result:
		var refused *ssh.OpenChannelError
		if r.err != nil && !errors.As(r.err, &refused) {
			return nil, nil, errStale
		}
		return r.channel, r.requests, r.err
	case <-c.dead:
		return nil, nil, errStale
	case <-timer.C:
		return nil, nil, &evidence.Problem{Class: evidence.ClassTimeout, Detail: fmt.Sprintf("%s did not open a session within %s", c.hop, c.hop.timeout)}
	case <-ctx.Done():
		return nil, nil, stopped(ctx, c.hop)
	}
}

// exec asks for the command and says how that went; then the session's
// requests are listened to until it ends.
func (s *session) exec(ctx context.Context, command string, requests <-chan *ssh.Request) *evidence.Problem {
	s.work.Go(func() { s.listen(requests) })
	granted := make(chan error, 1)
	s.work.Go(func() {
		ok, err := s.channel.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{command}))
		if err == nil && !ok {
			err = errRefused
		}
		granted <- err
	})
	timer := time.NewTimer(s.conn.hop.timeout)
	defer timer.Stop()
	var problem *evidence.Problem
	select {
	case err := <-granted:
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errRefused):
			problem = &evidence.Problem{Class: evidence.ClassNotRun, Detail: s.conn.hop.String() + " refuses to run commands"}
		default:
			problem = s.lost()
		}
	case <-s.conn.dead:
		problem = s.lost()
	case <-timer.C:
		problem = &evidence.Problem{Class: evidence.ClassTimeout, Detail: fmt.Sprintf("%s did not start the command within %s", s.conn.hop, s.conn.hop.timeout)}
	case <-ctx.Done():
		problem = stopped(ctx, s.conn.hop)
	}
	s.close()
	return problem
}

var errRefused = errors.New("request refused")

// listen notes how the command ended, when it ends: its output may go on
// being held open after that. The session's slot is free when the server has
// closed it.
func (s *session) listen(requests <-chan *ssh.Request) {
	defer s.conn.sessions.release()
	noted := false
	note := func(e runner.Ending) {
		if !noted {
			noted = true
			s.ended <- e
		}
	}
	for request := range requests {
		switch request.Type {
		case "exit-status":
			var status struct{ Status uint32 }
			if ssh.Unmarshal(request.Payload, &status) == nil {
				code := int(status.Status)
				note(runner.Ending{Code: &code})
			}
		case "exit-signal":
			var status struct {
				Signal     string
				CoreDumped bool
				Message    string
				Language   string
			}
			if ssh.Unmarshal(request.Payload, &status) == nil && status.Signal != "" {
				note(runner.Ending{Signal: status.Signal})
			}
		}
		if request.WantReply {
			_ = request.Reply(false, nil)
		}
	}
	if !noted {
		note(runner.Ending{Problem: s.lost()})
	}
}

// lost says why the session ended without a status.
func (s *session) lost() *evidence.Problem {
	timer := time.NewTimer(lostClock)
	defer timer.Stop()
	select {
	case <-s.conn.dead:
		return &evidence.Problem{Class: evidence.ClassLost, Detail: fmt.Sprintf("the connection to %s was lost: %v", s.conn.hop, s.conn.reason())}
	case <-timer.C:
		return &evidence.Problem{Class: evidence.ClassLost, Detail: fmt.Sprintf("%s ended the session without a status", s.conn.hop)}
	}
}

// close closes the session without waiting: on a frozen connection the write
// may block until the connection is given up.
func (s *session) close() { s.work.Go(func() { s.channel.Close() }) }

func (s *session) link() runner.Link {
	return runner.Link{
		Stdin:  newInput(s.channel),
		Stdout: s.channel,
		Stderr: s.channel.Stderr(),
		Ended:  s.ended,
		Close:  s.close,
		Go:     s.work.Go,
	}
}

// input is the session's standard input. The channel's own writes and its
// end of input must not meet.
type input struct {
	channel ssh.Channel
	turn    chan struct{}
	ending  chan struct{}
	once    sync.Once
}

const (
	inputChunk = 32 << 10
	// inputClock is how long the end of input waits for a write that the
	// other side does not take.
	inputClock = 500 * time.Millisecond
)

func newInput(channel ssh.Channel) *input {
	return &input{channel: channel, turn: make(chan struct{}, 1), ending: make(chan struct{})}
}

func (in *input) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		select {
		case <-in.ending:
			return written, io.ErrClosedPipe
		case in.turn <- struct{}{}:
		}
		n, err := in.channel.Write(p[written:min(len(p), written+inputChunk)])
		<-in.turn
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Close sends the end of input; if a write blocks that, it closes the channel
// as a whole.
func (in *input) Close() error {
	var err error
	in.once.Do(func() {
		close(in.ending)
		timer := time.NewTimer(inputClock)
		defer timer.Stop()
		select {
		case in.turn <- struct{}{}:
			err = in.channel.CloseWrite()
		case <-timer.C:
			err = in.channel.Close()
		}
	})
	return err
}
