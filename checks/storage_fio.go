package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
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

func (storageFio) Spec() Spec {
	profiles := make([]string, len(fioProfileNames))
	for i, name := range fioProfileNames {
		profiles[i] = name + " (" + fioProfiles[name].doc + ")"
	}
	return Spec{
		Name: "storage_fio",
		Doc: "Loads a filesystem with fio 3.18 or newer, in a directory of its own that is removed afterwards, and proves before and after that the path lies on the declared filesystem: " +
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
			{Name: "clients", Type: evidence.ParamNumbers, Whole: true, Default: []int{1}, Doc: "How many nodes run at once, one round each, in rising order. The last must be the number of the test's nodes; in scope \"node\" it is [1]."},
			{Name: "engine", Type: evidence.ParamString, Enum: fioEngines, Doc: "fio's engine; the profile's by default (libaio, sync for fsync)."},
			{Name: "block_size", Type: evidence.ParamBytes, Doc: "Bytes of one request; the profile's by default."},
			{Name: "iodepth", Type: evidence.ParamNumber, Whole: true, Doc: "Requests in flight for each job; the profile's by default."},
			{Name: "jobs", Type: evidence.ParamNumber, Whole: true, Doc: "Jobs on each client; the profile's by default."},
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

const (
	gateStep       = "gate"
	insteadStep    = "instead" // what answers where the gate was shut
	mountPointStep = "mount-point"
	directoryStep  = "directory"
	layoutStep     = "layout"
	afterStep      = "after"
	cleanStep      = "clean"
	roundPrefix    = "fio-"
)

func roundStep(clients int) string { return roundPrefix + strconv.Itoa(clients) }

// argv is what a step of test runs on node; nil for a step that is none.
func (p storageParams) argv(test, step, node string) []string {
	directory := p.directory(test, node)
	switch step {
	case gateStep:
		return p.gate(p.Path)
	case insteadStep:
		return []string{"findmnt", "-J", "-o", findmntColumns, "-T", p.Path}
	case mountPointStep:
		return p.mountPoint()
	case directoryStep:
		return []string{"mkdir", "-p", "--", directory}
	case layoutStep:
		return fioArgv(p.fioOptions(directory), "--create_only=1")
	case afterStep:
		return p.gate(directory)
	case cleanStep:
		return []string{
			"find", directory, "-depth", "(", "(", "-type", "f", "-name", fioFiles, "-o", "-type", "d", "-empty", ")", "-delete", ")", "-o", "-print",
		}
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
	// fio creates what is missing, so nothing may be written before the mount
	// was proven.
	if err := everywhere(nodes, func(node string) error { return params.pass(ctx, b, node) }); err != nil {
		return err
	}
	if params.Mount != "" {
		if err := insist(ctx, b, mountPointStep, nodes, command(mountPointStep),
			evidence.ClassMountMissing, "nothing of type "+params.Filesystem+" is mounted on "+params.Mount+", so nothing was written"); err != nil {
			return err
		}
	}

	for _, node := range nodes {
		if err := b.Cleanup(cleanStep, command(cleanStep)(node)); err != nil {
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

// pass is the gate on one node. Where it is shut it asks what lies there
// instead, for whoever mends it.
func (p storageParams) pass(ctx context.Context, b Bench, node string) error {
	test := b.Test().Name
	exit, err := b.Exec(ctx, gateStep, Command{Node: node, Argv: p.argv(test, gateStep, node)})
	if err != nil || exit.OK() {
		return err
	}
	instead, err := b.Exec(ctx, insteadStep, Command{Node: node, Argv: p.argv(test, insteadStep, node)})
	switch {
	case err != nil:
		return err
	case !instead.OK():
		return &evidence.Problem{Node: node, Step: insteadStep, Class: evidence.ClassMountMissing, Detail: p.Path + " is not there"}
	}
	return &evidence.Problem{Node: node, Step: gateStep, Class: evidence.ClassWrongFilesystem, Detail: p.undeclared() + ", so nothing was written"}
}

// insist runs one command a node at once and makes a problem of class out of
// every exit status that is not 0.
func insist(ctx context.Context, b Bench, step string, nodes []string, command func(string) Command, class evidence.Class, detail string) error {
	return everywhere(nodes, func(node string) error {
		exit, err := b.Exec(ctx, step, command(node))
		if err == nil && !exit.OK() {
			err = &evidence.Problem{Node: node, Step: step, Class: class, Detail: detail}
		}
		return err
	})
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
	mount, ok := m.mount(gateStep, node)
	if !ok {
		return false
	}
	m.mountFacts(mount)
	if !m.declared(node, mount) {
		return false
	}
	sound := true
	proofs := []string{afterStep}
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
	for _, step := range []struct{ name, printed string }{
		{directoryStep, "stdout should be empty"},
		{cleanStep, "not removed"},
	} {
		out, ok := m.step(step.name, node)
		if ok && len(out.stdout) > 0 {
			m.report(node, step.name, evidence.ClassUnparsable, "%s: %q", step.printed, token(string(out.stdout)))
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
		switch step {
		case gateStep:
			m.instead(node)
		case insteadStep:
			m.report(node, step, evidence.ClassMountMissing, "%s is not there%s", m.params.Path, firstLine(out.stderr))
		default:
			m.report(node, step, evidence.ClassWrongFilesystem, "%s%s", m.params.undeclared(), firstLine(out.stderr))
		}
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

func (m storageMeasure) mountFacts(e mountEntry) {
	m.fact("filesystem", e.out.node, e.fstype, "", e.at("fstype"))
	m.fact("mount_source", e.out.node, e.source, "", e.at("source"))
	m.fact("mount_target", e.out.node, e.target, "", e.at("target"))
}

// instead reports what lies where the gate was shut.
func (m storageMeasure) instead(node string) {
	mount, ok := m.mount(insteadStep, node)
	if !ok {
		return
	}
	m.mountFacts(mount)
	if m.declared(node, mount) {
		m.report(node, gateStep, evidence.ClassWrongFilesystem, "%s when the test began", m.params.undeclared())
	}
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
