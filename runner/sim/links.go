package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/runner/sim/rack"
)

// links are the node's symbolic links, as far as checks list them: the devices
// behind its NICs' names, and /proc/mounts.
func links(n *rack.Node) map[string]string {
	found := map[string]string{"/proc/mounts": "self/mounts", "/sys/class/net/lo": "../../devices/virtual/net/lo"}
	for _, nic := range n.NICs {
		device := fmt.Sprintf("../../devices/pci%s/%s.0/%s", nic.BusID[:7], nic.BusID[:10], nic.BusID)
		found["/sys/class/infiniband/"+nic.Name] = device + "/infiniband/" + nic.Name
		found["/sys/class/net/"+nic.Netdev()] = device + "/net/" + nic.Netdev()
	}
	return found
}

// listLinks is find's -type l -printf '%f %l\n': the name and the target of
// each link at or below the starting points, in the order of these.
func (c *Call) listLinks(starts []string) (text string, missing []string) {
	all := links(c.Node)
	var out strings.Builder
	for _, start := range starts {
		some := false
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if within(name, start) {
				fmt.Fprintf(&out, "%s %s\n", name[strings.LastIndex(name, "/")+1:], all[name])
				some = true
			}
		}
		if !some && !c.Files.exists(start) {
			missing = append(missing, start)
		}
	}
	return out.String(), missing
}
