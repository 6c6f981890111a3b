package sshd32_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/examples/sshd-32/rack"
	"github.com/rackproof/rackproof/runner/ssh/sshfleet"
)

// The nodes of the bad day, and what is wrong with each. The faults are real
// ones: mount namespaces, a PATH, a preloaded clock, a new host key, a dead
// sshd.
const (
	healthy         = "n1"
	withoutFio      = "n2"
	diskFull        = "n3"
	otherFilesystem = "n4"
	outputCut       = "n5"
	clockWrong      = "n6"
	keyChanged      = "n7"
	stopped         = "n8"
)

func TestBadDay(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test mounts filesystems for single nodes and needs root")
	}
	tools := t.TempDir()
	withoutTool(t, filepath.Join(tools, "without-fio"), "fio")
	shim(t, filepath.Join(tools, "cut-fio", "fio"), "#!/bin/sh\n/usr/bin/fio \"$@\" | head -c 700\n")
	image := filepath.Join(shared.dir, "small.img")
	for _, argv := range [][]string{{"truncate", "-s", "2M", image}, {"mkfs.ext4", "-q", "-F", image}} {
		run(t, argv...)
	}

	dir, err := os.MkdirTemp(shared.dir, "bad-day-")
	if err != nil {
		t.Fatal(err)
	}
	storage := rack.StorageBelow(dir)
	if err := os.MkdirAll(storage, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := rack.Up(t.Context(), rack.Options{Dir: dir, Nodes: 8, Node: func(name string) sshfleet.NodeOptions {
		switch name {
		case withoutFio:
			return sshfleet.NodeOptions{SetEnv: map[string]string{"PATH": filepath.Join(tools, "without-fio")}}
		case diskFull:
			return sshfleet.NodeOptions{Wrap: mounted("-o", "loop", image, storage)}
		case otherFilesystem:
			return sshfleet.NodeOptions{Wrap: mounted("-t", "tmpfs", "-o", "size=64m", "tmpfs", storage)}
		case outputCut:
			return sshfleet.NodeOptions{SetEnv: map[string]string{"PATH": filepath.Join(tools, "cut-fio") + ":/usr/bin:/bin:/usr/sbin:/sbin"}}
		case clockWrong:
			return sshfleet.NodeOptions{SetEnv: map[string]string{"LD_PRELOAD": fakeTime(t), "FAKETIME": "+1h"}}
		}
		return sshfleet.NodeOptions{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Fleet.Node(keyChanged).ReplaceHostKey(t.Context()); err != nil {
		t.Fatal(err)
	}

	runs := filepath.Join(dir, "runs")
	got := runAndStop(t, r, runs)
	if got.code != 4 {
		t.Errorf("exit %d, want 4\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	directory, bundle, err := onlyRun(runs)
	if err != nil {
		t.Fatal(err)
	}
	verdict := readVerdict(t, directory)
	if verdict.Outcome == evidence.Pass {
		t.Error("the verdict is a pass")
	}

	for _, want := range []struct {
		node    string
		test    string
		outcome evidence.Outcome
		classes []evidence.Class
	}{
		{healthy, "reads", evidence.Pass, []evidence.Class{""}},
		{healthy, "burn", evidence.Pass, []evidence.Class{""}},
		{withoutFio, "reads", evidence.Inconclusive, []evidence.Class{evidence.ClassToolMissing}},
		{diskFull, "reads", evidence.Inconclusive, []evidence.Class{evidence.ClassNodeDiskFull}},
		{otherFilesystem, "reads", evidence.Inconclusive, []evidence.Class{evidence.ClassWrongFilesystem}},
		{outputCut, "reads", evidence.Error, []evidence.Class{evidence.ClassOutputCut}},
		{clockWrong, "reads", evidence.Inconclusive, []evidence.Class{evidence.ClassClockOffset}},
		{keyChanged, "reads", evidence.Inconclusive, []evidence.Class{evidence.ClassHostKeyMismatch}},
		{stopped, "reads", evidence.Pass, []evidence.Class{""}},
		{stopped, "burn", evidence.Inconclusive, []evidence.Class{evidence.ClassLost, evidence.ClassTCP}},
	} {
		t.Run(want.node+"/"+want.test, func(t *testing.T) {
			finding, ok := find(verdict, want.test, want.node)
			if !ok {
				t.Fatal("no finding")
			}
			if finding.Outcome != want.outcome || !slices.Contains(want.classes, finding.Class) {
				t.Errorf("outcome %v, class %q, want %v of %q: %s", finding.Outcome, finding.Class, want.outcome, want.classes, finding.Reason)
			}
			if want.outcome != evidence.Pass && !strings.Contains(finding.Reason, want.node) {
				t.Errorf("the reason does not name %s: %s", want.node, finding.Reason)
			}
		})
	}

	t.Run("both fingerprints, nothing sent", func(t *testing.T) {
		finding, _ := find(verdict, "reads", keyChanged)
		if n := strings.Count(finding.Reason, "SHA256:"); n != 2 {
			t.Errorf("%d fingerprints in %q, want the known and the offered one", n, finding.Reason)
		}
		log, err := os.ReadFile(r.Fleet.Node(keyChanged).Log())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(log), "Accepted publickey") {
			t.Errorf("somebody logged in:\n%s", log)
		}
	})

	t.Run("verify", func(t *testing.T) {
		got := shared.rackproof(t.Context(), "verify", bundle, "--trust", shared.trust)
		if got.code != 4 {
			t.Errorf("verify: exit %d, want 4\n%s\n%s", got.code, got.stdout, got.stderr)
		}
		if !strings.Contains(got.stdout, "reproduced") || !strings.Contains(got.stdout, stopped) {
			t.Errorf("verify does not say reproduced and %s:\n%s", stopped, got.stdout)
		}
	})
}

// runAndStop runs the bad day's runbook and kills one node's sshd, with all
// that it started, when its burn has begun.
func runAndStop(t *testing.T, r *rack.Rack, runs string) outcome {
	t.Helper()
	vars := r.Vars()
	arguments := []string{"run", "testdata/bad-day.runbook.hcl", "--key", filepath.Join(shared.dir, "key.key"), "--dir", runs, "--json"}
	for _, name := range []string{"ssh_config", "known_hosts", "storage", "filesystem"} {
		arguments = append(arguments, "--var", name+"="+vars[name])
	}
	command := exec.CommandContext(t.Context(), shared.program, arguments...)
	var stdout, stderr strings.Builder
	command.Stderr = &stderr
	pipe, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fmt.Fprintln(&stdout, lines.Text())
		if !killed && strings.Contains(lines.Text(), `"cell_start"`) && strings.Contains(lines.Text(), "burn/"+stopped) {
			killed = true
			if err := r.Fleet.Node(stopped).Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if !killed {
		t.Errorf("the burn on %s was never started", stopped)
	}
	_ = command.Wait()
	return outcome{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

func find(v evidence.Verdict, test, node string) (evidence.Finding, bool) {
	for _, f := range v.Findings {
		if f.Test == test && string(f.Subject) == node {
			return f, true
		}
	}
	return evidence.Finding{}, false
}

func readVerdict(t *testing.T, run string) evidence.Verdict {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, "run", "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	var verdict evidence.Verdict
	if err := json.Unmarshal(text, &verdict); err != nil {
		t.Fatal(err)
	}
	return verdict
}

// mounted wraps a server so that it, and what it starts, sees a mount of its
// own.
func mounted(mount ...string) []string {
	return []string{"unshare", "--mount", "--propagation", "private", "--",
		"sh", "-c", "mount '" + strings.Join(mount, "' '") + `' && exec "$@"`, "sh"}
}

func withoutTool(t *testing.T, dir, tool string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"} {
		entries, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() == tool {
				continue
			}
			if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
}

func shim(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func fakeTime(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(found) == 0 {
		t.Fatal("libfaketime is not installed: apt-get install libfaketime")
	}
	return found[0]
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}
