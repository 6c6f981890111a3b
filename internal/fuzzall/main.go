// Fuzzall runs every fuzz target of the module, one after the other, each for
// the time given. Go runs one target a call, and a list in a Makefile would
// forget the next one.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"time"
)

var (
	packageLine = regexp.MustCompile(`(?m)^ok\s+(\S+)`)
	targetLine  = regexp.MustCompile(`(?m)^Fuzz\w+$`)
)

type target struct{ pkg, name string }

func main() {
	each := flag.Duration("time", time.Minute, "how long each target runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *each); err != nil {
		fmt.Fprintln(os.Stderr, "fuzzall:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, each time.Duration) error {
	targets, err := find(ctx)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz target found")
	}
	for i, t := range targets {
		fmt.Printf("[%d/%d] %s %s\n", i+1, len(targets), t.pkg, t.name)
		command := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String(), "-fuzzminimizetime", "5x", t.pkg)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		if err := command.Run(); err != nil {
			return fmt.Errorf("%s %s: %w", t.pkg, t.name, err)
		}
	}
	fmt.Printf("%d targets, %s each: no crash\n", len(targets), each)
	return nil
}

// find lists the targets: go test prints the names of a package before its
// own "ok" line.
func find(ctx context.Context) ([]target, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-list", "^Fuzz", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go test -list: %w", err)
	}
	var targets []target
	for len(out) > 0 {
		end := packageLine.FindSubmatchIndex(out)
		if end == nil {
			break
		}
		for _, name := range targetLine.FindAll(out[:end[0]], -1) {
			targets = append(targets, target{string(out[end[2]:end[3]]), string(bytes.Clone(name))})
		}
		out = out[end[1]:]
	}
	return targets, nil
}
