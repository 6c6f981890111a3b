package verify

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runbook"
	"github.com/rackproof/rackproof/thresholds"
)

// largeRunbook declares one command on a thousand nodes, many times.
func largeRunbook(tests int) string {
	var text strings.Builder
	text.WriteString(`
runbook "large" {
  title   = "A thousand nodes"
  version = "1.0.0"
}

owner "site" {
  contact = "site@example.com"
}

fleet "hall" {
  hosts = "gpu[0001-1000]"

  executor "local" {
    shared_machine = true
  }
}

phase "all" {}
`)
	for i := range tests {
		fmt.Fprintf(&text, `
test "t%03d" {
  phase    = phase.all
  nodes    = fleet.hall
  owner    = owner.site
  duration = "1m"

  establishes        = { "It answers." = [threshold.value] }
  does_not_establish = ["Anything else."]

  check "command" {
    argv  = ["seq", "3"]
    proof = "^3$"

    metric "value" {
      regex = "^(2)$"
      unit  = "1"
    }
  }

  threshold "value" {
    stat  = "min"
    min   = 1
    unit  = "1"
    basis = "It counts"
  }
}
`, i)
	}
	return text.String()
}

// A run of 200,000 cells that was stopped before its first one is not a pass,
// and names every cell.
func TestLargeRunOfNothing(t *testing.T) {
	r := rig{dir: filepath.Join(t.TempDir(), "run")}
	private, public, err := attest.GenerateKey(nil)
	must(t, err)
	r.public = public
	r.signer, err = attest.LoadSigner(private, nil)
	must(t, err)
	loaded, diags := runbook.Load(fstest.MapFS{"large.runbook.hcl": {Data: []byte(largeRunbook(200))}}, "large.runbook.hcl", runbook.Inputs{Dir: "/"}, known())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	plan, diags := loaded.Compile()
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	store, err := evidence.Create(r.dir, "2026-11-30t14-02-11z-3f9a", plan, loaded.Sources(), tool())
	must(t, err)
	_, err = store.Append(evidence.Record{Event: evidence.EventStop, Reason: "stopped before its first cell"})
	must(t, err)
	results := checks.Measure(checks.Builtin(), plan, store.Records(), store.FS())
	must(t, store.Seal(evidence.NewDerived(results, thresholds.Judge(plan, results))))
	must(t, store.Close())
	must(t, attest.Sign(t.Context(), r.dir, r.signer))

	report := r.verify(t, r.options())
	if report.Exit != ExitInconclusive || report.Level != attest.Reproduced {
		t.Errorf("exit %d at level %v, want %d at %v: %q", report.Exit, report.Level, ExitInconclusive, attest.Reproduced, codes(report))
	}
	if report.Verdict == nil || len(report.Verdict.Coverage.Open) != 200_000 {
		t.Fatalf("the verdict does not name 200,000 open cells: %+v", report.Verdict)
	}
	for i, want := range map[int]string{0: "t000/gpu0001.r1", 199_999: "t199/gpu1000.r1"} {
		if got := report.Verdict.Coverage.Open[i]; got.Cell != want || got.Problem.Class != evidence.ClassNotRun {
			t.Errorf("open cell %d is %s, %s, want %s, %s", i, got.Cell, got.Problem.Class, want, evidence.ClassNotRun)
		}
	}
}

// TestPlanOfTooManyTests: three bytes a test would cost hundreds of times their
// size in memory, whoever wrote them.
func TestPlanOfTooManyTests(t *testing.T) {
	plan := func(tests int) []byte {
		return []byte(`{"tests":[` + strings.TrimSuffix(strings.Repeat("{},", tests), ",") + `]}`)
	}
	if err := checkTests(plan(maxTests)); err != nil {
		t.Error(err)
	}
	if err := checkTests(plan(maxTests + 1)); err == nil || err.Error() != "it has 20001 tests: at most 20000 are read" {
		t.Error(err)
	}
}
