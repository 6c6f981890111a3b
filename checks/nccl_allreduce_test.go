package checks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/checks/checktest"
	"github.com/rackproof/rackproof/evidence"
)

func allreduce(member string) string {
	return with(`{"sizes": ["8GiB", "16GiB"], "iterations": 20, "warmup": 5, "datatype": "float", "binary": "all_reduce_perf", "output": "text", "per_iteration": false, "directory": "/var/tmp"}`, member)
}

func TestNcclValidate(t *testing.T) {
	gang := func(argv string) string { return `"launcher": "gang", "gang": ` + argv }
	for _, test := range []struct{ member, want string }{
		{``, ""},
		{`"sizes": []`, "sizes is empty"},
		{`"sizes": ["16GB"]`, `write "GiB"`},
		{`"sizes": ["16GiB", "8GiB"]`, "rising order"},
		{`"sizes": ["8GiB", "8192MiB"]`, "rising order"},
		{`"sizes": ["1023B"]`, "multiple of the 4 bytes"},
		{`"sizes": ["0B"]`, "multiple of the 4 bytes"},
		{`"sizes": ["8EiB"]`, "more than the program"},
		{`"sizes": ["7B"], "datatype": "int8"`, ""},
		{`"iterations": 0`, "iterations is 0"},
		{`"warmup": -1`, "warmup is -1"},
		{`"datatype": "fp32"`, "choose one of float"},
		{`"gpus_per_node": 0`, "gpus_per_node is 0"},
		{`"binary": "-x"`, "program's name"},
		{`"binary": "A=b"`, "program's name"},
		{`"directory": "tmp"`, "absolute path"},
		{`"directory": "/tmp/%h"`, "absolute path"},
		{`"output": "xml"`, "choose text or json"},
		{`"launcher": "ssh"`, "choose one of process"},
		{`"launcher": "srun", "launcher_args": ["--partition=gpu"]`, ""},
		{`"launcher": "process", "launcher_args": ["x"]`, "go with mpirun and srun"},
		{`"gang": ["mpiexec"]`, "launcher = \"gang\""},
		{gang(`[]`), "gang is empty"},
		{gang(`["mpiexec", "-n", "{ranks}"]`), "does not have {hostfile}"},
		{gang(`["mpiexec", "-f", "{hostfile}"]`), "does not have {ranks}"},
		{gang(`["mpiexec", "-f", "{hostfile}", "-n", "{ranks}"]`), ""},
		{`"env": ["NCCL_NVLS_ENABLE=0", "UCX_TLS=rc,sm", "OMPI_MCA_pml=ucx"]`, ""},
		{`"env": ["PATH=/tmp"]`, "begin with NCCL_"},
		{`"env": ["NCCL_NVLS_ENABLE"]`, "NAME=VALUE"},
		{`"env": ["NCCL_IB_HCA=a", "NCCL_IB_HCA=b"]`, "twice"},
		{`"env": ["NCCL_DEBUG=WARN"]`, "the check sets NCCL's log"},
		{`"env": ["NCCL_TESTS_SPLIT=MOD 8"]`, "changes what nccl-tests measures"},
		{`"env": ["NCCL_TESTS_MIN_BW=1"]`, "changes what nccl-tests measures"},
	} {
		err := find(t, "nccl_allreduce").Spec().Validate(json.RawMessage(allreduce(test.member)))
		if test.want == "" && err != nil {
			t.Errorf("%s: %v", test.member, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error is %v, want one with %q", test.member, err, test.want)
		}
	}
}

func TestNcclSubjects(t *testing.T) {
	spec := find(t, "nccl_allreduce").Spec()
	fleet, nodes := fleetOf(3)
	for _, test := range []struct {
		scope          evidence.Scope
		member, metric string
		want           string
	}{
		{evidence.ScopeNode, ``, "busbw", "na nb nc"},
		{evidence.ScopePair, ``, "busbw", "na/nb na/nc nb/na nb/nc nc/na nc/nb"},
		{evidence.ScopeFleet, ``, "busbw", "fleet"},
		{evidence.ScopePair, ``, "algorithm", "na/nb na/nc nb/na nb/nc nc/na nc/nb"},
		{evidence.ScopePair, ``, "transport", "na nb nc"},
		{evidence.ScopeFleet, ``, "transport", "na nb nc"},
		{evidence.ScopeFleet, `"launcher": "process"`, "busbw", ""},
		{evidence.ScopeNode, `"gpus_per_node": 1`, "busbw", ""},
		{evidence.ScopePair, `"gpus_per_node": 1`, "ranks", "na/nb na/nc nb/na nb/nc nc/na nc/nb"},
	} {
		got := strings.Trim(fmt.Sprint(spec.Subjects(fleet, nodes, test.scope, test.metric, json.RawMessage(allreduce(test.member)))), "[]")
		if got != test.want {
			t.Errorf("%s in scope %s with %s has the subjects %q, want %q", test.metric, test.scope, test.member, got, test.want)
		}
		level := checks.LevelIn(checks.LevelCell, test.scope)
		if first, _, _ := strings.Cut(test.want, " "); test.metric == "busbw" && first != "" && strings.Count(level, "/") != strings.Count(first, "/") {
			t.Errorf("scope %s: level %q does not fit %s", test.scope, level, first)
		}
	}
}

// TestNcclCutAnywhere cuts what a healthy run printed at every byte, with
// honest counts: it never gives another number, and no result without its end.
func TestNcclCutAnywhere(t *testing.T) {
	check := find(t, "nccl_allreduce")
	for _, c := range checktest.Cases(t, check) {
		if c.Name != "good_node_2_13" && c.Name != "good_pair_mpirun" && c.Name != "good_node_json" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			const file = "allreduce-1.n1/stdout"
			whole := checktest.Measure(check, c.View, c.Raw)
			values := make(map[string]float64)
			id := func(m evidence.Measurement) string { return fmt.Sprint(m.Metric, m.Subject, m.Labels) }
			for _, m := range whole.Measurements {
				values[id(m)] = m.Value
			}
			text := string(c.Raw[file].Data)
			var exit evidence.Exit
			if err := json.Unmarshal(c.Raw["allreduce-1.n1/exit.json"].Data, &exit); err != nil {
				t.Fatal(err)
			}
			raw := maps.Clone(c.Raw)
			end := strings.Index(text, "Avg bus bandwidth")
			for cut := range len(text) {
				exit.StdoutBytes = int64(cut)
				data, err := json.Marshal(exit)
				if err != nil {
					t.Fatal(err)
				}
				raw[file], raw["allreduce-1.n1/exit.json"] = &fstest.MapFile{Data: []byte(text[:cut])}, &fstest.MapFile{Data: data}
				a := checktest.Measure(check, c.View, raw)
				for _, m := range a.Measurements {
					if want, ok := values[id(m)]; !ok || m.Value != want {
						t.Fatalf("cut at byte %d: %s is %g, want %g", cut, id(m), m.Value, want)
					}
				}
				if cut <= end && checktest.Clean(whole, a) {
					t.Fatalf("cut at byte %d of %d it passes for whole", cut, len(text))
				}
			}
		})
	}
}

// standIn is a program that prints what a case has recorded, for this host,
// and leaves NCCL's log and the JSON document where it is told to.
func standIn(t *testing.T, c checktest.Case, directory string) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	local := strings.NewReplacer("gpu001", host, "/var/tmp/", directory+"/")
	dir := t.TempDir()
	write := func(name string, mode fs.FileMode, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	table := write("table", 0o644, local.Replace(string(c.Raw["allreduce-1.n1/stdout"].Data)))
	log := write("log", 0o644, "n1:1:2 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\nn1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"+
		"n1:1:2 [0] NCCL INFO AllReduce: 8589934592 Bytes -> Algo 4 proto 2 time 1.5\nn1:1:2 [0] NCCL INFO AllReduce: 17179869184 Bytes -> Algo 1 proto 2 time 1.5\n")
	document := write("document", 0o644, "")
	if result := c.Raw["result-1.n1/stdout"]; result != nil {
		document = write("document", 0o644, strings.Replace(string(result.Data), `,"nccl_version"`,
			`,"start_time":"2026-11-30 14:02:11","args":["all_reduce_perf"],"env":["TOKEN=not-for-the-evidence"],"nccl_version"`, 1))
	}
	return write("all_reduce_perf", 0o755, `#!/bin/sh
cp `+log+` "${NCCL_DEBUG_FILE%\%h.\%p}n1.1"
while [ $# -gt 1 ]; do
	if [ "$1" = -J ]; then cp `+document+` "$2"; fi
	shift
done
cat `+table+`
`)
}

func ncclCase(t *testing.T, name string) checktest.Case {
	t.Helper()
	cases := checktest.Cases(t, find(t, "nccl_allreduce"))
	i := slices.IndexFunc(cases, func(c checktest.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %s", name)
	}
	return cases[i]
}

// TestNcclDrive runs the check with a stand-in for the program and the real
// tools around it.
func TestNcclDrive(t *testing.T) {
	for name, output := range map[string]string{"good_node_2_13": "text", "good_node_json": "json"} {
		t.Run(name, func(t *testing.T) {
			c := ncclCase(t, name)
			directory := t.TempDir()
			var params map[string]any
			if err := json.Unmarshal(c.View.Test.Params, &params); err != nil {
				t.Fatal(err)
			}
			params["directory"], params["binary"], params["output"] = directory, standIn(t, c, directory), output
			data, err := json.Marshal(params)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, "nccl_allreduce", evidence.ScopeNode, "30s", []string{"n1"}, string(data))
			// What an attempt left that was cut is no part of this one.
			left := filepath.Join(directory, "rackproof-t-n1")
			if err := os.Mkdir(left, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(left, "rackproof-nccl.n1.77"), []byte("n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via NET/Socket/0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			a := b.drive(t.Context())
			wantClasses(t, a)
			if got := value(t, a, "busbw", "n1", "size", "16GiB"); got != 478.66 {
				t.Errorf("busbw is %g, want 478.66", got)
			}
			for fact_, want := range map[string]string{"transport": "P2P/CUMEM", "algorithm": "NVLS,Ring", "nccl_version": "2.21.5"} {
				if got := fact(t, a, fact_, "n1"); got.Value != want {
					t.Errorf("%s is %+v, want %s", fact_, got, want)
				}
			}
			if entries, err := os.ReadDir(directory); err != nil || len(entries) > 0 {
				t.Errorf("the check left %v, %v", entries, err)
			}
			if err := fs.WalkDir(os.DirFS(b.dir), ".", func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				kept, err := os.ReadFile(filepath.Join(b.dir, path))
				if bytes.Contains(kept, []byte("not-for-the-evidence")) {
					t.Errorf("%s has the environment: %s", path, kept)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNcclDriveGang shows the launcher of a gang its hostfile.
func TestNcclDriveGang(t *testing.T) {
	directory := t.TempDir()
	b := newBench(t, "nccl_allreduce", evidence.ScopeFleet, "30s", []string{"n1"},
		allreduce(`"directory": "`+directory+`", "launcher": "gang", "gpus_per_node": 2, "gang": ["sh", "-c", "cat $0; echo $1 ranks of; echo $2", "{hostfile}", "{ranks}"]`))
	a := b.drive(t.Context())
	wantClasses(t, a, evidence.ClassUnparsable)
	wantProblem(t, a, evidence.ClassUnparsable, "no header of nccl-tests")
	printed, err := os.ReadFile(filepath.Join(b.dir, "allreduce-1.n1", "stdout"))
	if err != nil || string(printed) != "n1\n2 ranks of\nall_reduce_perf\n" {
		t.Errorf("the launcher printed %q, %v", printed, err)
	}
	if len(a.Measurements) > 0 {
		t.Errorf("measured %v", a.Measurements)
	}
	if entries, err := os.ReadDir(directory); err != nil || len(entries) > 0 {
		t.Errorf("the check left %v, %v", entries, err)
	}
}

// TestNcclStrangers: what is in the check's directory and not the check's is
// left there and said, and the numbers do not count.
func TestNcclStrangers(t *testing.T) {
	c := ncclCase(t, "good_node_2_13")
	directory := t.TempDir()
	b := newBench(t, "nccl_allreduce", evidence.ScopeNode, "30s", []string{"n1"},
		allreduce(`"directory": "`+directory+`", "gpus_per_node": 4, "binary": "`+standIn(t, c, directory)+`"`))
	stranger := filepath.Join(directory, "rackproof-t-n1", "core")
	if err := os.Mkdir(filepath.Dir(stranger), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stranger, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := b.drive(t.Context())
	wantProblem(t, a, evidence.ClassUnparsable, "not the check's")
	wantProblem(t, a, evidence.ClassUnparsable, "not removed")
	if slices.ContainsFunc(a.Measurements, func(m evidence.Measurement) bool { return m.Metric == "busbw" }) {
		t.Errorf("measured %v", a.Measurements)
	}
	if _, err := os.Stat(stranger); err != nil {
		t.Error(err)
	}
}

// FuzzMeasureNcclAllreduce: what is taken for whole has a table and its end.
func FuzzMeasureNcclAllreduce(f *testing.F) {
	fuzzStep(f, "nccl_allreduce", "good_node_json", func(data []byte) bool {
		return bytes.Contains(data, []byte("Avg bus bandwidth")) || bytes.HasSuffix(data, []byte(" lines\n")) || json.Valid(data)
	}, "allreduce-1.n1/stdout", "result-1.n1/stdout", "log.n1/stdout", "allreduce-1.n1/exit.json")
}
