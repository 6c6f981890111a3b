package sim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runbook"
	"github.com/rackproof/rackproof/runner"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/thresholds"
)

// acceptance is a runbook of every check of GPUs and fabric on four nodes.
const acceptance = `
runbook "rehearsal" {
  title   = "GPUs and fabric of four simulated nodes"
  version = "1.0.0"
}

party "customer" {
  name = "Customer"
}

owner "ops" {
  party   = party.customer
  contact = "ops@example.com"
}

fleet "rack" {
  hosts = "gpu[001-004]"

  executor "sim" {
    seed = 7
    FAULTS
  }

  expect {
    gpus      = 8
    gpu_model = "NVIDIA H100 80GB HBM3"
  }
}

phase "all" {
}

test "bill" {
  phase              = phase.all
  nodes              = fleet.rack
  owner              = owner.ops
  duration           = "5s"
  establishes = {
    "It is as ordered." = [threshold.mismatches, threshold.gpu_present, threshold.link_rate, threshold.driver_version]
  }
  does_not_establish = ["Anything else."]

  check "inventory" {
    gpus  = true
    links = true
    nics  = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"]
  }

  threshold "mismatches" {
    max   = 0
    unit  = "1"
    basis = "Order 1"
  }

  threshold "gpu_present" {
    min   = 1
    unit  = "1"
    basis = "Order 1"
  }

  threshold "link_rate" {
    min   = 400
    unit  = "Gb/s"
    basis = "Order 1"
  }

  threshold "driver_version" {
    stat  = "distinct"
    per   = "test"
    max   = 1
    unit  = "1"
    basis = "One image for all nodes"
  }
}

test "quiet" {
  phase              = phase.all
  nodes              = fleet.rack
  owner              = owner.ops
  duration           = "30s"
  establishes = {
    "It is as ordered." = [threshold.xid_fatal]
  }
  does_not_establish = ["Anything else."]

  check "kernel_log" {
    gpus = 8
  }

  threshold "xid_fatal" {
    max   = 0
    unit  = "1"
    basis = "Order 1"
  }
}

test "burn" {
  phase              = phase.all
  nodes              = fleet.rack
  owner              = owner.ops
  duration           = "2m"
  establishes = {
    "It is as ordered." = [threshold.faulty]
  }
  does_not_establish = ["Anything else."]

  check "gpu_burn" {
    kernel_log = true
  }

  threshold "faulty" {
    max   = 0
    unit  = "1"
    basis = "Order 1"
  }
}

test "node" {
  phase              = phase.all
  nodes              = fleet.rack
  owner              = owner.ops
  duration           = "1m"
  establishes = {
    "It is as ordered." = [threshold.busbw]
  }
  does_not_establish = ["Anything else."]

  check "nccl_allreduce" {
    sizes = ["1GiB", "8GiB"]
  }

  threshold "busbw" {
    stat  = "min"
    min   = 440
    at    = { size = "8GiB" }
    unit  = "GB/s"
    basis = "Published for this machine"
  }
}

test "fleet" {
  phase              = phase.all
  nodes              = fleet.rack
  owner              = owner.ops
  scope              = "fleet"
  duration           = "1m"
  establishes = {
    "It is as ordered." = [threshold.busbw]
  }
  does_not_establish = ["Anything else."]

  check "nccl_allreduce" {
    sizes  = ["8GiB"]
    output = "json"
  }

  threshold "busbw" {
    stat  = "min"
    min   = 350
    unit  = "GB/s"
    basis = "Published for this machine"
  }
}

test "pairs" {
  phase    = phase.all
  nodes    = fleet.rack
  owner    = owner.ops
  scope    = "pair"
  duration = "1m"
  establishes = {
    "It is as ordered." = [threshold.busbw]
  }
  does_not_establish = ["Anything else."]

  check "nccl_allreduce" {
    sizes    = ["8GiB"]
    launcher = "srun"
  }

  threshold "busbw" {
    stat  = "min"
    min   = 350
    unit  = "GB/s"
    basis = "Published for this machine"
  }
}

test "gang" {
  phase    = phase.all
  nodes    = fleet.rack
  owner    = owner.ops
  scope    = "fleet"
  duration = "1m"
  establishes = {
    "It is as ordered." = [threshold.busbw]
  }
  does_not_establish = ["Anything else."]

  check "nccl_allreduce" {
    sizes    = ["1GiB", "3GiB"]
    launcher = "gang"
    gang     = ["mpiexec", "-f", "{hostfile}", "-n", "{ranks}", "-ppn", "{per_node}"]
  }

  threshold "busbw" {
    stat  = "min"
    min   = 350
    at    = { size = "3GiB" }
    unit  = "GB/s"
    basis = "Published for this machine"
  }
}
`

// rehearse runs the acceptance on a rack with faults, and judges it.
func rehearse(t *testing.T, faults string, judged func(t *testing.T, v evidence.Verdict, results []evidence.CellResult)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		text := strings.Replace(acceptance, "FAULTS", faults, 1)
		known := runbook.Known{Checks: checks.Builtin(), Executors: []runner.Kind{sim.Kind()}, Faults: runner.Faults()}
		loaded, diags := runbook.Load(fstest.MapFS{"a.runbook.hcl": {Data: []byte(text)}}, "a.runbook.hcl", runbook.Inputs{Dir: "/"}, known)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		plan, diags := loaded.Compile()
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		store, err := evidence.Create(dir, "run", plan, loaded.Sources(), evidence.Tool{MediaType: evidence.MediaTool, Name: "rackproof", Version: "0"})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		_, config := loaded.Executor()
		x, err := sim.Kind().Open(t.Context(), config, plan.Fleet.NodeNames())
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if err := runner.Run(t.Context(), runner.Options{Store: store, Executor: x, Reach: []byte("{}"), Checks: checks.Builtin(), Judge: thresholds.Judge, MinFree: 1, Timeout: 4 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		results := checks.Measure(checks.Builtin(), plan, store.Records(), os.DirFS(dir))
		judged(t, thresholds.Judge(plan, results), results)
	})
}

// The checks of GPUs and fabric measure everything on a healthy rack.
func TestAcceptanceOfHealthyRack(t *testing.T) {
	rehearse(t, "", func(t *testing.T, v evidence.Verdict, results []evidence.CellResult) {
		for _, r := range results {
			for _, a := range r.Attempts {
				for _, p := range append(a.Problems, a.Unmeasured...) {
					t.Errorf("%s: %s %s: %s: %s", r.Cell.ID, p.Node, p.Step, p.Class, p.Detail)
				}
			}
		}
		for _, f := range v.Findings {
			if f.Outcome != evidence.Pass {
				t.Errorf("%s %s %s is %s: %s", f.Test, f.Subject, f.Threshold, f.Outcome, f.Reason)
			}
		}
		if len(v.Findings) != 151 {
			t.Errorf("%d findings, want 151", len(v.Findings))
		}
	})
}

// Each fault shows where it would on real hardware.
func TestAcceptanceFindsFaults(t *testing.T) {
	rehearse(t, `
    fault "dead" {
      kind = "dead_gpu"
      node = "gpu002"
      part = "gpu3"
    }

    fault "wrong" {
      kind = "wrong_data"
      node = "gpu004"
      part = "gpu5"
    }

    fault "slow" {
      kind = "slow_link"
      node = "gpu001"
      part = "mlx5_2"
    }

    fault "skew" {
      kind = "driver_skew"
      node = "gpu003"
    }

    fault "lost" {
      kind  = "xid_79"
      node  = "gpu003"
      part  = "gpu1"
      after = "15s"
    }
`, func(t *testing.T, v evidence.Verdict, _ []evidence.CellResult) {
		var found []string
		for _, f := range v.Findings {
			if f.Outcome != evidence.Pass {
				found = append(found, fmt.Sprintf("%s %s %s %s", f.Outcome, f.Test, f.Threshold, f.Subject))
			}
		}
		// A GPU that is not there leaves its whole node unmeasured, and
		// every collective that crosses it; so does one that was lost.
		want := []string{
			"fail bill mismatches gpu002", "fail bill gpu_present gpu002/gpu3", "fail bill link_rate gpu001/mlx5_2", "fail bill driver_version fleet",
			"fail quiet xid_fatal gpu003/gpu1",
			"inconclusive burn faulty gpu002/gpu0", "inconclusive burn faulty gpu002/gpu1", "inconclusive burn faulty gpu002/gpu2", "inconclusive burn faulty gpu002/gpu3",
			"inconclusive burn faulty gpu002/gpu4", "inconclusive burn faulty gpu002/gpu5", "inconclusive burn faulty gpu002/gpu6", "inconclusive burn faulty gpu002/gpu7",
			"error burn faulty gpu003/gpu0", "fail burn faulty gpu003/gpu1", "error burn faulty gpu003/gpu2", "error burn faulty gpu003/gpu3",
			"error burn faulty gpu003/gpu4", "error burn faulty gpu003/gpu5", "error burn faulty gpu003/gpu6", "error burn faulty gpu003/gpu7",
			"fail burn faulty gpu004/gpu5",
			"error node busbw gpu002", "error node busbw gpu003", "error fleet busbw fleet",
			"error pairs busbw gpu001/gpu002", "error pairs busbw gpu001/gpu003", "fail pairs busbw gpu001/gpu004",
			"error pairs busbw gpu002/gpu001", "error pairs busbw gpu002/gpu003", "error pairs busbw gpu002/gpu004",
			"error pairs busbw gpu003/gpu001", "error pairs busbw gpu003/gpu002", "error pairs busbw gpu003/gpu004",
			"fail pairs busbw gpu004/gpu001", "error pairs busbw gpu004/gpu002", "error pairs busbw gpu004/gpu003",
			"error gang busbw fleet",
		}
		if !slices.Equal(found, want) {
			t.Errorf("what does not pass is\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
		}
	})
}
