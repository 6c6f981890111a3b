package checks

import (
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

func sampleText(rows ...string) string {
	fields, _, _ := gpuSampleFields(550)
	header := strings.NewReplacer("power.draw.instant", "power.draw.instant [W]", "clocks.current.sm", "clocks.current.sm [MHz]", "utilization.gpu", "utilization.gpu [%]")
	return header.Replace(strings.Join(fields, ", ")) + "\n" + strings.Join(rows, "")
}

const (
	row0 = "2026/11/30 10:00:05.250, 0, GPU-a1b2c300-0000-4000-8000-0123456789ab, 00000000:1B:00.0, 66, 82, 690.50 W, 1755 MHz, 100 %, 0x000000000000004c, 3, 1\n"
	row1 = "2026/11/30 10:00:05.251, 1, GPU-a1b2c301-0000-4000-8000-0123456789ab, 00000000:2B:00.0, 67, N/A, [N/A], 1740 MHz, [Unknown Error], [Not Supported], [N/A], [N/A]\n"
)

func TestReadGPUSample(t *testing.T) {
	gpus, wrong := readGPUSample(ProbeLine{Stdout: sampleText(row0, row1)}, 550, 2)
	if wrong != "" {
		t.Fatal(wrong)
	}
	a, b := gpus[0], gpus[1]
	if a.temperature.value != 66 || a.memoryTemperature.value != 82 || a.power.value != 690.5 || a.clock.value != 1755 ||
		a.utilization.value != 100 || a.reasons != 0x4c || a.corrected.value != 3 || a.uncorrected.value != 1 || a.bus != "0000:1b:00.0" {
		t.Errorf("GPU 0 is %+v", a)
	}
	if b.memoryTemperature.missing != "N/A" || b.power.missing != "[N/A]" || b.utilization.missing != "[Unknown Error]" ||
		b.reasonsMissing != "[Not Supported]" || b.corrected.missing != "[N/A]" || b.loaded(1) {
		t.Errorf("GPU 1 is %+v", b)
	}
}

func TestSampleIsNotWhole(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "lists no GPU"},
		{"one of two", sampleText(row0), "it has 1 GPUs, and 2 are expected"},
		{"three of two", sampleText(row0, row1, row1), "it has 3 GPUs"},
		{"out of order", sampleText(row1, row0), "row 1 is not of GPU 0"},
		{"the same twice", sampleText(row0, row0), "row 2 is not of GPU 1"},
		{"within a line", sampleText(row0, row1[:40]), "ends within line 3"},
		{"without a field", sampleText(row0, strings.Replace(row1, ", 67", "", 1)), "line 3 has 11 of 12 fields"},
		{"no timestamp", sampleText(row0, strings.Replace(row1, "2026/11/30 10:00:05.251", "[N/A]", 1)), "row 2 is not of GPU 1"},
		{"no address", sampleText(row0, strings.Replace(row1, "00000000:2B:00.0", "[N/A]", 1)), "row 2 is not of GPU 1"},
		{"lost", sampleText(row0) + "Unable to determine the device handle for GPU1: 0000:2B:00.0: GPU is lost\n", "Unable to determine"},
		{"no driver", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "NVIDIA-SMI has failed"},
	} {
		if _, wrong := readGPUSample(ProbeLine{Stdout: test.text}, 550, 2); !strings.Contains(wrong, test.want) {
			t.Errorf("%s: it says %q, want %q", test.name, wrong, test.want)
		}
	}
}

func TestSampleOfSixteenFits(t *testing.T) {
	long := strings.NewReplacer(", 0, GPU", ", 15, GPU", ", 66, ", ", 100, ", "690.50", "1190.50", ", 3, 1", ", 1000000, 1000000").Replace(row0)
	rows := make([]string, sampledGPUs)
	for i := range rows {
		rows[i] = long
	}
	if size := len(sampleText(rows...)); size > 4096 {
		t.Errorf("a sample of %d GPUs has %d bytes, and a probe line holds 4096", sampledGPUs, size)
	}
}

func TestFieldsByBranch(t *testing.T) {
	for branch, want := range map[int][2]string{
		470: {"power.draw", "clocks_throttle_reasons.active"},
		530: {"power.draw.instant", "clocks_throttle_reasons.active"},
		535: {"power.draw.instant", "clocks_event_reasons.active"},
	} {
		argv := gpuSampleArgv(branch)
		if query := "," + argv[1] + ","; !strings.Contains(query, ","+want[0]+",") || !strings.Contains(query, ","+want[1]+",") {
			t.Errorf("branch %d: %q, want %q", branch, argv[1], want)
		}
	}
}

func TestGauge(t *testing.T) {
	var g gauge
	for line, value := range []float64{40, 43, 41, 45} {
		g.add(reading{value: value}, line+1)
	}
	if g.lowest != 40 || g.highest != 45 || g.highestLine != 4 || g.lowestLine != 1 || g.sum != 169 || g.grown != 7 || g.fell != "from 43 to 41 in sample line 3" {
		t.Errorf("gauge is %+v", g)
	}
	g.add(reading{missing: "[N/A]"}, 5)
	if got := g.reading(g.highest, "here"); got.missing != "[N/A]" {
		t.Errorf("with one of five missing it is %+v", got)
	}
	for range 100 {
		g.add(reading{value: 41}, 6)
	}
	if got := g.reading(g.highest, "here"); got.missing != "" || got.value != 45 {
		t.Errorf("with one of 105 missing it is %+v", got)
	}
	if got := (gauge{}).reading(0, "here"); got.missing == "" {
		t.Error("nothing seen is a value")
	}
}

func TestCurveIsShort(t *testing.T) {
	for seconds, want := range map[int]int{1: 1, 120: 1, 121: 2, 7200: 60, 7201: 120, 86400: 720, 3 * 86400: 2160} {
		c := newGPUCurve(seconds)
		if c.slice != want {
			t.Errorf("%d s are cut into slices of %d s, want %d s", seconds, c.slice, want)
		}
		for s := range seconds + 100 {
			c.power.add(float64(s)+0.5, float64(s), "samples", s)
		}
		if n := len(c.power.points); n > sliceLimit || n*want < seconds && n < sliceLimit {
			t.Errorf("%d s have %d slices of %d s", seconds, n, want)
		}
	}
	c := newGPUCurve(240)
	c.power.add(2, 10, "samples", 3)
	c.power.add(3.9, 20, "samples", 4)
	c.power.add(4, 99, "samples", 5)
	if p := c.power.points[1]; p.min != 10 || p.max != 20 || p.sum != 30 || p.from != 3 || p.to != 4 || p.count != 2 {
		t.Errorf("the slice from 2 s is %+v", p)
	}
}

// watchOf gives the watch of one GPU a sample at each of the seconds, which
// takes 0.2 s, with the utilization that stands beside it.
func watchOf(seconds []float64, load func(i int) string) *gpuWatch {
	w := newGPUWatch(gpuBurnParams{Driver: 550, LoadFloor: 90, Sample: evidence.Duration(time.Second)}, 1, newGPUCurve(60))
	for i, at := range seconds {
		stamp := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC).Add(time.Duration(at * float64(time.Second))).Format(gpuTimeForm)
		row := strings.NewReplacer("2026/11/30 10:00:05.250", stamp, "100 %", load(i)).Replace(row0)
		w.add(i+1, ProbeLine{N: i, Start: at, End: at + 0.2, Class: evidence.ClassOK, Code: new(int), Stdout: sampleText(row)})
	}
	return w
}

func TestLoadIsSeen(t *testing.T) {
	busy := func(int) string { return "100 %" }
	for _, test := range []struct {
		name                      string
		seconds                   []float64
		load                      func(int) string
		loaded, throttled, unseen float64 // seconds
	}{
		{"at once", []float64{0, 1, 2, 3}, busy, 2.8, 3.8, 0},
		{"with a gap", []float64{0, 1, 2, 10, 11}, busy, 1.8 + 0.8, 2.8 + 1.8, 7.8},
		{"idle in the middle", []float64{0, 1, 2, 3, 4}, func(i int) string { return map[bool]string{true: "12 %", false: "100 %"}[i == 2] }, 0.8 + 1, 4.8, 0},
		{"not known", []float64{0, 1, 2}, func(int) string { return "[N/A]" }, 0, 2.8, 0},
		{"one sample", []float64{5}, busy, 0, 1, 0},
	} {
		w := watchOf(test.seconds, test.load)
		near := func(a, b float64) bool { return a > b-1e-9 && a < b+1e-9 }
		if got := w.gpus[0].hours * 3600; !near(got, test.loaded) {
			t.Errorf("%s: under load for %g s, want %g", test.name, got, test.loaded)
		}
		if got := w.gpus[0].throttled[0]; !near(got, test.throttled) { // row0 has the bit of hw_slowdown
			t.Errorf("%s: throttled for %g s, want %g", test.name, got, test.throttled)
		}
		if !near(w.unseen, test.unseen) || w.bad != nil || w.failed > 0 {
			t.Errorf("%s: %g s unseen, want %g; %v", test.name, w.unseen, test.unseen, w.bad)
		}
	}
}

func TestTimestampsMustGoOn(t *testing.T) {
	w := watchOf([]float64{0, 1, 2, 3}, func(int) string { return "100 %" })
	frozen := strings.Replace(row0, "10:00:05.250", "10:00:03.000", 1)
	w.add(5, ProbeLine{N: 4, Start: 4, End: 4.2, Class: evidence.ClassOK, Code: new(int), Stdout: sampleText(frozen)})
	if w.bad == nil || !strings.Contains(w.bad.detail, "sample 4 has the timestamp of the one before") {
		t.Errorf("a timestamp that stands still is %v", w.bad)
	}
	// A clock that was set back tells nothing of the interval, and is no fault.
	w = watchOf([]float64{0, 1, 2, 3}, func(int) string { return "100 %" })
	before := w.gpus[0].hours
	back := strings.Replace(row0, "10:00:05.250", "09:59:59.000", 1)
	w.add(5, ProbeLine{N: 4, Start: 4, End: 4.2, Class: evidence.ClassOK, Code: new(int), Stdout: sampleText(back)})
	if w.bad != nil || w.gpus[0].hours != before || w.unseen == 0 {
		t.Errorf("after a clock that was set back it has %g h, %g s unseen, %v", w.gpus[0].hours, w.unseen, w.bad)
	}
}
