package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
)

func TestMpirunPlacesRanks(t *testing.T) {
	onGPURack(t, 3, nil, func(t *testing.T, run func(argv ...string) result) {
		name := []string{"cat", "/proc/sys/kernel/hostname"}
		for _, c := range []struct {
			argv string
			want string
		}{
			{"mpirun -np 3 --host gpu002:2,gpu001:1 --tag-output", "[1,0]<stdout>:gpu002\n[1,1]<stdout>:gpu002\n[1,2]<stdout>:gpu001\n"},
			{"mpirun --allow-run-as-root -N 1 -H gpu003:8,gpu002:8 --bind-to numa --mca pml ucx --tag-output", "[1,0]<stdout>:gpu003\n[1,1]<stdout>:gpu002\n"},
			{"mpirun -np 2 --host gpu001,gpu003 --map-by ppr:1:node --tag-output --timestamp-output",
				"Sat Jan  1 00:00:00 2000[1,0]<stdout>:gpu001\nSat Jan  1 00:00:00 2000[1,1]<stdout>:gpu003\n"},
			{"mpirun -np 1 -xml", "<mpirun>\n<stdout rank=\"0\">gpu001&#010;</stdout>\n</mpirun>\n"},
			{"srun -N 2 --ntasks-per-node=1 --gpus-per-node=8 --label", "0: gpu001\n1: gpu002\n"},
			{"srun -w gpu[002-003] -n 2 --label --mpi=pmix", "0: gpu002\n1: gpu003\n"},
			{"mpiexec.hydra -hosts gpu002,gpu003 -n 4 -ppn 2 -l", "[0] gpu002\n[1] gpu002\n[2] gpu003\n[3] gpu003\n"},
		} {
			r := run(append(strings.Fields(c.argv), name...)...)
			if got, want := sortedLines(r.stdout), sortedLines(c.want); got != want || r.status() != 0 {
				t.Errorf("%s: status %d, output\n%s\nwant\n%s%s", c.argv, r.status(), got, want, r.stderr)
			}
		}
	})
}

// sortedLines are the lines of a text in order: ranks write at once.
func sortedLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i := range lines {
		for k := i; k > 0 && lines[k] < lines[k-1]; k-- {
			lines[k], lines[k-1] = lines[k-1], lines[k]
		}
	}
	return strings.Join(lines, "")
}

// Pieces of rank 0's row get a tag each, and other ranks' lines come between.
func TestMpirunTagsPieces(t *testing.T) {
	onGPURack(t, 2, nil, func(t *testing.T, run func(argv ...string) result) {
		argv := strings.Fields("mpirun -np 2 --host gpu001,gpu002 -x NCCL_DEBUG=INFO all_reduce_perf -b 1G -e 1G -n 2")
		tagged := run(append([]string{"mpirun", "--tag-output"}, argv[1:]...)...)
		holds(t, tagged.stdout, "[1,0]<stdout>:  1073741824     268435456     float     sum      -1[1,1]<stdout>:gpu002:",
			" - Init COMPLETE\n[1,0]<stdout>:  ", "       0[1,0]<stdout>:  ")
		marked := run(append([]string{"mpirun", "-xml"}, argv[1:]...)...)
		holds(t, marked.stdout, "<stdout rank=\"0\">  1073741824     268435456     float     sum      -1</stdout><stdout rank=\"1\">gpu002:",
			" 0[0] -&gt; 1[0] [send] via NET/IB/0/GDRDMA&#010;</stdout>\n", "       0</stdout><stdout rank=\"0\">  ", "<stdout rank=\"0\"># Out of bounds values : 0 OK&#010;</stdout>\n")
	})
}

func TestMpirunFailures(t *testing.T) {
	lost := []rack.Fault{{Kind: rack.KindXID79, Node: "gpu002", Part: "gpu1", After: 3 * time.Second}}
	onGPURack(t, 2, lost, func(t *testing.T, run func(argv ...string) result) {
		for _, c := range []struct {
			argv           string
			status         int
			stdout, stderr string
		}{
			{"mpirun -np 4 --host gpu001:2,gpu002:2 --tag-output all_reduce_perf -b 16G -e 16G -n 500", 2,
				"-1[1,3]<stdout>:gpu002: Test CUDA failure common.cu:419 'unspecified launch failure'\n[1,3]<stdout>: .. gpu002 pid ", "  Exit code:    2\n"},
			{"mpirun -np 4 --host gpu001:1,gpu002:1 true", 1, "", "There are not enough slots available in the system to satisfy the 4\nslots that were requested by the application:\n\n  true\n"},
			{"mpirun -np 2 /nonexistent/bin", 132, "", "Executable: /nonexistent/bin\nNode: gpu001\n\nwhile attempting to start process rank 0.\n" + strings.Repeat("-", 74) + "\n2 total processes failed to start\n"},
			{"mpirun --host gpu001,gpu099 true", 1, "", "ssh: Could not resolve hostname gpu099: Name or service not known\n"},
			{"mpirun -np 2 false", 1, "", "mpirun detected that one or more processes exited with non-zero status"},
			{"srun -N 2 --ntasks-per-node=2 --label --mpi=pmix all_reduce_perf -b 1G -e 1G", 2, "0: #\n", "srun: error: gpu002: task 3: Exited with exit code 2\nsrun: Job step aborted"},
			{"mpiexec -n 0 true", 2, "", "0 ranks\n"},
			{"mpirun -np 1000000000 --host gpu001:1000000000 true", 1, "", "There are not enough slots available"},
			{"srun -n 1000000000 true", 1, "", "Requested node configuration is not available\n"},
			{"all_reduce_perf -g 0", 2, "", "1 threads of 0 GPUs\n"},
			{"all_reduce_perf -b 1e30", 255, "", "invalid size specified for 'minbytes'\n"},
			{"srun -N 3 true", 1, "", "srun: error: Unable to allocate resources: Requested node configuration is not available\n"},
			{"srun -w gpu099 true", 1, "", "srun: error: Unable to allocate resources: Invalid node name specified\n"},
			{"mpiexec -hosts gpu001,gpu002 -n 4 -ppn 2 all_reduce_perf -b 1G -e 1G", 2, "=   EXIT CODE: 2\n", ""},
		} {
			r := run(strings.Fields(c.argv)...)
			if r.status() != c.status {
				t.Errorf("%s: status %d, want %d", c.argv, r.status(), c.status)
			}
			holds(t, r.stdout, c.stdout)
			holds(t, r.stderr, c.stderr)
		}
	})
}

// srun passes whole lines on, also of a program behind env.
func TestSrunKeepsRowsWhole(t *testing.T) {
	onGPURack(t, 2, nil, func(t *testing.T, run func(argv ...string) result) {
		r := run(strings.Fields("srun -N 2 --ntasks-per-node=8 -n 16 -w gpu001,gpu002 --distribution=block --mpi=pmix --label env NCCL_DEBUG=INFO all_reduce_perf -b 1G -e 1G")...)
		holds(t, r.stdout, "\n 0:   1073741824     268435456     float     sum      -1  ", "\n15: gpu002:", "\n 0: #  Rank 15 Group  0 Pid ")
		if n := strings.Count(r.stdout, "# Collective test starting"); n != 1 {
			t.Errorf("%d tests were started, want 1 of all ranks", n)
		}
	})
}

// A program needs its own GPUs: the ranks of a node count from its first.
func TestHydraReadsHostfile(t *testing.T) {
	onGPURack(t, 2, nil, func(t *testing.T, run func(argv ...string) result) {
		run("mkdir", "-p", "-m", "0700", "--", "/var/tmp/work")
		hosts := run("mpiexec", "-f", "/var/tmp/work/hosts", "-n", "16", "-ppn", "8", "all_reduce_perf")
		holds(t, hosts.stderr, "hostfile /var/tmp/work/hosts: No such file or directory")
		r := run("mpiexec", "-hosts", "gpu001,gpu002", "-n", "16", "-ppn", "8", "-genv", "NCCL_DEBUG", "VERSION", "all_reduce_perf", "-b", "1M", "-e", "1M")
		holds(t, r.stdout, "#  Rank 15 Group  0 Pid ", " on     gpu002 device  7 [0000:df:00] NVIDIA H100 80GB HBM3\nNCCL version 2.21.5+cuda12.4\n")
	})
}
