package checks

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// The GPU part of inventory. Two witnesses say which GPUs a node has: lspci,
// which the kernel told what was on the bus when it booted, and nvidia-smi,
// which lists those that answer. Their difference is a GPU that fell off.
//
// gpuN is the N-th GPU in the order of PCI addresses: nvidia-smi numbers its
// GPUs so, but only those that it sees. Where one is missing it gives the
// numbers of those behind it to others, so its index names nothing here.

const (
	gpuStep      = "gpus"
	gpuBusStep   = "gpus-bus"
	gpuRowsStep  = "gpus-remapped"
	gpuLinksStep = "gpus-nvlink"
)

var gpuSteps = []string{gpuStep, gpuBusStep, gpuRowsStep, gpuLinksStep}

// gpuFields are in every driver since 450 (mig.mode.current is the youngest);
// one that a driver does not know would end the whole query with status 2.
// count is how many GPUs there are to list: it proves the list whole.
var gpuFields = []string{
	"count", "index", "uuid", "serial", "name", "pci.bus_id", "driver_version", "vbios_version", "inforom.img", "memory.total",
	"ecc.mode.current", "persistence_mode", "mig.mode.current", "pcie.link.width.current", "ecc.errors.uncorrected.volatile.total",
}

// gpuArgv is what a GPU step runs on every node; nil for another step.
func gpuArgv(step string) []string {
	switch step {
	case gpuStep:
		return []string{"nvidia-smi", "--query-gpu=" + strings.Join(gpuFields, ","), "--format=csv"}
	case gpuBusStep:
		return []string{"lspci", "-D", "-n", "-d", "10de:"}
	case gpuRowsStep:
		return []string{"nvidia-smi", "--query-remapped-rows=gpu_bus_id,gpu_uuid,remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure", "--format=csv"}
	case gpuLinksStep:
		return []string{"nvidia-smi", "nvlink", "--status"}
	}
	return nil
}

// smiCodes are the statuses that nvidia-smi ends with (nvidia-smi(1), RETURN
// VALUE; 18 is NVML's code of a version mismatch). What it printed says more
// than they do: 6 and 15 may come with a list of all GPUs but one.
var smiCodes = []int{0, 2, 3, 4, 6, 8, 9, 10, 12, 13, 14, 15, 18, 255}

var gpuMetrics = []Metric{
	{Name: "gpu_present", Unit: "1", Level: "node/gpu", Resolution: 1, Doc: "1 if nvidia-smi lists the GPU with its UUID; 0 if it says that it is lost, or if its list is proved whole and has no GPU at this address. gpuN is the N-th of gpu_slots, else the N-th GPU on the bus by PCI address."},
	{Name: "ecc_uncorrected", Unit: "1", Level: "node/gpu", Resolution: 1, Doc: "Uncorrected memory errors since the driver was loaded (ecc.errors.uncorrected.volatile.total)."},
	{Name: "remapped_rows_uncorrectable", Unit: "1", Level: "node/gpu", Resolution: 1, Doc: "Memory rows remapped for uncorrectable errors in the GPU's lifetime (remapped_rows.uncorrectable)."},
	{Name: "remapped_rows_pending", Unit: "1", Level: "node/gpu", Resolution: 1, Doc: "1 if a row waits for a reset to be remapped (remapped_rows.pending)."},
	{Name: "remapped_rows_failure", Unit: "1", Level: "node/gpu", Resolution: 1, Doc: "1 if remapping has ever failed: there is no spare row left (remapped_rows.failure)."},
	{Name: "pcie_width", Unit: "1", Level: "node/gpu", Resolution: 1, Doc: "Lanes of the GPU's PCIe link as it is now (pcie.link.width.current)."},
	{Name: "nvlinks_up", Unit: "1", Level: "node/gpu", Resolution: 1, Doc: "NVLinks with a speed above zero, as nvidia-smi nvlink --status lists them."},
}

var gpuFacts = []FactSpec{
	{Name: "gpus", Level: "node", Doc: "The number of GPUs that nvidia-smi lists and does not call lost."},
	{Name: "gpu_model", Level: "node", Doc: "The product name of all GPUs; missing if they have several."},
	{Name: "gpu_memory_gib", Level: "node", Doc: "memory.total of each GPU in GiB, rounded to a whole number; missing if they differ."},
	{Name: "gpu_vbios", Level: "node", Doc: "The VBIOS version of all GPUs; missing if they have several."},
	{Name: "gpu_inforom", Level: "node", Doc: "The infoROM image version of all GPUs; missing if they have several."},
	{Name: "driver_version", Level: "node", Doc: "The version of the NVIDIA driver."},
	{Name: "gpu_ecc", Level: "node", Doc: "Enabled or Disabled: the ECC mode of all GPUs; missing if they differ."},
	{Name: "gpu_persistence", Level: "node", Doc: "Enabled or Disabled: the persistence mode of all GPUs; missing if they differ."},
	{Name: "gpu_mig", Level: "node", Doc: "Enabled or Disabled: the MIG mode of all GPUs; missing if they differ or have none."},
	{Name: "gpu_uuids", Level: "node", Doc: "The UUIDs of the GPUs, sorted, with commas between; missing if one of them cannot be read."},
	{Name: "gpu_serials", Level: "node", Doc: "Their serial numbers, likewise."},
	{Name: "gpu_pci", Level: "node", Doc: "Their PCI addresses, such as 0000:1b:00.0, likewise."},
}

// gpusToFind is how many GPUs each node is to have, by the slots or by the
// fleet's expect block; 0 if neither gives a number, and the GPUs are then those
// that are found: an expectation of another form is for mismatches to fail.
func (p inventoryParams) gpusToFind(f evidence.Fleet) int {
	if len(p.GPUSlots) > 0 {
		return len(p.GPUSlots)
	}
	n, _ := expectedGPUs(f)
	return n
}

func (p inventoryParams) validateGPUs() error {
	if len(p.GPUSlots) > 0 && !p.GPUs {
		return fmt.Errorf("gpu_slots says where the GPUs are, and gpus is not true, so none is read")
	}
	if len(p.GPUSlots) > gpuLimit {
		return fmt.Errorf("gpu_slots has %d addresses: a node has at most %d GPUs here", len(p.GPUSlots), gpuLimit)
	}
	before := ""
	for _, slot := range p.GPUSlots {
		address, ok := pciAddress(slot)
		if !ok {
			return fmt.Errorf("gpu_slots: %q is no PCI address: write it as 0000:1b:00.0", slot)
		}
		switch {
		case address == before:
			return fmt.Errorf("gpu_slots: %s is there twice", address)
		case before != "" && pciCompare(before, address) > 0:
			// The other checks know no slots.
			return fmt.Errorf("gpu_slots: %s stands behind %s: write them in rising order, since gpuN is the N-th GPU by address in every check", address, before)
		}
		before = address
	}
	return nil
}

// smi reads a query of nvidia-smi. GPUs that it could not reach are no
// problem of the reading: they are what was to be found.
func (n nodeInventory) smi(step string) (stepOutput, smiTable, bool) {
	out, ok := n.step(step, n.node, smiCodes...)
	if !ok {
		return out, smiTable{}, false
	}
	table, problem := parseSMI(out.stdout, out.stderr)
	if problem != nil {
		n.report(n.node, step, problem.Class, "%s", problem.Detail)
		return out, smiTable{}, false
	}
	explained := len(table.lost) > 0 || table.none != nil || slices.ContainsFunc(table.rows, smiRow.lost)
	switch code := *out.exit.Code; {
	case len(table.notes) > 0:
		// infoROM is corrupted: the values may be right, and the GPU is not.
		n.report(n.node, step, evidence.ClassExit, "exit status %d: %s", code, token(table.notes[0].text))
	case code != 0 && !explained:
		n.report(n.node, step, evidence.ClassExit, "exit status %d, and nothing says why%s", code, firstLine(out.stderr))
	}
	return out, table, true
}

// source is the place of a line of nvidia-smi that is no row.
func (o stepOutput) source(l smiLine) string {
	return fmt.Sprintf("%s/%s:%d", evidence.StepDir(o.step, o.node), l.stream, l.line)
}

// byAddress sorts the rows of a query by the PCI addresses of their GPUs. A
// row that has none is as good as a line about a GPU that is lost, if it says
// so itself; else it could be of any, and stop says that.
func (n nodeInventory) byAddress(out stepOutput, table smiTable) (l gpuListing, ok bool) {
	l = gpuListing{out: out, rows: make(map[string]smiRow, len(table.rows)), lost: table.lost}
	for _, row := range table.rows {
		text, missing := row.text("pci.bus_id")
		address, ok := pciAddress(text)
		switch {
		case missing != "" && row.lost():
			l.lost = append(l.lost, smiLine{stream: "stdout", line: row.line, text: missing})
			continue
		case missing != "":
			l.stop = token("(the PCI address of one is " + missing + ")")
			continue
		}
		if _, again := l.rows[address]; again || !ok {
			n.report(n.node, out.step, evidence.ClassUnparsable, "line %d is of a GPU at %q: there can be one there, and only one", row.line, token(text))
			return gpuListing{}, false
		}
		l.rows[address] = row
	}
	if len(l.rows) > gpuLimit {
		n.report(n.node, out.step, evidence.ClassUnparsable, "nvidia-smi lists %d GPUs, and a node has at most %d here", len(l.rows), gpuLimit)
		return gpuListing{}, false
	}
	return l, true
}

// unread is how many GPUs beside those of the rows it could not reach.
func (l gpuListing) unread() int {
	count, seen := 0, make(map[string]bool)
	for _, line := range l.lost {
		if _, listed := l.rows[line.address]; listed || seen[line.address] {
			continue
		}
		seen[line.address] = line.address != ""
		count++
	}
	return count
}

// gpuListing is what the query of all GPUs says.
type gpuListing struct {
	out  stepOutput
	rows map[string]smiRow // by PCI address
	lost []smiLine
	stop string // why the list may lack GPUs that answer; empty: it is whole
}

// source is the place of the list itself.
func (l gpuListing) source() string {
	if len(l.lost) > 0 {
		return l.out.source(l.lost[0])
	}
	return l.out.at("1")
}

// addresses are those of the rows, in the order of the bus.
func (l gpuListing) addresses() []string {
	return slices.SortedFunc(maps.Keys(l.rows), pciCompare)
}

// present is gpu_present of the GPU at an address, and its row if it has one
// to read.
func (l gpuListing) present(address, remark string) (reading, *smiRow) {
	if row, ok := l.rows[address]; ok {
		if row.lost() {
			return reading{source: l.out.at("%d", row.line)}, nil
		}
		_, missing := row.text("uuid")
		r := reading{value: 1, missing: missing, source: l.out.at("%d", row.line)}
		return r, &row
	}
	for _, line := range l.lost {
		if line.address == address {
			return reading{source: l.out.source(line) + " (" + token(line.text) + ")"}, nil
		}
	}
	return reading{missing: l.stop, source: fmt.Sprintf("%s (%s is not listed%s)", l.source(), address, remark)}, nil
}

func (n nodeInventory) gpuListing() (gpuListing, bool) {
	out, table, ok := n.smi(gpuStep)
	if !ok {
		return gpuListing{}, false
	}
	listing, ok := n.byAddress(out, table)
	if !ok {
		return gpuListing{}, false
	}
	count := -1.0
	for _, row := range table.rows {
		printed, missing := row.number("count", "")
		switch {
		case missing != "" && row.lost():
		case missing != "" || count >= 0 && printed != count:
			n.report(n.node, out.step, evidence.ClassUnparsable, "line %d does not say how many GPUs there are, as the others do", row.line)
			return gpuListing{}, false
		default:
			count = printed
		}
	}
	named := float64(len(listing.rows))
	switch {
	case listing.stop != "":
	case len(table.rows) == 0 && len(listing.lost) == 0: // it says that there is none
	case count >= 0 && (named == count || named+float64(listing.unread()) == count):
	case len(listing.lost) > 0:
		listing.stop = token("(" + listing.lost[0].text + ")")
	case count < 0:
		listing.stop = "(every GPU that is listed is lost)"
	default:
		n.report(n.node, out.step, evidence.ClassOutputCut, "nvidia-smi lists %g GPUs and counts %g", named, count)
		return gpuListing{}, false
	}
	return listing, true
}

// gpuFacts are the facts of all GPUs that answer together.
func (n nodeInventory) gpuFacts(l gpuListing) {
	var rows []smiRow
	for _, address := range l.addresses() {
		if row := l.rows[address]; !row.lost() {
			rows = append(rows, row)
		}
	}
	// each has the field's text of every GPU, unless one of them shows none.
	each := func(read func(smiRow) (string, string)) (values []string, missing, source string) {
		source = l.source()
		if l.stop != "" {
			return nil, l.stop, source
		}
		for _, row := range rows {
			value, missing := read(row)
			if missing != "" {
				return nil, missing, l.out.at("%d", row.line)
			}
			values = append(values, value)
		}
		if len(values) == 0 {
			return nil, "(no GPU)", source
		}
		return values, "", l.out.at("%d", rows[0].line)
	}
	field := func(name string) func(smiRow) (string, string) {
		return func(row smiRow) (string, string) { return row.text(name) }
	}
	one := func(fact string, read func(smiRow) (string, string)) {
		values, missing, source := each(read)
		if missing != "" {
			n.add(fact, "", missing, source)
			return
		}
		if differs := slices.IndexFunc(values, func(v string) bool { return v != values[0] }); differs > 0 {
			n.add(fact, "", "(more than one)", l.out.at("%d", rows[differs].line))
			return
		}
		n.add(fact, values[0], "", source)
	}
	list := func(fact string, read func(smiRow) (string, string)) {
		values, missing, source := each(read)
		slices.Sort(values)
		n.add(fact, strings.Join(values, ","), missing, source)
	}
	n.add("gpus", strconv.Itoa(len(rows)), l.stop, l.source())
	one("gpu_model", field("name"))
	one("gpu_memory_gib", func(row smiRow) (string, string) {
		mib, missing := row.number("memory.total", "MiB")
		return strconv.FormatFloat(math.Round(mib/1024), 'f', -1, 64), missing
	})
	one("gpu_vbios", field("vbios_version"))
	one("gpu_inforom", field("inforom.img"))
	one("driver_version", field("driver_version"))
	one("gpu_ecc", field("ecc.mode.current"))
	one("gpu_persistence", field("persistence_mode"))
	one("gpu_mig", field("mig.mode.current"))
	list("gpu_uuids", field("uuid"))
	list("gpu_serials", func(row smiRow) (string, string) {
		serial, missing := row.text("serial")
		if serial == "0" {
			return "", serial // of a board that was given none
		}
		return serial, missing
	})
	list("gpu_pci", func(row smiRow) (string, string) {
		address, missing := row.text("pci.bus_id")
		address, _ = pciAddress(address)
		return address, missing
	})
}

// busGPU is a GPU as lspci lists it.
type busGPU struct {
	revision string // "ff" of one that does not answer, unless the kernel remembers its own
	line     int
}

// Of NVIDIA's functions only the classes 0300 (VGA) and 0302 (3D) are GPUs;
// there are audio and USB controllers and NVSwitches beside them.
var lspciForm = regexp.MustCompile(`^(\S+) ([0-9a-f]{4}): 10de:[0-9a-f]{4}(?: \(rev ([0-9a-f]{2})\))?(?: \(prog-if [0-9a-f]{2}\))?$`)

// gpuBus is the second witness: the GPUs on the bus, by PCI address.
func (n nodeInventory) gpuBus() (map[string]busGPU, bool) {
	out, ok := n.step(gpuBusStep, n.node)
	if !ok || !n.wholeLines(out, "stdout", out.stdout) {
		return nil, false
	}
	found := make(map[string]busGPU)
	line := 0
	for text := range strings.Lines(string(out.stdout)) {
		line++
		match := lspciForm.FindStringSubmatch(strings.TrimSpace(text))
		var address string
		if match != nil {
			address, ok = pciAddress(match[1])
		}
		if match == nil || !ok {
			n.report(n.node, out.step, evidence.ClassUnparsable, "line %d is not one of lspci -D -n: %q", line, token(text))
			return nil, false
		}
		if match[2] == "0300" || match[2] == "0302" {
			if len(found) == gpuLimit {
				n.report(n.node, out.step, evidence.ClassUnparsable, "line %d is of more than %d GPUs", line, gpuLimit)
				return nil, false
			}
			found[address] = busGPU{revision: match[3], line: line}
		}
	}
	return found, true
}

// gpuOrder has the address of each gpuN. unknown says why it cannot be told
// which GPU that is.
func (n nodeInventory) gpuOrder(l gpuListing, bus map[string]busGPU, seen bool) (order []string, unknown string, ok bool) {
	listed := l.addresses()
	for _, address := range listed {
		if _, on := bus[address]; seen && !on {
			n.report(n.node, gpuBusStep, evidence.ClassOutputCut, "lspci does not list %s, which nvidia-smi does", address)
			return nil, "", false
		}
	}
	known := slices.Clone(listed)
	for _, line := range l.lost {
		if line.address != "" {
			known = append(known, line.address)
		}
	}
	if len(n.params.GPUSlots) > 0 {
		for _, slot := range n.params.GPUSlots {
			address, _ := pciAddress(slot)
			order = append(order, address)
		}
		for _, address := range known {
			if !slices.Contains(order, address) {
				n.report(n.node, l.out.step, evidence.ClassUnparsable, "there is a GPU at %s, where gpu_slots has none: correct the list", address)
				return nil, "", false
			}
		}
		return order, "", true
	}
	last := -1.0
	for _, address := range listed {
		index, missing := l.rows[address].number("index", "")
		if missing == "" && index <= last {
			n.report(n.node, l.out.step, evidence.ClassUnparsable, "nvidia-smi numbers its GPUs in another order than that of their PCI addresses, so gpu%g could be either of two: give gpu_slots", index)
			return nil, "", false
		}
		last = max(last, index)
	}
	order = slices.SortedFunc(maps.Keys(bus), pciCompare)
	order = append(order, known...)
	slices.SortFunc(order, pciCompare)
	order = slices.Compact(order)
	if expected := n.params.gpusToFind(n.view.Fleet); expected > 0 && expected != len(order) {
		// One that is not even on the bus leaves no gap.
		return make([]string, expected), fmt.Sprintf("(%d GPUs on the bus and %d expected: only gpu_slots could tell which)", len(order), expected), true
	}
	return order, "", true
}

// gpus measures the node's GPUs.
func (n nodeInventory) gpus() {
	listing, ok := n.gpuListing()
	bus, seen := n.gpuBus()
	if !ok {
		return
	}
	n.gpuFacts(listing)
	order, unknown, ok := n.gpuOrder(listing, bus, seen)
	if !ok {
		return
	}
	remapped, remappedRead := n.remappedRows(listing)
	links, linksRead := n.nvlinks(listing)
	for i, address := range order {
		measure := func(name string, r reading) {
			n.measure(metricNamed(gpuMetrics, name), gpuSubject(n.node, i), nil, r)
		}
		remark := ""
		if on, ok := bus[address]; ok {
			remark = ", and " + stepOutput{step: gpuBusStep, node: n.node}.at("%d", on.line) + " has it with revision " + cmp.Or(on.revision, "00")
		}
		present, row := listing.present(address, remark)
		if unknown != "" {
			present, row = reading{missing: unknown, source: listing.source()}, nil
		}
		measure("gpu_present", present)
		if row == nil {
			nothing := reading{missing: cmp.Or(present.missing, "(the GPU is gone)"), source: present.source}
			for _, metric := range gpuMetrics[1:] {
				measure(metric.Name, nothing)
			}
			continue
		}
		number := func(field string) reading {
			value, missing := row.count(field)
			return reading{value, missing, listing.out.at("%d", row.line)}
		}
		measure("ecc_uncorrected", number("ecc.errors.uncorrected.volatile.total"))
		measure("pcie_width", number("pcie.link.width.current"))
		if remappedRead {
			for _, name := range []string{"uncorrectable", "pending", "failure"} {
				measure("remapped_rows_"+name, remapped.number(address, "remapped_rows."+name))
			}
		}
		if linksRead {
			uuid, _ := row.text("uuid")
			measure("nvlinks_up", links.up(uuid))
		}
	}
}

// remappedRows is what the second query says, of every GPU that the first
// one lists.
func (n nodeInventory) remappedRows(l gpuListing) (gpuListing, bool) {
	out, table, ok := n.smi(gpuRowsStep)
	if !ok {
		return gpuListing{}, false
	}
	second, ok := n.byAddress(out, table)
	switch {
	case !ok:
		return gpuListing{}, false
	case len(second.lost) > 0:
		second.stop = token("(" + second.lost[0].text + ")")
	}
	if second.stop != "" {
		return second, true
	}
	for _, address := range l.addresses() {
		if _, ok := second.rows[address]; !ok {
			n.report(n.node, out.step, evidence.ClassOutputCut, "nvidia-smi does not list the GPU at %s, which it does elsewhere", address)
			return gpuListing{}, false
		}
	}
	return second, true
}

// number is a count, or a flag: drivers print it as No and Yes or as 0 and 1.
func (l gpuListing) number(address, field string) reading {
	row, ok := l.rows[address]
	if !ok {
		return reading{missing: l.stop, source: l.source()}
	}
	r := reading{source: l.out.at("%d", row.line)}
	switch text, missing := row.text(field); {
	case missing != "":
		r.missing = missing
	case text == "No":
	case text == "Yes":
		r.value = 1
	default:
		r.value, r.missing = row.count(field)
	}
	return r
}

// nvlinkListing is what nvidia-smi nvlink --status says, by UUID.
type nvlinkListing struct {
	out      stepOutput
	sections map[string]*nvlinkSection
	stop     string // why a GPU may have no section
}

// nvlinkSection is what it says of one GPU.
type nvlinkSection struct {
	model   string
	line    int
	links   int  // listed, up or not
	none    bool // it says that none is up
	up      int
	missing string
}

var (
	nvlinkGPUForm   = regexp.MustCompile(`^GPU \d+: (.*) \(UUID: (GPU-[0-9A-Za-z-]+)\)$`)
	nvlinkLinkForm  = regexp.MustCompile(`^Link (\d+): (.+)$`)
	nvlinkSpeedForm = regexp.MustCompile(`^(\d+(?:\.\d+)?) GB/s$`)
	nvlinkDownForm  = regexp.MustCompile(`^(?i:<?inactive>?)$`)
	// Of a GPU without a live link it says so in one line, instead of each.
	nvlinkNoneForm = regexp.MustCompile(`(?i)^NVML: Unable to retrieve NVLink information as all links are inactive`)
)

func (n nodeInventory) nvlinks(l gpuListing) (nvlinkListing, bool) {
	out, ok := n.step(gpuLinksStep, n.node, smiCodes...)
	if !ok || !n.wholeLines(out, "stdout", out.stdout) {
		return nvlinkListing{}, false
	}
	refuse := func(class evidence.Class, format string, args ...any) (nvlinkListing, bool) {
		n.report(n.node, out.step, class, format, args...)
		return nvlinkListing{}, false
	}
	var remarks smiTable // lost GPUs stand between the sections
	listing := nvlinkListing{out: out, sections: make(map[string]*nvlinkSection)}
	var last *nvlinkSection
	for _, stream := range []struct {
		name string
		data []byte
	}{{"stderr", out.stderr}, {"stdout", out.stdout}} {
		number := 0
		for raw := range strings.Lines(string(stream.data)) {
			number++
			text := strings.TrimSpace(raw)
			if len(remarks.lost) == gpuLimit {
				return refuse(evidence.ClassUnparsable, "more than %d GPUs are lost", gpuLimit)
			}
			known, failure := remarks.remark(smiLine{stream: stream.name, line: number, text: text})
			switch {
			case failure != "":
				return refuse(failure, "nvidia-smi nvlink: %s", token(text))
			case known, text == "", stream.name == "stderr":
				continue
			}
			if match := nvlinkGPUForm.FindStringSubmatch(text); match != nil {
				if listing.sections[match[2]] != nil || len(listing.sections) == gpuLimit {
					return refuse(evidence.ClassUnparsable, "line %d lists %s again, or too many GPUs", number, match[2])
				}
				last = &nvlinkSection{model: match[1], line: number}
				listing.sections[match[2]] = last
				continue
			}
			if last == nil || !last.add(text) {
				return refuse(evidence.ClassUnparsable, "line %d is not one of nvidia-smi nvlink --status: %q", number, token(text))
			}
		}
	}
	switch code := *out.exit.Code; {
	case len(remarks.lost) > 0:
		listing.stop = token("(" + remarks.lost[0].text + ")")
		return listing, true
	case len(listing.sections) == 0:
		// Where no GPU has NVLink it prints nothing at all.
		listing.stop = "(nvidia-smi nvlink lists no GPU)"
		return listing, true
	case code != 0:
		return refuse(evidence.ClassExit, "exit status %d, and nothing says why%s", code, firstLine(out.stderr))
	}
	for _, address := range l.addresses() {
		uuid, missing := l.rows[address].text("uuid")
		if missing == "" && listing.sections[uuid] == nil {
			return refuse(evidence.ClassOutputCut, "nvidia-smi nvlink does not list %s", token(uuid))
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(listing.sections)) {
		// The last one could have been cut between two lines.
		section := listing.sections[uuid]
		if section.model == last.model && last.missing == "" && !last.none && section.links > last.links {
			return refuse(evidence.ClassOutputCut, "the last GPU has %d links and %s of the same model has %d", last.links, token(uuid), section.links)
		}
	}
	return listing, true
}

// add takes a line of the section; false if it is none.
func (s *nvlinkSection) add(text string) bool {
	if nvlinkNoneForm.MatchString(text) {
		s.none = true
		return s.links == 0
	}
	if reason, ok := strings.CutPrefix(text, "NVML: "); ok {
		s.missing = token(reason)
		return true
	}
	match := nvlinkLinkForm.FindStringSubmatch(text)
	if match == nil || match[1] != strconv.Itoa(s.links) {
		return false
	}
	s.links++
	if speed := nvlinkSpeedForm.FindStringSubmatch(match[2]); speed != nil {
		if value, _ := parseNumber(speed[1]); value > 0 {
			s.up++
		}
	} else if !nvlinkDownForm.MatchString(match[2]) {
		s.missing = token(match[2])
	}
	return true
}

// up is how many links of a GPU are up.
func (l nvlinkListing) up(uuid string) reading {
	s := l.sections[uuid]
	if s == nil {
		return reading{missing: cmp.Or(l.stop, "(not listed)"), source: l.out.at("1")}
	}
	return reading{float64(s.up), s.missing, l.out.at("%d", s.line)}
}
