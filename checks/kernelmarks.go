package checks

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// A window of the kernel log is proven by two marks that the check wrote into
// it: without both the ring was overrun, cleared or not readable, and a count
// of zero would show nothing.

const (
	markBeginStep = "mark-begin"
	markEndStep   = "mark-end"
	kernelStep    = "kernel"
)

// newMark is a nonce that no earlier run has written.
func newMark() string {
	var nonce [8]byte
	rand.Read(nonce[:]) // never fails, by its contract
	return hex.EncodeToString(nonce[:])
}

// kernelArgv is what the steps above run; nil for another step. The mark
// itself goes to tee's stdin, so no argv has it.
func kernelArgv(step string) []string {
	switch step {
	case markBeginStep, markEndStep:
		return []string{"tee", "/dev/kmsg"}
	case kernelStep:
		return []string{"dmesg", "-x"}
	}
	return nil
}

// markKernel writes a mark into the kernel log of every node; it needs root.
// tee repeats it on stdout, which is how Measure knows it.
func markKernel(ctx context.Context, b Bench, step, mark string) error {
	return b.ExecAll(ctx, step, b.Nodes(), func(node string) Command {
		return Command{
			Node: node, Argv: kernelArgv(step),
			Stdin: fmt.Appendf(nil, "rackproof %s %s\n", step, mark),
		}
	})
}

// readKernel reads the kernel log of every node with facility and level.
func readKernel(ctx context.Context, b Bench) error {
	return b.ExecAll(ctx, kernelStep, b.Nodes(), func(node string) Command {
		return Command{Node: node, Argv: kernelArgv(kernelStep)}
	})
}

var (
	markForm  = regexp.MustCompile(`^rackproof (mark-begin|mark-end) [0-9a-f]{16}\n$`)
	dmesgForm = regexp.MustCompile(`^(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]|\d+) *:(emerg|alert|crit|err|warn|notice|info|debug) *: `)
)

// kernelErrors counts the lines of the kernel itself with level err or worse
// between the two marks.
func (m *collector) kernelErrors(node string) (reading, bool) {
	begin, ok := m.mark(markBeginStep, node)
	if !ok {
		return reading{}, false
	}
	end, ok := m.mark(markEndStep, node)
	if !ok {
		return reading{}, false
	}
	out, ok := m.step(kernelStep, node)
	if !ok || !m.wholeLines(out, "stdout", out.stdout) {
		return reading{}, false
	}
	inside, closed := false, false
	from, count := 0, 0
	line := 0
	for text := range strings.Lines(string(out.stdout)) {
		line++
		text = strings.TrimSuffix(text, "\n")
		switch {
		case strings.HasSuffix(text, begin):
			inside, from, count = true, line, 0
		case strings.HasSuffix(text, end) && inside:
			closed = true
		case inside && !closed:
			// A line without a level continues the one before it.
			if match := dmesgForm.FindStringSubmatch(text); match != nil && match[1] == "kern" &&
				slices.Contains([]string{"emerg", "alert", "crit", "err"}, match[2]) {
				count++
			}
		}
		if closed {
			break
		}
	}
	if !closed {
		m.report(node, kernelStep, evidence.ClassOutputCut, "the kernel log does not hold both marks: it was overrun, cleared or cut")
		return reading{}, false
	}
	return reading{value: float64(count), source: out.at("%d-%d", from, line)}, true
}

// mark is the text of a mark, as tee repeated it.
func (m *collector) mark(step, node string) (string, bool) {
	out, ok := m.step(step, node)
	if !ok {
		return "", false
	}
	if !markForm.Match(out.stdout) || !strings.HasPrefix(string(out.stdout), "rackproof "+step+" ") {
		m.report(node, step, evidence.ClassOutputCut, "stdout is not the mark that was written: %q", token(string(out.stdout)))
		return "", false
	}
	return strings.TrimSuffix(string(out.stdout), "\n"), true
}
