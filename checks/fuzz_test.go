package checks_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackproof/rackproof/checks/checktest"
	"github.com/rackproof/rackproof/evidence"
)

// fuzzStep puts any bytes in place of one file of a healthy case, with honest
// byte counts. Measure must not panic, and what it takes for whole must pass
// a second, independent look.
func fuzzStep(f *testing.F, check, name string, whole func([]byte) bool, files ...string) {
	var healthy checktest.Case
	for _, c := range checktest.Cases(f, find(f, check)) {
		if c.Name == name {
			healthy = c
		}
		for i, file := range files {
			if data, ok := c.Raw[file]; ok {
				f.Add(uint8(i), data.Data)
			}
		}
	}
	good := checktest.Measure(find(f, check), healthy.View, healthy.Raw)
	if len(good.Unmeasured) > 0 || len(good.Measurements) == 0 {
		f.Fatalf("case %s is not healthy: %v", name, good.Unmeasured)
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		file := files[int(which)%len(files)]
		raw := maps.Clone(healthy.Raw)
		raw[file] = &fstest.MapFile{Data: data}
		if dir, ok := strings.CutSuffix(file, "/stdout"); ok {
			var exit evidence.Exit
			if err := json.Unmarshal(raw[dir+"/exit.json"].Data, &exit); err != nil {
				t.Fatal(err)
			}
			exit.StdoutBytes = int64(len(data))
			redone, err := json.Marshal(exit)
			if err != nil {
				t.Fatal(err)
			}
			raw[dir+"/exit.json"] = &fstest.MapFile{Data: redone}
		}
		a := checktest.Measure(find(t, check), healthy.View, raw)
		for _, p := range a.Unmeasured {
			if p.Class == evidence.ClassPanic {
				t.Fatalf("%s", p.Detail)
			}
		}
		for _, m := range a.Measurements {
			if _, err := json.Marshal(m); err != nil {
				t.Errorf("a measurement cannot be written: %v", err)
			}
		}
		if checktest.Clean(good, a) && strings.HasSuffix(file, "/stdout") && !whole(data) {
			t.Errorf("%s is taken for whole: %q", file, data)
		}
	})
}

func FuzzMeasureCommand(f *testing.F) {
	closing := regexp.MustCompile(`(?:^|\n)done in[^\n]*\r?\n[\r\n]*$`)
	fuzzStep(f, "command", "good_lines", closing.Match, "command.n1/stdout", "command.n1/exit.json")
}

func FuzzMeasureInventory(f *testing.F) {
	fuzzStep(f, "inventory", "good_node", func(data []byte) bool {
		return json.Valid(data) || bytes.HasSuffix(data, []byte("\n"))
	}, "files.n1/stdout", "cpu.n1/stdout", "links.n1/stdout", "disks.n1/stdout", "mounts.n1/stdout", "clock-1.n1/stdout", "version-bash.n1/stdout", "cpu.n1/exit.json")
}

func FuzzMeasureStorageFio(f *testing.F) {
	fuzzStep(f, "storage_fio", "good_node_direct", func(data []byte) bool {
		for start := bytes.IndexByte(data, '{'); start >= 0 && start < len(data); {
			decoder := json.NewDecoder(bytes.NewReader(data[start:]))
			for {
				var any json.RawMessage
				if err := decoder.Decode(&any); err == io.EOF {
					return true
				} else if err != nil {
					break
				}
			}
			next := bytes.IndexByte(data[start+1:], '{')
			if next < 0 {
				return false
			}
			start += next + 1
		}
		return false
	}, "fio-1.n1/stdout", "layout.n1/stdout", "gate.n1/stdout", "fio-1.n1/exit.json")
}

func FuzzMeasureHostBurn(f *testing.F) {
	fuzzStep(f, "host_burn", "good_kernel_log", func(data []byte) bool {
		return bytes.HasSuffix(data, []byte("\n"))
	}, "samples.n1/stdout", "kernel.n1/stdout", "mark-begin.n1/stdout", "version.n1/stdout", "burn.n1/exit.json")
}

func FuzzMeasureFailover(f *testing.F) {
	fuzzStep(f, "failover", "good_outage", func(data []byte) bool {
		return len(data) == 0 || bytes.HasSuffix(data, []byte("\n"))
	}, "probe.n1/stdout", "read.n1/stdout", "read-before.n1/stdout", "nonce.n1/stdout", "faults.jsonl", "probe.n1/exit.json")
}

func FuzzMeasureGPUBurn(f *testing.F) {
	fuzzStep(f, "gpu_burn", "good_two", func(data []byte) bool {
		return bytes.HasSuffix(data, []byte("\n"))
	}, "burn-1.n1/stdout", "samples.n1/stdout", "burn-1.n1/exit.json", "samples.n1/exit.json")
}
