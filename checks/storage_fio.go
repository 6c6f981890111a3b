package checks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// storageFio loads a mounted filesystem with fio from one or many clients at
// once.
type storageFio struct{}

type storageParams struct {
	Path       string             `json:"path"`
	Filesystem string             `json:"filesystem"`
	Source     string             `json:"source"`
	Mount      string             `json:"mount"`
	Profile    string             `json:"profile"`
	Clients    []int              `json:"clients"`
	Engine     string             `json:"engine"`
	BlockSize  *byteSize          `json:"block_size"`
	IODepth    *int               `json:"iodepth"`
	Jobs       *int               `json:"jobs"`
	Size       *byteSize          `json:"size"`
	Direct     *bool              `json:"direct"`
	Runtime    evidence.Duration  `json:"runtime"`
	Ramp       *evidence.Duration `json:"ramp"`
}

// byteSize is a number of bytes, "4KiB" in JSON.
type byteSize uint64

// UnmarshalText reads what evidence.ParseBytes reads.
func (b *byteSize) UnmarshalText(text []byte) error {
	n, err := evidence.ParseBytes(string(text))
	*b = byteSize(n)
	return err
}

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

func (storageFio) Spec() Spec {
	profiles := make([]string, len(fioProfileNames))
	for i, name := range fioProfileNames {
		profiles[i] = name + " (" + fioProfiles[name].doc + ")"
	}
	return Spec{
		Name: "storage_fio",
		Doc: "Loads a filesystem with fio 3, in a directory of its own that is removed afterwards, and proves before and after that the path lies on the declared filesystem: " +
			"fio itself creates what is missing and then measures the local disk. " +
			"In scope \"fleet\" the first n nodes run at once, for each n of clients; in scope \"node\" every node runs alone, as clients = \"1\". " +
			"What each client measured is reported for the largest round; for smaller rounds bind the total_ metrics and fairness. " +
			"A result is refused where fio's own numbers disagree: with Little's law, with the run time, or with the options that were asked for.",
		Version: 1,
		Scopes:  []evidence.Scope{evidence.ScopeNode, evidence.ScopeFleet},
		Loads:   []string{"storage"},
		Needs:   []evidence.Capability{evidence.CapExec},
		Params: []evidence.Param{
			{Name: "path", Type: evidence.ParamString, Required: true, Doc: "The directory to work in, absolute. It must be there already."},
			{Name: "filesystem", Type: evidence.ParamString, Required: true, Doc: "The type of the filesystem that path lies on, as findmnt names it."},
			{Name: "source", Type: evidence.ParamString, Doc: "Its source, as findmnt names it, where that is to be proven too."},
			{Name: "mount", Type: evidence.ParamString, Doc: "Its mount point, where that is to be proven too: needed where the local disk has a filesystem of the same type."},
			{Name: "profile", Type: evidence.ParamString, Default: "small_reads", Enum: fioProfileNames, Doc: "The load: " + strings.Join(profiles, "; ") + "."},
			{Name: "clients", Type: evidence.ParamNumbers, Default: []int{1}, Doc: "How many nodes run at once, one round each, in rising order. The last must be the number of the test's nodes; in scope \"node\" it is [1]."},
			{Name: "engine", Type: evidence.ParamString, Enum: fioEngines, Doc: "fio's engine; the profile's by default (libaio, sync for fsync)."},
			{Name: "block_size", Type: evidence.ParamBytes, Doc: "Bytes of one request; the profile's by default."},
			{Name: "iodepth", Type: evidence.ParamNumber, Doc: "Requests in flight for each job; the profile's by default."},
			{Name: "jobs", Type: evidence.ParamNumber, Doc: "Jobs on each client; the profile's by default."},
			{Name: "size", Type: evidence.ParamBytes, Doc: "Bytes of each job's file; the profile's by default. With direct = false it should be twice the memory."},
			{Name: "direct", Type: evidence.ParamBool, Doc: "Whether to go past the page cache; the profile's by default (true, false for fsync)."},
			{Name: "runtime", Type: evidence.ParamDuration, Default: "60s", Doc: "How long each round is measured."},
			{Name: "ramp", Type: evidence.ParamDuration, Default: "10s", Doc: "How long each round runs before it is measured."},
		},
		Validate: func(p json.RawMessage) error {
			params, err := readStorageParams(p)
			if err != nil {
				return err
			}
			return params.validate()
		},
		Metrics: func(p json.RawMessage) []Metric {
			params, err := readStorageParams(p)
			if err != nil {
				return nil
			}
			return params.metrics()
		},
		Facts: func(json.RawMessage) []FactSpec { return slices.Clone(storageFacts) },
		Subjects: func(_ evidence.Fleet, nodes []string, scope evidence.Scope, metric string, p json.RawMessage) []evidence.Subject {
			params, err := readStorageParams(p)
			if err != nil || len(nodes) == 0 || params.clientsFit(scope, len(nodes)) != nil {
				return nil
			}
			if params.ofFleet(metric) {
				if scope != evidence.ScopeFleet {
					return nil
				}
				return []evidence.Subject{evidence.SubjectFleet}
			}
			return nodeSubjects(nodes)
		},
	}
}

var storageFacts = []FactSpec{
	{Name: "fio_version", Level: "node", Doc: "The release of fio, such as 3.33."},
	{Name: "filesystem", Level: "node", Doc: "The type of the filesystem that path lies on."},
	{Name: "mount_source", Level: "node", Doc: "Its source."},
	{Name: "mount_target", Level: "node", Doc: "Its mount point."},
}

func readStorageParams(p json.RawMessage) (storageParams, error) {
	var params storageParams
	if err := evidence.DecodeStrict(p, &params); err != nil {
		return storageParams{}, fmt.Errorf("parameters of storage_fio: %w", err)
	}
	if _, known := fioProfiles[params.Profile]; !known {
		return storageParams{}, fmt.Errorf("profile is %q: choose one of %s", params.Profile, strings.Join(fioProfileNames, ", "))
	}
	return params, nil
}

func (p storageParams) validate() error {
	load := p.load()
	switch {
	case !path.IsAbs(p.Path) || path.Clean(p.Path) != p.Path || p.Path == "/":
		return fmt.Errorf("path is %q: give an absolute path without dot segments, below the root", p.Path)
	case strings.ContainsAny(p.Path, ":\\$"):
		// fio splits its directory option at colons and expands the rest.
		return fmt.Errorf("path is %q: fio gives \":\", \"\\\" and \"$\" in a path a meaning of their own", p.Path)
	case p.Filesystem == "" || strings.ContainsAny(p.Filesystem, ", "):
		return fmt.Errorf("filesystem is %q: name one type, as findmnt does", p.Filesystem)
	case strings.HasPrefix(p.Filesystem, "no"):
		// findmnt -t nofoo means every type but foo, so it would let all pass.
		return fmt.Errorf("filesystem is %q: findmnt takes a type that begins with \"no\" for its opposite", p.Filesystem)
	case p.Mount != "" && (!path.IsAbs(p.Mount) || path.Clean(p.Mount) != p.Mount):
		return fmt.Errorf("mount is %q: give an absolute path, without dot segments", p.Mount)
	case !slices.Contains(fioEngines, load.engine):
		return fmt.Errorf("engine is %q: choose one of %s", load.engine, strings.Join(fioEngines, ", "))
	case load.blockSize == 0 || load.size < load.blockSize || load.size%load.blockSize != 0:
		return fmt.Errorf("size is %s and block_size %s: size must be a multiple of block_size", evidence.FormatBytes(uint64(load.size)), evidence.FormatBytes(uint64(load.blockSize)))
	case load.jobs < 1 || load.jobs > 1024:
		return fmt.Errorf("jobs is %d: give 1 to 1024", load.jobs)
	case load.iodepth < 1 || load.iodepth > 65536:
		return fmt.Errorf("iodepth is %d: give 1 to 65536", load.iodepth)
	case load.iodepth > 1 && !load.async():
		return fmt.Errorf("iodepth is %d and engine %s has one request in flight: raise jobs instead", load.iodepth, load.engine)
	case p.Runtime.Std() < time.Second:
		return fmt.Errorf("runtime is %s: give at least 1s", p.Runtime)
	case len(p.Clients) == 0:
		return errors.New("clients is empty: give at least one number of clients")
	}
	for i, n := range p.Clients {
		if n < 1 || (i > 0 && n <= p.Clients[i-1]) {
			return fmt.Errorf("clients is %v: give positive numbers in rising order", p.Clients)
		}
	}
	return nil
}

// clientsFit says whether the rounds end with all nodes: a node that never
// was a client would be accepted without having been measured.
func (p storageParams) clientsFit(scope evidence.Scope, nodes int) error {
	want := nodes
	if scope != evidence.ScopeFleet {
		want = 1
	}
	if last := p.largest(); last != want {
		return fmt.Errorf("clients ends with %d: in scope %q with %d nodes it must end with %d", last, scope, nodes, want)
	}
	if scope != evidence.ScopeFleet && len(p.Clients) != 1 {
		return fmt.Errorf("clients is %v: in scope %q every node runs alone, so it must be [1]", p.Clients, scope)
	}
	return nil
}

func (p storageParams) largest() int {
	if len(p.Clients) == 0 {
		return 0
	}
	return p.Clients[len(p.Clients)-1]
}

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

func (p storageParams) ramp() time.Duration {
	if p.Ramp == nil {
		return 0
	}
	return p.Ramp.Std()
}

func (p storageParams) metrics() []Metric {
	load := p.load()
	var rounds, crowds []string
	for _, n := range p.Clients {
		rounds = append(rounds, strconv.Itoa(n))
		if n > 1 {
			crowds = append(crowds, strconv.Itoa(n))
		}
	}
	own := []Label{{Name: "clients", Values: []string{strconv.Itoa(p.largest())}}}
	all := []Label{{Name: "clients", Values: rounds}}
	latency := "The %s completion latency of requests, as fio computed it."
	if load.prefix == "fsync" {
		latency = "The %s latency of an fsync, as fio computed it from sync.lat_ns."
	}
	metrics := []Metric{
		{Name: "iops", Unit: "1/s", Level: "node", Labels: own, Doc: "Requests a second of one client; stat = \"sum\" with per = \"test\" is their total."},
		{Name: load.bandwidth, Unit: "MiB/s", Level: "node", Labels: own, Doc: "Bytes a second of one client (fio's bw_bytes)."},
		{Name: load.prefix + "_mean", Unit: "ms", Level: "node", Labels: own, Doc: fmt.Sprintf(latency, "mean")},
		{Name: load.prefix + "_p99", Unit: "ms", Level: "node", Labels: own, Doc: fmt.Sprintf(latency, "99th percentile of the")},
		{Name: "total_iops", Unit: "1/s", Level: "fleet", Labels: all, Doc: "Requests a second of all clients of a round together."},
		{Name: "total_bw", Unit: "MiB/s", Level: "fleet", Labels: all, Doc: "Bytes a second of all clients of a round together."},
		{Name: "worst_p99", Unit: "ms", Level: "fleet", Labels: all, Doc: "The largest " + load.prefix + "_p99 of the clients of a round."},
	}
	if len(crowds) > 0 {
		metrics = append(metrics, Metric{
			Name: "fairness", Unit: "1", Level: "fleet", Labels: []Label{{Name: "clients", Values: crowds}},
			Doc: "Requests a second of the slowest client over those of the median client, of rounds with more than one.",
		})
	}
	return metrics
}

func (p storageParams) ofFleet(metric string) bool {
	return slices.ContainsFunc(p.metrics(), func(m Metric) bool { return m.Name == metric && m.Level == "fleet" })
}

const findmntColumns = "TARGET,SOURCE,FSTYPE,OPTIONS"

// directory is the check's own, named for test and node so that nodes that
// share the filesystem do not share files.
func (p storageParams) directory(test, node string) string {
	return path.Join(p.Path, "rackproof-"+evidence.PathName(test)+"-"+evidence.PathName(node))
}

func (p storageParams) files(directory string) []string {
	files := make([]string, p.load().jobs)
	for i := range files {
		files[i] = path.Join(directory, "data."+strconv.Itoa(i))
	}
	return files
}

// gate is findmnt with conditions: it exits with 1 unless they hold, so that
// nothing is written to another filesystem.
func (p storageParams) gate(target string) []string {
	argv := []string{"findmnt", "-J", "-o", findmntColumns, "-t", p.Filesystem}
	if p.Source != "" {
		argv = append(argv, "-S", p.Source)
	}
	return append(argv, "-T", target)
}

// mountPoint is findmnt on the mount point itself; it exits with 1 where
// nothing of that type is mounted there.
func (p storageParams) mountPoint() []string {
	return []string{"findmnt", "-J", "-o", findmntColumns, "-t", p.Filesystem, "-M", p.Mount}
}

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

const (
	fioVersionStep = "version"
	mountStep      = "mount"
	gateStep       = "gate"
	mountPointStep = "mount-point"
	directoryStep  = "directory"
	layoutStep     = "layout"
	afterStep      = "after"
	cleanFiles     = "clean-files"
	cleanDirectory = "clean-directory"
	roundPrefix    = "fio-"
)

func roundStep(clients int) string { return roundPrefix + strconv.Itoa(clients) }

// argv is what a step of test runs on node; nil for a step that is none.
func (p storageParams) argv(test, step, node string) []string {
	directory := p.directory(test, node)
	switch step {
	case fioVersionStep:
		return []string{"fio", "--version"}
	case mountStep:
		return []string{"findmnt", "-J", "-o", findmntColumns, "-T", p.Path}
	case gateStep:
		return p.gate(p.Path)
	case mountPointStep:
		return p.mountPoint()
	case directoryStep:
		return []string{"mkdir", "-p", "--", directory}
	case layoutStep:
		return fioArgv(p.fioOptions(directory), "--create_only=1")
	case afterStep:
		return p.gate(directory)
	case cleanFiles:
		return append([]string{"rm", "-f", "--"}, p.files(directory)...)
	case cleanDirectory:
		return []string{"rmdir", "--", directory}
	}
	if strings.HasPrefix(step, roundPrefix) {
		return fioArgv(p.roundOptions(directory))
	}
	return nil
}

func (storageFio) Drive(ctx context.Context, b Bench) error {
	var params storageParams
	if err := b.Params(&params); err != nil {
		return err
	}
	test, nodes := b.Test(), fleetOrder(b.Fleet(), b.Nodes())
	if err := params.clientsFit(test.Scope, len(nodes)); err != nil {
		return &evidence.Problem{Class: evidence.ClassNotRun, Detail: err.Error()}
	}
	command := func(step string) func(string) Command {
		return func(node string) Command { return Command{Node: node, Argv: params.argv(test.Name, step, node)} }
	}
	if err := b.ExecAll(ctx, fioVersionStep, nodes, command(fioVersionStep)); err != nil {
		return err
	}
	// fio creates what is missing, so nothing may be written before the mount
	// was proven.
	if err := insist(ctx, b, mountStep, nodes, command(mountStep),
		evidence.ClassMountMissing, params.Path+" is not there"); err != nil {
		return err
	}
	if err := insist(ctx, b, gateStep, nodes, command(gateStep),
		evidence.ClassWrongFilesystem, params.undeclared()+", so nothing was written"); err != nil {
		return err
	}
	if params.Mount != "" {
		if err := insist(ctx, b, mountPointStep, nodes, command(mountPointStep),
			evidence.ClassMountMissing, "nothing of type "+params.Filesystem+" is mounted on "+params.Mount+", so nothing was written"); err != nil {
			return err
		}
	}

	// The last one asked for runs first.
	for _, node := range nodes {
		if err := errors.Join(
			b.Cleanup(cleanDirectory, command(cleanDirectory)(node)),
			b.Cleanup(cleanFiles, command(cleanFiles)(node)),
		); err != nil {
			return err
		}
	}
	if err := insist(ctx, b, directoryStep, nodes, command(directoryStep),
		evidence.ClassExit, "the directory for the files cannot be made below "+params.Path); err != nil {
		return err
	}
	if params.load().layout {
		if err := b.ExecAll(ctx, layoutStep, nodes, command(layoutStep)); err != nil {
			return err
		}
	}
	for _, n := range params.Clients {
		if err := b.ExecAll(ctx, roundStep(n), nodes[:n], func(node string) Command {
			c := command(roundStep(n))(node)
			if test.Silence > 0 {
				// fio prints nothing until it is done.
				c.Silence = max(test.Silence.Std(), params.Runtime.Std()+params.ramp()+time.Minute)
			}
			return c
		}); err != nil {
			return err
		}
	}
	return b.ExecAll(ctx, afterStep, nodes, command(afterStep))
}

// insist runs one command a node at once and makes a problem of class out of
// every exit status that is not 0.
func insist(ctx context.Context, b Bench, step string, nodes []string, command func(string) Command, class evidence.Class, detail string) error {
	failed := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() {
			exit, err := b.Exec(ctx, step, command(node))
			if err == nil && !exit.OK() {
				err = &evidence.Problem{Node: node, Step: step, Class: class, Detail: detail}
			}
			failed[i] = err
		})
	}
	group.Wait()
	return errors.Join(failed...)
}

// undeclared says that the path is not where the runbook declares it.
func (p storageParams) undeclared() string {
	text := fmt.Sprintf("%s does not lie on a filesystem of type %s", p.Path, p.Filesystem)
	if p.Source != "" {
		text += " from " + p.Source
	}
	return text
}

func (storageFio) Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	params, err := readStorageParams(c.Test.Params)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(params.validate(), params.clientsFit(c.Test.Scope, len(c.Nodes))); err != nil {
		return nil, nil, err
	}
	asked := func(step, node string) commandLine { return exactly(params.argv(c.Test.Name, step, node)) }
	m := storageMeasure{collector: newCollector(c, raw, asked), params: params, metrics: params.metrics(), sound: make(map[string]bool)}
	nodes := fleetOrder(c.Fleet, c.Nodes) // as in Drive: a round takes the first ones
	for _, node := range nodes {
		m.sound[node] = m.node(node)
	}
	for _, n := range params.Clients {
		m.round(n, nodes[:n])
	}
	return m.result()
}

type storageMeasure struct {
	*collector
	params  storageParams
	metrics []Metric
	sound   map[string]bool // the node wrote to the declared filesystem all the time, and nowhere else
}

// node checks everything around the rounds.
func (m storageMeasure) node(node string) bool {
	sound := m.version(node)
	mount, ok := m.mount(mountStep, node)
	if !ok {
		return false
	}
	m.fact("filesystem", node, mount.fstype, "", mount.at("fstype"))
	m.fact("mount_source", node, mount.source, "", mount.at("source"))
	m.fact("mount_target", node, mount.target, "", mount.at("target"))
	if !m.declared(node, mount) {
		return false
	}
	proofs := []string{gateStep, afterStep}
	if m.params.Mount != "" {
		proofs = append(proofs, mountPointStep)
	}
	for _, step := range proofs {
		again, ok := m.mount(step, node)
		switch {
		case !ok:
			sound = false
		case again.target != mount.target || again.source != mount.source || again.fstype != mount.fstype:
			m.report(node, step, evidence.ClassWrongFilesystem, "%s was on %s from %s at first, and then on %s from %s", m.params.Path, mount.target, mount.source, again.target, again.source)
			sound = false
		}
	}
	for _, step := range []string{directoryStep, cleanFiles, cleanDirectory} {
		out, ok := m.step(step, node)
		if ok && len(out.stdout) > 0 {
			m.report(node, step, evidence.ClassUnparsable, "stdout should be empty: %q", token(string(out.stdout)))
			ok = false
		}
		sound = sound && ok
	}
	if m.params.load().layout {
		_, _, ok := m.fio(layoutStep, node, m.params.fioOptions(m.params.directory(m.view.Test.Name, node)))
		sound = sound && ok
	}
	return sound
}

func (m storageMeasure) version(node string) bool {
	out, ok := m.step(fioVersionStep, node)
	if !ok {
		return false
	}
	text, whole := strings.CutSuffix(string(out.stdout), "\n")
	release, named := strings.CutPrefix(text, "fio-")
	if !whole || !named {
		m.report(node, out.step, evidence.ClassOutputCut, "stdout is not a version such as fio-3.33: %q", token(string(out.stdout)))
		return false
	}
	major, _, dotted := strings.Cut(release, ".")
	if number, err := strconv.Atoi(major); err != nil || !dotted || strings.Contains(release, "\n") {
		m.report(node, out.step, evidence.ClassUnparsable, "stdout is not a version such as fio-3.33: %q", token(text))
		return false
	} else if number < 3 {
		m.report(node, out.step, evidence.ClassToolVersion, "%s prints latencies in another unit: install fio 3 or newer", text)
		return false
	}
	m.fact("fio_version", node, release, "", out.at("1"))
	return true
}

// mountEntry is what findmnt said of a path.
type mountEntry struct {
	out                    stepOutput
	target, source, fstype string
}

func (e mountEntry) at(column string) string { return e.out.at("/filesystems/0/%s", column) }

func (m storageMeasure) mount(step, node string) (mountEntry, bool) {
	out, ok := m.step(step, node, 0, 1)
	entry := mountEntry{out: out}
	if !ok {
		return entry, false
	}
	if *out.exit.Code == 1 {
		class, why := evidence.ClassWrongFilesystem, m.params.undeclared()
		if step == mountStep {
			class, why = evidence.ClassMountMissing, fmt.Sprintf("%s is not there", m.params.Path)
		}
		m.report(node, step, class, "%s%s", why, firstLine(out.stderr))
		return entry, false
	}
	root, ok := m.json(out)
	if !ok {
		return entry, false
	}
	list, _ := lookup(root, "filesystems")
	if all, isList := list.([]any); !isList || len(all) != 1 {
		m.report(node, step, evidence.ClassUnparsable, "findmnt did not print exactly one filesystem")
		return entry, false
	}
	for _, column := range []struct {
		name string
		into *string
	}{{"target", &entry.target}, {"source", &entry.source}, {"fstype", &entry.fstype}} {
		text, missing := jsonText(lookup(root, "filesystems", "0", column.name))
		if missing != "" || text == "" {
			m.report(node, step, evidence.ClassUnparsable, "findmnt printed no %s: %s", column.name, missing)
			return entry, false
		}
		*column.into = text
	}
	return entry, true
}

// declared compares the mount with what the runbook declares.
func (m storageMeasure) declared(node string, e mountEntry) bool {
	p := m.params
	wrong := ""
	switch {
	case e.fstype != p.Filesystem:
		wrong = fmt.Sprintf("type %s, declared %s", e.fstype, p.Filesystem)
	case p.Source != "" && e.source != p.Source:
		wrong = fmt.Sprintf("source %s, declared %s", e.source, p.Source)
	case p.Mount != "" && e.target != p.Mount:
		wrong = fmt.Sprintf("mount point %s, declared %s", e.target, p.Mount)
	default:
		return true
	}
	class := evidence.ClassWrongFilesystem
	if e.target == "/" || (p.Mount != "" && e.target != p.Mount) {
		// What answers is what lies under the mount point.
		class = evidence.ClassMountMissing
	}
	m.report(node, e.out.step, class, "%s lies on %s: %s", p.Path, e.target, wrong)
	return false
}

// fioClient is what one client measured in one round.
type fioClient struct {
	node                string
	exit                evidence.Exit
	iops, bw, mean, p99 reading
}

func (m storageMeasure) round(n int, clients []string) {
	step := roundStep(n)
	var measured []fioClient
	for _, node := range clients {
		if client, ok := m.client(step, node); ok && m.sound[node] {
			measured = append(measured, client)
		}
	}
	labels := map[string]string{"clients": strconv.Itoa(n)}
	load := m.params.load()
	if n > 1 && !m.together(step, measured) {
		return
	}
	for _, client := range measured {
		subject := evidence.Subject(client.node)
		m.measure(metricNamed(m.metrics, "iops"), subject, labels, client.iops)
		m.measure(metricNamed(m.metrics, load.bandwidth), subject, labels, client.bw)
		m.measure(metricNamed(m.metrics, load.prefix+"_mean"), subject, labels, client.mean)
		m.measure(metricNamed(m.metrics, load.prefix+"_p99"), subject, labels, client.p99)
	}
	if m.view.Test.Scope != evidence.ScopeFleet || len(measured) != n {
		return
	}
	m.totals(labels, measured)
}

// totals reports what holds for a whole round. A client without a number
// leaves the round without one.
func (m storageMeasure) totals(labels map[string]string, clients []fioClient) {
	pick := func(of func(fioClient) reading, fold func(total, next float64) float64) reading {
		folded := of(clients[0])
		for _, client := range clients[1:] {
			next := of(client)
			if folded.missing != "" {
				break
			}
			if next.missing != "" {
				folded = next
				break
			}
			if value := fold(folded.value, next.value); value == next.value {
				folded = next
			} else {
				folded.value = value
			}
		}
		return folded
	}
	sum := func(a, b float64) float64 { return a + b }
	larger := func(a, b float64) float64 { return max(a, b) }
	iops := func(c fioClient) reading { return c.iops }
	m.measure(metricNamed(m.metrics, "total_iops"), evidence.SubjectFleet, labels, pick(iops, sum))
	m.measure(metricNamed(m.metrics, "total_bw"), evidence.SubjectFleet, labels, pick(func(c fioClient) reading { return c.bw }, sum))
	m.measure(metricNamed(m.metrics, "worst_p99"), evidence.SubjectFleet, labels, pick(func(c fioClient) reading { return c.p99 }, larger))
	if len(clients) < 2 {
		return
	}
	slowest := pick(iops, func(a, b float64) float64 { return min(a, b) })
	if slowest.missing == "" {
		rates := make([]float64, len(clients))
		for i, client := range clients {
			rates[i] = client.iops.value
		}
		slices.Sort(rates)
		half := len(rates) / 2
		median := rates[half]
		if len(rates)%2 == 0 {
			median = (rates[half-1] + rates[half]) / 2
		}
		slowest.value /= median // positive: a client without requests is a problem
	}
	m.measure(metricNamed(m.metrics, "fairness"), evidence.SubjectFleet, labels, slowest)
}

// together reports whether the clients ran at once: started within the ramp,
// or within a tenth of the run time where that is longer, but at least 2 s.
func (m storageMeasure) together(step string, clients []fioClient) bool {
	if len(clients) < 2 {
		return true
	}
	first, last := clients[0].exit.Start, clients[0].exit.Start
	for _, client := range clients[1:] {
		if client.exit.Start.Before(first) {
			first = client.exit.Start
		}
		if client.exit.Start.After(last) {
			last = client.exit.Start
		}
	}
	limit := max(m.params.ramp(), m.params.Runtime.Std()/10, 2*time.Second)
	if apart := last.Sub(first); apart > limit {
		m.report("", step, evidence.ClassUnparsable, "the clients started %s apart, more than %s: they did not run at once", apart, limit)
		return false
	}
	return true
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

// differ reports whether a is off b by more than a share of b.
func differ(a, b, share float64) bool { return a < b-share*b || a > b+share*b }

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
		if *out.exit.Code == 0 {
			class = evidence.ClassOutputCut
		}
		m.report(node, step, class, "stdout does not end with a whole JSON document: %v%s", err, firstLine(out.stderr))
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
