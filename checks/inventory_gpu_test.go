package checks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/checks/checktest"
	"github.com/rackproof/rackproof/evidence"
)

func TestInventoryParts(t *testing.T) {
	for _, test := range []struct{ params, want string }{
		{`{"gpus": true}`, ""},
		{`{"gpus": true, "gpu_slots": ["0000:1b:00.0", "0000:43:00.0"]}`, ""},
		{`{"gpu_slots": ["0000:1b:00.0"]}`, "gpus is not true"},
		{`{"gpus": true, "gpu_slots": ["1b:00.0"]}`, "no PCI address"},
		{`{"gpus": true, "gpu_slots": ["0000:1b:00.0", "00000000:1B:00.0"]}`, "twice"},
		{`{"gpus": true, "gpu_slots": ["0000:43:00.0", "0000:1b:00.0"]}`, "0000:1b:00.0 stands behind 0000:43:00.0: write them in rising order"},
		{`{"gpus": true, "gpu_slots": ["10000:01:00.0", "0000:1b:00.0"]}`, "rising order"},
		{`{"gpus": true, "gpu_slots": ["0000:1b:00.0", "10000:01:00.0"]}`, ""},
		{`{"gpus": true, "version": [{"name": "driver", "argv": ["a"]}]}`, "driver_version is there already"},
		{`{"version": [{"name": "driver", "argv": ["a"]}]}`, ""},
		{`{"links": true}`, ""},
		{`{"links": true, "nics": ["mlx5_0", "mlx4_0", "mlx4_0.2"]}`, ""},
		{`{"nics": ["mlx5_0"]}`, "links is not true"},
		{`{"links": true, "nics": ["../mlx5_0"]}`, "not the name"},
		{`{"links": true, "nics": ["mlx4_0.1"]}`, "not the name"},
		{`{"links": true, "nics": [""]}`, "not the name"},
		{`{"links": true, "nics": ["mlx5_0", "mlx5_0"]}`, "twice"},
	} {
		err := find(t, "inventory").Spec().Validate(json.RawMessage(test.params))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error is %v, want one with %q", test.params, err, test.want)
		}
	}
}

// What the plan knows of a node's parts: their number for GPUs, their names
// for adapters. Where it knows neither, no threshold can bind each of them.
func TestInventorySubjects(t *testing.T) {
	spec := find(t, "inventory").Spec()
	fleet, nodes := fleetOf(2)
	for _, test := range []struct{ params, expect, metric, want string }{
		{`{"gpus": true}`, "", "gpu_present", ""},
		{`{"gpus": true}`, "2", "gpu_present", "na/gpu0 na/gpu1 nb/gpu0 nb/gpu1"},
		{`{"gpus": true}`, "= 1", "nvlinks_up", "na/gpu0 nb/gpu0"},
		{`{"gpus": true}`, "0", "gpu_present", ""},
		{`{"gpus": true}`, "-1", "gpu_present", ""},
		{`{"gpus": true}`, "1000000000", "gpu_present", ""},
		{`{"gpus": true}`, "eight", "gpu_present", ""},
		{`{"gpus": true, "gpu_slots": ["0000:1b:00.0"]}`, "8", "gpu_present", "na/gpu0 nb/gpu0"},
		{`{"gpus": true}`, "2", "gpu_model", "na nb"},
		{`{"gpus": true}`, "2", "clock_offset", "na nb"},
		{`{"links": true}`, "2", "link_up", ""},
		{`{"links": true, "nics": ["mlx5_0", "mlx5_1"]}`, "", "link_rate", "na/mlx5_0 na/mlx5_1 nb/mlx5_0 nb/mlx5_1"},
	} {
		fleet.Expect = nil
		if test.expect != "" {
			fleet.Expect = []evidence.Expectation{{Fact: "arch", Value: "x86_64"}, {Fact: "gpus", Value: test.expect}}
		}
		var got []string
		for _, s := range spec.Subjects(fleet, nodes, evidence.ScopeNode, test.metric, json.RawMessage(test.params)) {
			got = append(got, string(s))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s with %s and gpus = %q has the subjects %q, want %q", test.metric, test.params, test.expect, got, test.want)
		}
	}
}

// A runbook that asks for no part has the facts and metrics that it always had.
func TestInventoryPartsAreAskedFor(t *testing.T) {
	spec := find(t, "inventory").Spec()
	for _, test := range []struct {
		params         string
		metrics, facts int
	}{
		{`{}`, 4, 19},
		{`{"gpus": false, "links": false}`, 4, 19},
		{`{"gpus": true}`, 4 + 7, 19 + 12},
		{`{"links": true}`, 4 + 4, 19 + 2},
		{`{"links": true, "nics": ["mlx5_0"]}`, 4 + 4, 19 + 2},
	} {
		p := json.RawMessage(test.params)
		if metrics, facts := len(spec.Metrics(p)), len(spec.Facts(p)); metrics != test.metrics || facts != test.facts {
			t.Errorf("%s has %d metrics and %d facts, want %d and %d", test.params, metrics, facts, test.metrics, test.facts)
		}
	}
}

// Drive runs what the recorded cases ran, whether or not the tools are here.
func TestInventoryDrivesItsParts(t *testing.T) {
	b := newBench(t, "inventory", evidence.ScopeNode, "30s", []string{"n1"}, `{"gpus": true, "links": true, "nics": ["mlx5_0", "mlx5_1"]}`)
	b.drive(t.Context())
	for step, name := range map[string]string{
		"gpus": "good_gpus", "gpus-bus": "good_gpus", "gpus-remapped": "good_gpus", "gpus-nvlink": "good_gpus",
		"hcas": "good_links", "hcas-counters": "good_links",
	} {
		argv := func(file string) []string {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var exit evidence.Exit
			if err := json.Unmarshal(data, &exit); err != nil {
				t.Fatal(err)
			}
			return exit.Argv
		}
		got := argv(filepath.Join(b.dir, step+".n1", "exit.json"))
		want := argv(filepath.Join("testdata", "inventory", name, "raw", step+".n1", "exit.json"))
		if !slices.Equal(got, want) {
			t.Errorf("step %s ran %q, want %q", step, got, want)
		}
	}
}

// Text without end, each line of it well formed, ends in a problem and not in
// a measurement of each line.
func TestInventoryPartsAreBounded(t *testing.T) {
	lines := func(n int, line func(i int) string) string {
		var text strings.Builder
		for i := range n {
			text.WriteString(line(i))
		}
		return text.String()
	}
	for _, test := range []struct{ name, step, text, detail string }{
		{"good_gpus", "gpus", lines(2000, func(i int) string {
			return fmt.Sprintf("Unable to determine the device handle for GPU0000:%02x:%02x.0: Unknown Error\n", i%256, i/256)
		}), "beyond what nvidia-smi prints"},
		{"good_gpus", "gpus", strings.Repeat("index,", 200) + "name\n", "not a header"},
		{"good_gpus", "gpus", "index, index\n0, 1\n", "not a header"},
		{"good_gpus", "gpus", "index, name\n0, " + strings.Repeat(",", 1<<20) + "\n", "beyond what nvidia-smi prints"},
		{"good_gpus", "gpus-bus", lines(2000, func(i int) string { return fmt.Sprintf("%04x:00:00.0 0302: 10de:2330 (rev a1)\n", i) }), "more than 1024 GPUs"},
		{"good_gpus", "gpus-nvlink", lines(2000, func(i int) string { return fmt.Sprintf("GPU %d: A (UUID: GPU-%d)\n", i, i) }), "too many GPUs"},
		{"good_links", "hcas", lines(2000, func(i int) string { return fmt.Sprintf("CA 'mlx5_%d'\n", i) }), "more than 1024 adapters"},
	} {
		c := replaced(t, "inventory", test.name, test.step+".n1", "stdout", test.text)
		wantProblem(t, checktest.Measure(find(t, "inventory"), c.View, c.Raw), evidence.ClassUnparsable, test.detail)
	}
}

func FuzzMeasureInventoryGPUs(f *testing.F) {
	fuzzStep(f, "inventory", "good_gpus", func(data []byte) bool { return bytes.HasSuffix(data, []byte("\n")) },
		"gpus.n1/stdout", "gpus-bus.n1/stdout", "gpus-remapped.n1/stdout", "gpus-nvlink.n1/stdout", "gpus.n1/stderr", "gpus-nvlink.n1/exit.json")
}

func FuzzMeasureInventoryLinks(f *testing.F) {
	fuzzStep(f, "inventory", "good_links", func(data []byte) bool { return bytes.HasSuffix(data, []byte("\n")) },
		"hcas.n1/stdout", "hcas-counters.n1/stdout", "hcas-counters.n1/stderr")
}
