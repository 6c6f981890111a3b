package sim_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner/sim"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

// node names of a test's rack, in fleet order.
func nodeNames(n int) []string {
	return []string{"gpu001", "gpu002", "gpu003", "gpu004"}[:n]
}

// result is what a command did.
type result struct {
	stdout, stderr string
	exit           evidence.Exit
}

// onRack runs test in a bubble with a rack of n nodes, of seed 7, and faults.
func onRack(t *testing.T, n int, faults []rack.Fault, test func(t *testing.T, run func(argv ...string) result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := rack.New(rack.Config{Nodes: nodeNames(n), Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			if err := r.Inject(f); err != nil {
				t.Fatal(err)
			}
		}
		x := sim.NewExecutor(sim.NewNodes(r, nil))
		defer x.Close()
		test(t, func(argv ...string) result {
			t.Helper()
			var out, errs bytes.Buffer
			exit, err := x.Exec(context.WithoutCancel(t.Context()), evidence.Task{Node: "gpu001", Argv: argv, Deadline: 4 * time.Hour}, &out, &errs)
			if err != nil {
				t.Fatal(err)
			}
			return result{out.String(), errs.String(), exit}
		})
	})
}

func TestShow(t *testing.T) {
	onRack(t, 2, nil, func(t *testing.T, run func(argv ...string) result) {
		for _, argv := range [][]string{
			{"nvidia-smi", "--query-gpu=count,index,uuid,serial,name,pci.bus_id,power.draw,clocks_throttle_reasons.active", "--format=csv"},
			{"nvidia-smi", "-L"},
			{"lspci", "-D", "-n", "-d", "10de:"},
			{"ibstat", "mlx5_0"},
			{"dmesg", "-x"},
			{"tail", "-v", "-n", "+1", "/sys/class/infiniband/mlx5_0/ports/1/state"},
			{"all_reduce_perf", "-b", "8M", "-e", "1G", "-f", "8", "-g", "8", "-J", "/tmp/x.json", "-S", "1", "-M", "1"},
			{"cat", "/tmp/x.json"},
			{"env", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING", "mpirun", "-np", "4", "--host", "gpu001:2,gpu002:2", "--map-by", "ppr:2:node", "--tag-output", "-x", "NCCL_DEBUG", "-x", "NCCL_DEBUG_SUBSYS", "all_reduce_perf", "-b", "1G", "-e", "1G", "-n", "2"},
			{"gpu_burn", "-m", "90%", "-tc", "40"},
		} {
			r := run(argv...)
			os.Stderr.WriteString("=== " + argv[0] + "\n" + r.stdout + "\n--- " + r.stderr + "\n")
			if r.exit.Code != nil {
				t.Logf("%s rc %d", argv[0], *r.exit.Code)
			} else {
				t.Logf("%s %+v", argv[0], r.exit)
			}
		}
	})
}
