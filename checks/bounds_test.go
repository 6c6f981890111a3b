package checks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/checks/checktest"
	"github.com/rackproof/rackproof/evidence"
)

// replaced is a case of a check with another stdout or stderr of one step,
// and honest byte counts.
func replaced(t *testing.T, check, name, dir, stream, text string) checktest.Case {
	t.Helper()
	for _, c := range checktest.Cases(t, find(t, check)) {
		if c.Name != name {
			continue
		}
		c.Raw = maps.Clone(c.Raw)
		c.Raw[dir+"/"+stream] = &fstest.MapFile{Data: []byte(text)}
		var exit map[string]any
		if err := json.Unmarshal(c.Raw[dir+"/exit.json"].Data, &exit); err != nil {
			t.Fatal(err)
		}
		exit[stream+"Bytes"] = len(text)
		data, err := json.Marshal(exit)
		if err != nil {
			t.Fatal(err)
		}
		c.Raw[dir+"/exit.json"] = &fstest.MapFile{Data: data}
		return c
	}
	t.Fatalf("%s has no case %s", check, name)
	return checktest.Case{}
}

func wantProblem(t *testing.T, a evidence.MeasuredAttempt, class evidence.Class, text string) {
	t.Helper()
	for _, p := range a.Unmeasured {
		if p.Class == class && strings.Contains(p.Detail, text) {
			return
		}
	}
	t.Errorf("problems are %v, want one of class %s with %q", a.Unmeasured, class, text)
}

// A file that is not there but for its size: what is over the limit must not
// be read at all.
type hugeFS struct {
	fstest.MapFS
	name string
	size int64
}

func (f hugeFS) Stat(name string) (fs.FileInfo, error) {
	info, err := f.MapFS.Stat(name)
	if err == nil && name == f.name {
		return hugeInfo{info, f.size}, nil
	}
	return info, err
}

type hugeInfo struct {
	fs.FileInfo
	size int64
}

func (i hugeInfo) Size() int64 { return i.size }

func TestLongOutputIsNotRead(t *testing.T) {
	for _, test := range []struct{ check, name, file string }{
		{"command", "good_lines", "command.n1/stdout"},
		{"command", "good_lines", "command.n1/stderr"},
		{"command", "good_lines", "command.n1/exit.json"},
		{"inventory", "good_node", "cpu.n1/stdout"},
		{"storage_fio", "good_node_fsync", "fio-1.n1/stdout"},
		{"host_burn", "good_burn", "burn.n1/stderr"},
		{"failover", "good_outage", "read.n1/stdout"},
		{"failover", "good_outage", "faults.jsonl"},
	} {
		for _, c := range checktest.Cases(t, find(t, test.check)) {
			if c.Name != test.name {
				continue
			}
			raw := func(size int64) evidence.MeasuredAttempt {
				plan := &evidence.Plan{Fleet: c.View.Fleet, Tests: []evidence.Test{c.View.Test}}
				cell := c.View.Cell
				cell.Nodes = strings.Join(c.View.Nodes, ",")
				return checks.MeasureAttempt(checks.Builtin(), plan, cell, evidence.MeasuredAttempt{Attempt: c.View.Attempt}, hugeFS{c.Raw, test.file, size})
			}
			over := raw(64<<20 + 1)
			wantProblem(t, over, evidence.ClassOutputCapped, "67108865 bytes, and at most 67108864 are read at once")
			for _, m := range over.Measurements {
				if strings.HasPrefix(m.Source, strings.TrimSuffix(test.file, "exit.json")) {
					t.Errorf("%s: %s is still measured from it", test.file, m.Metric)
				}
			}
			for _, p := range raw(64 << 20).Unmeasured {
				if p.Class == evidence.ClassOutputCapped {
					t.Errorf("%s of exactly the limit: %v", test.file, p)
				}
			}
		}
	}
}

// A sample list of days is longer than what is read at once, and is streamed.
func TestProbesAreStreamed(t *testing.T) {
	for _, test := range []struct{ check, name, file string }{
		{"host_burn", "good_burn", "samples.n1/stdout"},
		{"failover", "good_outage", "probe.n1/stdout"},
	} {
		for _, c := range checktest.Cases(t, find(t, test.check)) {
			if c.Name != test.name {
				continue
			}
			plan := &evidence.Plan{Fleet: c.View.Fleet, Tests: []evidence.Test{c.View.Test}}
			cell := c.View.Cell
			cell.Nodes = strings.Join(c.View.Nodes, ",")
			a := checks.MeasureAttempt(checks.Builtin(), plan, cell, evidence.MeasuredAttempt{Attempt: c.View.Attempt}, hugeFS{c.Raw, test.file, 1 << 40})
			wantClasses(t, a)
		}
	}
}

func TestManyJSONValues(t *testing.T) {
	lists := func(n int) string { return "[" + strings.Repeat("[],", n-2) + "0]\n" }
	const limit = 2 << 20
	text := fmt.Sprintf("more than %d values", limit)
	for _, test := range []struct {
		check, name, dir, text string
		refused                bool
	}{
		{"inventory", "good_node", "cpu.n1", lists(limit), false},
		{"inventory", "good_node", "cpu.n1", lists(limit + 1), true},
		{"storage_fio", "good_node_fsync", "fio-1.n1", `{"a": ` + strings.TrimSuffix(lists(limit), "\n") + "}\n", true},
	} {
		c := replaced(t, test.check, test.name, test.dir, "stdout", test.text)
		a := checktest.Measure(find(t, test.check), c.View, c.Raw)
		if test.refused {
			wantProblem(t, a, evidence.ClassUnparsable, text)
		} else if strings.Contains(fmt.Sprint(a.Unmeasured), text) {
			t.Errorf("exactly the limit: %v", a.Unmeasured)
		}
	}
	// What is no JSON document leaves this check without values.
	c := replaced(t, "command", "good_lscpu_json", "command.n1", "stdout", `{"a": `+lists(limit)+"}\n")
	for _, m := range checktest.Measure(find(t, "command"), c.View, c.Raw).Measurements {
		if !strings.Contains(m.Missing, text) {
			t.Errorf("%s is %g, %q", m.Metric, m.Value, m.Missing)
		}
	}
}

// wide is a check of many metrics on many subjects that measures nothing.
type wide struct {
	metrics, subjects, labels int
	measuring                 func()
}

func (w wide) Spec() checks.Spec {
	var values []string
	for i := range w.labels {
		values = append(values, fmt.Sprint(i))
	}
	return checks.Spec{
		Name: "stub", Version: 1, Scopes: []evidence.Scope{evidence.ScopeNode},
		Metrics: func(json.RawMessage) []checks.Metric {
			metrics := make([]checks.Metric, w.metrics)
			for i := range metrics {
				metrics[i] = checks.Metric{Name: fmt.Sprintf("m%d", i), Unit: "1", Level: "node"}
				if w.labels > 0 {
					metrics[i].Labels = []checks.Label{{Name: "x", Values: values}, {Name: "y", Values: values}}
				}
			}
			return metrics
		},
		Subjects: func(evidence.Fleet, []string, evidence.Scope, string, json.RawMessage) []evidence.Subject {
			subjects := make([]evidence.Subject, w.subjects)
			for i := range subjects {
				subjects[i] = evidence.Subject(fmt.Sprintf("n%d", i))
			}
			return subjects
		},
	}
}

func (wide) Drive(context.Context, checks.Bench) error { return nil }

func (w wide) Measure(evidence.CellView, fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	w.measuring()
	return nil, nil, &evidence.Problem{Class: evidence.ClassNotRun, Detail: "nothing"}
}

func TestManyMeasurementsAreRefused(t *testing.T) {
	for _, test := range []struct {
		metrics, subjects, labels int
		refused                   bool
	}{
		{1024, 1024, 0, false},
		{1025, 1024, 0, true},
		{1, 1<<20 + 1, 0, true},
		{16, 64, 32, false},
		{17, 64, 32, true},
		{1, 1, 1 << 10, false},
		{1, 1, 1 << 16, true}, // 1<<32 of the labels alone
		{4096, 0, 1 << 10, false},
	} {
		measured := false
		a := checktest.Measure(wide{test.metrics, test.subjects, test.labels, func() { measured = true }}, stubView(), fstest.MapFS{})
		if measured == test.refused {
			t.Errorf("%+v: measured: %v", test, measured)
		}
		if test.refused {
			wantProblem(t, a, evidence.ClassUnparsable, "more than 1048576 measurements")
		} else {
			wantClasses(t, a, evidence.ClassNotRun)
		}
	}
}

// A metric more on the same subjects costs no set of its own: sets of 1,000
// subjects for 1,000 metrics took 80 MiB.
func TestMetricsShareTheirSubjects(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var during uint64
	check := wide{metrics: 1000, subjects: 1000, measuring: func() { during = heap() }}
	plan := &evidence.Plan{Tests: []evidence.Test{stubView().Test}}
	before := heap()
	checks.MeasureAttempt(checks.Catalog{check}, plan, evidence.Cell{Test: "t", Nodes: "n1"}, evidence.MeasuredAttempt{}, fstest.MapFS{})
	if during == 0 || during > before+8<<20 {
		t.Errorf("the heap held %d KiB before and %d KiB while Measure ran, want at most 8 MiB more", before>>10, during>>10)
	}
}
