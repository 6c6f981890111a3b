package rack

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// The kinds of fault.
const (
	KindDeadGPU      = "dead_gpu"
	KindHotGPU       = "hot_gpu"
	KindSlowLink     = "slow_link"
	KindFlappingLink = "flapping_link"
	KindXID79        = "xid_79"
	KindWrongData    = "wrong_data"
	KindSlowStorage  = "slow_storage"
	KindMissingMount = "missing_mount"
	KindHungNode     = "hung_node"
	KindDriverSkew   = "driver_skew"
)

// FaultKind is something that can go wrong with the rack.
type FaultKind struct {
	Name string
	Part string // what it strikes: "gpu", "nic", or "" for the whole node
	Doc  string // what it is, and the signals by which it shows
}

// FaultKinds lists the kinds.
func FaultKinds() []FaultKind {
	return []FaultKind{
		{KindDeadGPU, "gpu", "A GPU that never came up: on the PCI bus with revision ff, and unknown to the driver."},
		{KindHotGPU, "gpu", "A GPU whose heat sink sits badly: hotter than its siblings, then slowed down by its hardware, and slower."},
		{KindSlowLink, "nic", "A link that came up at half its rate: the rate that ibstat shows, and every collective that crosses the node."},
		{KindFlappingLink, "nic", "A link that goes down for a moment every few seconds: kernel messages, a rising link_downed counter, stalled collectives."},
		{KindXID79, "gpu", "A GPU that falls off the bus: XID 79 in the kernel log, a lost GPU in nvidia-smi, and the end of what ran on it."},
		{KindWrongData, "gpu", "A GPU that computes wrong results now and then: wrong elements in a collective, errors in a burn-in, and no other sign."},
		{KindSlowStorage, "", "A storage client at a quarter of its speed."},
		{KindMissingMount, "", "The shared filesystem is not mounted: its path lies on the local disk."},
		{KindHungNode, "", "A node that accepts connections and answers nothing."},
		{KindDriverSkew, "", "A node with another driver version than its siblings."},
	}
}

// Fault is one thing that goes wrong.
type Fault struct {
	Kind  string        `json:"kind"`
	Node  string        `json:"node"`
	Part  string        `json:"part,omitempty"` // gpu3, mlx5_2
	After time.Duration `json:"after"`          // from its injection, on the rack's clock
	For   time.Duration `json:"for"`            // zero: until it is cleared
}

// String is the fault in words, for messages.
func (f Fault) String() string {
	place := f.Node
	if f.Part != "" {
		place += "/" + f.Part
	}
	return f.Kind + " on " + place
}

// OpenFault is a fault that was injected, with its times on the clock.
type OpenFault struct {
	Fault
	Begin, End time.Time // End zero: none
}

func (f OpenFault) during(now time.Time) bool {
	return !now.Before(f.Begin) && (f.End.IsZero() || now.Before(f.End))
}

type faultBook struct {
	mu   sync.RWMutex
	open []OpenFault
	past []OpenFault // were cleared: what they left in counters and logs stays
}

// Inject makes f happen, now or after its delay.
func (r *Rack) Inject(f Fault) error {
	kinds := FaultKinds()
	i := slices.IndexFunc(kinds, func(k FaultKind) bool { return k.Name == f.Kind })
	if i < 0 {
		names := make([]string, len(kinds))
		for i, k := range kinds {
			names[i] = k.Name
		}
		return fmt.Errorf("fault %q is not known: choose one of %s", f.Kind, strings.Join(names, ", "))
	}
	n, ok := r.by[f.Node]
	if !ok {
		return fmt.Errorf("fault %s: the rack has no node %q", f.Kind, f.Node)
	}
	if err := n.hasPart(kinds[i], f.Part); err != nil {
		return err
	}
	if f.After < 0 || f.For < 0 {
		return fmt.Errorf("fault %s: after and for cannot be negative", f)
	}
	open := OpenFault{Fault: f, Begin: time.Now().Add(r.clock(f.After))}
	if f.For > 0 {
		open.End = open.Begin.Add(r.clock(f.For))
	}
	// What the node did so far, it did without the fault.
	n.settleAll()
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.open = append(r.faults.open, open)
	return nil
}

// clock is a time of the rack on the clock: at most half of what a Duration
// holds, where a slow rack would have more.
func (r *Rack) clock(d time.Duration) time.Duration {
	return time.Duration(min(float64(d)/r.speed, 1<<62))
}

func (n *Node) settleAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.heat {
		n.settle(i, time.Now())
	}
}

func (n *Node) hasPart(k FaultKind, part string) error {
	var parts []string
	switch k.Part {
	case "gpu":
		for _, g := range n.GPUs {
			parts = append(parts, g.Name)
		}
	case "nic":
		for _, c := range n.NICs {
			parts = append(parts, c.Name)
		}
	default:
		if part != "" {
			return fmt.Errorf("fault %s strikes a whole node: leave the part %q out", k.Name, part)
		}
		return nil
	}
	if !slices.Contains(parts, part) {
		return fmt.Errorf("fault %s strikes a %s and %q is none: choose one of %s", k.Name, k.Part, part, strings.Join(parts, ", "))
	}
	return nil
}

// Clear ends every fault that match chooses, and returns how many.
func (r *Rack) Clear(match func(Fault) bool) int {
	now := time.Now()
	for _, f := range r.Faults() {
		if match(f.Fault) {
			r.by[f.Node].settleAll()
		}
	}
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	cleared := 0
	r.faults.open = slices.DeleteFunc(r.faults.open, func(f OpenFault) bool {
		if !match(f.Fault) {
			return false
		}
		cleared++
		if f.End.IsZero() || f.End.After(now) {
			f.End = now
		}
		if f.Begin.Before(now) {
			r.faults.past = append(r.faults.past, f)
		}
		return true
	})
	return cleared
}

// Faults are the faults that were injected and not cleared, in that order.
func (r *Rack) Faults() []OpenFault {
	r.faults.mu.RLock()
	defer r.faults.mu.RUnlock()
	return slices.Clone(r.faults.open)
}

// struck are the faults of a node that have begun, cleared or not.
func (r *Rack) struck(node string, now time.Time) []OpenFault {
	r.faults.mu.RLock()
	defer r.faults.mu.RUnlock()
	var found []OpenFault
	for _, list := range [][]OpenFault{r.faults.past, r.faults.open} {
		for _, f := range list {
			if f.Node == node && !now.Before(f.Begin) {
				found = append(found, f)
			}
		}
	}
	return found
}

// faulty reports whether a fault of a kind is in effect on a node's part.
func (r *Rack) faulty(kind, node, part string, now time.Time) bool {
	r.faults.mu.RLock()
	defer r.faults.mu.RUnlock()
	return slices.ContainsFunc(r.faults.open, func(f OpenFault) bool {
		return f.Kind == kind && f.Node == node && f.Part == part && f.during(now)
	})
}

// Hung reports whether the node answers nothing now.
func (n *Node) Hung() bool { return n.rack.faulty(KindHungNode, n.Name, "", time.Now()) }
