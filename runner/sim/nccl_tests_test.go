package sim_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/runner/sim/rack"
)

func TestAllReducePerf(t *testing.T) {
	onGPURack(t, 1, nil, func(t *testing.T, run func(argv ...string) result) {
		run("all_reduce_perf", "-b", "8", "-e", "16G", "-f", "2048", "-g", "8", "-n", "20", "-w", "5", "-c", "1", "-a", "3").want(t, 0,
			`# nccl-tests version 2.17.9 nccl-headers=22105 nccl-library=22105
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 8 minBytes 8 maxBytes 17179869184 step: 2048(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  40183 on     gpu001 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  40183 on     gpu001 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  40183 on     gpu001 device  2 [0000:52:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  40183 on     gpu001 device  3 [0000:61:00] NVIDIA H100 80GB HBM3
#  Rank  4 Group  0 Pid  40183 on     gpu001 device  4 [0000:9d:00] NVIDIA H100 80GB HBM3
#  Rank  5 Group  0 Pid  40183 on     gpu001 device  5 [0000:c3:00] NVIDIA H100 80GB HBM3
#  Rank  6 Group  0 Pid  40183 on     gpu001 device  6 [0000:d1:00] NVIDIA H100 80GB HBM3
#  Rank  7 Group  0 Pid  40183 on     gpu001 device  7 [0000:df:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
           8             2     float     sum      -1    28.00    0.00    0.00       0    28.00    0.00    0.00       0
       16384          4096     float     sum      -1    28.06    0.58    1.02       0    28.06    0.58    1.02       0
    33554432       8388608     float     sum      -1   150.82  222.48  389.34       0   150.88  222.39  389.18       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 130.094 
#
# Collective test concluded: all_reduce_perf
#

`)
	})
}

// tableRow is a row of the table by its size: the fields of both halves.
func tableRow(t *testing.T, output, size string) []string {
	t.Helper()
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) == 13 && fields[0] == size {
			return fields
		}
	}
	t.Fatalf("the table has no row of %s:\n%s", size, output)
	return nil
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAllReduceBandwidth(t *testing.T) {
	for _, c := range []struct {
		name     string
		faults   []rack.Fault
		argv     string
		low, top float64 // of bus bandwidth at 8 GiB, out of place, GB/s
		wrong    string
	}{
		{"NVSwitch", nil, "all_reduce_perf -b 8G -e 8G -g 8", 470, 485, "0"},
		{"four GPUs", nil, "all_reduce_perf -b 8G -e 8G -g 4", 360, 372, "0"},
		{"without NVLS", nil, "env NCCL_NVLS_ENABLE=0 all_reduce_perf -b 8G -e 8G -g 8", 360, 372, "0"},
		{"without a check", nil, "all_reduce_perf -b 8G -e 8G -g 8 -c 0", 470, 485, "N/A"},
		{"two nodes", nil, "mpirun -np 16 --host gpu001:8,gpu002:8 all_reduce_perf -b 8G -e 8G", 365, 376, "0"},
		{"slow link", []rack.Fault{{Kind: rack.KindSlowLink, Node: "gpu002", Part: "mlx5_3"}}, "mpirun -np 16 --host gpu001:8,gpu002:8 all_reduce_perf -b 8G -e 8G", 180, 190, "0"},
		{"flapping link", []rack.Fault{{Kind: rack.KindFlappingLink, Node: "gpu002", Part: "mlx5_3"}}, "mpirun -np 16 --host gpu001:8,gpu002:8 all_reduce_perf -b 8G -e 8G -n 200", 330, 362, "0"},
		{"wrong data", []rack.Fault{{Kind: rack.KindWrongData, Node: "gpu001", Part: "gpu4"}}, "all_reduce_perf -b 8G -e 8G -g 8", 470, 485, "2051"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onGPURack(t, 2, c.faults, func(t *testing.T, run func(argv ...string) result) {
				r := run(strings.Fields(c.argv)...)
				row := tableRow(t, r.stdout, "8589934592")
				if bus := number(t, row[7]); bus < c.low || bus > c.top {
					t.Errorf("bus bandwidth is %g GB/s, want %g to %g", bus, c.low, c.top)
				}
				if row[8] != c.wrong {
					t.Errorf("#wrong is %s, want %s", row[8], c.wrong)
				}
				if wrong := c.wrong != "0" && c.wrong != "N/A"; wrong != (r.status() == 7) {
					t.Errorf("status %d", r.status())
				} else if wrong {
					holds(t, r.stdout, "# Out of bounds values : 2 FAILED\n", " .. gpu001 pid ", ": Test failure common.cu:1189\n")
				}
			})
		})
	}
}

// A run takes the time of its iterations.
func TestAllReduceTakesItsTime(t *testing.T) {
	onGPURack(t, 1, nil, func(t *testing.T, run func(argv ...string) result) {
		r := run("all_reduce_perf", "-b", "16G", "-e", "16G", "-g", "8", "-n", "100", "-w", "5")
		micros := number(t, tableRow(t, r.stdout, "17179869184")[5])
		want := time.Duration(micros*209) * time.Microsecond // 5 + 2 (1 + 100 + 1)
		if over := r.took - want - time.Second/2; over.Abs() > 200*time.Millisecond {
			t.Errorf("it took %s, want %s and half a second", r.took, want)
		}
	})
}

func TestAllReduceFailures(t *testing.T) {
	lost := func(after time.Duration) []rack.Fault {
		return []rack.Fault{{Kind: rack.KindXID79, Node: "gpu001", Part: "gpu6", After: after}}
	}
	for _, c := range []struct {
		name           string
		faults         []rack.Fault
		argv           string
		status         int
		stdout, stderr string
	}{
		{"lost before", lost(0), "all_reduce_perf -g 8", 2, "gpu001: Test CUDA failure util.cu:566 'unknown error'\n .. gpu001 pid 52415: Test failure common.cu:1189\n", ""},
		{"lost meanwhile", lost(4 * time.Second), "all_reduce_perf -b 16G -e 16G -g 8 -n 100", 2,
			"  float     sum      -1gpu001: Test CUDA failure common.cu:419 'unspecified launch failure'\n .. gpu001 pid 42840: Test failure common.cu:549\n" +
				" .. gpu001 pid 42840: Test failure common.cu:613\n .. gpu001 pid 42840: Test failure common.cu:734\n .. gpu001 pid 42840: Test failure all_reduce.cu:561\n" +
				" .. gpu001 pid 42840: Test failure common.cu:762\n .. gpu001 pid 42840: Test failure common.cu:1508\n .. gpu001 pid 42840: Test failure common.cu:1189\n", ""},
		{"others are not lost", lost(0), "all_reduce_perf -b 1M -e 1M -g 4", 0, "# Out of bounds values : 0 OK\n", ""},
		{"too few", []rack.Fault{{Kind: rack.KindDeadGPU, Node: "gpu001", Part: "gpu0"}}, "all_reduce_perf -g 8", 5, ": Test failure common.cu:1189\n",
			"Invalid number of GPUs: 8 requested but only 7 were found.\nPlease check the number of processes and GPUs per process.\n"},
		{"bad sizes", nil, "all_reduce_perf -b 2G -e 1G", 255, "", "invalid sizes for 'minbytes' and 'maxbytes': 2147483648 > 1073741824\n"},
		{"bad size", nil, "all_reduce_perf -b 2T", 255, "", "invalid size specified for 'minbytes'\n"},
		{"option of a later release", nil, "all_reduce_perf -I 1", 0, "invalid option '?'\nUSAGE: all_reduce_perf ", "all_reduce_perf: invalid option -- 'I'\n"},
		{"low bandwidth", nil, "env NCCL_TESTS_MIN_BW=900 all_reduce_perf -b 1G -e 1G -g 8", 7, "GB/s", ""},
		{"memory", nil, "all_reduce_perf -b 32G -e 32G -g 8 -n 1", 0, "#\n# Reducing maxBytes to 26549944320 due to memory limitation\n", ""},
		{"memory without a check", nil, "all_reduce_perf -b 32G -e 32G -g 8 -n 1 -c 0", 0, " 34359738368    8589934592     float     sum ", ""},
		{"not simulated", nil, "env NCCL_IB_DISABLE=1 all_reduce_perf -g 8", 2, "", "all_reduce_perf: the simulated rack does not have this: NCCL_IB_DISABLE=1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onGPURack(t, 1, c.faults, func(t *testing.T, run func(argv ...string) result) {
				r := run(strings.Fields(c.argv)...)
				if r.status() != c.status {
					t.Errorf("status %d, want %d; stderr %q", r.status(), c.status, r.stderr)
				}
				holds(t, r.stdout, c.stdout)
				holds(t, r.stderr, c.stderr)
			})
		})
	}
}

func TestAllReduceOptions(t *testing.T) {
	onGPURack(t, 1, nil, func(t *testing.T, run func(argv ...string) result) {
		r := run("all_reduce_perf", "--minbytes=1M", "--maxbytes", "2M", "-i512K", "-d", "bfloat16", "-o", "max", "-g4", "-t", "2", "-z", "1", "-p1", "-G", "2", "-m", "3", "-S", "1", "-M", "1")
		holds(t, r.stdout,
			"# nThread 2 nGpus 4 minBytes 1048576 maxBytes 2097152 step: 524288(bytes) warmup iters: 1 iters: 20 agg iters: 3 validation: 1 graph: 2\n"+
				"# Blocking Enabled: wait for completion and barrier after each collective \n# Parallel Init Enabled: threads call into NcclInitRank concurrently \n#\n",
			"#wrong           timestamp\n", "%Y-%m-%d %H:%M:%S\n", "     1572864        786432  bfloat16     max      -1 ", "       0  2000-01-01 00:00:00\n",
			"# GPU memory usage     : Initialization 3.00 GB | User-Allocated 6.00 MB | Collective 0.00 B | Total  3.01 GB\n")
		every := run("all_reduce_perf", "-b", "64", "-e", "64", "-d", "all", "-o", "all", "-g", "8", "-N", "2")
		if n := strings.Count(every.stdout, "\n          64 "); n != 120 {
			t.Errorf("%d rows of all types and operations in two cycles, want 120", n)
		}
	})
}

// ncclReport is what of the JSON a test looks at.
type ncclReport struct {
	Version int      `json:"version"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	NCCL    int      `json:"nccl_version"`
	Config  struct {
		Max     int64  `json:"maximum_bytes"`
		Factor  int    `json:"step_factor"`
		Block   string `json:"blocking_collectives"`
		Devices []struct {
			Rank   int    `json:"rank"`
			Host   string `json:"hostname"`
			Device int    `json:"device"`
			Hex    string `json:"device_hex"`
			Info   string `json:"device_info"`
		} `json:"devices"`
	} `json:"config"`
	Results []struct {
		Size  int64  `json:"size"`
		Count int64  `json:"count"`
		Root  string `json:"root"`
		Out   struct {
			Time  float64  `json:"time"`
			Bus   float64  `json:"bus_bw"`
			Wrong *float64 `json:"nwrong"`
		} `json:"out_of_place"`
		Iterations int `json:"actual_iterations"`
	} `json:"results"`
	Bounds  struct{ Okay string } `json:"out_of_bounds"`
	Average struct {
		Bandwidth float64 `json:"bandwidth"`
		Okay      string  `json:"okay"`
	} `json:"average_bus_bandwidth"`
	Errors []string `json:"errors"`
	End    string   `json:"end_time"`
}

func TestAllReduceJSON(t *testing.T) {
	onGPURack(t, 2, nil, func(t *testing.T, run func(argv ...string) result) {
		argv := []string{"env", "NCCL_DEBUG=WARN", "mpirun", "-np", "16", "--host", "gpu001:8,gpu002:8", "all_reduce_perf", "-b", "1G", "-e", "4G", "-f", "2", "-J", "/tmp/out.json"}
		first := run(argv...)
		holds(t, first.stdout, "# Writing JSON output to /tmp/out.json\n")
		holds(t, run(argv...).stdout, "# Writing JSON output to /tmp/out.json.0\n")
		text := run("cat", "/tmp/out.json").stdout
		var report ncclReport
		if err := json.Unmarshal([]byte(text), &report); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		config := report.Config
		if report.Version != 1 || report.NCCL != 22105 || config.Max != 4<<30 || config.Factor != 2 || config.Block != "false" ||
			report.Bounds.Okay != "true" || report.Average.Okay != "unchecked" || report.End != "2000-01-01 00:00:02" || fmt.Sprint(report.Errors) != "[]" {
			t.Errorf("report is %+v", report)
		}
		if n := len(config.Devices); n != 16 || fmt.Sprint(config.Devices[15]) != "{15 gpu002 7 0000:df:00 NVIDIA H100 80GB HBM3}" {
			t.Errorf("%d devices: %v", n, config.Devices)
		}
		if n := len(report.Results); n != 3 {
			t.Fatalf("%d results, want 3", n)
		}
		row, last := tableRow(t, first.stdout, "4294967296"), report.Results[2]
		if last.Size != 4<<30 || last.Count != 1<<30 || last.Root != "    -1" || last.Iterations != 20 || *last.Out.Wrong != 0 || fmt.Sprintf("%.2f", last.Out.Bus) != row[7] {
			t.Errorf("the last result is %+v, its row %q", last, row)
		}
		// What a login has in its environment is in the file as well.
		env := strings.Join(report.Env, "\n")
		holds(t, env, "HF_TOKEN=hf_", "AWS_SECRET_ACCESS_KEY=", "NCCL_DEBUG=WARN", "OMPI_COMM_WORLD_RANK=0")
	})
}

// A run that fails leaves what the C library had written so far, and ends by
// the assertion of its writer.
func TestAllReduceJSONOfFailure(t *testing.T) {
	faults := []rack.Fault{{Kind: rack.KindXID79, Node: "gpu001", Part: "gpu6", After: 4 * time.Second}}
	onGPURack(t, 1, faults, func(t *testing.T, run func(argv ...string) result) {
		r := run("all_reduce_perf", "-b", "8", "-e", "16G", "-f", "2", "-g", "8", "-n", "100", "-J", "/tmp/out.json")
		if r.exit.Class != evidence.ClassSignal || r.exit.Signal != "ABRT" {
			t.Errorf("it ended by %s %s, want ABRT", r.exit.Class, r.exit.Signal)
		}
		holds(t, r.stderr, "Assertion `0' failed.\n")
		text := run("cat", "/tmp/out.json").stdout
		if len(text) == 0 || len(text)%4096 != 0 || json.Valid([]byte(text)) {
			t.Errorf("the file has %d bytes, want blocks of 4096 of a cut document", len(text))
		}
		skipped := run("all_reduce_perf", "-b", "8", "-e", "8", "-g", "4", "-J", "/nowhere/out.json")
		holds(t, skipped.stdout, "# skipping json output; /nowhere/out.json not accessible\n")
	})
}

// With a hung node the others wait, and -T ends what had begun.
func TestHungNodeHoldsRunUp(t *testing.T) {
	argv := []string{"mpirun", "-np", "16", "--host", "gpu001:8,gpu002:8", "all_reduce_perf", "-b", "16G", "-e", "16G", "-n", "500"}
	onGPURack(t, 2, []rack.Fault{{Kind: rack.KindHungNode, Node: "gpu002"}}, func(t *testing.T, run func(argv ...string) result) {
		if r := run(argv...); r.exit.Class != evidence.ClassTimeout || r.stdout != "" {
			t.Errorf("class %s with output %q, want a timeout and none", r.exit.Class, r.stdout)
		}
		limited := run(append([]string{"mpirun", "--timeout", "60"}, argv[1:]...)...)
		if limited.status() != 110 || limited.took != time.Minute {
			t.Errorf("status %d after %s, want 110 after a minute", limited.status(), limited.took)
		}
		holds(t, limited.stderr, "The user-provided time limit for job execution has been reached:\n\n  Timeout: 60 seconds\n")
	})
	onGPURack(t, 2, []rack.Fault{{Kind: rack.KindHungNode, Node: "gpu002", After: 10 * time.Second}}, func(t *testing.T, run func(argv ...string) result) {
		r := run(append(argv, "-T", "30")...)
		if r.status() != 4 || r.took < 40*time.Second || r.took > 41*time.Second {
			t.Errorf("status %d after %s, want 4 after 40 s", r.status(), r.took)
		}
		holds(t, r.stdout, "  float     sum      -1gpu001: Test timeout (30s) common.cu:443\n .. gpu001 pid ")
	})
}

var (
	infoForm = regexp.MustCompile(`^gpu00[12]:\d+:\d+ \[\d\] NCCL INFO `)
	ringForm = regexp.MustCompile(`Ring 00 : (\d+) -> (\d+) -> (\d+)\n`)
)

// NCCL's log goes to a file of each process, and keeps the table whole.
func TestNCCLLog(t *testing.T) {
	onGPURack(t, 2, nil, func(t *testing.T, run func(argv ...string) result) {
		r := run("env", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING", "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p", "mpirun", "-np", "16", "--host", "gpu001:8,gpu002:8",
			"--map-by", "ppr:8:node", "--tag-output", "-x", "NCCL_DEBUG", "-x", "NCCL_DEBUG_SUBSYS", "-x", "NCCL_DEBUG_FILE", "all_reduce_perf", "-b", "8G", "-e", "8G", "-n", "3")
		holds(t, r.stdout, "[1,0]<stdout>:NCCL version 2.21.5+cuda12.4\n")
		if strings.Contains(r.stdout, "NCCL INFO") {
			t.Errorf("the log is in the output too")
		}
		var pids []string
		for line := range strings.Lines(r.stdout) {
			if fields := strings.Fields(line); len(fields) > 8 && fields[1] == "Rank" {
				pids = append(pids, fields[6]+"@"+fields[8])
			}
		}
		if len(pids) != 16 {
			t.Fatalf("%d devices: %v", len(pids), pids)
		}
		pid, _, _ := strings.Cut(pids[0], "@")
		log := run("cat", "/tmp/nccl.gpu001."+pid).stdout
		for line := range strings.Lines(log) {
			if !infoForm.MatchString(line) {
				t.Errorf("not a line of the log: %q", line)
			}
		}
		holds(t, log, "NCCL INFO NCCL version 2.21.5+cuda12.4\n", "NCCL INFO Using network IB\n",
			"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [4]mlx5_4:1/IB [5]mlx5_5:1/IB [6]mlx5_6:1/IB [7]mlx5_7:1/IB [RO]; OOB eno1:10.20.0.1<0>\n",
			"NCCL INFO NVLS multicast support is available on dev 0\n", "rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n",
			"NCCL INFO Channel 00/16 :    0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15\n",
			"NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA\n", "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n",
			"NCCL INFO Channel 01/0 : 0[0] -> 9[1] [send] via NET/IB/1(1)/GDRDMA\n", "NCCL INFO Connected NVLS tree\n",
			"NCCL INFO 16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer\n",
			" - Init COMPLETE\n", "NCCL INFO 8589934592 Bytes -> Algo 1 proto 2 time ", " - Destroy COMPLETE\n")
		if ring := ringForm.FindStringSubmatch(log); ring == nil || fmt.Sprint(ring[1:]) != "[15 0 1]" {
			t.Errorf("rank 0's neighbours are %v", ring)
		}
	})
}

// Without a file the log is glued into the rows.
func TestNCCLLogInOutput(t *testing.T) {
	onGPURack(t, 2, nil, func(t *testing.T, run func(argv ...string) result) {
		argv := []string{"env", "NCCL_DEBUG=INFO", "mpirun", "-np", "4", "--host", "gpu001:2,gpu002:2", "-x", "NCCL_DEBUG", "all_reduce_perf", "-b", "1G", "-e", "1G"}
		r := run(argv...)
		late := `\nncclCommInit`
		holds(t, r.stdout, "  1073741824     268435456     float     sum      -1gpu001:", " - Init COMPLETE\n  ")
		if strings.Contains(r.stdout, late) {
			t.Errorf("a line of the log has no head")
		}
		alone := run("env", "NCCL_DEBUG=INFO", "all_reduce_perf", "-g", "8", "-b", "1G", "-e", "1G")
		holds(t, alone.stdout, "Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer\n", "NVLS comm 0x", " headRank 7 nHeads 8 buffSize 4194304 memSize 2097152 nvlsPerRankSize 201326592 nvlsTotalSize 1610612736\n")
		tableRow(t, alone.stdout, "1073741824")
	})
}
