package runner

import (
	"context"
	"encoding/json"
	"io"
	"slices"

	"github.com/rackproof/rackproof/evidence"
)

// An Executor makes nodes run commands. It is safe for use by many
// goroutines.
type Executor interface {
	// Identify reaches the node and says who it is, without running anything
	// that changes it: address, host key and version as far as the executor
	// knows them. A node that cannot be reached is a *evidence.Problem.
	Identify(ctx context.Context, node string) (evidence.NodeIdentity, error)
	// Exec runs t and streams its output as it comes. The Exit always has a
	// class; Exec returns an error only when a writer failed, and then the
	// far side has been ended.
	Exec(ctx context.Context, t evidence.Task, stdout, stderr io.Writer) (evidence.Exit, error)
	// Close ends every connection and what still runs through it.
	Close() error
}

// Kind is how an executor is named and configured in a runbook.
type Kind struct {
	Name   string
	Doc    string
	Params []evidence.Param
	Can    []evidence.Capability // exec and each fault kind
	// Open connects nothing yet. config has the Params, defaults filled in,
	// paths absolute. nodes are the fleet's nodes.
	Open func(ctx context.Context, config json.RawMessage, nodes []string) (Executor, error)
}

// Has reports whether the kind's executors can do c.
func (k Kind) Has(c evidence.Capability) bool { return slices.Contains(k.Can, c) }
