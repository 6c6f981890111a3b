package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence/nodeset"
	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// srun of Slurm 22.05.

// srunCall is the command line of srun, read.
type srunCall struct {
	nodes, tasks int // 0: not asked
	list         []string
	each         int
	label        bool
	kill         bool // --kill-on-bad-exit, which --mpi=pmix has as well
	program      []string
}

// srunShort are the long names of srun's short options.
var srunShort = map[string]string{
	"-N": "nodes", "-n": "ntasks", "-w": "nodelist", "-l": "label", "-u": "unbuffered", "-K": "kill-on-bad-exit",
	"-t": "time", "-p": "partition", "-c": "cpus-per-task", "-J": "job-name", "-D": "chdir", "-A": "account", "-G": "gpus",
}

func srun(ctx context.Context, c *Call) sshserver.Exit {
	s, exit, ok := parseSrun(c)
	if !ok {
		return exit
	}
	nodes, problem := s.place(c)
	if problem != "" {
		fmt.Fprintf(c.Stderr, "srun: error: %s\n", problem)
		return code(1)
	}
	if _, found := c.program(s.program[0]); !found {
		fmt.Fprintf(c.Stderr, "slurmstepd: error: execve(): %s: No such file or directory\nsrun: error: %s: tasks 0-%d: Exited with exit code 2\n",
			s.program[0], shortHost(nodes[0]), len(nodes)-1)
		return code(2)
	}
	var mu sync.Mutex
	width := len(strconv.Itoa(len(nodes) - 1))
	stream := func(to io.Writer) (func(int) io.Writer, func()) {
		lines := make([]*lineWriter, len(nodes))
		for rank := range lines {
			label := ""
			if s.label {
				label = fmt.Sprintf("%*d: ", width, rank)
			}
			lines[rank] = &lineWriter{to: to, mu: &mu, label: label}
		}
		return func(rank int) io.Writer { return lines[rank] }, func() {
			for _, w := range lines {
				w.end()
			}
		}
	}
	stdout, endOut := stream(c.Stdout)
	stderr, endErr := stream(c.Stderr)
	env := func(rank int) []string {
		return []string{fmt.Sprintf("SLURM_PROCID=%d", rank), fmt.Sprintf("SLURM_NTASKS=%d", len(nodes))}
	}
	end := launch{
		c: c, argv: s.program, nodes: nodes, local: env,
		away:   func(rank int) []string { return slices.Concat(c.Env, env(rank)) },
		stdout: stdout, stderr: stderr,
	}.run(ctx)
	endOut()
	endErr()
	if ctx.Err() != nil || end.exit == (sshserver.Exit{}) {
		return end.exit
	}
	where := shortHost(nodes[end.rank])
	status := end.exit.Code
	if signal, signalled := signals[end.exit.Signal]; signalled {
		fmt.Fprintf(c.Stderr, "srun: error: %s: task %d: %s\n", where, end.rank, signal.text)
		status = 128 + signal.number
	} else {
		fmt.Fprintf(c.Stderr, "srun: error: %s: task %d: Exited with exit code %d\n", where, end.rank, status)
	}
	if s.kill && len(nodes) > 1 {
		fmt.Fprint(c.Stderr, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n")
		fmt.Fprintf(c.Stderr, "slurmstepd: error: *** STEP %d.0 ON %s CANCELLED AT %s ***\n",
			pid(c.Node, "step"), shortHost(nodes[0]), time.Now().UTC().Format("2006-01-02T15:04:05"))
	}
	return code(status)
}

func parseSrun(c *Call) (s srunCall, exit sshserver.Exit, ok bool) {
	args := c.Argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		word := args[0]
		args = args[1:]
		name, value, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if !strings.HasPrefix(word, "--") {
			name, value = srunShort[word[:min(2, len(word))]], word[min(2, len(word)):]
			given = value != ""
		}
		next := func() string {
			if !given && len(args) > 0 {
				value, args = args[0], args[1:]
			}
			return value
		}
		var err error
		switch name {
		case "nodes":
			s.nodes, err = strconv.Atoi(next())
		case "ntasks":
			s.tasks, err = strconv.Atoi(next())
		case "nodelist":
			s.list, err = nodeset.Parse(next(), nil)
		case "ntasks-per-node":
			s.each, err = strconv.Atoi(next())
		case "label":
			s.label = true
		case "kill-on-bad-exit":
			s.kill = true
		case "mpi":
			s.kill = s.kill || next() != "none"
		case "export":
			if next() != "ALL" {
				return s, c.usage("--export=%s", value), false
			}
		case "gpus-per-node", "gpus-per-task", "gpus", "gres", "time", "partition", "cpus-per-task", "job-name", "chdir", "account",
			"distribution", "cpu-bind", "gpu-bind", "mem", "mem-bind", "exclude", "constraint", "jobid":
			next()
		case "unbuffered", "exclusive", "overlap":
		default:
			return s, c.usage("%q", c.Argv), false
		}
		if err != nil {
			return s, c.usage("%s: %v", word, err), false
		}
	}
	if s.program = args; len(args) == 0 {
		fmt.Fprint(c.Stderr, "srun: fatal: No command given to execute.\n")
		return s, code(1), false
	}
	return s, code(0), true
}

// place are the nodes of the tasks, in blocks. The nodes of a list stand in
// the cluster's order, whatever the list's.
func (s srunCall) place(c *Call) (nodes []*rack.Node, problem string) {
	var chosen []*rack.Node
	for _, n := range c.nodes.Rack.Nodes() {
		if s.list == nil || slices.Contains(s.list, n.Name) {
			chosen = append(chosen, n)
		}
	}
	if s.list != nil && len(chosen) < len(s.list) {
		return nil, "Unable to allocate resources: Invalid node name specified"
	}
	count := s.nodes
	switch {
	case count == 0 && s.list != nil:
		count = len(chosen)
	case count == 0:
		count = 1
	}
	tasks := s.tasks
	switch {
	case tasks == 0 && s.each > 0:
		tasks = count * s.each
	case tasks == 0:
		tasks = count
	}
	each := s.each
	if each == 0 {
		each = (tasks + count - 1) / max(1, count)
	}
	const refused = "Unable to allocate resources: Requested node configuration is not available"
	if count < 1 || count > len(chosen) {
		return nil, refused
	}
	hosts := make([]host, count)
	for i := range hosts {
		hosts[i] = host{chosen[i], each}
	}
	nodes, fits := spread(hosts, tasks, 0)
	if !fits {
		return nil, refused
	}
	return nodes, ""
}

// lineWriter passes whole lines on, as slurmstepd does without --unbuffered.
type lineWriter struct {
	to    io.Writer
	mu    *sync.Mutex
	label string
	kept  string
}

// Write keeps what is no whole line.
func (w *lineWriter) Write(piece []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept += string(piece)
	end := strings.LastIndexByte(w.kept, '\n') + 1
	whole := w.kept[:end]
	w.kept = w.kept[end:]
	if _, err := io.WriteString(w.to, prefixLines(whole, w.label)); err != nil {
		return 0, err
	}
	return len(piece), nil
}

// end passes on a last line without an end, and ends it.
func (w *lineWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kept != "" {
		_, _ = io.WriteString(w.to, w.label+w.kept+"\n")
		w.kept = ""
	}
}
