package checks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// kernelLog counts what the kernel and the NVIDIA driver logged: XIDs, SXids,
// lost links, machine checks, errors of the PCI bus.
type kernelLog struct{}

type kernelParams struct {
	Window   string              `json:"window"`
	GPUs     int                 `json:"gpus"`
	NICs     []string            `json:"nics"`
	Codes    []string            `json:"codes"`
	Xids     []map[string]string `json:"xids"`
	Harmless []string            `json:"harmless"`
}

const (
	windowCell = "cell"
	windowBoot = "boot"

	bootBeginStep = "boot-begin"
	bootEndStep   = "boot-end"
)

var kernelFacts = []FactSpec{
	{Name: "xids", Level: "node", Doc: "The XIDs and SXids of the window, each with its severity, its GPU or address, and how often; or \"none\"."},
}

func (kernelLog) Spec() Spec {
	return Spec{
		Name: "kernel_log",
		Doc: "Reads the kernel log of every node between two marks that the check writes into it at the beginning and the end of the test's duration, or from the boot on to such a mark, and counts what it says of GPUs, links and the machine. " +
			"It needs root, and a ring that holds the window; with printk.devkmsg=off the kernel takes no marks. " +
			"A line counts whoever wrote it, so that a site can see the check find one that it wrote to /dev/kmsg itself; kernel_errors are the kernel's own alone.",
		Version: 1,
		Scopes:  []evidence.Scope{evidence.ScopeNode},
		Loads:   []string{"cpu"},
		Needs:   []evidence.Capability{evidence.CapExec},
		Params: []evidence.Param{
			{Name: "window", Type: evidence.ParamString, Default: windowCell, Enum: []string{windowCell, windowBoot}, Doc: "cell: the test's duration, which the check waits for; boot: everything since the node's boot, read at once."},
			{Name: "gpus", Type: evidence.ParamNumber, Whole: true, Default: 0, Doc: "How many NVIDIA GPUs each node has: gpu0 is the first by its address on the PCI bus (lspci). 0: XIDs are counted for the node."},
			{Name: "nics", Type: evidence.ParamStrings, Doc: "The network devices of which links are counted, such as mlx5_0 or ens1np0. Without it, all of the node's together."},
			{Name: "codes", Type: evidence.ParamStrings, Doc: "XIDs that xid_events counts by themselves, such as \"79\"; all others are \"other\"."},
			{Name: "xids", Type: evidence.ParamTable, Doc: "Rows with the columns xid (\"63\", or \"SXID:12028\") and severity (" + strings.Join(severityWords(), ", ") + "), which rule over the built-in table. Other columns are for people."},
			harmlessParam,
		},
		Validate: func(p json.RawMessage) error {
			params, err := readKernelParams(p)
			if err != nil {
				return err
			}
			return params.validate()
		},
		Metrics: func(p json.RawMessage) []Metric {
			params, err := readKernelParams(p)
			if err != nil {
				return nil
			}
			return params.metrics()
		},
		Facts: func(json.RawMessage) []FactSpec { return slices.Clone(kernelFacts) },
		Subjects: func(_ evidence.Fleet, nodes []string, _ evidence.Scope, metric string, p json.RawMessage) []evidence.Subject {
			params, err := readKernelParams(p)
			if err != nil {
				return nodeSubjects(nodes)
			}
			return params.subjects(nodes, metric)
		},
	}
}

func readKernelParams(p json.RawMessage) (kernelParams, error) {
	var params kernelParams
	if err := evidence.DecodeStrict(p, &params); err != nil {
		return kernelParams{}, fmt.Errorf("parameters of kernel_log: %w", err)
	}
	return params, nil
}

// metric counts the XIDs of a severity.
func (s severity) metric() string {
	if s == severityFail {
		return "xid_fatal"
	}
	return "xid_" + string(s)
}

// loggedGPUs bounds the GPUs of a node; the densest have 16.
const loggedGPUs = 64

var (
	nicNameForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	xidCodeForm  = regexp.MustCompile(`^[1-9]\d{0,4}$`)
	xidTableForm = regexp.MustCompile(`^(SXID:)?[1-9]\d{0,4}$`)
)

func (p kernelParams) validate() error {
	if p.Window != windowCell && p.Window != windowBoot {
		return fmt.Errorf("window is %q: choose %q or %q", p.Window, windowCell, windowBoot)
	}
	if p.GPUs < 0 || p.GPUs > loggedGPUs {
		return fmt.Errorf("gpus is %d: give 0 to %d", p.GPUs, loggedGPUs)
	}
	for i, name := range p.NICs {
		if !nicNameForm.MatchString(name) || slices.Contains(p.NICs[:i], name) {
			return fmt.Errorf("nics has %q, which is no device's name or there twice", name)
		}
	}
	for i, code := range p.Codes {
		if !xidCodeForm.MatchString(code) || slices.Contains(p.Codes[:i], code) {
			return fmt.Errorf("codes has %q, which is no XID or there twice", code)
		}
	}
	if err := validateHarmless(p.Harmless); err != nil {
		return err
	}
	_, err := p.approved()
	return err
}

// approved are the severities that the runbook gives, by code.
func (p kernelParams) approved() (map[string]severity, error) {
	given := make(map[string]severity)
	for i, row := range p.Xids {
		code, word := row["xid"], severity(row["severity"])
		if !xidTableForm.MatchString(code) {
			return nil, fmt.Errorf("row %d of xids has the code %q in its column xid: write it as \"63\" or \"SXID:12028\"", i+1, code)
		}
		if !slices.Contains(severities, word) {
			return nil, fmt.Errorf("row %d of xids, code %s, has the severity %q: choose one of %s", i+1, code, word, strings.Join(severityWords(), ", "))
		}
		if _, twice := given[code]; twice {
			return nil, fmt.Errorf("xids has the code %s twice", code)
		}
		given[code] = word
	}
	return given, nil
}

// otherCodes is the label of the XIDs that the runbook does not list.
const otherCodes = "other"

func (p kernelParams) metrics() []Metric {
	count := func(name, level, doc string, labels ...Label) Metric {
		return Metric{Name: name, Unit: "1", Level: level, Accumulates: true, Resolution: 1, Doc: doc, Labels: labels}
	}
	gpu, nic := "node", "node"
	if p.GPUs > 0 {
		gpu = "node/gpu"
	}
	if len(p.NICs) > 0 {
		nic = "node/nic"
	}
	var codes []Label
	if len(p.Codes) > 0 {
		codes = []Label{{Name: "code", Values: append(slices.Clone(p.Codes), otherCodes)}}
	}
	const (
		once   = " Lines of one code and GPU within a second are one event."
		ofGPUs = once + " With gpus it is counted for each of them."
	)
	return []Metric{
		count("xid_fatal", gpu, "XIDs of severity fail: the hardware has failed."+ofGPUs),
		count("xid_inconclusive", gpu, "XIDs of severity inconclusive: driver or firmware; reset, and test again."+ofGPUs),
		count("xid_review", gpu, "XIDs of severity review, which every unknown one has: somebody must look."+ofGPUs),
		count("xid_note", gpu, "XIDs of severity note, which go with another one."+ofGPUs),
		count("xid_events", "node", "All XIDs, of every severity and whether or not their GPU is known."+once, codes...),
		count("sxid_fatal", "node", "SXids (of NVLink switches) of severity fail."+once),
		count("sxid_events", "node", "All SXids."+once),
		count("link_down", nic, "Lines in which a network driver says that a link went down. With nics it is counted for each of them."),
		count("kernel_errors", "node", "Lines that the kernel logged with level err or worse."),
		count("hardware_errors", "node", "Lines of machine checks and of memory controllers (\"[Hardware Error]\", EDAC)."),
		count("aer_errors", "node", "Errors of the PCI bus that Advanced Error Reporting logged.", Label{Name: "severity", Values: []string{aerCorrected, aerUncorrected}}),
	}
}

func (p kernelParams) subjects(nodes []string, metric string) []evidence.Subject {
	var parts []string
	switch {
	case p.GPUs > 0 && p.GPUs <= loggedGPUs && slices.ContainsFunc(severities, func(s severity) bool { return s.metric() == metric }):
		for i := range p.GPUs {
			parts = append(parts, gpuName(i))
		}
	case len(p.NICs) > 0 && metric == "link_down":
		parts = p.NICs
	default:
		return nodeSubjects(nodes)
	}
	var subjects []evidence.Subject
	for _, node := range nodes {
		for _, part := range parts {
			subjects = append(subjects, partOf(node, part))
		}
	}
	return subjects
}

func partOf(node, part string) evidence.Subject { return evidence.Subject(node + "/" + part) }

// argv is what a step runs on every node; nil for a step that is none.
func (p kernelParams) argv(step string) []string {
	switch step {
	case bootBeginStep, bootEndStep:
		return []string{"cat", "/proc/sys/kernel/random/boot_id"}
	case gpusStep, nicsStep:
		return partsArgv(step)
	}
	return kernelArgv(step)
}

func (kernelLog) Drive(ctx context.Context, b Bench) error {
	var params kernelParams
	if err := b.Params(&params); err != nil {
		return err
	}
	do := func(step string) error {
		return b.ExecAll(ctx, step, b.Nodes(), func(node string) Command {
			return Command{Node: node, Argv: params.argv(step)}
		})
	}
	before := []string{bootBeginStep}
	if params.GPUs > 0 {
		before = append(before, gpusStep) // while all of them are there
	}
	if len(params.NICs) > 0 {
		before = append(before, nicsStep)
	}
	for _, step := range before {
		if err := do(step); err != nil {
			return err
		}
	}
	if params.Window == windowCell {
		if err := markKernel(ctx, b, markBeginStep, newMark()); err != nil {
			return err
		}
		// Whatever ends the attempt, what was logged so far is evidence.
		for _, node := range b.Nodes() {
			if err := b.Cleanup(kernelStep, Command{Node: node, Argv: params.argv(kernelStep)}); err != nil {
				return err
			}
		}
		end := time.Now().Add(b.Test().Duration.Std())
		err := b.Wait(ctx, "the end of the test's duration", watchPeriod, func(context.Context) (bool, error) {
			return !time.Now().Before(end), nil
		})
		if err != nil {
			return err
		}
	}
	if err := markKernel(ctx, b, markEndStep, newMark()); err != nil {
		return err
	}
	if params.Window == windowBoot {
		if err := readKernel(ctx, b); err != nil {
			return err
		}
	}
	return do(bootEndStep)
}

const watchPeriod = time.Second

func (kernelLog) Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	params, err := readKernelParams(c.Test.Params)
	if err != nil {
		return nil, nil, err
	}
	if err := params.validate(); err != nil {
		return nil, nil, err
	}
	approved, err := params.approved()
	if err != nil {
		return nil, nil, err
	}
	asked := func(step, _ string) commandLine { return exactly(params.argv(step)) }
	m := kernelMeasure{newCollector(c, raw, asked), params, params.metrics(), approved}
	for _, node := range c.Nodes {
		m.measureNode(node)
	}
	return m.result()
}

type kernelMeasure struct {
	*collector
	params   kernelParams
	metrics  []Metric
	approved map[string]severity
}

// tally counts lines or events, with the place of the first and the last.
type tally struct{ count, first, last int }

func (t *tally) add(line int) {
	if t.count++; t.count == 1 || line < t.first {
		t.first = line
	}
	t.last = max(t.last, line)
}

// kernelTallies is what a window says.
type kernelTallies struct {
	errors, hardware tally
	aer              map[string]*tally
	links            []linkLine
	xids             xidReader
}

type linkLine struct {
	linkDown
	line int
	text string
}

// linkLimit bounds the lines of lost links that are told apart. Beyond it the
// counts are lower bounds.
const linkLimit = 1 << 16

// measureNode measures one node. Where its window is not whole, what was found in it
// stands, and what was not found says nothing.
func (m kernelMeasure) measureNode(node string) {
	w, whole := m.read(node)
	whole = m.losses(w, m.params.Harmless) && whole
	t := kernelTallies{aer: map[string]*tally{aerCorrected: {}, aerUncorrected: {}}}
	for record := range w.records() {
		t.read(record)
	}
	found := nodeCounts{m, node, w, whole}
	found.count("kernel_errors", evidence.Subject(node), nil, t.errors)
	found.count("hardware_errors", evidence.Subject(node), nil, t.hardware)
	for _, severity := range []string{aerCorrected, aerUncorrected} {
		found.count("aer_errors", evidence.Subject(node), map[string]string{"severity": severity}, *t.aer[severity])
	}
	found.links(t.links)
	found.xids(t.xids)
}

func (t *kernelTallies) read(record kernelRecord) {
	if record.severe() {
		t.errors.add(record.line)
	}
	for i, text := range strings.Split(record.text, "\n") {
		line := record.line + i
		if hardwareForm.MatchString(text) {
			t.hardware.add(line)
		}
		if severity := aerSeverity(text); severity != "" {
			t.aer[severity].add(line)
		}
		if link, down := readLinkDown(text); down && len(t.links) < linkLimit {
			t.links = append(t.links, linkLine{link, line, text})
		}
	}
	t.xids.read(record)
}

// read is the part of the log that counts, and whether it is all of it.
func (m kernelMeasure) read(node string) (kernelWindow, bool) {
	same, rebooted := m.boots(node)
	if m.params.Window == windowBoot {
		w, whole := m.kernelBoot(node)
		return w, whole && same
	}
	w, whole := m.kernelWindow(node, rebooted)
	return w, whole && m.watched(node) && same
}

var bootIDForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\r?\n$`)

// boots reports whether the node is known not to have booted meanwhile, or
// known to have.
func (m kernelMeasure) boots(node string) (same, rebooted bool) {
	var ids []string
	for _, step := range []string{bootBeginStep, bootEndStep} {
		out, ok := m.step(step, node)
		if !ok {
			continue
		}
		if !bootIDForm.Match(out.stdout) {
			m.report(node, step, evidence.ClassUnparsable, "stdout is not a boot id: %q", token(string(out.stdout)))
			continue
		}
		ids = append(ids, strings.TrimSpace(string(out.stdout)))
	}
	if len(ids) == 2 && ids[0] != ids[1] {
		m.report(node, bootEndStep, evidence.ClassInterrupted, "the node booted meanwhile: its boot id was %s and is %s", ids[0], ids[1])
		return false, true
	}
	return len(ids) == 2, false
}

// watched reports whether the marks are as far apart as the test is to last.
func (m kernelMeasure) watched(node string) bool {
	begin, begun := m.step(markBeginStep, node)
	end, ended := m.step(markEndStep, node)
	if !begun || !ended {
		return false
	}
	asked, lasted := m.view.Test.Duration.Std(), end.exit.Start.Sub(begin.exit.End)
	if asked <= 0 {
		m.report(node, markEndStep, evidence.ClassUnparsable, "the test has no duration, so that its window is empty: give it one, or choose window = %q", windowBoot)
		return false
	}
	if lasted < asked-asked/50 {
		m.report(node, markEndStep, evidence.ClassUnparsable, "the marks are %s apart and the test lasts %s", lasted.Round(time.Millisecond), asked)
		return false
	}
	return true
}

// nodeCounts turns what was found in a window into measurements.
type nodeCounts struct {
	kernelMeasure
	node   string
	window kernelWindow
	whole  bool
}

// count measures a tally. A zero, and a number that is perhaps too low, are
// only a measurement where the window is whole; but what was seen was there.
func (c nodeCounts) count(metric string, subject evidence.Subject, labels map[string]string, t tally) {
	r := reading{value: float64(t.count), source: c.window.source()}
	switch {
	case t.count == 0 && !c.whole:
		return
	case t.count > 0 && t.first == t.last:
		r.source = c.window.out.at("%d", t.first)
	case t.count > 0:
		r.source = c.window.out.at("%d-%d", t.first, t.last)
	}
	c.measure(metricNamed(c.metrics, metric), subject, labels, r)
}

// links counts lost links, for each NIC that the runbook names or for all.
func (c nodeCounts) links(lines []linkLine) {
	if len(lines) == linkLimit {
		c.report(c.node, kernelStep, evidence.ClassOutputCapped, "there are %d lines of lost links or more, so that counts are lower bounds", linkLimit)
		c.whole = false
	}
	if len(c.params.NICs) == 0 {
		var all tally
		for _, link := range lines {
			all.add(link.line)
		}
		c.count("link_down", evidence.Subject(c.node), nil, all)
		return
	}
	devices, ok := c.networkDevices(c.node, c.params.NICs)
	tallies := make(map[string]*tally)
	for _, name := range c.params.NICs {
		tallies[name] = new(tally)
	}
	strangers := make(map[string]bool)
	for _, link := range lines {
		names, known := devices.of(link.linkDown, c.params.NICs)
		for _, name := range names {
			tallies[name].add(link.line)
		}
		if who := cmp.Or(link.device, link.pci); ok && !known && !strangers[who] {
			if strangers[who] = true; len(strangers) <= oddLimit {
				c.report(c.node, kernelStep, evidence.ClassUnparsable, "line %d: %s, whose link went down, is no device of the node: %q", link.line, who, token(link.text))
			}
		}
	}
	c.whole = c.whole && ok && len(strangers) == 0
	for _, name := range c.params.NICs {
		c.count("link_down", partOf(c.node, name), nil, *tallies[name])
	}
}

// xids counts the events of GPUs and switches.
func (c nodeCounts) xids(r xidReader) {
	for _, odd := range r.odd {
		c.report(c.node, kernelStep, evidence.ClassUnparsable, "line %d has no known form of a XID: %q", odd.line, token(odd.text))
	}
	if r.full {
		c.report(c.node, kernelStep, evidence.ClassOutputCapped, "there are more than %d events of the driver, so that counts are lower bounds", eventLimit)
	}
	c.whole = c.whole && len(r.odd) == 0 && !r.full
	events := r.events
	found := nvidiaXids().severities(events, c.approved)
	c.listXids(events, found)

	var all, switches, fatal tally
	byCode := make(map[string]*tally)
	for _, code := range append(slices.Clone(c.params.Codes), otherCodes) {
		byCode[code] = new(tally)
	}
	for i, e := range events {
		switch {
		case e.isSwitch() && found[i] == severityFail:
			fatal.add(e.line)
			fallthrough
		case e.isSwitch():
			switches.add(e.line)
			continue
		}
		all.add(e.line)
		if t, listed := byCode[e.code]; listed {
			t.add(e.line)
		} else {
			byCode[otherCodes].add(e.line)
		}
	}
	subject := evidence.Subject(c.node)
	c.count("sxid_events", subject, nil, switches)
	c.count("sxid_fatal", subject, nil, fatal)
	if len(c.params.Codes) == 0 {
		c.count("xid_events", subject, nil, all)
	} else {
		for _, code := range append(slices.Clone(c.params.Codes), otherCodes) {
			c.count("xid_events", subject, map[string]string{"code": code}, *byCode[code])
		}
	}
	c.gpus(events, found)
}

// gpus counts the events of each severity, for each GPU or for the node.
func (c nodeCounts) gpus(events []xidEvent, found []severity) {
	type key struct {
		subject  evidence.Subject
		severity severity
	}
	subjects := []evidence.Subject{evidence.Subject(c.node)}
	var addresses []string
	placed := true
	if c.params.GPUs > 0 {
		subjects = nil
		for i := range c.params.GPUs {
			subjects = append(subjects, partOf(c.node, gpuName(i)))
		}
		addresses, placed = c.gpuAddresses(c.node, c.params.GPUs)
	}
	tallies := make(map[key]*tally)
	strangers := make(map[string]bool)
	for i, e := range events {
		if e.isSwitch() {
			continue
		}
		subject := evidence.Subject(c.node)
		if c.params.GPUs > 0 {
			at := slices.Index(addresses, e.pci)
			if at < 0 {
				placed = false
				if who := e.code + " " + e.pci; !strangers[who] {
					if strangers[who] = true; len(strangers) <= oddLimit {
						c.report(c.node, kernelStep, evidence.ClassUnparsable, "line %d: %s (%s) at %s is of none of the node's GPUs that are known", e.line, e.name(), found[i], cmp.Or(e.pci, "no address"))
					}
				}
				continue
			}
			subject = subjects[at]
		}
		k := key{subject, found[i]}
		if tallies[k] == nil {
			tallies[k] = new(tally)
		}
		tallies[k].add(e.line)
	}
	c.whole = c.whole && placed
	for _, subject := range subjects {
		for _, s := range severities {
			t := tallies[key{subject, s}]
			if t == nil {
				t = new(tally)
			}
			c.count(s.metric(), subject, nil, *t)
		}
	}
}

// listXids says in words what there was, for people.
func (c nodeCounts) listXids(events []xidEvent, found []severity) {
	type entry struct {
		text  string
		count int
	}
	var entries []entry
	for i, e := range events {
		text := fmt.Sprintf("%s (%s) at %s", e.name(), found[i], cmp.Or(e.pci, "no address"))
		at := slices.IndexFunc(entries, func(known entry) bool { return known.text == text })
		switch {
		case at >= 0:
			entries[at].count++
		case len(entries) < listLimit:
			entries = append(entries, entry{text, 1})
		case len(entries) == listLimit:
			entries = append(entries, entry{"and more", 1})
		}
	}
	words := make([]string, len(entries))
	for i, e := range entries {
		words[i] = e.text
		if e.count > 1 {
			words[i] += fmt.Sprintf(" ×%d", e.count)
		}
	}
	switch {
	case len(words) > 0:
		c.fact("xids", c.node, strings.Join(words, "; "), "", c.window.source())
	case c.whole:
		c.fact("xids", c.node, "none", "", c.window.source())
	}
}

// listLimit bounds the kinds of events that are listed in words.
const listLimit = 40
