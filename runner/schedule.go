package runner

import (
	"context"
	"errors"
	"slices"
)

// queue decides which cell may start. A node runs one cell at a time; a cell
// takes all its nodes at once. A cell that must wait keeps its nodes from the
// cells behind it, so each node serves its cells in the plan's order, a cell
// of the whole set is never starved, and the first in the queue always gets
// its turn: there is no deadlock.
//
// Storage, fabric and power are one thing that all nodes share. A cell holds
// those that its test loads as it holds its nodes, and by the same rule, so
// that what it measures is what it did alone: cells of one load run one after
// another, in the plan's order, even on different nodes.
type queue struct {
	waiting  []*cellState
	running  []*cellState
	parallel int
	nodes    int // in the fleet
}

// sharedLoads are those of loads that the whole fleet shares. Cpu and gpu are
// a node's own, and the node's lock serves them.
func sharedLoads(loads []string) []string {
	return slices.DeleteFunc(slices.Clone(loads), func(load string) bool {
		return load != "storage" && load != "fabric" && load != "power"
	})
}

// next takes the cells out of the queue that may start now.
func (q *queue) next() []*cellState {
	taken, loaded := make(map[string]bool), make(map[string]bool)
	take := func(c *cellState) {
		for _, node := range c.locks {
			taken[node] = true
		}
		for _, load := range c.loads {
			loaded[load] = true
		}
	}
	for _, c := range q.running {
		take(c)
	}
	var starting []*cellState
	kept := q.waiting[:0:0]
	for i, c := range q.waiting {
		if len(q.running) >= q.parallel || len(taken) >= q.nodes {
			if len(starting) == 0 {
				return nil
			}
			kept = append(kept, q.waiting[i:]...)
			break
		}
		free := !slices.ContainsFunc(c.locks, func(node string) bool { return taken[node] }) &&
			!slices.ContainsFunc(c.loads, func(load string) bool { return loaded[load] })
		take(c)
		if free {
			starting = append(starting, c)
			q.running = append(q.running, c)
		} else {
			kept = append(kept, c)
		}
	}
	q.waiting = kept
	return starting
}

func (q *queue) ended(c *cellState) {
	q.running = slices.DeleteFunc(q.running, func(other *cellState) bool { return other == c })
}

func (q *queue) runningIDs() []string {
	ids := make([]string, len(q.running))
	for i, c := range q.running {
		ids[i] = c.cell.ID
	}
	return ids
}

// schedule runs cells, one goroutine each, until all have run or the run is
// stopped; it waits for those that it started.
func (r *run) schedule(ctx context.Context, cells []*cellState) error {
	q := &queue{waiting: cells, parallel: max(1, r.plan.Parallel), nodes: len(r.plan.Fleet.Nodes)}
	type end struct {
		cell *cellState
		err  error
	}
	ends := make(chan end)
	stop, cancelled := r.o.Stop, ctx.Done()
	var errs []error
	stopping := false
	for {
		stopping = stopping || r.stopped() || ctx.Err() != nil || len(errs) > 0
		if !stopping {
			for _, c := range q.next() {
				go func() { ends <- end{c, r.runCell(ctx, c)} }()
			}
		}
		if len(q.running) == 0 {
			return errors.Join(errs...)
		}
		select {
		case e := <-ends:
			q.ended(e.cell)
			if e.err != nil {
				errs = append(errs, e.err)
			}
		case <-stop:
			stop = nil
			r.emit(Progress{Kind: ProgressWaiting, Running: q.runningIDs()})
		case <-cancelled:
			cancelled = nil
		}
	}
}
