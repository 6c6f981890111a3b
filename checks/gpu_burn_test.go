package checks

import (
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// A day is burned in rounds, each a little longer than its part.
func TestGPUBurnRounds(t *testing.T) {
	params := gpuBurnParams{
		Binary: "gpu_burn", Memory: 90, TensorCores: true,
		Round: evidence.Duration(2 * time.Hour), SoftKill: evidence.Duration(usualSoftKill), Warmup: evidence.Duration(30 * time.Second), Sample: evidence.Duration(time.Second),
	}
	for _, test := range []struct {
		duration time.Duration
		rounds   int
		seconds  string
		warm     time.Duration
	}{
		{0, 1, "1", 250 * time.Millisecond},
		{time.Second, 1, "2", 500 * time.Millisecond},
		{time.Minute, 1, "68", 17 * time.Second},
		{2 * time.Hour, 1, "7233", 30 * time.Second},
		{3 * time.Hour, 2, "5433", 30 * time.Second},
		{24 * time.Hour, 12, "7233", 30 * time.Second},
	} {
		if got := params.rounds(test.duration); got != test.rounds {
			t.Errorf("%s are burned in %d rounds, want %d", test.duration, got, test.rounds)
		}
		if got, want := strings.Join(params.argv(test.duration, burnRoundStep(1)), " "), "env CUDA_DEVICE_ORDER=PCI_BUS_ID gpu_burn -m 90% -tc "+test.seconds; got != want {
			t.Errorf("a round of %s runs %q, want %q", test.duration, got, want)
		}
		if got := params.warm(test.duration); got != test.warm {
			t.Errorf("the warm-up of %s is %s, want %s", test.duration, got, test.warm)
		}
	}
	params = gpuBurnParams{Binary: "/opt/gpu-burn/gpu_burn", Compare: "/opt/gpu-burn/compare.ptx", Memory: 50, Doubles: true, Round: params.Round, SoftKill: evidence.Duration(5 * time.Second)}
	want := "env CUDA_DEVICE_ORDER=PCI_BUS_ID /opt/gpu-burn/gpu_burn -m 50% -d -c /opt/gpu-burn/compare.ptx -stts 5 68"
	if got := strings.Join(params.argv(time.Minute, burnRoundStep(1)), " "); got != want {
		t.Errorf("it runs %q, want %q", got, want)
	}
	if got := params.argv(time.Minute, "mark"); got != nil {
		t.Errorf("a step that is none runs %q", got)
	}
}
