// Demo does with the real program what an acceptance engineer and a release
// owner would do: it raises 32 sshd, runs the runbook over SSH, and verifies
// the signed bundle with a trust file of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rackproof/rackproof/examples/sshd-32/rack"
)

func main() {
	program := flag.String("rackproof", "bin/rackproof", "the program")
	out := flag.String("out", "out/demo", "where the bundle, the report and the trust file go; it is emptied first")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx, *program, *out); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, program, out string) (err error) {
	if program, err = filepath.Abs(program); err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	fmt.Println("raising 32 sshd and one redis on loopback")
	r, err := rack.Up(ctx, rack.Options{Dir: filepath.Join(out, "rack")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()

	key, public := filepath.Join(out, "key.key"), filepath.Join(out, "key.pub")
	trust, runs := filepath.Join(out, "trust.hcl"), filepath.Join(out, "runs")
	rackproof := func(arguments ...string) error {
		shown := strings.ReplaceAll(strings.Join(arguments, " "), out+string(filepath.Separator), "")
		fmt.Printf("\n$ rackproof %s\n", shown)
		command := exec.CommandContext(ctx, program, arguments...)
		command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		return command.Run()
	}
	if err := rackproof("keygen", "--out", strings.TrimSuffix(key, ".key")); err != nil {
		return err
	}
	if err := rackproof("trust", "init", "--key", public, "-o", trust); err != nil {
		return err
	}
	run := append([]string{"run", "examples/sshd-32/sshd-32.runbook.hcl"}, r.Flags()...)
	run = append(run, "--allow", "kills_service", "--key", key, "--dir", runs)
	if err := rackproof(run...); err != nil {
		return err
	}
	bundles, err := filepath.Glob(filepath.Join(runs, "*.evidence.tar.zst"))
	if err != nil || len(bundles) != 1 {
		return fmt.Errorf("%s: want one bundle, found %d", runs, len(bundles))
	}
	bundle := filepath.Join(out, filepath.Base(bundles[0]))
	if err := os.Rename(bundles[0], bundle); err != nil {
		return err
	}
	if err := rackproof("report", bundle, "-o", filepath.Join(out, "report.txt")); err != nil {
		return err
	}
	if err := rackproof("report", bundle); err != nil {
		return err
	}
	return rackproof("verify", bundle, "--trust", trust)
}
