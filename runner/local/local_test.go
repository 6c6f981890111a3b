package local_test

import (
	"testing"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/executortest"
	"github.com/rackproof/rackproof/runner/local"
)

func TestConformance(t *testing.T) {
	executortest.Run(t, executortest.Harness{
		Node: "n1", Commands: executortest.Scripts{},
		Open: func(t *testing.T) runner.Executor {
			x, err := local.Kind().Open(t.Context(), nil, []string{"n1"})
			if err != nil {
				t.Fatal(err)
			}
			return x
		},
	})
}

// A task has no form for a gang, so no check may count on one.
func TestKindClaimsNoGang(t *testing.T) {
	if !local.Kind().Has(evidence.CapExec) || local.Kind().Has(evidence.CapGang) {
		t.Errorf("it can do %v", local.Kind().Can)
	}
}
