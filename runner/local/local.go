// Package local runs every node's commands on this machine, under the same
// supervising script as the ssh executor.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
)

// Kind is executor "local": all nodes of the fleet are this machine.
func Kind() runner.Kind {
	return runner.Kind{
		Name: "local",
		Doc:  "Runs commands on this machine, for a single node and for rehearsals. Several nodes are one machine then, which needs shared_machine = true.",
		Params: []evidence.Param{
			{Name: "become", Type: evidence.ParamString, Enum: []string{"sudo"}, Doc: "Runs every command as root through \"sudo -n\"."},
			{Name: "shared_machine", Type: evidence.ParamBool, Default: false, Doc: "Lets several nodes be one machine; the evidence says so."},
			{Name: "clock_limit", Type: evidence.ParamDuration, Default: "5s", Doc: "How far a node's clock may be from the runner's."},
			{Name: "parallel", Type: evidence.ParamNumber, Whole: true, Unit: "1", Default: 64, Doc: "How many cells may run at once."},
		},
		Can: []evidence.Capability{
			evidence.CapExec,
			evidence.CapFault("process_kill"), evidence.CapFault("service_stop"), evidence.CapFault("command"),
		},
		Open: open,
	}
}

type config struct {
	Become string `json:"become"`
}

type executor struct {
	become bool
	closed chan struct{}
	close  sync.Once
	tasks  sync.WaitGroup // Exec under way, and what it started
	mu     sync.Mutex     // orders the start of a task before Close's wait
}

func open(_ context.Context, raw json.RawMessage, _ []string) (runner.Executor, error) {
	var c config
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, fmt.Errorf("executor local: configuration: %w", err)
		}
	}
	if c.Become != "" && c.Become != "sudo" {
		return nil, fmt.Errorf("executor local: become is %q: want \"sudo\" or nothing", c.Become)
	}
	return &executor{become: c.Become == "sudo", closed: make(chan struct{})}, nil
}

// Identify names the machine's host name as the address; what the machine is
// beyond that, the inventory reads by commands.
func (x *executor) Identify(_ context.Context, node string) (evidence.NodeIdentity, error) {
	name, err := os.Hostname()
	if err != nil {
		return evidence.NodeIdentity{}, fmt.Errorf("%s: read the host name: %w", node, err)
	}
	return evidence.NodeIdentity{Node: node, Address: name}, nil
}

func (x *executor) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.closed:
		return false
	default:
		x.tasks.Add(1)
		return true
	}
}

func (x *executor) Exec(ctx context.Context, t evidence.Task, stdout, stderr io.Writer) (evidence.Exit, error) {
	start := time.Now()
	if !x.begin() {
		return runner.Unstarted(t, evidence.ClassCut, "the executor has been closed", start, time.Now()), nil
	}
	defer x.tasks.Done()
	if ctx.Err() != nil {
		return runner.Unstarted(t, evidence.ClassCut, "the run was stopped before the command began", start, time.Now()), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x.tasks.Go(func() {
		select {
		case <-x.closed:
			cancel()
		case <-ctx.Done():
		}
	})
	s, err := runner.Supervise(t)
	if err != nil {
		return runner.Unstarted(t, evidence.ClassNotRun, err.Error(), start, time.Now()), nil
	}
	link, err := x.start(s)
	if err != nil {
		class := evidence.ClassNotRun
		if errors.Is(err, exec.ErrNotFound) {
			class = evidence.ClassToolMissing
			if x.become {
				class = evidence.ClassSudoRefused
			}
		}
		return runner.Unstarted(t, class, err.Error(), start, time.Now()), nil
	}
	return runner.Attend(ctx, t, s, x.become, link, stdout, stderr)
}

// start forks the supervising shell, in a session of its own and with no
// terminal.
func (x *executor) start(s runner.Supervised) (runner.Link, error) {
	words := s.Words()
	if x.become {
		words = runner.Sudo(words)
	}
	var pipes pipes
	inR, inW := pipes.make()
	outR, outW := pipes.make()
	errR, errW := pipes.make()
	if pipes.err != nil {
		pipes.close()
		return runner.Link{}, fmt.Errorf("start %s: %w", s.Argv[0], pipes.err)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = inherited(cmd.Environ())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	cmd.SysProcAttr = ownSession()
	if err := cmd.Start(); err != nil {
		pipes.close()
		return runner.Link{}, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	for _, theirs := range []*os.File{inR, outW, errW} {
		theirs.Close()
	}
	ended := make(chan runner.Ending, 1)
	x.tasks.Go(func() {
		err := cmd.Wait()
		if cmd.ProcessState == nil {
			ended <- runner.Ending{Problem: &evidence.Problem{Class: evidence.ClassLost, Detail: fmt.Sprintf("wait for %s: %v", s.Argv[0], err)}}
			return
		}
		ended <- ending(cmd.ProcessState)
	})
	return runner.Link{
		Stdin: inW, Stdout: outR, Stderr: errR, Ended: ended,
		Close: func() { outR.Close(); errR.Close() },
		Go:    x.tasks.Go,
	}, nil
}

// Close ends what runs and waits for it.
func (x *executor) Close() error {
	x.mu.Lock()
	x.close.Do(func() { close(x.closed) })
	x.mu.Unlock()
	x.tasks.Wait()
	return nil
}

// pipes makes pipes until one fails.
type pipes struct {
	files []*os.File
	err   error
}

func (p *pipes) make() (r, w *os.File) {
	if p.err != nil {
		return nil, nil
	}
	if r, w, p.err = os.Pipe(); p.err == nil {
		p.files = append(p.files, r, w)
	}
	return r, w
}

func (p *pipes) close() {
	for _, f := range p.files {
		f.Close()
	}
}

// passed are the variables of our own environment that a command gets: what a
// login would set, and no secret that the runner was started with.
var passed = map[string]bool{
	"PATH": true, "HOME": true, "USER": true, "LOGNAME": true, "SHELL": true, "TMPDIR": true,
	"XDG_RUNTIME_DIR": true, "LD_LIBRARY_PATH": true, "LD_PRELOAD": true,
}

func inherited(environ []string) []string {
	var kept []string
	for _, word := range environ {
		if name, _, _ := strings.Cut(word, "="); passed[name] {
			kept = append(kept, word)
		}
	}
	return kept
}
