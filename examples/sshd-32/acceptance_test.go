package sshd32_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/examples/sshd-32/rack"
)

const runbook = "sshd-32.runbook.hcl"

// house is what the tests of this folder share: the built program, a signing
// key with its trust file, and one undisturbed run of the runbook.
type house struct {
	dir     string
	program string
	trust   string
	run     string // sealed run directory
	bundle  string // its archive
	rack    *rack.Rack
}

var shared *house

func TestMain(m *testing.M) {
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testMain(m *testing.M) (code int, err error) {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		return m.Run(), nil // names the tests and runs none
	}
	ctx := context.Background()
	// Not in the default temporary folder: that may be a memory filesystem,
	// which fio cannot use with O_DIRECT.
	dir, err := os.MkdirTemp("/var/tmp", "rackproof-sshd-32-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	shared = &house{dir: dir, program: filepath.Join(dir, "rackproof"), trust: filepath.Join(dir, "trust.hcl")}

	build := exec.CommandContext(ctx, "go", "build", "-o", shared.program, "../../cmd/rackproof")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build: %w\n%s", err, out)
	}
	for _, arguments := range [][]string{
		{"keygen", "--out", filepath.Join(dir, "key")},
		{"trust", "init", "--key", filepath.Join(dir, "key.pub"), "-o", shared.trust},
	} {
		if got := shared.rackproof(ctx, arguments...); got.code != 0 {
			return 1, fmt.Errorf("rackproof %s: exit %d\n%s", strings.Join(arguments, " "), got.code, got.stderr)
		}
	}
	if shared.rack, err = rack.Up(ctx, rack.Options{Dir: filepath.Join(dir, "rack")}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.rack.Close()) }()
	runs := filepath.Join(dir, "runs")
	if got := shared.rackproof(ctx, shared.runArguments(shared.rack, runs)...); got.code != 0 {
		return 1, fmt.Errorf("the undisturbed run: exit %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	if shared.run, shared.bundle, err = onlyRun(runs); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// runArguments is the command line of a signed run on r.
func (h *house) runArguments(r *rack.Rack, runs string, more ...string) []string {
	arguments := append([]string{"run", runbook}, r.Flags()...)
	arguments = append(arguments, "--allow", "kills_service", "--key", filepath.Join(h.dir, "key.key"), "--dir", runs)
	return append(arguments, more...)
}

type outcome struct {
	stdout, stderr string
	code           int
}

func (h *house) rackproof(ctx context.Context, arguments ...string) outcome {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, h.program, arguments...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		return outcome{stderr: err.Error(), code: -1}
	}
	return outcome{stdout.String(), stderr.String(), code}
}

// onlyRun finds the one run below runs, and its archive.
func onlyRun(runs string) (run, bundle string, err error) {
	plans, err := filepath.Glob(filepath.Join(runs, "*", "run", "plan.json"))
	if err != nil {
		return "", "", err
	}
	if len(plans) != 1 {
		return "", "", fmt.Errorf("%s: want one run, found %d", runs, len(plans))
	}
	run = filepath.Dir(filepath.Dir(plans[0]))
	return run, run + ".evidence.tar.zst", nil
}
