package cli

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected output in the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rackproof": func() { os.Exit(Main(System())) }})
}

// TestScripts runs the real program, a process each, in a directory that holds
// the runbooks of testdata/runbook.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			return os.CopyFS(env.WorkDir, os.DirFS("testdata/runbook"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "findrun": findRun, "edit": edit, "lines": lines, "until": until,
		},
	})
}

// exits runs a program and compares its exit code: exits CODE PROGRAM ARGS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// until runs a program again and again until it exits with 0: until PROGRAM
// ARGS...
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: until PROGRAM [ARGS...]")
	}
	limit := time.After(20 * time.Second)
	for ts.Exec(args[0], args[1:]...) != nil {
		select {
		case <-limit:
			ts.Fatalf("%s has not succeeded within 20 s", strings.Join(args, " "))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// findRun sets RUN and ARCHIVE to the newest run of a directory.
func findRun(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: findrun DIR")
	}
	found, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*-*z-*"))
	ts.Check(err)
	run := ""
	for _, name := range found {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			run = filepath.Join(args[0], filepath.Base(name))
		}
	}
	if run == "" {
		ts.Fatalf("there is no run in %s", args[0])
	}
	ts.Setenv("RUN", run)
	ts.Setenv("ARCHIVE", run+".evidence.tar.zst")
}

// edit replaces text in a file: edit FILE OLD NEW.
func edit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: edit FILE OLD NEW")
	}
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.ReplaceAll(text, args[1], args[2])), 0o644))
}

// lines compares the number of lines of a file: lines FILE COUNT.
func lines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines FILE COUNT")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); got != want {
		ts.Fatalf("%s has %d lines, want %d", args[0], got, want)
	}
}
