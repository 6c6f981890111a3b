package checks_test

import (
	"testing"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/checks/checktest"
)

func TestGoldenCommand(t *testing.T)    { checktest.Golden(t, find(t, "command")) }
func TestGoldenInventory(t *testing.T)  { checktest.Golden(t, find(t, "inventory")) }
func TestGoldenStorageFio(t *testing.T) { checktest.Golden(t, find(t, "storage_fio")) }
func TestGoldenHostBurn(t *testing.T)   { checktest.Golden(t, find(t, "host_burn")) }
func TestGoldenGPUBurn(t *testing.T)    { checktest.Golden(t, find(t, "gpu_burn")) }
func TestGoldenFailover(t *testing.T)   { checktest.Golden(t, find(t, "failover")) }

func TestGoldenNcclAllreduce(t *testing.T) { checktest.Golden(t, find(t, "nccl_allreduce")) }

func TestDamageCommand(t *testing.T)    { checktest.Damage(t, find(t, "command")) }
func TestDamageInventory(t *testing.T)  { checktest.Damage(t, find(t, "inventory")) }
func TestDamageStorageFio(t *testing.T) { checktest.Damage(t, find(t, "storage_fio")) }
func TestDamageHostBurn(t *testing.T)   { checktest.Damage(t, find(t, "host_burn")) }
func TestDamageGPUBurn(t *testing.T)    { checktest.Damage(t, find(t, "gpu_burn")) }

func TestDamageNcclAllreduce(t *testing.T) { checktest.Damage(t, find(t, "nccl_allreduce")) }

// A list that was read back shorter is a loss, a state that is another one is
// a mismatch, and neither passes.
func TestDamageFailover(t *testing.T) {
	checktest.Damage(t, find(t, "failover"), "lost_records", "wrong_records", "mismatches")
}

func TestOtherCommand(t *testing.T) {
	for _, check := range checks.Builtin() {
		t.Run(check.Spec().Name, func(t *testing.T) { checktest.OtherCommand(t, check) })
	}
}
