package cli

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// watched is stdout that does something once when a text has been written.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	when map[string]func()
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	for text, do := range w.when {
		if strings.Contains(w.text.String(), text) {
			delete(w.when, text)
			do()
		}
	}
	return len(b), nil
}

// The first signal lets the running cell end and starts nothing after it. The
// first tool of the runbook ends only when the program has said that it stops.
func TestFirstSignalStopsSoftly(t *testing.T) {
	for _, c := range []struct {
		signal os.Signal
		exit   Exit
	}{{os.Interrupt, ExitInterrupt}, {syscall.SIGTERM, ExitTerminate}} {
		dir := t.TempDir()
		may := filepath.Join(dir, "may-end")
		signals := make(chan os.Signal, 1)
		stdout := &watched{when: map[string]func(){
			`"type":"cell_start"`: func() { signals <- c.signal },
			`stopping: no cell is started any more`: func() {
				if err := os.WriteFile(may, nil, 0o600); err != nil {
					t.Error(err)
				}
			},
		}}
		process := func(out *watched, args ...string) (*Process, *bytes.Buffer) {
			var stderr bytes.Buffer
			return &Process{
				Context: t.Context(), Args: args, Stdin: strings.NewReader(""), Stdout: out, Stderr: &stderr, Width: 80,
				Signals: func() (<-chan os.Signal, func()) { return signals, func() {} },
				Now:     time.Now, Random: rand.Reader, Executable: os.Executable,
			}, &stderr
		}
		p, stderr := process(stdout, "run", "testdata/runbook/stopped.runbook.hcl", "--json", "--dir", filepath.Join(dir, "runs"),
			"--var", "lock=/dev/null", "--var", "until=test -e "+may)
		if got := Main(p); Exit(got) != c.exit {
			t.Fatalf("%s: exit %d, want %d\n%s\n%s", c.signal, got, c.exit, &stdout.text, stderr)
		}
		text := stdout.text.String()
		if !strings.Contains(text, `"cell":"rate/n01.r1","attempt":1,"attempts":1,"outcome":"pass"`) || strings.Contains(text, "after/n01.r1") {
			t.Errorf("%s: the running cell should end and no other start:\n%s", c.signal, text)
		}
		if !strings.Contains(stderr.String(), "rackproof: hint: rackproof resume ") {
			t.Errorf("%s: stderr %s", c.signal, stderr)
		}
		runs, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
		if err != nil || len(runs) != 1 {
			t.Fatalf("%s: %q, %v", c.signal, runs, err)
		}
		again := &watched{}
		p, stderr = process(again, "resume", runs[0], "--json")
		if got := Main(p); got != 0 {
			t.Fatalf("%s: resume: exit %d\n%s", c.signal, got, stderr)
		}
		text = again.text.String()
		if strings.Contains(text, `"cell":"rate/n01.r1"`) || !strings.Contains(text, `"type":"verdict"`) || !strings.Contains(text, `"outcome":"pass"`) {
			t.Errorf("%s: resume should run what was left:\n%s", c.signal, text)
		}
	}
}
