package checks

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// The kernel names parts by their addresses on the PCI bus, and people by what
// lspci or sysfs make of these.

const (
	gpusStep = "gpus"
	nicsStep = "nics"
)

// partsArgv is what the steps above run; nil for another step. lspci still
// shows a GPU that has fallen off the bus, and nvidia-smi does not. Every node
// has /proc/mounts, a link: its line is the proven end of find's.
func partsArgv(step string) []string {
	switch step {
	case gpusStep:
		return []string{"lspci", "-Dn", "-d", "10de:"}
	case nicsStep:
		return []string{"find", "/sys/class/infiniband", "/sys/class/net", "/proc/mounts", "-type", "l", "-printf", `%f %l\n`}
	}
	return nil
}

// lspciLineForm is a line of lspci -Dn: "0000:18:00.0 0302: 10de:2330 (rev a1)".
var lspciLineForm = regexp.MustCompile(`^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.([0-7]) ([0-9a-f]{4}): 10de:[0-9a-f]{4}(?: .*)?$`)

// gpuAddresses are the PCI addresses of the node's NVIDIA GPUs in their order,
// which is that of nvidia-smi's index, without their functions: controllers of
// class 0300 (VGA) and 0302 (3D). It is false where there are not count.
func (m *collector) gpuAddresses(node string, count int) ([]string, bool) {
	out, ok := m.step(gpusStep, node)
	if !ok || !m.wholeLines(out, "stdout", out.stdout) {
		return nil, false
	}
	var addresses []string
	line := 0
	for text := range strings.Lines(string(out.stdout)) {
		line++
		match := lspciLineForm.FindStringSubmatch(strings.TrimRight(text, "\r\n"))
		if match == nil {
			m.report(node, gpusStep, evidence.ClassUnparsable, "line %d is none of lspci -Dn: %q", line, token(text))
			return nil, false
		}
		if match[2] == "0" && (match[3] == "0300" || match[3] == "0302") {
			addresses = append(addresses, plainPCI(match[1]))
		}
	}
	slices.SortFunc(addresses, comparePCI)
	if len(addresses) != count {
		m.report(node, gpusStep, evidence.ClassUnparsable, "lspci shows %s and gpus is %d, so that no address can be told to be gpu0", evidence.Count(len(addresses), "NVIDIA GPU"), count)
		return nil, false
	}
	return addresses, true
}

// comparePCI orders addresses of plainPCI by number: a domain of more digits
// is the larger one.
func comparePCI(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// nodeNICs tells a node's network devices apart.
type nodeNICs struct {
	pci   map[string]string   // by the device's name; empty for one that is on no PCI bus
	named map[string][]string // the names that the runbook gives, by address
}

var (
	nicLinkForm = regexp.MustCompile(`^([^\s/]+) (\S+)$`)
	nicsEndForm = regexp.MustCompile(`(?:^|\n)mounts self/mounts\r?\n$`)
	nicPathForm = regexp.MustCompile(`.*/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/`)
)

// networkDevices reads the devices of RDMA and of the network with their
// addresses, and reports each of names that is not there.
func (m *collector) networkDevices(node string, names []string) (nodeNICs, bool) {
	// find ends with 1 where one of the two folders is not there.
	out, ok := m.step(nicsStep, node, 0, 1)
	if !ok {
		return nodeNICs{}, false
	}
	if !nicsEndForm.Match(out.stdout) {
		m.report(node, nicsStep, evidence.ClassOutputCut, "stdout does not end with /proc/mounts")
		return nodeNICs{}, false
	}
	found := nodeNICs{pci: make(map[string]string), named: make(map[string][]string)}
	line := 0
	for text := range strings.Lines(string(out.stdout)) {
		line++
		match := nicLinkForm.FindStringSubmatch(strings.TrimRight(text, "\r\n"))
		if match == nil {
			m.report(node, nicsStep, evidence.ClassUnparsable, "line %d is not a name and its link: %q", line, token(text))
			return nodeNICs{}, false
		}
		address := ""
		if path := nicPathForm.FindStringSubmatch(match[2]); path != nil {
			address = path[1]
		}
		found.pci[match[1]] = address
	}
	all := true
	for _, name := range names {
		address, there := found.pci[name]
		if !there {
			m.report(node, nicsStep, evidence.ClassUnparsable, "nics names %s, which the node does not have", name)
			all = false
			continue
		}
		if address != "" {
			found.named[address] = append(found.named[address], name)
		}
	}
	return found, all
}

// of are the names that the runbook gives to the device that a line names, and
// whether the node has it.
func (n nodeNICs) of(link linkDown, names []string) (subjects []string, known bool) {
	if slices.Contains(names, link.device) {
		return []string{link.device}, true
	}
	address, known := n.pci[link.device]
	if !known {
		address = link.pci
		for _, there := range n.pci {
			known = known || address != "" && there == address
		}
	}
	return n.named[address], known
}

// linkDown is a line that says that a network device has lost its link.
type linkDown struct {
	pci    string // of the device, with its function; empty where the line has none
	device string // its name, likewise
}

// The forms of network drivers: "mlx5_core 0000:3b:00.0 ens1np0: Link down",
// "mlx5_core 0000:3b:00.0: Port: 1 Link DOWN", "mlx5_0: Port: 1 Link DOWN",
// "ixgbe 0000:01:00.0 eth0: NIC Link is Down", "ib0: link down". Ports of the
// PCI bus and of disks have links too: "pcieport 0000:00:01.0: pciehp:
// Slot(1): Link Down", "ata1: SATA link down".
var (
	linkOnBusForm = regexp.MustCompile(`^([\w-]+) ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?: ([^\s:]+))?: (?:.*[\s:])?(?i:link (?:is )?down)\b`)
	linkForm      = regexp.MustCompile(`^(?:infiniband )?([A-Za-z][\w.@-]*): (?i:(?:port:? ?\d+:? )?(?:nic )?link (?:is )?down)\b`)
)

func readLinkDown(text string) (linkDown, bool) {
	if match := linkOnBusForm.FindStringSubmatch(text); match != nil {
		switch match[1] {
		case "pci", "pcieport", "pciehp", "ahci", "nvme", "xhci_hcd":
			return linkDown{}, false
		}
		return linkDown{pci: match[2], device: match[3]}, true
	}
	if match := linkForm.FindStringSubmatch(text); match != nil && !strings.HasPrefix(match[1], "ata") {
		return linkDown{device: match[1]}, true
	}
	return linkDown{}, false
}

// aerForm is a line of PCI Express Advanced Error Reporting
// (drivers/pci/pcie/aer.c): "pcieport 0000:00:01.0: PCIe Bus Error:
// severity=Corrected, type=Data Link Layer, (Receiver ID)". Newer kernels say
// Correctable and Uncorrectable.
var aerForm = regexp.MustCompile(`\bPCIe Bus Error: severity=(Uncorrect|Correct)(?:ed|able)\b`)

const (
	aerCorrected   = "corrected"
	aerUncorrected = "uncorrected"
)

func aerSeverity(text string) string {
	match := aerForm.FindStringSubmatch(text)
	switch {
	case match == nil:
		return ""
	case match[1] == "Correct":
		return aerCorrected
	}
	return aerUncorrected
}

// hardwareForm is a line of a machine check, of firmware that reports one
// (HW_ERR, linux/printk.h), or of a memory controller's driver (EDAC):
// "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_…".
var hardwareForm = regexp.MustCompile(`\[Hardware Error\]|^EDAC [^:]+: \d+ (?:CE|UE)\b`)
