package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/executortest"
	"github.com/rackproof/rackproof/runner/ssh/sshfleet"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// with is config with other values.
func with(config map[string]any, pairs ...any) map[string]any {
	changed := make(map[string]any)
	for name, value := range config {
		changed[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		changed[pairs[i].(string)] = pairs[i+1]
	}
	return changed
}

var sayHi = []string{"echo", "hi"}

// TestUnreachable: one bad node in four. It is classed within its clock and
// the others are not held up by it.
func TestUnreachable(t *testing.T) {
	executortest.CheckLeaks(t)
	const clock = time.Second
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusedPort := refused.Addr().(*net.TCPAddr).Port
	refused.Close()
	port := func(faults sshserver.Faults) int { return serve(t, sshserver.Config{Faults: faults}).Addr().Port }
	f := up(t, 3, nil)
	for _, c := range []struct {
		name   string
		port   int
		class  evidence.Class
		words  []string
		least  time.Duration
		within time.Duration
	}{
		{"drops everything", blackHole(t), evidence.ClassTCP, []string{"1s"}, clock, clock + time.Second},
		{"port closed", refusedPort, evidence.ClassTCP, []string{"connection refused"}, 0, 500 * time.Millisecond},
		{"no greeting", port(sshserver.Faults{NoGreeting: true}), evidence.ClassBanner, []string{"1s"}, clock, clock + time.Second},
		{"stalls after the greeting", port(sshserver.Faults{Greeting: "SSH-2.0-OpenSSH_9.2p1 stall\r\n"}), evidence.ClassKex, []string{"key exchange", "1s"}, clock, clock + time.Second},
		{"speaks HTTP", port(sshserver.Faults{Greeting: "HTTP/1.1 400 Bad Request\r\n\r\n"}), evidence.ClassNotSSH, []string{`"HTTP/1.1 400 Bad Request\r\n`}, 0, 500 * time.Millisecond},
		{"speaks something else", port(sshserver.Faults{Greeting: "220 \x1b[2Jmail" + strings.Repeat("x", 100) + "\r\n"}), evidence.ClassNotSSH, []string{`"220 \x1b[2Jmailxxx`}, clock, clock + time.Second},
		{"binary", port(sshserver.Faults{Greeting: "\x15\x03\x01\x00\x02\n"}), evidence.ClassNotSSH, []string{`"\x15\x03\x01\x00`}, 0, 500 * time.Millisecond},
		{"floods", port(sshserver.Faults{Flood: true}), evidence.ClassNotSSH, []string{`"line 0\r\nline 1`}, 0, clock + time.Second},
		{"old protocol", port(sshserver.Faults{Greeting: "SSH-1.5-Cisco-1.25\n"}), evidence.ClassNotSSH, []string{"SSH-1.5-Cisco"}, 0, 500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "config")
			good, err := os.ReadFile(f.SSHConfig)
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("Host bad\n  HostName 127.0.0.1\n  Port %d\n  ConnectTimeout 1\n%s", c.port, good)
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			x := openFor(t, map[string]any{"ssh_config": config}, "bad", "n1", "n2", "n3")
			var all sync.WaitGroup
			for _, node := range []string{"n1", "n2", "n3"} {
				all.Go(func() {
					r := run(t, x, evidence.Task{Node: node, Argv: sayHi})
					r.wants(t, evidence.ClassOK)
				})
			}
			r := run(t, x, evidence.Task{Node: "bad", Argv: sayHi})
			r.wants(t, c.class, c.words...)
			r.within(t, c.least, c.within)
			if r.Code != nil || r.out != "" {
				t.Errorf("something ran: %+v", r.Exit)
			}
			all.Wait()
			if _, err := x.Identify(t.Context(), "bad"); err == nil {
				t.Error("a node that cannot be reached was identified")
			} else if problem := new(evidence.Problem); !errors.As(err, &problem) || problem.Class != c.class || problem.Node != "bad" {
				t.Errorf("identify: %v", err)
			}
		})
	}
}

func TestNameNotFound(t *testing.T) {
	x := openFor(t, map[string]any{"ssh_config": "", "connect_timeout": "5s"}, "no-such-node.invalid")
	r := run(t, x, evidence.Task{Node: "no-such-node.invalid", Argv: sayHi})
	r.wants(t, evidence.ClassDNS, "no-such-node.invalid")
}

// TestBusy: connections closed before the greeting are tried again, and
// counted; nothing calls them a matter of keys.
func TestBusy(t *testing.T) {
	executortest.CheckLeaks(t)
	s := serve(t, sshserver.Config{Faults: sshserver.Faults{Refuse: 3, RefuseText: "Exceeded MaxStartups\r\n"}})
	x := openFor(t, s.config, "127.0.0.1")
	r := run(t, x, evidence.Task{Node: "127.0.0.1", Argv: sayHi})
	r.wants(t, evidence.ClassOK)
	if got := s.Connections(); got != 4 {
		t.Errorf("%d connections, want 4", got)
	}
	s = serve(t, sshserver.Config{Faults: sshserver.Faults{Refuse: 1000}})
	x = openFor(t, s.config, "127.0.0.1")
	r = run(t, x, evidence.Task{Node: "127.0.0.1", Argv: sayHi})
	r.wants(t, evidence.ClassBusy, "tried 6 times")
	if got := s.Connections(); got != busyTries {
		t.Errorf("%d connections, want %d", got, busyTries)
	}
}

// TestManySessions: more commands at once than the server has sessions.
func TestManySessions(t *testing.T) {
	executortest.CheckLeaks(t)
	f := up(t, 1, func(string) sshfleet.NodeOptions { return sshfleet.NodeOptions{Lines: []string{"MaxSessions 3"}} })
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig}, "n1")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			r := run(t, x, evidence.Task{Node: "n1", Argv: []string{"sleep", "0.2"}})
			r.wants(t, evidence.ClassOK)
		})
	}
	all.Wait()
	log, err := os.ReadFile(f.Node("n1").Log())
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(log, []byte("Accepted publickey")); got != 1 {
		t.Errorf("%d connections were made, want one that is kept", got)
	}
}

func TestNoSessions(t *testing.T) {
	s := serve(t, sshserver.Config{Faults: sshserver.Faults{StallSession: true}})
	x := openFor(t, with(s.config, "connect_timeout", "1s"), "127.0.0.1")
	r := run(t, x, evidence.Task{Node: "127.0.0.1", Argv: sayHi})
	r.wants(t, evidence.ClassTimeout, "session")
	r.within(t, time.Second, 3*time.Second)
	s = serve(t, sshserver.Config{Faults: sshserver.Faults{RefuseExec: true}})
	x = openFor(t, s.config, "127.0.0.1")
	r = run(t, x, evidence.Task{Node: "127.0.0.1", Argv: sayHi})
	r.wants(t, evidence.ClassNotRun, "refuses to run")
}

// TestHostKeyTypes: the server has keys of three types and known_hosts has
// one of them.
func TestHostKeyTypes(t *testing.T) {
	for _, first := range [][]string{{"ed25519", "ecdsa", "rsa"}, {"rsa", "ed25519", "ecdsa"}, {"ecdsa", "rsa", "ed25519"}} {
		t.Run(first[0], func(t *testing.T) {
			f := up(t, 1, func(string) sshfleet.NodeOptions { return sshfleet.NodeOptions{HostKeys: first} })
			x := openFor(t, map[string]any{"ssh_config": f.SSHConfig}, "n1")
			run(t, x, evidence.Task{Node: "n1", Argv: sayHi}).wants(t, evidence.ClassOK)
			id, err := x.Identify(t.Context(), "n1")
			if err != nil {
				t.Fatal(err)
			}
			public, err := os.ReadFile(f.KnownHosts)
			if err != nil {
				t.Fatal(err)
			}
			_, _, key, _, _, err := ssh.ParseKnownHosts(public)
			if err != nil {
				t.Fatal(err)
			}
			if want := ssh.FingerprintSHA256(key); id.HostKey != want {
				t.Errorf("host key is %s, want %s", id.HostKey, want)
			}
			if !strings.HasPrefix(id.SSHVersion, "SSH-2.0-OpenSSH_") || id.Simulated || id.Address != f.Node("n1").Endpoint() {
				t.Errorf("identity is %+v", id)
			}
		})
	}
}

// TestHostKeyMismatch: another key ends it before a user name is sent, once.
func TestHostKeyMismatch(t *testing.T) {
	executortest.CheckLeaks(t)
	f := up(t, 2, nil)
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig}, "n1", "n2")
	before, err := x.Identify(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Node("n1").ReplaceHostKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := f.Node("n1").Log()
	if err := os.Truncate(log, 0); err != nil {
		t.Fatal(err)
	}
	r := run(t, x, evidence.Task{Node: "n1", Argv: sayHi})
	r.wants(t, evidence.ClassHostKeyMismatch, before.HostKey, f.KnownHosts+":1", "nothing was sent")
	if strings.Count(r.Detail, "SHA256:") != 2 {
		t.Errorf("detail %q does not show both fingerprints", r.Detail)
	}
	said, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(said, []byte("Connection from")); got != 1 {
		t.Errorf("%d connections were made, want 1:\n%s", got, said)
	}
	if bytes.Contains(said, []byte("user")) {
		t.Errorf("a user was named:\n%s", said)
	}
	run(t, x, evidence.Task{Node: "n2", Argv: sayHi}).wants(t, evidence.ClassOK)
}

func TestHostKeyUnknown(t *testing.T) {
	f := up(t, 1, nil)
	empty := filepath.Join(t.TempDir(), "known_hosts")
	config := filepath.Join(t.TempDir(), "config")
	text, err := os.ReadFile(f.SSHConfig)
	if err != nil {
		t.Fatal(err)
	}
	text = append([]byte("StrictHostKeyChecking no\n"), text...)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(empty, []byte("# nothing\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		x := openFor(t, map[string]any{"ssh_config": config, "known_hosts": empty}, "n1")
		r := run(t, x, evidence.Task{Node: "n1", Argv: sayHi})
		r.wants(t, evidence.ClassHostKeyUnknown, "SHA256:", empty, "["+f.Node("n1").Address+"]:", "nothing was sent", "StrictHostKeyChecking no is not followed")
	}
	// A revoked key is refused although it is listed.
	known, err := os.ReadFile(f.KnownHosts)
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := bytes.Cut(known, []byte(" "))
	if err := os.WriteFile(empty, append(known, append([]byte("@revoked * "), key...)...), 0o600); err != nil {
		t.Fatal(err)
	}
	x := openFor(t, map[string]any{"ssh_config": config, "known_hosts": empty}, "n1")
	run(t, x, evidence.Task{Node: "n1", Argv: sayHi}).wants(t, evidence.ClassHostKeyMismatch, "revokes", empty+":2")
	// A key of a type that the server does not have.
	rsa := up(t, 1, func(string) sshfleet.NodeOptions { return sshfleet.NodeOptions{HostKeys: []string{"rsa"}} })
	line := fmt.Sprintf("[%s]:%d %s", rsa.Node("n1").Address, rsa.Port, key)
	if err := os.WriteFile(empty, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	x = openFor(t, map[string]any{"ssh_config": rsa.SSHConfig, "known_hosts": empty}, "n1")
	run(t, x, evidence.Task{Node: "n1", Argv: sayHi}).wants(t, evidence.ClassHostKeyMismatch, "ssh-ed25519 SHA256:", "nothing was sent")
}

func TestAuthFailed(t *testing.T) {
	executortest.CheckLeaks(t)
	f := up(t, 1, nil)
	path, public := newIdentity(t, filepath.Join(t.TempDir(), "other"))
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig, "identity": path}, "n1")
	r := run(t, x, evidence.Task{Node: "n1", Argv: sayHi})
	r.wants(t, evidence.ClassAuth, ssh.FingerprintSHA256(public), path, "publickey")
	log, err := os.ReadFile(f.Node("n1").Log())
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(log, []byte("Connection from")); got != 1 {
		t.Errorf("%d connections, want no second try:\n%s", got, log)
	}
	x = openFor(t, map[string]any{"ssh_config": f.SSHConfig, "identity": filepath.Join(t.TempDir(), "gone")}, "n1")
	run(t, x, evidence.Task{Node: "n1", Argv: sayHi}).wants(t, evidence.ClassAuth, "no key was there")
}

// TestAgent: an agent that is gone, or hangs, is named and does not keep the
// key files from being tried.
func TestAgent(t *testing.T) {
	executortest.CheckLeaks(t)
	f := up(t, 1, nil)
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	hung := filepath.Join(dir, "hung")
	l, err := net.Listen("unix", hung)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig, "identity": "agent", "agent": gone}, "n1")
	run(t, x, evidence.Task{Node: "n1", Argv: sayHi}).wants(t, evidence.ClassAuth, gone, "no such file")
	x = openFor(t, map[string]any{"ssh_config": f.SSHConfig, "agent": hung}, "n1")
	r := run(t, x, evidence.Task{Node: "n1", Argv: sayHi})
	r.wants(t, evidence.ClassOK)
	r.within(t, agentClock, agentClock+3*time.Second)
	x = openFor(t, map[string]any{"ssh_config": f.SSHConfig, "identity": "agent", "agent": hung}, "n1")
	r = run(t, x, evidence.Task{Node: "n1", Argv: sayHi})
	r.wants(t, evidence.ClassAuth, hung, "timeout")
	// A real one, with the fleet's key.
	socket := filepath.Join(dir, "real")
	agent := exec.CommandContext(t.Context(), "ssh-agent", "-D", "-a", socket)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Process.Kill(); _ = agent.Wait() }()
	if !executortest.Eventually(5*time.Second, func() bool { return exists(socket) }) {
		t.Fatal("ssh-agent did not start")
	}
	add := exec.CommandContext(t.Context(), "ssh-add", f.Identity)
	add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("ssh-add: %v: %s", err, out)
	}
	x = openFor(t, map[string]any{"ssh_config": f.SSHConfig, "identity": "agent", "agent": socket}, "n1")
	run(t, x, evidence.Task{Node: "n1", Argv: sayHi}).wants(t, evidence.ClassOK)
}

// TestDeadlineOfOne: one of four hangs; the others do not notice.
func TestDeadlineOfOne(t *testing.T) {
	f := up(t, 4, nil)
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig}, f.Names()...)
	var all sync.WaitGroup
	mark := t.TempDir()
	for _, node := range f.Names() {
		all.Go(func() {
			if node != "n2" {
				run(t, x, evidence.Task{Node: node, Argv: sayHi, Deadline: 30 * time.Second}).wants(t, evidence.ClassOK)
				return
			}
			r := run(t, x, evidence.Task{Node: node, Mark: mark, Argv: []string{"sleep", "1000"}, Deadline: 2 * time.Second})
			r.wants(t, evidence.ClassTimeout, "2s")
			r.within(t, 2*time.Second, 4*time.Second)
		})
	}
	all.Wait()
	if !executortest.Eventually(2*time.Second, func() bool { return len(executortest.Marked(mark)) == 0 }) {
		t.Errorf("left: %q", executortest.Marked(mark))
	}
	run(t, x, evidence.Task{Node: "n2", Argv: sayHi}).wants(t, evidence.ClassOK)
}

// TestFrozenNode: the machine hangs with its connections open.
func TestFrozenNode(t *testing.T) {
	executortest.CheckLeaks(t)
	f := up(t, 2, nil)
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig, "connect_timeout": "1s"}, "n1", "n2")
	w := &firstWrite{first: make(chan struct{})}
	go func() {
		<-w.first
		if err := f.Node("n1").Freeze(); err != nil {
			t.Error(err)
		}
	}()
	start := time.Now()
	exit, err := x.Exec(t.Context(), evidence.Task{Node: "n1", Argv: []string{"sh", "-c", "echo before; sleep 1000"}}, w, io.Discard)
	if err != nil || exit.Class != evidence.ClassLost || !strings.Contains(exit.Detail, "nothing was heard") {
		t.Errorf("class %s (%s), error %v, want lost", exit.Class, exit.Detail, err)
	}
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("took %s", took)
	}
	if exit.StdoutBytes != int64(len("before\n")) || exit.Code != nil {
		t.Errorf("%d bytes kept, code %v", exit.StdoutBytes, exit.Code)
	}
	run(t, x, evidence.Task{Node: "n2", Argv: sayHi}).wants(t, evidence.ClassOK)
	run(t, x, evidence.Task{Node: "n1", Argv: sayHi}).wants(t, evidence.ClassBanner)
	if err := f.Node("n1").Thaw(); err != nil {
		t.Fatal(err)
	}
	run(t, x, evidence.Task{Node: "n1", Argv: sayHi}).wants(t, evidence.ClassOK)
}

type firstWrite struct {
	once  sync.Once
	first chan struct{}
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.first) })
	return len(p), nil
}

// TestFrozenNetwork: the network swallows everything from some byte on. The
// task's own deadline still holds.
func TestFrozenNetwork(t *testing.T) {
	executortest.CheckLeaks(t)
	s := serve(t, sshserver.Config{Faults: sshserver.Faults{FreezeAfter: 100 << 10}})
	x := openFor(t, s.config, "127.0.0.1")
	r := run(t, x, evidence.Task{Node: "127.0.0.1", Argv: []string{"cat", "/dev/zero"}})
	r.wants(t, evidence.ClassLost, "nothing was heard")
	if len(r.out) < 50<<10 || len(r.out) > 100<<10 {
		t.Errorf("kept %d bytes", len(r.out))
	}
	s.SetFaults(sshserver.Faults{FreezeAfter: 100 << 10})
	slow, err := open(t.Context(), marshal(t, s.config), []string{"127.0.0.1"}, clocks{alive: time.Minute, misses: 3})
	if err != nil {
		t.Fatal(err)
	}
	r = run(t, slow, evidence.Task{Node: "127.0.0.1", Argv: []string{"cat", "/dev/zero"}, Deadline: time.Second})
	r.wants(t, evidence.ClassTimeout, "did not confirm")
	r.within(t, time.Second, time.Second+runner.Grace+4*time.Second)
	if err := slow.Close(); err != nil {
		t.Error(err)
	}
}

// TestReset: the connection is reset in the middle of output.
func TestReset(t *testing.T) {
	executortest.CheckLeaks(t)
	s := serve(t, sshserver.Config{Faults: sshserver.Faults{DropAfter: 200 << 10}})
	x := openFor(t, s.config, "127.0.0.1")
	task := evidence.Task{Node: "127.0.0.1", Mark: t.TempDir(), Argv: []string{"cat", "/dev/zero"}}
	r := run(t, x, task)
	r.wants(t, evidence.ClassLost, "connection", "lost")
	if len(r.out) == 0 || strings.Trim(r.out, "\x00") != "" {
		t.Errorf("kept %d bytes", len(r.out))
	}
	if !executortest.Eventually(runner.Grace+2*time.Second, func() bool { return len(executortest.Marked(task.Mark)) == 0 }) {
		t.Errorf("left: %q", executortest.Marked(task.Mark))
	}
	s.SetFaults(sshserver.Faults{})
	run(t, x, evidence.Task{Node: "127.0.0.1", Argv: sayHi}).wants(t, evidence.ClassOK)
}

// TestStatusMissing: the session ends without a status on a connection that
// lives.
func TestStatusMissing(t *testing.T) {
	s := serve(t, sshserver.Config{Handler: func(_ context.Context, _ sshserver.Command, _ io.Reader, stdout, _ io.Writer) sshserver.Exit {
		_, _ = io.WriteString(stdout, "some")
		return sshserver.Exit{NoStatus: true}
	}})
	x := openFor(t, s.config, "127.0.0.1")
	r := run(t, x, evidence.Task{Node: "127.0.0.1", Argv: sayHi})
	r.wants(t, evidence.ClassLost, "without a status")
	if r.out != "some" {
		t.Errorf("stdout is %q", r.out)
	}
	id, err := x.Identify(t.Context(), "127.0.0.1")
	if err != nil || !id.Simulated || s.Connections() != 1 {
		t.Errorf("identity %+v, error %v, %d connections", id, err, s.Connections())
	}
}

// TestIdleDrop: the server ends an idle connection; the next command makes
// another and nobody sees it.
func TestIdleDrop(t *testing.T) {
	s := serve(t, sshserver.Config{})
	x := openFor(t, s.config, "127.0.0.1")
	for i := range 3 {
		run(t, x, evidence.Task{Node: "127.0.0.1", Argv: sayHi}).wants(t, evidence.ClassOK)
		if got := s.Connections(); got != i+1 {
			t.Errorf("%d connections, want %d", got, i+1)
		}
		s.DropAll()
	}
}

// TestStopAll: many nodes run when the run is stopped; all end within 5 s and
// nothing is left.
func TestStopAll(t *testing.T) {
	executortest.CheckLeaks(t)
	f := up(t, 8, nil)
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig}, f.Names()...)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	mark := t.TempDir()
	var begun, all sync.WaitGroup
	for _, node := range f.Names() {
		begun.Add(1)
		all.Go(func() {
			w := &firstWrite{first: make(chan struct{})}
			go func() { <-w.first; begun.Done() }()
			exit, err := x.Exec(ctx, evidence.Task{Node: node, Mark: mark, Argv: []string{"sh", "-c", "trap '' TERM; echo up; sleep 1000 & wait; while :; do sleep 1; done"}}, w, io.Discard)
			if err != nil || exit.Class != evidence.ClassCut || exit.Signal != "KILL" {
				t.Errorf("%s: class %s (%s), signal %q, error %v", node, exit.Class, exit.Detail, exit.Signal, err)
			}
		})
	}
	begun.Wait()
	start := time.Now()
	stop()
	all.Wait()
	if took := time.Since(start); took > runner.Grace+2*time.Second {
		t.Errorf("took %s", took)
	}
	if !executortest.Eventually(time.Second, func() bool { return len(executortest.Marked(mark)) == 0 }) {
		t.Errorf("left: %q", executortest.Marked(mark))
	}
}

// TestRunnerKilled: the runner's process is killed; the node ends the command.
func TestRunnerKilled(t *testing.T) {
	f := up(t, 1, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The helper has the mark in its environment too, so it gets only a part
	// of the one that is looked for.
	cmd := exec.CommandContext(t.Context(), self)
	mark := fmt.Sprintf("killed-%d-%d", os.Getpid(), time.Now().UnixNano())
	cmd.Env = append(os.Environ(), helperVariable+"="+f.Dir, "MARK="+mark)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 3)
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "up\n" {
		t.Fatalf("helper says %q, %v", said, err)
	}
	node := "RACKPROOF_MARK=" + mark
	if left := executortest.Marked(node); len(left) < 2 {
		t.Errorf("only %q run", left)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !executortest.Eventually(2*time.Second, func() bool { return len(executortest.Marked(node)) == 0 }) {
		t.Errorf("left: %q", executortest.Marked(node))
	}
}

func TestSudoRefused(t *testing.T) {
	for name, c := range map[string]struct{ script, word string }{
		"password":    {"echo 'sudo: a password is required' >&2; exit 1", "a password is required"},
		"not allowed": {"echo 'Sorry, user tester is not allowed to execute that' >&2; exit 1", "not allowed"},
		"silent":      {"exit 1", "nothing was printed"},
		"missing":     {"", "exited with 127"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := dir
			if c.script != "" {
				writeScript(t, filepath.Join(dir, "sudo"), c.script)
				path += ":/usr/bin:/bin"
			}
			f := up(t, 1, func(string) sshfleet.NodeOptions {
				return sshfleet.NodeOptions{SetEnv: map[string]string{"PATH": path}}
			})
			x := openFor(t, map[string]any{"ssh_config": f.SSHConfig, "become": "sudo"}, "n1")
			r := run(t, x, evidence.Task{Node: "n1", Argv: sayHi})
			r.wants(t, evidence.ClassSudoRefused, c.word)
		})
	}
}

// TestNoise: a login shell that prints, and one that runs something else.
func TestNoise(t *testing.T) {
	f := up(t, 3, func(name string) sshfleet.NodeOptions {
		return sshfleet.NodeOptions{Lines: map[string][]string{
			"n1": {`ForceCommand echo noise; echo more >&2; eval "$SSH_ORIGINAL_COMMAND"`},
			"n2": {`ForceCommand echo "This account is currently not available."; exit 1`},
			"n3": {`ForceCommand yes`},
		}[name]}
	})
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig}, f.Names()...)
	r := run(t, x, evidence.Task{Node: "n1", Argv: []string{"sh", "-c", "echo out; echo err >&2"}})
	r.wants(t, evidence.ClassOK, "noise", "more")
	if r.out != "out\n" || r.err != "err\n" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
	run(t, x, evidence.Task{Node: "n2", Argv: sayHi}).wants(t, evidence.ClassNotRun, "not available", "exited with 1")
	run(t, x, evidence.Task{Node: "n3", Argv: sayHi}).wants(t, evidence.ClassNotRun, "64 KiB")
}

// TestToolMissingByPATH: one node's PATH lacks a tool that the others have.
func TestToolMissingByPATH(t *testing.T) {
	f := up(t, 2, func(name string) sshfleet.NodeOptions {
		if name == "n2" {
			return sshfleet.NodeOptions{SetEnv: map[string]string{"PATH": "/nowhere"}}
		}
		return sshfleet.NodeOptions{}
	})
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig}, f.Names()...)
	run(t, x, evidence.Task{Node: "n1", Argv: []string{"sort"}}).wants(t, evidence.ClassOK)
	r := run(t, x, evidence.Task{Node: "n2", Argv: []string{"sort"}, Stdin: []byte("a")})
	r.wants(t, evidence.ClassToolMissing, "sort", "/nowhere")
	r = run(t, x, evidence.Task{Node: "n2", Argv: []string{"/bin/cat"}, Stdin: []byte("a")})
	r.wants(t, evidence.ClassOK)
	if r.out != "a" {
		t.Errorf("stdout is %q", r.out)
	}
	run(t, x, evidence.Task{Node: "n3", Argv: sayHi}).wants(t, evidence.ClassNotRun, "not a node")
}

// TestJump: two jump hosts on the way; the first is also one by ssh_config.
func TestJump(t *testing.T) {
	executortest.CheckLeaks(t)
	f := up(t, 4, nil)
	for name, config := range map[string]map[string]any{
		"argument": {"ssh_config": f.SSHConfig, "jump": "n1,n2"},
		"config":   {"ssh_config": jumpConfig(t, f)},
	} {
		t.Run(name, func(t *testing.T) {
			x := openFor(t, config, "n3", "n4")
			for range 2 {
				for _, node := range []string{"n3", "n4"} {
					r := run(t, x, evidence.Task{Node: node, Argv: []string{"sh", "-c", "echo $SSH_CONNECTION"}})
					r.wants(t, evidence.ClassOK)
					// The source of a connection on loopback is the address
					// that it goes to; the port tells nothing either.
					if !strings.Contains(r.out, f.Node(node).Address+" ") {
						t.Errorf("%s: connection %q", node, r.out)
					}
				}
			}
		})
	}
	// The bastions had one connection each for all of that, in each case.
	for _, node := range []string{"n1", "n2"} {
		log, err := os.ReadFile(f.Node(node).Log())
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(log, []byte("Accepted publickey")); got != 2 {
			t.Errorf("%s: %d connections, want 2", node, got)
		}
	}
	if err := f.Node("n3").Kill(); err != nil {
		t.Fatal(err)
	}
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig, "jump": "n1"}, "n3", "n2")
	run(t, x, evidence.Task{Node: "n3", Argv: sayHi}).wants(t, evidence.ClassTCP, "through n1")
	run(t, x, evidence.Task{Node: "n2", Argv: sayHi}).wants(t, evidence.ClassOK)
	if err := f.Node("n1").Kill(); err != nil {
		t.Fatal(err)
	}
	run(t, x, evidence.Task{Node: "n2", Argv: sayHi}).wants(t, evidence.ClassTCP, "jump host", "connection refused")
}

func jumpConfig(t *testing.T, f *sshfleet.Fleet) string {
	t.Helper()
	text, err := os.ReadFile(f.SSHConfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config")
	text = append([]byte("Host n3 n4\n  ProxyJump n2\nHost n2\n  ProxyJump n1\n"), text...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestManyThroughOne: a jump host with sshd's default MaxStartups, and forty
// connections at once to one address.
func TestManyAtOnce(t *testing.T) {
	f := up(t, 1, nil)
	var text bytes.Buffer
	var nodes []string
	for i := range 40 {
		name := fmt.Sprintf("alias%d", i)
		nodes = append(nodes, name)
		// A name of its own makes it a connection of its own.
		fmt.Fprintf(&text, "Host %s\n  HostName %s\n  HostKeyAlias %s\n", name, f.Node("n1").Address, name)
	}
	config, err := os.ReadFile(f.SSHConfig)
	if err != nil {
		t.Fatal(err)
	}
	known, err := os.ReadFile(f.KnownHosts)
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := strings.Cut(string(known), " ")
	dir := t.TempDir()
	configPath, knownPath := filepath.Join(dir, "config"), filepath.Join(dir, "known")
	if err := os.WriteFile(configPath, append(text.Bytes(), config...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(knownPath, []byte(strings.Join(nodes, ",")+" "+key), 0o600); err != nil {
		t.Fatal(err)
	}
	x := openFor(t, map[string]any{"ssh_config": configPath, "known_hosts": knownPath}, nodes...)
	var all sync.WaitGroup
	for _, node := range nodes {
		all.Go(func() {
			run(t, x, evidence.Task{Node: node, Argv: sayHi}).wants(t, evidence.ClassOK)
		})
	}
	all.Wait()
}
