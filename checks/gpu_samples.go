package checks

import (
	"fmt"
	"strconv"
	"strings"
	"time"
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
	lostLine                int
	lowest, highest, sum    float64
	lowestLine, highestLine int
	last, grown             float64
	fell                    string // how a counter did
}

func (g *gauge) add(r reading, line int) {
	if r.missing != "" {
		if g.lost++; g.lost == 1 {
			g.missing, g.lostLine = r.missing, line
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
