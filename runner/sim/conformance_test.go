package sim_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/executortest"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/ssh"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// actors are the suite's commands as tools of a simulated node, one for each
// behaviour. A process of theirs is a goroutine, which is over when it returns.
type actors struct {
	mu      sync.Mutex
	running map[string][]string // names of what runs, by mark
	touched map[string]bool
}

func newActors() *actors {
	return &actors{running: make(map[string][]string), touched: make(map[string]bool)}
}

// toolOf is the name of a behaviour's tool.
func toolOf(b executortest.Behaviour) string { return "act-" + strings.ReplaceAll(string(b), " ", "-") }

func (a *actors) tools() map[string]sim.Tool {
	tools := make(map[string]sim.Tool)
	for b, act := range acts {
		name := toolOf(b)
		tools[name] = func(ctx context.Context, c *sim.Call) sshserver.Exit {
			defer a.enter(c, name)()
			return act(ctx, a, c)
		}
	}
	return tools
}

// enter notes that a process runs, until left is called.
func (a *actors) enter(c *sim.Call, name string) (left func()) {
	mark := variable(c, "RACKPROOF_MARK")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[mark] = append(a.running[mark], name)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		list := a.running[mark]
		i := slices.Index(list, name)
		a.running[mark] = slices.Delete(list, i, i+1)
	}
}

// child starts a process that outlives its parent. It ends when the node ends
// what is left; a stubborn one when it is killed.
func (a *actors) child(ctx context.Context, c *sim.Call, stubborn bool) {
	left := a.enter(c, "child")
	go func() {
		defer left()
		if stubborn {
			untilKilled(c)
			return
		}
		<-ctx.Done()
	}()
}

// untilKilled returns when the node lets nothing more out of the command.
func untilKilled(c *sim.Call) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := c.Stdout.Write(nil); err != nil {
			return
		}
	}
}

func variable(c *sim.Call, name string) string {
	value := ""
	for _, word := range c.Env {
		if rest, ok := strings.CutPrefix(word, name+"="); ok {
			value = rest // the last one wins
		}
	}
	return value
}

var term = sshserver.Exit{Signal: "TERM"}

// ticking writes 1 to 5, each 0.3 s.
func ticking(ctx context.Context, w io.Writer) bool {
	for i := range 5 {
		fmt.Fprintln(w, i+1)
		if !passes(ctx, 300*time.Millisecond) {
			return false
		}
	}
	return true
}

func passes(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func nothing(context.Context, *actors, *sim.Call) sshserver.Exit { return sshserver.Exit{} }

func sleeping(ctx context.Context, _ *actors, _ *sim.Call) sshserver.Exit {
	<-ctx.Done()
	return term
}

// stubborn ignores TERM, with children.
func stubborn(ctx context.Context, a *actors, c *sim.Call) sshserver.Exit {
	a.child(ctx, c, true)
	a.child(ctx, c, false)
	io.WriteString(c.Stdout, "up\n")
	untilKilled(c)
	return sshserver.Exit{Signal: "KILL"}
}

var acts = map[executortest.Behaviour]func(context.Context, *actors, *sim.Call) sshserver.Exit{
	executortest.DoesNothing:  nothing,
	executortest.IsOnPath:     nothing,
	executortest.IsOfThisArch: nothing,
	executortest.Sleeps:       sleeping,
	executortest.Exits: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		n, _ := strconv.Atoi(c.Argv[1])
		return sshserver.Exit{Code: n}
	},
	executortest.Dies: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		return sshserver.Exit{Signal: c.Argv[1]}
	},
	executortest.PrintsLines: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		for i := range 500 {
			fmt.Fprintf(c.Stdout, "out %d\n", i)
			fmt.Fprintf(c.Stderr, "err %d\n", i)
		}
		io.WriteString(c.Stdout, "no newline")
		io.WriteString(c.Stderr, "none here")
		return sshserver.Exit{}
	},
	executortest.Copies: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		io.Copy(c.Stdout, c.Stdin)
		return sshserver.Exit{}
	},
	executortest.Counts: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		n, _ := io.Copy(io.Discard, c.Stdin)
		fmt.Fprintln(c.Stdout, n)
		return sshserver.Exit{}
	},
	executortest.Hashes: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		hash := sha256.New()
		io.Copy(hash, c.Stdin)
		fmt.Fprintf(c.Stdout, "%x  -\n", hash.Sum(nil))
		return sshserver.Exit{}
	},
	executortest.Floods: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		for _, flood := range []struct {
			to   io.Writer
			text string
		}{{c.Stderr, "a"}, {c.Stdout, "b"}} {
			block := bytes.Repeat([]byte(flood.text), 1<<20)
			for range 32 {
				flood.to.Write(block)
			}
		}
		return sshserver.Exit{}
	},
	executortest.PrintsMegabyte: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		c.Stdout.Write(make([]byte, 1000000))
		io.WriteString(c.Stderr, "small\n")
		return sshserver.Exit{}
	},
	executortest.PrintsWords: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		for _, word := range c.Argv[1:] {
			fmt.Fprintln(c.Stdout, hex.EncodeToString([]byte(word)))
		}
		return sshserver.Exit{}
	},
	executortest.PrintsEnvironment: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		var values []string
		for _, name := range c.Argv[1:] {
			values = append(values, variable(c, name))
		}
		fmt.Fprintf(c.Stdout, "%s\nno terminal\n", strings.Join(values, "|"))
		return sshserver.Exit{}
	},
	executortest.TakesTurn: func(ctx context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		fmt.Fprintf(c.Stdout, "start %s\n", c.Argv[1])
		if !passes(ctx, 200*time.Millisecond) {
			return term
		}
		fmt.Fprintf(c.Stdout, "end %s\n", c.Argv[1])
		n, _ := strconv.Atoi(c.Argv[1])
		return sshserver.Exit{Code: n}
	},
	executortest.NeverStops: func(ctx context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		for ctx.Err() == nil {
			if _, err := io.WriteString(c.Stdout, strings.Repeat("y\n", 4096)); err != nil {
				break
			}
		}
		return term
	},
	executortest.FallsSilent: func(ctx context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		ticking(ctx, c.Stdout)
		<-ctx.Done()
		return term
	},
	executortest.Complains: func(ctx context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		if !ticking(ctx, c.Stderr) {
			return term
		}
		return sshserver.Exit{}
	},
	executortest.Touches: func(_ context.Context, a *actors, c *sim.Call) sshserver.Exit {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.touched[c.Argv[1]] = true
		return sshserver.Exit{}
	},
	executortest.FillsGroup: func(ctx context.Context, a *actors, c *sim.Call) sshserver.Exit {
		for range 4 {
			a.child(ctx, c, false)
		}
		io.WriteString(c.Stdout, "up\n")
		<-ctx.Done()
		return term
	},
	executortest.IgnoresTERM: stubborn,
	executortest.LeavesGroup: stubborn,
	executortest.HoldsOutput: func(ctx context.Context, a *actors, c *sim.Call) sshserver.Exit {
		a.child(ctx, c, false)
		io.WriteString(c.Stdout, "hi\n")
		return sshserver.Exit{Code: 3, HeldOpen: true}
	},
	executortest.LeavesBehind: func(ctx context.Context, a *actors, c *sim.Call) sshserver.Exit {
		a.child(ctx, c, false)
		a.child(ctx, c, false)
		io.WriteString(c.Stdout, "hi\n")
		return sshserver.Exit{}
	},
	executortest.LeavesStubborn: func(ctx context.Context, a *actors, c *sim.Call) sshserver.Exit {
		a.child(ctx, c, true)
		io.WriteString(c.Stdout, "hi\n")
		return sshserver.Exit{}
	},
	// A simulated node has no files to start: a tool says so in the
	// supervising script's place.
	executortest.CannotStart: func(_ context.Context, _ *actors, c *sim.Call) sshserver.Exit {
		io.WriteString(c.Stderr, "no such interpreter\n")
		return sshserver.Exit{Refused: "exec-failed", Code: 127}
	},
	executortest.IsOfOtherArch: func(context.Context, *actors, *sim.Call) sshserver.Exit {
		return sshserver.Exit{Refused: "arch 00f7"}
	},
}

func (a *actors) Argv(t *testing.T, b executortest.Behaviour, args ...string) []string {
	t.Helper()
	if acts[b] == nil {
		t.Fatalf("there is no tool that %s", b)
	}
	return append([]string{toolOf(b)}, args...)
}

// Missing are names that no tool has, a file that is none, a directory, a tool
// where it is not, and words of the shell's own.
func (a *actors) Missing(*testing.T) [][]string {
	return [][]string{{"no-such-tool-here", "-x"}, {"/no/such/tool"}, {"/etc/machine-id"}, {"/tmp"}, {"/opt/cat"}, {"export"}, {"rp_say"}}
}

func (a *actors) Touched(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.touched[name]
}

func (a *actors) Left(mark string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.running[mark])
}

// Watching is nothing: a simulated node supervises by itself.
func (a *actors) Watching(string) []string { return nil }

func simulated(t *testing.T) (*actors, *sim.Nodes) {
	t.Helper()
	r, err := rack.New(rack.Config{Nodes: []string{"gpu001"}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	a := newActors()
	return a, sim.NewNodes(r, a.tools())
}

func TestConformance(t *testing.T) {
	a, nodes := simulated(t)
	executortest.Run(t, executortest.Harness{Node: "gpu001", Commands: a, Open: func(*testing.T) runner.Executor {
		return sim.NewExecutor(nodes)
	}})
}

func TestConformanceOverSSH(t *testing.T) {
	executortest.CheckLeaks(t)
	a, nodes := simulated(t)
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	user, err := gossh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	server, err := sshserver.Start(t.Context(), sshserver.Config{
		Version: sim.Version, Authorized: []gossh.PublicKey{user}, Parse: sshserver.ParseCommand, Handler: nodes.Handler("gpu001"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	identity, known := filepath.Join(dir, "id"), filepath.Join(dir, "known_hosts")
	for name, text := range map[string][]byte{
		identity: pem.EncodeToMemory(block),
		known:    fmt.Appendf(nil, "[127.0.0.1]:%d %s", server.Addr().Port, gossh.MarshalAuthorizedKey(server.HostKey())),
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := json.Marshal(map[string]any{
		"ssh_config": "", "known_hosts": known, "identity": identity, "port": server.Addr().Port, "user": "tester", "connect_timeout": "5s",
	})
	if err != nil {
		t.Fatal(err)
	}
	executortest.Run(t, executortest.Harness{Node: "127.0.0.1", Commands: a, Open: func(t *testing.T) runner.Executor {
		x, err := ssh.Kind().Open(t.Context(), config, []string{"127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}})
}
