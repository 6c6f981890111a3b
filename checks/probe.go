package checks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// probeLineLimit bounds one line of a probe step: two texts of 4 KiB, in the
// widest escapes that JSON has.
const probeLineLimit = 64 << 10

// probes streams the lines of a probe step to each, in order, and reports
// what shows that lines are missing: a torn or unreadable line, a number out
// of turn, or a list that stops before the probing did. It returns what the
// step's exit.json says, and whether the list is whole. Even of a list that
// is not, each has seen every good line, unless another command than was asked
// was probed with; exit.json has the argv of the first probe.
func (m *collector) probes(step, node string, slack time.Duration, each func(line int, p ProbeLine)) bool {
	exit, own, whole := m.exit(step, node)
	if !own {
		return false
	}
	report := func(class evidence.Class, format string, args ...any) {
		if whole { // else the list is known to end somewhere
			m.report(node, step, class, format, args...)
		}
	}
	file, err := m.raw.Open(evidence.StepDir(step, node) + "/stdout")
	if err != nil {
		report(evidence.ClassOutputCut, "stdout is missing")
		return false
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, probeLineLimit)
	var size int64
	var first, last ProbeLine
	count := 0
	for {
		text, err := reader.ReadSlice('\n')
		size += int64(len(text))
		if err == io.EOF && len(text) == 0 {
			break
		}
		if err != nil {
			report(evidence.ClassOutputCut, "line %d is torn or longer than %d bytes", count+1, probeLineLimit)
			return false
		}
		var p ProbeLine
		if err := evidence.DecodeStrict(bytes.TrimSuffix(text, []byte("\n")), &p); err != nil {
			report(evidence.ClassUnparsable, "line %d: %v", count+1, err)
			return false
		}
		if p.N != count || p.End < p.Start || p.Start < last.End {
			report(evidence.ClassOutputCut, "line %d is probe %d from %g s to %g s: lines are missing or out of turn", count+1, p.N, p.Start, p.End)
			return false
		}
		if count == 0 {
			first = p
		}
		last = p
		count++
		each(count, p)
	}
	if !whole {
		return false
	}
	if _, ok := m.stream(step, node, "stderr", exit.StderrBytes); !ok {
		return false
	}
	if size != exit.StdoutBytes {
		report(evidence.ClassOutputCut, "stdout has %d bytes and exit.json says %d", size, exit.StdoutBytes)
		return false
	}
	if count == 0 {
		report(evidence.ClassOutputCut, "there is no probe")
		return false
	}
	probed := time.Duration((last.End - first.Start) * float64(time.Second))
	if lasted := exit.End.Sub(exit.Start); lasted-probed > slack {
		report(evidence.ClassOutputCut, "the lines cover %s and the probing lasted %s: the end is missing", probed.Round(time.Millisecond), lasted.Round(time.Millisecond))
		return false
	}
	return true
}

// probeSlack is how much longer a probe step may last than its probes: the
// wait for the last turn, and a second for starting and ending.
func probeSlack(period time.Duration) time.Duration { return period + time.Second }

// faultEvents reads raw/faults.jsonl and reports what is wrong with it.
func (m *collector) faultEvents() ([]evidence.FaultEvent, bool) {
	data, err := readWhole(m.raw, faultsFile)
	if tooLong := (*tooLongError)(nil); errors.As(err, &tooLong) {
		m.report("", "", evidence.ClassOutputCapped, "%s has %v", faultsFile, tooLong)
		return nil, false
	}
	if err != nil {
		class, why := m.absent("")
		m.report("", "", class, "%s is missing: no fault was injected%s", faultsFile, why)
		return nil, false
	}
	if len(data) == 0 || data[len(data)-1] != '\n' {
		m.report("", "", evidence.ClassOutputCut, "%s is empty or ends within a line", faultsFile)
		return nil, false
	}
	var events []evidence.FaultEvent
	for line := range bytes.Lines(data) {
		var event evidence.FaultEvent
		if err := evidence.DecodeStrict(json.RawMessage(bytes.TrimSuffix(line, []byte("\n"))), &event); err != nil {
			m.report("", "", evidence.ClassUnparsable, "%s line %d: %v", faultsFile, len(events)+1, err)
			return nil, false
		}
		events = append(events, event)
	}
	return events, true
}

const faultsFile = "faults.jsonl"

// ruledOut reports whether c says nothing about the service that a probe
// asks: the prober was not reached, or had no tool.
func ruledOut(c evidence.Class) bool {
	return !slices.Contains([]evidence.Class{
		evidence.ClassOK, evidence.ClassExit, evidence.ClassTimeout, evidence.ClassSignal, evidence.ClassSilent,
	}, c)
}

// sampleStep is the step of the samples that a burn-in takes of itself.
const sampleStep = "samples"

// sampled runs work, and a sample every period from before it until after it:
// work begins when the first sample has been taken.
func sampled(ctx context.Context, b Bench, sample Command, period time.Duration, work func() error) error {
	var sampling error
	worked, started := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		var once sync.Once
		defer once.Do(func() { close(started) })
		sampling = b.Probe(ctx, sampleStep, sample.Node, period, func(n int) (Command, bool) {
			if n > 0 {
				once.Do(func() { close(started) })
			}
			select {
			case <-worked:
				return Command{}, false
			default:
				return sample, true
			}
		})
	})
	<-started
	err := work()
	close(worked)
	group.Wait()
	return errors.Join(err, sampling)
}
