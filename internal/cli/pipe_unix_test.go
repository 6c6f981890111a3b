//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A reader that goes away does not end a run.
func TestRunOutlivesItsReader(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/runbook")); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "rackproof", "run", "small.runbook.hcl")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, &out, write, append(os.Environ(), "HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(read); lines.Scan(); {
		if strings.Contains(lines.Text(), " phase ") {
			break
		}
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the run ended with %v", err)
	}
	if !strings.HasPrefix(out.String(), "verdict   pass: 1 of 1 cells pass") {
		t.Errorf("stdout %q", &out)
	}
}
