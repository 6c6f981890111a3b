package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
)

func TestNvidiaSMIQuery(t *testing.T) {
	onGPURack(t, 1, nil, func(t *testing.T, run func(argv ...string) result) {
		run("nvidia-smi", "--query-gpu=count,index,uuid,serial,gpu_name,pci.bus_id,memory.total,mig.mode.current,clocks.sm,clocks_throttle_reasons.active,inforom.pwr",
			"--format=csv", "-i", "0,7").want(t, 0,
			"count, index, uuid, serial, name, pci.bus_id, memory.total [MiB], mig.mode.current, clocks.current.sm [MHz], clocks_event_reasons.active, inforom.pwr\n"+
				"8, 0, GPU-4630c885-339a-6420-a1ca-dc40b5fe4897, 1655306438734, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 81559 MiB, Disabled, 345 MHz, 0x0000000000000001, [N/A]\n"+
				"8, 7, GPU-14eb715b-22b0-2390-b551-a9e072a24245, 1653884498554, NVIDIA H100 80GB HBM3, 00000000:DF:00.0, 81559 MiB, Disabled, 345 MHz, 0x0000000000000001, [N/A]\n")
		run("nvidia-smi", "--query-gpu=temperature.gpu,power.draw,fan.speed,clocks_event_reasons.gpu_idle", "--format=csv,noheader,nounits", "-i", "00000000:1B:00.0").want(t, 0,
			"28, 71.64, [N/A], Active\n")
		run("nvidia-smi", "--query-gpu=index,no.such", "--format=csv").want(t, 2, "Field \"no.such\" is not a valid field to query.\n\n")
		run("nvidia-smi", "--query-gpu=index", "--format=csv", "-i", "8").want(t, 6, "No devices were found\n")
		run("nvidia-smi", "--query-remapped-rows=gpu_bus_id,gpu_uuid,remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure", "--format=csv", "-i", "1").want(t, 0,
			"gpu_bus_id, gpu_uuid, remapped_rows.uncorrectable, remapped_rows.pending, remapped_rows.failure\n"+
				"00000000:43:00.0, GPU-ed00e5f2-1ca3-b00e-5a54-d0f21b7e394c, 0, 0, 0\n")
	})
}

func TestNvidiaSMILinks(t *testing.T) {
	onGPURack(t, 1, nil, func(t *testing.T, run func(argv ...string) result) {
		r := run("nvidia-smi", "nvlink", "--status")
		if n := strings.Count(r.stdout, "\t Link "); n != 8*18 {
			t.Errorf("%d links, want 144", n)
		}
		holds(t, r.stdout, "GPU 7: NVIDIA H100 80GB HBM3 (UUID: GPU-14eb715b-22b0-2390-b551-a9e072a24245)\n\t Link 0: 26.562 GB/s\n", "\t Link 17: 26.562 GB/s\n")
	})
}

// A GPU that never came up has no index, and those behind it move up.
func TestNvidiaSMIWithDeadGPU(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindDeadGPU, Node: "gpu001", Part: "gpu1"}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		run("nvidia-smi", "--query-gpu=count,index,pci.bus_id", "--format=csv,noheader").want(t, 0,
			"7, 0, 00000000:1B:00.0\n7, 1, 00000000:52:00.0\n7, 2, 00000000:61:00.0\n7, 3, 00000000:9D:00.0\n"+
				"7, 4, 00000000:C3:00.0\n7, 5, 00000000:D1:00.0\n7, 6, 00000000:DF:00.0\n")
		holds(t, run("lspci", "-D", "-n", "-d", "10de:").stdout, "0000:43:00.0 0302: 10de:2330 (rev ff)\n", "0000:52:00.0 0302: 10de:2330 (rev a1)\n")
	})
}

// A lost GPU costs the whole answer, also in the middle of a loop.
func TestNvidiaSMIWithLostGPU(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindXID79, Node: "gpu001", Part: "gpu1", After: 25 * time.Second}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		r := run("nvidia-smi", "--query-gpu=timestamp,index", "--format=csv", "-l", "10", "-i", "1")
		r.want(t, 15, "timestamp, index\n2000/01/01 00:00:00.000, 1\n2000/01/01 00:00:10.000, 1\n2000/01/01 00:00:20.000, 1\n"+
			"Unable to determine the device handle for GPU0000:43:00.0: Unknown Error\n")
		run("nvidia-smi", "nvlink", "-s").want(t, 15, "Unable to determine the device handle for GPU0000:43:00.0: Unknown Error\n")
		run("nvidia-smi", "--query-gpu=index", "--format=csv,noheader", "-i", "2").want(t, 0, "2\n")
		list := run("nvidia-smi", "-L")
		holds(t, list.stdout, "Unable to determine the device handle for gpu 0000:43:00.0: Unknown Error\nGPU 2: ")
		holds(t, run("lspci", "-nn", "-s", "43:00.0").stdout, "43:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev ff)\n")
		holds(t, run("dmesg", "-x").stdout,
			"kern  :err   : [ 2545.000000] NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n")
	})
}

// A burn-in heats a GPU to its power limit, and one whose heat sink sits badly
// to its slowdown.
func TestNvidiaSMIUnderLoad(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindHotGPU, Node: "gpu001", Part: "gpu3"}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		samples := make(chan string)
		go func() {
			r := run("timeout", "100", "nvidia-smi", "--query-gpu=index,utilization.gpu,clocks_event_reasons.active,clocks_event_reasons.hw_thermal_slowdown,pstate,memory.used", "--format=csv,noheader", "-lms", "99000", "-i", "2,3")
			samples <- r.stdout
		}()
		run("gpu_burn", "-tc", "120")
		// The first two lines are of the moment at which the burn-in begins.
		lines := strings.SplitAfter(<-samples, "\n")
		after := strings.Join(lines[min(2, len(lines)):], "")
		if want := "2, 100 %, 0x0000000000000004, Not Active, P0, 72973 MiB\n3, 100 %, 0x000000000000004C, Active, P0, 72973 MiB\n"; after != want {
			t.Errorf("samples under load are\n%s\nwant\n%s", after, want)
		}
	})
}

func TestDriverSkewShows(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindDriverSkew, Node: "gpu001"}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0").want(t, 0, "535.183.06\n")
		run("nvidia-smi", "--version").want(t, 0, "NVIDIA-SMI version  : 535.183.06\nNVML version        : 535.183\nDRIVER version      : 535.183.06\nCUDA Version        : 12.2\n")
	})
}
