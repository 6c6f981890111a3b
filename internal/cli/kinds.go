package cli

import (
	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/runbook"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/local"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/ssh"
)

// kinds lists the executors of this build.
func kinds() []runner.Kind { return []runner.Kind{ssh.Kind(), local.Kind(), sim.Kind()} }

// known is what a runbook may name in this build.
func known() runbook.Known {
	return runbook.Known{Checks: checks.Builtin(), Executors: kinds(), Faults: runner.Faults()}
}

func findKind(name string) (runner.Kind, bool) {
	for _, k := range kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return runner.Kind{}, false
}
