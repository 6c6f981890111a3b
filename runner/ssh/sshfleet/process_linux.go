package sshfleet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// serverProcess puts a server into a group of its own, away from a terminal's
// signals, and ends it when its parent dies without Close.
func serverProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Freeze stops the server and all that it started, as a hung machine would:
// TCP connections stay open and nothing answers.
func (n *Node) Freeze() error {
	server, err := n.server()
	if err == nil {
		n.stopAll(server)
	}
	return err
}

// Thaw lets a frozen node go on.
func (n *Node) Thaw() error {
	server, err := n.server()
	if err != nil {
		return err
	}
	for _, pid := range n.processes(server) {
		// What has ended since needs no signal.
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	return nil
}

func (n *Node) server() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return 0, fmt.Errorf("%s: the server is not running", n.Name)
	}
	return n.process.Process.Pid, nil
}

// stopAll stops the server and all that it started, again until nothing new
// has appeared twice: a session may fork while it is being found.
func (n *Node) stopAll(server int) {
	stopped := make(map[int]bool)
	for quiet := 0; quiet < 2; quiet++ {
		for _, pid := range n.processes(server) {
			if !stopped[pid] {
				stopped[pid] = true
				_ = syscall.Kill(pid, syscall.SIGSTOP)
				quiet = -1
			}
		}
	}
}

// Kill ends the server and all that it started, and waits until it is gone.
// A node that is not running is no error.
func (n *Node) Kill() error {
	n.mu.Lock()
	process, exited := n.process, n.exited
	n.process, n.exited = nil, nil
	n.mu.Unlock()
	if process == nil {
		return nil
	}
	// All are stopped first and the server is ended last: a session that
	// forks while its parent is ended would belong to nobody.
	server := process.Process.Pid
	n.stopAll(server)
	err := n.killAll(server)
	_ = syscall.Kill(server, syscall.SIGKILL)
	<-exited
	return err
}

// killAll ends what the server has started.
func (n *Node) killAll(server int) error {
	limit := time.NewTimer(startClock)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := slices.DeleteFunc(n.processes(server), func(pid int) bool { return pid == server })
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-limit.C:
			return fmt.Errorf("%s: processes %v could not be ended", n.Name, left)
		case <-tick.C:
		}
	}
}

// processes are the server, its sessions and their commands: its descendants,
// and all that bear the node's mark in their environment although their
// parent has gone. A session of sshd writes over its own environment.
func (n *Node) processes(server int) []int {
	parents := make(map[int]int)
	marked := make(map[int]bool)
	mark := []byte(n.mark() + "\x00")
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		// A process may end between the glob and the reads.
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 || fields[0][0] == 'Z' {
			continue
		}
		parents[pid], _ = strconv.Atoi(string(fields[1]))
		environ, _ := os.ReadFile(dir + "/environ")
		if pid == server || bytes.HasPrefix(environ, mark) || bytes.Contains(environ, append([]byte{0}, mark...)) {
			marked[pid] = true
		}
	}
	var found []int
	for pid := range parents {
		for at := pid; at > 1; at = parents[at] {
			if marked[at] {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}
