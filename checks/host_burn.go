package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// hostBurn keeps the processors and the memory of a node under load with
// stress-ng and samples whether they were.
type hostBurn struct{}

type burnParams struct {
	Stressors []string          `json:"stressors"`
	Workers   int               `json:"workers"`
	Method    string            `json:"method"`
	VMBytes   byteSize          `json:"vm_bytes"`
	LoadFloor float64           `json:"load_floor"`
	Sample    evidence.Duration `json:"sample"`
	KernelLog bool              `json:"kernel_log"`
}

var burnStressors = []string{"cpu", "matrix", "vm"}

const (
	burnVersionStep = "version"
	burnStep        = "burn"
)

var burnFacts = []FactSpec{
	{Name: "stress_ng_version", Level: "node", Doc: "What stress-ng --version printed, up to the compiler."},
}

func (hostBurn) Spec() Spec {
	return Spec{
		Name: "host_burn",
		Doc: "Runs stress-ng on every node for the test's duration and samples /proc/stat meanwhile, so that hours_under_load counts load that was seen and not load that was asked for. " +
			"stress-ng verifies what it computes; a stressor that found a wrong result, or died, is a failed one. " +
			"With kernel_log the check marks the kernel log at both ends and counts what the kernel logged as an error between.",
		Version: 1,
		Scopes:  []evidence.Scope{evidence.ScopeNode},
		Loads:   []string{"cpu"},
		Needs:   []evidence.Capability{evidence.CapExec},
		Params: []evidence.Param{
			{Name: "stressors", Type: evidence.ParamStrings, Default: []string{"cpu"}, Doc: "What runs at once: of " + strings.Join(burnStressors, ", ") + "."},
			{Name: "workers", Type: evidence.ParamNumber, Whole: true, Default: 0, Doc: "Workers of each stressor; 0 means one for each CPU."},
			{Name: "method", Type: evidence.ParamString, Default: "all", Doc: "The cpu stressor's method, as stress-ng --cpu-method names it."},
			{Name: "vm_bytes", Type: evidence.ParamBytes, Default: "256MiB", Doc: "Memory of each vm worker."},
			{Name: "load_floor", Type: evidence.ParamNumber, Unit: "%", Default: 90, Doc: "A sample interval counts as under load when the CPUs were busy at least so much."},
			{Name: "sample", Type: evidence.ParamDuration, Sampling: true, Default: "1s", Doc: "The time between two samples."},
			{Name: "kernel_log", Type: evidence.ParamBool, Default: false, Doc: "Whether to mark and read the kernel log; it needs root, and a ring that holds the whole test."},
		},
		Validate: func(p json.RawMessage) error {
			params, err := readBurnParams(p)
			if err != nil {
				return err
			}
			return params.validate()
		},
		Metrics: func(p json.RawMessage) []Metric {
			params, err := readBurnParams(p)
			if err != nil {
				return nil
			}
			return params.metrics()
		},
		Facts: func(json.RawMessage) []FactSpec { return slices.Clone(burnFacts) },
		Subjects: func(_ evidence.Fleet, nodes []string, _ evidence.Scope, _ string, _ json.RawMessage) []evidence.Subject {
			return nodeSubjects(nodes)
		},
	}
}

func readBurnParams(p json.RawMessage) (burnParams, error) {
	var params burnParams
	if err := evidence.DecodeStrict(p, &params); err != nil {
		return burnParams{}, fmt.Errorf("parameters of host_burn: %w", err)
	}
	return params, nil
}

var burnMethod = regexp.MustCompile(`^[a-z0-9]+$`)

func (p burnParams) validate() error {
	if len(p.Stressors) == 0 {
		return fmt.Errorf("stressors is empty: choose of %s", strings.Join(burnStressors, ", "))
	}
	for i, s := range p.Stressors {
		if !slices.Contains(burnStressors, s) || slices.Contains(p.Stressors[:i], s) {
			return fmt.Errorf("stressors has %q unknown or twice: choose of %s", s, strings.Join(burnStressors, ", "))
		}
	}
	switch {
	case p.Workers < 0 || p.Workers > 65536:
		return fmt.Errorf("workers is %d: give 0 to 65536", p.Workers)
	case !burnMethod.MatchString(p.Method):
		return fmt.Errorf("method is %q: name one of stress-ng --cpu-method, or \"all\"", p.Method)
	case p.VMBytes < 1<<20:
		return errors.New("vm_bytes is less than 1MiB")
	case !(p.LoadFloor > 0 && p.LoadFloor <= 100):
		return fmt.Errorf("load_floor is %g: give a share above 0 and up to 100", p.LoadFloor)
	case p.Sample.Std() < 100*time.Millisecond:
		return fmt.Errorf("sample is %s: give at least 100ms", p.Sample)
	}
	return nil
}

func (p burnParams) metrics() []Metric {
	metrics := []Metric{
		{Name: "hours_under_load", Unit: "h", Level: "node", Accumulates: true, Resolution: p.Sample.Std().Hours(),
			Doc: "The time that the samples show the CPUs busy at least load_floor, by the node's own uptime; a gap between samples does not count."},
		{Name: "cpu_busy_min", Unit: "%", Level: "node",
			Doc: "The least busy sample interval, apart from the first and the last two periods of the burn."},
		{Name: "failed_stressors", Unit: "1", Level: "node", Accumulates: true, Resolution: 1,
			Doc: "The workers that stress-ng found failed: a wrong result, or dead."},
		{Name: "bogo_ops_rate", Unit: "1/s", Level: "node", Labels: []Label{{Name: "stressor", Values: slices.Clone(p.Stressors)}},
			Doc: "stress-ng's operations a second of real time of all workers of a stressor: a number for comparing siblings with the same release and method, and for nothing else."},
	}
	if p.KernelLog {
		metrics = append(metrics, Metric{Name: "kernel_errors", Unit: "1", Level: "node", Accumulates: true, Resolution: 1,
			Doc: "Lines that the kernel logged with level err or worse during the burn."})
	}
	return metrics
}

// seconds is how long the stressors are asked to run: a little longer than
// the test's duration, so that the first and the last sample interval do not
// keep hours_under_load below it.
func (p burnParams) seconds(duration time.Duration) int {
	margin := min(3*p.Sample.Std()+2*time.Second, duration/4)
	whole := int((duration + time.Second - 1) / time.Second)
	return max(1, whole+int(margin/time.Second))
}

// argv is what a step of a test of duration runs on every node; nil for a
// step that is none.
func (p burnParams) argv(duration time.Duration, step string) []string {
	switch step {
	case burnVersionStep:
		return []string{"stress-ng", "--version"}
	case burnStep:
		return p.burnArgv(duration)
	case sampleStep:
		return []string{"head", "-v", "-n", "1", "/proc/stat", "/proc/uptime"}
	}
	return kernelArgv(step)
}

func (p burnParams) burnArgv(duration time.Duration) []string {
	argv := []string{"stress-ng"}
	for _, s := range p.Stressors {
		argv = append(argv, "--"+s, strconv.Itoa(p.Workers))
		switch s {
		case "cpu":
			argv = append(argv, "--cpu-method", p.Method)
		case "vm":
			argv = append(argv, "--vm-bytes", strconv.FormatUint(uint64(p.VMBytes), 10))
		}
	}
	return append(argv, "--verify", "--metrics-brief", "--timeout", strconv.Itoa(p.seconds(duration))+"s")
}

func (hostBurn) Drive(ctx context.Context, b Bench) error {
	var params burnParams
	if err := b.Params(&params); err != nil {
		return err
	}
	nodes, duration := b.Nodes(), b.Test().Duration.Std()
	if err := b.ExecAll(ctx, burnVersionStep, nodes, func(node string) Command {
		return Command{Node: node, Argv: params.argv(duration, burnVersionStep)}
	}); err != nil {
		return err
	}
	if params.KernelLog {
		if err := markKernel(ctx, b, markBeginStep, newMark()); err != nil {
			return err
		}
	}
	err := everywhere(nodes, func(node string) error { return burnNode(ctx, b, node, params) })
	if params.KernelLog && ctx.Err() == nil {
		err = errors.Join(err, markKernel(ctx, b, markEndStep, newMark()), readKernel(ctx, b))
	}
	return err
}

// burnNode samples from before the burn until after it.
func burnNode(ctx context.Context, b Bench, node string, params burnParams) error {
	test := b.Test()
	duration := test.Duration.Std()
	c := Command{Node: node, Argv: params.argv(duration, burnStep)}
	if test.Silence > 0 {
		// stress-ng prints nothing until it is done.
		c.Silence = max(test.Silence.Std(), time.Duration(params.seconds(duration))*time.Second+time.Minute)
	}
	sample := Command{Node: node, Argv: params.argv(duration, sampleStep)}
	return sampled(ctx, b, sample, params.Sample.Std(), func() error {
		_, err := b.Exec(ctx, burnStep, c)
		return err
	})
}

func (hostBurn) Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	params, err := readBurnParams(c.Test.Params)
	if err != nil {
		return nil, nil, err
	}
	if err := params.validate(); err != nil {
		return nil, nil, err
	}
	asked := func(step, _ string) commandLine { return exactly(params.argv(c.Test.Duration.Std(), step)) }
	m := burnMeasure{newCollector(c, raw, asked), params, params.metrics()}
	for _, node := range c.Nodes {
		m.version(node)
		burn, ended := m.burn(node)
		m.samples(node, burn, ended)
		if params.KernelLog {
			if count, ok := m.kernelErrors(node); ok {
				m.number(node, "kernel_errors", nil, count)
			}
		}
	}
	return m.result()
}

type burnMeasure struct {
	*collector
	params  burnParams
	metrics []Metric
}

func (m burnMeasure) number(node, metric string, labels map[string]string, r reading) {
	m.measure(metricNamed(m.metrics, metric), evidence.Subject(node), labels, r)
}

var stressVersion = regexp.MustCompile(`^(stress-ng, version \d+\.\d+[^ ]*) .*\n$`)

func (m burnMeasure) version(node string) {
	out, ok := m.step(burnVersionStep, node)
	if !ok {
		return
	}
	match := stressVersion.FindSubmatch(out.stdout)
	if match == nil {
		m.report(node, out.step, evidence.ClassOutputCut, "stdout is not one line such as \"stress-ng, version 0.15.06 (…)\": %q", token(string(out.stdout)))
		return
	}
	m.fact("stress_ng_version", node, string(match[1]), "", out.at("1"))
}

var (
	stressLine    = regexp.MustCompile(`^stress-ng: ([a-z]+): +\[\d+\] (.*)$`)
	stressClosing = regexp.MustCompile(`^(un)?successful run completed in `)
	// stressor, operations, real, user and system time, operations a second
	// of real and of CPU time, and perhaps more columns. Between them anything
	// but a letter counts as a value, so that a row with "nan" is still a row.
	stressRow    = regexp.MustCompile(`^([a-z0-9-]+) +(\S+) +(\S+) +\S+ +\S+ +(\S+) +[^a-z (]\S*( +[0-9.]+)*$`)
	stressFailed = regexp.MustCompile(`^([a-z0-9-]+)(?: instance (\d+))?\b`)
	// Up to 0.15 the process comes first and then the stressor; one line is
	// one worker.
	stressDied = regexp.MustCompile(`^(?:process |[a-z0-9-]+: ).*terminated with an error`)
	// How many workers ended how, since 0.15.07: "failed: 1: cpu (1)".
	stressSummary = regexp.MustCompile(`^(skipped|failed|metrics untrustworthy): (\d{1,9})(?:$|:)`)
	// A line of the table of metrics, or of more about them, which 0.13 prints
	// after the closing line.
	stressMetric = regexp.MustCompile(`^(?:stressor +bogo ops| +\(secs\)|(?:` + strings.Join(burnStressors, "|") + `) +[0-9])`)
)

// burnRow is the rate of a stressor and for how long it ran, in seconds.
type burnRow struct {
	reading
	real float64
}

// burnLog is stress-ng's log, from whichever stream it is on: releases before
// 0.15.08 use stderr, newer ones stdout. Failures are on either.
type burnLog struct {
	name    string // stdout or stderr
	rows    map[string]burnRow
	failed  map[string]bool // the workers that it found failed
	died    map[string]bool // what it said of those that ended with an error
	summary map[string]int  // workers, by how they ended
	lines   int
	// closing is the word of the last line: successful, unsuccessful, or
	// empty where there is none.
	closing string
}

// failures is how many workers failed. One that found a wrong result is named
// by its instance, again by its process when it ends, and is one of those that
// are counted at last: so it is the largest of the three.
func (l burnLog) failures() int {
	return max(len(l.failed), len(l.died), l.summary["failed"])
}

func readBurnLog(name string, text []byte, source func(line int) string) burnLog {
	log := burnLog{
		name: name, rows: make(map[string]burnRow),
		failed: make(map[string]bool), died: make(map[string]bool), summary: make(map[string]int),
	}
	for line := range strings.Lines(string(text)) {
		log.lines++
		whole := strings.HasSuffix(line, "\n")
		match := stressLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if match == nil || !whole {
			log.closing = ""
			continue
		}
		kind, message := match[1], match[2]
		tells := kind == "metrc" || kind == "info"
		if !tells || !stressMetric.MatchString(message) {
			log.closing = ""
		}
		if kind == "fail" {
			// Without an instance one line is one failure of its stressor.
			if who := stressFailed.FindStringSubmatch(message); who != nil {
				log.failed[who[1]+" "+who[2]] = true
			}
		}
		if kind == "error" && stressDied.MatchString(message) {
			log.died[message] = true
		}
		if count := stressSummary.FindStringSubmatch(message); kind == "info" && count != nil {
			n, _ := strconv.Atoi(count[2]) // at most nine digits, by its pattern
			log.summary[count[1]] = max(log.summary[count[1]], n)
		}
		if closing := stressClosing.FindStringSubmatch(message); closing != nil {
			log.closing = closing[1] + "successful"
		}
		if row := stressRow.FindStringSubmatch(message); tells && row != nil && slices.Contains(burnStressors, row[1]) {
			r := burnRow{reading: reading{source: source(log.lines)}}
			var ops float64
			for _, field := range []struct {
				into *float64
				text string
			}{{&ops, row[2]}, {&r.real, row[3]}, {&r.value, row[4]}} {
				value, missing := parseNumber(field.text)
				if *field.into = value; missing != "" {
					r.missing = missing
				}
			}
			switch {
			case r.missing != "":
			case ops <= 0 || r.real <= 0 || r.value <= 0:
				r.missing = token(fmt.Sprintf("(%s operations in %s s)", row[2], row[3]))
			case differ(r.value*r.real, ops, 0.1) && r.real >= 1:
				r.missing = token(fmt.Sprintf("(%s a second for %s s is not %s)", row[4], row[3], row[2]))
			}
			if _, twice := log.rows[row[1]]; twice {
				r.missing = reportedTwice
			}
			log.rows[row[1]] = r
		}
	}
	return log
}

// burn reads stress-ng's result. It returns when the burn ran, as far as that
// is known, and whether it ran to its end.
func (m burnMeasure) burn(node string) (evidence.Exit, bool) {
	// 2: a stressor failed, 4: one is not implemented, 5: one was killed,
	// 6: one exited, 7: untrustworthy metrics (stress-ng's man page).
	out, ok := m.step(burnStep, node, 0, 2, 3, 4, 5, 6, 7)
	log, source := m.log(out)
	count := func(failures int) {
		m.number(node, "failed_stressors", nil, reading{value: float64(failures), source: source})
	}
	refuse := func(class evidence.Class, format string, args ...any) (evidence.Exit, bool) {
		m.report(node, burnStep, class, format, args...)
		if n := log.failures(); n > 0 {
			count(n) // what failed has failed, however the attempt ended
		}
		return out.exit, false
	}
	if !ok {
		if n := log.failures(); n > 0 {
			count(n)
		}
		return out.exit, false
	}
	code := *out.exit.Code
	// A run in which workers were skipped (3) or miscounted (7) is a
	// successful one to stress-ng, in all releases from 0.13 to 0.22.
	successful := code == 0 || code == 3 || code == 7
	switch {
	case log.closing == "":
		return refuse(evidence.ClassOutputCut, "stress-ng's log does not end with \"run completed\": it ended early or was cut")
	case successful != (log.closing == "successful"):
		return refuse(evidence.ClassUnparsable, "exit status %d does not go with a run that was %s", code, log.closing)
	case code == 3 || code == 4:
		return refuse(evidence.ClassExit, "exit status %d: a stressor could not run on this node", code)
	case log.summary["skipped"] > 0:
		return refuse(evidence.ClassExit, "stress-ng skipped workers (%d): a stressor could not run on this node", log.summary["skipped"])
	}
	failures := log.failures()
	if log.closing != "successful" {
		failures = max(failures, 1)
	}
	count(failures)

	// The command is asked for a little more than the test's duration, and the
	// runner may see its start late on a busy machine.
	asked := m.view.Test.Duration.Std()
	ran := out.exit.End.Sub(out.exit.Start)
	sound := true
	if ran < asked-asked/50 {
		m.report(node, burnStep, evidence.ClassUnparsable, "stress-ng ran %s of the %s asked", ran.Round(time.Millisecond), asked)
		sound = false
	}
	if n := log.summary["metrics untrustworthy"]; n > 0 || code == 7 {
		m.report(node, burnStep, evidence.ClassUnparsable, "stress-ng says that its metrics are not to be trusted (workers: %d, exit status %d)", n, code)
		return out.exit, false
	}
	for _, stressor := range m.params.Stressors {
		row, ok := log.rows[stressor]
		if !ok {
			m.report(node, burnStep, evidence.ClassUnparsable, "stress-ng printed no metrics of %s, so it did not run", stressor)
			continue
		}
		// Real time is the mean of the workers. On a busy node they start
		// late and end late, and the node may set its clock meanwhile.
		limit, odd := m.params.seconds(asked), ""
		switch {
		case row.missing != "":
		case row.real < 0.9*float64(limit)-1:
			odd = fmt.Sprintf("%g s of the %d s asked", row.real, limit)
		case row.real > 1.1*ran.Seconds()+1:
			odd = fmt.Sprintf("%g s in a command of %.1f s", row.real, ran.Seconds())
		}
		if odd != "" {
			row.missing = token("(ran " + odd + ")")
			if failures == 0 { // a worker that failed may end early
				m.report(node, burnStep, evidence.ClassUnparsable, "stress-ng ran %s for %s", stressor, odd)
				sound = false
			}
		}
		m.number(node, "bogo_ops_rate", map[string]string{"stressor": stressor}, row.reading)
	}
	return out.exit, sound
}

// log reads both streams. It is the one with the result, and has the failures
// of both; source is where these are.
func (m burnMeasure) log(out stepOutput) (log burnLog, source string) {
	read := func(name string, text []byte) burnLog {
		return readBurnLog(name, text, func(line int) string {
			return fmt.Sprintf("%s/%s:%d", evidence.StepDir(out.step, out.node), name, line)
		})
	}
	place := func(l burnLog) string {
		return fmt.Sprintf("%s/%s:1-%d", evidence.StepDir(out.step, out.node), l.name, l.lines)
	}
	log, other := read("stdout", out.stdout), read("stderr", out.stderr)
	if log.closing == "" && len(log.rows) == 0 {
		log, other = other, log
	}
	source = place(log)
	if other.failures() > 0 {
		source += " (and " + place(other) + ")"
	}
	maps.Copy(log.failed, other.failed)
	maps.Copy(log.died, other.died)
	for how, n := range other.summary {
		log.summary[how] = max(log.summary[how], n)
	}
	return log, source
}

// burnSample is the state of the node's clocks.
type burnSample struct {
	start, end  float64 // of the reading, in seconds since the attempt began
	uptime      float64 // seconds
	busy, total float64 // CPU time since boot, in ticks
	line        int
}

var (
	statForm   = regexp.MustCompile(`^cpu +(\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)(?: \d+)*$`)
	uptimeForm = regexp.MustCompile(`^(\d+\.\d+) \d+\.\d+$`)
)

// readSample reads what `head -v -n 1 /proc/stat /proc/uptime` printed.
func readSample(text string) (burnSample, bool) {
	rest, ok := strings.CutPrefix(text, "==> /proc/stat <==\n")
	if !ok {
		return burnSample{}, false
	}
	stat, rest, ok := strings.Cut(rest, "\n\n==> /proc/uptime <==\n")
	if !ok {
		return burnSample{}, false
	}
	uptime, tail, ok := strings.Cut(rest, "\n")
	if !ok || tail != "" {
		return burnSample{}, false
	}
	ticks := statForm.FindStringSubmatch(stat)
	clock := uptimeForm.FindStringSubmatch(uptime)
	if ticks == nil || clock == nil {
		return burnSample{}, false
	}
	var s burnSample
	for i, text := range ticks[1:] {
		n, missing := parseNumber(text)
		if missing != "" {
			return burnSample{}, false
		}
		s.total += n
		// user nice system idle iowait irq softirq steal (proc(5)): a CPU
		// that waits for a disk, or that the hypervisor took, does no work.
		if i != 3 && i != 4 && i != 7 {
			s.busy += n
		}
	}
	var missing string
	s.uptime, missing = parseNumber(clock[1])
	return s, missing == ""
}

// outran reports whether the node's clock went further than the runner's, since
// the sample before or since the first of those without a gap. A reading is
// somewhere between its start and its end, and in hundredths of a second.
// chronyd sets a clock right by slewing it, by up to a twelfth (maxslewrate in
// chrony.conf(5)), and here on both machines; but only until it is right, which
// the node's is from within the five seconds that a plan allows it, and ours
// from within a second, and apart from that by the 500 ppm of adjtimex(2) at
// most.
func (s burnSample) outran(before, first burnSample) bool {
	step := s.uptime-before.uptime > 1.18*(s.end-before.start)+0.02
	return step || s.uptime-first.uptime > 1.001*(s.end-first.start)+6.02
}

// samples reduces the samples in one pass: a soak of days has a few hundred
// thousand of them.
func (m burnMeasure) samples(node string, burn evidence.Exit, ended bool) {
	period := m.params.Sample.Std()
	begin := m.view.Attempt.Start
	from, to := burn.Start.Sub(begin).Seconds(), burn.End.Sub(begin).Seconds()
	known := burn.Class != ""

	var last, first *burnSample // first: of those without a gap between them
	var hours float64
	fast := false
	lowest, lowestLine := 101.0, 0
	var bad, lost *evidence.Problem
	total, failures := 0, 0
	inside, count, firstStart, lastEnd := 0, 0, 0.0, 0.0
	whole := m.probes(sampleStep, node, probeSlack(period), func(line int, p ProbeLine) {
		total++
		if p.Class != evidence.ClassOK || p.Code == nil || *p.Code != 0 {
			if failures++; failures == 1 {
				class := p.Class
				if class == evidence.ClassOK {
					class = evidence.ClassExit
				}
				lost = &evidence.Problem{Node: node, Step: sampleStep, Class: class, Detail: fmt.Sprintf("sample %d failed: %s", p.N, token(p.Stderr))}
			}
			last, first = nil, nil
			return
		}
		sample, ok := readSample(p.Stdout)
		if !ok {
			if bad == nil {
				bad = &evidence.Problem{Node: node, Step: sampleStep, Class: evidence.ClassUnparsable, Detail: fmt.Sprintf("sample %d is not whole: %q", p.N, token(p.Stdout))}
			}
			last, first = nil, nil
			return
		}
		sample.start, sample.end, sample.line = p.Start, p.End, line
		if first == nil {
			first = &sample
		}
		if count == 0 {
			firstStart = p.Start
		}
		count, lastEnd = count+1, p.End
		if before := last; before != nil {
			elapsed := sample.uptime - before.uptime
			ticks := sample.total - before.total
			switch {
			case elapsed < 0 || ticks < 0:
				if bad == nil {
					bad = &evidence.Problem{Node: node, Step: sampleStep, Class: evidence.ClassInterrupted, Detail: fmt.Sprintf("sample %d: the node's uptime went back", p.N)}
				}
			case elapsed > 3*period.Seconds()+1 || ticks == 0:
				// Nobody looked: it is neither load nor its absence.
				first = &sample
			case sample.outran(*before, *first):
				fast = true
				if bad == nil {
					bad = &evidence.Problem{Node: node, Step: sampleStep, Class: evidence.ClassUnparsable, Detail: fmt.Sprintf(
						"sample %d: the node's uptime went %.2f s in %.2f s of ours, and %.2f s in %.2f s since sample line %d: its clock runs too fast to tell hours by",
						p.N, elapsed, sample.end-before.start, sample.uptime-first.uptime, sample.end-first.start, first.line)}
				}
			default:
				busy := 100 * (sample.busy - before.busy) / ticks
				// Two periods at each end are the start and the end of the
				// burn itself.
				if edge := 2 * period.Seconds(); known && before.start >= from+edge && p.Start <= to-edge {
					inside++
					if busy < lowest {
						lowest, lowestLine = busy, line
					}
				}
				if busy >= m.params.LoadFloor {
					hours += elapsed / 3600
				}
			}
		}
		last = &sample
	})
	if bad == nil && failures*100 > total {
		// A sample in a hundred may be lost: the clock of load stands still
		// meanwhile. More, and nobody saw what the node did.
		bad = lost
		bad.Detail += fmt.Sprintf("; %d of %d failed", failures, total)
	}
	if bad != nil {
		m.problems = append(m.problems, bad)
		whole = false
	}
	source := func(format string, args ...any) string {
		return evidence.StepDir(sampleStep, node) + "/stdout:" + fmt.Sprintf(format, args...)
	}
	if count > 1 && !fast {
		// Load that was seen was there, in a list that was cut as well.
		m.number(node, "hours_under_load", nil, reading{value: hours, source: source("1-%d", count)})
	}
	if !whole {
		return
	}
	if count < 2 {
		m.report(node, sampleStep, evidence.ClassUnparsable, "there are %d samples, and load shows between two", count)
		return
	}
	if !known {
		return
	}
	// The end of the last sample counts: on a node under full load reading it
	// may take seconds, and the sampling goes on until the burn has ended.
	if reach := probeSlack(period).Seconds(); firstStart > from+reach || lastEnd < to-2*reach {
		m.report(node, sampleStep, evidence.ClassUnparsable, "the samples run from %.1f s to %.1f s and the burn from %.1f s to %.1f s: they do not cover it", firstStart, lastEnd, from, to)
		return
	}
	if inside == 0 {
		if ended {
			m.number(node, "cpu_busy_min", nil, reading{missing: "(no sample interval inside the burn)", source: source("1-%d", count)})
		}
		return
	}
	m.number(node, "cpu_busy_min", nil, reading{value: lowest, source: source("%d", lowestLine)})
}
