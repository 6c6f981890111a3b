package sshfleet_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/runner/executortest"
	"github.com/rackproof/rackproof/runner/ssh/sshfleet"
)

func TestUpAndClose(t *testing.T) {
	executortest.CheckLeaks(t)
	dir := t.TempDir()
	start := time.Now()
	f, err := sshfleet.Up(t.Context(), sshfleet.Options{Dir: dir, N: 32, Node: func(name string) sshfleet.NodeOptions {
		if name == "n02" {
			return sshfleet.NodeOptions{SetEnv: map[string]string{"PATH": "/only here", "QUOTE": `a "b" c`}}
		}
		return sshfleet.NodeOptions{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	// A second on two quiet cores; a loaded machine gets some patience.
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("32 nodes took %s", took)
	}
	if names := f.Names(); len(names) != 32 || names[0] != "n01" || names[31] != "n32" {
		t.Errorf("names are %q", names)
	}
	for name, want := range map[string]string{"n01": "n01", "n02": "/only here"} {
		command := "echo " + name
		if name == "n02" {
			command = "echo $PATH"
		}
		out, err := exec.CommandContext(t.Context(), "ssh", "-F", f.SSHConfig, name, command).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("ssh %s: %q, %v", name, out, err)
		}
	}
	if f.Node("n33") != nil {
		t.Error("there is a node n33")
	}
	// A daemon that left its session and its parent must go too.
	daemon := exec.CommandContext(t.Context(), "ssh", "-F", f.SSHConfig, "n03", "setsid sleep 1000 >/dev/null 2>&1 </dev/null & setsid env -i sleep 1001 >/dev/null 2>&1 </dev/null & echo up; exec cat")
	pipe, err := daemon.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(make([]byte, 10)); err != nil || n == 0 {
		t.Fatalf("read: %d, %v", n, err)
	}
	server := "sshd: " // the title of a session's process
	sessions := len(executortest.Marked(server))
	if left := executortest.Marked(dir); len(left) < 32 {
		t.Errorf("only %d processes of the fleet are seen", len(left))
	}
	if err := f.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if left := executortest.Marked(dir); len(left) > 1 { // our own ssh client names the directory
		t.Errorf("left: %q", left)
	}
	if !executortest.Eventually(3*time.Second, func() bool { return len(executortest.Marked(server)) < sessions }) {
		t.Errorf("sessions are left: %q", executortest.Marked(server))
	}
	pipe.Close()
	if err := daemon.Wait(); err == nil {
		t.Error("the client of a killed server ended well")
	}
}

func TestUpRefuses(t *testing.T) {
	for _, n := range []int{0, -1, 4001} {
		if _, err := sshfleet.Up(t.Context(), sshfleet.Options{Dir: t.TempDir(), N: n}); err == nil {
			t.Errorf("a fleet of %d was raised", n)
		}
	}
	dir := t.TempDir()
	_, err := sshfleet.Up(t.Context(), sshfleet.Options{Dir: dir, N: 3, Node: func(name string) sshfleet.NodeOptions {
		if name == "n2" {
			return sshfleet.NodeOptions{Lines: []string{"NoSuchKeyword yes"}}
		}
		return sshfleet.NodeOptions{}
	}})
	if err == nil || !strings.Contains(err.Error(), "NoSuchKeyword") || !strings.Contains(err.Error(), "n2") {
		t.Errorf("error is %v, want the node and the server's complaint", err)
	}
	if left := executortest.Marked(dir); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
