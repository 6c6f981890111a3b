package sim_test

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
)

// fioArgv is a run as storage_fio asks for it, with more options after.
func fioArgv(directory, rw, engine string, more ...string) []string {
	argv := []string{"fio", "--name=rackproof", "--directory=" + directory, "--filename_format=data.$jobnum", "--rw=" + rw, "--ioengine=" + engine, "--bs=4096"}
	argv = append(argv, more...)
	return append(argv, "--output-format=json", "--eta=never")
}

var timed = []string{"--size=1073741824", "--time_based=1", "--runtime=8000ms"}

type fioLatency struct {
	Min, Max   int64
	Mean       float64
	N          int64
	Percentile map[string]int64
}

type fioDirection struct {
	Bytes   int64 `json:"io_bytes"`
	Rate    int64 `json:"bw_bytes"`
	IOPS    float64
	Runtime int64
	Total   int64      `json:"total_ios"`
	Submit  fioLatency `json:"slat_ns"`
	Clat    fioLatency `json:"clat_ns"`
	Lat     fioLatency `json:"lat_ns"`
}

type fioDocument struct {
	Time string
	Jobs []struct {
		Error, Elapsed int64
		Options        map[string]string `json:"job options"`
		Read, Write    fioDirection
		Sync           struct {
			Lat fioLatency `json:"lat_ns"`
		}
		Levels map[string]float64 `json:"iodepth_level"`
	}
}

func (b bench) fio(node string, argv ...string) fioDocument {
	b.t.Helper()
	got := b.run(node, argv...)
	var d fioDocument
	if err := json.Unmarshal([]byte(got.stdout), &d); err != nil || len(d.Jobs) != 1 || got.stderr != "" {
		b.t.Fatalf("%q: class %s (%s), %v, stdout %q, stderr %q", argv, got.Class, got.Detail, err, got.stdout, got.stderr)
	}
	return d
}

// near checks a number to six digits.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*math.Abs(want) {
		t.Errorf("%s is %.9g, want %.9g", what, got, want)
	}
}

func TestFioReads(t *testing.T) {
	onHosts(t, func(b bench) {
		start := time.Now()
		d := b.fio("gpu001", fioArgv("/mnt/scratch", "randread", "libaio", append(timed, "--iodepth=16", "--numjobs=2", "--ramp_time=1000ms")...)...)
		job, read := d.Jobs[0], d.Jobs[0].Read
		if took := time.Since(start); took < 9*time.Second || took > 9200*time.Millisecond {
			t.Errorf("took %s: 9 s of load, and the layout of 2 GiB", took)
		}
		if d.Time != "Sat Jan  1 00:00:09 2000" || job.Elapsed != 10 || read.Runtime != 8001 || job.Write.Total != 0 {
			t.Errorf("at %q, elapsed %d s, runtime %d ms, %d writes", d.Time, job.Elapsed, read.Runtime, job.Write.Total)
		}
		if job.Options["filename_format"] != "data.$jobnum" || job.Options["runtime"] != "8000ms" || job.Options["output-format"] != "" {
			t.Errorf("options are %q", job.Options)
		}
		near(t, "total_ios", float64(read.Total), 1369364)
		near(t, "iops", read.IOPS, 171149.106362)
		near(t, "clat mean", read.Clat.Mean, 182271.397167)
		near(t, "clat p99", float64(read.Clat.Percentile["99.000000"]), 321536)
		near(t, "requests in flight", math.Round(read.IOPS*read.Lat.Mean/1e6), math.Round(32e3))
		near(t, "submission and completion", read.Submit.Mean+read.Clat.Mean, read.Lat.Mean)
		near(t, "bytes", float64(read.Bytes), float64(read.Total*4096))
		near(t, "full queue", job.Levels["16"], 99.99)
	})
}

// valueForm is a number in a line of fio's JSON, as far as its form goes.
var valueForm = regexp.MustCompile(` : (-?\d+)(\.\d{6})?(,?)$`)

// shape is a document of fio from its read object to the end of its job, with
// the forms of numbers in place of the numbers.
func shape(t *testing.T, text string) []string {
	t.Helper()
	_, text, ok := strings.Cut(text, "      \"read\" : {\n")
	text, _, closed := strings.Cut(text, "\n    }\n  ]")
	if !ok || !closed {
		t.Fatalf("no job in %q", text)
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if m := valueForm.FindStringSubmatch(line); m != nil {
			form := " : whole"
			if m[2] != "" {
				form = " : fraction"
			}
			lines[i] = valueForm.ReplaceAllString(line, form+m[3])
		}
	}
	return lines
}

func TestFioDocumentHasTheShapeOfARealOne(t *testing.T) {
	for name, options := range map[string][]string{
		"randread_4k": fioArgv("/tmp", "randread", "libaio", append(timed, "--iodepth=16", "--numjobs=2")...),
		"fsync_4k":    fioArgv("/tmp", "write", "sync", append(timed, "--fsync=1")...),
	} {
		text, err := os.ReadFile("../../checks/testdata/storage_fio/capture_" + name + "/raw/fio-1.n1/stdout")
		if err != nil {
			t.Fatal(err)
		}
		onHosts(t, func(b bench) {
			want, got := shape(t, string(text)), shape(t, b.run("gpu001", options...).stdout)
			for i, line := range want {
				if i >= len(got) || got[i] != line {
					t.Fatalf("%s: line %d is %q, want %q", name, i, got[min(i, len(got)-1)], line)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: %d lines, want %d", name, len(got), len(want))
			}
		})
	}
}

func TestFioSyncsAndUnlinks(t *testing.T) {
	onHosts(t, func(b bench) {
		job := b.fio("gpu001", fioArgv("/mnt/scratch", "write", "sync", append(timed, "--fsync=1", "--unlink=1")...)...).Jobs[0]
		near(t, "iops", job.Write.IOPS, 1168.10398700)
		near(t, "fsyncs", float64(job.Sync.Lat.N), float64(job.Write.Total))
		near(t, "jobs at work", math.Round(job.Write.IOPS*(job.Write.Lat.Mean+job.Sync.Lat.Mean)/1e6), 1e3)
		near(t, "level", job.Levels["1"], 200)
		b.says(0, "", "", "gpu002", "find", "/mnt/scratch", "-type", "f")
	})
}

func TestFioLaysOut(t *testing.T) {
	onHosts(t, func(b bench) {
		job := b.fio("gpu001", fioArgv("/mnt/scratch", "randread", "libaio", "--numjobs=2", "--size=1m", "--create_only=1")...).Jobs[0]
		if job.Error != 0 || job.Read.Total != 0 || job.Read.Clat.N != 0 || job.Elapsed != 1 {
			t.Errorf("%+v", job)
		}
		b.says(0, "/mnt/scratch/data.0\n/mnt/scratch/data.1\n", "", "gpu003", "find", "/mnt/scratch", "-type", "f")
	})
}

func TestFioElsewhere(t *testing.T) {
	rate := func(b bench, directory string) float64 {
		return b.fio("gpu001", fioArgv(directory, "randread", "libaio", append(timed, "--iodepth=4")...)...).Jobs[0].Read.IOPS
	}
	onHosts(t, func(b bench) {
		shared, local := rate(b, "/mnt/scratch"), rate(b, "/tmp")
		b.breaks(rack.Fault{Kind: rack.KindSlowStorage, Node: "gpu001"})
		near(t, "shared over slow", math.Round(100*shared/rate(b, "/mnt/scratch")), 400)
		near(t, "local disk beside slow storage", rate(b, "/tmp"), local)
		b.breaks(rack.Fault{Kind: rack.KindMissingMount, Node: "gpu001"})
		near(t, "what is there without the mount", rate(b, "/mnt/scratch"), local)
		if local < 2*shared {
			t.Errorf("the local disk does %g and the shared filesystem %g", local, shared)
		}
	})
}

func TestFioFewRequests(t *testing.T) {
	onHosts(t, func(b bench) {
		read := b.fio("gpu001", "fio", "--name=x", "--directory=/tmp", "--rw=read", "--bs=1g", "--size=1g", "--time_based", "--runtime=50ms", "--output-format=json").Jobs[0].Read
		if mean := read.Clat.Mean; read.Total > 9 || mean < float64(read.Clat.Min) || mean > float64(read.Clat.Max) {
			t.Errorf("%d requests: mean %g, from %d to %d", read.Total, mean, read.Clat.Min, read.Clat.Max)
		}
	})
}

func TestFioRefuses(t *testing.T) {
	good := fioArgv("/tmp", "randread", "libaio", timed...)
	onHosts(t, func(b bench) {
		b.says(0, "fio-3.33\n", "", "gpu001", "fio", "--version")
		b.says(1, "", "fio: /nowhere is not a directory\nfio: failed parsing directory=/nowhere\n", "gpu001", fioArgv("/nowhere", "read", "sync", timed...)...)
		for _, more := range []string{
			"--rwmixread=70", "--verify=crc32c", "--bs=0", "--bs=4q", "--size=9223372036854775807t", "--iodepth=0", "--numjobs=99999",
			"--runtime=-1", "--fsync=32", "--output-format=terse", "--name=second", "job.fio", "--direct=2", "--rw=rw",
		} {
			b.refuses("gpu001", append(slices.Clone(good), more)...)
		}
		b.refuses("gpu001", "fio")
		b.refuses("gpu001", fioArgv("/tmp", "read", "sync", "--size=1g")...)
		b.refuses("gpu001", fioArgv("/tmp", "read", "sync", append(timed, "--iodepth=4")...)...)
		b.refuses("gpu001", good[:len(good)-2]...)
	})
}
