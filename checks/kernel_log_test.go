package checks_test

import (
	"testing"

	"github.com/rackproof/rackproof/checks/checktest"
)

func TestGoldenKernelLog(t *testing.T) { checktest.Golden(t, find(t, "kernel_log")) }

// A cut that loses the begin mark's end of the log cannot add an error.
func TestDamageKernelLog(t *testing.T) { checktest.Damage(t, find(t, "kernel_log")) }
