package checks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// ncclAllreduce runs all_reduce_perf of nccl-tests on the GPUs of a node, of
// two nodes, or of all.
type ncclAllreduce struct{}

func (ncclAllreduce) Spec() Spec {
	return Spec{
		Name: "nccl_allreduce",
		Doc: "Runs all_reduce_perf of nccl-tests, 2.0.0 (2019-03) or newer, on all GPUs of each node (scope \"node\"), of every two nodes (\"pair\"), or of all nodes together (\"fleet\"), with its check of the data and the time of the slowest rank. " +
			"A result counts only if the program listed every GPU of every node of the cell, measured every size that was asked for, came to its end, and its numbers agree with each other. " +
			"NCCL's own log says how the ranks talked: bind algorithm, transport and gdrdma beside the rates, since 3 GB/s over sockets is a number too. " +
			"In scope \"pair\" each pair is measured once and reported for either node with the other as its peer, so that per = \"node\" tells a bad node from a bad link. " +
			"Bus bandwidth is 2(n-1)/n times the algorithm bandwidth of n ranks (nccl-tests, doc/PERFORMANCE.md); GB is 1e9 bytes.",
		Version: 1,
		Scopes:  []evidence.Scope{evidence.ScopeNode, evidence.ScopePair, evidence.ScopeFleet},
		Loads:   []string{"gpu"}, FleetLoads: []string{"fabric"},
		Needs: []evidence.Capability{evidence.CapExec},
		Params: []evidence.Param{
			{Name: "sizes", Type: evidence.ParamStrings, Required: true, Doc: "The sizes in bytes, in rising order, such as [\"8GiB\", \"16GiB\"]. A geometric series with a whole factor is one run of the program, anything else one run for each size."},
			{Name: "iterations", Type: evidence.ParamNumber, Whole: true, Default: 20, Doc: "All-reduces that are timed together, for each size (-n)."},
			{Name: "warmup", Type: evidence.ParamNumber, Whole: true, Default: 5, Doc: "All-reduces before that (-w)."},
			{Name: "datatype", Type: evidence.ParamString, Default: "float", Enum: ncclDatatypes, Doc: "The type of the elements (-d)."},
			{Name: "gpus_per_node", Type: evidence.ParamNumber, Whole: true, Doc: fmt.Sprintf("GPUs of each node; what the fleet expects of gpus by default, or %d.", usualGPUs)},
			{Name: "binary", Type: evidence.ParamString, Default: "all_reduce_perf", Doc: "The program, by name or path, on every node. For a launcher other than process it must have been built with MPI=1."},
			{Name: "launcher", Type: evidence.ParamString, Enum: []string{ncclProcess, ncclMpirun, ncclSrun, ncclGang}, Doc: "How the ranks are started: process (one process with all GPUs, in scope \"node\" only and its default), mpirun (Open MPI; the default elsewhere), srun (Slurm), gang (the command in gang)."},
			{Name: "launcher_args", Type: evidence.ParamStrings, Doc: "Further arguments of mpirun or srun, such as [\"--bind-to\", \"numa\"]."},
			{Name: "gang", Type: evidence.ParamArgv, Doc: "The command of another launcher, which the program and its arguments follow. " + hostfileMark + " stands for a file with one node a line, " + ranksMark + ", " + nodesMark + " and " + perNodeMark + " for their numbers. It must pass its environment on, and what the first rank prints as it is."},
			{Name: "env", Type: evidence.ParamStrings, Doc: "Settings of NCCL, UCX and Open MPI, such as [\"NCCL_NVLS_ENABLE=0\"]."},
			{Name: "output", Type: evidence.ParamString, Default: ncclText, Enum: []string{ncclText, ncclJSON}, Doc: "text reads the program's table; json (nccl-tests 2.17.3 or newer) has it write a JSON document too, fetches that without the environment that is in it, and wants both to agree."},
			{Name: "per_iteration", Type: evidence.ParamBool, Default: false, Doc: "Whether single iterations are timed too (-I 1, nccl-tests 2.19.2 or newer), for iteration_p99 and iteration_cv."},
			{Name: "directory", Type: evidence.ParamString, Default: "/var/tmp", Doc: "Where each node has room for a directory with NCCL's logs, which is removed afterwards. It must be there already."},
		},
		Validate: func(p json.RawMessage) error {
			params, err := readNcclParams(p)
			if err != nil {
				return err
			}
			return params.validate()
		},
		Metrics: func(p json.RawMessage) []Metric {
			params, err := readNcclParams(p)
			if err != nil || len(params.Sizes) > 0 && params.validate() != nil {
				return nil
			}
			return params.metrics() // without sizes for the list of them
		},
		Facts: func(json.RawMessage) []FactSpec { return slices.Clone(ncclFacts) },
		Subjects: func(f evidence.Fleet, nodes []string, scope evidence.Scope, metric string, p json.RawMessage) []evidence.Subject {
			params, err := readNcclParams(p)
			if err != nil || params.validate() != nil {
				return nil
			}
			cell := nodes
			switch {
			case scope == evidence.ScopeNode:
				cell = nodes[:min(1, len(nodes))]
			case scope == evidence.ScopePair:
				cell = nodes[:min(2, len(nodes))]
			}
			if _, err := newNcclLaunch(params, "", f, scope, cell); err != nil {
				return nil
			}
			if slices.ContainsFunc(ncclFacts, func(fact FactSpec) bool { return fact.Name == metric && fact.Level == "node" }) {
				return nodeSubjects(nodes)
			}
			return cellSubjects(scope, nodes)
		},
	}
}

// ncclFacts are the facts of a cell and of its nodes.
var ncclFacts = []FactSpec{
	{Name: "nccl_version", Level: LevelCell, Doc: "The release of NCCL that was loaded, such as 2.21.5."},
	{Name: "nccl_tests_version", Level: LevelCell, Doc: "The release of nccl-tests, which 2.17.3 and newer print."},
	{Name: "algorithm", Level: LevelCell, Doc: "NCCL's algorithms for the sizes that were asked for, joined by \",\": Ring, Tree, CollNetDirect, CollNetChain, NVLS, NVLSTree, PAT. NCCL 2.20 and newer log them."},
	{Name: "transport", Level: "node", Doc: "What carried the data between nodes, joined by \",\", such as NET/IB, and NET/Socket where NCCL fell back to TCP; of one node alone what carried it inside, such as P2P/CUMEM."},
	{Name: "gdrdma", Level: "node", Doc: "Whether the channels of the network use GPUDirect RDMA: yes, no or some."},
	{Name: "hcas", Level: "node", Doc: "The InfiniBand and RoCE devices that NCCL uses, joined by \",\"."},
	{Name: "channels", Level: "node", Doc: "The number of channels of a collective, such as 24."},
}

// cellSubjects are the subjects of what is measured of a cell as a whole: see
// LevelCell.
func cellSubjects(scope evidence.Scope, nodes []string) []evidence.Subject {
	switch scope {
	case evidence.ScopeNode:
		return nodeSubjects(nodes)
	case evidence.ScopePair:
		subjects := make([]evidence.Subject, 0, len(nodes)*(len(nodes)-1))
		for _, node := range nodes {
			for _, peer := range nodes {
				if peer != node {
					subjects = append(subjects, evidence.Subject(node+"/"+peer))
				}
			}
		}
		return subjects
	}
	return []evidence.Subject{evidence.SubjectFleet}
}

func readNcclParams(p json.RawMessage) (ncclParams, error) {
	var params ncclParams
	if err := evidence.DecodeStrict(p, &params); err != nil {
		return ncclParams{}, fmt.Errorf("parameters of nccl_allreduce: %w", err)
	}
	return params, nil
}

func (p ncclParams) metrics() []Metric {
	var sizes, runs []string
	for _, size := range p.Sizes {
		sizes = append(sizes, evidence.FormatBytes(uint64(size)))
	}
	for i := range p.runs() {
		runs = append(runs, strconv.Itoa(i+1))
	}
	size := Label{Name: "size", Values: sizes}
	both := []Label{size, {Name: "place", Values: ncclPlaces[:]}}
	run := []Label{{Name: "run", Values: runs}}
	metrics := []Metric{
		{Name: "busbw", Unit: "GB/s", Level: LevelCell, Labels: both, Resolution: 0.01, Doc: "Bus bandwidth of one size, out of place and in place."},
		{Name: "algbw", Unit: "GB/s", Level: LevelCell, Labels: both, Resolution: 0.01, Doc: "Algorithm bandwidth: bytes of the buffer over the time."},
		{Name: "time", Unit: "us", Level: LevelCell, Labels: both, Resolution: 1, Doc: "The mean time of an all-reduce on the slowest rank."},
		{Name: "wrong_elements", Unit: "1", Level: LevelCell, Labels: []Label{size}, Accumulates: true, Resolution: 1, Doc: "Elements of the result that are wrong on some rank, in both places together."},
		{Name: "avg_busbw", Unit: "GB/s", Level: LevelCell, Labels: run, Resolution: 0.01, Doc: "The program's own average over all sizes of a run and both places. It says little: bind busbw at a size."},
		{Name: "ranks", Unit: "1", Level: LevelCell, Labels: run, Resolution: 1, Doc: "GPUs in the program's list of devices."},
	}
	if p.PerIteration {
		metrics = append(metrics,
			Metric{Name: "iteration_p99", Unit: "us", Level: LevelCell, Labels: both, Resolution: 1, Doc: "The 99th percentile of the times of single iterations, as the program computed it; with fewer than 100 iterations it is the largest."},
			Metric{Name: "iteration_cv", Unit: "%", Level: LevelCell, Labels: both, Resolution: 0.01, Doc: "The standard deviation of the times of single iterations over their mean."})
	}
	return metrics
}

func (ncclAllreduce) Drive(ctx context.Context, b Bench) error {
	var params ncclParams
	if err := b.Params(&params); err != nil {
		return err
	}
	test := b.Test()
	l, err := newNcclLaunch(params, test.Name, b.Fleet(), test.Scope, b.Nodes())
	if err != nil {
		return &evidence.Problem{Class: evidence.ClassNotRun, Detail: err.Error()}
	}
	command := func(step string) func(string) Command {
		return func(node string) Command { return Command{Node: node, Argv: l.argv(step)} }
	}
	if err := b.ExecAll(ctx, ncclHostStep, l.nodes, command(ncclHostStep)); err != nil {
		return err
	}
	for _, node := range l.nodes {
		if err := b.Cleanup(ncclCleanStep, command(ncclCleanStep)(node)); err != nil {
			return err
		}
	}
	for _, step := range []string{ncclDirectoryStep, ncclSweepStep} {
		if err := insist(ctx, b, step, l.nodes, command(step), evidence.ClassExit, "the directory for NCCL's logs cannot be made below "+params.Directory); err != nil {
			return err
		}
	}
	if l.needsHostfile() {
		written := func(node string) Command {
			return Command{Node: node, Argv: l.argv(ncclHostfileStep), Stdin: l.hostfile()}
		}
		if err := insist(ctx, b, ncclHostfileStep, []string{l.first()}, written, evidence.ClassExit, "the hostfile cannot be written"); err != nil {
			return err
		}
	}
	for i := range params.runs() {
		if _, err := b.Exec(ctx, ncclRunStep(i+1), command(ncclRunStep(i+1))(l.first())); err != nil {
			return err
		}
		if params.Output == ncclJSON {
			// The launcher may have put the first rank on any node.
			if err := b.ExecAll(ctx, ncclResultStep(i+1), l.nodes, command(ncclResultStep(i+1))); err != nil {
				return err
			}
		}
	}
	return b.ExecAll(ctx, ncclLogStep, l.nodes, command(ncclLogStep))
}

func (ncclAllreduce) Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	params, err := readNcclParams(c.Test.Params)
	if err != nil {
		return nil, nil, err
	}
	if err := params.validate(); err != nil {
		return nil, nil, err
	}
	l, err := newNcclLaunch(params, c.Test.Name, c.Fleet, c.Test.Scope, c.Nodes)
	m := ncclMeasure{
		collector: newCollector(c, raw, func(step, _ string) commandLine { return exactly(l.argv(step)) }),
		launch:    l, metrics: params.metrics(), subjects: cellSubjects(c.Test.Scope, l.nodes),
	}
	if err != nil {
		m.report("", "", evidence.ClassNotRun, "%v", err)
		return m.result()
	}
	hosts, sound := m.hosts()
	for _, node := range l.nodes {
		sound = m.housekeeping(node) && sound
	}
	var said []ncclTable
	ended := true
	for i, run := range params.runs() {
		table, ok := m.run(i+1, run, hosts, sound)
		said, ended = append(said, table), ended && ok
	}
	m.logs(said, ended)
	return m.result()
}

type ncclMeasure struct {
	*collector
	launch   ncclLaunch
	metrics  []Metric
	subjects []evidence.Subject
}

// hosts are the names that the nodes have for themselves, by which the program
// lists them: up to the first dot.
func (m ncclMeasure) hosts() (nodeOf map[string]string, ok bool) {
	nodeOf, ok = make(map[string]string), true
	for _, node := range m.launch.nodes {
		out, read := m.step(ncclHostStep, node)
		if !read {
			ok = false
			continue
		}
		name, rest, whole := strings.Cut(string(out.stdout), "\n")
		host := shortHost(name)
		switch other, taken := nodeOf[host]; {
		case !whole || rest != "" || host == "":
			m.report(node, ncclHostStep, evidence.ClassUnparsable, "uname -n did not print one name: %q", token(string(out.stdout)))
			ok = false
		case taken:
			m.report(node, ncclHostStep, evidence.ClassUnparsable, "nodes %s and %s both call themselves %q, so the ranks of one cannot be told from those of the other", other, node, name)
			ok = false
		default:
			nodeOf[host] = node
		}
	}
	return nodeOf, ok
}

// shortHost is a host's name as nccl-tests and NCCL cut it.
func shortHost(name string) string {
	short, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(name)), ".")
	return short
}

// housekeeping checks the steps around the runs on one node.
func (m ncclMeasure) housekeeping(node string) bool {
	sound := true
	for _, step := range []struct{ name, printed string }{
		{ncclDirectoryStep, "stdout should be empty"},
		{ncclSweepStep, "it is in the check's directory and not the check's"},
		{ncclCleanStep, "not removed"},
	} {
		out, ok := m.step(step.name, node)
		if ok && len(out.stdout) > 0 {
			m.report(node, step.name, evidence.ClassUnparsable, "%s: %q", step.printed, token(string(out.stdout)))
			ok = false
		}
		sound = sound && ok
	}
	if m.launch.needsHostfile() && node == m.launch.first() {
		out, ok := m.step(ncclHostfileStep, node)
		if ok && !bytes.Equal(out.stdout, m.launch.hostfile()) {
			m.report(node, ncclHostfileStep, evidence.ClassUnparsable, "the hostfile is not that of the cell: %q", token(string(out.stdout)))
			ok = false
		}
		sound = sound && ok
	}
	return sound
}

// anyStatus is every exit status: what one means depends on the output.
func anyStatus() []int {
	codes := make([]int, 256)
	for i := range codes {
		codes[i] = i
	}
	return codes
}

// run reads one run, and says whether it ended. What it measures counts only if
// everything was sound; but data that was wrong has been wrong, however the run
// ended.
func (m ncclMeasure) run(number int, run ncclRun, hosts map[string]string, sound bool) (ncclTable, bool) {
	step, node := ncclRunStep(number), m.launch.first()
	out, ended := m.step(step, node, anyStatus()...)
	table := readNcclTable(out.stdout)
	if !ended {
		for _, row := range table.rows {
			m.wrong(out, row, run, false)
		}
		return table, false
	}
	labels := map[string]string{"run": strconv.Itoa(number)}
	if m.listed(step, table, hosts) {
		m.measureCell("ranks", labels, reading{value: float64(len(table.devices)), source: out.at("%d", table.devices[len(table.devices)-1].line)})
	} else {
		sound = false
	}
	sound = m.complete(out, table) && m.asked(step, table, run) && sound
	if m.launch.params.Output == ncclJSON {
		sound = m.document(number, table) && sound
	}
	for _, row := range table.rows {
		m.wrong(out, row, run, sound)
	}
	if !sound {
		return table, true
	}
	for _, row := range table.rows {
		m.row(out, row)
	}
	average := table.average
	m.measureCell("avg_busbw", labels, reading{value: average.value.value, missing: average.value.missing, source: out.at("%d", average.line)})
	return table, true
}

// measureCell measures a metric of the cell.
func (m ncclMeasure) measureCell(metric string, labels map[string]string, r reading) {
	for _, subject := range m.subjects {
		m.measure(metricNamed(m.metrics, metric), subject, labels, r)
	}
}

// complete reports what shows that the program did not come to its end, or that
// its output is not whole.
func (m ncclMeasure) complete(out stepOutput, t ncclTable) bool {
	code := *out.exit.Code
	refuse := func(class evidence.Class, format string, args ...any) bool {
		m.report(out.node, out.step, class, format, args...)
		return false
	}
	footed := t.outOfBounds != nil && t.average != nil
	switch {
	case t.failure != "":
		return refuse(evidence.ClassExit, "nccl-tests failed, exit status %d: %s", code, token(t.failure))
	case (code == 126 || code == 127) && t.header.half == nil:
		return refuse(evidence.ClassToolMissing, "exit status %d: a program is missing or cannot be run%s", code, firstLine(out.stderr))
	case code != 0 && !footed:
		return refuse(evidence.ClassExit, "exit status %d and no whole table%s", code, complaint(out.stderr))
	case code != 0 && t.outOfBounds.judged != "FAILED" && t.average.judged != "FAILED":
		return refuse(evidence.ClassExit, "exit status %d, and nothing in the table explains it%s", code, complaint(out.stderr))
	}
	whole := true
	for _, fault := range t.faults {
		whole = refuse(fault.class, "%s", fault.detail)
	}
	if !whole {
		return false
	}
	if what := t.incomplete(); what != "" {
		return refuse(evidence.ClassOutputCut, "%s", what)
	}
	if what := t.disagreement(); what != "" {
		return refuse(evidence.ClassUnparsable, "%s", what)
	}
	for _, row := range t.rows {
		if what := row.disagreement(m.launch.ranks(), true); what != "" {
			return refuse(evidence.ClassUnparsable, "line %d: %s", row.line, what)
		}
	}
	return true
}

// complaint is ": " and the first line that says something, or nothing: Open
// MPI draws boxes of dashes around its messages.
func complaint(text []byte) string {
	for line := range bytes.Lines(text) {
		if len(bytes.Trim(line, "- \r\n")) > 0 {
			return firstLine(line)
		}
	}
	return ""
}

// asked reports where the program measured something else than it was asked
// for, by its own account.
func (m ncclMeasure) asked(step string, t ncclTable, run ncclRun) bool {
	p, node := m.launch.params, m.launch.first()
	wrong := ""
	ofProcess := int64(1)
	if p.Launcher == ncclProcess {
		ofProcess = int64(m.launch.gpus)
	}
	for _, said := range []struct {
		name string
		want int64
	}{
		{"nThread", 1}, {"nGpus", ofProcess}, {"minBytes", int64(run.sizes[0])}, {"maxBytes", int64(run.sizes[len(run.sizes)-1])},
		{"warmup iters", int64(p.Warmup)}, {"iters", int64(p.Iterations)}, {"validation", 1},
	} {
		if got, ok := t.config[said.name]; !ok {
			wrong = fmt.Sprintf("the program did not say its %s", said.name)
		} else if got != said.want {
			wrong = fmt.Sprintf("the program says %s %d, and %d was asked for", said.name, got, said.want)
		}
		if wrong != "" {
			break
		}
	}
	sizes := make([]uint64, len(t.rows))
	for i, row := range t.rows {
		sizes[i] = row.size
		if row.dtype != p.Datatype || row.op != "sum" {
			wrong = fmt.Sprintf("line %d is of type %s and operation %s, and %s and sum were asked for", row.line, token(row.dtype), token(row.op), p.Datatype)
		}
	}
	switch {
	case wrong != "":
	case !slices.Equal(sizes, run.sizes):
		wrong = fmt.Sprintf("the table has the sizes %v, and %v were asked for", sizes, run.sizes)
	case !slices.Contains(t.header.half, ncclTime):
		wrong = "the table has times of the CPU, which were not asked for"
	case p.PerIteration && !slices.Contains(t.header.half, "i_p99"):
		wrong = "the table has no times of single iterations: nccl-tests 2.19.2 is the first that prints them"
	default:
		return true
	}
	m.report(node, step, evidence.ClassUnparsable, "%s", wrong)
	return false
}

// listed reports whether the list of devices has every GPU of every node of the
// cell once; a program that was built without MPI lists its own.
func (m ncclMeasure) listed(step string, t ncclTable, nodeOf map[string]string) bool {
	if len(t.devices) == 0 && t.header.half == nil {
		return false // there is no output of the program, which is reported
	}
	l := m.launch
	refuse := func(format string, args ...any) bool {
		m.report(l.first(), step, evidence.ClassUnparsable, format, args...)
		return false
	}
	if len(t.devices) != l.ranks() {
		return refuse("the list of devices has %s, and %d were asked for (%s with %s each)", evidence.Count(len(t.devices), "rank"), l.ranks(), evidence.Count(len(l.nodes), "node"), evidence.Count(l.gpus, "GPU"))
	}
	count := make(map[string]int)
	seen := make(map[string]int)
	for i, device := range t.devices {
		node, known := nodeOf[shortHost(device.host)]
		place := fmt.Sprintf("%s %s", shortHost(device.host), device.bus)
		if !strings.Contains(device.bus, ":") {
			// Up to 2.15 there is no domain, so a bus is there once in each.
			place += fmt.Sprintf(" %d", device.device)
		}
		switch other, twice := seen[place]; {
		case device.rank != i:
			return refuse("the list of devices has rank %d where rank %d should be", device.rank, i)
		case device.group != t.devices[0].group:
			return refuse("rank %d is of group %d and rank 0 of group %d: the ranks were split", device.rank, device.group, t.devices[0].group)
		case !known:
			return refuse("rank %d is on host %q, which is none of the cell's nodes", device.rank, token(device.host))
		case twice:
			return refuse("ranks %d and %d are on the same GPU of host %q", other, device.rank, token(device.host))
		}
		seen[place] = i
		count[node]++
	}
	for _, node := range l.nodes {
		if count[node] != l.gpus {
			return refuse("%s of node %s in the list of devices, and %d were asked for", evidence.Count(count[node], "rank"), node, l.gpus)
		}
	}
	return true
}

// wrong measures the wrong elements of a row. In an output that is not sound
// only those that are there count.
func (m ncclMeasure) wrong(out stepOutput, row ncclRow, run ncclRun, sound bool) {
	r := reading{source: out.at("%d", row.line)}
	for _, half := range row.halves {
		r.value += half.wrong.value
		if half.wrong.missing != "" && r.missing == "" {
			r.missing = half.wrong.missing
		}
	}
	if r.value > 0 {
		r.missing = ""
	}
	if !sound && (r.value == 0 || !slices.Contains(run.sizes, row.size) || row.disagreement(0, true) != "") {
		return
	}
	m.measureCell("wrong_elements", map[string]string{"size": evidence.FormatBytes(row.size)}, r)
}

// row measures the rates and times of a row.
func (m ncclMeasure) row(out stepOutput, row ncclRow) {
	for place, half := range row.halves {
		labels := map[string]string{"size": evidence.FormatBytes(row.size), "place": ncclPlaces[place]}
		numbers := map[string]ncclNumber{"busbw": half.busbw, "algbw": half.algbw, "time": half.time}
		if m.launch.params.PerIteration {
			numbers["iteration_p99"], numbers["iteration_cv"] = half.p99, half.cv
		}
		for _, metric := range m.metrics {
			n, ok := numbers[metric.Name]
			if !ok {
				continue
			}
			if half.blank {
				n.missing = "(no result " + ncclPlaces[place] + " of place)"
			}
			m.measureCell(metric.Name, labels, reading{value: n.value, missing: n.missing, source: out.at("%d", row.line)})
		}
	}
}

// document reads the JSON document of a run, which one node has, and holds it
// against the table.
func (m ncclMeasure) document(number int, t ncclTable) bool {
	step := ncclResultStep(number)
	var found *stepOutput
	sound := true
	for _, node := range m.launch.nodes {
		out, ok := m.step(step, node)
		switch {
		case !ok:
			sound = false
		case len(out.stdout) == 0:
		case found != nil:
			m.report(node, step, evidence.ClassUnparsable, "nodes %s and %s both have a JSON document of one run", found.node, node)
			sound = false
		default:
			found = &out
		}
	}
	if !sound {
		return false
	}
	if found == nil {
		m.report("", step, evidence.ClassOutputCut, "no node has a JSON document of a form that is known: nccl-tests 2.17.3 is the first that writes one")
		return false
	}
	refuse := func(class evidence.Class, format string, args ...any) bool {
		m.report(found.node, step, class, format, args...)
		return false
	}
	if want := m.launch.resultPath(number); t.jsonPath != want {
		return refuse(evidence.ClassUnparsable, "the program says that it writes JSON to %q, and %q was asked for", token(t.jsonPath), want)
	}
	doc, err := readNcclJSON(found.stdout)
	if err != nil {
		return refuse(jsonClass(found.stdout, err), "the JSON document is not whole: %v", err)
	}
	if what := doc.difference(t); what != "" {
		return refuse(evidence.ClassUnparsable, "%s", what)
	}
	// A process lists the first of its GPUs.
	if m.launch.params.Launcher != ncclProcess && doc.ranks != m.launch.ranks() {
		return refuse(evidence.ClassUnparsable, "the JSON document lists %s, and %d were asked for", evidence.Count(doc.ranks, "rank"), m.launch.ranks())
	}
	return true
}

// logs reports the facts: of each node from its own log, and of the cell from
// what the logs and the runs say, if all of them ended.
func (m ncclMeasure) logs(said []ncclTable, ended bool) {
	nodes := m.launch.nodes
	var releases, tests []string
	for _, table := range said {
		releases, tests = noted(releases, table.release), noted(tests, table.version)
	}
	all, launcher := true, stepOutput{} // where the algorithms are
	algorithms := make(map[uint64][]string)
	for _, node := range nodes {
		out, ok := m.step(ncclLogStep, node)
		if !ok {
			all = false
			continue
		}
		log, err := readNcclLog(out.stdout)
		if err != nil {
			m.report(node, ncclLogStep, evidence.ClassOutputCut, "the digest of NCCL's logs is not whole: %v", err)
			all = false
			continue
		}
		if launcher.node == "" || len(log.algorithms) > 0 {
			launcher = out
		}
		missing := "(not in the log)"
		if log.empty {
			missing = "(no log of NCCL)"
		}
		for _, fact := range []struct{ name, value string }{
			{"transport", strings.Join(log.between(len(nodes)), ",")},
			{"gdrdma", log.gdrdma()},
			{"hcas", strings.Join(log.hcas, "; ")},
			{"channels", strings.Join(log.channels, ",")},
		} {
			m.maybe(fact.name, evidence.Subject(node), fact.value, missing, out.at("1"))
		}
		releases = noted(releases, log.release)
		for size, names := range log.algorithms {
			for _, name := range names {
				algorithms[size] = noted(algorithms[size], name)
			}
		}
	}
	algorithm, missing := m.algorithm(algorithms)
	for _, subject := range m.subjects {
		if all {
			m.maybe("algorithm", subject, algorithm, missing, launcher.at("1"))
		}
		if all && ended {
			m.maybe("nccl_version", subject, single(releases), several(releases), launcher.at("1"))
		}
		if ended {
			m.maybe("nccl_tests_version", subject, single(tests), several(tests), evidence.StepDir(ncclRunStep(1), m.launch.first())+"/stdout:1")
		}
	}
}

// maybe reports a fact that may be missing.
func (m ncclMeasure) maybe(name string, subject evidence.Subject, value, missing, source string) {
	if value != "" {
		missing = ""
	}
	m.fact(name, string(subject), value, missing, source)
}

// single is the only text of a list, or nothing.
func single(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return ""
}

// several stands for a list of which none or more than one text is there.
func several(texts []string) string {
	if len(texts) == 0 {
		return "(not printed)"
	}
	return token("(" + strings.Join(texts, " and ") + ")")
}

// algorithm is that of all sizes, or why it is not known.
func (m ncclMeasure) algorithm(of map[uint64][]string) (names, missing string) {
	var list []string
	for _, size := range m.launch.params.Sizes {
		if len(of[uint64(size)]) == 0 {
			return "", "(not in the log for " + evidence.FormatBytes(uint64(size)) + ")"
		}
		for _, name := range of[uint64(size)] {
			list = noted(list, name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ","), ""
}
