package runner_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/executortest"
)

// TestSuperviseDigest: whoever changes a text changes the digest knowingly.
func TestSuperviseDigest(t *testing.T) {
	words := runner.Supervised{}.Words()
	texts := []string{words[2], words[4], words[5]}
	if got := evidence.DigestOf([]byte(strings.Join(texts, "\n") + "\n")); got != runner.SuperviseDigest {
		t.Errorf("the texts have the digest %s, the constant says %s", got, runner.SuperviseDigest)
	}
	for _, text := range texts {
		if at := strings.IndexAny(text, "\n'\\!"); at >= 0 {
			t.Errorf("byte %d is %q, which csh or fish would change: %s", at, text[at], text)
		}
	}
}

// shells are the POSIX shells that nodes have, by the path that runs them.
func shells(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{"sh": "/bin/sh"}
	for _, name := range []string{"dash", "bash", "mksh"} {
		found[name] = shell(t, name)
	}
	link := filepath.Join(t.TempDir(), "sh")
	if err := os.Symlink(shell(t, "busybox"), link); err != nil {
		t.Fatal(err)
	}
	found["busybox"] = link
	return found
}

// shell is the path of a shell. One that is not there fails the test: what was
// not tried is not known to work.
func shell(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("shell %s is not installed; the packages are listed in .ci/run", name)
	}
	return path
}

// supervised is a script under way.
type supervised struct {
	t        *testing.T
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	out, err bytes.Buffer
	start    string
	began    time.Time
	done     chan error
}

// startScript runs s with shell in the place of /bin/sh everywhere.
func startScript(t *testing.T, shell string, s runner.Supervised, leader bool) *supervised {
	t.Helper()
	words := s.Words()
	for i, word := range words[:6] {
		words[i] = strings.ReplaceAll(word, "/bin/sh", shell)
	}
	p := &supervised{t: t, cmd: exec.Command(words[0], words[1:]...), start: s.StartLine(), began: time.Now(), done: make(chan error, 1)}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: leader}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	// A grandchild that holds the output must not hold the test.
	p.cmd.WaitDelay = time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() { p.stdin.Close() })
	return p
}

// wait waits for the end and returns the command's own output.
func (p *supervised) wait() (status syscall.WaitStatus, out, err string) {
	p.t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.t.Fatal("the script did not end")
	}
	out, okOut := strings.CutPrefix(p.out.String(), p.start)
	err, okErr := strings.CutPrefix(p.err.String(), p.start)
	if okOut != okErr {
		p.t.Errorf("started on one stream only: %q and %q", p.out.String(), p.err.String())
	}
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus), out, err
}

func (p *supervised) gone(mark string, d time.Duration) {
	p.t.Helper()
	if !executortest.Eventually(d, func() bool { return len(executortest.Marked(mark)) == 0 }) {
		p.t.Errorf("%s later these are left: %q", d, executortest.Marked(mark))
	}
	// Where init is slow to reap zombies the watcher sees a group that is
	// not empty, and stays for the grace.
	if !executortest.Eventually(5*time.Second, func() bool { return len(executortest.Watching(mark)) == 0 }) {
		p.t.Errorf("these still supervise: %q", executortest.Watching(mark))
	}
}

func prepare(t *testing.T, stdin string, argv ...string) (s runner.Supervised, mark string) {
	t.Helper()
	mark = fmt.Sprintf("supervise-%d-%d", os.Getpid(), time.Now().UnixNano())
	s, err := runner.Supervise(evidence.Task{Mark: mark, Argv: argv, Stdin: []byte(stdin)})
	if err != nil {
		t.Fatal(err)
	}
	s.Grace = time.Second
	return s, mark
}

func TestScript(t *testing.T) {
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Run("exit", func(t *testing.T) {
				for _, code := range []int{0, 7, 127, 255} {
					s, mark := prepare(t, "", "sh", "-c", fmt.Sprintf("echo out; echo err >&2; exit %d", code))
					p := startScript(t, shell, s, true)
					status, out, err := p.wait()
					if status.ExitStatus() != code || out != "out\n" || err != "err\n" {
						t.Errorf("exit %d: status %d, %q and %q", code, status.ExitStatus(), out, err)
					}
					p.stdin.Close()
					p.gone(mark, 2*time.Second)
				}
			})
			t.Run("signal", func(t *testing.T) {
				s, _ := prepare(t, "", "sh", "-c", "kill -KILL $$")
				status, _, _ := startScript(t, shell, s, true).wait()
				if !status.Signaled() || status.Signal() != syscall.SIGKILL {
					t.Errorf("status %v, want the signal itself", status)
				}
			})
			t.Run("leader", func(t *testing.T) {
				// The command leads its group, whoever started the script.
				for _, leader := range []bool{true, false} {
					s, _ := prepare(t, "", "sh", "-c", `read -r s </proc/$$/stat; set -- ${s##*) }; test "$3" = $$ && test "$4" = $$ && echo leads`)
					if _, out, err := startScript(t, shell, s, leader).wait(); out != "leads\n" {
						t.Errorf("leader %t: %q, %q", leader, out, err)
					}
				}
			})
			t.Run("descriptors", func(t *testing.T) {
				// The command must not hold the session's input, nor the
				// watcher its output.
				s, _ := prepare(t, "", "sh", "-c", "ls -l /proc/$$/fd; cat")
				p := startScript(t, shell, s, true)
				info, err := p.stdin.(interface{ Stat() (os.FileInfo, error) }).Stat()
				if err != nil {
					t.Fatal(err)
				}
				_, out, _ := p.wait()
				pipe := fmt.Sprintf("pipe:[%d]", info.Sys().(*syscall.Stat_t).Ino)
				if strings.Contains(out, pipe) || !strings.Contains(out, "0 -> /dev/null") {
					t.Errorf("open files, with %s as the session's input:\n%s", pipe, out)
				}
			})
			t.Run("stdin", func(t *testing.T) {
				data := "\x00\xff\n\r\n'\\" + strings.Repeat("x\x00", 100000) + "end"
				s, _ := prepare(t, data, "cat")
				p := startScript(t, shell, s, true)
				if _, err := io.WriteString(p.stdin, data); err != nil {
					t.Fatal(err)
				}
				if status, out, err := p.wait(); status.ExitStatus() != 0 || out != data {
					t.Errorf("status %d, %d of %d bytes, %q", status.ExitStatus(), len(out), len(data), err)
				}
			})
			t.Run("stdin cut", func(t *testing.T) {
				s, _ := prepare(t, "whole", "cat")
				p := startScript(t, shell, s, true)
				if _, err := io.WriteString(p.stdin, "who"); err != nil {
					t.Fatal(err)
				}
				p.stdin.Close()
				status, out, err := p.wait()
				if status.ExitStatus() != 97 || out != "" || !strings.Contains(err, s.LinePrefix()+"lost ") {
					t.Errorf("status %d, %q and %q: the command must not see half its input", status.ExitStatus(), out, err)
				}
			})
			t.Run("deadline", func(t *testing.T) {
				s, mark := prepare(t, "", "sh", "-c", "sleep 1000 & (sleep 1001 & ) ; (trap '' TERM; exec sleep 1002) & exec sleep 1003")
				s.Deadline = time.Second
				p := startScript(t, shell, s, true)
				if status, _, _ := p.wait(); status.Signal() != syscall.SIGTERM {
					t.Errorf("status %v, want TERM", status)
				}
				if took := time.Since(p.began); took < time.Second || took > 4*time.Second {
					t.Errorf("took %s", took)
				}
				p.gone(mark, 3*time.Second)
			})
			t.Run("TERM ignored", func(t *testing.T) {
				s, mark := prepare(t, "", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
				p := startScript(t, shell, s, true)
				p.awaitStart()
				at := time.Now()
				p.stdin.Close()
				if status, _, _ := p.wait(); status.Signal() != syscall.SIGKILL {
					t.Errorf("status %v, want KILL", status)
				}
				if took := time.Since(at); took < time.Second || took > 4*time.Second {
					t.Errorf("took %s for a grace of 1s", took)
				}
				p.gone(mark, time.Second)
			})
			t.Run("runner gone", func(t *testing.T) {
				s, mark := prepare(t, "", "sh", "-c", "sleep 1000 & (setsid sh -c 'echo up' & sleep 1001 & ) ; exec sleep 1002")
				p := startScript(t, shell, s, true)
				p.awaitStart()
				p.stdin.Close()
				if status, _, _ := p.wait(); status.Signal() != syscall.SIGTERM {
					t.Errorf("status %v, want TERM", status)
				}
				p.gone(mark, 2*time.Second)
			})
			t.Run("left behind", func(t *testing.T) {
				s, mark := prepare(t, "", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & exit 3")
				p := startScript(t, shell, s, true)
				if status, _, _ := p.wait(); status.ExitStatus() != 3 {
					t.Errorf("status %v", status)
				}
				p.stdin.Close()
				p.gone(mark, 5*time.Second)
			})
			t.Run("not started", func(t *testing.T) {
				script := filepath.Join(t.TempDir(), "script")
				if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				for _, c := range []struct {
					argv, reason string
					status       []int
				}{
					{"no-such-tool", "tool-missing", []int{97}},
					{"export", "tool-missing", []int{97}},
					{"/", "tool-missing", []int{97}},
					{script, "exec-failed", []int{126, 127}},
				} {
					s, _ := prepare(t, "", c.argv)
					status, out, err := startScript(t, shell, s, true).wait()
					if !slices.Contains(c.status, status.ExitStatus()) || out != "" || !strings.Contains(err, s.LinePrefix()+c.reason) {
						t.Errorf("%s: status %d, %q and %q", c.argv, status.ExitStatus(), out, err)
					}
				}
			})
		})
	}
}

// awaitStart waits until the command runs: its children show that, beside the
// watcher, which was the shell's.
func (p *supervised) awaitStart() {
	p.t.Helper()
	if !executortest.Eventually(10*time.Second, func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.cmd.Process.Pid, p.cmd.Process.Pid))
		return err == nil && len(bytes.Fields(children)) >= 2
	}) {
		p.t.Fatal("the command did not begin")
	}
}

// TestLoginShells: what the login shell makes of the command line.
func TestLoginShells(t *testing.T) {
	words := []string{"a b", "it's", `"$HOME"`, "`id`", "*", "!", "!!x", `\`, `\\n`, "", "~", "#", "[a]", "{b,c}", "^x^y", "%1", "-n"}
	for _, login := range [][]string{{"sh"}, {"dash"}, {"bash"}, {"fish", "--no-config"}, {"csh", "-f"}, {"tcsh", "-f"}, {"zsh", "-f"}, {"ksh"}} {
		path := shell(t, login[0])
		s, err := runner.Supervise(evidence.Task{Argv: append([]string{"printf", "<%s>"}, words...)})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), path, append(login[1:], "-c", s.Exec(false))...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		want := s.StartLine() + "<" + strings.Join(words, "><") + ">"
		out := make([]byte, len(want))
		n, err := io.ReadFull(stdout, out)
		// csh hands copies of its streams on, to the watcher too: the output
		// ends with it.
		stdin.Close()
		rest, _ := io.ReadAll(stdout)
		if err != nil || string(out) != want || len(rest) > 0 {
			t.Errorf("%s: %v\n got %q and %q\nwant %q", login[0], err, out[:n], rest, want)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", login[0], err)
		}
	}
}

func TestSuperviseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		task evidence.Task
		word string
	}{
		"empty":      {evidence.Task{}, "empty"},
		"empty name": {evidence.Task{Argv: []string{"", "x"}}, "empty"},
		"dash":       {evidence.Task{Argv: []string{"-c"}}, "dash"},
		"NUL":        {evidence.Task{Argv: []string{"a", "b\x00"}}, "NUL"},
		"NUL in env": {evidence.Task{Argv: []string{"a"}, Env: map[string]string{"A": "\x00"}}, "NUL"},
		"name":       {evidence.Task{Argv: []string{"a"}, Env: map[string]string{"1A": "x"}}, `"1A"`},
		"injection":  {evidence.Task{Argv: []string{"a"}, Env: map[string]string{"A;id": "x"}}, `"A;id"`},
		"ours":       {evidence.Task{Argv: []string{"a"}, Env: map[string]string{"rp_k": "x"}}, "rp_"},
		"long":       {evidence.Task{Argv: []string{"a", strings.Repeat("'", 40000)}}, "bytes"},
	} {
		if _, err := runner.Supervise(c.task); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.word)
		}
	}
}

func TestParseSupervised(t *testing.T) {
	task := evidence.Task{
		Mark: "m/1", Argv: []string{"prog", "--", "A=b", "it's", "new\nline", ""}, Env: map[string]string{"X": "y z", "PATH": "/a:/b", "LC_ALL": "de_DE"},
		Stdin: []byte("12345"), Deadline: 1500 * time.Millisecond,
	}
	s, err := runner.Supervise(task)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"COLUMNS=200", "LANG=C", "LC_ALL=C", "NO_COLOR=1", "PATH=/a:/b", "TERM=dumb", "TZ=UTC", "X=y z", "RACKPROOF_MARK=m/1", "RACKPROOF_TASK=" + s.Nonce}
	if !slices.Equal(s.Env, env) {
		t.Errorf("environment is %q, want %q", s.Env, env)
	}
	for _, become := range []bool{false, true} {
		line := s.Exec(become)
		got, err := runner.ParseSupervised(line)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Argv, task.Argv) || !slices.Equal(got.Env, s.Env) || got.Stdin != 5 || got.Nonce != s.Nonce ||
			got.Grace != runner.Grace || got.Deadline != 7*time.Second {
			t.Errorf("got %+v, want %+v", got, s)
		}
		for _, bad := range []string{
			"", "id", "exec id", line[1:], strings.Replace(line, "TERM", "QUIT", 1), strings.Replace(line, "'--'", "'-'", 1),
			line + ";id", line + " $(id)", line[:len(line)-1], strings.Replace(line, "'5'", "'-5'", 1), strings.Replace(line, "'5'", "'x'", 1),
		} {
			if got, err := runner.ParseSupervised(bad); err == nil {
				t.Errorf("%.40q… was read as %q", bad, got.Argv)
			}
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, word := range []string{"", "a", "'", "''", `\`, "!", "\n", "$(id)", "a'b\\c!d\ne", "\xff\xfe", "-n", "%s"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if strings.ContainsRune(word, 0) {
			return
		}
		quoted := runner.Quote(word)
		words, err := runner.Unquote("x " + quoted + " " + quoted)
		if err != nil || !slices.Equal(words, []string{"x", word, word}) {
			t.Errorf("%q is quoted as %s and read as %q, %v", word, quoted, words, err)
		}
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf %s.%s "+quoted+" x"+quoted).Output()
		if want := word + ".x" + word; err != nil || string(out) != want {
			t.Errorf("%q is quoted as %s, which sh reads as %q, %v", word, quoted, out, err)
		}
	})
}
