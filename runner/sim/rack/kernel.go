package rack

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// KernelRelease is the kernel of every node.
const KernelRelease = "5.15.0-113-generic"

// KernelLine is one message of the kernel's log.
type KernelLine struct {
	Time     time.Time
	Priority int // 0 emerg to 7 debug
	Text     string
	User     bool // a program wrote it, by way of /dev/kmsg, and not the kernel
}

// Priorities of the kernel's messages.
const (
	PriorityErr    = 3
	PriorityWarn   = 4
	PriorityNotice = 5
	PriorityInfo   = 6
)

// Log adds a message to the node's kernel log, as a write to /dev/kmsg does.
func (n *Node) Log(priority int, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, KernelLine{Time: time.Now(), Priority: priority, Text: text, User: true})
}

// KernelLog is the node's kernel log since boot: what was written to it, and
// what the faults up to now have left in it.
func (n *Node) KernelLog() []KernelLine {
	now := time.Now()
	lines := n.bootLines()
	for _, f := range n.rack.struck(n.Name, now) {
		lines = append(lines, n.faultLines(f, now)...)
	}
	n.mu.Lock()
	lines = append(lines, n.lines...)
	n.mu.Unlock()
	slices.SortStableFunc(lines, func(a, b KernelLine) int { return a.Time.Compare(b.Time) })
	return lines
}

func (n *Node) bootLines() []KernelLine {
	var lines []KernelLine
	say := func(after time.Duration, priority int, format string, args ...any) {
		lines = append(lines, KernelLine{Time: n.Boot.Add(after), Priority: priority, Text: fmt.Sprintf(format, args...)})
	}
	say(0, PriorityNotice, "Linux version %s (buildd@lcy02-amd64-078) (gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0, GNU ld (GNU Binutils for Ubuntu) 2.38) #123-Ubuntu SMP", KernelRelease)
	say(0, PriorityInfo, "DMI: rackproof simulated node, BIOS %s 04/01/2026", BIOS)
	for _, nic := range n.NICs {
		say(9*time.Second, PriorityInfo, "mlx5_core %s: firmware version: %s", nic.BusID, NICFirmware)
		say(11*time.Second, PriorityInfo, "mlx5_core %s %s: Link up", nic.BusID, nic.Netdev())
	}
	say(14*time.Second, PriorityNotice, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  %s  Fri May 31 09:35:42 UTC 2024", n.DriverVersion())
	return lines
}

// Netdev is the name of the NIC's network interface, which the kernel's
// messages about its link bear.
func (c NIC) Netdev() string { return fmt.Sprintf("ibs%d", c.Index) }

// loggedFlaps is how many times a link's going down are in the log: a kernel
// keeps so much of it and no more, and at a high speed there are thousands a
// second.
const loggedFlaps = 4096

func (n *Node) faultLines(f OpenFault, now time.Time) []KernelLine {
	var lines []KernelLine
	switch f.Kind {
	case KindXID79:
		bus := n.GPUs[slotOf(f.Part)].BusID
		short, _, _ := strings.Cut(bus, ".")
		say := func(text string) {
			lines = append(lines, KernelLine{Time: f.Begin, Priority: PriorityErr, Text: text})
		}
		say(fmt.Sprintf("NVRM: Xid (PCI:%s): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", strings.ToLower(short)))
		say(fmt.Sprintf("NVRM: GPU %s: GPU has fallen off the bus.", strings.ToLower(bus)))
		say(fmt.Sprintf("NVRM: GPU %s: GPU serial number is %s.", strings.ToLower(bus), n.GPUs[slotOf(f.Part)].Serial))
	case KindFlappingLink:
		nic := n.NICs[nicOf(f.Part)]
		say := func(at time.Time, what string) {
			text := fmt.Sprintf("mlx5_core %s %s: Link %s", nic.BusID, nic.Netdev(), what)
			lines = append(lines, KernelLine{Time: at, Priority: PriorityInfo, Text: text})
		}
		for _, down := range n.rack.flaps(f, now, loggedFlaps) {
			say(down, "down")
			if up := down.Add(n.rack.clock(flapDown)); !up.After(now) {
				say(up, "up")
			}
		}
	}
	return lines
}

// slotOf and nicOf are the numbers in gpu3 and mlx5_3, which Inject has
// checked.
func slotOf(part string) int { return int(part[len(part)-1] - '0') }

func nicOf(part string) int { return int(part[len(part)-1] - '0') }
