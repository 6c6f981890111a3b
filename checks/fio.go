package checks

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// fioProfile is a load. The directions and metrics follow from it; the rest
// are defaults.
type fioProfile struct {
	rw        string
	engine    string
	blockSize byteSize
	iodepth   int
	jobs      int
	size      byteSize
	direct    bool
	extra     []fioOption
	direction string // the object of fio's JSON that has the rates
	layout    bool   // the files must be there before they are read
	latency   string // the object of fio's JSON that has the latency
	prefix    string // of the latency metrics
	bandwidth string // the bandwidth metric
	doc       string
}

// fioProfiles are the loads by name.
var fioProfiles = map[string]fioProfile{
	"small_reads": {
		rw: "randread", engine: "libaio", blockSize: 4 << 10, iodepth: 32, jobs: 4, size: 1 << 30, direct: true,
		direction: "read", layout: true, latency: "read/clat_ns", prefix: "read_clat", bandwidth: "read_bw",
		doc: "random reads, 4KiB blocks, 4 jobs with 32 requests in flight each, direct",
	},
	"sequential_write": {
		rw: "write", engine: "libaio", blockSize: 1 << 20, iodepth: 4, jobs: 8, size: 4 << 30, direct: true,
		extra:     []fioOption{{"unlink", "1"}}, // every round writes fresh files
		direction: "write", latency: "write/clat_ns", prefix: "write_clat", bandwidth: "write_bw",
		doc: "sequential writes, 1MiB blocks, 8 jobs with 4 requests in flight each, direct",
	},
	"fsync": {
		rw: "write", engine: "sync", blockSize: 4 << 10, iodepth: 1, jobs: 1, size: 64 << 20, direct: false,
		extra:     []fioOption{{"fsync", "1"}},
		direction: "write", latency: "sync/lat_ns", prefix: "fsync", bandwidth: "write_bw",
		doc: "4KiB writes with an fsync after each, one job",
	},
}

var fioProfileNames = []string{"small_reads", "sequential_write", "fsync"}

// fioEngines are the engines that the check knows how to judge: for the
// asynchronous ones a queue can be full.
var fioEngines = []string{"libaio", "io_uring", "sync", "psync"}

// load is the profile with the test's own values.
func (p storageParams) load() fioProfile {
	load := fioProfiles[p.Profile]
	if p.Engine != "" {
		load.engine = p.Engine
	}
	if p.BlockSize != nil {
		load.blockSize = *p.BlockSize
	}
	if p.IODepth != nil {
		load.iodepth = *p.IODepth
	}
	if p.Jobs != nil {
		load.jobs = *p.Jobs
	}
	if p.Size != nil {
		load.size = *p.Size
	}
	if p.Direct != nil {
		load.direct = *p.Direct
	}
	return load
}

// syncs reports whether an fsync follows each write.
func (l fioProfile) syncs() bool { return strings.HasPrefix(l.latency, "sync/") }

func (l fioProfile) async() bool { return l.engine == "libaio" || l.engine == "io_uring" }

// fioFiles matches the files that fioOptions makes fio write.
const fioFiles = "data.*"

// fioOption is one option with the value that fio must report back.
type fioOption struct{ name, value string }

func (p storageParams) fioOptions(directory string) []fioOption {
	load := p.load()
	direct := "0"
	if load.direct {
		direct = "1"
	}
	return []fioOption{
		{"name", "rackproof"},
		{"directory", directory},
		{"filename_format", "data.$jobnum"},
		{"rw", load.rw},
		{"ioengine", load.engine},
		{"bs", strconv.FormatUint(uint64(load.blockSize), 10)},
		{"iodepth", strconv.Itoa(load.iodepth)},
		{"numjobs", strconv.Itoa(load.jobs)},
		{"size", strconv.FormatUint(uint64(load.size), 10)},
		{"direct", direct},
		{"randrepeat", "0"},
		{"group_reporting", "1"},
	}
}

// roundOptions are the options of a measured run.
func (p storageParams) roundOptions(directory string) []fioOption {
	options := append(p.fioOptions(directory),
		fioOption{"time_based", "1"},
		fioOption{"runtime", strconv.FormatInt(p.Runtime.Std().Milliseconds(), 10) + "ms"},
	)
	options = append(options, p.load().extra...)
	if p.ramp() > 0 {
		options = append(options, fioOption{"ramp_time", strconv.FormatInt(p.ramp().Milliseconds(), 10) + "ms"})
	}
	return options
}

func fioArgv(options []fioOption, extra ...string) []string {
	argv := []string{"fio"}
	for _, o := range options {
		argv = append(argv, "--"+o.name+"="+o.value)
	}
	argv = append(argv, extra...)
	return append(argv, "--output-format=json", "--eta=never")
}

// fioClient is what one client measured in one round.
type fioClient struct {
	node                string
	exit                evidence.Exit
	iops, bw, mean, p99 reading
}

func (m storageMeasure) client(step, node string) (fioClient, bool) {
	out, root, ok := m.fio(step, node, m.params.roundOptions(m.params.directory(m.view.Test.Name, node)))
	if !ok {
		return fioClient{}, false
	}
	client := fioClient{node: node, exit: out.exit}
	load := m.params.load()
	number := func(path string) reading {
		tokens := append([]string{"jobs", "0"}, strings.Split(path, "/")...)
		value, missing := jsonNumber(lookup(root, tokens...))
		return reading{value, missing, out.at("%s", pointerText(tokens...))}
	}
	direction := load.direction + "/"
	client.iops = number(direction + "iops")
	client.bw = number(direction + "bw_bytes").dividedBy(1 << 20)
	client.mean = number(load.latency + "/mean").dividedBy(1e6)
	client.p99 = number(load.latency + "/percentile/99.000000").dividedBy(1e6)
	samples := number(load.latency + "/N")
	if client.mean.missing != "" {
		// Whoever served requests has their mean: what lacks it is not whole.
		m.report(node, step, evidence.ClassUnparsable, "fio printed no %s/mean: %s", load.latency, client.mean.missing)
		return fioClient{}, false
	}
	if samples.missing != "" || samples.value < 1 {
		client.mean.missing = token("(" + strconv.FormatFloat(samples.value, 'g', -1, 64) + " samples)")
	}
	if samples.missing != "" || samples.value < 100 {
		// A 99th percentile of fewer than 100 is their maximum at best.
		client.p99.missing = token("(" + strconv.FormatFloat(samples.value, 'g', -1, 64) + " samples, 100 needed)")
	}
	if !m.latency(step, node, load.latency, client.p99.missing == "", number) {
		return fioClient{}, false
	}
	return client, m.plausible(step, node, load, number)
}

// fio's percentiles are the middles of the buckets of a histogram, 64 to each
// power of two, so one is off by a 128th at most; the last bucket begins below
// 2^34 ns and has everything above (FIO_IO_U_PLAT_BITS and _GROUP_NR in its
// stat.h, from 3.0 to 3.42).
const (
	bucketError = 1.0 / 128
	lastBucket  = (1<<34 - 1<<27) / 1e6 // ms
)

// latency holds fio's numbers of one latency against each other.
func (m storageMeasure) latency(step, node, object string, withP99 bool, number func(string) reading) bool {
	names := []string{"min", "mean", "max"}
	if withP99 {
		names = append(names, "percentile/99.000000")
	}
	values := make([]float64, 4)
	for i, name := range names {
		r := number(object + "/" + name)
		if r.missing != "" {
			m.report(node, step, evidence.ClassUnparsable, "fio printed no %s/%s: %s", object, name, r.missing)
			return false
		}
		values[i] = r.dividedBy(1e6).value
	}
	least, mean, most, p99 := values[0], values[1], values[2], values[3]
	bad := func(format string, args ...any) bool {
		m.report(node, step, evidence.ClassUnparsable, object+": "+format, args...)
		return false
	}
	const rounded = 1e-6 // of a mean that was added up in floating point
	switch {
	case least < 0:
		return bad("the least is %g ms, and nothing ends before it began", least)
	case mean < least*(1-rounded) || mean > most*(1+rounded):
		return bad("the mean is %g ms, and not between the least, %g, and the largest, %g", mean, least, most)
	case !withP99:
		return true
	case p99 < min(least, lastBucket)*(1-bucketError) || p99 > most*(1+bucketError):
		return bad("the 99th percentile is %g ms, and not between the least, %g, and the largest, %g", p99, least, most)
	case p99 < lastBucket && mean > (0.99*p99*(1+bucketError)+0.01*most)*(1+rounded):
		// 99 of 100 are at most the percentile, and one is at most the largest.
		return bad("the mean is %g ms, and a 99th percentile of %g with a largest of %g leaves no room for it", mean, p99, most)
	}
	return true
}

// plausible holds fio's numbers against each other.
func (m storageMeasure) plausible(step, node string, load fioProfile, number func(string) reading) bool {
	direction := load.direction + "/"
	values := make(map[string]float64)
	for _, name := range []string{"io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "drop_ios", "lat_ns/mean", "clat_ns/mean"} {
		r := number(direction + name)
		if r.missing != "" {
			m.report(node, step, evidence.ClassUnparsable, "fio printed no %s%s: %s", direction, name, r.missing)
			return false
		}
		values[name] = r.value
	}
	asked := m.params.Runtime.Std().Seconds()
	ran := values["runtime"] / 1000
	bad := func(format string, args ...any) bool {
		m.report(node, step, evidence.ClassUnparsable, format, args...)
		return false
	}
	switch {
	case values["io_bytes"] <= 0 || values["total_ios"] <= 0 || values["iops"] <= 0 || values["bw_bytes"] <= 0 || ran <= 0:
		return bad("fio did no requests: %g bytes in %g requests", values["io_bytes"], values["total_ios"])
	case values["drop_ios"] > 0:
		return bad("fio dropped %g requests", values["drop_ios"])
	case ran < 0.95*asked-startSlack:
		return bad("fio ran %g s of the %g s asked", ran, asked)
	case ran > 2*asked+60:
		return bad("fio ran %g s where %g s were asked", ran, asked)
	case differ(values["iops"]*ran, values["total_ios"], 0.05):
		return bad("iops %g in %g s is not the %g requests that fio counted", values["iops"], ran, values["total_ios"])
	case differ(values["iops"]*float64(load.blockSize), values["bw_bytes"], 0.05):
		return bad("iops %g of %d bytes is not the %g bytes a second that fio counted", values["iops"], load.blockSize, values["bw_bytes"])
	}
	// Little's law: requests in flight = rate × time in the system (Little
	// 1961). More than was asked cannot be; less means that the latency or
	// the rate is wrong, if the queue was full all the time.
	inFlight := values["iops"] * values["lat_ns/mean"] / 1e9
	limit := float64(load.jobs)
	if load.async() {
		limit *= float64(load.iodepth)
	}
	if load.syncs() {
		// A job waits for its write and then for the fsync after it.
		syncs, mean := number("sync/lat_ns/N"), number("sync/lat_ns/mean")
		if missing := syncs.missing + mean.missing; missing != "" {
			return bad("fio printed no latencies of its fsyncs: %s", missing)
		}
		if math.Abs(syncs.value-values["total_ios"]) > 0.05*values["total_ios"]+float64(load.jobs) {
			return bad("fio did %g fsyncs after %g writes, where one after each was asked", syncs.value, values["total_ios"])
		}
		inFlight += syncs.value / ran * mean.value / 1e9
	}
	if inFlight > 1.1*limit {
		return bad("iops × mean latency is %.1f requests in flight and only %g were asked (Little's law)", inFlight, limit)
	}
	if load.async() {
		if full := number("iodepth_level/" + depthBucket(load.iodepth)); full.missing != "" {
			return bad("fio printed no iodepth_level: %s", full.missing)
		} else if full.value >= 90 && inFlight < leastInFlight*limit {
			return bad("iops × mean latency is %.1f requests in flight although %g %% of the time the queue of %g was full (Little's law)", inFlight, full.value, limit)
		}
	}
	// A request is submitted, which lat_ns has too, and then completed. The
	// hundredth is for requests that only one of the two means has.
	if completion, total := values["clat_ns/mean"], values["lat_ns/mean"]; completion > 1.01*total {
		return bad("completion took %g ms and the whole request %g ms", completion/1e6, total/1e6)
	}
	return true
}

// startSlack is how many seconds of its run time fio may lose on a busy node
// before its first request.
const startSlack = 0.2

// leastInFlight is the share of a full queue that rate × latency must show. A
// client that waits for a processor between two requests is not in fio's
// latency, so a busy node shows less than it should; a factor of a wrong unit,
// or a lost half, shows far less.
const leastInFlight = 0.6

// depthBucket is the key of fio's iodepth_level that counts a full queue: the
// largest power of two that is not above depth.
func depthBucket(depth int) string {
	if depth >= 64 {
		return ">=64"
	}
	bucket := 1
	for bucket*2 <= depth {
		bucket *= 2
	}
	return strconv.Itoa(bucket)
}

// errNoSpace is ENOSPC, in fio's error field.
const errNoSpace = 28

// fio reads the JSON document of one fio run and holds it against the options
// that were asked.
func (m storageMeasure) fio(step, node string, options []fioOption) (stepOutput, any, bool) {
	// fio exits with 1 and prints a whole document when a job failed.
	out, ok := m.step(step, node, 0, 1)
	if !ok {
		return out, nil, false
	}
	root, err := lastFioDocument(out.stdout)
	if err != nil {
		class := evidence.ClassUnparsable
		if *out.exit.Code == 0 && !errors.Is(err, errManyValues) {
			class = evidence.ClassOutputCut
		}
		m.report(node, step, class, "stdout does not end with a whole JSON document: %v%s", err, firstLine(out.stderr))
		return out, nil, false
	}
	if !m.release(out, root) {
		return out, nil, false
	}
	jobs, _ := lookup(root, "jobs")
	if list, isList := jobs.([]any); !isList || len(list) != 1 {
		m.report(node, step, evidence.ClassUnparsable, "fio reports %d jobs where one group was asked", len(list))
		return out, nil, false
	}
	failure, missing := jsonNumber(lookup(root, "jobs", "0", "error"))
	switch {
	case missing != "":
		m.report(node, step, evidence.ClassUnparsable, "fio printed no error number: %s", missing)
		return out, nil, false
	case failure == errNoSpace:
		m.report(node, step, evidence.ClassNodeDiskFull, "fio: no space left on %s%s", m.params.Path, firstLine(out.stderr))
		return out, nil, false
	case failure != 0:
		m.report(node, step, evidence.ClassExit, "fio: error %g%s", failure, firstLine(out.stderr))
		return out, nil, false
	case *out.exit.Code != 0:
		m.report(node, step, evidence.ClassExit, "exit status %d%s", *out.exit.Code, firstLine(out.stderr))
		return out, nil, false
	}
	for _, o := range options {
		text, missing := jsonText(lookup(root, "jobs", "0", "job options", o.name))
		if missing != "" {
			text, missing = jsonText(lookup(root, "global options", o.name))
		}
		if missing != "" || text != o.value {
			m.report(node, step, evidence.ClassUnparsable, "fio ran with %s %q and was asked for %q", o.name, token(text), o.value)
			return out, nil, false
		}
	}
	return out, root, true
}

// The first fio whose JSON has all that is read here: latencies in ns are of
// 3.0, bw_bytes of 3.2, sync of 3.4, and the number N of a latency's requests
// of 3.18 (stat.c at the tags of its repository).
const fioMajor, fioMinor = 3, 18

// fioRelease is a release, or a build between two: fio-3.36-64-gab12.
var fioRelease = regexp.MustCompile(`^fio-((\d{1,4})\.(\d{1,4})(?:[.-].*)?)$`)

// release reports which fio wrote the document; of the largest round it is a
// fact.
func (m storageMeasure) release(out stepOutput, root any) bool {
	text, missing := jsonText(lookup(root, "fio version"))
	match := fioRelease.FindStringSubmatch(text)
	switch {
	case missing != "":
		m.report(out.node, out.step, evidence.ClassUnparsable, "fio printed no version: %s", missing)
		return false
	case match == nil:
		m.report(out.node, out.step, evidence.ClassUnparsable, "fio's version is not one such as fio-3.33: %q", token(text))
		return false
	}
	major, _ := strconv.Atoi(match[2]) // at most four digits, by the pattern
	minor, _ := strconv.Atoi(match[3])
	if major < fioMajor || major == fioMajor && minor < fioMinor {
		m.report(out.node, out.step, evidence.ClassToolVersion, "%s does not print how many requests a latency is of: install fio %d.%d or newer", text, fioMajor, fioMinor)
		return false
	}
	if out.step == roundStep(m.params.largest()) {
		m.fact("fio_version", out.node, match[1], "", out.at("/fio version"))
	}
	return true
}

// lastFioDocument is the last of the JSON documents in text. fio prints one
// for every status interval, and may print lines of text before the first.
func lastFioDocument(text []byte) (any, error) {
	start := 0
	for start < len(text) && text[start] != '{' {
		end := slices.Index(text[start:], '\n')
		if end < 0 {
			return nil, errors.New("there is none")
		}
		start += end + 1
	}
	decoder := json.NewDecoder(bytes.NewReader(text[start:]))
	var last json.RawMessage
	for {
		var next json.RawMessage
		err := decoder.Decode(&next)
		switch {
		case err == nil:
			last = next
		case errors.Is(err, io.EOF) && last != nil:
			return jsonTree(last)
		case errors.Is(err, io.EOF):
			return nil, errors.New("there is none")
		default:
			return nil, err
		}
	}
}
