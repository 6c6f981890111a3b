package checks_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

// Programs in the place of gpu_burn and nvidia-smi, for a machine without a
// GPU: they show what Drive runs, in which order and with what around it.
const (
	standInBurn = `#!/bin/sh
for seconds; do :; done
test "$*" = "-m 90% -tc $seconds" || exit 22
test "$CUDA_DEVICE_ORDER" = PCI_BUS_ID || exit 23
printf 'Burning for %d seconds.\n' "$seconds"
tenths=0
while test $tenths -lt $((seconds * 10)); do
	sleep 0.5
	tenths=$((tenths + 5))
	percent=$((tenths * 10 / seconds))
	test $percent -le 100 || percent=100
	printf "\r%d.0%%  proc'd: %d (51000 Gflop/s) - %d (50900 Gflop/s)   errors: 0 - 0   temps: 60 C - 61 C " $percent $tenths $tenths
done
printf '\nKilling processes with SIGTERM (soft kill)\ndone\n\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n'
`
	standInSMI = `#!/bin/sh
echo "timestamp, index, uuid, pci.bus_id, temperature.gpu, temperature.memory, power.draw.instant [W], clocks.current.sm [MHz], utilization.gpu [%], clocks_event_reasons.active, ecc.errors.corrected.volatile.total, ecc.errors.uncorrected.volatile.total"
now=$(date -u '+%Y/%m/%d %H:%M:%S.%N' | cut -c1-23)
echo "$now, 0, GPU-a1b2c300, 00000000:1B:00.0, 60, 70, 690.00 W, 1755 MHz, 100 %, 0x0000000000000004, 0, 0"
echo "$now, 1, GPU-a1b2c301, 00000000:2B:00.0, 61, 71, 691.00 W, 1740 MHz, 100 %, 0x0000000000000004, 0, 0"
`
)

func TestDriveGPUBurn(t *testing.T) {
	tools := t.TempDir()
	for name, script := range map[string]string{"gpu_burn": standInBurn, "nvidia-smi": standInSMI} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	params := with(gpuBurn(`"sample": "200ms"`), `"gpus": 2`)

	b := newBench(t, "gpu_burn", evidence.ScopeNode, "2s", []string{"n1"}, params)
	a := b.drive(t.Context())
	wantClasses(t, a)
	if hours := value(t, a, "hours_under_load", "n1/gpu1"); hours < 2.0/3600 || hours > 30.0/3600 {
		t.Errorf("hours_under_load is %g after a burn of three seconds", hours)
	}
	for metric, want := range map[string]float64{"faulty": 0, "errors": 0, "gflops_min": 50900, "temperature_max": 61, "power_mean": 691, "sm_clock_min": 1740} {
		if got := value(t, a, metric, "n1/gpu1"); got != want {
			t.Errorf("%s is %g, want %g", metric, got, want)
		}
	}
	if got := value(t, a, "throttle_seconds", "n1/gpu0", "reason", "hw_slowdown"); got != 0 {
		t.Errorf("throttle_seconds of hw_slowdown is %g", got)
	}
	if got := fact(t, a, "gpu_bus_id", "n1/gpu0").Value; got != "0000:1b:00.0" {
		t.Errorf("gpu_bus_id is %q", got)
	}

	if err := os.Remove(filepath.Join(tools, "gpu_burn")); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, "gpu_burn", evidence.ScopeNode, "2s", []string{"n1"}, params)
	wantClasses(t, b.drive(t.Context()), evidence.ClassToolMissing)
}
