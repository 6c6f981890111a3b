package checks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// failover asks a service for writes all the time, from a host that is not
// broken, while the test's faults break another.
type failover struct{}

type failoverParams struct {
	Probe    failoverProbe     `json:"probe"`
	Settle   evidence.Duration `json:"settle"`
	Accepted []string          `json:"accepted"`
}

type failoverProbe struct {
	Period  evidence.Duration `json:"period"`
	Timeout evidence.Duration `json:"timeout"`
	Write   []string          `json:"write"`
	Read    []string          `json:"read"`
	From    string            `json:"from"`
}

const (
	recordMark     = "{record}"
	probeStep      = "probe"
	nonceStep      = "nonce"
	readBeforeStep = "read-before"
	readStep       = "read"
	acceptedBefore = "accepted-before"
	acceptedAfter  = "accepted-after"

	// minGoodProbes must stand before the first injection and after the last
	// undo, or the probe was not shown to work.
	minGoodProbes = 10
)

func (failover) Spec() Spec {
	return Spec{
		Name: "failover",
		Doc: "Writes a numbered record through the service every period, from a host that no fault breaks, while the faults of the test are injected and undone; " +
			"then reads every record back. An outage is the longest time without an acknowledged write. " +
			"The write command must exit with 0 only when the service has acknowledged the record; the read command prints one record a line. " +
			"A test needs at least one fault block.",
		Version: 1,
		Scopes:  []evidence.Scope{evidence.ScopeFleet},
		Loads:   []string{"storage", "fabric"},
		Needs:   []evidence.Capability{evidence.CapExec},
		Params: []evidence.Param{
			{Name: "probe", Type: evidence.ParamBlock, Required: true, Doc: "What is asked of the service.", Nested: []evidence.Param{
				{Name: "period", Type: evidence.ParamDuration, Default: "1s", Doc: "The time between two writes, and so the resolution of outage."},
				{Name: "timeout", Type: evidence.ParamDuration, Default: "10s", Doc: "A write that takes longer is ended and has failed."},
				{Name: "write", Type: evidence.ParamArgv, Required: true, Doc: "The command that writes one record; " + recordMark + " in its arguments stands for it. There is no shell."},
				{Name: "read", Type: evidence.ParamArgv, Required: true, Doc: "The command that prints every record, one a line."},
				{Name: "from", Type: evidence.ParamString, Doc: "The node that probes; by default the first of the fleet that no fault breaks."},
			}},
			{Name: "settle", Type: evidence.ParamDuration, Default: "10s", Doc: "How long the probe goes on after the last fault was undone."},
			{Name: "accepted", Type: evidence.ParamArgv, Doc: "A command whose standard output must be the same before and after on every node that a fault breaks: the node's accepted state."},
		},
		Validate: func(p json.RawMessage) error {
			params, err := readFailoverParams(p)
			if err != nil {
				return err
			}
			return params.validate()
		},
		Metrics: func(p json.RawMessage) []Metric {
			params, err := readFailoverParams(p)
			if err != nil {
				return nil
			}
			return params.metrics()
		},
		Facts: func(json.RawMessage) []FactSpec { return nil },
		Subjects: func(_ evidence.Fleet, nodes []string, _ evidence.Scope, _ string, _ json.RawMessage) []evidence.Subject {
			if len(nodes) == 0 {
				return nil
			}
			return []evidence.Subject{evidence.SubjectFleet}
		},
	}
}

func readFailoverParams(p json.RawMessage) (failoverParams, error) {
	var params failoverParams
	if err := evidence.DecodeStrict(p, &params); err != nil {
		return failoverParams{}, fmt.Errorf("parameters of failover: %w", err)
	}
	return params, nil
}

func (p failoverParams) validate() error {
	probe := p.Probe
	switch {
	case probe.Period.Std() < 10*time.Millisecond:
		return fmt.Errorf("probe period is %s: give at least 10ms", probe.Period)
	case probe.Timeout < probe.Period:
		return fmt.Errorf("probe timeout is %s and period %s: a write may take at least a period", probe.Timeout, probe.Period)
	case len(probe.Write) == 0 || probe.Write[0] == "":
		return errors.New("probe write is empty: name a command")
	case !slices.ContainsFunc(probe.Write[1:], func(arg string) bool { return strings.Contains(arg, recordMark) }):
		return fmt.Errorf("probe write does not have %s in its arguments, so every record would be the same", recordMark)
	case len(probe.Read) == 0 || probe.Read[0] == "":
		return errors.New("probe read is empty: name a command")
	case len(p.Accepted) > 0 && p.Accepted[0] == "":
		return errors.New("accepted names no command")
	}
	return nil
}

func (p failoverParams) metrics() []Metric {
	level := string(evidence.SubjectFleet)
	period := p.Probe.Period.Std().Seconds()
	metrics := []Metric{
		{Name: "outage", Unit: "s", Level: level, Accumulates: true, Resolution: period,
			Doc: "The longest time from the end of one acknowledged write to the end of the next; without a fault it is about one period."},
		{Name: "return_to_service", Unit: "s", Level: level, Resolution: period,
			Doc: "From the start of the first injection to the end of the first acknowledged write after the last failed one."},
		{Name: "probes", Unit: "1", Level: level, Resolution: 1, Doc: "The writes that were tried."},
		{Name: "failed_probes", Unit: "1", Level: level, Accumulates: true, Resolution: 1, Doc: "The writes that were not acknowledged."},
		{Name: "lost_records", Unit: "1", Level: level, Accumulates: true, Resolution: 1, Doc: "The records that were acknowledged and were not there when read back."},
		{Name: "wrong_records", Unit: "1", Level: level, Accumulates: true, Resolution: 1, Doc: "The lines read back that were never written in this attempt, or are there more than once."},
	}
	if len(p.Accepted) > 0 {
		metrics = append(metrics, Metric{Name: "mismatches", Unit: "1", Level: level, Resolution: 1,
			Doc: "The broken nodes whose accepted state was another one afterwards."})
	}
	return metrics
}

// broken are the nodes that a test's faults break, in the order of the faults.
func broken(faults []evidence.Fault) []string {
	var nodes []string
	for _, fault := range faults {
		for _, node := range fault.Nodes {
			if !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}

// prober is the node that probes.
func (p failoverParams) prober(fleet evidence.Fleet, faults []evidence.Fault) (string, error) {
	victims := broken(faults)
	if p.Probe.From != "" {
		switch {
		case slices.Contains(victims, p.Probe.From):
			return "", fmt.Errorf("probe from %q: a fault breaks this node, so the probe could not tell its own loss from an outage", p.Probe.From)
		case !slices.Contains(fleet.NodeNames(), p.Probe.From):
			return "", fmt.Errorf("probe from %q: the fleet has no such node", p.Probe.From)
		}
		return p.Probe.From, nil
	}
	for _, node := range fleet.NodeNames() {
		if !slices.Contains(victims, node) {
			return node, nil
		}
	}
	return "", errors.New("every node of the fleet is broken by a fault: nobody is left to probe from")
}

// recordText is the record of probe n: its number and eight hex digits that
// nobody else would write, bound to this attempt by its nonce.
func recordText(test, nonce string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d\n", test, nonce, n))
	return fmt.Sprintf("%06d-%s", n, hex.EncodeToString(sum[:4]))
}

// planned checks what can be known before anything is broken.
func (p failoverParams) planned(test evidence.Test) error {
	if len(test.Faults) == 0 {
		return errors.New("the test has no fault block: nothing would be broken")
	}
	for i, fault := range test.Faults {
		if need := (minGoodProbes + 2) * p.Probe.Period.Std(); fault.After.Std() < need {
			return fmt.Errorf("fault %d comes after %s: %d probes every %s need %s before it, so raise after or lower period", i, fault.After, minGoodProbes, p.Probe.Period, need)
		}
	}
	return nil
}

func (failover) Drive(ctx context.Context, b Bench) error {
	var params failoverParams
	if err := b.Params(&params); err != nil {
		return err
	}
	test := b.Test()
	if err := params.planned(test); err != nil {
		return &evidence.Problem{Class: evidence.ClassNotRun, Detail: err.Error()}
	}
	from, err := params.prober(b.Fleet(), test.Faults)
	if err != nil {
		return &evidence.Problem{Class: evidence.ClassNotRun, Detail: err.Error()}
	}
	nonce := newMark()
	if _, err := b.Exec(ctx, nonceStep, Command{Node: from, Argv: params.argv(nonceStep, nonce, "")}); err != nil {
		return err
	}
	if _, err := b.Exec(ctx, readBeforeStep, Command{Node: from, Argv: params.argv(readBeforeStep, nonce, "")}); err != nil {
		return err
	}

	var asked atomic.Int64 // probes begun
	stop := make(chan struct{})
	var probing error
	var group sync.WaitGroup
	group.Go(func() {
		probing = b.Probe(ctx, probeStep, from, params.Probe.Period.Std(), func(n int) (Command, bool) {
			select {
			case <-stop:
				return Command{}, false
			default:
			}
			asked.Store(int64(n) + 1)
			return Command{
				Node: from, Argv: params.argv(probeStep, nonce, recordText(test.Name, nonce, n)), Deadline: params.Probe.Timeout.Std(),
			}, true
		})
	})
	err = params.duringFaults(ctx, b, &asked)
	close(stop)
	group.Wait()
	err = errors.Join(err, probing)
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	_, reading := b.Exec(ctx, readStep, Command{Node: from, Argv: params.argv(readStep, nonce, "")})
	err = errors.Join(err, reading)
	if len(params.Accepted) > 0 {
		err = errors.Join(err, b.ExecAll(ctx, acceptedAfter, broken(test.Faults), params.acceptedCommand(acceptedAfter)))
	}
	return err
}

// duringFaults returns when the probe may stop.
func (p failoverParams) duringFaults(ctx context.Context, b Bench, asked *atomic.Int64) error {
	if len(p.Accepted) > 0 {
		if err := b.ExecAll(ctx, acceptedBefore, broken(b.Test().Faults), p.acceptedCommand(acceptedBefore)); err != nil {
			return err
		}
	}
	select {
	case <-b.Faults():
	case <-ctx.Done():
		return nil
	}
	settled := time.Now().Add(p.Settle.Std())
	enough := asked.Load() + minGoodProbes + 2
	return b.Wait(ctx, "the probe to settle", p.Probe.Period.Std(), func(context.Context) (bool, error) {
		return !time.Now().Before(settled) && asked.Load() >= enough, nil
	})
}

func (p failoverParams) acceptedCommand(step string) func(node string) Command {
	return func(node string) Command { return Command{Node: node, Argv: p.argv(step, "", "")} }
}

// argv is what a step of the attempt with nonce runs, and the probe for
// record; nil for a step that is none.
func (p failoverParams) argv(step, nonce, record string) []string {
	switch step {
	case nonceStep:
		return []string{"echo", nonce}
	case readBeforeStep, readStep:
		return p.Probe.Read
	case probeStep:
		return substitute(p.Probe.Write, recordMark, record)
	case acceptedBefore, acceptedAfter:
		return p.Accepted
	}
	return nil
}

const (
	nonceMark  = "{nonce}"
	nonceWord  = `[0-9a-f]{16}`
	firstWrite = `000000-[0-9a-f]{8}`
)

// asked is what a step must have run, where nonce is what the nonce step
// printed: empty if that is not known, so that only the forms of the nonce
// and of the first record are.
func (p failoverParams) asked(test, nonce, step string) commandLine {
	switch {
	case step == nonceStep:
		return commandLine{argv: p.argv(step, nonceMark, ""), mark: nonceMark, form: nonceWord}
	case step == probeStep && nonce == "":
		return commandLine{argv: p.argv(step, "", recordMark), mark: recordMark, form: firstWrite}
	}
	return exactly(p.argv(step, nonce, recordText(test, nonce, 0)))
}

func (failover) Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	params, err := readFailoverParams(c.Test.Params)
	if err != nil {
		return nil, nil, err
	}
	if err := params.validate(); err != nil {
		return nil, nil, err
	}
	nonce := ""
	asked := func(step, _ string) commandLine { return params.asked(c.Test.Name, nonce, step) }
	m := failoverMeasure{newCollector(c, raw, asked), params, params.metrics()}
	from, err := params.prober(c.Fleet, c.Test.Faults)
	if err := errors.Join(params.planned(c.Test), err); err != nil {
		m.report("", "", evidence.ClassNotRun, "%v", err)
		return m.result()
	}
	window, closed := m.window()
	nonce = m.nonce(from)
	probed, ok := m.probed(from, window, closed)
	if ok && nonce != "" {
		m.readBack(from, nonce, probed)
	}
	if len(params.Accepted) > 0 {
		m.accepted(window, closed)
	}
	return m.result()
}

type failoverMeasure struct {
	*collector
	params  failoverParams
	metrics []Metric
}

func (m failoverMeasure) number(metric string, r reading) {
	m.measure(metricNamed(m.metrics, metric), evidence.SubjectFleet, nil, r)
}

// faultWindow is when the faults were open: from the first injection's start
// to the last undo's end.
type faultWindow struct {
	start, end float64   // seconds since the attempt began
	opened     time.Time // start, by the clock of the steps
}

// window demands that every fault was injected and undone on every node.
func (m failoverMeasure) window() (faultWindow, bool) {
	events, ok := m.faultEvents()
	if !ok {
		return faultWindow{}, false
	}
	var window faultWindow
	type key struct {
		fault int
		node  string
		event string
	}
	seen := make(map[key]float64)
	for _, e := range events {
		if e.Event == "error" || e.Error != "" {
			m.report(e.Node, "", evidence.ClassNotRun, "fault %d: %s", e.Fault, token(e.Error))
			ok = false
			continue
		}
		seen[key{e.Fault, e.Node, e.Event}] = e.At
		if e.Event == "inject_start" && (window.opened.IsZero() || e.At < window.start) {
			window.start, window.opened = e.At, e.Time
		}
		if e.Event == "undone" {
			window.end = max(window.end, e.At)
		}
	}
	for i, fault := range m.view.Test.Faults {
		for _, node := range fault.Nodes {
			last := 0.0
			for _, event := range []string{"inject_start", "injected", "undone"} {
				at, there := seen[key{i, node, event}]
				if !there {
					class, why := m.absent(node)
					m.report(node, "", class, "%s does not say that fault %d was %s%s", faultsFile, i, event, why)
					ok = false
					break
				}
				if at < last {
					m.report(node, "", evidence.ClassUnparsable, "%s has fault %d %s before its turn", faultsFile, i, event)
					ok = false
					break
				}
				last = at
			}
		}
	}
	return window, ok
}

// probeRun is what the probe showed.
type probeRun struct {
	acknowledged []int
	count        int
}

// probed reduces the probe's lines in one pass. It returns false if they are
// no ground to judge what was read back.
func (m failoverMeasure) probed(from string, window faultWindow, closed bool) (probeRun, bool) {
	period := m.params.Probe.Period.Std()
	injected, undone := window.start, window.end
	// The runner lets a turn pass after a write that overran.
	patience := (period + time.Second).Seconds()

	var run probeRun
	var instrument *evidence.Problem
	blame := func(class evidence.Class, format string, args ...any) {
		if instrument == nil {
			instrument = &evidence.Problem{Node: from, Step: probeStep, Class: class, Detail: fmt.Sprintf(format, args...)}
		}
	}
	failed, before, after := 0, 0, 0
	good, back, end := math.NaN(), math.NaN(), math.NaN() // ends of the last good probe, of the first good one since the last failure, of the last probe
	start := math.NaN()
	outage, outageLine := 0.0, 1
	whole := m.probes(probeStep, from, probeSlack(period), func(line int, p ProbeLine) {
		run.count++
		if due := math.Max(start+period.Seconds(), end); p.Start-due > patience {
			blame(evidence.ClassUnparsable, "probe %d began %.3f s late: the gap is the probe's own", p.N, p.Start-due)
		}
		start, end = p.Start, p.End
		switch {
		case p.Class == evidence.ClassCut && m.view.Attempt.Cut:
			return // neither an answer nor the lack of one
		case ruledOut(p.Class):
			blame(p.Class, "probe %d was not made: %s", p.N, token(p.Stderr))
			return
		case p.Class == evidence.ClassOK && p.Code == nil:
			blame(evidence.ClassUnparsable, "probe %d ended without an exit status", p.N)
			return
		case p.Class != evidence.ClassOK || *p.Code != 0:
			failed++
			back = math.NaN()
			return
		}
		run.acknowledged = append(run.acknowledged, p.N)
		if gap := p.End - good; gap > outage { // false for the first
			outage, outageLine = gap, line
		}
		good = p.End
		if math.IsNaN(back) && p.Start >= injected {
			back = p.End
		}
		switch {
		case p.End <= injected:
			before++
		case p.Start >= undone:
			after++
		}
	})
	source := func(format string, args ...any) string {
		return evidence.StepDir(probeStep, from) + "/stdout:" + fmt.Sprintf(format, args...)
	}
	if instrument != nil {
		m.problems = append(m.problems, instrument)
		return run, false
	}
	if run.count == 0 {
		return run, false
	}
	all := source("1-%d", run.count)
	// A service that has not come back has an outage of at least so long;
	// that is no result unless it is already too much.
	if open := end - good; open > outage {
		outage, outageLine = open, run.count
	}
	if len(run.acknowledged) > 0 {
		m.number("outage", reading{value: outage, source: source("%d", outageLine)})
		m.number("failed_probes", reading{value: float64(failed), source: all})
	}
	if !whole {
		return run, false
	}
	m.number("probes", reading{value: float64(run.count), source: all})
	switch {
	case !closed:
		return run, true
	case before < minGoodProbes:
		m.report(from, probeStep, evidence.ClassNotRun, "%d good probes before the first injection, %d are needed to show that the probe worked", before, minGoodProbes)
		return run, true
	case len(run.acknowledged) == 0:
		m.report(from, probeStep, evidence.ClassNotRun, "no write was acknowledged at all")
		return run, true
	case after < minGoodProbes:
		m.report(from, probeStep, evidence.ClassNotRun, "%d good probes after the last undo, %d are needed to show that the service returned: the outage may be longer", after, minGoodProbes)
	}
	if math.IsNaN(back) {
		m.number("return_to_service", reading{missing: "(no acknowledged write after the last failed one)", source: all})
	} else {
		m.number("return_to_service", reading{value: back - injected, source: all})
	}
	return run, true
}

var nonceForm = regexp.MustCompile(`^` + nonceWord + `\n$`)

// nonce is what binds the records to the attempt, as its step was asked to
// print it; empty if that was not read.
func (m failoverMeasure) nonce(from string) string {
	out, ok := m.step(nonceStep, from)
	if !ok {
		return ""
	}
	if !nonceForm.Match(out.stdout) {
		m.report(from, nonceStep, evidence.ClassOutputCut, "stdout is not the nonce of the records: %q", token(string(out.stdout)))
		return ""
	}
	nonce := strings.TrimSuffix(string(out.stdout), "\n")
	if asked := out.exit.Argv[1]; asked != nonce {
		m.report(from, nonceStep, evidence.ClassUnparsable, "stdout is the nonce %s and %s was to be printed", nonce, asked)
		return ""
	}
	return nonce
}

// readBack compares the records that were acknowledged with those that are
// there. What was there before this attempt is left out.
func (m failoverMeasure) readBack(from, nonce string, run probeRun) {
	old, ok := m.recordsBefore(from)
	if !ok {
		return
	}
	now, ok := m.step(readStep, from)
	if !ok || !m.wholeLines(now, "stdout", now.stdout) {
		return
	}
	earlier := make(map[string]int)
	for line := range strings.Lines(string(old.stdout)) {
		earlier[record(line)]++
	}
	sent := make(map[string]int, run.count)
	for n := range run.count {
		sent[recordText(m.view.Test.Name, nonce, n)] = n
	}
	there := make(map[int]bool)
	wrong, firstWrong, lines := 0, 0, 0
	for line := range strings.Lines(string(now.stdout)) {
		lines++
		text := record(line)
		if text == "" {
			continue
		}
		n, ours := sent[text]
		switch {
		case ours && !there[n]:
			there[n] = true
			continue
		case !ours && earlier[text] > 0:
			earlier[text]--
			continue
		}
		if wrong++; wrong == 1 {
			firstWrong = lines
		}
	}
	lost := reading{source: now.at("1-%d", max(lines, 1))}
	for _, n := range run.acknowledged {
		if !there[n] {
			if lost.value++; lost.value == 1 {
				lost.source += fmt.Sprintf(" (the first lost is %s)", recordText(m.view.Test.Name, nonce, n))
			}
		}
	}
	m.number("lost_records", lost)
	source := now.at("1-%d", max(lines, 1))
	if wrong > 0 {
		source = now.at("%d", firstWrong)
	}
	m.number("wrong_records", reading{value: float64(wrong), source: source})
}

// recordsBefore reads what was there before the first record. There may be
// nothing to read, and a status and a complaint that say so. A line that this
// hides is a wrong record later on.
func (m failoverMeasure) recordsBefore(from string) (stepOutput, bool) {
	codes := make([]int, 256)
	for i := range codes {
		codes[i] = i
	}
	old, ok := m.step(readBeforeStep, from, codes...)
	if !ok || !m.wholeLines(old, "stdout", old.stdout) || !m.wholeLines(old, "stderr", old.stderr) {
		return old, false
	}
	if code := *old.exit.Code; code != 0 && len(old.stderr) == 0 {
		m.report(from, readBeforeStep, evidence.ClassExit, "exit status %d and not a word on stderr: it shows neither that there are records nor that there are none", code)
		return old, false
	}
	return old, true
}

func record(line string) string { return strings.TrimRight(line, "\r\n") }

// accepted compares the state of the broken nodes before and after.
func (m failoverMeasure) accepted(window faultWindow, closed bool) {
	mismatches := reading{}
	for _, node := range broken(m.view.Test.Faults) {
		before, ok := m.state(acceptedBefore, node)
		if !ok {
			return
		}
		if closed && before.exit.End.After(window.opened) {
			m.report(node, acceptedBefore, evidence.ClassNotRun, "the accepted state was read after the injection began: raise after")
			return
		}
		after, ok := m.state(acceptedAfter, node)
		if !ok {
			return
		}
		if mismatches.source == "" {
			mismatches.source = after.at("1")
		}
		if string(before.stdout) != string(after.stdout) {
			if mismatches.value++; mismatches.value == 1 {
				mismatches.source = after.at("1")
			}
		}
	}
	if closed {
		m.number("mismatches", mismatches)
	}
}

func (m failoverMeasure) state(step, node string) (stepOutput, bool) {
	out, ok := m.step(step, node)
	if !ok {
		return out, false
	}
	if len(out.stdout) == 0 {
		m.report(node, step, evidence.ClassOutputCut, "stdout is empty: an empty state is equal to any other")
		return out, false
	}
	return out, m.wholeLines(out, "stdout", out.stdout)
}
