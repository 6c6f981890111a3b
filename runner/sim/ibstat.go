package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// ibstat of rdma-core (infiniband-diags 39), on NICs of type ConnectX-7.

// ibstat knows -l, -s, a CA's name and the number of its port.
func ibstat(_ context.Context, c *Call) sshserver.Exit {
	list, short := false, false
	args := c.Argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-l", "--list_of_cas":
			list = true
		case "-s", "--short":
			short = true
		default:
			return c.usage("%q", c.Argv)
		}
		args = args[1:]
	}
	if list {
		for _, nic := range c.Node.NICs {
			c.printf("%s\n", nic.Name)
		}
		return code(0)
	}
	if len(args) > 0 {
		i := slices.IndexFunc(c.Node.NICs[:], func(nic rack.NIC) bool { return nic.Name == args[0] })
		if i < 0 {
			fmt.Fprintf(c.Stderr, "ibpanic: [%d] main: '%s' IB device can't be found: No such file or directory\n", pid(c.Node, "ibstat"), args[0])
			return code(255)
		}
		if len(args) > 2 || len(args) == 2 && args[1] != "1" {
			return c.usage("%q", c.Argv)
		}
		printCA(c, c.Node.NICs[i], short, len(args) == 2)
		return code(0)
	}
	for _, nic := range c.Node.NICs {
		printCA(c, nic, short, false)
	}
	return code(0)
}

// pid is the process id that a program of a node shows.
func pid(n *rack.Node, program string) int {
	return 20000 + int(n.Rack().Draw("pid", n.Name, program)%40000)
}

func printCA(c *Call, nic rack.NIC, short, portOnly bool) {
	indent := "\t"
	if portOnly {
		indent = ""
		c.printf("CA: '%s'\n", nic.Name)
	} else {
		c.printf("CA '%s'\n\tCA type: %s\n\tNumber of ports: 1\n\tFirmware version: %s\n\tHardware version: 0\n", nic.Name, rack.NICDevice, rack.NICFirmware)
		c.printf("\tNode GUID: 0x%016x\n\tSystem image GUID: 0x%016x\n", nic.NodeGUID, nic.NodeGUID)
	}
	if short {
		return
	}
	c.printf("%sPort 1:\n", indent)
	for _, line := range portOf(c.Node, nic) {
		c.printf("%s\t%s\n", indent, line)
	}
}

// portOf is what ibstat says of a NIC's port. One that is down has neither
// rate nor LID.
func portOf(n *rack.Node, nic rack.NIC) []string {
	s := n.NICState(nic.Index)
	state, physical, rate, lid, manager := "Active", "LinkUp", s.Rate, nic.LID, subnetManager
	if !s.Up {
		state, physical, rate, lid, manager = "Down", "Polling", 10, 65535, 0
	}
	return []string{
		"State: " + state,
		"Physical state: " + physical,
		fmt.Sprintf("Rate: %d", rate),
		fmt.Sprintf("Base lid: %d", lid),
		"LMC: 0",
		fmt.Sprintf("SM lid: %d", manager),
		"Capability mask: 0xa651e848",
		fmt.Sprintf("Port GUID: 0x%016x", nic.PortGUID),
		"Link layer: InfiniBand",
	}
}

// subnetManager is the LID of the fabric's subnet manager, beyond those of the
// largest rack's NICs.
const subnetManager = 1 + rack.MaxNodes*rack.NICs

// withPortFiles adds the files that the kernel has on the port of each NIC
// (its Documentation/ABI/stable/sysfs-class-infiniband).
func withPortFiles(files map[string]func(*rack.Node) string) map[string]func(*rack.Node) string {
	for i := range rack.NICs {
		port := fmt.Sprintf("/sys/class/infiniband/mlx5_%d/ports/1/", i)
		files[port+"state"] = func(n *rack.Node) string {
			if n.NICState(i).Up {
				return "4: ACTIVE\n"
			}
			return "1: DOWN\n"
		}
		files[port+"phys_state"] = func(n *rack.Node) string {
			if n.NICState(i).Up {
				return "5: LinkUp\n"
			}
			return "2: Polling\n"
		}
		files[port+"rate"] = func(n *rack.Node) string {
			speed := map[int]string{rack.NICRate: "NDR", rack.SlowRate: "HDR"}
			rate := n.NICState(i).Rate
			return fmt.Sprintf("%d Gb/sec (4X %s)\n", rate, speed[rate])
		}
		files[port+"link_layer"] = func(*rack.Node) string { return "InfiniBand\n" }
		files[port+"counters/link_downed"] = func(n *rack.Node) string { return fmt.Sprintf("%d\n", n.NICState(i).LinkDowned) }
		files[port+"counters/symbol_error"] = func(n *rack.Node) string { return fmt.Sprintf("%d\n", n.NICState(i).SymbolErrs) }
		for _, counter := range []string{"link_error_recovery", "port_rcv_errors", "port_xmit_discards", "local_link_integrity_errors", "excessive_buffer_overrun_errors"} {
			files[port+"counters/"+counter] = func(*rack.Node) string { return "0\n" }
		}
	}
	return files
}
