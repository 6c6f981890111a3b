package rack

import (
	"fmt"
	"strings"
)

// Disk is one of a node's local disks.
type Disk struct {
	Name   string // nvme0n1
	Model  string
	Serial string
	Size   int64 // bytes
}

// The local filesystem is on the first disk's second partition.
const (
	RootSource = "/dev/nvme0n1p2"
	RootType   = "ext4"
)

// Disks are the node's local disks: two for the system and eight for data, as
// a DGX H100 has them (1.92 TB and 3.84 TB, NVMe).
func (n *Node) Disks() []Disk {
	disks := make([]Disk, 10)
	for i := range disks {
		d := Disk{Name: fmt.Sprintf("nvme%dn1", i), Model: "KIOXIA KCM6DRUL3T84", Size: 3840755982336}
		if i < 2 {
			d.Model, d.Size = "SAMSUNG MZ1L21T9HCLS-00A07", 1920383410176
		}
		d.Serial = strings.ToUpper(n.rack.hex(14, "disk", n.Name, i))
		disks[i] = d
	}
	return disks
}
