package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

const (
	faultLog      = "raw/faults.jsonl"
	maxFaultLog   = 64 << 20
	faultStep     = "fault" // of the problem with which the runner says that a fault was not carried out
	faultEarly    = 2 * time.Second
	maxFaultFlaws = 10
)

// faultKey is one fault of a test on one node.
type faultKey struct {
	index int
	node  string
}

// checkFaults compares what the test breaks on purpose with what the journal
// and the fault log say was broken. An attempt that measured a node while
// nothing was wrong with it proves nothing about faults, and no check is made
// to look: most read their own tool's output and nothing else.
//
// An attempt that says itself that a fault was not carried out is never a
// pass, so there is nothing to add.
func (a *attemptHistory) checkFaults(test Test, done Attempt, fsys fs.FS) []Problem {
	if len(test.Faults) == 0 || done.Cut || slices.ContainsFunc(done.Problems, func(p Problem) bool { return p.Step == faultStep }) {
		return nil
	}
	var flaws []Problem
	flaw := func(node, format string, args ...any) {
		if len(flaws) < maxFaultFlaws {
			flaws = append(flaws, Problem{Node: node, Step: faultStep, Class: ClassDamaged, Detail: fmt.Sprintf(format, args...)})
		}
	}
	where := AttemptPath(done.Cell, done.Number) + "/" + faultLog
	content, err := readFile(fsys, where, maxFaultLog)
	if err != nil {
		flaw("", "%s: %v", where, err)
		return flaws
	}
	log, err := readFaultLog(content)
	if err != nil {
		flaw("", "%s: %v", where, err)
		return flaws
	}
	for i, f := range test.Faults {
		for _, node := range f.Nodes {
			key := faultKey{i, node}
			opened, isOpen := a.opened[key]
			switch {
			case !isOpen:
				flaw(node, "fault %d (%s) was never injected: the journal has no %s", i, f.Kind, EventFaultOpen)
			case !a.closed[key]:
				flaw(node, "fault %d (%s) was never undone: the journal has no %s", i, f.Kind, EventFaultClose)
			default:
				if why := log[key].missing(f, opened.Undo, done.Start); why != "" {
					flaw(node, "%s: fault %d (%s) %s", where, i, f.Kind, why)
				}
			}
		}
	}
	return flaws
}

// faultTimes is what the log says of one fault on one node.
type faultTimes struct {
	injected, undone time.Time
	failed           string
}

// missing says how the log falls short of the fault, or nothing.
func (t faultTimes) missing(f Fault, undo []string, start time.Time) string {
	switch {
	case t.failed != "":
		return "went wrong: " + t.failed
	case t.injected.IsZero():
		return "has no line that it was injected"
	case t.injected.Before(start.Add(f.After.Std() - faultEarly)):
		return fmt.Sprintf("was injected at %s, and was due %s after %s", t.injected, f.After, start)
	case len(undo) == 0:
		return ""
	case t.undone.IsZero():
		return "has no line that it was undone"
	case t.undone.Sub(t.injected) < f.For.Std()-faultEarly:
		return fmt.Sprintf("was in effect for %s, and the plan wants %s", t.undone.Sub(t.injected), f.For)
	}
	return ""
}

func readFaultLog(content []byte) (map[faultKey]faultTimes, error) {
	log := map[faultKey]faultTimes{}
	for n := 1; len(content) > 0; n++ {
		line, rest, whole := bytes.Cut(content, []byte{'\n'})
		content = rest
		var event FaultEvent
		err := DecodeStrict(line, &event)
		if err == nil && !whole {
			err = errors.New("the line has no end")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		key := faultKey{event.Fault, event.Node}
		times := log[key]
		switch event.Event {
		case "injected":
			times.injected = event.Time
		case "undone":
			times.undone = event.Time
		case "error":
			times.failed = event.Error
			if times.failed == "" {
				times.failed = "the log does not say how"
			}
		}
		log[key] = times
	}
	return log, nil
}
