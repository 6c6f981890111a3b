package sshserver

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// refusedCode is the exit status of the supervising script where it could not
// start the command.
const refusedCode = 97

// Link is what ties a supervised command to whoever asked for it.
type Link struct {
	// Stdin ends when the command is to be ended.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Status is called once, unless the exit says that there is none.
	Status func(Exit)
	// Go starts a goroutine that outlives the command: a handler that does not
	// heed the end.
	Go func(func())
}

// Supervise does the supervising script's contract around a handler: the
// start lines, standard input, deadline, TERM and KILL, and the status. It
// returns when the command's session would end.
//
// A command without a LinePrefix is not under the script: it has no start
// lines, all of the input is its own, and it outlives the input's end.
func Supervise(session context.Context, c Command, run Handler, link Link) {
	ctx, stop := context.WithCancel(session)
	defer stop()
	if c.Deadline > 0 {
		ctx, stop = context.WithTimeout(ctx, c.Deadline)
		defer stop()
	}
	inputR, inputW := io.Pipe()
	defer inputR.Close()
	streams := &streams{prefix: c.LinePrefix, out: link.Stdout, err: link.Stderr}
	var work sync.WaitGroup
	defer func() { stop(); work.Wait() }()
	inputEnd := make(chan struct{})
	// Not waited for: it reads until the session's end.
	go func() {
		defer close(inputEnd)
		if c.LinePrefix == "" {
			_, err := io.Copy(inputW, link.Stdin)
			inputW.CloseWithError(err)
			<-session.Done()
			return
		}
		_, err := io.CopyN(inputW, link.Stdin, c.Stdin)
		inputW.CloseWithError(err)
		// A handler that does not read its input must not hide the end.
		_, _ = io.Copy(io.Discard, link.Stdin)
	}()
	work.Go(func() {
		select {
		case <-inputEnd:
			stop()
		case <-ctx.Done():
		}
	})
	result := make(chan Exit, 1)
	link.Go(func() {
		result <- run(ctx, c, inputR, stream{streams, link.Stdout}, stream{streams, link.Stderr})
	})
	exit := await(ctx, c, result)
	switch {
	case exit.Refused == "":
		streams.begin()
	case c.LinePrefix == "":
		streams.refuse(c.Argv[0] + ": not found")
		exit.Code = 127
	default:
		streams.refuse(exit.Refused)
		if exit.Code == 0 {
			exit.Code = refusedCode
		}
	}
	streams.shut()
	if !exit.NoStatus {
		link.Status(exit)
	}
	if exit.HeldOpen {
		select {
		case <-inputEnd:
		case <-session.Done():
		}
	}
}

// await waits for the handler, and for Grace more after ctx has ended.
func await(ctx context.Context, c Command, result <-chan Exit) Exit {
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
	mu       sync.Mutex
	prefix   string
	out, err io.Writer
	begun    bool
	over     bool
}

func (s *streams) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
}

func (s *streams) beginLocked() {
	if s.begun || s.prefix == "" {
		return
	}
	s.begun = true
	_, _ = io.WriteString(s.out, s.prefix+"start\n")
	_, _ = io.WriteString(s.err, s.prefix+"start\n")
}

func (s *streams) refuse(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.err, s.prefix+why+"\n")
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

// Write fails when the command has ended: nothing of it comes after its
// status.
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
