package sim_test

import (
	"testing"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
)

func TestIbstat(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindSlowLink, Node: "gpu001", Part: "mlx5_2"}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		run("ibstat", "-l").want(t, 0, "mlx5_0\nmlx5_1\nmlx5_2\nmlx5_3\nmlx5_4\nmlx5_5\nmlx5_6\nmlx5_7\n")
		run("ibstat", "mlx5_2").want(t, 0, `CA 'mlx5_2'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.3560
	Hardware version: 0
	Node GUID: 0x946dae0300000020
	System image GUID: 0x946dae0300000020
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 200
		Base lid: 3
		LMC: 0
		SM lid: 8193
		Capability mask: 0xa651e848
		Port GUID: 0x946dae0300000020
		Link layer: InfiniBand
`)
		run("ibstat", "mlx5_9").want(t, 255, "")
		run("cat", "/sys/class/infiniband/mlx5_2/ports/1/rate").want(t, 0, "200 Gb/sec (4X HDR)\n")
	})
}

func TestFlappingLinkShows(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindFlappingLink, Node: "gpu001", Part: "mlx5_5", For: 30 * time.Second}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		run("sleep", "10.1")
		holds(t, run("ibstat", "mlx5_5", "1").stdout, "\tState: Down\n\tPhysical state: Polling\n\tRate: 10\n\tBase lid: 65535\n")
		run("tail", "-v", "-n", "+1", "/sys/class/infiniband/mlx5_5/ports/1/state", "/sys/class/infiniband/mlx5_5/ports/1/counters/link_downed",
			"/sys/class/infiniband/mlx5_5/ports/1/counters/symbol_error").want(t, 0,
			"==> /sys/class/infiniband/mlx5_5/ports/1/state <==\n1: DOWN\n\n"+
				"==> /sys/class/infiniband/mlx5_5/ports/1/counters/link_downed <==\n3\n\n"+
				"==> /sys/class/infiniband/mlx5_5/ports/1/counters/symbol_error <==\n120\n")
		run("sleep", "30")
		run("cat", "/sys/class/infiniband/mlx5_5/ports/1/state", "/sys/class/infiniband/mlx5_5/ports/1/counters/link_downed").want(t, 0, "4: ACTIVE\n6\n")
	})
}
