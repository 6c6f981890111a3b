// Package cli is the command line: one file a command. It alone touches the
// process that it runs in, through one value, Process; everything below it is
// given what it needs.
package cli

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// Process is the process that a command runs in: arguments, environment,
// streams, signals, clock and randomness. Nothing else reads them.
type Process struct {
	Context context.Context
	Args    []string // without the program's own name
	Environ []string // "NAME=value"

	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Whether each stream is a terminal.
	StdinTTY, StdoutTTY, StderrTTY bool
	// Width is the terminal's, in columns; 80 where there is none.
	Width int
	// Size asks for the size of stderr's terminal now; 0, 0 where it has none.
	// It may be nil.
	Size func() (columns, rows int)
	// ReadSecret reads one line from the terminal without showing it.
	ReadSecret func() ([]byte, error)

	// Signals starts to deliver SIGINT and SIGTERM, until stop is called. It
	// makes SIGPIPE harmless for good.
	Signals func() (signals <-chan os.Signal, stop func())
	Now     func() time.Time
	Random  io.Reader
	// Executable is the path of the running program, for its digest.
	Executable func() (string, error)
}

// System is the process that this program really runs in.
func System() *Process {
	p := &Process{
		Context:   context.Background(),
		Args:      os.Args[1:],
		Environ:   os.Environ(),
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		StdinTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		StdoutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		StderrTTY: term.IsTerminal(int(os.Stderr.Fd())),
		Width:     80,
		Size: func() (int, int) {
			columns, rows, err := term.GetSize(int(os.Stderr.Fd()))
			if err != nil {
				return 0, 0
			}
			return columns, rows
		},
		ReadSecret: func() ([]byte, error) { return term.ReadPassword(int(os.Stdin.Fd())) },
		Signals: func() (<-chan os.Signal, func()) {
			signals := make(chan os.Signal, 4)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
			// Who gets the signals means to stay: from here on a reader of
			// stdout or stderr that has gone away is a failed write, and not
			// the end. Caught and not ignored, for children inherit that.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			return signals, func() { signal.Stop(signals) }
		},
		Now:        time.Now,
		Random:     rand.Reader,
		Executable: os.Executable,
	}
	if columns, _ := p.Size(); columns > 0 {
		p.Width = columns
	}
	return p
}

// getenv is the environment variable name, or "".
func (p *Process) getenv(name string) string {
	value := ""
	for _, entry := range p.Environ {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

// interactive reports whether a prompt may be shown and answered.
func (p *Process) interactive() bool { return p.StdinTTY && p.StderrTTY }
