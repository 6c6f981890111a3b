package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// rack is the boundary fake: an Executor whose nodes live in virtual time.
type rack struct {
	mu    sync.Mutex
	nodes map[string]*machine
	locks map[string]bool // of leases: node and path
	log   []call
	sent  func(evidence.Task) // sees every command before it runs
}

type call struct {
	at   time.Time
	node string
	argv []string
	mark string
}

type machine struct {
	machineID, bootID, serial, hostKey string
	clock                              time.Duration
	noFlock                            bool

	down  *evidence.Problem // why Identify and Exec fail
	dies  chan struct{}     // closed when it goes down
	flaky int               // so many Identify calls fail first

	// commands are by argv[0]; one that is not there exits with 0.
	commands map[string]func(ctx context.Context, t evidence.Task, stdout, stderr io.Writer) evidence.Exit
}

func newRack(nodes ...string) *rack {
	r := &rack{nodes: make(map[string]*machine), locks: make(map[string]bool)}
	for _, n := range nodes {
		r.nodes[n] = &machine{
			machineID: "machine-" + n, bootID: "boot-" + n, serial: "serial-" + n, hostKey: "SHA256:" + n,
			dies:     make(chan struct{}),
			commands: map[string]func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit{"work": printing("1")},
		}
	}
	return r
}

func (r *rack) machine(node string) *machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[node]
}

func (r *rack) on(node, command string, f func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit) {
	r.machine(node).commands[command] = f
}

// kill makes node unreachable from now on: running commands are lost.
func (r *rack) kill(node string, class evidence.Class) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.nodes[node]
	if m.down == nil {
		m.down = &evidence.Problem{Class: class, Detail: "no route to host"}
		close(m.dies)
	}
}

func (r *rack) revive(node, boot string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.nodes[node]
	m.down, m.dies, m.bootID = nil, make(chan struct{}), boot
}

func (r *rack) calls(match func(call) bool) []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []call
	for _, c := range r.log {
		if match(c) {
			found = append(found, c)
		}
	}
	return found
}

func running(command string) func(call) bool {
	return func(c call) bool { return c.argv[0] == command }
}

func code(n int) evidence.Exit { return evidence.Exit{Class: evidence.ClassOK, Code: &n} }

// printing exits with 0 after a second, with text on stdout.
func printing(text string) func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
	return lasting(time.Second, text)
}

func lasting(d time.Duration, text string) func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
	return func(ctx context.Context, _ evidence.Task, stdout, _ io.Writer) evidence.Exit {
		if wait(ctx, d) != nil {
			return evidence.Exit{Class: evidence.ClassCut, Detail: "ended"}
		}
		if _, err := io.WriteString(stdout, text+"\n"); err != nil {
			return evidence.Exit{Class: evidence.ClassOutputCut, Detail: err.Error()}
		}
		return code(0)
	}
}

func exiting(n int) func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit {
	return func(context.Context, evidence.Task, io.Writer, io.Writer) evidence.Exit { return code(n) }
}

func (r *rack) Identify(ctx context.Context, node string) (evidence.NodeIdentity, error) {
	if err := wait(ctx, 5*time.Millisecond); err != nil {
		return evidence.NodeIdentity{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.nodes[node]
	r.log = append(r.log, call{at: time.Now(), node: node, argv: []string{"(identify)"}})
	if m.flaky > 0 {
		m.flaky--
		return evidence.NodeIdentity{}, &evidence.Problem{Class: evidence.ClassTCP, Detail: "connection refused"}
	}
	if m.down != nil {
		return evidence.NodeIdentity{}, m.down
	}
	return evidence.NodeIdentity{Node: node, Address: node + ":22", HostKey: m.hostKey}, nil
}

func (r *rack) Exec(ctx context.Context, t evidence.Task, stdout, stderr io.Writer) (evidence.Exit, error) {
	start := time.Now()
	r.mu.Lock()
	m := r.nodes[t.Node]
	r.log = append(r.log, call{at: start, node: t.Node, argv: t.Argv, mark: t.Mark})
	down, dies, sent := m.down, m.dies, r.sent
	r.mu.Unlock()
	if sent != nil {
		sent(t)
	}
	var exit evidence.Exit
	if down != nil {
		exit = evidence.Exit{Class: down.Class, Detail: down.Detail}
	} else {
		exit = r.exec(ctx, m, dies, t, stdout, stderr)
	}
	exit.Argv, exit.Start, exit.End = t.Argv, start, time.Now()
	exit.Env = slices.Sorted(maps.Keys(t.Env))
	return exit, nil
}

// exec runs the command until it ends, its deadline passes, the node dies or
// ctx ends.
func (r *rack) exec(ctx context.Context, m *machine, dies <-chan struct{}, t evidence.Task, stdout, stderr io.Writer) evidence.Exit {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if t.Deadline > 0 {
		timer := time.AfterFunc(t.Deadline, func() { cancel(errors.New("deadline")) })
		defer timer.Stop()
	}
	over := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-dies:
			cancel(errors.New("lost"))
		case <-over:
		}
	})
	exit := r.command(ctx, m, t, stdout, stderr)
	close(over)
	watcher.Wait()
	if cause := context.Cause(ctx); cause != nil && exit.Code == nil {
		switch cause.Error() {
		case "lost":
			return evidence.Exit{Class: evidence.ClassLost, Detail: "connection reset"}
		case "deadline":
			return evidence.Exit{Class: evidence.ClassTimeout, Detail: "deadline"}
		}
	}
	return exit
}

func (r *rack) command(ctx context.Context, m *machine, t evidence.Task, stdout, stderr io.Writer) evidence.Exit {
	r.mu.Lock()
	f := m.commands[t.Argv[0]]
	r.mu.Unlock()
	if f != nil {
		return f(ctx, t, stdout, stderr)
	}
	if t.Argv[0] != "stdbuf" {
		if err := wait(ctx, 2*time.Millisecond); err != nil {
			return evidence.Exit{Class: evidence.ClassCut, Detail: "ended"}
		}
	}
	switch t.Argv[0] {
	case "cat", "head":
		r.mu.Lock()
		files := map[string]string{
			"/etc/machine-id":                  m.machineID,
			"/proc/sys/kernel/random/boot_id":  m.bootID,
			"/sys/class/dmi/id/product_serial": m.serial,
		}
		r.mu.Unlock()
		return read(t.Argv, files, stdout, stderr)
	case "date":
		there := time.Now().Add(m.clock)
		fmt.Fprintf(stdout, "%d.%09d\n", there.Unix(), there.Nanosecond())
	case "id":
		fmt.Fprintln(stdout, "1000")
	case "stdbuf":
		return r.flock(ctx, m, t, stdout)
	}
	return code(0)
}

// read is cat FILE and head -v -n 1 FILE...
func read(argv []string, files map[string]string, stdout, stderr io.Writer) evidence.Exit {
	exit, between := 0, ""
	for _, path := range argv[1:] {
		text, headed := files[path], argv[0] == "head"
		switch {
		case headed && !strings.HasPrefix(path, "/"):
		case text == "":
			fmt.Fprintf(stderr, "%s: cannot open %s for reading: No such file or directory\n", argv[0], path)
			exit = 1
		case headed:
			fmt.Fprintf(stdout, "%s==> %s <==\n%s\n", between, path, text)
			between = "\n"
		default:
			fmt.Fprintln(stdout, text)
		}
	}
	return code(exit)
}

func (r *rack) flock(ctx context.Context, m *machine, t evidence.Task, stdout io.Writer) evidence.Exit {
	if m.noFlock {
		return evidence.Exit{Class: evidence.ClassToolMissing, Detail: "stdbuf: not found"}
	}
	lock := t.Node + ":" + t.Argv[7]
	r.mu.Lock()
	held := r.locks[lock]
	r.locks[lock] = true
	r.mu.Unlock()
	if held {
		return code(leaseBusy)
	}
	fmt.Fprint(stdout, "flock: getting lock took 0.000007 seconds\nflock: execu")
	fmt.Fprint(stdout, "ting sleep\n")
	<-ctx.Done()
	r.mu.Lock()
	delete(r.locks, lock)
	r.mu.Unlock()
	return evidence.Exit{Class: evidence.ClassCut}
}

func (r *rack) Close() error { return nil }

// fakeCheck runs "work" once a node and measures the number that it prints.
type fakeCheck struct {
	name  string
	drive func(ctx context.Context, b checks.Bench) error
}

func (f fakeCheck) Spec() checks.Spec {
	return checks.Spec{
		Name: f.name, Version: 1, Scopes: []evidence.Scope{evidence.ScopeNode, evidence.ScopeFleet},
		Metrics: func(json.RawMessage) []checks.Metric {
			return []checks.Metric{{Name: "value", Unit: "1", Level: "node", Doc: "what work prints"}}
		},
		Facts: func(json.RawMessage) []checks.FactSpec { return nil },
		Subjects: func(_ evidence.Fleet, nodes []string, _ evidence.Scope, _ string, _ json.RawMessage) []evidence.Subject {
			var all []evidence.Subject
			for _, n := range nodes {
				all = append(all, evidence.Subject(n))
			}
			return all
		},
	}
}

func work(ctx context.Context, b checks.Bench) error {
	return b.ExecAll(ctx, "work", b.Nodes(), func(string) checks.Command { return checks.Command{Argv: []string{"work"}} })
}

func (f fakeCheck) Drive(ctx context.Context, b checks.Bench) error {
	if f.drive != nil {
		return f.drive(ctx, b)
	}
	return work(ctx, b)
}

func (f fakeCheck) Measure(c evidence.CellView, raw fs.FS) ([]evidence.Measurement, []evidence.Fact, error) {
	var all []evidence.Measurement
	var errs []error
	for _, node := range c.Nodes {
		file := evidence.StepDir("work", node) + "/stdout"
		text, err := fs.ReadFile(raw, file)
		value, parseErr := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil || parseErr != nil {
			errs = append(errs, &evidence.Problem{Node: node, Step: "work", Class: evidence.ClassUnparsable, Detail: fmt.Sprintf("no number in %q", text)})
			continue
		}
		all = append(all, evidence.Measurement{Metric: "value", Unit: "1", Value: value, Subject: evidence.Subject(node), Source: file})
	}
	return all, nil, errors.Join(errs...)
}

// judge passes a cell whose last whole attempt has no problem and measured at
// least 1 on every node.
func judge(p *evidence.Plan, results []evidence.CellResult) evidence.Verdict {
	v := evidence.Verdict{}
	byTest := make(map[string][]evidence.Outcome)
	failing := make(map[string]map[string]bool) // phase → node
	nodes := make(map[string]map[string]bool)
	whole := make(map[string]bool) // phase: a test of many nodes does not pass
	phaseOf := make(map[string]string)
	for _, t := range p.Tests {
		phaseOf[t.Name] = t.Phase
	}
	for _, r := range results {
		outcome := evidence.Inconclusive
		if n := len(r.Attempts); n > 0 && !r.Attempts[n-1].Cut {
			last := r.Attempts[n-1]
			outcome = evidence.Pass
			for _, problem := range slices.Concat(last.Problems, last.Unmeasured) {
				outcome = evidence.Worst(outcome, problem.Class.Outcome())
			}
			for _, m := range last.Measurements {
				if m.Value < 1 {
					outcome = evidence.Worst(outcome, evidence.Fail)
				}
			}
		}
		byTest[r.Cell.Test] = append(byTest[r.Cell.Test], outcome)
		phase := phaseOf[r.Cell.Test]
		names, _ := nodeset.Parse(r.Cell.Nodes, nil)
		if nodes[phase] == nil {
			nodes[phase], failing[phase] = map[string]bool{}, map[string]bool{}
		}
		for _, n := range names {
			nodes[phase][n] = true
			if outcome != evidence.Pass && len(names) == 1 {
				failing[phase][n] = true
			}
		}
		if outcome != evidence.Pass && len(names) > 1 {
			whole[phase] = true
		}
	}
	for _, t := range p.Tests {
		v.Tests = append(v.Tests, evidence.TestResult{Test: t.Name, Outcome: evidence.Worst(byTest[t.Name]...)})
	}
	for _, phase := range p.Phases {
		total, bad := len(nodes[phase.Name]), slices.Sorted(maps.Keys(failing[phase.Name]))
		needed, _ := phase.Gate.Needed(total)
		g := evidence.GateResult{Phase: phase.Name, Needed: needed, Met: total-len(bad) >= needed && !whole[phase.Name]}
		if len(bad) > 0 {
			g.Failing = []string{nodeset.Fold(bad)}
			g.Reason = fmt.Sprintf("%d of %d pass", total-len(bad), total)
		}
		v.Gates = append(v.Gates, g)
	}
	return v
}

// testOf makes a test of the fake check on nodes.
func testOf(name, phase string, scope evidence.Scope, nodes []string) evidence.Test {
	one := 1.0
	return evidence.Test{
		Name: name, Phase: phase, Owner: "us", Check: "fake", CheckVersion: 1, Params: json.RawMessage(`{}`), Scope: scope,
		Nodes: nodeset.Fold(nodes), Duration: evidence.Duration(time.Second), Deadline: evidence.Duration(time.Minute), Repeat: 1,
		Establishes: []evidence.Claim{{Sentence: "It works.", Thresholds: []string{"value"}}}, DoesNotEstablish: []string{},
		Thresholds: []evidence.Threshold{{
			Name: "value", Metric: "value", Stat: "min", Per: "node", Unit: "1", Level: "node",
			Subjects: []string{nodeset.Fold(nodes)}, Min: &one, Basis: "a test",
		}},
	}
}

// planOf expands tests into a plan. Phases are in the order of their first
// test, and each depends on the one before.
func planOf(nodes []string, tests ...evidence.Test) *evidence.Plan {
	p := &evidence.Plan{
		MediaType: evidence.MediaPlan, Name: "acceptance", Runbook: evidence.SourcesDigest(nil), Path: "main.hcl",
		Sources: []evidence.Source{}, Seed: "seed", Executor: "rack", ClockLimit: evidence.Duration(time.Second), Parallel: 64,
		Fleet: evidence.Fleet{Name: "pod"},
	}
	for _, n := range nodes {
		p.Fleet.Nodes = append(p.Fleet.Nodes, evidence.Node{Name: n})
	}
	for _, t := range tests {
		if !slices.ContainsFunc(p.Phases, func(ph evidence.Phase) bool { return ph.Name == t.Phase }) {
			phase := evidence.Phase{Name: t.Phase, Gate: evidence.Gate{Require: "all", OnFail: "continue"}}
			if n := len(p.Phases); n > 0 {
				phase.DependsOn = []string{p.Phases[n-1].Name}
			}
			p.Phases = append(p.Phases, phase)
		}
		names, err := nodeset.Parse(t.Nodes, nil)
		if err != nil {
			panic(err)
		}
		sets := [][]string{names}
		if t.Scope == evidence.ScopeNode {
			sets = nil
			for _, n := range names {
				sets = append(sets, []string{n})
			}
		}
		for _, set := range sets {
			for rep := 1; rep <= t.Repeat; rep++ {
				p.Cells = append(p.Cells, evidence.Cell{ID: evidence.CellID(t.Name, set, rep), Test: t.Name, Nodes: nodeset.Fold(set), Repetition: rep})
			}
		}
		p.Tests = append(p.Tests, t)
	}
	return p
}

var tool = evidence.Tool{MediaType: evidence.MediaTool, Name: "rackproof", Version: "test", Go: "go", Platform: "linux/amd64", Mode: "plain", Checks: map[string]int{"fake": 1}}

// bay is a run directory with a rack.
type bay struct {
	t     *testing.T
	rack  *rack
	plan  *evidence.Plan
	dir   string
	check fakeCheck
	set   func(*Options)

	mu       sync.Mutex
	progress []Progress
	records  []evidence.Record
}

func newBay(t *testing.T, plan *evidence.Plan) *bay {
	t.Helper()
	return &bay{t: t, rack: newRack(plan.Fleet.NodeNames()...), plan: plan, dir: filepath.Join(t.TempDir(), "run"), check: fakeCheck{name: "fake"}}
}

func (b *bay) options(store *evidence.Store) Options {
	o := Options{
		Store: store, Executor: b.rack, Checks: checks.Catalog{b.check}, Judge: judge, MinFree: 1, Reach: json.RawMessage(`{}`),
		Progress: func(p Progress) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.progress = append(b.progress, p)
		},
	}
	if b.set != nil {
		b.set(&o)
	}
	return o
}

// open creates the run directory, or reopens it.
func (b *bay) open() *evidence.Store {
	b.t.Helper()
	var store *evidence.Store
	var err error
	if _, statErr := os.Stat(b.dir); statErr == nil {
		store, err = evidence.Reopen(b.dir, tool)
	} else {
		store, err = evidence.Create(b.dir, "run", b.plan, nil, tool)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return store
}

// run runs, or resumes, and gives Run's error.
func (b *bay) run(ctx context.Context) error {
	b.t.Helper()
	store := b.open()
	b.rack.sent = func(task evidence.Task) { b.checkInjection(store, task) }
	err := Run(ctx, b.options(store))
	b.records = store.Records()
	if closeErr := store.Close(); closeErr != nil {
		b.t.Error(closeErr)
	}
	b.checkOverlap()
	return err
}

// checkInjection asserts that a fault is in the journal before it is sent.
func (b *bay) checkInjection(store *evidence.Store, task evidence.Task) {
	if !strings.Contains(task.Mark, "/inject-") {
		return
	}
	if !slices.ContainsFunc(readHistory(store.Records()).openFaults, func(f openFault) bool {
		return f.record.Node == task.Node && strings.HasPrefix(task.Mark, fmt.Sprintf("run/%s/%d/inject-%d", f.record.Cell, f.record.Attempt, f.record.FaultIndex))
	}) {
		b.t.Errorf("%v was sent to %s before it was in the journal", task.Argv, task.Node)
	}
}

// results are what a reader of the directory finds.
func (b *bay) results() map[string]evidence.CellResult {
	b.t.Helper()
	all := make(map[string]evidence.CellResult)
	for _, r := range checks.Measure(checks.Catalog{b.check}, b.plan, b.records, os.DirFS(b.dir)) {
		all[r.Cell.ID] = r
	}
	return all
}

// checkOverlap asserts from the journal that no node ran two cells at once,
// nor the run more than the plan's parallelism, and that everything that
// began has ended.
func (b *bay) checkOverlap() {
	b.t.Helper()
	cells := make(map[string][]string)
	for _, c := range b.plan.Cells {
		cells[c.ID], _ = nodeset.Parse(c.Nodes, nil)
	}
	busy := make(map[string]string)
	running := make(map[string]bool) // attempts that this process began
	for _, r := range b.records {
		id := fmt.Sprintf("%s/%d", r.Cell, r.Attempt)
		switch r.Event {
		case evidence.EventAttemptStart:
			running[id] = true
			if len(running) > b.plan.Parallel {
				b.t.Errorf("record %d: %d cells run at once, and the plan allows %d", r.Seq, len(running), b.plan.Parallel)
			}
			for _, n := range cells[r.Cell] {
				if other := busy[n]; other != "" {
					b.t.Errorf("record %d: %s starts on %s, which runs %s", r.Seq, r.Cell, n, other)
				}
				busy[n] = r.Cell
			}
		case evidence.EventAttemptEnd:
			delete(running, id)
			for _, n := range cells[r.Cell] {
				delete(busy, n)
			}
		case evidence.EventResume:
			clear(running)
			clear(busy)
		}
	}
	if len(running)+len(busy) != 0 {
		b.t.Errorf("attempts without an end: %v", running)
	}
}

func (b *bay) events(event evidence.Event) []evidence.Record {
	var found []evidence.Record
	for _, r := range b.records {
		if r.Event == event {
			found = append(found, r)
		}
	}
	return found
}

// attempts are the cells of the attempt_start records, in order.
func (b *bay) attempts() []string {
	var ids []string
	for _, r := range b.events(evidence.EventAttemptStart) {
		ids = append(ids, r.Cell)
	}
	return ids
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("n%02d", i+1)
	}
	return all
}

// want fails the test unless got is want.
func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s\n got: %s\nwant: %s", what, g, w)
	}
}
