package checks

import (
	"strings"
	"testing"
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
		b.reasonsMissing != "[Not Supported]" || b.corrected.missing != "[N/A]" || loaded(b, 1) {
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
