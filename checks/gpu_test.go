package checks

import (
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

// An expectation is read alike by every check, as mismatches compares it.
func TestExpectedGPUs(t *testing.T) {
	fleet := func(gpus string) evidence.Fleet {
		return evidence.Fleet{Expect: []evidence.Expectation{{Fact: "arch", Value: "2"}, {Fact: "gpus", Value: gpus}}}
	}
	for _, test := range []struct {
		gpus string
		want int
	}{
		{"4", 4}, {"= 4", 4}, {"=4", 4}, {"=  4 ", 4}, {"1024", 1024},
		{"0", 0}, {"1025", 0}, {"-4", 0}, {"+4", 0}, {"04", 0}, {"4.0", 0}, {" 4", 0}, {"== 4", 0}, {"four", 0}, {"", 0}, {"99999999999999999999", 0},
	} {
		n, err := expectedGPUs(fleet(test.gpus))
		if n != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("gpus = %q is %d, %v, want %d", test.gpus, n, err, test.want)
		}
		launch, err := newNcclLaunch(ncclParams{}, "", fleet(test.gpus), evidence.ScopeNode, []string{"n1"})
		if (err == nil) != (test.want > 0) || err == nil && launch.gpus != test.want {
			t.Errorf("gpus = %q has nccl_allreduce take %d, %v, want %d", test.gpus, launch.gpus, err, test.want)
		}
		n, err = gpuBurnParams{}.gpus(fleet(test.gpus))
		if fits := test.want > 0 && test.want <= sampledGPUs; (err == nil) != fits || fits && n != test.want {
			t.Errorf("gpus = %q has gpu_burn take %d, %v, want %d", test.gpus, n, err, test.want)
		}
		if n := (inventoryParams{}).gpusToFind(fleet(test.gpus)); n != test.want {
			t.Errorf("gpus = %q has inventory look for %d, want %d", test.gpus, n, test.want)
		}
	}
	if n, err := expectedGPUs(evidence.Fleet{}); n != 0 || err != nil {
		t.Errorf("a fleet without expectations has %d, %v", n, err)
	}
}
