package checks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// The branches of the driver that brought a name of a field (nvidia-smi
// --help-query-gpu).
const (
	branchInstantPower = 530 // power.draw has been a mean of a second since Ampere
	branchEventReasons = 535
)

// gpuSampleFields are the fields of a sample with a driver of a branch.
func gpuSampleFields(branch int) (fields []string, power, reasons string) {
	power, reasons = "power.draw.instant", "clocks_event_reasons.active"
	if branch < branchInstantPower {
		power = "power.draw"
	}
	if branch < branchEventReasons {
		reasons = "clocks_throttle_reasons.active"
	}
	return []string{
		"timestamp", "index", "uuid", "pci.bus_id", "temperature.gpu", "temperature.memory", power, "clocks.current.sm",
		"utilization.gpu", reasons, "ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total",
	}, power, reasons
}

// gpuSampleArgv asks for a sample. One is at most 4 KiB (ProbeLine): a header
// of 300 bytes and rows of 170, so that sixteen GPUs fit.
func gpuSampleArgv(branch int) []string {
	fields, _, _ := gpuSampleFields(branch)
	return []string{"nvidia-smi", "--query-gpu=" + strings.Join(fields, ","), "--format=csv"}
}

// gpuSample is one GPU's row of a sample.
type gpuSample struct {
	at        time.Time // by the node's clock
	uuid, bus string

	temperature, memoryTemperature reading // C
	power                          reading // W
	clock                          reading // MHz
	utilization                    reading // %
	reasons                        uint64  // a bit for each
	reasonsMissing                 string
	corrected, uncorrected         reading // errors since the driver was loaded
}

// gpuTimeForm is nvidia-smi's timestamp; its zone is the node's, and UTC here.
const gpuTimeForm = "2006/01/02 15:04:05.000"

// readGPUSample reads a whole sample of n GPUs, in the order of their index.
// Otherwise wrong says what it lacks.
func readGPUSample(p ProbeLine, branch, n int) (gpus []gpuSample, wrong string) {
	table, problem := parseSMI([]byte(p.Stdout), []byte(p.Stderr))
	switch {
	case problem != nil:
		return nil, problem.Detail
	case len(table.lost) > 0:
		return nil, token(table.lost[0].text)
	case len(table.rows) != n:
		return nil, fmt.Sprintf("it has %d GPUs, and %d are expected", len(table.rows), n)
	}
	_, power, reasons := gpuSampleFields(branch)
	for i, row := range table.rows {
		number := func(field, unit string) reading {
			value, missing := row.number(field, unit)
			if missing == "" && value < 0 {
				missing = token(strconv.FormatFloat(value, 'g', -1, 64))
			}
			return reading{value: value, missing: missing}
		}
		stamp, _ := row.text("timestamp")
		index, _ := row.text("index")
		uuid, _ := row.text("uuid")
		address, _ := row.text("pci.bus_id")
		at, err := time.Parse(gpuTimeForm, stamp)
		bus, known := pciAddress(address)
		if err != nil || index != strconv.Itoa(i) || uuid == "" || !known {
			return nil, fmt.Sprintf("row %d is not of GPU %d: %q", i+1, i, token(strings.Join(row.cells, ", ")))
		}
		g := gpuSample{
			at: at, uuid: uuid, bus: bus,
			temperature:       number("temperature.gpu", ""),
			memoryTemperature: number("temperature.memory", ""),
			power:             number(power, "W"),
			clock:             number("clocks.current.sm", "MHz"),
			utilization:       number("utilization.gpu", "%"),
			corrected:         number("ecc.errors.corrected.volatile.total", ""),
			uncorrected:       number("ecc.errors.uncorrected.volatile.total", ""),
		}
		g.reasons, g.reasonsMissing = row.mask(reasons)
		gpus = append(gpus, g)
	}
	return gpus, ""
}

// gauge reduces the values of one field of one GPU, of which one in a hundred
// may be missing.
type gauge struct {
	seen, lost              int
	missing                 string // the first token
	lowest, highest, sum    float64
	lowestLine, highestLine int
	last, grown             float64
	fell                    string // how a counter did
}

func (g *gauge) add(r reading, line int) {
	if r.missing != "" {
		if g.lost++; g.lost == 1 {
			g.missing = r.missing
		}
		return
	}
	if g.seen == 0 || r.value < g.lowest {
		g.lowest, g.lowestLine = r.value, line
	}
	if g.seen == 0 || r.value > g.highest {
		g.highest, g.highestLine = r.value, line
	}
	switch step := r.value - g.last; {
	case g.seen == 0:
	case step >= 0:
		g.grown += step
	case g.fell == "":
		g.fell = fmt.Sprintf("from %g to %g in sample line %d", g.last, r.value, line)
	}
	g.seen++
	g.sum += r.value
	g.last = r.value
}

// reading is a value of the gauge, or the token that stood in its place in
// more than one sample of a hundred.
func (g gauge) reading(value float64, source string) reading {
	switch {
	case g.lost*100 > g.lost+g.seen:
		return reading{missing: g.missing, source: source}
	case g.seen == 0:
		return reading{missing: "(no sample under load)", source: source}
	}
	return reading{value: value, source: source}
}

// gpuWatch reduces the samples of one node, which it is given in order, in one
// pass: a soak of days has a few hundred thousand of them.
type gpuWatch struct {
	branch int
	period float64      // between two samples, in seconds
	floor  float64      // of the utilization of a GPU under load
	loads  [][2]float64 // when the GPUs must be under load, in seconds since the attempt began
	curve  *gpuCurve

	gpus   []watchedGPU
	spread gauge // between the hottest and the coolest, after the warm-up

	total, failed, count int // samples; those that failed; those that are whole
	first                float64
	last                 ProbeLine   // the last whole one
	before               []gpuSample // of it; nil where nobody looked since
	stretch              bool        // it was not the first after a gap
	unseen               float64     // seconds of gaps
	lost, bad            *watchFlaw  // a sample that failed; one that cannot be
}

// watchedGPU is what the samples say of one GPU.
type watchedGPU struct {
	uuid, bus                      string
	temperature, memoryTemperature gauge
	power, clock                   gauge // after the warm-up
	corrected, uncorrected         gauge
	hours                          float64
	utilization                    gauge     // whether the field was there
	reasons                        gauge     // whether the field was there
	throttled                      []float64 // seconds, by throttleReasons
}

// watchFlaw is the first thing of a kind that is wrong with the samples.
type watchFlaw struct {
	class  evidence.Class
	detail string
}

func newGPUWatch(p gpuBurnParams, n int, curve *gpuCurve) *gpuWatch {
	w := &gpuWatch{branch: p.Driver, period: p.Sample.Std().Seconds(), floor: p.LoadFloor, curve: curve, gpus: make([]watchedGPU, n)}
	for i := range w.gpus {
		w.gpus[i].throttled = make([]float64, len(throttleReasons))
	}
	return w
}

func (w *gpuWatch) doubt(class evidence.Class, format string, args ...any) {
	if w.bad == nil {
		w.bad = &watchFlaw{class, fmt.Sprintf(format, args...)}
	}
}

// add takes the next line of the probe.
func (w *gpuWatch) add(line int, p ProbeLine) {
	w.total++
	gpus, flaw := w.read(p)
	if flaw != nil {
		if w.failed++; w.failed == 1 {
			w.lost = flaw
		}
		w.before = nil
		return
	}
	if w.count++; w.count == 1 {
		w.first = p.Start
		for i, g := range gpus {
			w.gpus[i].uuid, w.gpus[i].bus = g.uuid, g.bus
		}
	}
	elapsed := w.elapse(p, gpus[0].at)
	inside := slices.ContainsFunc(w.loads, func(load [2]float64) bool { return p.Start >= load[0] && p.End <= load[1] })
	for i, g := range gpus {
		watched := &w.gpus[i]
		if g.uuid != watched.uuid || g.bus != watched.bus {
			w.doubt(evidence.ClassInterrupted, "sample %d: GPU %d is %s and was %s", p.N, i, g.uuid, watched.uuid)
		}
		watched.add(g, line)
		if inside {
			watched.power.add(g.power, line)
			watched.clock.add(g.clock, line)
		}
		if w.stretch && g.loaded(w.floor) && w.before[i].loaded(w.floor) {
			watched.hours += elapsed / 3600
		}
		for r, reason := range throttleReasons {
			switch {
			case g.reasons&reason.bit == 0:
			case w.stretch:
				watched.throttled[r] += elapsed
			default:
				watched.throttled[r] += w.period // it was seen, so it was there for a while
			}
		}
	}
	w.together(gpus, inside, p.Start, line)
	w.before, w.last = gpus, p
}

// read reads a sample, or says why there is none.
func (w *gpuWatch) read(p ProbeLine) ([]gpuSample, *watchFlaw) {
	why, class := "", evidence.ClassUnmeasured
	var gpus []gpuSample
	switch {
	case p.Class != evidence.ClassOK:
		why, class = token(p.Stderr), p.Class
	case p.Code == nil || *p.Code != 0:
		why, class = token(strings.TrimSpace(p.Stdout+p.Stderr)), evidence.ClassExit
	default:
		gpus, why = readGPUSample(p, w.branch, len(w.gpus))
	}
	if why != "" {
		return nil, &watchFlaw{class, fmt.Sprintf("sample %d: %s", p.N, why)}
	}
	return gpus, nil
}

// elapse is the time since the sample before, in seconds; zero after a gap. A
// reading is somewhere between its start and its end, so a stretch of them
// surely lasts from the end of the first to the start of the last.
func (w *gpuWatch) elapse(p ProbeLine, at time.Time) float64 {
	follows := w.stretch
	w.stretch = false
	if w.count == 1 {
		return 0
	}
	elapsed := p.Start - w.last.Start
	if w.before != nil {
		stands := at.Equal(w.before[0].at)
		if stands {
			w.doubt(evidence.ClassUnparsable, "sample %d has the timestamp of the one before: nvidia-smi repeats itself", p.N)
		}
		// Otherwise nobody looked: it is neither load nor its absence.
		w.stretch = !stands && elapsed <= 3*w.period+1 && !at.Before(w.before[0].at)
	}
	switch {
	case !w.stretch:
		w.unseen += p.Start - w.last.End
		return 0
	case !follows:
		return p.Start - w.last.End
	}
	return elapsed
}

// loaded reports whether the GPU was seen busy.
func (g gpuSample) loaded(floor float64) bool {
	return g.utilization.missing == "" && g.utilization.value >= floor
}

func (w *watchedGPU) add(g gpuSample, line int) {
	w.temperature.add(g.temperature, line)
	w.memoryTemperature.add(g.memoryTemperature, line)
	w.corrected.add(g.corrected, line)
	w.uncorrected.add(g.uncorrected, line)
	w.utilization.add(g.utilization, line)
	w.reasons.add(reading{missing: g.reasonsMissing}, line)
}

// together looks at all GPUs of one sample.
func (w *gpuWatch) together(gpus []gpuSample, inside bool, at float64, line int) {
	var temperature, power gauge
	for _, g := range gpus {
		temperature.add(g.temperature, line)
		power.add(g.power, line)
	}
	if temperature.seen > 0 {
		w.curve.temperature.add(at, temperature.highest, sampleStep, line)
	}
	if power.lost == 0 {
		w.curve.power.add(at, power.sum, sampleStep, line)
	}
	if inside {
		w.spread.add(reading{value: temperature.highest - temperature.lowest, missing: temperature.missing}, line)
	}
}

// gpuCurve is how a node went through the test: at most 120 slices of equal
// length, so that a curve of days is as small as one of minutes.
type gpuCurve struct {
	slice                      int // seconds
	temperature, power, gflops curve
}

const sliceLimit = 120

// newGPUCurve divides so many seconds: by the second, and from two hours on by
// the minute.
func newGPUCurve(seconds int) *gpuCurve {
	slice := max(1, (seconds+sliceLimit-1)/sliceLimit)
	if slice > 60 {
		slice = (slice + 59) / 60 * 60
	}
	c := &gpuCurve{slice: slice}
	c.temperature.slice, c.power.slice, c.gflops.slice = slice, slice, slice
	return c
}

// curve is one line of it.
type curve struct {
	slice  int
	points map[int]*point
}

// point is what the values of a slice come to, and the lines that they are in.
type point struct {
	count         int
	sum, min, max float64
	step          string
	from, to      int
}

// add adds a value that was there so many seconds after the attempt's start.
// What is beyond the last slice is left out.
func (c *curve) add(seconds, value float64, step string, line int) {
	i := int(seconds) / c.slice
	if seconds < 0 || i >= sliceLimit {
		return
	}
	if c.points == nil {
		c.points = make(map[int]*point)
	}
	p := c.points[i]
	if p == nil {
		p = &point{min: value, max: value, step: step, from: line}
		c.points[i] = p
	}
	if p.step == step {
		p.to = line
	}
	p.min, p.max = min(p.min, value), max(p.max, value)
	p.sum += value
	p.count++
}
