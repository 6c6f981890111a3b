package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// ipLink is one link as ip -j prints it (iproute2 5.15 and 6.1, on a kernel
// 5.15).
type ipLink struct {
	Index     int      `json:"ifindex"`
	Name      string   `json:"ifname"`
	Flags     []string `json:"flags"`
	MTU       int      `json:"mtu"`
	Qdisc     string   `json:"qdisc"`
	State     string   `json:"operstate"`
	Mode      string   `json:"linkmode"`
	Group     string   `json:"group"`
	Queue     int      `json:"txqlen"`
	Type      string   `json:"link_type"`
	Address   string   `json:"address"`
	Broadcast string   `json:"broadcast"`

	*ipDetails
}

// ipDetails is what -d adds.
type ipDetails struct {
	Promiscuity int     `json:"promiscuity"`
	MinMTU      int     `json:"min_mtu"`
	MaxMTU      int     `json:"max_mtu"`
	Info        *ipInfo `json:"linkinfo,omitempty"`
	AddrGen     string  `json:"inet6_addr_gen_mode"`
	TxQueues    int     `json:"num_tx_queues"`
	RxQueues    int     `json:"num_rx_queues"`
	GSOSize     int     `json:"gso_max_size"`
	GSOSegments int     `json:"gso_max_segs"`
	Bus         string  `json:"parentbus,omitempty"`
	Device      string  `json:"parentdev,omitempty"`
}

type ipInfo struct {
	Kind string `json:"info_kind"`
	Data struct {
		Key    string `json:"key"`
		Mode   string `json:"mode"`
		Umcast string `json:"umcast"`
	} `json:"info_data"`
}

// ip knows -j [-d] link show [dev NAME].
func ip(_ context.Context, c *Call) sshserver.Exit {
	args := c.Argv[1:]
	asJSON, details := false, false
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-j":
			asJSON = true
		case "-d":
			details = true
		default:
			return c.usage("%q", c.Argv)
		}
		args = args[1:]
	}
	if !asJSON || len(args) < 2 || args[0] != "link" || args[1] != "show" {
		return c.usage("%q", c.Argv)
	}
	links := ipLinks(c.Node)
	switch args = args[2:]; {
	case len(args) == 2 && args[0] == "dev":
		links = slices.DeleteFunc(links, func(l ipLink) bool { return l.Name != args[1] })
		if len(links) == 0 {
			fmt.Fprintf(c.Stderr, "Device \"%s\" does not exist.\n", args[1])
			return code(1)
		}
	case len(args) > 0:
		return c.usage("%q", c.Argv)
	}
	if !details {
		for i := range links {
			links[i].ipDetails = nil
		}
	}
	text, err := json.Marshal(links)
	if err != nil {
		return c.usage("%v", err)
	}
	c.printf("%s\n", text)
	return code(0)
}

// ipLinks are the loopback, the port for management, and the InfiniBand ports.
func ipLinks(n *rack.Node) []ipLink {
	links := []ipLink{{
		Index: 1, Name: "lo", Flags: []string{"LOOPBACK", "UP", "LOWER_UP"}, MTU: 65536, Qdisc: "noqueue", State: "UNKNOWN",
		Mode: "DEFAULT", Group: "default", Queue: 1000, Type: "loopback", Address: "00:00:00:00:00:00", Broadcast: "00:00:00:00:00:00",
		ipDetails: &ipDetails{AddrGen: "eui64", TxQueues: 1, RxQueues: 1, GSOSize: 65536, GSOSegments: 65535},
	}, {
		Index: 2, Name: "eno3", Flags: []string{"BROADCAST", "MULTICAST", "UP", "LOWER_UP"}, MTU: 1500, Qdisc: "mq", State: "UP",
		Mode: "DEFAULT", Group: "default", Queue: 1000, Type: "ether", Address: fmt.Sprintf("02:00:00:00:%02x:%02x", n.Index>>8, n.Index&0xff), Broadcast: "ff:ff:ff:ff:ff:ff",
		ipDetails: &ipDetails{MinMTU: 68, MaxMTU: 9702, AddrGen: "none", TxQueues: 64, RxQueues: 64, GSOSize: 65536, GSOSegments: 65535, Bus: "pci", Device: "0000:06:00.0"},
	}}
	for i, nic := range n.NICs {
		l := ipLink{
			Index: 3 + i, Name: nic.Netdev(), Flags: []string{"BROADCAST", "MULTICAST", "UP", "LOWER_UP"}, MTU: 2044, Qdisc: "mq", State: "UP",
			Mode: "DEFAULT", Group: "default", Queue: 256, Type: "infiniband",
			Address:   hardwareAddress(nic),
			Broadcast: "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff",
			ipDetails: &ipDetails{AddrGen: "none", TxQueues: 1024, RxQueues: 128, GSOSize: 65536, GSOSegments: 65535, Bus: "pci", Device: nic.BusID, Info: &ipInfo{Kind: "ipoib"}},
		}
		l.Info.Data.Key, l.Info.Data.Mode, l.Info.Data.Umcast = "0xffff", "datagram", "0000"
		if !n.NICState(i).Up {
			l.Flags, l.State = []string{"NO-CARRIER", "BROADCAST", "MULTICAST", "UP"}, "DOWN"
		}
		links = append(links, l)
	}
	return links
}

// hardwareAddress is an IPoIB address: flags and queue pair, then the port's
// GID, which is the subnet's prefix fe80:: and the port's GUID (RFC 4391,
// section 9.1.1).
func hardwareAddress(nic rack.NIC) string {
	address := []byte{0, 0, 0x10, byte(0x29 + nic.Index), 0xfe, 0x80, 0, 0, 0, 0, 0, 0}
	for shift := 56; shift >= 0; shift -= 8 {
		address = append(address, byte(nic.PortGUID>>shift))
	}
	words := make([]string, len(address))
	for i, b := range address {
		words[i] = fmt.Sprintf("%02x", b)
	}
	return strings.Join(words, ":")
}
