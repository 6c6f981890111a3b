package evidence

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// killedDir names the run directory to a child process of TestKilledRun.
const killedDir = "RACKPROOF_TEST_KILLED_DIR"

// TestMain is the child where TestKilledRun asks for one: it runs attempts
// without end and prints a line after each.
func TestMain(m *testing.M) {
	dir := os.Getenv(killedDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := runForEver(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

func runForEver(dir string) error {
	s, err := Create(dir, "r1", testPlan(), nil, testTool())
	if err != nil {
		return err
	}
	cell := s.Plan().Cells[2]
	for {
		a, err := s.Begin(cell, []string{"n1", "n2"})
		if err != nil {
			return err
		}
		for _, node := range []string{"n1", "n2"} {
			f, err := a.Step("df", node)
			if err != nil {
				return err
			}
			if _, err := f.Stdout().Write([]byte("out\n")); err != nil {
				return err
			}
			if err := f.Close(exitOK()); err != nil {
				return err
			}
		}
		if _, err := s.End(a, nil, false); err != nil {
			return err
		}
		if _, err := fmt.Println(a.Number()); err != nil {
			return err
		}
	}
}

// TestKilledRun kills a process at work, wherever it is then, and demands
// that each attempt that it has reported is whole, that the rest is a cut
// one, and that the run goes on.
func TestKilledRun(t *testing.T) {
	for reported := range 6 {
		dir := filepath.Join(t.TempDir(), "run")
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), killedDir+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range reported + 1 {
			if !lines.Scan() {
				t.Fatal("the child ended")
			}
		}
		if _, err := Reopen(dir, testTool()); !errors.Is(err, ErrLocked) {
			t.Errorf("the lock of a living process: %v", err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := child.Wait(); err == nil {
			t.Fatal("the child was not killed")
		}
		s := reopen(t, dir)
		results := Results(s.Plan(), s.Records(), s.FS())
		if found := problems(results); len(found) > 0 {
			t.Errorf("after %d attempts: %q", reported+1, found)
		}
		whole := 0
		for _, a := range results[2].Attempts {
			if !a.Cut {
				whole++
			}
		}
		if attempts := len(results[2].Attempts); whole <= reported || whole < attempts-1 {
			t.Errorf("%d of %d attempts are whole, and %d were reported", whole, attempts, reported+1)
		}
		if err := s.Seal(NewDerived(results, passing())); err != nil {
			t.Errorf("seal: %v", err)
		}
		closeRun(t, s)
		if err := Walk(os.DirFS(dir), func(string, int64) error { return nil }); err != nil {
			t.Errorf("the sealed directory: %v", err)
		}
	}
}
