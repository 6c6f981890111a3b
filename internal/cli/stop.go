package cli

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// stopper turns signals into the two stops of a run: the first lets what runs
// finish and starts nothing, the second cancels.
type stopper struct {
	stop   chan struct{}
	signal atomic.Value // os.Signal: the first one
	wait   sync.WaitGroup
	done   chan struct{}
	quiet  func()
}

// watch begins to listen. say is called with a sentence at each signal; cancel
// is called at the second one.
func (p *Process) watch(cancel context.CancelFunc, say func(string)) *stopper {
	signals, quiet := p.Signals()
	s := &stopper{stop: make(chan struct{}), done: make(chan struct{}), quiet: quiet}
	s.wait.Go(func() {
		for count := 0; ; {
			select {
			case <-s.done:
				return
			case got := <-signals:
				count++
				switch count {
				case 1:
					s.signal.Store(got)
					close(s.stop)
					say("stopping: no cell is started any more, and those that run may end; once more to cancel them")
				case 2:
					say("cancelling what runs; faults are being undone")
					cancel()
				}
			}
		}
	})
	return s
}

// close ends the listening.
func (s *stopper) close() {
	s.quiet()
	close(s.done)
	s.wait.Wait()
}

// exit is the exit code of a run that was stopped.
func (s *stopper) exit() Exit {
	switch s.signal.Load() {
	case os.Interrupt:
		return ExitInterrupt
	case syscall.SIGTERM:
		return ExitTerminate
	}
	return ExitError
}
