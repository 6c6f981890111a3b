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
// An attempt that says itself, by a problem that no measurement mends, that a
// fault was not carried out is never a pass, so there is nothing to add.
func (a *attemptHistory) checkFaults(test Test, done Attempt, fsys fs.FS) []Problem {
	if len(test.Faults) == 0 || done.Cut || slices.ContainsFunc(done.Problems, admitsFault) {
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
				flaw(node, "fault %d (%s) was never injected: the journal has no %s during the attempt", i, f, EventFaultOpen)
			case !sameFault(opened.Fault, f):
				flaw(node, "fault %d (%s) is another one in the journal than in the plan", i, f)
			case !a.closed[key]:
				flaw(node, "fault %d (%s) was never undone: the journal has no %s during the attempt", i, f, EventFaultClose)
			default:
				if why := log[key].missing(f, opened.Undo, done); why != "" {
					flaw(node, "%s: fault %d (%s) %s", where, i, f, why)
				}
			}
		}
	}
	return flaws
}

func admitsFault(p Problem) bool {
	return p.Step == faultStep && p.Class.Known() && p.Class != ClassOK && !p.Class.ProvedByMeasure()
}

func sameFault(recorded *Fault, planned Fault) bool {
	if recorded == nil {
		return false
	}
	a, err := EncodeLine(recorded)
	if err != nil {
		return false
	}
	b, err := EncodeLine(planned)
	return err == nil && bytes.Equal(a, b)
}

// faultTimes is what the log says of one fault on one node.
type faultTimes struct {
	injected, undone FaultEvent
	failed           string
}

// missing says how the log falls short of the fault, or nothing.
func (t faultTimes) missing(f Fault, undo []string, a Attempt) string {
	injected, undone := seconds(t.injected.At), seconds(t.undone.At)
	lasted := a.End.Sub(a.Start)
	switch {
	case t.failed != "":
		return "went wrong: " + t.failed
	case t.injected.Event == "":
		return "has no line that it was injected"
	case injected < f.After.Std()-faultEarly:
		return fmt.Sprintf("was injected %s after the attempt began, and was due after %s", injected, f.After)
	case !beside(t.injected, a) || injected > lasted+clockSlack:
		return fmt.Sprintf("was injected at %s, which is not %s after the attempt began, or not before it ended", t.injected.Time, injected)
	case len(undo) == 0:
		return ""
	case t.undone.Event == "":
		return "has no line that it was undone"
	case !beside(t.undone, a) || undone > lasted+clockSlack:
		return fmt.Sprintf("was undone at %s, which is not %s after the attempt began, or not before it ended", t.undone.Time, undone)
	case undone-injected < f.For.Std()-faultEarly:
		return fmt.Sprintf("was in effect for %s, and the plan wants %s", undone-injected, f.For)
	}
	return ""
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// beside reports whether the two clocks of an event agree.
func beside(e FaultEvent, a Attempt) bool {
	return e.Time.Sub(a.Start.Add(seconds(e.At))).Abs() <= clockSlack
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
			times.injected = event
		case "undone":
			times.undone = event
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
