package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// The fabric part of inventory: the ports of the host channel adapters, which
// ibstat (infiniband-diags) lists. Where there is none it prints nothing and
// ends with 0, as it does where it could not look, so its silence proves
// nothing. That an adapter is not there is proved by sysfs, whose files for it
// are not there either.

const (
	hcaStep        = "hcas"
	hcaCounterStep = "hcas-counters"
)

var hcaFacts = []FactSpec{
	{Name: "hcas", Level: "node", Doc: "The names of the host channel adapters that ibstat lists, sorted, with commas between."},
	{Name: "hca_firmware", Level: "node", Doc: "The firmware version of the adapters in nics, or of all if nics is not given; missing if they have several."},
}

var hcaMetrics = []Metric{
	{Name: "link_up", Unit: "1", Level: "node/nic", Resolution: 1, Doc: "1 if ibstat shows the port as Active and LinkUp; 0 in every other state, or if neither ibstat nor sysfs has the adapter."},
	{Name: "link_rate", Unit: "Gb/s", Level: "node/nic", Doc: "The rate as ibstat shows it of a port that is Active and LinkUp; missing of any other, for what ibstat shows then is the rate that it was left with."},
	{Name: "link_downed_lifetime", Unit: "1", Level: "node/nic", Resolution: 1, Doc: "How often the link has gone down since the port's counters were last cleared (counters/link_downed): in its lifetime, not in the test's. It takes nics."},
	{Name: "symbol_errors_lifetime", Unit: "1", Level: "node/nic", Resolution: 1, Doc: "Symbol errors of the port, likewise (counters/symbol_error). It takes nics."},
}

// nicForm is the name of an adapter, such as mlx5_0 or ibp24s0, which stands
// for its first port. Further ports, which ConnectX has shown as adapters of
// their own since its fourth, are mlx4_0.2 and so on.
var nicForm = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_]{0,62})(?:\.([2-9]))?$`)

// nicName is the name of a port.
func nicName(adapter string, port int) string {
	if port == 1 {
		return adapter
	}
	return adapter + "." + strconv.Itoa(port)
}

func (p inventoryParams) validateLinks() error {
	if len(p.NICs) > 0 && !p.Links {
		return fmt.Errorf("nics names adapters, and links is not true, so none is read")
	}
	for i, nic := range p.NICs {
		if !nicForm.MatchString(nic) {
			return fmt.Errorf("nics: %q is not the name of an adapter: write it as ibstat does, such as mlx5_0, and its second port as mlx4_0.2", nic)
		}
		if slices.Contains(p.NICs[:i], nic) {
			return fmt.Errorf("nics: %s is there twice", nic)
		}
	}
	return nil
}

// linkSteps are the steps on every node: the counters are read from files, whose
// names only nics tells.
func (p inventoryParams) linkSteps() []string {
	if len(p.NICs) == 0 {
		return []string{hcaStep}
	}
	return []string{hcaStep, hcaCounterStep}
}

// nicFiles are what sysfs has of a port: the first is there whatever the
// adapter, and shows that the port is.
type nicFiles struct{ state, linkDowned, symbolError string }

func filesOf(nic string) nicFiles {
	adapter, port, further := strings.Cut(nic, ".")
	if !further {
		port = "1"
	}
	root := "/sys/class/infiniband/" + adapter + "/ports/" + port
	return nicFiles{root + "/state", root + "/counters/link_downed", root + "/counters/symbol_error"}
}

// linkFiles are the files of the counters step; the last proves it whole.
func (p inventoryParams) linkFiles() []string {
	var files []string
	for _, nic := range p.NICs {
		f := filesOf(nic)
		files = append(files, f.state, f.linkDowned, f.symbolError)
	}
	return append(files, fileSentinel)
}

// linkArgv is what a link step runs on every node; nil for another step.
func (p inventoryParams) linkArgv(step string) []string {
	switch step {
	case hcaStep:
		return []string{"ibstat"}
	case hcaCounterStep:
		return append([]string{"tail", "-v", "-n", "+1"}, p.linkFiles()...)
	}
	return nil
}

// nicSubjects are the expected adapters of nodes; nil if the plan has none.
func (p inventoryParams) nicSubjects(nodes []string) []evidence.Subject {
	var subjects []evidence.Subject
	for _, node := range nodes {
		for _, nic := range p.NICs {
			subjects = append(subjects, evidence.Subject(node+"/"+nic))
		}
	}
	return subjects
}

// hcaLimit bounds the adapters of one node, virtual ones among them.
const hcaLimit = 1024

// portLimit bounds the ports of one adapter.
const portLimit = 9

// hca is an adapter as ibstat shows it.
type hca struct {
	name     string
	line     int
	ports    int // that it says it has
	firmware string
	port     []hcaPort
}

// hcaPort is one port of an adapter.
type hcaPort struct {
	number                           int
	line, stateLine, rateLine        int
	state, physical, rate, linkLayer string
}

var (
	hcaForm     = regexp.MustCompile(`^(?:CA|Router|iWARP RNIC|\?\?\?) '([^']+)'$`)
	hcaPortForm = regexp.MustCompile(`^Port (\d+):$`)
	hcaRateForm = regexp.MustCompile(`^(\d+(?:\.\d+)?)(?: \([A-Z0-9]+\))?$`) // "10 (FDR10)"
)

// parseIbstat reads the output of ibstat. The problem has neither node nor
// step. Each adapter must have as many ports as it says, and each port must
// have its last field, so that one that was cut is none.
func parseIbstat(stdout []byte) ([]hca, *evidence.Problem) {
	var found []hca
	refuse := func(class evidence.Class, format string, args ...any) ([]hca, *evidence.Problem) {
		return nil, &evidence.Problem{Class: class, Detail: fmt.Sprintf(format, args...)}
	}
	text := string(stdout)
	if text != "" && !strings.HasSuffix(text, "\n") {
		return refuse(evidence.ClassOutputCut, "stdout ends within a line")
	}
	number := 0
	for raw := range strings.Lines(text) {
		number++
		line := strings.TrimSpace(raw)
		if line == "" {
			continue
		}
		if match := hcaForm.FindStringSubmatch(line); match != nil {
			if slices.ContainsFunc(found, func(h hca) bool { return h.name == match[1] }) {
				return refuse(evidence.ClassUnparsable, "line %d lists the adapter %s again", number, token(match[1]))
			}
			if len(found) == hcaLimit {
				return refuse(evidence.ClassUnparsable, "line %d is of more than %d adapters", number, hcaLimit)
			}
			found = append(found, hca{name: match[1], line: number})
			continue
		}
		if len(found) == 0 {
			return refuse(evidence.ClassUnparsable, "line %d comes before any adapter: %q", number, token(line))
		}
		adapter := &found[len(found)-1]
		if match := hcaPortForm.FindStringSubmatch(line); match != nil {
			port, _ := strconv.Atoi(match[1])
			if port != len(adapter.port)+1 || port > portLimit {
				return refuse(evidence.ClassUnparsable, "line %d is port %d of %s, where port %d should be", number, port, token(adapter.name), len(adapter.port)+1)
			}
			adapter.port = append(adapter.port, hcaPort{number: port, line: number})
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || line[0] == raw[0] {
			// Fields are indented, and the complaints of ibpanic are not.
			return refuse(evidence.ClassUnparsable, "line %d is not one of ibstat: %q", number, token(line))
		}
		if problem := adapter.field(name, strings.TrimSpace(value), number); problem != "" {
			return refuse(evidence.ClassUnparsable, "line %d: %s", number, problem)
		}
	}
	for _, adapter := range found {
		if adapter.ports != len(adapter.port) || adapter.ports == 0 {
			return refuse(evidence.ClassOutputCut, "%s has %d ports listed and says %d", token(adapter.name), len(adapter.port), adapter.ports)
		}
		for _, port := range adapter.port {
			if port.state == "" || port.physical == "" || port.rate == "" || port.linkLayer == "" {
				return refuse(evidence.ClassOutputCut, "port %d of %s lacks one of State, Physical state, Rate and Link layer", port.number, token(adapter.name))
			}
		}
	}
	return found, nil
}

// field takes one "name: value"; it says what is wrong with it, or nothing.
func (h *hca) field(name, value string, line int) string {
	set := func(to *string) string {
		if *to != "" {
			return name + " is there twice"
		}
		*to = value
		return ""
	}
	if len(h.port) == 0 {
		switch name {
		case "Number of ports":
			ports, err := strconv.Atoi(value)
			if err != nil || h.ports != 0 {
				return fmt.Sprintf("the number of ports is %q", token(value))
			}
			h.ports = ports
		case "Firmware version":
			return set(&h.firmware)
		}
		return ""
	}
	port := &h.port[len(h.port)-1]
	switch name {
	case "State":
		port.stateLine = line
		return set(&port.state)
	case "Physical state":
		return set(&port.physical)
	case "Rate":
		port.rateLine = line
		return set(&port.rate)
	case "Link layer":
		return set(&port.linkLayer)
	}
	return ""
}

// The words of rdma-core's infiniband-diags/ibstat.c; it has ??? for a state
// that it does not know.
var (
	portStates     = []string{"Down", "Initializing", "Armed", "Active"}
	physicalStates = []string{"No state change", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "PhyTest"}
)

// up is link_up of the port.
func (p hcaPort) up(out stepOutput) reading {
	r := reading{source: out.at("%d", p.stateLine)}
	switch {
	case !slices.Contains(portStates, p.state):
		r.missing = token(p.state)
	case !slices.Contains(physicalStates, p.physical):
		r.missing = token(p.physical)
	case p.state == "Active" && p.physical == "LinkUp":
		r.value = 1
	default:
		r.source += " (" + p.state + ", " + p.physical + ")"
	}
	return r
}

// gbits is link_rate of the port. A port that is not up has none: ibstat goes
// on showing the one that it had.
func (p hcaPort) gbits(out stepOutput) reading {
	r := reading{source: out.at("%d", p.rateLine)}
	match := hcaRateForm.FindStringSubmatch(p.rate)
	switch {
	case p.state != "Active":
		r.missing = token("(port is " + p.state + ")")
	case p.physical != "LinkUp":
		r.missing = token("(port is " + p.physical + ")")
	case match == nil:
		r.missing = token(p.rate)
	default:
		r.value, r.missing = parseNumber(match[1])
	}
	return r
}

// hcas measures the node's adapters.
func (n nodeInventory) hcas() {
	var counters map[string]section
	var files stepOutput
	counted := false
	if len(n.params.NICs) > 0 {
		// tail exits with 1 if one of the files is not there.
		if files, counted = n.step(hcaCounterStep, n.node, 0, 1); counted {
			counters, counted = n.sections(files, n.params.linkFiles()...)
		}
	}
	out, ok := n.step(hcaStep, n.node)
	if !ok {
		return
	}
	found, problem := parseIbstat(out.stdout)
	if problem != nil {
		n.report(n.node, hcaStep, problem.Class, "%s", problem.Detail)
		return
	}
	n.hcaFacts(out, found)
	ports := make(map[string]hcaPort)
	var nics []string
	for _, adapter := range found {
		for _, port := range adapter.port {
			name := nicName(adapter.name, port.number)
			ports[name] = port
			nics = append(nics, name)
		}
	}
	if len(n.params.NICs) > 0 {
		nics = n.params.NICs
	}
	for _, nic := range nics {
		measure := func(name string, r reading) {
			n.measure(metricNamed(hcaMetrics, name), evidence.Subject(n.node+"/"+nic), nil, r)
		}
		port, listed := ports[nic]
		switch {
		case listed:
			measure("link_up", port.up(out))
			measure("link_rate", port.gbits(out))
		case !counted:
			continue // and that is reported: one witness alone proves no absence
		case counters[filesOf(nic).state].exists:
			n.report(n.node, hcaStep, evidence.ClassOutputCut, "ibstat does not list %s, which sysfs has", nic)
			continue
		default:
			source := out.at("1") + " (neither ibstat nor sysfs has " + nic + ")"
			measure("link_up", reading{source: source})
			measure("link_rate", reading{missing: "(no such adapter)", source: source})
		}
		if counted {
			measure("link_downed_lifetime", counter(files, counters[filesOf(nic).linkDowned]))
			measure("symbol_errors_lifetime", counter(files, counters[filesOf(nic).symbolError]))
		}
	}
}

// counter is the content of a counter's file.
func counter(out stepOutput, s section) reading {
	if !s.exists {
		return reading{missing: "(not readable)", source: out.at("1")}
	}
	value, missing := parseNumber(s.text) // "N/A (no PMA)" of some
	return reading{value, missing, out.at("%d", s.line)}
}

func (n nodeInventory) hcaFacts(out stepOutput, found []hca) {
	bound := func(adapter string) bool {
		return len(n.params.NICs) == 0 || slices.ContainsFunc(n.params.NICs, func(nic string) bool {
			name, _, _ := strings.Cut(nic, ".")
			return name == adapter
		})
	}
	var names, firmware []string
	source := out.at("1")
	for _, adapter := range found {
		names = append(names, adapter.name)
		if bound(adapter.name) && !slices.Contains(firmware, adapter.firmware) {
			firmware, source = append(firmware, adapter.firmware), out.at("%d", adapter.line)
		}
	}
	slices.Sort(names)
	missing := func(values []string, most int) string {
		switch {
		case len(values) == 0:
			return "(no such adapter)"
		case len(values) > most:
			return "(more than one)"
		}
		return ""
	}
	n.add("hcas", strings.Join(names, ","), missing(names, len(names)), out.at("1"))
	n.add("hca_firmware", strings.Join(firmware, ","), missing(firmware, 1), source)
}
