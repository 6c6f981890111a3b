package checks

import (
	"fmt"
	"strings"
	"testing"
)

func discard(int, float64, float64, int) {}

func TestReadProgress(t *testing.T) {
	for _, test := range []struct {
		line    string
		percent float64
		want    []gpuReport
	}{
		{"12.3%  proc'd: 266 (51234 Gflop/s) - 532 (51190 Gflop/s)   errors: 0 - 0   temps: 65 C - -- ", 12.3,
			[]gpuReport{{266, "51234", 0, ""}, {532, "51190", 0, ""}}},
		{"100.0%  proc'd: 636 (2085 Gflop/s)   errors: 0   temps: 64 C", 100, []gpuReport{{636, "2085", 0, ""}}},
		{"98.4%  proc'd: 18000 (6311 Gflop/s) - -1 (0 Gflop/s)   errors: -524288000  (WARNING!)- 1579  (DIED!)  temps: 51 C - 45 C ", 98.4,
			[]gpuReport{{18000, "6311", -524288000, "WARNING"}, {-1, "0", 1579, "DIED"}}},
		// Version 0.7.
		{"3.0%  proc'd: 1 (6 Gflop/s)/ 2 (inf Gflop/s)  errors: 0 / 3  (WARNING!)/   temps: -- / -- ", 0, nil},
		{"3.0%  proc'd: 1 (6 Gflop/s)/ 2 (inf Gflop/s)  errors: 0 / 3  (WARNING!)  temps: -- / -- ", 3,
			[]gpuReport{{1, "6", 0, ""}, {2, "inf", 3, "WARNING"}}},
		// What a child printed when it ended.
		{"50.0%  proc'd: 5 (7 Gflop/s)   errors: 0   temps: 64 C Using compare file: compare.ptx", 50, []gpuReport{{5, "7", 0, ""}}},
		// Cut, or something else.
		{"12.3%  proc'd: 26", 0, nil},
		{"12.3%  proc'd: 266 (51234 Gflop/s)   errors: 0   temps: 6", 0, nil},
		{"12.3%  proc'd: 266 (51234 Gflop/s) - 532 (51190 Gflop/s)   errors: 0   temps: 65 C", 0, nil},
		{"12.3%  proc'd: 266 (51234 Gflop/s) - 532 (51190 Gflop/s)   errors: 0 - 0   temps: 65 C", 0, nil},
		{"proc'd: 266 (51234 Gflop/s)   errors: 0   temps: 65 C", 0, nil},
		{"nan%  proc'd: 266 (51234 Gflop/s)   errors: 0   temps: 65 C", 0, nil},
		{"101.0%  proc'd: 266 (51234 Gflop/s)   errors: 0   temps: 65 C", 0, nil},
		{"12.3%  proc'd: 5103 / 5103   errors: 0 / 0   temps: 59 C / 62 C", 0, nil}, // version 0.3
		{"12.3%  proc'd: 99999999999999999999 (1 Gflop/s)   errors: 0   temps: 65 C", 0, nil},
		{"12.3%  proc'd: 1 (1 Gflop/s)   errors: 2147483648   temps: 65 C", 0, nil}, // no int
	} {
		percent, got, ok := readProgress(test.line, nil)
		if ok != (test.want != nil) {
			t.Errorf("%q: read is %t", test.line, ok)
			continue
		}
		if percent != test.percent || ok && fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%q is %g %% %v, want %g %% %v", test.line, percent, got, test.percent, test.want)
		}
	}
}

// progress is a progress line of one GPU.
func progress(percent float64, done, rate, errors int) string {
	note := ""
	if errors != 0 {
		note = " (WARNING!)"
	}
	return fmt.Sprintf("\r%.1f%%  proc'd: %d (%d Gflop/s)   errors: %d %s  temps: 65 C ", percent, done, rate, errors, note)
}

const summary = "\n\tSummary at:   mar 30 nov 2026, 10:00:00, UTC\n\n"

// The counter is set to zero at each summary, and after some of them nothing
// shows it but the summary.
func TestErrorsAddUp(t *testing.T) {
	for _, test := range []struct {
		name string
		text string
		want int64
	}{
		{"none", progress(5, 1, 9, 0) + progress(10, 2, 9, 0), 0},
		{"one counter", progress(5, 1, 9, 2) + progress(10, 2, 9, 5) + progress(15, 3, 9, 5), 5},
		{"reset to zero", progress(5, 1, 9, 5) + summary + progress(15, 2, 9, 0) + progress(18, 3, 9, 2), 7},
		{"grown past it by the next line", progress(5, 1, 9, 5) + summary + progress(15, 2, 9, 7), 12},
		{"fell without a summary", progress(5, 1, 9, 5) + progress(15, 2, 9, 3), 8},
		{"wrapped", progress(5, 1, 9, -524288000) + progress(15, 2, 9, -524288000), 1},
		{"wrapped after some", progress(5, 1, 9, 40) + progress(15, 2, 9, -7), 40},
	} {
		log := readGPUBurn(test.text, 1, 0, discard)
		if got := log.gpus[0].wrong(); got != test.want || log.flaw != "" {
			t.Errorf("%s: %d errors, want %d; flaw %q", test.name, got, test.want, log.flaw)
		}
	}
}

func TestRatesAfterTheWarmUp(t *testing.T) {
	text := progress(2, 1, 10, 0) + progress(8, 2, 900, 0) + progress(20, 3, 1000, 0) + progress(21, 3, 1000, 0) + "\n" + progress(30, 4, 990, 0)
	var rates []string
	log := readGPUBurn(text, 1, 10, func(gpu int, percent, gflops float64, line int) {
		rates = append(rates, fmt.Sprint(gpu, percent, gflops, line))
	})
	g := log.gpus[0]
	if got, want := strings.Join(rates, "; "), "0 20 1000 1; 0 30 990 2"; got != want {
		t.Errorf("rates are %s, want %s", got, want)
	}
	if g.reports != 4 || g.rates != 2 || g.lowest != 990 || g.sum != 1990 || g.lowestLine != 2 || log.lines != 5 || log.percent != 30 {
		t.Errorf("reduced to %+v of %d lines up to %g %%", g, log.lines, log.percent)
	}
}

// The parent's heading comes first on a terminal and, through a pipe, after
// the list of GPUs and once more from each child.
func TestHeadingInAnyOrder(t *testing.T) {
	const result = "\nKilling processes.. done\n\nTested 1 GPUs:\n\tGPU 0: OK\n"
	list, heading := "GPU 0: OK (UUID: GPU-1)\n", "Using compare file: compare.ptx\nBurning for 60 seconds.\n"
	for _, text := range []string{
		heading + list + progress(100, 1, 9, 0) + result,
		list + heading + progress(100, 1, 9, 0) + heading + result,
		"Run length not specified in the command line. " + heading + list + progress(100, 1, 9, 0) + result,
	} {
		log := readGPUBurn(text, 1, 0, discard)
		if log.flaw != "" || log.complete != 1 || log.gpus[0].word != "OK" || len(log.seconds) == 0 || log.seconds[0] != 60 {
			t.Errorf("%q is %+v", text, log)
		}
	}
	log := readGPUBurn("Run length not specified in the command line.  Burning for 10 secs\n", 1, 0, discard)
	if len(log.seconds) != 1 || log.seconds[0] != 10 {
		t.Errorf("seconds are %v, want 10", log.seconds)
	}
}

func TestBurnFlaws(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{progress(50, 2, 9, 0) + progress(40, 3, 9, 0), "a percentage that went back in line 1"},
		{progress(50, 2, 9, 0) + progress(60, 1, 9, 0), "GPU 0 had done less than before in line 1"},
		{"\r12.3%  proc'd: 2", "an unreadable progress line in line 1"},
		{"Tested 1 GPUs:\n\tGPU 1: OK\n", "a result of GPU 1 out of place in line 2"},
		{"Tested 1 GPUs:\n\tGPU 0: OK\n\tGPU 0: FAULTY\n", "a result of GPU 0 out of place in line 3"},
		{"\tGPU 0: OK\n", "a result of GPU 0 out of place in line 1"},
	} {
		if log := readGPUBurn(test.text, 1, 0, discard); log.flaw != test.want {
			t.Errorf("%q: flaw is %q, want %q", test.text, log.flaw, test.want)
		}
	}
}

func TestStalled(t *testing.T) {
	text := func(at ...float64) string {
		var b strings.Builder
		for i, percent := range at {
			b.WriteString(progress(percent, i+1, 9, 0))
		}
		return b.String()
	}
	var even []float64
	for i := range 34 {
		even = append(even, float64(3*i+1))
	}
	for _, test := range []struct {
		name string
		at   []float64
		end  float64
		from float64
		want bool
	}{
		{"even", even, 100, 0, false},
		{"few and long", []float64{30, 60, 90}, 100, 0, false},
		{"to the end", even[:14], 100, 40, true},
		{"in the middle", append(append([]float64{}, even[:10]...), 70, 73, 76, 79, 82, 85, 88, 91, 94, 97), 100, 28, true},
		{"a short one", append(append([]float64{}, even[:10]...), even[12:]...), 100, 0, false},
	} {
		log := readGPUBurn(text(test.at...), 1, 0, discard)
		from, stalled := log.gpus[0].stalled(test.end)
		if stalled != test.want || stalled && from != test.from {
			t.Errorf("%s: stalled is %t from %g %%, want %t from %g %%", test.name, stalled, from, test.want, test.from)
		}
	}
}

func FuzzGPUBurn(f *testing.F) {
	f.Add(progress(5, 1, 9, 0)+summary+progress(100, 2, 9, -3)+"\nTested 1 GPUs:\n\tGPU 0: FAULTY\n", 1)
	f.Add("\r12.3%  proc'd: -1 (0 Gflop/s) - 2 (inf Gflop/s)   errors: 1579  (DIED!)- 0   temps: -- - 5 C Using", 2)
	f.Add("GPU 0: NVIDIA H100 (UUID: GPU-1)\nBurning for 60 seconds.\n", 8)
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = 1 + (n%8+8)%8
		log := readGPUBurn(text, n, 10, func(gpu int, percent, gflops float64, line int) {
			if gpu < 0 || gpu >= n || percent < 10 || percent > 100 || line < 1 {
				t.Errorf("rate %g of GPU %d at %g %% in line %d", gflops, gpu, percent, line)
			}
		})
		words := 0
		for i, g := range log.gpus {
			if g.wrong() < 0 || g.done < 0 || g.reports > log.lines {
				t.Errorf("GPU %d is %+v", i, g)
			}
			if g.word != "" {
				words++
			}
		}
		if words != log.complete || log.lines > 0 && !strings.Contains(text, "proc'd:") {
			t.Errorf("%d results and %d lines of %q", words, log.lines, text)
		}
	})
}
