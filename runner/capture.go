package runner

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// capture keeps the output of the plan's capture commands on the nodes of
// cells, as far as the journal has none: a process that died among them left
// some out. A node on which the phase has run already has no start any more,
// and of one that cannot be used the journal has the reason. A command that
// fails is data; a disk that fails ends the run.
func (r *run) capture(ctx context.Context, phase, when string, cells []*cellState) error {
	if len(r.plan.Captures.Commands) == 0 {
		return nil
	}
	in := make(map[string]bool)
	for _, c := range cells {
		for _, node := range c.nodes {
			in[node] = true
		}
	}
	for _, c := range cells {
		if when == "start" && len(c.result.Attempts) > 0 {
			for _, node := range c.nodes {
				delete(in, node)
			}
		}
	}
	nodes := slices.DeleteFunc(r.plan.Fleet.NodeNames(), func(node string) bool { return !in[node] })
	errs := make(map[string]*error, len(nodes))
	for _, node := range nodes {
		errs[node] = new(error)
	}
	eachNode(nodes, func(node string) { *errs[node] = r.captureNode(ctx, phase, when, node) })
	var all []error
	for _, node := range nodes {
		all = append(all, *errs[node])
	}
	return errors.Join(all...)
}

func (r *run) captureNode(ctx context.Context, phase, when, node string) error {
	for i, argv := range r.plan.Captures.Commands {
		if i < r.history.captured[captureOf{phase, when, node}] {
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if problem := r.nodes.get(node).problem; problem != nil {
			return r.o.Store.SkipCaptures(phase, when, node, *problem)
		}
		name := strconv.Itoa(i+1) + "-" + path.Base(argv[0])
		if err := r.captureOne(ctx, phase, when, node, name, argv); err != nil {
			err = fmt.Errorf("capture %s %s on %s: %s: %w", phase, when, node, name, err)
			r.broken(err)
			return err
		}
	}
	return nil
}

func (r *run) captureOne(ctx context.Context, phase, when, node, name string, argv []string) error {
	deadline := r.plan.Captures.Deadline.Std()
	files, err := r.o.Store.Capture(phase, when, node, name)
	if err != nil {
		return err
	}
	task := evidence.Task{
		Mark: r.o.Store.Run() + "/capture/" + phase + "/" + when + "/" + name,
		Node: node, Argv: argv, Env: environment(nil), Deadline: deadline,
	}
	bound, cancel := context.WithTimeout(ctx, deadline+driveGrace)
	defer cancel()
	start := time.Now()
	exit, err := r.o.Executor.Exec(bound, task, files.Stdout(), files.Stderr())
	exit = filled(exit, task, start, err)
	if away(exit.Class) && ctx.Err() == nil {
		r.nodes.mark(node, *exit.Problem(node, "capture"))
	}
	return errors.Join(err, files.Close(exit))
}
