package checks

import (
	"regexp"
	"strconv"
	"strings"
)

// What gpu_burn prints, as its source has it (github.com/wilicc/gpu-burn,
// gpu_burn-drv.cpp, from version 0.7 of 2017 to commit 3ead140 of 2026). The
// parent begins each progress line with "\r". Its children inherit what it has
// buffered and print that, and more, when they end: so the heading may stand
// anywhere, and more than once, also right behind a progress line.

// gpuBurnLog is the output of one run, reduced as it is read: a run of hours
// has a line for every report of every GPU, ten in a second.
type gpuBurnLog struct {
	gpus     []burnedGPU
	lines    int     // progress lines
	percent  float64 // of the last one
	seconds  []int   // of each "Burning for N seconds."
	tested   []int   // of each "Tested N GPUs:"
	others   int     // the GPUs of a progress line, where they are not as many as expected
	complete int     // "GPU i: OK" or FAULTY below the last of them
	flaw     string  // the first thing that cannot be, and where
	end      int     // the last line of the file
}

// burnedGPU is what the run says of one GPU. Its index is CUDA's.
type burnedGPU struct {
	reports int   // how often it had done more than before
	done    int64 // products, by its last line
	died    int   // the line that says so first, or 0

	errors  int64 // up to the last summary, which sets the counter to zero
	counter int64 // since then
	counted int   // the line that raised the sum last

	lastAt    float64 // percent of the last report
	longest   float64 // percent between two reports, at most
	longestAt float64 // where that began

	lowest, sum float64 // of the rates that count, in GFLOP/s
	rates       int
	lowestLine  int
	badRate     string // one that is no number

	word string // OK or FAULTY
	line int    // of the word, or of its last progress line
}

// wrong is how many errors the GPU made, at least.
func (g burnedGPU) wrong() int64 { return g.errors + g.counter }

// stalled reports whether the GPU did nothing for long by its own measure, up
// to the percentage end: gpu_burn goes on to print what a GPU last reported,
// and at last that it is OK.
func (g burnedGPU) stalled(end float64) (from float64, stalled bool) {
	longest, from := g.longest, g.longestAt
	if end-g.lastAt > longest {
		longest, from = end-g.lastAt, g.lastAt
	}
	usual := g.lastAt / float64(max(1, g.reports))
	return from, longest > 5 && longest > 4*usual
}

var (
	burningForm = regexp.MustCompile(`Burning for (\d{1,9}) sec(?:ond)?s\.?$`)
	testedForm  = regexp.MustCompile(`^Tested (\d{1,6}) GPUs:$`)
	testedGPU   = regexp.MustCompile(`^GPU (\d{1,6}): (OK|FAULTY)$`)
)

// readGPUBurn reads the output of a run on n GPUs. Each rate that counts goes
// to rate, with its GPU and the percentage of the run; those of the first
// warm percent do not count, and neither does a GPU's first, which has its
// initialisation in it.
func readGPUBurn(text string, n int, warm float64, rate func(gpu int, percent, gflops float64, line int)) gpuBurnLog {
	log := gpuBurnLog{gpus: make([]burnedGPU, n)}
	fail := func(format string) {
		if log.flaw == "" {
			log.flaw = format + " in line " + strconv.Itoa(log.end)
		}
	}
	reports := make([]gpuReport, 0, n)
	for line := range strings.Lines(text) {
		log.end++
		for record := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), "\r") {
			if strings.Contains(record, "proc'd:") {
				percent, gpus, ok := readProgress(record, reports[:0])
				switch {
				case !ok:
					fail("an unreadable progress line")
				case len(gpus) != n:
					log.others = len(gpus)
				case percent < log.percent:
					fail("a percentage that went back")
				default:
					log.progress(percent, gpus, warm, rate)
				}
				continue
			}
			record = strings.TrimSpace(record)
			if match := burningForm.FindStringSubmatch(record); match != nil {
				seconds, _ := strconv.Atoi(match[1]) // at most nine digits, by its pattern
				log.seconds = append(log.seconds, seconds)
			} else if match := testedForm.FindStringSubmatch(record); match != nil {
				tested, _ := strconv.Atoi(match[1])
				log.tested = append(log.tested, tested)
			} else if match := testedGPU.FindStringSubmatch(record); match != nil && strings.HasSuffix(line, "\n") {
				i, _ := strconv.Atoi(match[1])
				switch {
				case len(log.tested) == 0 || i >= n || log.gpus[i].word != "":
					fail("a result of GPU " + match[1] + " out of place")
				default:
					log.gpus[i].word, log.gpus[i].line = match[2], log.end
					log.complete++
				}
			} else if strings.HasPrefix(record, "Summary at:") {
				for i := range log.gpus {
					log.gpus[i].settle()
				}
			}
		}
	}
	return log
}

// settle adds the counter up before it begins again at zero.
func (g *burnedGPU) settle() { g.errors, g.counter = g.errors+g.counter, 0 }

func (log *gpuBurnLog) progress(percent float64, gpus []gpuReport, warm float64, rate func(gpu int, percent, gflops float64, line int)) {
	log.lines++
	log.percent = percent
	for i, report := range gpus {
		g := &log.gpus[i]
		if g.word == "" {
			g.line = log.end
		}
		if report.note == "DIED" || report.done < 0 {
			if g.died == 0 {
				g.died = log.end
			}
			continue // its error count is what lay in memory
		}
		if g.died > 0 {
			continue
		}
		g.count(report, log.end)
		switch {
		case report.done < g.done:
			if log.flaw == "" {
				log.flaw = "GPU " + strconv.Itoa(i) + " had done less than before in line " + strconv.Itoa(log.end)
			}
			continue
		case report.done == g.done:
			continue
		}
		g.done = report.done
		g.reports++
		if g.reports == 1 {
			g.lastAt = percent
			continue
		}
		if percent-g.lastAt > g.longest {
			g.longest, g.longestAt = percent-g.lastAt, g.lastAt
		}
		g.lastAt = percent
		if percent < warm {
			continue
		}
		gflops, missing := parseNumber(report.rate)
		if missing != "" {
			g.badRate = missing
			continue
		}
		if g.rates == 0 || gflops < g.lowest {
			g.lowest, g.lowestLine = gflops, log.end
		}
		g.rates++
		g.sum += gflops
		rate(i, percent, gflops, log.end)
	}
}

// count adds a report's errors. The counter only grows between two summaries,
// but it is an int, and wraps: then it says that there were some.
func (g *burnedGPU) count(report gpuReport, line int) {
	before := g.wrong()
	switch {
	case report.errors < 0, report.errors == 0 && report.note == "WARNING":
		g.counter = max(g.counter, 1)
	case report.errors < g.counter:
		g.settle()
		g.counter = report.errors
	default:
		g.counter = report.errors
	}
	if g.wrong() > before {
		g.counted = line
	}
}

// gpuReport is one GPU's part of a progress line.
type gpuReport struct {
	done   int64 // products; −1 of one that died
	rate   string
	errors int64
	note   string // WARNING, DIED or nothing
}

// readProgress reads a whole progress line, into gpus:
//
//	12.3%  proc'd: 266 (51234 Gflop/s) - 266 (51190 Gflop/s)   errors: 0 - 0   temps: 65 C - --
//
// Version 0.7 has "/" for "-". What follows the last temperature is of another
// process.
func readProgress(record string, gpus []gpuReport) (percent float64, all []gpuReport, ok bool) {
	s := textScan{rest: record}
	share := s.until('%')
	percent, missing := parseNumber(share)
	if missing != "" || percent < 0 || percent > 100 || !s.take("proc'd:") {
		return 0, nil, false
	}
	for more := true; more; more = s.take("-") || s.take("/") {
		var g gpuReport
		done, ok := s.integer()
		if !ok || !s.take("(") {
			return 0, nil, false
		}
		g.done, g.rate = done, s.until(' ')
		if !s.take("Gflop/s)") {
			return 0, nil, false
		}
		gpus = append(gpus, g)
	}
	if !s.take("errors:") {
		return 0, nil, false
	}
	for i := range gpus {
		if i > 0 && !s.take("-") && !s.take("/") {
			return 0, nil, false
		}
		var ok bool
		if gpus[i].errors, ok = s.integer(); !ok {
			return 0, nil, false
		}
		for _, note := range []string{"WARNING", "DIED"} {
			if s.take("(" + note + "!)") {
				gpus[i].note = note
			}
		}
	}
	if !s.take("temps:") {
		return 0, nil, false
	}
	for i := range gpus {
		if i > 0 && !s.take("-") && !s.take("/") {
			return 0, nil, false
		}
		if s.take("--") {
			continue
		}
		if _, ok := s.integer(); !ok || !s.take("C") {
			return 0, nil, false
		}
	}
	return percent, gpus, true
}

// textScan reads a text from its start, over the spaces between its words. It
// is here for its speed: the output of one run may have some ten MiB.
type textScan struct{ rest string }

// take reads word, if it is next.
func (s *textScan) take(word string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(s.rest, " \t"), word)
	if ok {
		s.rest = rest
	}
	return ok
}

// until reads up to the byte end, which it takes too; nothing if it is not
// there.
func (s *textScan) until(end byte) string {
	text, rest, ok := strings.Cut(strings.TrimLeft(s.rest, " \t"), string(end))
	if !ok {
		return ""
	}
	s.rest = rest
	return text
}

// integer reads a whole number that fits gpu_burn's int.
func (s *textScan) integer() (int64, bool) {
	s.rest = strings.TrimLeft(s.rest, " \t")
	end := 0
	for end < len(s.rest) && (s.rest[end] >= '0' && s.rest[end] <= '9' || end == 0 && s.rest[end] == '-') {
		end++
	}
	value, err := strconv.ParseInt(s.rest[:end], 10, 32)
	s.rest = s.rest[end:]
	return value, err == nil
}
