package verify

import (
	"testing"

	"github.com/rackproof/rackproof/evidence/attest"
)

func TestBreakingOnABundleIsNeverTrust(t *testing.T) {
	result := guarded(stepVerdict, func() attest.StepResult { panic("index out of range") })
	if result.State != attest.Failed || result.Step != 6 || len(result.Failures) != 1 || result.Failures[0].Code != CodePanic {
		t.Fatalf("%+v", result)
	}
}
