package sim_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
)

// progressLine is a line of progress of n GPUs.
var progressForm = regexp.MustCompile(`^\d+\.\d%  proc'd: (?:-?\d+ \(\d+ Gflop/s\) (?:- )?)+  errors: (?:-?\d+ (?: \((?:WARNING|DIED)!\))?(?:- )?)+  temps: (?:(?:\d+ C|--) (?:- )?)+$`)

// progressLines are the lines of progress of an output.
func progressLines(t *testing.T, output string) []string {
	t.Helper()
	var lines []string
	for _, record := range strings.Split(output, "\r")[1:] {
		line, _, _ := strings.Cut(record, "\n")
		if line, _, _ = strings.Cut(line, "Using compare"); !progressForm.MatchString(line) {
			t.Errorf("not a line of progress: %q", line)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestGPUBurn(t *testing.T) {
	onGPURack(t, 1, nil, func(t *testing.T, run func(argv ...string) result) {
		r := run("gpu_burn", "-m", "90%", "-tc", "-c", "/opt/gpu-burn/compare.fatbin", "60")
		if r.status() != 0 || r.took < 91*time.Second || r.took > 92*time.Second {
			t.Errorf("status %d after %s, want 0 after 61 s and 30 s of grace", r.status(), r.took)
		}
		// The heading comes first, before any line of progress, and again with
		// every process that ends.
		list, rest, _ := strings.Cut(r.stdout, "Using compare file: /opt/gpu-burn/compare.fatbin\nBurning for 60 seconds.\n\r")
		if !strings.HasPrefix(list, "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-4630c885-339a-6420-a1ca-dc40b5fe4897)\n") {
			t.Errorf("output begins with %q", list)
		}
		holds(t, rest,
			"\n\tSummary at:   Sat Jan  1 00:00:07 UTC 2000\n\n",
			"\nKilling processes with SIGTERM (soft kill)\nUsing compare file: /opt/gpu-burn/compare.fatbin\nBurning for 60 seconds.\n"+
				"Initialized device 0 with 81080 MB of memory (80569 MB available, using 72512 MB of it), using FLOATS, using Tensor Cores\n"+
				"Results are 268435456 bytes each, thus performing 281 iterations\nFreed memory for dev 0\nUninitted cublas\nUsing compare file:",
			"done\n\nTested 8 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n\tGPU 2: OK\n\tGPU 3: OK\n\tGPU 4: OK\n\tGPU 5: OK\n\tGPU 6: OK\n\tGPU 7: OK\n")
		lines := progressLines(t, r.stdout)
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "100.0%  proc'd: 21356 (39") || !strings.HasSuffix(last, "C ") || !strings.Contains(last, "  errors: 0 - 0 - 0 - 0 - 0 - 0 - 0 - 0   temps: 6") {
			t.Errorf("the last line of progress is %q", last)
		}
	})
}

func TestGPUBurnFindsWrongData(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindWrongData, Node: "gpu001", Part: "gpu5", After: 12 * time.Second, For: 2 * time.Second}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		r := run("gpu_burn", "-d", "30")
		if r.status() != 0 {
			t.Errorf("status %d, want 0", r.status())
		}
		holds(t, r.stdout, "using DOUBLES\n", " (WARNING!)- 0 ", "\tGPU 4: OK\n\tGPU 5: FAULTY\n\tGPU 6: OK\n")
	})
}

// The process of a GPU that falls off the bus dies, and the others go on.
func TestGPUBurnLosesGPU(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindXID79, Node: "gpu001", Part: "gpu2", After: 20 * time.Second}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		r := run("gpu_burn", "-tc", "40")
		if r.status() != 0 {
			t.Errorf("status %d, want 0", r.status())
		}
		lines := progressLines(t, r.stdout)
		holds(t, strings.Join(lines, "\n"), " - -1 (39", "  errors: 0 - 0 - -1  (DIED!)- 0 - ")
		holds(t, r.stdout, "\tGPU 1: OK\n\tGPU 2: FAULTY\n\tGPU 3: OK\n")
		holds(t, r.stderr, "Failure during compute: Error in Read faultyelemdata (gpu_burn-drv.cpp:275): unspecified launch failure\n")
	})
}

func TestGPUBurnOfOneGPU(t *testing.T) {
	onGPURack(t, 1, nil, func(t *testing.T, run func(argv ...string) result) {
		r := run("gpu_burn", "-i", "3", "-m", "1024", "5")
		holds(t, r.stdout, "using 1024 MB of it), using FLOATS\n", "Results are 268435456 bytes each, thus performing 2 iterations\n", "Tested 1 GPUs:\n\tGPU 0: OK\n")
		run("gpu_burn", "-m", "none", "5").want(t, 22, "")
		large := run("gpu_burn", "-m", "99999", "60")
		if large.status() != 123 {
			t.Errorf("with more memory than there is: status %d, want 123", large.status())
		}
		holds(t, large.stderr, "out of memory\n")
		holds(t, run("gpu_burn", "-l").stdout, "ID 7: NVIDIA H100 80GB HBM3, 85018MB\n")
	})
}

// All processes die at the start where the only GPU asked is gone.
func TestGPUBurnOfLostGPU(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindXID79, Node: "gpu001", Part: "gpu0"}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		r := run("gpu_burn", "-i", "0", "60")
		if r.status() != 123 {
			t.Errorf("status %d, want 123", r.status())
		}
		holds(t, r.stdout, "proc'd: -1 (0 Gflop/s)   errors: -1  (DIED!)  temps: -- ")
		holds(t, r.stderr, "Couldn't init a GPU test: Error (gpu_burn-drv.cpp:116): unknown error\n", "No clients are alive!  Aborting\n")
	})
}
