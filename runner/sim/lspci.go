package sim

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// lspci of pciutils 3.7, of the devices that a check of GPUs and NICs asks
// for: GPUs, NVSwitches and NICs.

type pciDevice struct {
	address               string // 0000:1b:00.0
	class, vendor, device string // hexadecimal
	classText, vendorText string
	text                  string
	revision              string
}

// nvSwitches are the PCI addresses of a DGX H100's NVSwitches.
var nvSwitches = []string{"0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0"}

// pciDevices are a node's devices in the order of their addresses. The kernel
// keeps a device that has stopped answering; what is read of it is all ones,
// hence revision ff.
func pciDevices(n *rack.Node) []pciDevice {
	var found []pciDevice
	for _, address := range nvSwitches {
		found = append(found, pciDevice{address, "0680", "10de", "22a3", "Bridge", "NVIDIA Corporation", "GH100 [H100 NVSwitch]", "a1"})
	}
	for _, gpu := range n.GPUs {
		d := pciDevice{strings.ToLower(gpu.BusID), "0302", "10de", rack.GPUDevice, "3D controller", "NVIDIA Corporation", "GH100 [H100 SXM5 80GB]", "a1"}
		if n.State(gpu.Slot).Presence != rack.Present {
			d.revision = "ff"
		}
		found = append(found, d)
	}
	for _, nic := range n.NICs {
		found = append(found, pciDevice{strings.ToLower(nic.BusID), "0207", "15b3", "1021", "Infiniband controller", "Mellanox Technologies", "MT2910 Family [ConnectX-7]", "00"})
	}
	slices.SortFunc(found, func(a, b pciDevice) int { return strings.Compare(a.address, b.address) })
	return found
}

// lspci knows -D, -n, -nn, -d [vendor]:[device][:class] and -s [[domain:]bus:]slot.
func lspci(_ context.Context, c *Call) sshserver.Exit {
	domains, numbers := false, ""
	ids, slot := []string{}, ""
	args := c.Argv[1:]
	for len(args) > 0 {
		option, value := args[0], ""
		args = args[1:]
		if rest, ok := strings.CutPrefix(option, "-D"); ok && rest != "" {
			domains = true
			option = "-" + rest // flags may stand together, as in -Dn
		}
		if option == "-d" || option == "-s" {
			if len(args) == 0 {
				return c.usage("%q", c.Argv)
			}
			value, args = args[0], args[1:]
		}
		switch option {
		case "-D":
			domains = true
		case "-n", "-nn":
			numbers = option
		case "-d":
			ids = strings.Split(value, ":")
		case "-s":
			slot = strings.ToLower(value)
		default:
			return c.usage("%q", c.Argv)
		}
	}
	for _, d := range pciDevices(c.Node) {
		if !d.has(ids) || !strings.HasSuffix(d.address, slot) {
			continue
		}
		address := d.address
		if !domains {
			address = strings.TrimPrefix(address, "0000:")
		}
		c.printf("%s %s", address, d.describe(numbers))
		if d.revision != "00" {
			c.printf(" (rev %s)", d.revision)
		}
		c.printf("\n")
	}
	return code(0)
}

// has reports whether the device is of the vendor, device and class in ids, of
// which any may be empty.
func (d pciDevice) has(ids []string) bool {
	for i, own := range []string{d.vendor, d.device, d.class} {
		if i >= len(ids) || ids[i] == "" {
			continue
		}
		want, err := strconv.ParseUint(ids[i], 16, 16)
		if err != nil {
			return false
		}
		if got, _ := strconv.ParseUint(own, 16, 16); got != want {
			return false
		}
	}
	return true
}

func (d pciDevice) describe(numbers string) string {
	switch numbers {
	case "-n":
		return d.class + ": " + d.vendor + ":" + d.device
	case "-nn":
		return d.classText + " [" + d.class + "]: " + d.vendorText + " " + d.text + " [" + d.vendor + ":" + d.device + "]"
	}
	return d.classText + ": " + d.vendorText + " " + d.text
}
