package executortest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Eventually polls until until is true, for at most d.
func Eventually(d time.Duration, until func() bool) bool {
	limit := time.NewTimer(d)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if until() {
			return true
		}
		select {
		case <-limit.C:
			return until()
		case <-tick.C:
		}
	}
}

// Marked lists the processes of this machine whose environment or command
// line bears mark, but for those that only supervise. Zombies are not counted,
// they hold nothing.
func Marked(mark string) []string { return list(mark, false) }

// Watching lists the supervisors of commands that bear mark.
func Watching(mark string) []string { return list(mark, true) }

func list(mark string, watching bool) []string {
	var found []string
	for _, p := range Processes() {
		if !bytes.Contains(p.Cmdline, []byte(mark)) && !bytes.Contains(p.Environ, []byte(mark)) {
			continue
		}
		if bytes.Contains(p.Cmdline, []byte("rackproof-watch\x00")) != watching {
			continue
		}
		name := strings.ReplaceAll(string(p.Cmdline), "\x00", " ")
		found = append(found, fmt.Sprintf("%d: %s", p.PID, name[max(0, len(name)-80):]))
	}
	return found
}

// Process is a process of this machine. Cmdline and Environ are words that each
// end in a zero byte; nil says that they could not be read.
type Process struct {
	PID     int
	Cmdline []byte
	Environ []byte
}

// Processes lists the processes of this machine.
func Processes() []Process {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var all []Process
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		// A process may go between two reads. Its environment comes first: one
		// that ends only then was there.
		p := Process{PID: pid}
		if environ, err := os.ReadFile(dir + "/environ"); err == nil {
			p.Environ = environ
		}
		if cmdline, err := os.ReadFile(dir + "/cmdline"); err == nil {
			p.Cmdline = cmdline
		}
		all = append(all, p)
	}
	return all
}

// CheckLeaks fails the test if, at its very end, there are more goroutines or
// open files than now. Call it before anything that registers a cleanup.
func CheckLeaks(t *testing.T) {
	t.Helper()
	// The first pipe or socket of a process makes the files of the runtime's
	// own poller, which stay.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	goroutines, files := runtime.NumGoroutine(), openFiles()
	t.Cleanup(func() {
		if !Eventually(3*time.Second, func() bool { return runtime.NumGoroutine() <= goroutines }) {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			t.Errorf("%d goroutines are left, there were %d:\n%s", runtime.NumGoroutine(), goroutines, stacks)
		}
		if !Eventually(3*time.Second, func() bool { return openFiles() <= files }) {
			t.Errorf("%d files are open, there were %d", openFiles(), files)
		}
	})
}

func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
