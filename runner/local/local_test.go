package local_test

import (
	"testing"

	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/executortest"
	"github.com/rackproof/rackproof/runner/local"
)

func TestConformance(t *testing.T) {
	executortest.Run(t, executortest.Harness{
		Node: "n1",
		Open: func(t *testing.T) runner.Executor {
			x, err := local.Kind().Open(t.Context(), nil, []string{"n1"})
			if err != nil {
				t.Fatal(err)
			}
			return x
		},
	})
}
