package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// all_reduce_perf of nccl-tests 2.17.9 (src/common.cu, src/util.cu), built with
// MPI for NCCL 2.21.5 and CUDA 12.4: the first release that has all of -J, -S
// and -M, in the version 1 of its JSON. The numbers of lines in its failures
// are those of this release.
const (
	ncclTestsVersion = "2.17.9"
	ncclVersion      = "2.21.5"
	ncclVersionCode  = 22105
	ncclProgram      = "all_reduce_perf"
)

// Exit statuses of nccl-tests (testResult_t).
const (
	testCudaError      = 2
	testTimeout        = 4
	testNotImplemented = 5
	testNumResults     = 7
	badOption          = 255 // main returns -1
)

// ncclInit is how long the communicator and the buffers take.
const ncclInit = 500 * time.Millisecond

// collectiveLoad is how busy collectives keep a GPU.
const collectiveLoad = 0.35

// ncclType is an element type.
type ncclType struct {
	name string
	size int64
}

// The types and operations of NCCL 2.21, as -d all and -o all take them.
var (
	ncclTypes = []ncclType{{"int8", 1}, {"uint8", 1}, {"int32", 4}, {"uint32", 4}, {"int64", 8}, {"uint64", 8}, {"half", 2}, {"float", 4}, {"double", 8}, {"bfloat16", 2}}
	ncclOps   = []string{"sum", "prod", "max", "min", "avg", "mulsum"}
)

// ncclTests is the command line of all_reduce_perf, read.
type ncclTests struct {
	threads, gpus        int
	min, max             int64
	step                 int64 // bytes
	factor               int64 // more than 1: instead of step
	iters, warmup        int
	agg, cycles, graph   int
	check                int
	types                []ncclType
	ops                  []string
	timeout              int // s, or 0
	blocking, parallel   bool
	cpuTime, timestamped bool
	memory               bool
	output               string
}

// ncclProc is one process of a run.
type ncclProc struct {
	node           *rack.Node
	files          *files
	argv, env      []string
	local          int // its place among the processes of its node
	pid            int
	stdout, stderr io.Writer
	log            ncclLog
}

func (p *ncclProc) printf(format string, args ...any) { fmt.Fprintf(p.stdout, format, args...) }

// ncclJob is one run: the processes that a launcher started, by rank, or one
// that was started alone.
type ncclJob struct {
	ncclTests
	procs []*ncclProc
	json  *ncclJSON // of rank 0; nil: none is written

	perNode int
	at      []int // the lines of common.cu that wait for collectives now
	draws   int   // of collectives
	bus     float64
	rows    int
	wrong   int // processes that found wrong data, over all tests
	held    []func()
}

// ended says how a run ended, and by which process.
type ended struct {
	exit sshserver.Exit
	rank int
}

// allReducePerf is the program by itself.
func allReducePerf(ctx context.Context, c *Call) sshserver.Exit {
	p := &ncclProc{
		node: c.Node, files: c.Files, argv: c.Argv, env: c.Env,
		pid: pid(c.Node, strings.Join(c.Argv, " ")), stdout: c.Stdout, stderr: c.Stderr,
	}
	return runNccl(ctx, []*ncclProc{p}).exit
}

// runNccl runs the program in all processes, which have the same argv.
func runNccl(ctx context.Context, procs []*ncclProc) ended {
	first := procs[0]
	tests, exit, ok := parseNcclTests(first)
	if !ok {
		return ended{exit: exit}
	}
	j := &ncclJob{ncclTests: tests, procs: procs}
	text := unsupportedNccl(first.env)
	if j.perProc() < 1 {
		text = fmt.Sprintf("%d threads of %d GPUs", tests.threads, tests.gpus)
	}
	if text != "" {
		fmt.Fprintf(first.stderr, "%s: the simulated rack does not have this: %s\n", first.argv[0], text)
		return ended{exit: code(2)}
	}
	for _, p := range procs {
		p.log = newNcclLog(p)
	}
	perNode := make(map[*rack.Node]int)
	for _, p := range procs {
		perNode[p.node] += j.perProc()
		j.perNode = max(j.perNode, perNode[p.node])
	}
	end := j.run(ctx)
	for _, release := range j.held {
		release()
	}
	for _, p := range procs {
		p.log.flush()
	}
	return j.close(end)
}

// perProc is how many GPUs, and so ranks, each process has.
func (t ncclTests) perProc() int { return t.threads * t.gpus }

func (j *ncclJob) ranks() int { return len(j.procs) * j.perProc() }

// ncclLong are the long names of the options that are simulated.
var ncclLong = map[string]string{
	"nthreads": "t", "ngpus": "g", "minbytes": "b", "maxbytes": "e", "stepbytes": "i", "stepfactor": "f", "iters": "n",
	"agg_iters": "m", "warmup_iters": "w", "run_cycles": "N", "parallel_init": "p", "check": "c", "op": "o", "datatype": "d",
	"root": "r", "blocking": "z", "stream_null": "y", "timeout": "T", "cudagraph": "G", "report_cputime": "C",
	"report_timestamps": "S", "output_file": "J", "average": "a", "local_register": "R", "cta_policy": "x",
	"device_implementation": "D", "device_cta_count": "V", "memory": "M",
}

// parseNcclTests reads the command line as getopt does. Where the program ends
// there, exit is how.
func parseNcclTests(p *ncclProc) (t ncclTests, exit sshserver.Exit, ok bool) {
	t = ncclTests{
		threads: 1, gpus: 1, min: 32 << 20, max: 32 << 20, step: 1 << 20, factor: 1, iters: 20, warmup: 1,
		agg: 1, cycles: 1, check: 1, types: []ncclType{{"float", 4}}, ops: []string{"sum"},
	}
	known := slices.Collect(func(yield func(string) bool) {
		for _, short := range ncclLong {
			if !yield(short) {
				return
			}
		}
	})
	args := p.argv[1:]
	for len(args) > 0 && args[0] != "--" {
		word := args[0]
		args = args[1:]
		if !strings.HasPrefix(word, "-") || word == "-" {
			continue // getopt moves it behind the options
		}
		var name, value string
		given := false
		if long, isLong := strings.CutPrefix(word, "--"); isLong {
			long, value, given = strings.Cut(long, "=")
			name = ncclLong[long]
		} else {
			name, value = word[1:2], word[2:]
			given = value != ""
		}
		if !slices.Contains(known, name) {
			fmt.Fprintf(p.stderr, "%s: invalid option -- '%s'\n", ncclProgram, strings.TrimLeft(word, "-")[:1])
			p.printf("invalid option '?'\nUSAGE: %s \n\t[-t,--nthreads <num threads>] \n\t[-h,--help]\n", ncclProgram)
			return t, code(0), false
		}
		if !given {
			if len(args) == 0 {
				fmt.Fprintf(p.stderr, "%s: option requires an argument -- '%s'\n", ncclProgram, name)
				p.printf("invalid option '?'\nUSAGE: %s \n\t[-t,--nthreads <num threads>] \n\t[-h,--help]\n", ncclProgram)
				return t, code(0), false
			}
			value, args = args[0], args[1:]
		}
		if exit, ok := t.set(p, name, value); !ok {
			return t, exit, false
		}
	}
	if t.min > t.max {
		fmt.Fprintf(p.stderr, "invalid sizes for 'minbytes' and 'maxbytes': %d > %d\n", t.min, t.max)
		return t, code(badOption), false
	}
	return t, code(0), true
}

func (t *ncclTests) set(p *ncclProc, name, value string) (exit sshserver.Exit, ok bool) {
	number := leadingInt(value)
	size := func(into *int64, what string) bool {
		n, fine := parseSize(value)
		if *into = n; !fine {
			fmt.Fprintf(p.stderr, "invalid size specified for '%s'\n", what)
		}
		return fine
	}
	fine := true
	switch name {
	case "t":
		t.threads = number
	case "g":
		t.gpus = number
	case "b":
		fine = size(&t.min, "minbytes")
	case "e":
		fine = size(&t.max, "maxbytes")
	case "i":
		fine = size(&t.step, "stepBytes")
	case "f":
		t.factor = int64(number)
	case "n":
		t.iters = number
	case "m":
		t.agg = number
	case "w":
		t.warmup = number
	case "N":
		t.cycles = number
	case "c":
		t.check = number
	case "p":
		t.parallel = number != 0
	case "z":
		t.blocking = number != 0
	case "T":
		t.timeout = number
	case "G":
		t.graph = number
	case "C":
		t.cpuTime = number != 0
	case "S":
		t.timestamped = number != 0
	case "M":
		t.memory = number != 0
	case "J":
		t.output = value
	case "d":
		i := slices.IndexFunc(ncclTypes, func(known ncclType) bool { return known.name == value })
		switch {
		case i >= 0:
			t.types = ncclTypes[i : i+1]
		case value == "all":
			t.types = ncclTypes
		default:
			p.printf("invalid type %s, defaulting to float .. \n", value)
		}
	case "o":
		switch {
		case slices.Contains(ncclOps, value):
			t.ops = []string{value}
		case value == "all":
			t.ops = ncclOps
		default:
			p.printf("invalid op %s, defaulting to sum .. \n", value)
		}
	case "R":
		if number == 2 {
			p.printf("Option -R 2 (symmetric) is not supported before NCCL 2.27. Defaulting to local registration\n")
		}
	case "x":
		p.printf("Option -x (cta_policy) is not supported before NCCL 2.27. Ignoring\n")
	case "D":
		fmt.Fprint(p.stderr, "Option -D (device implementation) requires NCCL >= 2.28.0\n")
		fine = false
	case "V":
		fmt.Fprint(p.stderr, "Option -V (device CTA count) requires NCCL >= 2.28.0\n")
		fine = false
	}
	return code(badOption), fine
}

// leadingInt is strtol: the number that a text begins with, or 0.
func leadingInt(text string) int {
	end := 0
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || end == 0 && text[end] == '-') {
		end++
	}
	n, _ := strconv.Atoi(text[:end])
	return n
}

// parseSize reads bytes with K, M or G, which are binary.
func parseSize(text string) (int64, bool) {
	unit := 1.0
	if text != "" {
		switch text[len(text)-1] {
		case 'G', 'g':
			unit = 1 << 30
		case 'M', 'm':
			unit = 1 << 20
		case 'K', 'k':
			unit = 1 << 10
		}
	}
	if unit != 1 {
		text = text[:len(text)-1]
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return int64(n * unit), err == nil && n >= 0 && n*unit < 1<<62
}

// run is the program up to its end in rank 0.
func (j *ncclJob) run(ctx context.Context) ended {
	first := j.procs[0]
	j.openJSON()
	if end := j.reportDevices(); end.exit.Code != 0 {
		return end
	}
	j.limitMemory()
	if end, ok := j.wait(ctx, ncclInit); !ok {
		return end
	}
	late := j.logInit()
	first.printf("%s", j.header())
	j.json.openResults()
	for _, p := range j.procs {
		for _, d := range j.devicesOf(p) {
			j.held = append(j.held, p.node.LoadGPU(d.slot, collectiveLoad))
		}
	}
	for _, kind := range j.types {
		for _, op := range j.ops {
			if end, ok := j.timeTest(ctx, kind, op, late); !ok {
				return end
			}
			late = nil
		}
	}
	return j.conclude()
}

// devicesOf are the GPUs of a process, as far as they are there.
func (j *ncclJob) devicesOf(p *ncclProc) []device {
	all := devices(p.node)
	from := p.local * j.perProc()
	return all[min(from, len(all)):min(from+j.perProc(), len(all))]
}

// deviceLines is how much a process says of its GPUs: the program's buffer.
const deviceLines = 2048

// reportDevices prints what the run is about, and each process's GPUs.
func (j *ncclJob) reportDevices() ended {
	first := j.procs[0]
	first.printf("# nccl-tests version %s nccl-headers=%d nccl-library=%d\n", ncclTestsVersion, ncclVersionCode, ncclVersionCode)
	first.printf("# Collective test starting: %s\n", ncclProgram)
	step, unit := j.step, "bytes"
	if j.factor > 1 {
		step, unit = j.factor, "factor"
	}
	first.printf("# nThread %d nGpus %d minBytes %d maxBytes %d step: %d(%s) warmup iters: %d iters: %d agg iters: %d validation: %d graph: %d\n",
		j.threads, j.gpus, j.min, j.max, step, unit, j.warmup, j.iters, j.agg, j.check, j.graph)
	if j.blocking {
		first.printf("# Blocking Enabled: wait for completion and barrier after each collective \n")
	}
	if j.parallel {
		first.printf("# Parallel Init Enabled: threads call into NcclInitRank concurrently \n")
	}
	first.printf("#\n# Using devices\n")
	j.json.config(j.ncclTests)
	texts := make([]string, len(j.procs))
	for rank, p := range j.procs {
		available := len(devices(p.node))
		if need := (p.local + 1) * j.perProc(); need > available {
			fmt.Fprintf(p.stderr, "Invalid number of GPUs: %d requested but only %d were found.\n"+
				"Please check the number of processes and GPUs per process.\n", need, available)
			return j.fail(rank, testNotImplemented, "", 1189)
		}
		for i, d := range j.devicesOf(p) {
			if d.lost {
				return j.fail(rank, testCudaError, fmt.Sprintf("%s: Test CUDA failure util.cu:566 'unknown error'", shortHost(p.node)), 1189)
			}
			texts[rank] += fmt.Sprintf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n",
				rank*j.perProc()+i, 0, p.pid, shortHost(p.node), d.index, cudaBus(d), rack.GPUModel)
		}
		if len(texts[rank]) >= deviceLines {
			texts[rank] = texts[rank][:deviceLines-5] + "...\n"
		}
	}
	for _, text := range texts {
		first.printf("%s", text)
	}
	j.json.devices(j)
	return ended{}
}

// shortHost is the host's name up to its first dot.
func shortHost(n *rack.Node) string {
	name, _, _ := strings.Cut(n.Name, ".")
	return name
}

// cudaBus is the address of a GPU as CUDA gives it: domain, bus and device.
func cudaBus(d device) string { return strings.ToLower(d.gpu().BusID[:10]) }

// limitMemory makes the largest size one that fits: send, receive and expected
// buffers beside what is reserved.
func (j *ncclJob) limitMemory() {
	const gib = 1 << 30
	total := int64(rack.CUDAMemory) << 20
	buffers := int64(2)
	if j.check != 0 {
		buffers = 3
	}
	reserved := min((total+16*gib-1)/(16*gib)*gib, 4*gib)
	if limit := (total - reserved - gib) / buffers; j.max > limit {
		j.max = limit
		j.min = min(j.min, limit)
		j.procs[0].printf("#\n# Reducing maxBytes to %d due to memory limitation\n", limit)
	}
}

// wait lets time pass for all processes. It does not end where a node of them
// hangs: the others wait for it. It is false if the run ends there.
func (j *ncclJob) wait(ctx context.Context, d time.Duration) (ended, bool) {
	if exit := pause(ctx, d); exit.Signal != "" {
		return ended{exit: exit}, false
	}
	if !slices.ContainsFunc(j.procs, func(p *ncclProc) bool { return p.node.Hung() }) {
		return ended{}, true
	}
	if j.timeout == 0 || j.at == nil {
		<-ctx.Done()
		return ended{exit: sshserver.Exit{Signal: "TERM"}}, false
	}
	if exit := pause(ctx, time.Duration(j.timeout)*time.Second); exit.Signal != "" {
		return ended{exit: exit}, false
	}
	text := fmt.Sprintf("%s: Test timeout (%ds) common.cu:443", shortHost(j.procs[0].node), j.timeout)
	return j.fail(0, testTimeout, text, j.trace()...), false
}

// trace are the places of a failure in a collective, up the calls.
func (j *ncclJob) trace() []int { return slices.Concat(j.at, []int{-561, 762, 1508, 1189}) }

// fail is the failure of one process: what went wrong and where, and then the
// places up the calls; a negative one is in all_reduce.cu.
func (j *ncclJob) fail(rank, status int, text string, places ...int) ended {
	p := j.procs[rank]
	if text != "" {
		p.printf("%s\n", text)
	}
	for i, line := range places {
		if j.json != nil && rank == 0 && i == len(places)-1 {
			break // the writer of the JSON ends the process before that
		}
		file := "common.cu"
		if line < 0 {
			file, line = "all_reduce.cu", -line
		}
		p.printf(" .. %s pid %d: Test failure %s:%d\n", shortHost(p.node), p.pid, file, line)
	}
	return ended{code(status), rank}
}

// header is the head of the table.
func (j *ncclJob) header() string {
	label, form, pad := "", "", 0
	if j.timestamped {
		label, form, pad = "timestamp", "%Y-%m-%d %H:%M:%S", 19
	}
	clock := "time"
	if j.cpuTime {
		clock = "cputime"
	}
	return "#\n" +
		fmt.Sprintf("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          \n", "", "", "", "", "") +
		fmt.Sprintf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s %*s\n", "size", "count", "type", "redop", "root",
			clock, "algbw", "busbw", "#wrong", clock, "algbw", "busbw", "#wrong", pad, label) +
		fmt.Sprintf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s %*s\n", "(B)", "(elements)", "", "", "",
			"(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "", pad, form)
}

// timeTest runs all sizes of one type and operation. late is what other
// processes say while rank 0 has begun a row.
func (j *ncclJob) timeTest(ctx context.Context, kind ncclType, op string, late func()) (ended, bool) {
	j.at = []int{549, 725}
	for size := max(1, j.min); size <= j.max; size *= 2 {
		if _, end, ok := j.collectives(ctx, size/kind.size*kind.size, kind, j.warmup); !ok {
			return end, false
		}
	}
	for cycle := 0; j.cycles == 0 || cycle < max(1, j.cycles); cycle++ {
		for size := j.min; size <= j.max; {
			count := size / kind.size
			row := ncclRow{bytes: count * kind.size, count: count, kind: kind.name, op: op}
			j.procs[0].printf("%12d  %12d  %8s  %6s  %6s", row.bytes, row.count, row.kind, row.op, "    -1")
			if late != nil {
				late()
				late = nil
			}
			for half := range 2 {
				end, ok := j.benchTime(ctx, kind, &row, half)
				if !ok {
					return end, false
				}
			}
			j.json.result(row, j.ncclTests)
			if j.factor <= 1 {
				size += max(1, j.step)
				continue
			}
			if size == 0 || size > j.max/j.factor {
				break
			}
			size *= j.factor
		}
	}
	return ended{}, true
}

// ncclRow is one line of the table.
type ncclRow struct {
	bytes, count int64
	kind, op     string
	halves       [2]ncclHalf // out of place, in place
}

type ncclHalf struct {
	micros, algBw, busBw float64
	wrong                int64
}

// benchTime measures one half of a row and prints it, as one write: with the
// head of the row they are three, and a launcher may put something between.
func (j *ncclJob) benchTime(ctx context.Context, kind ncclType, row *ncclRow, half int) (ended, bool) {
	j.at = []int{549, 562, 734 + half}
	if _, end, ok := j.collectives(ctx, row.bytes, kind, 1); !ok {
		return end, false
	}
	times := max(1, j.iters*j.agg*max(1, j.graph))
	j.at = []int{549, 613, 734 + half}
	sum, end, ok := j.collectives(ctx, row.bytes, kind, times)
	if !ok {
		return end, false
	}
	seconds := sum.Seconds / float64(times)
	ranks := float64(j.ranks())
	h := ncclHalf{micros: seconds * 1e6, algBw: float64(row.bytes) / 1e9 / seconds}
	h.busBw = h.algBw * 2 * (ranks - 1) / ranks
	if j.cpuTime {
		h.micros = min(h.micros, 6+2*float64(j.gpus)) // what a launch takes
	}
	j.at = []int{549, 671, 734 + half}
	for range j.check {
		checked, end, ok := j.collectives(ctx, row.bytes, kind, 1)
		if !ok {
			return end, false
		}
		if h.wrong = checked.Wrong; h.wrong > 0 {
			j.wrong += len(j.procs)
			break
		}
	}
	row.halves[half] = h
	j.bus += h.busBw
	j.rows++
	wrong := "   N/A"
	if j.check != 0 {
		wrong = fmt.Sprintf("%6s", strconv.FormatFloat(float64(h.wrong), 'g', 6, 64))
	}
	text := fmt.Sprintf("  %7s  %6s  %6s  %s", ncclFloat(h.micros, 7), ncclFloat(h.algBw, 6), ncclFloat(h.busBw, 6), wrong)
	if half == 1 {
		if j.timestamped {
			text += fmt.Sprintf("%21s", time.Now().UTC().Format(time.DateTime))
		}
		text += "\n"
	}
	j.procs[0].printf("%s", text)
	return ended{}, true
}

// ncclFloat is getFloatStr of util.cu.
func ncclFloat(value float64, width int) string {
	power := 0
	for limit := 1.0; value >= limit; limit *= 10 {
		power++
	}
	switch {
	case power < width-2:
		return fmt.Sprintf("%*.2f", width, value)
	case power < width-1:
		return fmt.Sprintf("%*.1f", width, value)
	case power < width+1:
		return fmt.Sprintf("%*.0f", width, value)
	case width >= 7:
		return fmt.Sprintf("%*.1e", width, value)
	}
	return fmt.Sprintf("%*.0e", width, value)
}

// clockStep is how far the modelled time may run ahead of the clock.
const clockStep = 10 * time.Millisecond

// collectives runs one all-reduce so many times, one after another, in the
// time that they take. The sum of their times is exact; of wrong elements it
// is the last one's.
func (j *ncclJob) collectives(ctx context.Context, bytes int64, kind ncclType, times int) (rack.CollectiveResult, ended, bool) {
	c := rack.Collective{PerNode: j.perNode, Bytes: bytes, Element: kind.size, Ring: ringAsked(j.procs[0].env)}
	for _, p := range j.procs {
		if !slices.Contains(c.Nodes, p.node) {
			c.Nodes = append(c.Nodes, p.node)
		}
	}
	var sum rack.CollectiveResult
	var ahead time.Duration
	for range times {
		result, err := c.Nodes[0].Rack().AllReduce(c, j.draws)
		if err != nil {
			return sum, j.lose(err), false
		}
		j.draws++
		sum.Seconds += result.Seconds
		sum.Wrong = result.Wrong
		j.procs[0].log.tuned(bytes, result)
		if ahead += time.Duration(result.Seconds * float64(time.Second)); ahead >= clockStep {
			if end, ok := j.wait(ctx, ahead); !ok {
				return sum, end, false
			}
			ahead = 0
		}
	}
	end, ok := j.wait(ctx, ahead)
	return sum, end, ok
}

// lose is the end of a run whose GPU has gone: the process that has it fails,
// and the others wait until they are ended.
func (j *ncclJob) lose(err error) ended {
	rank := 0
	var part *rack.PartError
	lost := errors.As(err, &part)
	for i, p := range j.procs {
		mine := j.devicesOf(p)
		if lost && p.node.Name == part.Node && slices.ContainsFunc(mine, func(d device) bool { return d.slot == part.Slot }) ||
			!lost && len(mine) < j.perProc() {
			rank = i
			break
		}
	}
	p := j.procs[rank]
	p.log.warn("misc/strongstream.cc:395", "Cuda failure 'unspecified launch failure'")
	text := fmt.Sprintf("%s: Test CUDA failure common.cu:419 'unspecified launch failure'", shortHost(p.node))
	return j.fail(rank, testCudaError, text, j.trace()...)
}

// conclude prints what is below the table.
func (j *ncclJob) conclude() ended {
	first := j.procs[0]
	for _, p := range j.procs {
		p.log.destroyed()
	}
	average := j.bus / float64(j.rows)
	verdict := "OK"
	if j.wrong > 0 {
		verdict = "FAILED"
	}
	first.printf("# %-20s : %d %s\n", "Out of bounds values", j.wrong, verdict)
	limit, bound := environment(first.env, "NCCL_TESTS_MIN_BW")
	least := -1.0
	judged := ""
	if bound {
		least, _ = strconv.ParseFloat(limit, 64) // atof: what is no number is 0
		if judged = "OK"; average < 0.9*least {
			judged = "FAILED"
		}
	}
	first.printf("# %-20s : %s %s\n", "Avg bus bandwidth", strconv.FormatFloat(average, 'g', 6, 64), judged)
	first.printf("#\n# Collective test concluded: %s\n", ncclProgram)
	if j.memory {
		buffers := int64(2)
		if j.check != 0 {
			buffers = 3
		}
		first.printf("# %-20s : %s\n", "GPU memory usage", ncclMemory(3<<30, buffers*j.max, 0))
	}
	first.printf("#\n\n")
	j.json.footer(j.wrong, average, judged)
	if j.wrong == 0 && (math.IsNaN(average) || average >= 0.9*least) {
		return ended{}
	}
	for rank := range j.procs {
		j.fail(rank, testNumResults, "")
		j.procs[rank].printf(" .. %s pid %d: Test failure common.cu:1189\n", shortHost(j.procs[rank].node), j.procs[rank].pid)
	}
	return ended{exit: code(testNumResults)}
}

// ncclMemory is the text of the report of memory, of what the communicator,
// the buffers and the collectives took.
func ncclMemory(amounts ...int64) string {
	names := []string{"Initialization", "User-Allocated", "Collective"}
	var parts []string
	total := int64(0)
	for i, amount := range amounts {
		parts = append(parts, names[i]+" "+memoryText(float64(amount))+" ")
		total += amount
	}
	return strings.Join(parts, "| ") + "| Total  " + memoryText(float64(total))
}

func memoryText(amount float64) string {
	unit := " B"
	for _, larger := range []string{" KB", " MB", " GB"} {
		if amount < 1024 {
			break
		}
		amount /= 1024
		unit = larger
	}
	precision := 0
	switch {
	case amount < 10:
		precision = 2
	case amount < 100:
		precision = 1
	}
	return strconv.FormatFloat(amount, 'f', precision, 64) + unit
}

// environment is the value of a variable.
func environment(env []string, name string) (string, bool) {
	for _, e := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// ringAsked reports whether the environment keeps NCCL from reducing in the
// switches.
func ringAsked(env []string) bool {
	algorithm, _ := environment(env, "NCCL_ALGO")
	enabled, _ := environment(env, "NCCL_NVLS_ENABLE")
	return enabled == "0" || strings.EqualFold(algorithm, "ring")
}

// unsupportedNccl says which setting asks for what the rack's model has not.
func unsupportedNccl(env []string) string {
	for _, name := range []string{"NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"} {
		if value, _ := environment(env, name); value != "" && value != "0" {
			return name + "=" + value
		}
	}
	if algorithm, _ := environment(env, "NCCL_ALGO"); algorithm != "" && !slices.Contains([]string{"ring", "nvls"}, strings.ToLower(algorithm)) {
		return "NCCL_ALGO=" + algorithm
	}
	if net, _ := environment(env, "NCCL_NET"); net != "" && !strings.EqualFold(net, "IB") {
		return "NCCL_NET=" + net
	}
	return ""
}

// isNcclTests reports whether a program is the one that runs in all processes
// together.
func isNcclTests(program string) bool { return path.Base(program) == ncclProgram }
