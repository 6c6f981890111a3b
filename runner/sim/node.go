// Package sim is the simulated rack as commands see it: nodes with the tools
// that checks call, which print in the real tools' formats what the model in
// package rack works out. The same nodes answer over SSH (Lab) and inside the
// process (executor "sim"). There is no shell: commands come as argv.
//
// A tool prints what the tool of the named version prints, and does nothing
// that nobody asks it for. One that is asked for more than it can do says so
// and exits with 2, rather than let a check believe a number.
package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// Call is one command, as a tool gets it.
type Call struct {
	Node   *rack.Node
	Files  *files // the node's own
	Argv   []string
	Env    []string // NAME=value
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	nodes *Nodes
}

// Tool is one program. It ends soon after ctx does.
type Tool func(ctx context.Context, c *Call) sshserver.Exit

// Nodes are the nodes of a rack with their files and tools.
type Nodes struct {
	Rack  *rack.Rack
	tools map[string]Tool
	files map[string]*files
}

// NewNodes gives every node of r the tools of this build, and extra ones by
// name.
func NewNodes(r *rack.Rack, extra map[string]Tool) *Nodes {
	s := &Nodes{Rack: r, tools: builtin(), files: make(map[string]*files)}
	for name, tool := range extra {
		s.tools[name] = tool
	}
	shared := newTree(rack.MountPoint)
	for _, n := range r.Nodes() {
		s.files[n.Name] = newFiles(n, shared)
	}
	return s
}

// searchPath is where the node's programs are.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// holdsPrograms reports whether a directory is one of those.
func holdsPrograms(dir string) bool { return slices.Contains(strings.Split(searchPath, ":"), dir) }

// search is where the call's program is looked for.
func (c *Call) search() string {
	search := searchPath
	for _, word := range c.Env {
		if value, ok := strings.CutPrefix(word, "PATH="); ok {
			search = value // the last one wins
		}
	}
	return search
}

// Handler runs one command on the node named name.
func (s *Nodes) Handler(name string) sshserver.Handler {
	return func(ctx context.Context, c sshserver.Command, stdin io.Reader, stdout, stderr io.Writer) sshserver.Exit {
		node, ok := s.Rack.Node(name)
		if !ok {
			return sshserver.Exit{Refused: "not-run no such node"}
		}
		call := &Call{
			Node: node, Files: s.files[name], Argv: c.Argv, Env: c.Env,
			Stdin: stdin, Stdout: stdout, Stderr: stderr, nodes: s,
		}
		return call.run(ctx)
	}
}

// run starts the program that the call names. A hung node starts nothing, and
// of one that hangs meanwhile neither output nor status comes any more.
func (c *Call) run(ctx context.Context) sshserver.Exit {
	hang := &hang{node: c.Node, ended: ctx.Done()}
	if hang.holds() {
		return sshserver.Exit{NoStatus: true}
	}
	tool, ok := c.program(c.Argv[0])
	if !ok {
		return sshserver.Exit{Refused: "tool-missing " + c.search()}
	}
	held := *c
	held.Stdout, held.Stderr = heldWriter{hang, c.Stdout}, heldWriter{hang, c.Stderr}
	exit := tool(ctx, &held)
	if hang.holds() {
		return sshserver.Exit{NoStatus: true}
	}
	return exit
}

// hang is how a command fares whose node may hang.
type hang struct {
	node  *rack.Node
	ended <-chan struct{} // when the command must have ended
	hung  atomic.Bool     // once, and so until its end: what was lost does not come back
}

// holds waits for the end of the command if the node hangs or has hung, and
// reports whether it did.
func (h *hang) holds() bool {
	if !h.hung.Load() && !h.node.Hung() {
		return false
	}
	h.hung.Store(true)
	<-h.ended
	return true
}

// heldWriter is a stream out of a command whose node may hang.
type heldWriter struct {
	hang *hang
	to   io.Writer
}

var errHung = errors.New("the node hangs")

// Write passes p on, or nothing from a node that hangs.
func (w heldWriter) Write(p []byte) (int, error) {
	if w.hang.holds() {
		return 0, errHung
	}
	return w.to.Write(p)
}

// program is the tool that a command names, by its name or its path.
func (c *Call) program(name string) (Tool, bool) {
	tool, ok := c.nodes.tools[path.Base(name)]
	dirs := strings.Split(c.search(), ":")
	if strings.Contains(name, "/") {
		dirs = []string{path.Dir(name)}
	}
	return tool, ok && slices.ContainsFunc(dirs, holdsPrograms)
}

// exec is the call of another program in place of this one.
func (c *Call) exec(ctx context.Context, argv []string) sshserver.Exit {
	next := *c
	next.Argv = argv
	exit := next.run(ctx)
	if exit.Refused != "" {
		fmt.Fprintf(c.Stderr, "%s: %s: No such file or directory\n", c.Argv[0], argv[0])
		return code(127)
	}
	return exit
}

// code is an exit status.
func code(n int) sshserver.Exit { return sshserver.Exit{Code: n} }

// usage says that the tool is not simulated so far, and exits with 2.
func (c *Call) usage(format string, args ...any) sshserver.Exit {
	fmt.Fprintf(c.Stderr, "%s: the simulated rack does not have this: %s\n", c.Argv[0], fmt.Sprintf(format, args...))
	return code(2)
}

// printf writes to the command's standard output. A reader that has gone is
// no matter of the tool.
func (c *Call) printf(format string, args ...any) { fmt.Fprintf(c.Stdout, format, args...) }
