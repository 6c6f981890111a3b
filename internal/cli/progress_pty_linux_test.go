package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ptySession is the real program at a real terminal, in a directory that has the
// runbooks of testdata/runbook.
type ptySession struct {
	*emulator
	master *os.File
	dir    string
	stdout bytes.Buffer
	raw    bytes.Buffer // what came out of the terminal; read it when the program has ended
	cmd    *exec.Cmd
	shown  chan error
}

func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func (s *ptySession) resize(t *testing.T, columns, rows int) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}); err != nil {
		t.Fatal(err)
	}
}

func startOnPTY(t *testing.T, columns, rows int, environ []string, args ...string) *ptySession {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/runbook")); err != nil {
		t.Fatal(err)
	}
	master, slave := openPTY(t)
	s := &ptySession{emulator: newEmulator(columns, rows), master: master, dir: dir, shown: make(chan error, 1)}
	s.resize(t, columns, rows)
	s.cmd = exec.CommandContext(t.Context(), "rackproof", args...)
	s.cmd.Dir, s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = dir, slave, &s.stdout, slave
	s.cmd.Env = append(append(os.Environ(), "HOME="+dir, "TERM=xterm", "NO_COLOR="), environ...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := io.Copy(io.MultiWriter(s.emulator, &s.raw), master)
		s.shown <- err
	}()
	return s
}

// until waits for the screen to be as asked.
func (s *ptySession) until(t *testing.T, what string, ok func(lines []string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		lines := s.screen()
		if ok(lines) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the screen never shows %s:\n%s", what, strings.Join(lines, "\n"))
		}
	}
}

func (s *ptySession) untilLine(t *testing.T, pattern string) {
	t.Helper()
	line := regexp.MustCompile(pattern)
	s.until(t, pattern, func(lines []string) bool { return slices.ContainsFunc(lines, line.MatchString) })
}

// exits waits for the program, which must leave the terminal in order, and
// gives the last screen.
func (s *ptySession) exits(t *testing.T, exit Exit) []string {
	t.Helper()
	err := s.cmd.Wait()
	if got := Exit(s.cmd.ProcessState.ExitCode()); got != exit {
		t.Errorf("exit %d, want %d: %v", got, exit, err)
	}
	// The terminal of a program that has ended gives EIO on Linux.
	if err := <-s.shown; !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
	s.check(t)
	return s.screen()
}

// ends is exits with the whole last screen, a pattern a line.
func (s *ptySession) ends(t *testing.T, exit Exit, want ...string) {
	t.Helper()
	got := s.exits(t, exit)
	match := len(got) == len(want)
	for i := 0; match && i < len(got); i++ {
		match = regexp.MustCompile("^(?:" + want[i] + ")$").MatchString(got[i])
	}
	if !match {
		t.Errorf("the screen shows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// write makes a file that a tool of the runbook waits for.
func (s *ptySession) write(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	anyTime = `[0-9:]{8}`
	later   = `^0:..:(.[1-9]|[1-9].) elapsed, ` // the view was drawn again
	anyRun  = `[0-9tz-]{20}-[0-9a-f]{4}`
)

func TestTerminal80(t *testing.T) {
	s := startOnPTY(t, 80, 24, nil, "run", "small.runbook.hcl")
	s.ends(t, ExitOK,
		anyTime+` plan      small 1\.0\.0`,
		`  sha256:[0-9a-f]{64}  1`,
		`  test, 1 cell, about 5 s`,
		anyTime+` run       runs/`+anyRun,
		`\d:\d\d:\d\d elapsed, ended: small 1\.0\.0`,
		`  node 1/1  1 pass, gate met`,
		anyTime+` verdict   pass: 1 of 1 cells pass, 1 of 1 findings pass, 0 cells not`,
		`  measured`,
	)
	if !strings.HasPrefix(s.stdout.String(), "verdict   pass: 1 of 1 cells pass") {
		t.Errorf("stdout %q", &s.stdout)
	}
}

func TestTerminal40(t *testing.T) {
	s := startOnPTY(t, 40, 8, nil, "run", "small.runbook.hcl")
	s.ends(t, ExitOK,
		anyTime+` plan      small 1\.0\.0  sha256:`,
		`  [0-9a-f]{37}`,
		`  [0-9a-f]{27}  1 test,`,
		`  1 cell, about 5 s`,
		anyTime+` run`,
		`  runs/`+anyRun,
		`\d:\d\d:\d\d elapsed, ended: small 1\.0\.0`,
		`  node 1/1  1 pass, gate met`,
		anyTime+` verdict   pass: 1 of 1 cells`,
		`  pass, 1 of 1 findings pass, 0 cells`,
		`  not measured`,
	)
}

// waitingRun are the arguments of a run whose first tool ends when there is a
// file may-end, and which has time.
func waitingRun(t *testing.T) []string {
	return []string{"run", edited(t, "stopped.runbook.hcl", `"5s"`, `"5m"`), "--var", "lock=/dev/null", "--var", "until=test -e may-end"}
}

// What fails stays above the view, whatever the text of it, and in pieces that
// fit.
func TestTerminalKeepsOpenPoints(t *testing.T) {
	s := startOnPTY(t, 40, 24, nil, "run", edited(t, "small.runbook.hcl", `"printf"`, hostileTool))
	text := strings.Join(s.exits(t, ExitInconclusive), "\n")
	text = strings.ReplaceAll(text, "\n  ", " ")
	stay, view, _ := strings.Cut(text, " elapsed, ended: ")
	if !strings.Contains(stay, ` cell      rate@n01: inconclusive: n01: command: tool-missing: 数据中心验收x`+"\u0301"+`\u001b[2J\`) ||
		!strings.Contains(stay, " gate      node: not met: 0 of 1 cells pass") || !strings.HasPrefix(view, "small 1.0.0 node 1/1  1 inconclusive, ...\n") {
		t.Errorf("the open points should stay above the view:\n%s", text)
	}
}

// Ctrl-C: the terminal shows ^C, and the next draw clears it. What the program
// says to it is whole, and the view goes on until the cell has ended.
func TestTerminalAtASoftStop(t *testing.T) {
	for _, columns := range []int{80, 40} {
		s := startOnPTY(t, columns, 24, nil, waitingRun(t)...)
		s.untilLine(t, `^  running rate on n01$`)
		s.untilLine(t, later)
		if _, err := s.master.WriteString("\x03"); err != nil {
			t.Fatal(err)
		}
		s.untilLine(t, ` note      stopping: no cell is`)
		s.untilLine(t, ` waiting   for rate@n01$`)
		s.untilLine(t, `^0:..:.. elapsed, stopping: `)
		s.until(t, "no trace of the key", func(lines []string) bool {
			return !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "^C") })
		})
		s.write(t, "may-end")
		lines := s.exits(t, ExitInterrupt)
		view := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "elapsed, stopped: ") })
		if view < 0 || view+3 > len(lines) || lines[view+1] != "  node  1/1  1 pass, gate met" || lines[view+2] != "  later 0/1" {
			t.Errorf("the last view should stay:\n%s", strings.Join(lines, "\n"))
		}
	}
}

// A terminal that changes its size gets a view that fits, and loses nothing.
func TestTerminalIsResized(t *testing.T) {
	s := startOnPTY(t, 80, 24, nil, waitingRun(t)...)
	s.untilLine(t, `^  running rate on n01$`)
	s.untilLine(t, `^0:..:.. elapsed, about \d+ min left: stopped 1\.0\.0$`)
	s.resize(t, 30, 24)
	s.untilLine(t, `^0:..:.. elapsed, .*\.\.\.$`)
	s.mu.Lock()
	s.columns = 30
	s.mu.Unlock()
	s.resize(t, 10, 24) // too small for a view
	s.until(t, "no view", func(lines []string) bool {
		return !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "elapsed") })
	})
	s.resize(t, 60, 24)
	s.mu.Lock()
	s.columns = 60
	s.mu.Unlock()
	s.untilLine(t, `^  running rate on n01$`)
	s.write(t, "may-end")
	s.untilLine(t, ` verdict   pass: 2 of 2`)
	s.ends(t, ExitOK,
		anyTime+` plan      stopped 1\.0\.0`,
		`  sha256:[0-9a-f]{64}  2`,
		`  tests, 2 cells, about 10 min`,
		anyTime+` run       runs/`+anyRun,
		`\d:\d\d:\d\d elapsed, ended: stopped 1\.0\.0`,
		`  node  1/1  1 pass, gate met`,
		`  later 1/1  1 pass, gate met`,
		anyTime+` verdict   pass: 2 of 2 cells pass, 2 of 2 findings`,
		`  pass, 0 cells not measured`,
	)
}

// Killed at any moment, the program leaves the cursor visible, at the start of
// a line: there is nothing to be put right.
func TestTerminalOfAKilledRun(t *testing.T) {
	s := startOnPTY(t, 80, 24, nil, waitingRun(t)...)
	s.untilLine(t, later)
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.write(t, "may-end") // for the tool, which outlives it
	if err := s.cmd.Wait(); err == nil {
		t.Error("it ended well")
	}
	<-s.shown
	s.check(t)
	if bytes.Contains(s.raw.Bytes(), []byte("\x1b[?")) {
		t.Error("a mode of the terminal was changed")
	}
}

// Where the terminal cannot show a view it gets the lines of a pipe.
func TestPlainTerminals(t *testing.T) {
	for _, c := range []struct {
		name    string
		columns int
		environ []string
		flags   []string
	}{
		{"dumb", 80, []string{"TERM=dumb"}, nil},
		{"narrow", 19, nil, nil},
		{"of unknown size", 0, nil, nil},
		{"dumb, with colour", 80, []string{"TERM=dumb"}, []string{"--color", "always"}},
	} {
		s := startOnPTY(t, c.columns, 24, c.environ, append([]string{"run", edited(t, "small.runbook.hcl", `"printf"`, hostileTool)}, c.flags...)...)
		if err := s.cmd.Wait(); Exit(s.cmd.ProcessState.ExitCode()) != ExitInconclusive {
			t.Errorf("%s: %v", c.name, err)
		}
		<-s.shown
		text := strings.ReplaceAll(s.raw.String(), "\r\n", "\n")
		if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }); i >= 0 {
			t.Errorf("%s: control character in %q", c.name, text)
		}
		for _, want := range []string{" phase     node: 1 cell\n", " cell      rate@n01: inconclusive", " verdict   inconclusive: "} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", c.name, want, text)
			}
		}
	}
}
