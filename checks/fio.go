package checks

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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
	for _, latency := range []struct {
		what string
		reading
	}{{"mean", client.mean}, {"99th percentile", client.p99}} {
		if latency.missing == "" && latency.value < 0 {
			m.report(node, step, evidence.ClassUnparsable, "the %s of the latency is %g ms, and nothing ends before it began", latency.what, latency.value)
			return fioClient{}, false
		}
	}
	return client, m.plausible(step, node, load, number)
}

// plausible holds fio's numbers against each other.
func (m storageMeasure) plausible(step, node string, load fioProfile, number func(string) reading) bool {
	direction := load.direction + "/"
	values := make(map[string]float64)
	for _, name := range []string{"io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "drop_ios", "lat_ns/mean"} {
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
	if !load.async() {
		return true
	}
	inFlight := values["iops"] * values["lat_ns/mean"] / 1e9
	limit := float64(load.jobs * load.iodepth)
	if inFlight > 1.1*limit {
		return bad("iops × mean latency is %.1f requests in flight and only %g were asked (Little's law)", inFlight, limit)
	}
	if full := number("iodepth_level/" + depthBucket(load.iodepth)); full.missing != "" {
		return bad("fio printed no iodepth_level: %s", full.missing)
	} else if full.value >= 90 && inFlight < leastInFlight*limit {
		return bad("iops × mean latency is %.1f requests in flight although %g %% of the time the queue of %g was full (Little's law)", inFlight, full.value, limit)
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

// release reports which fio wrote the document; of the largest round it is a
// fact.
func (m storageMeasure) release(out stepOutput, root any) bool {
	text, missing := jsonText(lookup(root, "fio version"))
	release, named := strings.CutPrefix(text, "fio-")
	major, _, dotted := strings.Cut(release, ".")
	number, err := strconv.Atoi(major)
	switch {
	case missing != "":
		m.report(out.node, out.step, evidence.ClassUnparsable, "fio printed no version: %s", missing)
		return false
	case !named || !dotted || err != nil:
		m.report(out.node, out.step, evidence.ClassUnparsable, "fio's version is not one such as fio-3.33: %q", token(text))
		return false
	case number < 3:
		m.report(out.node, out.step, evidence.ClassToolVersion, "%s prints latencies in another unit: install fio 3 or newer", text)
		return false
	}
	if out.step == roundStep(m.params.largest()) {
		m.fact("fio_version", out.node, release, "", out.at("/fio version"))
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
