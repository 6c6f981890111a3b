package sim

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// The file that all_reduce_perf -J writes (util.cu): one object on one line,
// with booleans and root as strings.

// ncclJSON is the document as far as it was written.
type ncclJSON struct {
	files   *files
	name    string
	text    strings.Builder
	results int
}

// jsonBlock is what the C library keeps back of a file until more comes.
const jsonBlock = 4096

// openJSON makes the file of rank 0, beside one that is there.
func (j *ncclJob) openJSON() {
	if !strings.EqualFold(path.Ext(j.output), ".json") {
		return
	}
	p := j.procs[0]
	name := j.output
	for try := 0; ; try++ {
		_, err := p.files.read(name)
		if err == nil {
			name = fmt.Sprintf("%s.%d", j.output, try)
			continue
		}
		if err != errNoEntry || p.files.write(name, nil, false) != nil {
			p.printf("# skipping json output; %s not accessible\n", name)
			return
		}
		break
	}
	p.printf("# Writing JSON output to %s\n", name)
	w := &ncclJSON{files: p.files, name: name}
	j.json = w
	w.add(`{"version":1,"start_time":%s,"args":%s,"env":%s,"nccl_version":%d`,
		quoteNccl(jsonNow()), quotesNccl(p.argv), quotesNccl(processEnv(p.env)), ncclVersionCode)
}

// processEnv is the whole environment of a process: that of a login, and what
// was set. A login has secrets, which the file then has too.
func processEnv(env []string) []string {
	login := []string{
		"SHELL=/bin/bash", "HOME=/root", "LANG=C.UTF-8", "LD_LIBRARY_PATH=/usr/local/cuda/lib64:/opt/hpcx/ompi/lib",
		"PATH=" + searchPath, "HF_TOKEN=hf_simulatedSecretThatNobodyMayKeep", "AWS_SECRET_ACCESS_KEY=simulated/secret+key",
	}
	login = slices.DeleteFunc(login, func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		_, set := environment(env, name)
		return set
	})
	return append(login, env...)
}

func jsonNow() string { return time.Now().UTC().Format(time.DateTime) }

func (w *ncclJSON) add(format string, args ...any) {
	if w != nil {
		fmt.Fprintf(&w.text, format, args...)
	}
}

func (w *ncclJSON) config(t ncclTests) {
	step := fmt.Sprintf(`"step_bytes":%d`, t.step)
	if t.factor > 1 {
		step = fmt.Sprintf(`"step_factor":%d`, t.factor)
	}
	w.add(`,"config":{"nthreads":%d,"ngpus":%d,"minimum_bytes":%d,"maximum_bytes":%d,%s,"warmup_iters":%d,"iterations":%d,`+
		`"aggregated_iterations":%d,"validation":%d,"graph":%d,"blocking_collectives":"%t","parallel_init":"%t"`,
		t.threads, t.gpus, t.min, t.max, step, t.warmup, t.iters, t.agg, t.check, t.graph, t.blocking, t.parallel)
}

// devices lists the GPUs: the program reads back what each process said, and
// of that only the first line.
func (w *ncclJSON) devices(j *ncclJob) {
	w.add(`,"devices":[`)
	for i, p := range j.procs {
		if i > 0 {
			w.add(",")
		}
		d := j.devicesOf(p)[0]
		w.add(`{"rank":%d,"group":0,"pid":%d,"hostname":%s,"device":%d,"device_hex":%s,"device_info":%s}`,
			i*j.perProc(), p.pid, quoteNccl(shortHost(p.node)), d.index, quoteNccl(cudaBus(d)), quoteNccl(rack.GPUModel))
	}
	w.add("]}")
}

func (w *ncclJSON) openResults() { w.add(`,"results":[`) }

func (w *ncclJSON) result(r ncclRow, t ncclTests) {
	if w == nil {
		return
	}
	if w.results > 0 {
		w.add(",")
	}
	w.results++
	w.add(`{"size":%d,"count":%d,"type":%s,"redop":%s,"root":"    -1"`, r.bytes, r.count, quoteNccl(r.kind), quoteNccl(r.op))
	clock := "time"
	if t.cpuTime {
		clock = "cpu_time"
	}
	for i, place := range []string{"out_of_place", "in_place"} {
		h := r.halves[i]
		wrong := "null"
		if t.check != 0 {
			wrong = jsonDouble(float64(h.wrong))
		}
		w.add(`,"%s":{"%s":%s,"alg_bw":%s,"bus_bw":%s,"nwrong":%s}`, place, clock, jsonDouble(h.micros), jsonDouble(h.algBw), jsonDouble(h.busBw), wrong)
	}
	w.add(`,"actual_iterations":%d,"experiment_name":""}`, t.iters)
}

// footer closes the results; judged is what the program says of the average,
// or nothing.
func (w *ncclJSON) footer(wrong int, average float64, judged string) {
	okay := map[string]string{"": "unchecked", "OK": "true", "FAILED": "false"}[judged]
	w.add(`],"out_of_bounds":{"count":%d,"okay":"%t"},"average_bus_bandwidth":{"bandwidth":%s,"okay":"%s"},"errors":[""],"end_time":%s}`,
		wrong, wrong == 0, jsonDouble(average), okay, quoteNccl(jsonNow()))
}

// close writes the file. A run that failed leaves the document open, on which
// this release's writer ends by an assertion; what the C library still had of
// the file is then lost, as it is when the process is killed.
func (j *ncclJob) close(end ended) ended {
	if j.json == nil {
		return end
	}
	text := j.json.text.String()
	whole := strings.HasSuffix(text, "}") && j.rows > 0 && (end.exit == code(0) || end.exit == code(testNumResults))
	if !whole {
		text = text[:len(text)/jsonBlock*jsonBlock]
	}
	// The file was made when the run began, so this writes it.
	_ = j.json.files.write(j.json.name, []byte(text), false)
	if whole || end.rank != 0 || end.exit.Code == 0 {
		return end
	}
	fmt.Fprintf(j.procs[0].stderr, "%s: util.cu:160: void jsonKey(const char*): Assertion `0' failed.\n", ncclProgram)
	return ended{exit: sshserver.Exit{Signal: "ABRT"}}
}

// jsonDouble is a number as the program prints it: C's %lf.
func jsonDouble(v float64) string {
	if math.IsNaN(v) {
		return `"nan"`
	}
	return strconv.FormatFloat(v, 'f', 6, 64)
}

// quoteNccl quotes a text as the program does, which ends it at the first
// character that it does not know.
func quoteNccl(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch ch := text[i]; {
		case ch == '"' || ch == '\\' || ch == '/':
			b.WriteByte('\\')
			b.WriteByte(ch)
		case ch == '\t':
			b.WriteString(`\t`)
		case ch == '\n':
			b.WriteString(`\n`)
		case ch >= 0x7f || ch <= 0x1f:
			return b.String() + `"`
		default:
			b.WriteByte(ch)
		}
	}
	return b.String() + `"`
}

func quotesNccl(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quoteNccl(text)
	}
	return "[" + strings.Join(quoted, ",") + "]"
}
