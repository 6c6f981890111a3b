package checks

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

func ncclFleet(expected string, nodes ...string) evidence.Fleet {
	fleet := evidence.Fleet{Name: "pod"}
	for _, node := range nodes {
		fleet.Nodes = append(fleet.Nodes, evidence.Node{Name: node})
	}
	if expected != "" {
		fleet.Expect = []evidence.Expectation{{Fact: "gpus", Value: expected}}
	}
	return fleet
}

func ncclDefaults() ncclParams {
	return ncclParams{
		Sizes: []byteSize{8 << 30, 16 << 30}, Iterations: 20, Warmup: 5, Datatype: "float",
		Binary: "all_reduce_perf", Output: ncclText, Directory: "/var/tmp",
	}
}

func TestNcclLaunch(t *testing.T) {
	const settings = "env NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING NCCL_DEBUG_FILE=/var/tmp/rackproof-fabric-ar-DIR/rackproof-nccl.%h.%p"
	const program = "all_reduce_perf -b 8589934592 -e 17179869184 -f 2 -g GPUS -n 20 -w 5 -c 1 -a 3 -d float -o sum"
	for name, test := range map[string]struct {
		change   func(*ncclParams)
		scope    evidence.Scope
		nodes    []string
		expected string
		want     string
	}{
		"node":          {nil, evidence.ScopeNode, []string{"n2"}, "", settings + " " + strings.Replace(program, "GPUS", "8", 1)},
		"expected GPUs": {nil, evidence.ScopeNode, []string{"n2"}, "4", settings + " " + strings.Replace(program, "GPUS", "4", 1)},
		"pair": {func(p *ncclParams) {
			p.LauncherArgs = []string{"--bind-to", "numa"}
			p.Env = []string{"NCCL_NVLS_ENABLE=0"}
		}, evidence.ScopePair, []string{"n2", "n1"}, "4",
			settings + " NCCL_NVLS_ENABLE=0 mpirun -np 8 --host n1:4,n2:4 --map-by ppr:4:node --tag-output --bind-to numa" +
				" -x NCCL_DEBUG -x NCCL_DEBUG_SUBSYS -x NCCL_DEBUG_FILE -x NCCL_NVLS_ENABLE " + strings.Replace(program, "GPUS", "1", 1)},
		"srun": {func(p *ncclParams) { p.Launcher = ncclSrun }, evidence.ScopeFleet, []string{"n1", "n2", "n3"}, "",
			settings + " srun -N 3 -n 24 -w n1,n2,n3 --ntasks-per-node=8 --distribution=block --mpi=pmix --label " + strings.Replace(program, "GPUS", "1", 1)},
		"gang": {func(p *ncclParams) {
			p.Launcher, p.Gang = ncclGang, []string{"mpiexec", "-f", "{hostfile}", "-n", "{ranks}", "-ppn", "{per_node}", "-N={nodes}"}
		}, evidence.ScopeFleet, []string{"n1", "n2"}, "",
			settings + " mpiexec -f /var/tmp/rackproof-fabric-ar-DIR/rackproof-hostfile -n 16 -ppn 8 -N=2 " + strings.Replace(program, "GPUS", "1", 1)},
		"json and iterations": {func(p *ncclParams) { p.Output, p.PerIteration = ncclJSON, true }, evidence.ScopeNode, []string{"n1"}, "",
			settings + " " + strings.Replace(program, "GPUS", "8", 1) + " -I 1 -J /var/tmp/rackproof-fabric-ar-DIR/rackproof-result-1.json"},
	} {
		params := ncclDefaults()
		if test.change != nil {
			test.change(&params)
		}
		if err := params.validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l, err := newNcclLaunch(params, "fabric-ar", ncclFleet(test.expected, "n1", "n2", "n3"), test.scope, test.nodes)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, dir, _ := strings.Cut(evidence.CellID("fabric-ar", l.nodes, 1), "/")
		want := strings.ReplaceAll(test.want, "DIR", strings.TrimSuffix(dir, ".r1"))
		if got := strings.Join(l.argv(ncclRunStep(1)), " "); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
		if l.argv(ncclRunStep(2)) != nil || l.argv("x") != nil {
			t.Errorf("%s: it has a second run", name)
		}
	}
}

func TestNcclLaunchRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*ncclParams)
		nodes    []string
		scope    evidence.Scope
		expected string
		want     string
	}{
		"a process on two nodes": {func(p *ncclParams) { p.Launcher = ncclProcess }, []string{"n1", "n2"}, evidence.ScopePair, "", "one process on one node"},
		"one rank":               {nil, []string{"n1"}, evidence.ScopeNode, "1", "factor"},
		"no node":                {nil, nil, evidence.ScopeFleet, "", "no node"},
		"a model for a number":   {nil, []string{"n1"}, evidence.ScopeNode, "H100", "gpus_per_node"},
		"arguments of nothing":   {func(p *ncclParams) { p.LauncherArgs = []string{"-x"} }, []string{"n1"}, evidence.ScopeNode, "", "has no launcher"},
	} {
		params := ncclDefaults()
		if test.change != nil {
			test.change(&params)
		}
		if _, err := newNcclLaunch(params, "t", ncclFleet(test.expected, "n1", "n2"), test.scope, test.nodes); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one with %q", name, err, test.want)
		}
	}
}

func TestNcclRuns(t *testing.T) {
	for _, test := range []struct {
		sizes  []byteSize
		runs   int
		factor uint64
	}{
		{[]byteSize{8}, 1, 2},
		{[]byteSize{8, 16, 32}, 1, 2},
		{[]byteSize{1 << 20, 1 << 22, 1 << 24}, 1, 4},
		{[]byteSize{8, 24}, 1, 3},
		{[]byteSize{8, 16, 64}, 3, 2},
		{[]byteSize{8, 12}, 2, 2},
	} {
		params := ncclDefaults()
		params.Sizes = test.sizes
		runs := params.runs()
		total := 0
		for _, run := range runs {
			total += len(run.sizes)
			for size, i := run.sizes[0], 0; i < len(run.sizes); size, i = size*run.factor, i+1 {
				if run.sizes[i] != size {
					t.Errorf("%v: the program would step to %d, not to %d", test.sizes, size, run.sizes[i])
				}
			}
		}
		if len(runs) != test.runs || runs[0].factor != test.factor || total != len(test.sizes) {
			t.Errorf("%v: runs %v", test.sizes, runs)
		}
	}
}

func TestNcclLog(t *testing.T) {
	read := func(lines ...string) ncclLog {
		t.Helper()
		log, err := readNcclLog([]byte(strings.Join(append(lines, "end of "+strconv.Itoa(len(lines))+" lines"), "\n") + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	log := read("NCCL version 2.27.5rc1", "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE [RO]", "NET/IB : Using", "via P2P/CUMEM/read",
		"via NET/AWS Libfabric/0(3)/GDRDMA/Shared", "via SHM/direct/direct", "via NET/Socket/1", "16 coll channels", "24 coll channels",
		"AllReduce: 1024 Bytes -> Algo NVLS_TREE", "1024 Bytes -> Algo 1", "AllReduce: 2048 Bytes -> Algo NEW", "AllGather: 1024 Bytes -> Algo PAT", "AllReduce: 99999999999999999999999 Bytes -> Algo 1")
	if log.release != "2.27.5" || log.gdrdma() != "some" || strings.Join(log.hcas, ";") != "mlx5_0,mlx5_bond_0" || strings.Join(log.channels, ",") != "16,24" {
		t.Errorf("%+v", log)
	}
	if got := strings.Join(log.between(2), ";"); got != "NET/AWS Libfabric;NET/Socket" {
		t.Errorf("between nodes: %s", got)
	}
	if got := strings.Join(log.between(1), ";"); got != "NET/AWS Libfabric;NET/Socket;P2P/CUMEM;SHM/direct" {
		t.Errorf("inside a node: %s", got)
	}
	if got := strings.Join(log.algorithms[1024], ","); got != "NVLSTree,Ring" || strings.Join(log.algorithms[2048], ",") != "unknown NEW" || len(log.algorithms) != 2 {
		t.Errorf("algorithms: %v", log.algorithms)
	}
	if log := read("via P2P/MNNVL"); strings.Join(log.between(2), ";") != "P2P/MNNVL" || log.gdrdma() != "" {
		t.Errorf("NVLink between nodes: %+v", log)
	}
	for _, digest := range []string{"via NET/IB\n", "end of 0 lines", "end of 2 lines\n", "via NET/IB\nend of 1 lines\nvia NET/IB\n", "\n"} {
		if log, err := readNcclLog([]byte(digest)); err == nil {
			t.Errorf("%q is read as %+v", digest, log)
		}
	}
	if log, err := readNcclLog(nil); err != nil || !log.empty {
		t.Errorf("nothing is %+v, %v", log, err)
	}
}

// TestNcclDigest has the awk of this machine make a digest of logs as NCCL
// writes them.
func TestNcclDigest(t *testing.T) {
	params := ncclDefaults()
	params.Directory = t.TempDir()
	l, err := newNcclLaunch(params, "t", ncclFleet("", "n1"), evidence.ScopeNode, []string{"n1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(l.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string][]string{
		"rackproof-nccl.n1.1": {
			"NCCL version 2.27.5+cuda12.9",
			"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
			"Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
			"Channel 00/24 :    0   1   2   3",
			"24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
			"AllReduce: 8589934592 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
			"AllReduce: 8589934592 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
			"AllReduce: 17179869184 Bytes -> Algo 4 proto 2 time 38573.1",
		},
		"rackproof-nccl.n1.2":     {"Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM/read", "Channel 03/0 : 9[1] -> 1[1] [receive] via NET/IB/0/GDRDMA", "Using network IB"},
		"rackproof-result-1.json": {"Channel 00/0 : 1[1] -> 0[0] via NET/Socket/0"},
	} {
		text := ""
		for _, line := range lines {
			text += "n1:4000:4010 [0] NCCL INFO " + line + "\n"
		}
		if err := os.WriteFile(filepath.Join(l.directory, name), []byte(text+"\nn1:4000:4010 [0] src/x.cc:12 NCCL WARN something\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	argv := l.argv(ncclLogStep)
	digest, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(digest), "\n"), "\n")
	last := lines[len(lines)-1]
	lines = lines[:len(lines)-1]
	slices.Sort(lines) // find gives the files in any order
	want := []string{
		"24 coll channels", "AllReduce: 17179869184 Bytes -> Algo 4", "AllReduce: 8589934592 Bytes -> Algo NVLS", "NCCL version 2.27.5",
		"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]", "via NET/IB/0/GDRDMA", "via P2P/CUMEM/read",
	}
	if !slices.Equal(lines, want) || last != "end of 7 lines" {
		t.Errorf("digest:\n%s", digest)
	}
	if _, err := readNcclLog(digest); err != nil {
		t.Error(err)
	}
}

// fetched is what is fetched of a document that lies on a node.
func fetched(t *testing.T, document string) string {
	t.Helper()
	params := ncclDefaults()
	params.Directory, params.Output = t.TempDir(), ncclJSON
	l, err := newNcclLaunch(params, "t", ncclFleet("", "n1"), evidence.ScopeNode, []string{"n1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(l.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.resultPath(1), []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	argv := l.argv(ncclResultStep(1))
	command := exec.Command(argv[0], argv[1:]...)
	command.Env = append(os.Environ(), "LC_ALL=C")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestNcclFetch: whatever is in a document, its environment stays where it is.
func TestNcclFetch(t *testing.T) {
	const head, tail = `{"version":3,"start_time":"2026-11-30 14:02:11","args":["all_reduce_perf","-b","8"],"env":[`, `],"nccl_version":22105,"config":{"ngpus":1},"results":[],"errors":["a \"b\""]}`
	const want = `{"version":3,"nccl_version":22105,"config":{"ngpus":1},"results":[],"errors":["a \"b\""]}`
	for name, env := range map[string]string{
		"nothing":          ``,
		"one":              `"TOKEN=secret"`,
		"several":          `"A=1","TOKEN=secret","B=]"`,
		"an escaped quote": `"A=\"],\"nccl_version\":1","TOKEN=secret"`,
		"a backslash":      `"A=\\","TOKEN=secret\\\\"`,
		"another list":     `"A=\"env\":[\"TOKEN=secret\"]"`,
		"much":             `"A=` + strings.Repeat("x", 1<<17) + `","TOKEN=secret"`,
	} {
		if got := fetched(t, head+env+tail); got != want {
			t.Errorf("%s: fetched %.200q, want %q", name, got, want)
		}
	}
	for name, document := range map[string]string{
		"a cut list":            head + `"A=1","TOKEN=sec`,
		"a line in it":          head + `"A=1` + "\n" + `TOKEN=secret"` + tail,
		"a line before":         "{\n" + head[1:] + `"TOKEN=secret"` + tail,
		"another order":         `{"env":["TOKEN=secret"],"version":3,"start_time":"","args":[],"nccl_version":22105}`,
		"a second environment":  head + `"A=1"` + `],"nccl_version":22105,"env":["TOKEN=secret"]}`,
		"another key between":   head + `"A=1"],"secrets":["TOKEN=secret"` + tail,
		"an object":             strings.Replace(head, `"env":[`, `"env":[{`, 1) + `"TOKEN":"secret"}` + tail,
		"numbers in it":         head + `1,"TOKEN=secret"` + tail,
		"a version that is not": strings.Replace(head, `:3,`, `:"3",`, 1) + `"TOKEN=secret"` + tail,
	} {
		if got := fetched(t, document); got != "" {
			t.Errorf("%s: fetched %q", name, got)
		}
	}
	// Times of single iterations make a document long.
	long := strings.Replace(tail, `"results":[]`, `"results":[`+strings.Repeat("4066.512345,", 1<<18)+`1]`, 1)
	if got := fetched(t, head+`"TOKEN=secret"`+long); len(got) < 12<<18 || strings.Contains(got, "secret") || !json.Valid([]byte(got)) {
		t.Errorf("a long document: fetched %d bytes", len(got))
	}
}

func TestNcclJSON(t *testing.T) {
	const whole = `{"version":1,"start_time":"x","args":["a"],"env":["TOKEN=secret"],"nccl_version":2708,"config":{"devices":[{"rank":0},{"rank":1}]},` +
		`"results":[{"size":1073741824,"count":268435456,"type":"float","redop":"sum","root":"    -1",` +
		`"out_of_place":null,"in_place":{"cpu_time":4066.500000,"alg_bw":264.050000,"bus_bw":"nan","nwrong":null},"actual_iterations":20,"experiment_name":""}],` +
		`"out_of_bounds":{"count":0,"okay":"true"},"average_bus_bandwidith":{"bandwidith":"-nan","okay":"unchecked"},"errors":[],"end_time":"2026-11-30 14:04:01"}`
	doc, err := readNcclJSON([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	row := doc.rows[0]
	if doc.release != "2.7.8" || doc.ranks != 2 || doc.average.missing != "-nan" || row.root != "-1" || !row.halves[0].blank || row.halves[1].time.value != 4066.5 ||
		row.halves[1].busbw.missing != "nan" || row.halves[1].wrong.missing != "null" {
		t.Errorf("document %+v", doc)
	}
	for old, new := range map[string]string{
		`"version":1`: `"version":4`, `"nccl_version":2708`: `"nccl_version":"x"`, `"results":[`: `"result":[`, `"size":1073741824`: `"size":-1`, `"redop":"sum"`: `"redop":null`,
		`"out_of_place":null,`: ``, `"nwrong":null`: `"nwrong":"few"`, `"alg_bw":264.050000`: `"alg_bw":-264.05`, `"bus_bw":"nan",`: ``, `"cpu_time"`: `"times"`,
		`"count":0`: `"count":null`, `"average_bus_bandwidith"`: `"average"`, `"bandwidith":"-nan"`: `"bandwidith":true`, `,"end_time":"2026-11-30 14:04:01"`: ``, `]}`: `]`,
		`"env":["TOKEN=secret"]`: `"env":["TOKEN=secret"`, `"bus_bw":"nan"`: `"bus_bw":inf`,
	} {
		if !strings.Contains(whole, old) {
			t.Fatalf("there is no %s", old)
		}
		if doc, err := readNcclJSON([]byte(strings.Replace(whole, old, new, 1))); err == nil {
			t.Errorf("with %s it is read as %+v", new, doc)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("with %s the error shows the environment: %v", new, err)
		}
	}
}
