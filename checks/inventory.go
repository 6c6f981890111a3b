package checks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// inventory reads what a node is made of.
type inventory struct{}

type inventoryParams struct {
	Versions []versionCommand `json:"version"`
	GPUs     bool             `json:"gpus"`
	GPUSlots []string         `json:"gpu_slots"`
	Links    bool             `json:"links"`
	NICs     []string         `json:"nics"`
}

// versionCommand prints the version of a tool.
type versionCommand struct {
	Name  string   `json:"name"`
	Argv  []string `json:"argv"`
	Regex string   `json:"regex"`
	Proof string   `json:"proof"`
}

func (v versionCommand) fact() string { return v.Name + "_version" }
func (v versionCommand) step() string { return "version-" + v.Name }

var inventoryMetrics = []Metric{
	{Name: "mismatches", Unit: "1", Level: "node", Doc: "The facts that differ from the fleet's expect block. It is measured only when every expected fact was read.", Resolution: 1},
	{Name: "clock_offset", Unit: "s", Level: "node", Doc: "How far the node's clock is from the runner's, whichever is ahead: from the quickest of three reads, at the middle of its round trip."},
	{Name: "clock_uncertainty", Unit: "s", Level: "node", Doc: "Half the round trip of the quickest read: clock_offset is right to within this."},
	{Name: "memory_total", Unit: "GiB", Level: "node", Doc: "MemTotal of /proc/meminfo: the memory that the kernel manages, a little less than what is installed."},
}

var inventoryFacts = []FactSpec{
	{Name: "hostname", Level: "node", Doc: "The kernel's host name."},
	{Name: "machine_id", Level: "node", Doc: "/etc/machine-id."},
	{Name: "kernel", Level: "node", Doc: "The kernel's release."},
	{Name: "os", Level: "node", Doc: "PRETTY_NAME of /etc/os-release."},
	{Name: "arch", Level: "node", Doc: "The architecture, as lscpu names it."},
	{Name: "cpu_model", Level: "node", Doc: "The CPU's model name, as lscpu gives it."},
	{Name: "cpus", Level: "node", Doc: "The number of logical CPUs, as lscpu counts them."},
	{Name: "sockets", Level: "node", Doc: "The number of CPU sockets, as lscpu counts them."},
	{Name: "memory_gib", Level: "node", Doc: "MemTotal of /proc/meminfo in GiB, rounded to a whole number."},
	{Name: "nics", Level: "node", Doc: "The number of physical network interfaces: ip's links that are neither loopback nor of a virtual kind; of InfiniBand's only those without a parent."},
	{Name: "nic_names", Level: "node", Doc: "Their names, sorted, with commas between."},
	{Name: "disks", Level: "node", Doc: "The number of block devices of type disk with a size above zero, as lsblk lists them."},
	{Name: "nvme", Level: "node", Doc: "How many of those are NVMe."},
	{Name: "disk_serials", Level: "node", Doc: "The serial numbers of those, sorted, with commas between; missing if one of them cannot be read."},
	{Name: "mounts", Level: "node", Doc: "The mounted filesystems that are not pseudo filesystems, as target=type, sorted, with commas between."},
	{Name: "vendor", Level: "node", Doc: "The system's maker (DMI sys_vendor)."},
	{Name: "product", Level: "node", Doc: "The system's product name (DMI product_name)."},
	{Name: "serial", Level: "node", Doc: "The system's serial number (DMI product_serial); only root can read it."},
	{Name: "bios_version", Level: "node", Doc: "The firmware's version (DMI bios_version)."},
}

const (
	fileMachineID = "/etc/machine-id"
	fileOSRelease = "/etc/os-release"
	fileHostname  = "/proc/sys/kernel/hostname"
	fileKernel    = "/proc/sys/kernel/osrelease"
	fileMemory    = "/proc/meminfo"
	fileVendor    = "/sys/class/dmi/id/sys_vendor"
	fileProduct   = "/sys/class/dmi/id/product_name"
	fileSerial    = "/sys/class/dmi/id/product_serial"
	fileBIOS      = "/sys/class/dmi/id/bios_version"
	fileSentinel  = "/proc/version"
)

var inventoryFiles = []string{
	fileMachineID, fileOSRelease, fileHostname, fileKernel, fileMemory,
	fileVendor, fileProduct, fileSerial, fileBIOS, fileSentinel,
}

const filesStep = "files"

// clockSteps are read one after another; the quickest counts, as in NTP's
// clock filter (RFC 5905, section 10).
var clockSteps = []string{"clock-1", "clock-2", "clock-3"}

// inventoryTools are the steps that print one JSON document each.
var inventoryTools = []struct {
	step string
	argv []string
}{
	{"cpu", []string{"lscpu", "-J"}},
	{"links", []string{"ip", "-j", "-d", "link", "show"}},
	{"disks", []string{"lsblk", "-J", "-b", "-d", "-o", "NAME,TYPE,SIZE,MODEL,SERIAL,TRAN"}},
	{"mounts", []string{"findmnt", "-J", "-l", "--real", "-o", "TARGET,SOURCE,FSTYPE,OPTIONS"}},
}

var versionName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func (inventory) Spec() Spec {
	return Spec{
		Name: "inventory",
		Doc: "Reads what each node is: hardware, system, mounts, versions of tools, and its clock. " +
			"The facts can be bound with equals, compared over the fleet with stat = \"distinct\", and are what the fleet's expect block names. " +
			"It needs lscpu, lsblk and findmnt (util-linux), ip (iproute2), tail and date; for gpus also nvidia-smi and lspci (pciutils), for links ibstat (infiniband-diags).",
		Version: 1,
		Scopes:  []evidence.Scope{evidence.ScopeNode},
		Loads:   []string{"cpu"},
		Needs:   []evidence.Capability{evidence.CapExec},
		Params: []evidence.Param{
			{Name: "version", Type: evidence.ParamBlocks, Doc: "A tool whose version is read, as the fact <label>_version.", Nested: []evidence.Param{
				{Name: "argv", Type: evidence.ParamArgv, Required: true, Doc: "The command that prints it on standard output."},
				{Name: "regex", Type: evidence.ParamString, Doc: "A regular expression (RE2) with one group, the version; it must match once. Without it the whole line is the version."},
				{Name: "proof", Type: evidence.ParamString, Doc: "For a tool that prints several lines: a regular expression that matches the last line and no line before it."},
			}},
			{Name: "gpus", Type: evidence.ParamBool, Default: false, Doc: "Whether to read the GPUs. How many each node is to have says gpu_slots, or gpus = 8 in the fleet's expect block."},
			{Name: "gpu_slots", Type: evidence.ParamStrings, Doc: "The PCI addresses of the GPUs that each node is to have, such as 0000:1b:00.0, in rising order: the first is gpu0. Without it gpu0 is the first by address of those that are there, and one that is not even on the bus cannot be told by name."},
			{Name: "links", Type: evidence.ParamBool, Default: false, Doc: "Whether to read the ports of the host channel adapters."},
			{Name: "nics", Type: evidence.ParamStrings, Doc: "The adapters that each node is to have, as ibstat names them, such as mlx5_0; mlx4_0.2 is the second port of one. Without it no threshold can bind each, and no counters are read."},
		},
		Validate: func(p json.RawMessage) error {
			params, err := readInventoryParams(p)
			if err != nil {
				return err
			}
			return params.validate()
		},
		Mismatches: "mismatches",
		Metrics: func(p json.RawMessage) []Metric {
			params, err := readInventoryParams(p)
			if err != nil {
				return slices.Clone(inventoryMetrics)
			}
			return params.metrics()
		},
		Facts: func(p json.RawMessage) []FactSpec {
			params, err := readInventoryParams(p)
			if err != nil {
				return slices.Clone(inventoryFacts)
			}
			facts := params.facts()
			for _, v := range params.Versions {
				facts = append(facts, FactSpec{Name: v.fact(), Level: "node", Doc: "The version that the tool printed."})
			}
			return facts
		},
		Subjects: func(f evidence.Fleet, nodes []string, _ evidence.Scope, metric string, p json.RawMessage) []evidence.Subject {
			named := func(m Metric) bool { return m.Name == metric }
			params, err := readInventoryParams(p)
			switch {
			case metric == "mismatches" && len(f.Expect) == 0, err != nil:
				return nil
			case slices.ContainsFunc(gpuMetrics, named):
				return gpuSubjects(nodes, params.gpusToFind(f))
			case slices.ContainsFunc(hcaMetrics, named):
				return params.nicSubjects(nodes)
			}
			return nodeSubjects(nodes)
		},
	}
}

// metrics are those that the parameters ask for.
func (p inventoryParams) metrics() []Metric {
	metrics := slices.Clone(inventoryMetrics)
	if p.GPUs {
		metrics = append(metrics, gpuMetrics...)
	}
	if p.Links {
		metrics = append(metrics, hcaMetrics...)
	}
	return metrics
}

// facts are those that the parameters ask for, but for the versions of tools.
func (p inventoryParams) facts() []FactSpec {
	facts := slices.Clone(inventoryFacts)
	if p.GPUs {
		facts = append(facts, gpuFacts...)
	}
	if p.Links {
		facts = append(facts, hcaFacts...)
	}
	return facts
}

func readInventoryParams(p json.RawMessage) (inventoryParams, error) {
	var params inventoryParams
	if err := evidence.DecodeStrict(p, &params); err != nil {
		return inventoryParams{}, fmt.Errorf("parameters of inventory: %w", err)
	}
	return params, nil
}

func (p inventoryParams) validate() error {
	if err := errors.Join(p.validateGPUs(), p.validateLinks()); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, fact := range p.facts() {
		seen[fact.Name] = true
	}
	for _, v := range p.Versions {
		switch {
		case !versionName.MatchString(v.Name):
			return fmt.Errorf("version %q: a label is lower-case letters, digits and _, and begins with a letter", v.Name)
		case seen[v.fact()]:
			return fmt.Errorf("version %q: the fact %s is there already", v.Name, v.fact())
		case len(v.Argv) == 0 || v.Argv[0] == "":
			return fmt.Errorf("version %q: argv is empty: name a command", v.Name)
		}
		seen[v.fact()] = true
		if v.Regex != "" {
			pattern, err := extractor{}.pattern(v.Regex, "")
			if err != nil {
				return fmt.Errorf("version %q: regex: %w", v.Name, err)
			}
			if pattern.NumSubexp() != 1 {
				return fmt.Errorf("version %q: regex has %d groups: exactly one is the version", v.Name, pattern.NumSubexp())
			}
		}
		if v.Proof != "" {
			pattern, err := regexp.Compile(v.Proof)
			if err != nil {
				return fmt.Errorf("version %q: proof: %w", v.Name, err)
			}
			if pattern.MatchString("") {
				return fmt.Errorf("version %q: proof %q matches an empty line, so it proves nothing", v.Name, v.Proof)
			}
		}
	}
	return nil
}

// steps are the steps on every node, in their order.
func (p inventoryParams) steps() []string {
	steps := append(slices.Clone(clockSteps), filesStep)
	for _, tool := range inventoryTools {
		steps = append(steps, tool.step)
	}
	for _, v := range p.Versions {
		steps = append(steps, v.step())
	}
	if p.GPUs {
		steps = append(steps, gpuSteps...)
	}
	if p.Links {
		steps = append(steps, p.linkSteps()...)
	}
	return steps
}

// argv is what a step runs on every node; nil for a step that is none.
func (p inventoryParams) argv(step string) []string {
	switch {
	case slices.Contains(clockSteps, step):
		return []string{"date", "-u", "+%s.%N %Z"}
	case step == filesStep:
		return append([]string{"tail", "-v", "-n", "+1"}, inventoryFiles...)
	}
	for _, tool := range inventoryTools {
		if tool.step == step {
			return tool.argv
		}
	}
	for _, v := range p.Versions {
		if v.step() == step {
			return v.Argv
		}
	}
	if argv := gpuArgv(step); argv != nil {
		return argv
	}
	return p.linkArgv(step)
}

func (inventory) Drive(ctx context.Context, b Bench) error {
	var params inventoryParams
	if err := b.Params(&params); err != nil {
		return err
	}
	var failed []error
	for _, step := range params.steps() {
		// One missing tool must not hide what the others say.
		if err := b.ExecAll(ctx, step, b.Nodes(), func(node string) Command { return Command{Node: node, Argv: params.argv(step)} }); err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

func (inventory) Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	params, err := readInventoryParams(c.Test.Params)
	if err != nil {
		return nil, nil, err
	}
	if err := params.validate(); err != nil {
		return nil, nil, err
	}
	m := newCollector(c, raw, func(step, _ string) commandLine { return exactly(params.argv(step)) })
	for _, node := range c.Nodes {
		n := nodeInventory{collector: m, params: params, node: node, before: len(m.problems)}
		n.clock()
		n.files()
		n.cpu()
		n.links()
		n.disks()
		n.mounts()
		for _, v := range params.Versions {
			n.version(v)
		}
		if params.GPUs {
			n.gpus()
		}
		if params.Links {
			n.hcas()
		}
		n.mismatches()
	}
	return m.result()
}

// nodeInventory measures one node.
type nodeInventory struct {
	*collector
	params inventoryParams
	node   string
	before int // problems of the nodes before this one
}

func (n nodeInventory) add(name, value, missing, source string) {
	n.fact(name, n.node, value, missing, source)
}

func (n nodeInventory) number(name string, r reading) {
	n.measure(metricNamed(inventoryMetrics, name), evidence.Subject(n.node), nil, r)
}

var dateForm = regexp.MustCompile(`^(\d+)\.(\d{9}) UTC\n$`)

// clock reads the node's clock against the runner's: at the moment of its
// reading the runner's clock stood between the step's start and its end.
func (n nodeInventory) clock() {
	var offset, uncertainty reading
	whole := true
	for _, step := range clockSteps {
		out, ok := n.step(step, n.node)
		if !ok {
			whole = false
			continue
		}
		match := dateForm.FindSubmatch(out.stdout)
		if match == nil {
			n.report(n.node, step, evidence.ClassOutputCut, "stdout is not a time such as 1796046500.123456789 UTC: %q", token(string(out.stdout)))
			whole = false
			continue
		}
		seconds, err := strconv.ParseInt(string(match[1]), 10, 40)
		if err != nil {
			n.report(n.node, step, evidence.ClassUnparsable, "stdout is not a time: %q", token(string(out.stdout)))
			whole = false
			continue
		}
		nanos, _ := strconv.Atoi(string(match[2])) // nine digits, by its pattern
		half := out.exit.End.Sub(out.exit.Start).Seconds() / 2
		middle := out.exit.Start.Add(out.exit.End.Sub(out.exit.Start) / 2)
		// Whole seconds apart, so that nanoseconds survive.
		apart := float64(seconds-middle.Unix()) + float64(nanos-middle.Nanosecond())/1e9
		if uncertainty.source == "" || half < uncertainty.value {
			offset = reading{value: math.Abs(apart), source: out.at("1")}
			uncertainty = reading{value: half, source: out.at("1")}
		}
	}
	if whole {
		n.number("clock_offset", offset)
		n.number("clock_uncertainty", uncertainty)
	}
}

var (
	memTotalForm   = regexp.MustCompile(`(?m)^MemTotal:\s+(\d+) kB$`)
	prettyNameForm = regexp.MustCompile(`(?m)^PRETTY_NAME="?([^"\n]*)"?$`)
)

func (n nodeInventory) files() {
	// tail exits with 1 if one of the files is not there.
	out, ok := n.step(filesStep, n.node, 0, 1)
	if !ok {
		return
	}
	found, ok := n.sections(out, inventoryFiles...)
	if !ok {
		return
	}
	whole := func(name, file string) {
		s := found[file]
		missing := ""
		if !s.exists {
			missing = "(not readable)"
			s.line = 1
		}
		n.add(name, s.text, missing, out.at("%d", s.line))
	}
	whole("hostname", fileHostname)
	whole("machine_id", fileMachineID)
	whole("kernel", fileKernel)
	whole("vendor", fileVendor)
	whole("product", fileProduct)
	whole("serial", fileSerial)
	whole("bios_version", fileBIOS)

	match := func(file string, form *regexp.Regexp) (text, missing, source string) {
		s := found[file]
		found := form.FindAllStringSubmatchIndex(s.text, 2)
		switch len(found) {
		case 0:
			return "", "(no match)", out.at("%d", max(s.line, 1))
		case 2:
			return "", "(more than one match)", out.at("%d", s.line+strings.Count(s.text[:found[1][0]], "\n"))
		}
		at := found[0]
		return s.text[at[2]:at[3]], "", out.at("%d", s.line+strings.Count(s.text[:at[2]], "\n"))
	}
	text, missing, source := match(fileOSRelease, prettyNameForm)
	n.add("os", text, missing, source)

	text, missing, source = match(fileMemory, memTotalForm)
	var kib float64
	if missing == "" {
		kib, missing = parseNumber(text)
	}
	gib := reading{kib / (1 << 20), missing, source}
	n.number("memory_total", gib)
	n.add("memory_gib", strconv.FormatFloat(math.Round(gib.value), 'f', -1, 64), missing, source)
}

func (n nodeInventory) cpu() {
	out, ok := n.step("cpu", n.node)
	if !ok {
		return
	}
	root, ok := n.json(out)
	if !ok {
		return
	}
	fields := make(map[string][][]string)
	lscpuFields(root, []string{"lscpu"}, fields, 0)
	for _, want := range []struct{ fact, field string }{
		{"arch", "Architecture:"}, {"cpu_model", "Model name:"}, {"cpus", "CPU(s):"}, {"sockets", "Socket(s):"},
	} {
		at := []string{"lscpu"}
		text, missing := "", "(absent)"
		for i, path := range fields[want.field] {
			value, found := lookup(root, path...)
			next, nextMissing := jsonText(value, found)
			if i > 0 && (next != text || nextMissing != missing) {
				// Two kinds of CPU in one node have no one model.
				at, text, missing = path, "", "(more than one)"
				break
			}
			at, text, missing = path, next, nextMissing
		}
		if text == "-" {
			text, missing = "", "-"
		}
		n.add(want.fact, text, missing, out.at("%s", pointerText(at...)))
	}
}

// lscpuFields maps each field of lscpu -J to the paths of its data. Newer
// releases nest fields as children, older ones do not.
func lscpuFields(root any, path []string, into map[string][][]string, depth int) {
	list, _ := lookup(root, path...)
	entries, ok := list.([]any)
	if !ok || depth > 8 {
		return
	}
	for i, entry := range entries {
		here := append(slices.Clone(path), strconv.Itoa(i))
		object, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		if name, ok := object["field"].(string); ok {
			into[name] = append(into[name], append(slices.Clone(here), "data"))
		}
		lscpuFields(root, append(here, "children"), into, depth+1)
	}
}

func (n nodeInventory) links() {
	out, ok := n.step("links", n.node)
	if !ok {
		return
	}
	root, ok := n.json(out)
	if !ok {
		return
	}
	list, ok := root.([]any)
	if !ok || len(list) == 0 {
		// Even a bare node has its loopback.
		n.report(n.node, out.step, evidence.ClassUnparsable, "ip lists no links")
		return
	}
	var names []string
	for i, entry := range list {
		name, missing := jsonText(lookup(entry, "ifname"))
		kind, kindMissing := jsonText(lookup(entry, "link_type"))
		if missing != "" || kindMissing != "" {
			n.report(n.node, out.step, evidence.ClassUnparsable, "link %d has no ifname or no link_type", i)
			return
		}
		of, virtual := lookup(entry, "linkinfo", "info_kind")
		if _, missing := jsonText(of, virtual); missing == reportedTwice {
			n.report(n.node, out.step, evidence.ClassUnparsable, "link %d has two kinds", i)
			return
		}
		if kind != "loopback" && (!virtual || ibPort(entry)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	source := out.at("/")
	n.add("nics", strconv.Itoa(len(names)), "", source)
	missing := ""
	if len(names) == 0 {
		missing = "(none)"
	}
	n.add("nic_names", strings.Join(names, ","), missing, source)
}

// ibPort reports whether a link is the port of an InfiniBand adapter. Linux
// gives the port the same kind as the partitions made on it (ib0.8001), and
// only these have a parent: link, or link_index in another namespace.
func ibPort(entry any) bool {
	kind, _ := lookup(entry, "linkinfo", "info_kind")
	_, child := lookup(entry, "link")
	_, abroad := lookup(entry, "link_index")
	return kind == "ipoib" && !child && !abroad
}

func (n nodeInventory) disks() {
	out, ok := n.step("disks", n.node)
	if !ok {
		return
	}
	root, ok := n.json(out)
	if !ok {
		return
	}
	value, _ := lookup(root, "blockdevices")
	list, ok := value.([]any)
	if !ok {
		n.report(n.node, out.step, evidence.ClassUnparsable, "lsblk printed no list blockdevices")
		return
	}
	disks, nvme := 0, 0
	var serials []string
	missing := "(none)"
	for i, entry := range list {
		name, noName := jsonText(lookup(entry, "name"))
		kind, noKind := jsonText(lookup(entry, "type"))
		size, noSize := jsonNumber(lookup(entry, "size"))
		if noName != "" || noKind != "" || noSize != "" {
			n.report(n.node, out.step, evidence.ClassUnparsable, "block device %d has no name, type or size", i)
			return
		}
		if kind != "disk" || size == 0 {
			continue
		}
		disks++
		if strings.HasPrefix(name, "nvme") {
			nvme++
		}
		serial, noSerial := jsonText(lookup(entry, "serial"))
		if serial = strings.TrimSpace(serial); serial == "" {
			missing = "(" + token(name) + " shows none: " + cmp.Or(noSerial, "empty") + ")"
			continue
		}
		serials = append(serials, serial)
	}
	slices.Sort(serials)
	source := out.at("/blockdevices")
	n.add("disks", strconv.Itoa(disks), "", source)
	n.add("nvme", strconv.Itoa(nvme), "", source)
	if disks > 0 && len(serials) == disks {
		missing = ""
	}
	n.add("disk_serials", strings.Join(serials, ","), missing, source)
}

func (n nodeInventory) mounts() {
	out, ok := n.step("mounts", n.node)
	if !ok {
		return
	}
	root, ok := n.json(out)
	if !ok {
		return
	}
	value, _ := lookup(root, "filesystems")
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		n.report(n.node, out.step, evidence.ClassUnparsable, "findmnt printed no list filesystems")
		return
	}
	var mounts []string
	for i, entry := range list {
		target, noTarget := jsonText(lookup(entry, "target"))
		kind, noKind := jsonText(lookup(entry, "fstype"))
		if noTarget != "" || noKind != "" {
			n.report(n.node, out.step, evidence.ClassUnparsable, "filesystem %d has no target or no fstype", i)
			return
		}
		mounts = append(mounts, target+"="+kind)
	}
	slices.Sort(mounts)
	n.add("mounts", strings.Join(slices.Compact(mounts), ","), "", out.at("/filesystems"))
}

func (n nodeInventory) version(v versionCommand) {
	out, ok := n.step(v.step(), n.node)
	if !ok {
		return
	}
	proof := v.Proof
	if proof == "" {
		if strings.Count(string(out.stdout), "\n") > 1 {
			n.report(n.node, out.step, evidence.ClassUnparsable, "stdout has several lines, so a cut would not show: give proof, a pattern of the last one")
			return
		}
		proof = "."
	}
	pattern, err := regexp.Compile(proof)
	if err != nil || !n.proved(out, pattern) {
		return
	}
	if v.Regex == "" {
		n.add(v.fact(), string(out.stdout), "", out.at("1"))
		return
	}
	t := commandText{out: out}
	text, missing, source := t.text(extractor{Regex: v.Regex}, "")
	n.add(v.fact(), text, missing, source)
}

// mismatches compares the node's facts with the fleet's expectations.
func (n nodeInventory) mismatches() {
	expect := n.view.Fleet.Expect
	if len(expect) == 0 {
		// Nothing was compared, so zero mismatches would prove nothing.
		return
	}
	facts := make(map[string]evidence.Fact)
	for _, fact := range n.collector.facts {
		if fact.Subject == evidence.Subject(n.node) {
			facts[fact.Name] = fact
		}
	}
	var differ []string
	r := reading{}
	for _, e := range expect {
		fact, ok := facts[e.Fact]
		switch {
		case !ok:
			if len(n.problems) == n.before {
				n.report(n.node, "", evidence.ClassUnparsable, "expect names %q, which is no fact of this test%s", e.Fact, unasked(e.Fact))
			}
			return
		case fact.Missing != "":
			if r.missing == "" {
				r.missing = token(fmt.Sprintf("(%s: %s)", e.Fact, fact.Missing))
				r.source = fact.Source
			}
		case !sameFact(fact.Value, e.Value):
			if len(differ) == 0 && r.missing == "" {
				r.source = fact.Source
			}
			differ = append(differ, fmt.Sprintf("%s is %q, expected %q", e.Fact, token(fact.Value), token(e.Value)))
		case r.source == "":
			r.source = fact.Source
		}
	}
	r.value = float64(len(differ))
	if len(differ) > 0 {
		r.source += " (" + strings.Join(differ, "; ") + ")"
	}
	n.number("mismatches", r)
}

// unasked says which parameter a fact waits for, or nothing.
func unasked(fact string) string {
	named := func(f FactSpec) bool { return f.Name == fact }
	switch {
	case slices.ContainsFunc(gpuFacts, named):
		return ": it is read with gpus = true"
	case slices.ContainsFunc(hcaFacts, named):
		return ": it is read with links = true"
	}
	return ""
}

// sameFact compares texts: as numbers, version 3.10 would be 3.1.
func sameFact(fact, expected string) bool { return fact == expectedText(expected) }

// expectedText is what a fact must be: an expectation may be written "= text".
func expectedText(expected string) string {
	if rest, ok := strings.CutPrefix(expected, "="); ok {
		return strings.TrimSpace(rest)
	}
	return expected
}
