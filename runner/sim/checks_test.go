package sim_test

import (
	"os"
	"path/filepath"
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
  duration           = "8m"
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
			t.Logf("%s %s %s %s %v %s", f.Outcome, f.Test, f.Subject, f.Threshold, f.Observed, f.Reason)
		}
	})
}
