package rack

import (
	"sync"
	"time"
)

// Figures of a node's processors: two sockets of 56 cores with two threads
// each, as a DGX H100 has them.
const (
	CPUModel      = "Intel(R) Xeon(R) Platinum 8480C"
	Sockets       = 2
	CoresOfSocket = 56
	ThreadsOfCore = 2
	CPUs          = Sockets * CoresOfSocket * ThreadsOfCore

	idleBusy = 0.004 // of all CPUs that a node with nothing to do keeps busy
)

// cpuClock adds up what a node's CPUs were asked to do.
type cpuClock struct {
	mu    sync.Mutex
	asked int     // CPUs that loads keep busy now, perhaps more than there are
	busy  float64 // CPU seconds of loads until at
	at    time.Time
}

// LoadCPU keeps so many of the node's CPUs busy until release is called. Loads
// add up, to as many CPUs as there are.
func (n *Node) LoadCPU(cpus int) (release func()) {
	n.cpu.add(cpus)
	return sync.OnceFunc(func() { n.cpu.add(-cpus) })
}

func (c *cpuClock) add(cpus int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(time.Now())
	c.asked += cpus
}

// settle brings the sum up to now. The clock is locked.
func (c *cpuClock) settle(now time.Time) {
	c.busy += now.Sub(c.at).Seconds() * float64(min(c.asked, CPUs))
	c.at = now
}

// CPUTime is what the node's CPUs did since it was switched on, in CPU
// seconds: the loads, and what goes on in the idlest of nodes. Together they
// are the node's uptime on all CPUs.
func (n *Node) CPUTime() (loads, system, idle float64) {
	n.cpu.mu.Lock()
	defer n.cpu.mu.Unlock()
	now := time.Now()
	n.cpu.settle(now)
	all := now.Sub(n.Boot).Seconds() * CPUs
	system = idleBusy * (all - n.cpu.busy)
	return n.cpu.busy, system, all - n.cpu.busy - system
}

// CPULoad is how many CPUs are busy now.
func (n *Node) CPULoad() int {
	n.cpu.mu.Lock()
	defer n.cpu.mu.Unlock()
	return min(n.cpu.asked, CPUs)
}

// CPUPace is how fast the node's CPUs do a kind of work, beside the average of
// their model: no two are alike.
func (n *Node) CPUPace(work string) float64 { return 1 + 0.01*n.rack.noise("cpu", n.Name, work) }
