// Package rack is the simulated rack: nodes with GPUs and NICs, the fabric
// between them, a shared filesystem, a replicated service, and what goes wrong
// with them, as one physical model. It prints nothing: package sim gives it
// the tools that a node has.
//
// Nothing runs in the background. A quantity is worked out when somebody asks
// for it, from the time, the loads and the faults up to then; noise is a
// function of the seed. So one seed gives one rack, and a test with a virtual
// clock has years of it at once.
package rack

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// MaxNodes is the largest rack.
const MaxNodes = 1024

// GPUs and NICs are how many of each a node has.
const (
	GPUs = 8
	NICs = 8
)

// Config is what a rack is made from.
type Config struct {
	Nodes []string // names, in fleet order
	Seed  uint64
	// Speed is how many seconds pass for heat, and for the schedule of faults,
	// in one second of the clock; 0 means 1. What a tool was asked to do for a
	// time takes that time whatever the speed: a burn-in that ended early
	// would be none.
	Speed float64
}

// Rack is a simulated rack. It is safe for use by many goroutines.
type Rack struct {
	seed  uint64
	speed float64
	start time.Time
	nodes []*Node
	by    map[string]*Node

	faults  faultBook
	storage storage
	service service
}

// New builds a rack that was switched on now.
func New(c Config) (*Rack, error) {
	if len(c.Nodes) == 0 || len(c.Nodes) > MaxNodes {
		return nil, fmt.Errorf("simulated rack of %d nodes: give 1 to %d", len(c.Nodes), MaxNodes)
	}
	if c.Speed == 0 {
		c.Speed = 1
	}
	if !(c.Speed > 0 && c.Speed <= 1e6) {
		return nil, fmt.Errorf("simulated rack with speed %g: give more than 0 and at most a million", c.Speed)
	}
	r := &Rack{seed: c.Seed, speed: c.Speed, start: time.Now(), by: make(map[string]*Node, len(c.Nodes))}
	for i, name := range c.Nodes {
		if r.by[name] != nil {
			return nil, fmt.Errorf("simulated rack: node %s is there twice", name)
		}
		n := newNode(r, i, name)
		r.nodes = append(r.nodes, n)
		r.by[name] = n
	}
	r.storage.rack, r.service.rack = r, r
	r.service.found(r.nodes)
	return r, nil
}

// Nodes are the rack's nodes, in fleet order.
func (r *Rack) Nodes() []*Node { return slices.Clone(r.nodes) }

// Node is the node named name.
func (r *Rack) Node(name string) (*Node, bool) {
	n, ok := r.by[name]
	return n, ok
}

// Seed is what the rack was made from.
func (r *Rack) Seed() uint64 { return r.seed }

// Start is when the rack was made.
func (r *Rack) Start() time.Time { return r.start }

// bootAge is how long before the rack was made its nodes were switched on.
const bootAge = 42 * time.Minute

// Node is one node of the rack.
type Node struct {
	rack  *Rack
	Name  string
	Index int // in fleet order

	MachineID, BootID, Serial string
	Boot                      time.Time
	GPUs                      [GPUs]GPU
	NICs                      [NICs]NIC

	cpu cpuClock

	mu    sync.Mutex // guards all below
	heat  [GPUs]heat
	loads map[int]load
	next  int // the key of the next load
	lines []KernelLine
}

func newNode(r *Rack, index int, name string) *Node {
	n := &Node{
		rack: r, Name: name, Index: index,
		MachineID: r.hex(32, "machine", name),
		BootID:    uuidOf(r.hex(32, "boot", name)),
		Serial:    "SIM" + r.hex(8, "serial", name),
		Boot:      r.start.Add(-bootAge),
		loads:     make(map[int]load),
	}
	n.cpu.at = r.start
	for i := range n.GPUs {
		n.GPUs[i] = newGPU(n, i)
		n.heat[i] = heat{celsius: n.idleTemperature(i), at: r.start}
	}
	for i := range n.NICs {
		n.NICs[i] = newNIC(n, i)
	}
	return n
}

// Rack is the rack that the node is in.
func (n *Node) Rack() *Rack { return n.rack }

// nodesPerCabinet is how many nodes stand in one cabinet: DGX-class nodes of
// 10 kW, four to a cabinet of 40 kW.
const nodesPerCabinet = 4

// Cabinet and Unit are where the node stands: A01, and the lowest height unit
// of its eight.
func (n *Node) Cabinet() string { return fmt.Sprintf("A%02d", 1+n.Index/nodesPerCabinet) }

// Unit is the lowest of the node's height units.
func (n *Node) Unit() int { return 1 + 8*(n.Index%nodesPerCabinet) }

// load is something that keeps parts of a node busy.
type load struct {
	gpu   int
	share float64 // of the GPU's arithmetic, 0 to 1
}

// LoadGPU keeps one GPU busy until release is called: share 1 is a burn-in,
// less is less power. Loads do not add up; the largest counts.
func (n *Node) LoadGPU(gpu int, share float64) (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle(gpu, time.Now())
	key := n.next
	n.next++
	n.loads[key] = load{gpu, share}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.settle(gpu, time.Now())
		delete(n.loads, key)
	}
}

func (n *Node) loadOf(gpu int) float64 {
	share := 0.0
	for l := range maps.Values(n.loads) {
		if l.gpu == gpu {
			share = max(share, l.share)
		}
	}
	return share
}
