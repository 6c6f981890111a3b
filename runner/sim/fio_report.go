package sim

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
)

// fioRun is what a run measured; one that only laid files out measured
// nothing.
type fioRun struct {
	elapsed    time.Duration
	runtime    time.Duration
	requests   int64
	submission latencies
	completion latencies
	total      latencies
	sync       latencies
}

// measured is the run of what the storage gave. The latencies of its requests
// in flight add up to their number (Little's law), as they must.
func (j fioJob) measured(t rack.Transfer) fioRun {
	r := fioRun{elapsed: j.ramp + j.runtime + time.Second, runtime: j.runtime + time.Millisecond}
	r.requests = max(1, int64(t.Rate*r.runtime.Seconds()))
	submission := 300e-9 // a synchronous engine's is not told apart
	if j.async() {
		submission = 4.7e-6
		r.submission = latencies{mean: submission * 1e9, spread: 0.35, n: r.requests}
	}
	r.completion = latencies{mean: (t.Latency - submission) * 1e9, spread: 0.26, n: r.requests}
	r.total = latencies{mean: t.Latency * 1e9, spread: 0.26, n: r.requests}
	if j.fsync {
		r.sync = latencies{mean: t.Sync * 1e9, spread: 0.31, n: r.requests}
	}
	return r
}

// latencies are n times in ns, log-normal as those of a queue that is neither
// empty nor overrun.
type latencies struct {
	mean   float64
	spread float64 // standard deviation of the logarithm
	n      int64
}

// quantile is the time that a share p of all are below.
func (l latencies) quantile(p float64) float64 {
	return l.mean * math.Exp(l.spread*math.Sqrt2*math.Erfinv(2*p-1)-l.spread*l.spread/2)
}

// below is the share of all that are below a time.
func (l latencies) below(ns float64) float64 {
	if l.n == 0 {
		return 0
	}
	return 0.5 * math.Erfc(-(math.Log(ns/l.mean)+l.spread*l.spread/2)/(l.spread*math.Sqrt2))
}

func (l latencies) deviation() float64 { return l.mean * math.Sqrt(math.Exp(l.spread*l.spread)-1) }

// least and most are the quantiles that n times have at their ends; of few
// times, the mean still lies between.
func (l latencies) least() int64 { return int64(min(l.mean, l.quantile(0.5/float64(l.n)))) }

func (l latencies) most() int64 {
	return int64(math.Ceil(max(l.mean, l.quantile(1-0.5/float64(l.n)))))
}

// fioBucket is the middle of the bucket of fio's histogram that a time falls
// in: 64 to each power of two (plat_val_to_idx and plat_idx_to_val of its
// stat.c, FIO_IO_U_PLAT_BITS 6).
func fioBucket(ns int64) int64 {
	msb := bits.Len64(uint64(ns)) - 1
	if msb <= 6 {
		return ns
	}
	width := int64(1) << (msb - 6)
	return ns/width*width + width/2
}

// pairs is a JSON object whose order stays.
type pairs []pair

type pair struct {
	name  string
	value any // string, int64, float64, pairs, []pairs
}

// write writes the object as fio's json.c does.
func (p pairs) write(out *strings.Builder, indent string) {
	inner := indent + "  "
	out.WriteString("{\n")
	for i, each := range p {
		fmt.Fprintf(out, "%s%s : ", inner, jsonString(each.name))
		switch v := each.value.(type) {
		case string:
			out.WriteString(jsonString(v))
		case int64:
			fmt.Fprintf(out, "%d", v)
		case float64:
			fmt.Fprintf(out, "%f", v)
		case pairs:
			v.write(out, inner)
		case []pairs:
			out.WriteString("[\n")
			for k, element := range v {
				out.WriteString(inner + "  ")
				element.write(out, inner+"  ")
				if k < len(v)-1 {
					out.WriteString(",")
				}
				out.WriteString("\n")
			}
			out.WriteString(inner + "]")
		}
		if i < len(p)-1 {
			out.WriteString(",")
		}
		out.WriteString("\n")
	}
	out.WriteString(indent + "}")
}

func fioOptions(options []fioOption) pairs {
	var all pairs
	for _, o := range options {
		all = append(all, pair{o.name, o.value})
	}
	return all
}

// report is the document of one run.
func (j fioJob) report(r fioRun, now time.Time) string {
	eta := int64(0)
	if j.layOut {
		eta = math.MaxInt32
	}
	idle := j.direction(fioRun{})
	read, write := idle, idle
	if j.write {
		write = j.direction(r)
	} else {
		read = j.direction(r)
	}
	syncs := pairs{{"total_ios", r.sync.n}, {"lat_ns", r.sync.object(true)}}
	job := pairs{
		{"jobname", j.name}, {"groupid", int64(0)}, {"error", int64(0)}, {"eta", eta}, {"elapsed", int64(r.elapsed.Seconds())},
		{"job options", fioOptions(j.own)},
		{"read", read}, {"write", write}, {"trim", idle}, {"sync", syncs},
	}
	job = append(job, j.usage(r)...)
	job = append(job, j.depths(r)...)
	job = append(job, r.total.histogram()...)
	job = append(job,
		pair{"latency_depth", int64(j.depth)}, pair{"latency_target", int64(0)},
		pair{"latency_percentile", 100.0}, pair{"latency_window", int64(0)},
	)
	document := pairs{
		{"fio version", fioRelease},
		{"timestamp", now.Unix()}, {"timestamp_ms", now.UnixMilli()}, {"time", now.UTC().Format(time.ANSIC)},
	}
	if len(j.global) > 0 {
		document = append(document, pair{"global options", fioOptions(j.global)})
	}
	// The shared filesystem has no block device here, so there is no disk_util.
	document = append(document, pair{"jobs", []pairs{job}})
	var out strings.Builder
	document.write(&out, "")
	out.WriteString("\n")
	return out.String()
}

// direction is the object of one direction.
func (j fioJob) direction(r fioRun) pairs {
	bytes := r.requests * j.block
	rate, iops := 0.0, 0.0
	if r.requests > 0 {
		rate, iops = float64(bytes)/r.runtime.Seconds(), float64(r.requests)/r.runtime.Seconds()
	}
	kib := rate / 1024
	// One sample of each job every half second, but for the first.
	samples := int64(0)
	if r.requests > 0 {
		samples = max(1, int64(r.runtime/(500*time.Millisecond))-1) * int64(j.jobs)
	}
	const dip, peak, wobble = 0.962, 1.031, 0.013
	all := 100.0
	if r.requests == 0 {
		all = 0
	}
	return pairs{
		{"io_bytes", bytes}, {"io_kbytes", bytes >> 10}, {"bw_bytes", int64(rate)}, {"bw", int64(kib)}, {"iops", iops},
		{"runtime", r.runtime.Milliseconds()}, {"total_ios", r.requests}, {"short_ios", int64(0)}, {"drop_ios", int64(0)},
		{"slat_ns", r.submission.object(false)}, {"clat_ns", r.completion.object(true)}, {"lat_ns", r.total.object(false)},
		{"bw_min", int64(dip * kib)}, {"bw_max", int64(peak * kib)}, {"bw_agg", all}, {"bw_mean", kib}, {"bw_dev", wobble * kib}, {"bw_samples", samples},
		{"iops_min", int64(dip * iops)}, {"iops_max", int64(peak * iops)}, {"iops_mean", iops}, {"iops_stddev", wobble * iops}, {"iops_samples", samples},
	}
}

// fioPercentiles are those that fio prints unless it is told others.
var fioPercentiles = []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99}

// object is one latency's object, with percentiles where there is any.
func (l latencies) object(percentiles bool) pairs {
	if l.n == 0 {
		return pairs{{"min", int64(0)}, {"max", int64(0)}, {"mean", 0.0}, {"stddev", 0.0}, {"N", int64(0)}}
	}
	object := pairs{{"min", l.least()}, {"max", l.most()}, {"mean", l.mean}, {"stddev", l.deviation()}, {"N", l.n}}
	if !percentiles {
		return object
	}
	var list pairs
	for _, p := range fioPercentiles {
		// Fewer times than the percentile needs give the largest.
		at := min(int64(l.quantile(p/100)), l.most())
		list = append(list, pair{fmt.Sprintf("%f", p), fioBucket(max(at, l.least()))})
	}
	return append(object, pair{"percentile", list})
}

// usage is what the jobs took of the node, on average.
func (j fioJob) usage(r fioRun) pairs {
	user, system, switches := 0.0, 0.0, int64(0)
	if r.requests > 0 {
		each := float64(r.requests) / r.runtime.Seconds() / float64(j.jobs)
		user, system = min(45, each*0.4e-4), min(50, each*2.6e-4)
		switches = r.requests / 16
		if !j.async() {
			switches = r.requests
		}
	}
	runtime := r.runtime.Truncate(10*time.Millisecond) * time.Duration(j.jobs)
	return pairs{
		{"job_runtime", runtime.Milliseconds()}, {"usr_cpu", user}, {"sys_cpu", system}, {"ctx", switches}, {"majf", int64(0)}, {"minf", int64(14 * j.jobs)},
	}
}

// depths are fio's counts of how full the queue was.
func (j fioJob) depths(r fioRun) pairs {
	level := pairs{}
	ran := r.requests > 0
	for _, bucket := range []int{1, 2, 4, 8, 16, 32, 64} {
		name, share := fmt.Sprint(bucket), 0.0
		if bucket == 64 {
			name = ">=64"
		}
		switch full := j.depth >= bucket && (j.depth < 2*bucket || bucket == 64); {
		case ran && full && j.async():
			share = 100
			if j.depth > 1 {
				share = 99.99
			}
		case ran && full:
			share = 100
			if j.fsync {
				share = 200 // an fsync counts as well
			}
		case ran && bucket < j.depth:
			share = 0.1 // a little, while the queue filled
		}
		level = append(level, pair{name, share})
	}
	batches := func() pairs {
		object := pairs{}
		for _, name := range []string{"0", "4", "8", "16", "32", "64", ">=64"} {
			share := 0.0
			if name == "4" && ran {
				share = 100
			}
			object = append(object, pair{name, share})
		}
		return object
	}
	return pairs{{"iodepth_level", level}, {"iodepth_submit", batches()}, {"iodepth_complete", batches()}}
}

// histogram is the share of the times in each of fio's coarse bins.
func (l latencies) histogram() pairs {
	steps := []float64{2, 4, 10, 20, 50, 100, 250, 500, 750, 1000}
	var groups pairs
	before := 0.0
	bin := func(until float64) float64 {
		share := 100 * (l.below(until) - before)
		before = l.below(until)
		switch {
		case share*float64(l.n) < 100:
			return 0 // not one
		case share < 0.01:
			return 0.01
		}
		return share
	}
	for _, unit := range []struct {
		name string
		ns   float64
	}{{"latency_ns", 1}, {"latency_us", 1e3}, {"latency_ms", 1e6}} {
		var group pairs
		for _, step := range steps {
			group = append(group, pair{fmt.Sprint(step), bin(step * unit.ns)})
		}
		if unit.name == "latency_ms" {
			group = append(group, pair{"2000", bin(2e9)}, pair{">=2000", bin(math.MaxInt64)})
		}
		groups = append(groups, pair{unit.name, group})
	}
	return groups
}
