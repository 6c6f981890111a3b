package ssh

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/executortest"
	"github.com/rackproof/rackproof/runner/ssh/sshfleet"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// helperVariable makes the test binary a runner that is to be killed.
const helperVariable = "RACKPROOF_SSH_TEST_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperVariable); dir != "" {
		helper(dir)
		return
	}
	os.Exit(m.Run())
}

// helper runs a command on n1 of the fleet in dir until it is killed.
func helper(dir string) {
	raw, _ := json.Marshal(map[string]string{"ssh_config": filepath.Join(dir, "ssh_config")})
	x, err := Kind().Open(context.Background(), raw, []string{"n1"})
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	_, err = x.Exec(context.Background(), evidence.Task{
		Mark: os.Getenv("MARK"), Node: "n1", Argv: []string{"sh", "-c", "sleep 1000 & echo up; sleep 1001"},
	}, os.Stdout, io.Discard)
	fmt.Println("error: the command ended:", err)
}

func up(t *testing.T, n int, node func(string) sshfleet.NodeOptions) *sshfleet.Fleet {
	t.Helper()
	f, err := sshfleet.Up(t.Context(), sshfleet.Options{Dir: t.TempDir(), N: n, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func quickClocks() clocks { return clocks{alive: 200 * time.Millisecond, misses: 3} }

// openFor opens an executor and closes it when the test ends.
func openFor(t *testing.T, config map[string]any, nodes ...string) *executor {
	t.Helper()
	x, err := tryOpen(t, config, nodes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func tryOpen(t *testing.T, config map[string]any, nodes ...string) (*executor, error) {
	t.Helper()
	return open(t.Context(), marshal(t, config), nodes, quickClocks())
}

func marshal(t *testing.T, config map[string]any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

type result struct {
	evidence.Exit
	out, err string
	took     time.Duration
}

func run(t *testing.T, x runner.Executor, task evidence.Task) result {
	t.Helper()
	var out, err bytes.Buffer
	start := time.Now()
	exit, execErr := x.Exec(t.Context(), task, &out, &err)
	if execErr != nil {
		t.Errorf("Exec on %s: %v", task.Node, execErr)
	}
	return result{exit, out.String(), err.String(), time.Since(start)}
}

// wants checks a class and that the detail says each of the words.
func (r result) wants(t *testing.T, class evidence.Class, words ...string) {
	t.Helper()
	if r.Class != class {
		t.Errorf("class is %s (%s), want %s; stdout %.100q stderr %.100q", r.Class, r.Detail, class, r.out, r.err)
	}
	for _, word := range words {
		if !strings.Contains(r.Detail, word) {
			t.Errorf("detail %q does not say %q", r.Detail, word)
		}
	}
}

func (r result) within(t *testing.T, least, most time.Duration) {
	t.Helper()
	if r.took < least || r.took > most {
		t.Errorf("took %s, want %s to %s", r.took, least, most)
	}
}

func TestConformanceSSHD(t *testing.T) {
	executortest.CheckLeaks(t)
	f := up(t, 1, nil)
	executortest.Run(t, executortest.Harness{Node: "n1", Commands: executortest.Scripts{}, Open: func(t *testing.T) runner.Executor {
		x, err := Kind().Open(t.Context(), marshal(t, map[string]any{"ssh_config": f.SSHConfig}), []string{"n1"})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}})
}

func TestConformanceSudo(t *testing.T) {
	dir := t.TempDir()
	// As the real one does, it passes its input on and takes the status of
	// what it ran; it is not the group's leader's parent only.
	writeScript(t, filepath.Join(dir, "sudo"), "shift 2\n\"$@\"\nexit $?\n")
	f := up(t, 1, func(string) sshfleet.NodeOptions {
		return sshfleet.NodeOptions{SetEnv: map[string]string{"PATH": dir + ":/usr/local/bin:/usr/bin:/bin"}}
	})
	x := openFor(t, map[string]any{"ssh_config": f.SSHConfig, "become": "sudo"}, "n1")
	r := run(t, x, evidence.Task{Node: "n1", Argv: []string{"cat"}, Stdin: []byte("x\x00y")})
	r.wants(t, evidence.ClassOK)
	if r.out != "x\x00y" {
		t.Errorf("stdout is %q", r.out)
	}
	task := evidence.Task{Node: "n1", Mark: t.TempDir(), Argv: []string{"sh", "-c", "sleep 1000 & echo up; sleep 1001"}, Deadline: time.Second}
	r = run(t, x, task)
	r.wants(t, evidence.ClassTimeout)
	r.within(t, time.Second, 3*time.Second)
	if !executortest.Eventually(2*time.Second, func() bool { return len(executortest.Marked(task.Mark)) == 0 }) {
		t.Errorf("left: %q", executortest.Marked(task.Mark))
	}
}

func writeScript(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// fake is a server of this process, with the files that a client needs.
type fake struct {
	*sshserver.Server
	config map[string]any // of the executor
}

func serve(t *testing.T, c sshserver.Config) *fake {
	t.Helper()
	dir := t.TempDir()
	private, public := newIdentity(t, filepath.Join(dir, "id"))
	if c.Authorized == nil {
		c.Authorized = []ssh.PublicKey{public}
	}
	if c.Handler == nil {
		c.Handler = processes
	}
	c.Parse = sshserver.ParseCommand
	s, err := sshserver.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	known := filepath.Join(dir, "known_hosts")
	line := fmt.Sprintf("[127.0.0.1]:%d %s", s.Addr().Port, ssh.MarshalAuthorizedKey(s.HostKey()))
	if err := os.WriteFile(known, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return &fake{s, map[string]any{
		"ssh_config": "", "known_hosts": known, "identity": private, "port": s.Addr().Port, "user": "tester", "connect_timeout": "5s",
	}}
}

// newIdentity writes a private key.
func newIdentity(t *testing.T, path string) (string, ssh.PublicKey) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode(text); block == nil {
		t.Fatal("no key")
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return path, signer.PublicKey()
}

func TestConformanceServer(t *testing.T) {
	executortest.CheckLeaks(t)
	s := serve(t, sshserver.Config{})
	executortest.Run(t, executortest.Harness{Node: "127.0.0.1", Commands: executortest.Scripts{}, Open: func(t *testing.T) runner.Executor {
		x, err := Kind().Open(t.Context(), marshal(t, s.config), []string{"127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}})
}

// sweep kills every process that bears the nonce, which is the last word of a
// supervised command's environment.
func sweep(nonce string) {
	for _, p := range executortest.Processes() {
		if bytes.Contains(p.Environ, []byte(nonce+"\x00")) {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
}

// processes is a handler that runs real programs of this machine.
func processes(ctx context.Context, c sshserver.Command, stdin io.Reader, stdout, stderr io.Writer) sshserver.Exit {
	environ := append(os.Environ(), c.Env...)
	path := os.Getenv("PATH")
	for _, word := range c.Env {
		if value, ok := strings.CutPrefix(word, "PATH="); ok {
			path = value
		}
	}
	program := look(c.Argv[0], path)
	if program == "" {
		return sshserver.Exit{Refused: "tool-missing " + path}
	}
	input, err := io.ReadAll(io.LimitReader(stdin, c.Stdin))
	if err != nil {
		return sshserver.Exit{Refused: "lost " + err.Error()}
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return sshserver.Exit{Refused: "lost " + err.Error()}
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return sshserver.Exit{Refused: "lost " + err.Error()}
	}
	cmd := &exec.Cmd{
		Path: program, Args: c.Argv, Env: environ, Stdout: outW, Stderr: errW,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if len(input) > 0 {
		file, err := os.CreateTemp("", "")
		if err != nil {
			return sshserver.Exit{Refused: "node-disk-full " + err.Error()}
		}
		defer os.Remove(file.Name())
		defer file.Close()
		if _, err := file.Write(input); err != nil {
			return sshserver.Exit{Refused: "node-disk-full " + err.Error()}
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return sshserver.Exit{Refused: "node-disk-full " + err.Error()}
		}
		cmd.Stdin = file
	}
	err = cmd.Start()
	outW.Close()
	errW.Close()
	defer outR.Close()
	defer errR.Close()
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return sshserver.Exit{Refused: "arch 00f7"}
	case err != nil:
		fmt.Fprintln(stderr, err)
		return sshserver.Exit{Refused: "exec-failed", Code: 127}
	}
	copied := make(chan struct{}, 2)
	for _, pair := range []struct {
		to   io.Writer
		from *os.File
	}{{stdout, outR}, {stderr, errR}} {
		go func() { _, _ = io.Copy(pair.to, pair.from); copied <- struct{}{} }()
	}
	group := -cmd.Process.Pid
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	select {
	case <-exited:
	case <-ctx.Done():
		_ = syscall.Kill(group, syscall.SIGTERM)
		timer := time.NewTimer(c.Grace)
		defer timer.Stop()
		select {
		case <-exited:
		case <-timer.C:
		}
		_ = syscall.Kill(group, syscall.SIGKILL)
		sweep(c.Env[len(c.Env)-1])
		<-exited
	}
	exit := sshserver.Exit{}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		exit.Signal = map[syscall.Signal]string{syscall.SIGKILL: "KILL", syscall.SIGTERM: "TERM", syscall.SIGSEGV: "SEGV", syscall.SIGUSR1: "USR1"}[status.Signal()]
	} else {
		exit.Code = status.ExitStatus()
	}
	for range 2 {
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-copied:
		case <-timer.C:
			exit.HeldOpen = true
		}
		timer.Stop()
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	return exit
}

func look(name, path string) string {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(path) {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, candidate := range candidates {
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate
		}
	}
	return ""
}

// blackHole is an address that drops what is sent to it: a socket whose
// backlog is full.
func blackHole(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := name.(*syscall.SockaddrInet4).Port
	for {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 200*time.Millisecond)
		if err != nil {
			return port
		}
		t.Cleanup(func() { conn.Close() })
	}
}
