package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/rackproof/rackproof/evidence"
)

// atOnce bounds how many nodes the runner talks to at once for its own
// purposes.
const atOnce = 32

// eachNode calls f for every node, a bounded number at once, and waits.
func eachNode(nodes []string, f func(node string)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, node := range nodes {
		group.Go(func() error {
			f(node)
			return nil
		})
	}
	_ = group.Wait() // f has no error to give
}

// A DiskError says that the run directory's disk has too little space.
type DiskError struct {
	Dir        string
	Free, Need uint64 // bytes
}

// Error names the directory, both sizes and the remedy.
func (e *DiskError) Error() string {
	return fmt.Sprintf("run directory %s: %d MiB are free and %d MiB are needed: free some space, or use another disk", e.Dir, e.Free>>20, e.Need>>20)
}

func (r *run) checkDisk() error {
	need := r.o.MinFree
	if need == 0 {
		need = DefaultMinFree
	}
	free, err := r.o.Store.FreeBytes()
	if err != nil {
		return fmt.Errorf("run directory %s: free space: %w", r.o.Store.Dir(), err)
	}
	if free < need {
		return &DiskError{Dir: r.o.Store.Dir(), Free: free, Need: need}
	}
	return nil
}

// checkHazards refuses tests that may do what nobody allowed, of those that
// are still to be run.
func (r *run) checkHazards() error {
	asked := make(map[string]bool)
	var refused []error
	for _, c := range r.cells {
		if asked[c.test.Name] || c.skippedForGood() || r.done(c) {
			continue
		}
		asked[c.test.Name] = true
		refused = append(refused, r.refusals(c.test)...)
	}
	return errors.Join(refused...)
}

func (r *run) refusals(test *evidence.Test) []error {
	var kinds []string
	for _, f := range test.Faults {
		if !slices.Contains(kinds, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
	}
	names := kinds
	if test.Hazard != "" {
		names = []string{test.Hazard}
	}
	var refused []error
	for _, name := range names {
		if !slices.Contains(r.o.Allow, name) {
			refused = append(refused, &HazardError{Test: test.Name, Hazard: name, Faults: kinds})
		}
	}
	return refused
}

// An IdentityError says that another machine answers by a node's name than
// the one that the journal knows. Nothing was run, and the run stays as it is.
type IdentityError struct {
	Node, What string
	Was, Is    string
}

// Error names the node, both values and the remedy.
func (e *IdentityError) Error() string {
	return fmt.Sprintf("node %s: its %s was %q when this run began and is %q now: the run stays as it is; bring the first machine back and resume, or start a new run",
		e.Node, e.What, e.Was, e.Is)
}

// A SharedMachineError says that two nodes of the fleet are one machine.
type SharedMachineError struct {
	Nodes     [2]string
	MachineID string
}

// Error names both nodes and the remedy.
func (e *SharedMachineError) Error() string {
	return fmt.Sprintf("nodes %s and %s have the same machine id %s: they are one machine; take one of them out of the fleet, give cloned machines ids of their own, or say shared_machine = true in the executor block",
		e.Nodes[0], e.Nodes[1], e.MachineID)
}

// sameMachine compares what identifies a machine. A serial or host key that
// one side lacks proves nothing: not every executor and user can read them.
func sameMachine(was, is evidence.NodeIdentity) error {
	if is.Problem != nil && is.MachineID == "" {
		return nil
	}
	if was.MachineID != is.MachineID && was.MachineID != "" {
		return &IdentityError{Node: was.Node, What: "machine id", Was: was.MachineID, Is: is.MachineID}
	}
	if was.Serial != is.Serial && was.Serial != "" && is.Serial != "" {
		return &IdentityError{Node: was.Node, What: "serial number", Was: was.Serial, Is: is.Serial}
	}
	if was.HostKey != is.HostKey && was.HostKey != "" && is.HostKey != "" {
		return &IdentityError{Node: was.Node, What: "host key", Was: was.HostKey, Is: is.HostKey}
	}
	return nil
}

// identifyAll reaches every node of the fleet, compares them with the journal
// and with each other, and records them. A node that cannot be used is
// remembered with its problem; others go on.
func (r *run) identifyAll(ctx context.Context) error {
	names := r.plan.Fleet.NodeNames()
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	found := make([]evidence.NodeIdentity, len(names))
	eachNode(names, func(node string) {
		if ctx.Err() == nil {
			found[index[node]] = r.identify(ctx, node, connectTries)
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	if err := r.compareAll(found); err != nil {
		return err
	}
	for _, id := range found {
		if err := r.recordNode(id); err != nil {
			return err
		}
	}
	return r.writeInventory()
}

func (r *run) compareAll(found []evidence.NodeIdentity) error {
	var errs []error
	byMachine := make(map[string]string)
	for _, id := range found {
		if was, known := r.history.identities[id.Node]; known {
			if err := sameMachine(was, id); err != nil {
				errs = append(errs, err)
			}
		}
		if id.MachineID == "" || r.plan.SharedMachine {
			continue
		}
		if other, taken := byMachine[id.MachineID]; taken {
			errs = append(errs, &SharedMachineError{Nodes: [2]string{other, id.Node}, MachineID: id.MachineID})
			continue
		}
		byMachine[id.MachineID] = id.Node
	}
	return errors.Join(errs...)
}

// recordNode journals a node's identity and remembers it.
func (r *run) recordNode(id evidence.NodeIdentity) error {
	if err := r.append(evidence.Record{Event: evidence.EventNode, Node: id.Node, Identity: &id, Problem: id.Problem}); err != nil {
		return err
	}
	if was := r.history.boots[id.Node]; was != "" && id.BootID != "" && was != id.BootID {
		if err := r.note(id.Node, "node %s was started again: its boot id was %s and is %s", id.Node, was, id.BootID); err != nil {
			return err
		}
	}
	if id.Problem == nil && id.MachineID == "" {
		if err := r.note(id.Node, "node %s has no machine id: a second name of the same machine would not be noticed", id.Node); err != nil {
			return err
		}
	}
	r.nodes.set(id.Node, nodeState{
		identity: id, problem: id.Problem,
		final: id.Problem != nil && id.Problem.Class == evidence.ClassClockOffset,
	})
	r.emit(Progress{Kind: ProgressNode, Node: id.Node, Problem: id.Problem})
	return nil
}

func (r *run) writeInventory() error {
	err := r.o.Store.WriteDocument("run/inventory.json", evidence.Inventory{
		MediaType: evidence.MediaInventory,
		Minor:     evidence.Minor,
		Executor:  r.plan.Executor,
		Reach:     r.o.Reach,
		Nodes:     r.nodes.inventory(r.plan.Fleet),
	})
	if err != nil {
		err = fmt.Errorf("inventory: %w", err)
		r.broken(err)
	}
	return err
}

// ready says why node may not be used, or nil. A node that went away gets one
// connection try.
func (r *run) ready(ctx context.Context, node string) (*evidence.Problem, error) {
	state := r.nodes.get(node)
	if state.problem != nil && !state.final {
		problem, err := r.reconnect(ctx, node, state)
		if problem != nil || err != nil {
			return problem, err
		}
	} else if state.problem != nil {
		return state.problem, nil
	}
	if problem, err := r.lease(ctx, node, 1); problem != nil || err != nil {
		return problem, err
	}
	return r.undoBefore(ctx, node), nil
}

func (r *run) reconnect(ctx context.Context, node string, state nodeState) (*evidence.Problem, error) {
	id := r.identify(ctx, node, 1)
	if ctx.Err() != nil {
		return state.problem, nil
	}
	if was, known := r.nodes.firstOf(node); known && id.Problem == nil {
		if err := sameMachine(was, id); err != nil {
			id.Problem = &evidence.Problem{Node: node, Step: "identify", Class: evidence.ClassInterrupted, Detail: err.Error()}
		}
	}
	if id.Problem != nil {
		r.nodes.mark(node, *id.Problem)
		return id.Problem, nil
	}
	if was := state.identity.BootID; was != "" && id.BootID != "" && was != id.BootID {
		if err := r.note(node, "node %s was started again: its boot id was %s and is %s", node, was, id.BootID); err != nil {
			return nil, err
		}
	}
	if err := r.append(evidence.Record{Event: evidence.EventNode, Node: node, Identity: &id}); err != nil {
		return nil, err
	}
	r.nodes.set(node, nodeState{identity: id})
	r.emit(Progress{Kind: ProgressNode, Node: node})
	return nil, nil
}
