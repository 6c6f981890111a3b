package runner

import (
	"context"
	"strings"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
)

// probeLimit is how many bytes of each stream a ProbeLine holds.
const probeLimit = 4096

// Probe implements checks.Bench. Starts lie on the grid of the first start
// and the period; a probe that overruns leaves grid points out, so that none
// overlap and no burst follows. The probe that ctx ends is not recorded, since
// it says nothing of the node.
func (b *bench) Probe(ctx context.Context, name, node string, period time.Duration, next func(n int) (checks.Command, bool)) error {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	period = max(period, time.Millisecond)
	command, more := next(0)
	command.Node = node
	if _, err := b.task(name, command, b.until); more && err != nil {
		return err
	}
	s, err := b.step(name, node, command.Argv)
	if err != nil {
		return err
	}
	first := time.Now()
	exit := evidence.Exit{Argv: command.Argv, Class: evidence.ClassOK, Start: first}
	var writeErr error
	grid := time.Duration(0) // of the last start, in periods
	for n := 0; more && ctx.Err() == nil && writeErr == nil; n++ {
		task, err := b.task(name, command, b.until)
		if err != nil {
			exit.Class, exit.Detail = evidence.ClassUnparsable, err.Error()
			break
		}
		line := b.probe(ctx, n, task)
		if ctx.Err() != nil && line.Class != evidence.ClassOK {
			break
		}
		writeErr = writeLine(stepStream{s, s.files.Stdout()}, line)
		grid = max(grid+1, (time.Since(first)+period-1)/period)
		if wait(ctx, time.Until(first.Add(grid*period))) != nil {
			break
		}
		command, more = next(n + 1)
		command.Node = node
	}
	select {
	case <-b.ended:
		exit.Class, exit.Detail = evidence.ClassCut, "the attempt ended before its probes"
		if !time.Now().Before(b.until) {
			exit.Class = evidence.ClassTimeout
		}
	default:
	}
	code := 0
	exit.Code, exit.End = &code, time.Now()
	return b.keep(s, exit, writeErr)
}

// probe runs one probe.
func (b *bench) probe(ctx context.Context, n int, task evidence.Task) checks.ProbeLine {
	stdout, stderr := clippedBuffer{limit: probeLimit}, clippedBuffer{limit: probeLimit}
	start := time.Since(b.began)
	exit, err := b.run.o.Executor.Exec(ctx, task, &stdout, &stderr)
	end := time.Since(b.began)
	exit = filled(exit, task, b.began, err)
	line := checks.ProbeLine{
		N: n, Start: start.Seconds(), End: end.Seconds(), Class: exit.Class, Code: exit.Code,
		Stdout: strings.ToValidUTF8(stdout.String(), "\uFFFD"), Stderr: strings.ToValidUTF8(stderr.String(), "\uFFFD"),
	}
	if line.Stderr == "" {
		line.Stderr = exit.Detail
	}
	return line
}
