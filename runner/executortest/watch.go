package executortest

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
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
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, dir := range dirs {
		// A process may go between two reads; then it is not left.
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if !bytes.Contains(cmdline, []byte(mark)) && !bytes.Contains(environ, []byte(mark)) {
			continue
		}
		if bytes.Contains(cmdline, []byte("rackproof-watch\x00")) != watching {
			continue
		}
		name := strings.ReplaceAll(string(cmdline), "\x00", " ")
		found = append(found, filepath.Base(dir)+": "+name[max(0, len(name)-80):])
	}
	return found
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
