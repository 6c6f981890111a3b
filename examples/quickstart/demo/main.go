// Demo does with the real program what an acceptance engineer and a release
// owner would do, on a simulated rack: it raises the rack, runs the runbook
// over SSH, and verifies the signed bundle, once with a trust file that
// accepts a rehearsal and once with one that does not.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	program := flag.String("rackproof", "bin/rackproof", "the program")
	out := flag.String("out", "out/demo", "where the bundle, the report and the trust file go; it is emptied first")
	runbook := flag.String("runbook", "examples/quickstart/quickstart.runbook.hcl", "the runbook")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := demo{program: *program, out: *out, runbook: *runbook}
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type demo struct{ program, out, runbook string }

// exitRule is what verify exits with where a rule of the trust file is not
// met.
const exitRule = 6

func (d demo) run(ctx context.Context) (err error) {
	if d.program, err = filepath.Abs(d.program); err != nil {
		return err
	}
	if d.out, err = filepath.Abs(d.out); err != nil {
		return err
	}
	if err := os.RemoveAll(d.out); err != nil {
		return err
	}
	if err := os.MkdirAll(d.out, 0o755); err != nil {
		return err
	}
	began := time.Now()
	lab := d.path("lab")
	down, err := d.raise(ctx, lab)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	key, runs := d.path("key.key"), d.path("runs")
	for _, arguments := range [][]string{
		{"keygen", "--out", d.path("key")},
		{"trust", "init", "--key", d.path("key.pub"), "--accept-simulated", "-o", d.path("trust.hcl")},
		{"trust", "init", "--key", d.path("key.pub"), "--name", "customer", "-o", d.path("trust-real-only.hcl")},
		{"run", d.runbook, "--var", "ssh_config=" + filepath.Join(lab, "ssh_config"), "--var", "known_hosts=" + filepath.Join(lab, "known_hosts"),
			"--allow", "kills_service", "--key", key, "--dir", runs},
	} {
		if err := d.rackproof(ctx, arguments...); err != nil {
			return err
		}
	}
	bundles, err := filepath.Glob(filepath.Join(runs, "*.evidence.tar.zst"))
	if err != nil || len(bundles) != 1 {
		return fmt.Errorf("%s: want one bundle, found %d", runs, len(bundles))
	}
	run := strings.TrimSuffix(bundles[0], ".evidence.tar.zst")
	bundle := d.path(filepath.Base(bundles[0]))
	if err := os.Rename(bundles[0], bundle); err != nil {
		return err
	}
	for _, arguments := range [][]string{
		{"report", run, "-f", "html", "-o", d.path("report.html")},
		{"report", run},
		{"verify", bundle, "--trust", d.path("trust.hcl")},
	} {
		if err := d.rackproof(ctx, arguments...); err != nil {
			return err
		}
	}
	fmt.Println("\nA customer's trust file does not accept a simulated rack:")
	refused := d.rackproof(ctx, "verify", bundle, "--trust", d.path("trust-real-only.hcl"))
	var exit *exec.ExitError
	if !errors.As(refused, &exit) || exit.ExitCode() != exitRule {
		return fmt.Errorf("verify with a trust file that refuses simulated runs: want exit %d, got %w", exitRule, refused)
	}
	fmt.Printf("exit %d, as it should be\n\nin %s: %s, report.html, trust.hcl, key.pub; %s in all\n",
		exitRule, d.out, filepath.Base(bundle), time.Since(began).Round(100*time.Millisecond))
	return nil
}

func (d demo) path(name string) string { return filepath.Join(d.out, name) }

// command is one call of the program, told to end by SIGTERM with ctx.
func (d demo) command(ctx context.Context, arguments ...string) *exec.Cmd {
	shown := strings.ReplaceAll(strings.Join(arguments, " "), d.out+string(filepath.Separator), "")
	fmt.Printf("\n$ rackproof %s\n", shown)
	command := exec.CommandContext(ctx, d.program, arguments...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	command.Stderr = os.Stderr
	return command
}

func (d demo) rackproof(ctx context.Context, arguments ...string) error {
	command := d.command(ctx, arguments...)
	command.Stdout = os.Stdout
	return command.Run()
}

// raise brings the simulated rack up and returns what ends it. The rack is up
// when the program has said its last line about it.
func (d demo) raise(ctx context.Context, lab string) (down func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	command := d.command(ctx, "lab", "up", "--lab", lab, "--speed", "60")
	said, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	down = func() error {
		cancel()
		if err := command.Wait(); !errors.Is(err, context.Canceled) && err != nil {
			return fmt.Errorf("rackproof lab up: %w", err)
		}
		return nil
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		fmt.Println(lines.Text())
		if strings.HasPrefix(lines.Text(), "up until ") {
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return down, nil
		}
	}
	return nil, errors.Join(errors.New("the simulated rack did not come up"), down())
}
