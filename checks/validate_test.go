package checks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		check, params, want string // want: part of the error, empty for none
	}{
		{"command", `{"argv": ["true"], "proof": "^done$"}`, ""},
		{"command", `{"argv": [], "proof": "^done$"}`, "argv is empty"},
		{"command", `{"argv": ["true"], "proof": ""}`, "matches an empty line"},
		{"command", `{"argv": ["true"], "proof": "x*"}`, "matches an empty line"},
		{"command", `{"argv": ["true"], "proof": "("}`, "proof: "},
		{"command", `{"argv": ["true"], "proof": "x", "expect_exit": 256}`, "expect_exit is 256"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s"}]}`, "has 0 of regex, json, column and count"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "json": "a", "regex": "(b)"}]}`, "has 2 of regex"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "json": "a"}]}`, "has no unit"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "regex": "a"}]}`, "regex has 0 groups"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "regex": "(a)(b)"}]}`, "regex has 2 groups"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "regex": "x=(["}]}`, "missing closing ]: `[`"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "regex": "(a)|b)|(?:c"}]}`, "unexpected )"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "regex": "(a)"}], "fact": [{"name": "m", "json": "a"}]}`, "the name is taken"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "regex": "(a)", "label": "size"}]}`, "belong together"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "regex": "(a)", "label": "size", "values": ["1"]}]}`, "{label} stands nowhere"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "regex": "{label} (a)", "label": "size", "values": ["1", "1"]}]}`, "empty or twice"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "column": "a", "row": "b"}]}`, "want the form"},
		{"command", `{"argv": ["true"], "proof": "x", "metric": [{"name": "m", "unit": "s", "json": "a", "row": "b=c"}]}`, "row belongs to column"},
		{"inventory", `{}`, ""},
		{"inventory", `{"version": [{"name": "Fio", "argv": ["fio"]}]}`, "lower-case"},
		{"inventory", `{"version": [{"name": "bios", "argv": ["fio"]}]}`, "bios_version is there already"},
		{"inventory", `{"version": [{"name": "fio", "argv": []}]}`, "argv is empty"},
		{"inventory", `{"version": [{"name": "fio", "argv": ["fio"], "regex": "x"}]}`, "regex has 0 groups"},
		{"storage_fio", storage(``), ""},
		{"storage_fio", storage(`"path": "pfs"`), "give an absolute path"},
		{"storage_fio", storage(`"path": "/"`), "below the root"},
		{"storage_fio", storage(`"path": "/a/../b"`), "give an absolute path"},
		{"storage_fio", storage(`"path": "/a:b"`), "meaning of their own"},
		{"storage_fio", storage(`"filesystem": ""`), "name one type"},
		{"storage_fio", storage(`"filesystem": "ext4,xfs"`), "name one type"},
		{"storage_fio", storage(`"filesystem": "notmpfs"`), "for its opposite"},
		{"storage_fio", storage(`"profile": "fast"`), "choose one of"},
		{"storage_fio", storage(`"engine": "mmap"`), "choose one of"},
		{"storage_fio", storage(`"engine": "psync"`), "raise jobs instead"},
		{"storage_fio", storage(`"clients": []`), "clients is empty"},
		{"storage_fio", storage(`"clients": [8, 1]`), "rising order"},
		{"storage_fio", storage(`"clients": [1.5]`), "clients"},
		{"storage_fio", storage(`"runtime": "500ms"`), "at least 1s"},
		{"storage_fio", storage(`"size": "5KiB"`), "multiple of block_size"},
		{"storage_fio", storage(`"jobs": 0`), "give 1 to 1024"},
		{"host_burn", burn(``), ""},
		{"host_burn", burn(`"stressors": []`), "stressors is empty"},
		{"host_burn", burn(`"stressors": ["cpu", "hdd"]`), `"hdd" unknown`},
		{"host_burn", burn(`"stressors": ["cpu", "cpu"]`), "twice"},
		{"host_burn", burn(`"method": "a b"`), "name one of"},
		{"host_burn", burn(`"load_floor": 0`), "above 0"},
		{"host_burn", burn(`"sample": "10ms"`), "at least 100ms"},
		{"host_burn", burn(`"workers": -1`), "give 0 to"},
		{"gpu_burn", gpuBurn(``), ""},
		{"gpu_burn", gpuBurn(`"binary": ""`), "binary is empty"},
		{"gpu_burn", gpuBurn(`"binary": "/opt/cuda=12/gpu_burn"`), "another name or place"},
		{"gpu_burn", gpuBurn(`"binary": "-i"`), "another name or place"},
		{"gpu_burn", gpuBurn(`"kernel_log": true, "harmless": ["audit_printk_skb"]`), ""},
		{"gpu_burn", gpuBurn(`"kernel_log": true, "harmless": ["a b"]`), "name a function"},
		{"gpu_burn", gpuBurn(`"harmless": ["audit_printk_skb"]`), "kernel_log is not true"},
		{"gpu_burn", gpuBurn(`"memory": 0`), "give a share"},
		{"gpu_burn", gpuBurn(`"memory": 101`), "give a share"},
		{"gpu_burn", gpuBurn(`"gpus": 17`), "give 1 to 16"},
		{"gpu_burn", gpuBurn(`"gpus": -1`), "give 1 to 16"},
		{"gpu_burn", gpuBurn(`"round": "5s"`), "at least 10s"},
		{"gpu_burn", gpuBurn(`"driver": 12`), "the branch of the driver"},
		{"gpu_burn", gpuBurn(`"load_floor": 0`), "above 0"},
		{"gpu_burn", gpuBurn(`"sample": "10ms"`), "at least 100ms"},
		{"gpu_burn", gpuBurn(`"compare": "/opt/gpu-burn/compare.ptx"`), ""},
		{"gpu_burn", gpuBurn(`"compare": "/usr/lib/x86_64-linux-gnu/compare.ptx"`), "takes the -l in it for an option"},
		{"gpu_burn", gpuBurn(`"compare": "/opt/gpu-h100/compare.ptx"`), "takes the -h in it for an option"},
		{"failover", probe(``), ""},
		{"failover", probe(`"write": ["put"]`), "every record would be the same"},
		{"failover", probe(`"write": ["{record}"]`), "every record would be the same"},
		{"failover", probe(`"write": []`), "write is empty"},
		{"failover", probe(`"read": []`), "read is empty"},
		{"failover", probe(`"period": "1ms"`), "at least 10ms"},
		{"failover", probe(`"timeout": "500ms"`), "at least a period"},
	} {
		err := find(t, test.check).Spec().Validate(json.RawMessage(test.params))
		if test.want == "" && err != nil {
			t.Errorf("%s %s: %v", test.check, test.params, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s %s: error is %v, want one with %q", test.check, test.params, err, test.want)
		}
	}
}

// with is an object of defaults with one member replaced.
func with(defaults, member string) string {
	var object, change map[string]json.RawMessage
	if err := json.Unmarshal([]byte(defaults), &object); err != nil {
		panic(err)
	}
	if err := json.Unmarshal([]byte("{"+member+"}"), &change); err != nil {
		panic(err)
	}
	for name, value := range change {
		object[name] = value
	}
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func storage(member string) string {
	return with(`{"path": "/mnt/pfs/a", "filesystem": "lustre", "profile": "small_reads", "clients": [1, 8, 32], "runtime": "60s", "ramp": "10s"}`, member)
}

func burn(member string) string {
	return with(`{"stressors": ["cpu"], "workers": 0, "method": "all", "vm_bytes": "256MiB", "load_floor": 90, "sample": "1s", "kernel_log": false}`, member)
}

func gpuBurn(member string) string {
	return with(`{"binary": "gpu_burn", "memory": 90, "tensor_cores": true, "doubles": false, "gpus": 0, "round": "2h", "soft_kill": "30s", "warmup": "30s", "driver": 535, "load_floor": 90, "sample": "1s", "kernel_log": false}`, member)
}

func probe(member string) string {
	return `{"settle": "10s", "probe": ` + with(`{"period": "1s", "timeout": "10s", "write": ["put", "{record}"], "read": ["get"]}`, member) + `}`
}

func fleetOf(n int) (evidence.Fleet, []string) {
	var fleet evidence.Fleet
	for i := range n {
		fleet.Nodes = append(fleet.Nodes, evidence.Node{Name: "n" + string(rune('a'+i))})
	}
	return fleet, fleet.NodeNames()
}

// A node that no round has as a client would be accepted unmeasured, so the
// last round must have all of them.
func TestStorageSubjects(t *testing.T) {
	spec := find(t, "storage_fio").Spec()
	fleet, nodes := fleetOf(8)
	for _, test := range []struct {
		scope   evidence.Scope
		clients string
		metric  string
		want    int
	}{
		{evidence.ScopeFleet, "[1, 8]", "iops", 8},
		{evidence.ScopeFleet, "[1, 8]", "total_iops", 1},
		{evidence.ScopeFleet, "[1, 8]", "fairness", 1},
		{evidence.ScopeFleet, "[1, 4]", "iops", 0},
		{evidence.ScopeFleet, "[16]", "iops", 0},
		{evidence.ScopeNode, "[1]", "iops", 8},
		{evidence.ScopeNode, "[1]", "total_iops", 0},
		{evidence.ScopeNode, "[8]", "iops", 0},
	} {
		params := json.RawMessage(storage(`"clients": ` + test.clients))
		if got := spec.Subjects(fleet, nodes, test.scope, test.metric, params); len(got) != test.want {
			t.Errorf("%s of clients %s in scope %s has the subjects %v, want %d", test.metric, test.clients, test.scope, got, test.want)
		}
	}
}

func TestInventoryMismatchesNeedExpectations(t *testing.T) {
	spec := find(t, "inventory").Spec()
	fleet, nodes := fleetOf(2)
	if got := spec.Subjects(fleet, nodes, evidence.ScopeNode, "mismatches", json.RawMessage(`{}`)); got != nil {
		t.Errorf("mismatches has the subjects %v although nothing is expected", got)
	}
	fleet.Expect = []evidence.Expectation{{Fact: "arch", Value: "x86_64"}}
	if got := spec.Subjects(fleet, nodes, evidence.ScopeNode, "mismatches", json.RawMessage(`{}`)); len(got) != 2 {
		t.Errorf("mismatches has the subjects %v, want both nodes", got)
	}
}

func TestGPUBurnSubjects(t *testing.T) {
	spec := find(t, "gpu_burn").Spec()
	for _, test := range []struct {
		params, expected, metric string
		want                     int
	}{
		{``, "", "faulty", 16},
		{``, "4", "faulty", 8},
		{`"gpus": 6`, "4", "faulty", 12},
		{`"gpus": 6`, "4", "gpu_uuid", 12},
		{``, "4", "temperature_spread", 2},
		{``, "= 4", "faulty", 8},
		{``, "four", "faulty", 0},
		{``, "32", "faulty", 0}, // a sample has no room for them
	} {
		fleet, nodes := fleetOf(2)
		if test.expected != "" {
			fleet.Expect = []evidence.Expectation{{Fact: "gpus", Value: test.expected}}
		}
		got := spec.Subjects(fleet, nodes, evidence.ScopeNode, test.metric, json.RawMessage(gpuBurn(test.params)))
		if len(got) != test.want {
			t.Errorf("%s with %s and gpus = %q expected has the subjects %v, want %d", test.metric, test.params, test.expected, got, test.want)
		}
	}
}
