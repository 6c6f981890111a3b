package checks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// gpuBurn multiplies matrices on every GPU of a node with gpu_burn, which
// compares the products, and samples with nvidia-smi what the GPUs did.
type gpuBurn struct{}

type gpuBurnParams struct {
	Binary      string            `json:"binary"`
	Compare     string            `json:"compare"`
	Memory      int               `json:"memory"`
	TensorCores bool              `json:"tensor_cores"`
	Doubles     bool              `json:"doubles"`
	GPUs        int               `json:"gpus"`
	Round       evidence.Duration `json:"round"`
	SoftKill    evidence.Duration `json:"soft_kill"`
	Warmup      evidence.Duration `json:"warmup"`
	Driver      int               `json:"driver"`
	LoadFloor   float64           `json:"load_floor"`
	Sample      evidence.Duration `json:"sample"`
	KernelLog   bool              `json:"kernel_log"`
	Harmless    []string          `json:"harmless"`
}

const (
	// sampledGPUs is how many GPUs a sample has room for.
	sampledGPUs = 16

	// usualSoftKill is gpu_burn's own wait (SIGTERM_TIMEOUT_THRESHOLD_SECS of
	// gpu_burn-drv.cpp), which it sleeps through in full.
	usualSoftKill = 30 * time.Second
)

var gpuBurnFacts = []FactSpec{
	{Name: "gpu_uuid", Level: "node/gpu", Doc: "The UUID of the GPU, as nvidia-smi gives it: gpu0 is nvidia-smi's index 0."},
	{Name: "gpu_bus_id", Level: "node/gpu", Doc: "Its PCI address, as nvidia-smi gives it."},
}

// throttleReasons are the reasons to lower the clocks that are measured, with
// their bits in clocks_event_reasons.active (nvml.h).
var throttleReasons = []struct {
	name string
	bit  uint64
}{
	{"hw_slowdown", 0x8}, {"hw_thermal", 0x40}, {"hw_power_brake", 0x80}, {"sw_thermal", 0x20}, {"sw_power_cap", 0x4},
}

func (gpuBurn) Spec() Spec {
	return Spec{
		Name: "gpu_burn",
		Doc: "Runs gpu_burn on every GPU of a node for the test's duration and samples nvidia-smi meanwhile, so that hours_under_load counts load that was seen and not load that was asked for. " +
			"A GPU is measured only if gpu_burn reported progress of it to the end; FAULTY is measured, whatever the exit status. " +
			"gpu_burn waits half a minute for its processes after each round: give a test of less than four minutes a deadline that has room for that. " +
			"With kernel_log the check marks the kernel log at both ends and counts the XIDs between.",
		Version: 1,
		Scopes:  []evidence.Scope{evidence.ScopeNode},
		// All nodes burn at once: it is the power of all that a hall must give.
		Loads: []string{"gpu"},
		Needs: []evidence.Capability{evidence.CapExec},
		Params: []evidence.Param{
			{Name: "binary", Type: evidence.ParamString, Default: "gpu_burn", Doc: "The program: a name that is on the path, or an absolute path."},
			{Name: "compare", Type: evidence.ParamString, Doc: "The file with the kernel that compares, for gpu_burn's -c (since 2023). Without it gpu_burn looks for it in the folder that it is run in."},
			{Name: "memory", Type: evidence.ParamNumber, Whole: true, Unit: "%", Default: 90, Doc: "How much of a GPU's free memory is used."},
			{Name: "tensor_cores", Type: evidence.ParamBool, Default: true, Doc: "Whether the tensor cores may be used: newer GPUs need them to reach their power limit."},
			{Name: "doubles", Type: evidence.ParamBool, Default: false, Doc: "Whether the matrices are of 64-bit numbers and not of 32-bit ones."},
			{Name: "gpus", Type: evidence.ParamNumber, Whole: true, Default: 0, Doc: fmt.Sprintf("How many GPUs a node has, at most %d; 0 means as many as the fleet's expect block says in gpus, and without that %d.", sampledGPUs, usualGPUs)},
			{Name: "round", Type: evidence.ParamDuration, Default: "2h", Doc: "gpu_burn prints a line for each report of a GPU, so a longer burn is made in rounds of at most so long."},
			{Name: "soft_kill", Type: evidence.ParamDuration, Default: usualSoftKill.String(), Doc: "How long gpu_burn waits, at the end of each round, for its processes to end by themselves: a whole number of seconds. Another value than " + usualSoftKill.String() + " needs its option -stts (since 2022)."},
			{Name: "warmup", Type: evidence.ParamDuration, Default: "30s", Doc: "What is reported or sampled in the first part of each round is not of a GPU under load yet; at most a quarter of the round."},
			{Name: "driver", Type: evidence.ParamNumber, Whole: true, Default: branchEventReasons, Doc: fmt.Sprintf("The oldest branch of the driver on the nodes, such as 550: nvidia-smi has other names for fields before %d and before %d.", branchInstantPower, branchEventReasons)},
			{Name: "load_floor", Type: evidence.ParamNumber, Unit: "%", Default: 90, Doc: "A sample interval counts as under load when utilization.gpu was at least so much at both ends."},
			{Name: "sample", Type: evidence.ParamDuration, Sampling: true, Default: "1s", Doc: "The time between two samples."},
			{Name: "kernel_log", Type: evidence.ParamBool, Default: false, Doc: "Whether to mark and read the kernel log; it needs root, and a ring that holds the whole test."},
			harmlessParam,
		},
		Validate: func(p json.RawMessage) error {
			params, err := readGPUBurnParams(p)
			if err != nil {
				return err
			}
			return params.validate()
		},
		Metrics: func(p json.RawMessage) []Metric {
			params, err := readGPUBurnParams(p)
			if err != nil {
				return nil
			}
			return params.metrics()
		},
		Facts: func(json.RawMessage) []FactSpec { return slices.Clone(gpuBurnFacts) },
		Subjects: func(f evidence.Fleet, nodes []string, _ evidence.Scope, metric string, p json.RawMessage) []evidence.Subject {
			params, err := readGPUBurnParams(p)
			if err != nil {
				return nil
			}
			if slices.ContainsFunc(params.metrics(), func(m Metric) bool { return m.Name == metric && m.Level == "node" }) {
				return nodeSubjects(nodes)
			}
			n, err := params.gpus(f)
			if err != nil {
				return nil
			}
			return gpuSubjects(nodes, n)
		},
	}
}

func readGPUBurnParams(p json.RawMessage) (gpuBurnParams, error) {
	var params gpuBurnParams
	if err := evidence.DecodeStrict(p, &params); err != nil {
		return gpuBurnParams{}, fmt.Errorf("parameters of gpu_burn: %w", err)
	}
	return params, nil
}

func (p gpuBurnParams) validate() error {
	switch {
	case p.Binary == "":
		return errors.New("binary is empty: name the program")
	case strings.Contains(p.Binary, "=") || strings.HasPrefix(p.Binary, "-"):
		return fmt.Errorf("binary is %q: env, which starts it, takes that for a setting or an option of its own: give the program another name or place", p.Binary)
	case p.Memory < 1 || p.Memory > 100:
		return fmt.Errorf("memory is %d: give a share from 1 to 100", p.Memory)
	case p.GPUs < 0 || p.GPUs > sampledGPUs:
		return fmt.Errorf("gpus is %d: give 1 to %d, or 0", p.GPUs, sampledGPUs)
	case p.Round.Std() < 10*time.Second:
		return fmt.Errorf("round is %s: give at least 10s", p.Round)
	case p.SoftKill.Std() < time.Second || p.SoftKill.Std()%time.Second != 0:
		return fmt.Errorf("soft_kill is %s: give a whole number of seconds, at least 1s", p.SoftKill)
	case p.Driver < 100:
		return fmt.Errorf("driver is %d: give the branch of the driver, such as 550", p.Driver)
	case !(p.LoadFloor > 0 && p.LoadFloor <= 100):
		return fmt.Errorf("load_floor is %g: give a share above 0 and up to 100", p.LoadFloor)
	case p.Sample.Std() < 100*time.Millisecond:
		return fmt.Errorf("sample is %s: give at least 100ms", p.Sample)
	}
	if len(p.Harmless) > 0 && !p.KernelLog {
		return errors.New("harmless names functions of the kernel, and kernel_log is not true, so what they log is not read")
	}
	if err := validateHarmless(p.Harmless); err != nil {
		return err
	}
	// gpu_burn finds these anywhere in any of its arguments.
	for _, option := range []string{"-h", "-l", "-d", "-tc"} {
		if strings.Contains(p.Compare, option) {
			return fmt.Errorf("compare is %q: gpu_burn takes the %s in it for an option: give the file another name or place", p.Compare, option)
		}
	}
	return nil
}

// gpus is how many GPUs each node must have.
func (p gpuBurnParams) gpus(f evidence.Fleet) (int, error) {
	if p.GPUs > 0 {
		return p.GPUs, nil
	}
	n, err := expectedGPUs(f)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: write gpus", err)
	case n > sampledGPUs:
		return 0, fmt.Errorf("the fleet expects %d gpus, and a sample has room for %d", n, sampledGPUs)
	case n == 0:
		n = usualGPUs
	}
	return n, nil
}

func (p gpuBurnParams) metrics() []Metric {
	var reasons []string
	for _, r := range throttleReasons {
		reasons = append(reasons, r.name)
	}
	// Its values are not known before the run: a threshold without at judges
	// every slice that there is, and wants one.
	slice := []Label{{Name: "slice"}}
	sliced := fmt.Sprintf(" One for each slice of the test, named by the second in which it begins; at most %d.", sliceLimit)
	const tolerant = " One sample of a hundred may be lost, or lack the value."
	metrics := []Metric{
		{Name: "hours_under_load", Unit: "h", Level: "node/gpu", Accumulates: true, Resolution: p.Sample.Std().Hours(),
			Doc: "The time that the samples show the GPU's utilization at load_floor or above, by the runner's clock; a gap between samples does not count."},
		{Name: "faulty", Unit: "1", Level: "node/gpu", Accumulates: true, Resolution: 1,
			Doc: "1 where gpu_burn said FAULTY of the GPU, and 0 where it said OK."},
		{Name: "errors", Unit: "1", Level: "node/gpu", Accumulates: true, Resolution: 1,
			Doc: "The wrong elements that gpu_burn counted, over all its summaries; at least so many, since its counter is an int that wraps."},
		{Name: "gflops_min", Unit: "GFLOP/s", Level: "node/gpu", Resolution: 1,
			Doc: "The lowest rate that gpu_burn reported of the GPU after the warm-up. It takes a product for n³ multiplications and additions each, and is for comparing siblings."},
		{Name: "gflops_mean", Unit: "GFLOP/s", Level: "node/gpu", Resolution: 1,
			Doc: "The mean of the rates that gpu_burn reported of the GPU after the warm-up."},
		{Name: "temperature_max", Unit: "C", Level: "node/gpu", Accumulates: true, Resolution: 1,
			Doc: "The highest temperature.gpu of all samples." + tolerant},
		{Name: "memory_temperature_max", Unit: "C", Level: "node/gpu", Accumulates: true, Resolution: 1,
			Doc: "The highest temperature.memory of all samples; missing on a GPU that has none." + tolerant},
		{Name: "temperature_spread", Unit: "C", Level: "node", Resolution: 1,
			Doc: "How much hotter the hottest GPU was than the coolest of the same sample, at most, after the warm-up." + tolerant},
		{Name: "power_mean", Unit: "W", Level: "node/gpu",
			Doc: "The mean power draw of the samples after the warm-up."},
		{Name: "sm_clock_min", Unit: "MHz", Level: "node/gpu", Resolution: 1,
			Doc: "The lowest clock of the multiprocessors of the samples after the warm-up."},
		{Name: "throttle_seconds", Unit: "s", Level: "node/gpu", Accumulates: true, Resolution: p.Sample.Std().Seconds(),
			Labels: []Label{{Name: "reason", Values: reasons}},
			Doc:    "The time that a reason to lower the clocks was active: each sample that has its bit stands for the time since the one before. sw_power_cap is usual at full load."},
		{Name: "ecc_uncorrected", Unit: "1", Level: "node/gpu", Accumulates: true, Resolution: 1,
			Doc: "By how much the counter of uncorrected memory errors grew from the first sample to the last."},
		{Name: "ecc_corrected", Unit: "1", Level: "node/gpu", Accumulates: true, Resolution: 1,
			Doc: "By how much the counter of corrected memory errors grew from the first sample to the last."},
		{Name: "series_temperature_max", Unit: "C", Level: "node", Labels: slice, Resolution: 1,
			Doc: "The highest temperature of any GPU." + tolerant + sliced},
		{Name: "series_power", Unit: "W", Level: "node", Labels: slice,
			Doc: "The mean power draw of all GPUs together." + sliced},
		{Name: "series_gflops_min", Unit: "GFLOP/s", Level: "node", Labels: slice, Resolution: 1,
			Doc: "The lowest rate of any GPU after the warm-up; no such measurement where none reported one." + sliced},
	}
	if p.KernelLog {
		metrics = append(metrics, Metric{Name: "xid_events", Unit: "1", Level: "node", Accumulates: true, Resolution: 1,
			Labels: []Label{{Name: "severity", Values: severityWords()}},
			Doc:    "The XIDs and SXids that the NVIDIA driver logged between the marks, by what the built-in table says of them: fail is of hardware that has failed, and review is for somebody to look at. The check kernel_log tells them by GPU."})
	}
	return metrics
}

// rounds is how often gpu_burn is run.
func (p gpuBurnParams) rounds(duration time.Duration) int {
	round := p.Round.Std()
	return max(1, int((duration+round-1)/round))
}

// seconds is how long a round is asked for: a little longer than its part of
// the test's duration, since gpu_burn's clock runs while it initialises.
func (p gpuBurnParams) seconds(duration time.Duration) int {
	part := duration / time.Duration(p.rounds(duration))
	margin := min(30*time.Second+3*p.Sample.Std(), part/8)
	return max(1, int((part+margin+time.Second-1)/time.Second))
}

// warm is how much of each round is not yet load.
func (p gpuBurnParams) warm(duration time.Duration) time.Duration {
	return min(p.Warmup.Std(), time.Duration(p.seconds(duration))*time.Second/4)
}

// burnRoundStep is the step of a round, counted from 1.
func burnRoundStep(round int) string { return burnStep + "-" + strconv.Itoa(round) }

// argv is what a step of a test of duration runs on every node; nil for a
// step that is none.
func (p gpuBurnParams) argv(duration time.Duration, step string) []string {
	switch {
	case step == sampleStep:
		return gpuSampleArgv(p.Driver)
	case strings.HasPrefix(step, burnStep+"-"):
		return p.burnArgv(duration)
	}
	return kernelArgv(step)
}

// burnArgv makes gpu_burn's GPU 0 the one of nvidia-smi: by itself CUDA puts the
// fastest first. The setting is part of the argv, so that exit.json has it.
func (p gpuBurnParams) burnArgv(duration time.Duration) []string {
	argv := []string{"env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", p.Binary, "-m", strconv.Itoa(p.Memory) + "%"}
	if p.TensorCores {
		argv = append(argv, "-tc")
	}
	if p.Doubles {
		argv = append(argv, "-d")
	}
	if p.Compare != "" {
		argv = append(argv, "-c", p.Compare)
	}
	if wait := p.SoftKill.Std(); wait != usualSoftKill {
		argv = append(argv, "-stts", strconv.Itoa(int(wait/time.Second)))
	}
	return append(argv, strconv.Itoa(p.seconds(duration)))
}

func (gpuBurn) Drive(ctx context.Context, b Bench) error {
	var params gpuBurnParams
	if err := b.Params(&params); err != nil {
		return err
	}
	if params.KernelLog {
		if err := markKernel(ctx, b, markBeginStep, newMark()); err != nil {
			return err
		}
	}
	err := everywhere(b.Nodes(), func(node string) error { return gpuBurnNode(ctx, b, node, params) })
	if params.KernelLog && ctx.Err() == nil {
		err = errors.Join(err, markKernel(ctx, b, markEndStep, newMark()), readKernel(ctx, b))
	}
	return err
}

// gpuBurnNode samples from before the first round until after the last.
func gpuBurnNode(ctx context.Context, b Bench, node string, params gpuBurnParams) error {
	test := b.Test()
	duration := test.Duration.Std()
	sample := Command{Node: node, Argv: params.argv(duration, sampleStep)}
	return sampled(ctx, b, sample, params.Sample.Std(), func() (err error) {
		for round := 1; round <= params.rounds(duration) && err == nil && ctx.Err() == nil; round++ {
			c := Command{Node: node, Argv: params.argv(duration, burnRoundStep(round))}
			if test.Silence > 0 {
				// It is silent until the first GPU reports, and half a minute at
				// the end.
				c.Silence = max(test.Silence.Std(), 2*time.Minute)
			}
			_, err = b.Exec(ctx, burnRoundStep(round), c)
		}
		return err
	})
}

func (gpuBurn) Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	params, err := readGPUBurnParams(c.Test.Params)
	if err != nil {
		return nil, nil, err
	}
	if err := params.validate(); err != nil {
		return nil, nil, err
	}
	n, err := params.gpus(c.Fleet)
	if err != nil {
		return nil, nil, err
	}
	duration := c.Test.Duration.Std()
	asked := func(step, _ string) commandLine { return exactly(params.argv(duration, step)) }
	m := gpuBurnMeasure{
		collector: newCollector(c, raw, asked), params: params, metrics: params.metrics(), n: n,
		seconds: params.seconds(duration), warm: params.warm(duration),
	}
	for _, node := range c.Nodes {
		curve := newGPUCurve(params.rounds(duration) * (m.seconds + 60))
		runs := make([]gpuBurnRun, params.rounds(duration))
		for i := range runs {
			runs[i] = m.round(node, i+1, curve)
		}
		m.results(node, runs)
		m.samples(node, runs, curve)
		m.curve(node, curve)
		if params.KernelLog {
			m.kernel(node)
		}
	}
	return m.result()
}

type gpuBurnMeasure struct {
	*collector
	params  gpuBurnParams
	metrics []Metric
	n       int // GPUs
	seconds int // asked of each round
	warm    time.Duration
}

func (m gpuBurnMeasure) number(subject evidence.Subject, metric string, labels map[string]string, r reading) {
	m.measure(metricNamed(m.metrics, metric), subject, labels, r)
}

// gpuBurnRun is one round on one node.
type gpuBurnRun struct {
	step     string
	from, to float64 // under load, in seconds since the attempt began; 0 where nothing is known
	end      float64 // of the command
	log      gpuBurnLog
}

// round reads what gpu_burn printed, and reports all for which it shows no
// whole burn of every GPU.
func (m gpuBurnMeasure) round(node string, round int, curve *gpuCurve) gpuBurnRun {
	run := gpuBurnRun{step: burnRoundStep(round)}
	out, ok := m.step(run.step, node)
	if out.exit.Class == "" {
		run.log = gpuBurnLog{gpus: make([]burnedGPU, m.n)}
		return run
	}
	begin := m.view.Attempt.Start
	start := out.exit.Start.Sub(begin).Seconds()
	run.from, run.to, run.end = start+m.warm.Seconds(), start+float64(m.seconds), out.exit.End.Sub(begin).Seconds()
	run.log = readGPUBurn(string(out.stdout), m.n, 100*m.warm.Seconds()/float64(m.seconds), func(_ int, percent, gflops float64, line int) {
		curve.gflops.add(start+percent/100*float64(m.seconds), gflops, run.step, line)
	})
	if !ok || !m.wholeLines(out, "stdout", out.stdout) {
		return run
	}
	m.examine(out, run.log)
	return run
}

// examine reports what a run that ended by itself lacks.
func (m gpuBurnMeasure) examine(out stepOutput, log gpuBurnLog) {
	report := func(class evidence.Class, format string, args ...any) {
		m.report(out.node, out.step, class, format, args...)
	}
	lacks := func(format string, args ...any) { report(evidence.ClassUnmeasured, format, args...) }
	if other := slices.IndexFunc(log.seconds, func(s int) bool { return s != m.seconds }); other >= 0 {
		report(evidence.ClassUnparsable, "gpu_burn says that it burns for %d s, and %d s were asked", log.seconds[other], m.seconds)
	}
	switch {
	case log.flaw != "":
		report(evidence.ClassUnparsable, "stdout has %s", log.flaw)
		return
	case len(log.tested) != 1:
		report(evidence.ClassOutputCut, "stdout has the line \"Tested N GPUs:\" %d times and not once", len(log.tested))
		return
	case log.tested[0] != m.n:
		lacks("gpu_burn tested %d GPUs, and %d are expected", log.tested[0], m.n)
		return
	case log.complete != m.n:
		report(evidence.ClassOutputCut, "stdout has the result of %d GPUs of %d", log.complete, m.n)
		return
	case log.others > 0:
		lacks("gpu_burn burned %d GPUs, and %d are expected", log.others, m.n)
		return
	case log.lines == 0:
		lacks("gpu_burn reported no progress, so what it says of the GPUs shows nothing%s", firstLine(withoutCUDAInit(out.stderr)))
		return
	case log.percent < 100:
		lacks("gpu_burn's progress ends at %g %%", log.percent)
	}
	asked := time.Duration(m.seconds) * time.Second
	if ran := out.exit.End.Sub(out.exit.Start); ran < asked-asked/50 {
		lacks("gpu_burn ran %s of the %s asked", ran.Round(time.Millisecond), asked)
	}
	var died, idle, unrated []int
	for i, gpu := range log.gpus {
		from, stalled := gpu.stalled(log.percent)
		switch {
		case gpu.died > 0:
			died = append(died, i)
		case gpu.reports == 0:
			idle = append(idle, i)
		case stalled:
			lacks("GPU %d reported nothing new from %g %% on, for longer than it ever took", i, from)
		case gpu.word == "OK" && gpu.wrong() > 0, gpu.word == "FAULTY" && gpu.wrong() == 0:
			report(evidence.ClassUnparsable, "gpu_burn counted %d errors of GPU %d and says %s", gpu.wrong(), i, gpu.word)
		case gpu.rates == 0 && gpu.badRate == "":
			unrated = append(unrated, i)
		}
	}
	why := firstLine(withoutCUDAInit(out.stderr))
	if len(died) > 0 {
		lacks("GPU %s died%s", joinInts(died, ", "), why)
	}
	if len(idle) > 0 {
		lacks("GPU %s did nothing%s", joinInts(idle, ", "), why)
	}
	if len(unrated) > 0 {
		lacks("GPU %s reported no rate after the warm-up of %s%s", joinInts(unrated, ", "), m.warm, why)
	}
}

// withoutCUDAInit leaves out what every process of gpu_burn says first.
func withoutCUDAInit(stderr []byte) []byte {
	return bytes.ReplaceAll(stderr, []byte("cuInit returned 0 (no error)\n"), nil)
}

// results adds the rounds up.
func (m gpuBurnMeasure) results(node string, runs []gpuBurnRun) {
	for i := range m.n {
		subject := gpuSubject(node, i)
		at := func(run gpuBurnRun, line int) string {
			return fmt.Sprintf("%s/stdout:%d", evidence.StepDir(run.step, node), line)
		}
		var word, counted, lowest, mean reading
		sound, burned := true, true // every round has a result of the GPU; has it at work
		rates := 0
		for r, run := range runs {
			gpu := run.log.gpus[i]
			faulty := gpu.word == "FAULTY"
			if faulty && word.value == 0 || word.source == "" {
				word.source = at(run, gpu.line)
			}
			if faulty {
				word.value = 1
			}
			sound = sound && gpu.word != ""
			switch {
			case gpu.wrong() > 0 && counted.value == 0:
				counted.source = at(run, gpu.counted)
			case counted.source == "":
				counted.source = at(run, gpu.line)
			}
			counted.value += float64(gpu.wrong())
			burned = burned && gpu.reports > 0 && gpu.died == 0
			switch {
			case gpu.badRate != "":
				lowest.missing, lowest.source = gpu.badRate, at(run, gpu.line)
			case gpu.rates == 0:
				burned = false
			case lowest.missing == "" && (rates == 0 || gpu.lowest < lowest.value):
				lowest.value, lowest.source = gpu.lowest, at(run, gpu.lowestLine)
			}
			rates += gpu.rates
			mean.value += gpu.sum
			if r == 0 {
				mean.source = fmt.Sprintf("%s/stdout:1-%d", evidence.StepDir(run.step, node), run.log.end)
			}
		}
		if len(runs) > 1 {
			mean.source += fmt.Sprintf(" (and of %s)", evidence.Count(len(runs)-1, "further round"))
		}
		if sound || word.value > 0 {
			m.number(subject, "faulty", nil, word)
		}
		if sound && burned || counted.value > 0 {
			m.number(subject, "errors", nil, counted)
		}
		if !burned && lowest.missing == "" {
			continue // as was reported
		}
		if mean.missing = lowest.missing; mean.missing == "" {
			mean.value /= float64(rates)
		}
		m.number(subject, "gflops_min", nil, lowest)
		m.number(subject, "gflops_mean", nil, mean)
	}
}

// samples measures what the samples show.
func (m gpuBurnMeasure) samples(node string, runs []gpuBurnRun, curve *gpuCurve) {
	w := newGPUWatch(m.params, m.n, curve)
	for _, run := range runs {
		w.loads = append(w.loads, [2]float64{run.from, run.to})
	}
	whole := m.probes(sampleStep, node, probeSlack(m.params.Sample.Std()), w.add)
	if f := w.lost; f != nil && w.failed*100 > w.total {
		// A sample in a hundred may be lost: the clock of load stands still
		// meanwhile. More, and nobody saw what the GPUs did.
		m.report(node, sampleStep, f.class, "%s; %d of %d failed", f.detail, w.failed, w.total)
		whole = false
	}
	if f := w.bad; f != nil {
		m.report(node, sampleStep, f.class, "%s", f.detail)
		whole = false
	}
	if w.count > 1 {
		m.grown(node, w)
	}
	switch {
	case !whole:
	case w.count < 2:
		m.report(node, sampleStep, evidence.ClassUnmeasured, "there are %d samples, and load shows between two", w.count)
	case m.covered(node, runs, w):
		m.underLoad(node, w)
	}
}

func (m gpuBurnMeasure) sampled(node, format string, args ...any) string {
	return evidence.StepDir(sampleStep, node) + "/stdout:" + fmt.Sprintf(format, args...)
}

// grown measures what only grows: what was seen was there, in a list that was
// cut as well.
func (m gpuBurnMeasure) grown(node string, watch *gpuWatch) {
	all := m.sampled(node, "1-%d", watch.total)
	for i, w := range watch.gpus {
		subject := gpuSubject(node, i)
		m.fact("gpu_uuid", string(subject), w.uuid, "", all)
		m.fact("gpu_bus_id", string(subject), w.bus, "", all)
		m.number(subject, "hours_under_load", nil, w.utilization.reading(w.hours, all))
		m.number(subject, "temperature_max", nil, w.temperature.reading(w.temperature.highest, m.sampled(node, "%d", max(w.temperature.highestLine, 1))))
		m.number(subject, "memory_temperature_max", nil, w.memoryTemperature.reading(w.memoryTemperature.highest, m.sampled(node, "%d", max(w.memoryTemperature.highestLine, 1))))
		for r, reason := range throttleReasons {
			m.number(subject, "throttle_seconds", map[string]string{"reason": reason.name}, w.reasons.reading(w.throttled[r], all))
		}
		for _, counter := range []struct {
			name string
			of   gauge
		}{{"ecc_corrected", w.corrected}, {"ecc_uncorrected", w.uncorrected}} {
			if counter.of.fell != "" {
				m.report(node, sampleStep, evidence.ClassInterrupted, "%s of GPU %d fell %s: the driver was loaded again", counter.name, i, counter.of.fell)
			}
			m.number(subject, counter.name, nil, counter.of.reading(counter.of.grown, all))
		}
	}
}

// covered reports whether the samples show the whole burn. On a node under
// full load a sample may take seconds, and the sampling goes on until the last
// round has ended.
func (m gpuBurnMeasure) covered(node string, runs []gpuBurnRun, w *gpuWatch) bool {
	from, to := runs[0].from-m.warm.Seconds(), runs[len(runs)-1].end
	if runs[0].end == 0 || to == 0 {
		return false // a step that was not run is reported
	}
	first, last := w.first, w.last.End
	if reach := probeSlack(m.params.Sample.Std()).Seconds(); first > from+reach || last < to-2*reach {
		m.report(node, sampleStep, evidence.ClassUnmeasured, "the samples run from %.1f s to %.1f s and the burn from %.1f s to %.1f s: they do not cover it", first, last, from, to)
		return false
	}
	if w.unseen > 0.1*(last-first) {
		m.report(node, sampleStep, evidence.ClassUnmeasured, "the samples have gaps of %.1f s in %.1f s", w.unseen, last-first)
		return false
	}
	return true
}

// underLoad measures what idle GPUs would blur.
func (m gpuBurnMeasure) underLoad(node string, watch *gpuWatch) {
	all := m.sampled(node, "1-%d", watch.total)
	place := func(line int) string {
		if line == 0 {
			return all
		}
		return m.sampled(node, "%d", line)
	}
	m.number(evidence.Subject(node), "temperature_spread", nil, watch.spread.reading(watch.spread.highest, place(watch.spread.highestLine)))
	for i, w := range watch.gpus {
		subject := gpuSubject(node, i)
		m.number(subject, "power_mean", nil, w.power.reading(w.power.sum/float64(max(1, w.power.seen)), all))
		m.number(subject, "sm_clock_min", nil, w.clock.reading(w.clock.lowest, place(w.clock.lowestLine)))
	}
}

func (m gpuBurnMeasure) curve(node string, c *gpuCurve) {
	for _, line := range []struct {
		metric string
		of     curve
		value  func(point) float64
	}{
		{"series_temperature_max", c.temperature, func(p point) float64 { return p.max }},
		{"series_power", c.power, func(p point) float64 { return p.sum / float64(p.count) }},
		{"series_gflops_min", c.gflops, func(p point) float64 { return p.min }},
	} {
		for _, i := range slices.Sorted(maps.Keys(line.of.points)) {
			p := *line.of.points[i]
			m.number(evidence.Subject(node), line.metric, map[string]string{"slice": strconv.Itoa(i * c.slice)}, reading{
				value:  line.value(p),
				source: fmt.Sprintf("%s/stdout:%d-%d", evidence.StepDir(p.step, node), p.from, p.to),
			})
		}
	}
}

// kernel counts the XIDs between the marks. Where the window is not whole,
// what was found in it stands, and what was not found says nothing.
func (m gpuBurnMeasure) kernel(node string) {
	window, whole := m.kernelWindow(node, false)
	whole = m.losses(window, m.params.Harmless) && whole
	var xids xidReader
	for record := range window.records() {
		xids.read(record)
	}
	for _, odd := range xids.odd {
		m.report(node, kernelStep, evidence.ClassUnparsable, "line %d has no known form of a XID: %q", odd.line, token(odd.text))
		whole = false
	}
	if xids.full {
		m.report(node, kernelStep, evidence.ClassOutputCapped, "there are more than %d XIDs, so that their count is a lower bound", eventLimit)
		whole = false
	}
	counts := make(map[severity]int)
	for _, s := range nvidiaXids().severities(xids.events, nil) {
		counts[s]++
	}
	for _, s := range severities {
		if whole || counts[s] > 0 {
			m.number(evidence.Subject(node), "xid_events", map[string]string{"severity": string(s)}, reading{value: float64(counts[s]), source: window.source()})
		}
	}
}
