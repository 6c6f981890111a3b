package rack

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Figures of the fabric: one NDR InfiniBand NIC for each GPU, on a leaf switch
// of its rail; GPUs of a node on NVSwitches.
const (
	NICRate      = 400 // Gb/s, NDR
	SlowRate     = 200 // Gb/s, where a link came up as HDR
	NICFirmware  = "28.39.3560"
	NICBoard     = "MT_0000000838"
	NICDevice    = "MT4129"
	wireShare    = 0.93  // of the line rate that a ring all-reduce of large messages gets
	switchBus    = 478.0 // GB/s of bus bandwidth inside a node with NVLink SHARP
	ringBus      = 368.0 // GB/s without it, as with four GPUs and fewer
	nodeLatency  = 28e-6 // s of an all-reduce of nothing inside a node
	fleetLatency = 52e-6 // s between two nodes, and a little more at each doubling
)

// NIC is what one NIC is.
type NIC struct {
	Index    int
	Name     string // mlx5_0
	BusID    string // 0000:18:00.0
	NodeGUID uint64
	PortGUID uint64
	LID      int
	Leaf     string // the leaf switch of its rail
}

var nicBusIDs = [NICs]string{
	"0000:18:00.0", "0000:40:00.0", "0000:4f:00.0", "0000:5e:00.0",
	"0000:9a:00.0", "0000:c0:00.0", "0000:ce:00.0", "0000:dc:00.0",
}

// nodesPerLeaf is how many nodes a rail's leaf switch has: half the ports of a
// switch of 64.
const nodesPerLeaf = 32

func newNIC(n *Node, i int) NIC {
	guid := 0x946dae0300000000 | uint64(n.Index)<<8 | uint64(i)<<4
	return NIC{
		Index: i, Name: fmt.Sprintf("mlx5_%d", i), BusID: nicBusIDs[i],
		NodeGUID: guid, PortGUID: guid, LID: 1 + n.Index*NICs + i,
		Leaf: fmt.Sprintf("leaf-%d-%d", n.Index/nodesPerLeaf, i),
	}
}

// NICState is what a NIC's port shows.
type NICState struct {
	Up         bool
	Rate       int   // Gb/s
	LinkDowned int64 // how often it went down since boot
	SymbolErrs int64
}

// A flapping link is down for flapDown at the beginning of every flapPeriod.
const (
	flapPeriod = 5 * time.Second
	flapDown   = 400 * time.Millisecond
)

// NICState is what the port of a NIC shows now.
func (n *Node) NICState(nic int) NICState {
	now := time.Now()
	s := NICState{Up: true, Rate: NICRate}
	for _, f := range n.rack.struck(n.Name, now) {
		if f.Part != n.NICs[nic].Name {
			continue
		}
		switch f.Kind {
		case KindSlowLink:
			if f.during(now) {
				s.Rate = SlowRate
			}
		case KindFlappingLink:
			times := n.rack.flapped(f, now)
			s.LinkDowned += times
			s.SymbolErrs += 40 * times
			if f.during(now) && n.rack.downFor(f, now) > 0 {
				s.Up = false
			}
		}
	}
	return s
}

// flapped is how often a flapping link went down, until now.
func (r *Rack) flapped(f OpenFault, now time.Time) int64 {
	if !f.End.IsZero() && !now.Before(f.End) {
		now = f.End.Add(-1) // it did not go down at the end
	}
	if now.Before(f.Begin) {
		return 0
	}
	return 1 + int64(now.Sub(f.Begin)/r.clock(flapPeriod))
}

// flaps are the times at which a flapping link went down last, until now: at
// most so many.
func (r *Rack) flaps(f OpenFault, now time.Time, most int64) []time.Time {
	var times []time.Time
	all := r.flapped(f, now)
	for i := max(0, all-most); i < all; i++ {
		times = append(times, f.Begin.Add(time.Duration(i)*r.clock(flapPeriod)))
	}
	return times
}

// downFor is how long a flapping link will stay down, from now.
func (r *Rack) downFor(f OpenFault, now time.Time) time.Duration {
	into := now.Sub(f.Begin) % r.clock(flapPeriod)
	return r.clock(flapDown) - into
}

// A Collective is one all-reduce.
type Collective struct {
	Nodes   []*Node
	PerNode int // GPUs of each, from the first slot on
	Bytes   int64
	Element int64 // bytes of one element
	Ring    bool  // without the switches' own reduction (NCCL_NVLS_ENABLE=0, NCCL_ALGO=Ring)
}

// CollectiveResult is what came of it.
type CollectiveResult struct {
	Seconds float64
	Wrong   int64  // elements, over all ranks
	Path    string // the algorithm: NVLS, Ring
}

// A PartError is a GPU that cannot take part.
type PartError struct {
	Node     string
	Slot     int
	Presence Presence
}

// Error names the GPU.
func (e *PartError) Error() string { return fmt.Sprintf("%s: gpu%d does not answer", e.Node, e.Slot) }

// ErrTooFew says that a node has fewer GPUs than the collective asks.
var ErrTooFew = errors.New("the node has fewer GPUs")

// AllReduce is the time that one all-reduce takes now. GPUs are taken in the
// order of their indexes, which skips those that never came up. The bus
// bandwidth that large messages get is the NVSwitches' inside a node, and that
// of the slowest rail times the rails between nodes: all channels end together.
// A link that is down holds everybody up until it is back.
func (r *Rack) AllReduce(c Collective, draw int) (CollectiveResult, error) {
	now := time.Now()
	ranks := len(c.Nodes) * c.PerNode
	result := CollectiveResult{Path: "NVLS"}
	pace, rate := 1.0, float64(NICRate)
	var stall time.Duration
	for _, n := range c.Nodes {
		slots, lost := n.Answering()
		if len(slots) < c.PerNode {
			return result, fmt.Errorf("%s: %w", n.Name, ErrTooFew)
		}
		for i, slot := range slots[:c.PerNode] {
			if lost[i] {
				return result, &PartError{n.Name, slot, Lost}
			}
			pace = min(pace, n.State(slot).Pace)
			if n.WrongData(slot) {
				result.Wrong += 1 + c.Bytes/c.Element>>20 + int64(r.draw("wrong", n.Name, slot, draw)%3)
			}
		}
		if len(c.Nodes) == 1 {
			continue
		}
		for nic := range min(c.PerNode, NICs) {
			rate = min(rate, float64(n.NICState(nic).Rate))
			stall = max(stall, r.stall(n, nic, now))
		}
	}
	bus, latency := switchBus, nodeLatency
	switch {
	case len(c.Nodes) > 1:
		result.Path = "Ring"
		bus = rate / 8 * float64(min(c.PerNode, NICs)) * wireShare
		latency = fleetLatency + 4e-6*math.Log2(float64(len(c.Nodes)))
	case c.PerNode <= 4 || c.Ring:
		result.Path = "Ring"
		bus = ringBus
	}
	// Reductions are light work: a clock must fall far before they feel it.
	bus *= min(1, pace/0.62)
	bus *= 1 + 0.006*r.noise("collective", c.Nodes[0].Name, c.Bytes, draw)
	factor := 2 * float64(ranks-1) / float64(ranks)
	result.Seconds = latency + factor*float64(c.Bytes)/(bus*1e9) + stall.Seconds()
	return result, nil
}

// stall is how long a NIC's flapping link holds a collective up.
func (r *Rack) stall(n *Node, nic int, now time.Time) time.Duration {
	var longest time.Duration
	for _, f := range r.struck(n.Name, now) {
		if f.Kind == KindFlappingLink && f.Part == n.NICs[nic].Name && f.during(now) {
			longest = max(longest, r.downFor(f, now))
		}
	}
	return longest
}
