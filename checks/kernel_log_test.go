package checks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/checks/checktest"
	"github.com/rackproof/rackproof/evidence"
)

func TestGoldenKernelLog(t *testing.T) { checktest.Golden(t, find(t, "kernel_log")) }
func TestDamageKernelLog(t *testing.T) { checktest.Damage(t, find(t, "kernel_log")) }

func FuzzKernelLog(f *testing.F) {
	fuzzStep(f, "kernel_log", "good_watch", func(data []byte) bool {
		return bytes.HasSuffix(data, []byte("\n"))
	}, "kernel.n1/stdout", "gpus.n1/stdout", "nics.n1/stdout", "mark-begin.n1/stdout", "boot-end.n1/stdout", "kernel.n1/exit.json")
}

// On a machine whose log takes no marks, as in most containers, nothing is
// measured; and where it does, everything is.
func TestRealKernelLog(t *testing.T) {
	for _, window := range []string{"cell", "boot"} {
		t.Run(window, func(t *testing.T) {
			b := newBench(t, "kernel_log", evidence.ScopeNode, "1s", []string{"n1"}, fmt.Sprintf(`{"window": %q, "gpus": 0}`, window))
			a := b.drive(t.Context())
			if len(a.Unmeasured) == 0 && len(a.Measurements) != 12 {
				t.Errorf("there is no problem, and %d measurements: %v", len(a.Measurements), a.Measurements)
			}
			for _, one := range a.Measurements {
				if len(a.Unmeasured) > 0 && one.Value == 0 {
					t.Errorf("%s is 0 in spite of %v", one.Metric, a.Unmeasured)
				}
			}
		})
	}
}

// kernelCase is good_watch with other lines between its marks.
func kernelCase(t *testing.T, lines ...string) evidence.MeasuredAttempt {
	t.Helper()
	text := "user  :warn  : [ 1000.000000] rackproof mark-begin 2efe0137d1b26147\n" + strings.Join(lines, "") +
		"user  :warn  : [ 1010.000000] rackproof mark-end 9a3c5b7e01d24f68\n"
	c := replaced(t, "kernel_log", "good_watch", "kernel.n1", "stdout", text)
	return checktest.Measure(find(t, "kernel_log"), c.View, c.Raw)
}

// One event may be many lines, and a second event is one more.
func TestXidEventsOfOneGPU(t *testing.T) {
	line := func(at float64, gpu string, code int) string {
		return fmt.Sprintf("kern  :err   : [%12.6f] NVRM: Xid (PCI:0000:%s:00): %d, Ch 1\n", at, gpu, code)
	}
	for _, test := range []struct {
		lines []string
		want  float64 // events of gpu0
	}{
		{[]string{line(1001, "18", 48)}, 1},
		{[]string{line(1001, "18", 48), line(1001.5, "18", 48), line(1002.4, "18", 48)}, 1},
		{[]string{line(1001, "18", 48), line(1002.01, "18", 48)}, 2},
		{[]string{line(1001, "18", 48), line(1001, "18", 64)}, 2},
		{[]string{line(1001, "18", 48), line(1001, "2a", 48), line(1001.1, "18", 48)}, 1},
		{[]string{"kern  :err   : NVRM: Xid (PCI:0000:18:00): 48, x\n", "kern  :err   : NVRM: Xid (PCI:0000:18:00): 48, x\n"}, 2},
	} {
		a := kernelCase(t, test.lines...)
		wantClasses(t, a)
		if got := value(t, a, "xid_fatal", "n1/gpu0"); got != test.want {
			t.Errorf("%q: xid_fatal is %g, want %g", test.lines, got, test.want)
		}
	}
}

// A log without end is counted up to a bound, and the rest is not forgotten.
func TestXidFlood(t *testing.T) {
	var lines strings.Builder
	const events = 1<<16 + 1
	for i := range events {
		fmt.Fprintf(&lines, "kern  :err   : [%d.000000] NVRM: Xid (PCI:0000:18:00): 31, x\n", 1000+2*i)
	}
	a := kernelCase(t, lines.String())
	wantProblem(t, a, evidence.ClassOutputCapped, "more than 65536 events of the driver")
	if got := value(t, a, "xid_review", "n1/gpu0"); got != events-1 {
		t.Errorf("xid_review is %g, want %d", got, events-1)
	}
	for _, one := range a.Measurements {
		if strings.Contains(one.Metric, "xid") && one.Value == 0 {
			t.Errorf("%s of %s is 0, and events were left out", one.Metric, one.Subject)
		}
	}
}

// An odd line may be any GPU's, so that none has shown that it had none.
func TestXidOfUnknownFormHidesZeros(t *testing.T) {
	a := kernelCase(t, "kern  :err   : [ 1001.000000] NVRM: Xid [18:00] 79\n")
	wantProblem(t, a, evidence.ClassUnparsable, `line 2 has no known form of a XID: "NVRM: Xid [18:00] 79"`)
	for _, one := range a.Measurements {
		if strings.Contains(one.Metric, "xid") {
			t.Errorf("measured %v", one)
		}
	}
	if got := value(t, a, "kernel_errors", "n1"); got != 1 {
		t.Errorf("kernel_errors is %g, want 1", got)
	}
}

func TestKernelLogSubjects(t *testing.T) {
	spec := find(t, "kernel_log").Spec()
	p := json.RawMessage(`{"window": "cell", "gpus": 2, "nics": ["mlx5_0"], "codes": ["79"]}`)
	levels := make(map[string]string)
	for _, m := range spec.Metrics(p) {
		levels[m.Name] = m.Level
	}
	for metric, want := range map[string][]evidence.Subject{
		"xid_fatal":     {"n1/gpu0", "n1/gpu1", "n2/gpu0", "n2/gpu1"},
		"xid_note":      {"n1/gpu0", "n1/gpu1", "n2/gpu0", "n2/gpu1"},
		"xid_events":    {"n1", "n2"},
		"link_down":     {"n1/mlx5_0", "n2/mlx5_0"},
		"kernel_errors": {"n1", "n2"},
	} {
		got := spec.Subjects(evidence.Fleet{}, []string{"n1", "n2"}, evidence.ScopeNode, metric, p)
		if !slices.Equal(got, want) {
			t.Errorf("%s: subjects are %v, want %v", metric, got, want)
		}
		if strings.Count(levels[metric], "/") != strings.Count(string(want[0]), "/") {
			t.Errorf("%s is at the level %q and its subjects are %v", metric, levels[metric], want)
		}
	}
}

func TestKernelLogParameters(t *testing.T) {
	spec := find(t, "kernel_log").Spec()
	for _, test := range []struct{ member, want string }{
		{`"gpus": 8`, ""},
		{`"window": "day"`, `window is "day"`},
		{`"gpus": -1`, "give 0 to 64"},
		{`"gpus": 65`, "give 0 to 64"},
		{`"nics": ["mlx5_0", "mlx5_0"]`, "there twice"},
		{`"nics": ["a/b"]`, "no device's name"},
		{`"codes": ["079"]`, "no XID"},
		{`"codes": ["79", "79"]`, "there twice"},
		{`"harmless": ["a b"]`, "name a function"},
		{`"xids": [{"xid": "63", "severity": "fail", "why": "annex C"}]`, ""},
		{`"xids": [{"xid": "SXID:12028", "severity": "note"}]`, ""},
		{`"xids": [{"code": "63", "severity": "fail"}]`, `code "" in its column xid`},
		{`"xids": [{"xid": "63", "severity": "FAIL"}]`, "choose one of fail, inconclusive, review, note"},
		{`"xids": [{"xid": "63", "severity": "fail"}, {"xid": "63", "severity": "note"}]`, "63 twice"},
		{`"sources": 1`, "sources"},
	} {
		params := `{"window": "cell", "gpus": 0, ` + test.member + `}`
		if strings.HasPrefix(test.member, `"window"`) {
			params = `{"gpus": 0, ` + test.member + `}`
		} else if strings.HasPrefix(test.member, `"gpus"`) {
			params = `{"window": "cell", ` + test.member + `}`
		}
		err := spec.Validate(json.RawMessage(params))
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", params, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: the error is %v, want one with %q", params, err, test.want)
		}
	}
}

// The same lines with one more in front must count the same: what stands
// before the begin mark is another test's.
func TestOnlyTheWindowCounts(t *testing.T) {
	const xid = "kern  :err   : [  999.000000] NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus\n"
	for _, test := range []struct {
		where string
		want  float64
	}{{"before", 0}, {"inside", 1}, {"behind", 0}} {
		text := map[string]string{test.where: xid}
		c := replaced(t, "kernel_log", "good_watch", "kernel.n1", "stdout", text["before"]+
			"user  :warn  : [ 1000.000000] rackproof mark-begin 2efe0137d1b26147\n"+text["inside"]+
			"user  :warn  : [ 1010.000000] rackproof mark-end 9a3c5b7e01d24f68\n"+text["behind"])
		a := checktest.Measure(find(t, "kernel_log"), c.View, c.Raw)
		wantClasses(t, a)
		if got := value(t, a, "xid_fatal", "n1/gpu0"); got != test.want {
			t.Errorf("a XID %s the marks: xid_fatal is %g, want %g", test.where, got, test.want)
		}
	}
}

// A record in the form of another tool or option has its XID passed over, so
// that no zero stands; a further line of a record is none.
func TestRecordOfUnknownFormHidesZeros(t *testing.T) {
	const xid = "NVRM: Xid (PCI:0000:18:00): 79, x\n"
	for _, head := range []string{
		"kern  :error : [ 1001.000000] ", "kern  :er: [ 1001.000000] ", " kern  :err   : [ 1001.000000] ", "[ 1001.000000] ",
		"kern  :err   : [Tue Jul  1 10:00:00 2026] ", "kern  :err   : 2026-07-01T10:00:00,123456+00:00 ", "[Tue Jul  1 10:00:00 2026] ",
		"kern  :err   : [ 1001.000000 <    0.100000>] ", "kern  :err   : \x1b[32m[ 1001.000000] \x1b[0m\x1b[33m", "2026-07-01T10:00:00+00:00 n1 kernel: ",
		"Jul 01 10:00:00 n1 kernel: ", "rn  :err   : [ 1001.000000] ",
	} {
		a := kernelCase(t, head+xid)
		wantProblem(t, a, evidence.ClassUnparsable, "line 2 has no known form of dmesg -x")
		for _, one := range a.Measurements {
			if one.Value == 0 {
				t.Errorf("%q: measured %v", head, one)
			}
		}
	}
	a := kernelCase(t, "kern  :info  : [ 1001.000000] a table:\n                              1: [mem 0x0000-0x0fff]\nrow 2\n")
	wantClasses(t, a)
}
