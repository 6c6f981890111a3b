package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing/fstest"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/thresholds"
)

// rackOptions says what rack a synthetic bundle is of.
type rackOptions struct {
	nodes     int
	slices    int // of the soak
	faulty    bool
	simulated bool
}

const gpusPerNode = 8

var rackSizes = []string{"1MiB", "4MiB", "16MiB", "64MiB", "256MiB", "1GiB", "4GiB", "8GiB", "16GiB"}

// rack builds a bundle that looks like that of an acceptance: an inventory,
// collectives, storage, a soak and a failover, measured with a seeded noise and
// judged by the judge.
type rack struct {
	rackOptions
	plan    *evidence.Plan
	noise   *rand.Rand
	records []evidence.Record
	now     time.Time
	results map[string]*evidence.CellResult
	slice   []string
}

func rackBundle(o rackOptions) *evidence.Bundle {
	r := &rack{
		rackOptions: o, noise: rand.New(rand.NewPCG(7, 32)), now: time.Date(2026, 11, 30, 14, 2, 11, 0, time.UTC),
		results: map[string]*evidence.CellResult{},
	}
	for i := range o.slices {
		r.slice = append(r.slice, strconv.Itoa(i*72*3600/o.slices))
	}
	r.plan = r.newPlan()
	r.run()
	return r.bundle()
}

func (r *rack) node(i int) string { return fmt.Sprintf("gpu%03d", i+1) }

func (r *rack) all() string {
	if r.nodes > 999 {
		return fmt.Sprintf("gpu[001-999,1000-%d]", r.nodes)
	}
	return fmt.Sprintf("gpu[001-%03d]", r.nodes)
}

func (r *rack) newPlan() *evidence.Plan {
	p := &evidence.Plan{
		MediaType: evidence.MediaPlan, Name: "h100_32", Title: fmt.Sprintf("Pod 7 acceptance, %d x H100 SXM5", r.nodes), Version: "3.2.0",
		Runbook: evidence.DigestOf([]byte("runbook")), Executor: "ssh", Parallel: r.nodes,
		Fleet:   evidence.Fleet{Name: "pod7"},
		Parties: []evidence.Party{{Name: "customer", Title: "Example Research Cloud"}, {Name: "vendor", Title: "Example Systems"}},
		Owners: []evidence.Owner{
			{Name: "compute", Party: "customer", Title: "GPU platform", Contact: "gpu-oncall@example.com"},
			{Name: "fabric", Party: "customer", Title: "Network engineering", Contact: "fabric-oncall@example.com"},
			{Name: "storage", Party: "customer", Title: "Storage platform", Contact: "storage-oncall@example.com"},
			{Name: "site", Party: "vendor", Title: "Site lead", Contact: "site-lead@vendor.example"},
		},
		Quorums:  []evidence.Quorum{{Name: "plan", Of: "plan", By: []string{"fabric", "compute", "storage", "site"}, Counts: map[string]int{"customer": 2, "vendor": 1}}},
		Releases: []evidence.Release{{Name: "final", Nodes: r.all(), Require: []string{"inventory", "node", "fabric", "soak", "recovery"}}},
	}
	for _, name := range []string{"inventory", "node", "fabric", "soak", "recovery"} {
		p.Phases = append(p.Phases, evidence.Phase{Name: name, Gate: evidence.Gate{Require: "all", OnFail: "continue"}})
	}
	for i := range r.nodes {
		p.Fleet.Nodes = append(p.Fleet.Nodes, evidence.Node{Name: r.node(i), Labels: map[string]string{
			"rack": fmt.Sprintf("A%02d", 1+i/8), "unit": strconv.Itoa(2 + 5*(i%8)),
		}})
	}
	p.Tests = r.tests()
	for _, t := range p.Tests {
		if t.Scope == evidence.ScopeFleet {
			p.Cells = append(p.Cells, evidence.Cell{ID: t.Name + "/set-0a1b2c3d.r1", Test: t.Name, Nodes: r.all(), Repetition: 1})
			continue
		}
		for i := range r.nodes {
			p.Cells = append(p.Cells, evidence.Cell{ID: t.Name + "/" + r.node(i) + ".r1", Test: t.Name, Nodes: r.node(i), Repetition: 1})
		}
	}
	return p
}

func (r *rack) tests() []evidence.Test {
	onNodes, onGPUs, onFleet := []string{r.all()}, []string{fmt.Sprintf("%s/gpu[0-%d]", r.all(), gpusPerNode-1)}, []string{"fleet"}
	test := func(name, phase, owner, check string, scope evidence.Scope) evidence.Test {
		return evidence.Test{
			Name: name, Phase: phase, Owner: owner, Check: check, CheckVersion: 1, Params: json.RawMessage("{}"),
			Scope: scope, Nodes: r.all(), Duration: evidence.Duration(time.Hour), Repeat: 1, Retries: 1,
		}
	}
	bom := test("bill_of_materials", "inventory", "compute", "inventory", evidence.ScopeNode)
	bom.Establishes = []evidence.Claim{{Sentence: "Every node runs the ordered driver and has the ordered parts, by serial.", Thresholds: []string{"driver_version", "mismatches"}}}
	bom.DoesNotEstablish = []string{"That any of these parts performs to specification."}
	bom.Thresholds = []evidence.Threshold{
		{Name: "driver_version", Metric: "driver_version", Text: true, Stat: "equals", Per: "node", Level: "node", Subjects: onNodes, Equals: pointer("580.82.07"), Basis: "Purchase order 4471, schedule B"},
		{Name: "mismatches", Metric: "mismatches", Stat: "max", Per: "node", Unit: "1", Level: "node", Subjects: onNodes, Max: pointer(0.0), MinSamples: 1, Basis: "Purchase order 4471, schedule B"},
	}
	inside := test("allreduce_node", "node", "compute", "nccl_allreduce", evidence.ScopeNode)
	inside.Establishes = []evidence.Claim{
		{Sentence: "All-reduce over NVSwitch inside each node reaches its bus bandwidth.", Thresholds: []string{"busbw", "wrong_elements"}},
		{Sentence: "No node is slower than its siblings.", Thresholds: []string{"busbw_outlier"}},
	}
	inside.DoesNotEstablish = []string{"Anything between nodes."}
	inside.Thresholds = []evidence.Threshold{
		{Name: "busbw", Metric: "busbw", Stat: "min", Per: "node", Unit: "GB/s", Level: "node", Subjects: onNodes, At: map[string][]string{"size": {"16GiB"}}, Min: pointer(440.0), MinSamples: 1, Basis: "Published operator floors 440 to 460 for 8 x H100 with NVLS"},
		{Name: "busbw_outlier", Metric: "busbw", Stat: "mad_z", Per: "node", Unit: "1", Level: "node", Subjects: onNodes, At: map[string][]string{"size": {"16GiB"}}, Min: pointer(-3.5), MinSamples: 5, Basis: "Modified z-score, Iglewicz and Hoaglin 1993"},
		{Name: "wrong_elements", Metric: "wrong_elements", Stat: "max", Per: "node", Unit: "1", Level: "node", Subjects: onNodes, Max: pointer(0.0), MinSamples: 1, Basis: "NCCL data check"},
	}
	across := test("allreduce_fleet", "fabric", "fabric", "nccl_allreduce", evidence.ScopeFleet)
	across.Establishes = []evidence.Claim{{Sentence: "Bus bandwidth of an all-reduce of every GPU over eight rails.", Thresholds: []string{"busbw"}}}
	across.DoesNotEstablish = []string{"Behaviour under competing traffic.", "Latency of small messages."}
	across.Thresholds = []evidence.Threshold{
		{Name: "busbw", Metric: "busbw", Stat: "min", Per: "test", Unit: "GB/s", Level: "fleet", Subjects: onFleet, At: map[string][]string{"size": {"8GiB", "16GiB"}}, Min: pointer(350.0), MinSamples: 1, Basis: "SOW 5.2: 350 GB/s from 8 GiB"},
	}
	reads := test("scratch_reads", "fabric", "storage", "storage_fio", evidence.ScopeNode)
	reads.Establishes = []evidence.Claim{{Sentence: "Each client reads fast enough from the scratch filesystem.", Thresholds: []string{"iops", "latency"}}}
	reads.DoesNotEstablish = []string{"Writes.", "All clients at once."}
	reads.Thresholds = []evidence.Threshold{
		{Name: "iops", Metric: "iops", Stat: "min", Per: "node", Unit: "1/s", Level: "node", Subjects: onNodes, Min: pointer(125000.0), MinSamples: 1, Basis: "SOW 6.1"},
		{Name: "latency", Metric: "read_clat_p99", Stat: "max", Per: "node", Unit: "ms", Level: "node", Subjects: onNodes, Max: pointer(2.0), MinSamples: 1, Basis: "SOW 6.1"},
	}
	soak := test("soak", "soak", "compute", "gpu_burn", evidence.ScopeNode)
	soak.Duration = evidence.Duration(72 * time.Hour)
	soak.Establishes = []evidence.Claim{
		{Sentence: "Every GPU was under load for 72 hours.", Thresholds: []string{"hours"}},
		{Sentence: "No GPU passed its temperature limit in that time.", Thresholds: []string{"temperature"}},
		{Sentence: "Every GPU kept its rate.", Thresholds: []string{"rate"}},
	}
	soak.DoesNotEstablish = []string{"Behaviour in a hotter room."}
	soak.Thresholds = []evidence.Threshold{
		{Name: "hours", Metric: hoursMetric, Stat: "min", Per: "gpu", Unit: "h", Level: "node/gpu", Subjects: onGPUs, Min: pointer(72.0), MinSamples: 1, Basis: "SOW 7.1"},
		{Name: "temperature", Metric: "series_gpu_temperature", Stat: "max", Per: "gpu", Unit: "degC", Level: "node/gpu", Subjects: onGPUs, At: map[string][]string{sliceLabel: r.slice}, Max: pointer(85.0), MinSamples: 1, Basis: "Vendor's slowdown limit less 2"},
		{Name: "rate", Metric: "tflops", Stat: "min", Per: "gpu", Unit: "TFLOP/s", Level: "node/gpu", Subjects: onGPUs, Min: pointer(600.0), MinSamples: 1, Basis: "SOW 7.2"},
	}
	failover := test("metadata_failover", "recovery", "storage", "failover", evidence.ScopeFleet)
	failover.Establishes = []evidence.Claim{{Sentence: "The metadata service returns within 30 seconds and loses no acknowledged write.", Thresholds: []string{"outage", "lost_records"}}}
	failover.DoesNotEstablish = []string{"The loss of both metadata servers."}
	failover.Faults = []evidence.Fault{{Kind: "service_stop", Nodes: []string{r.node(0)}, Part: "metadata server", After: evidence.Duration(time.Minute)}}
	failover.Thresholds = []evidence.Threshold{
		{Name: "outage", Metric: "outage", Stat: "max", Per: "test", Unit: "s", Level: "fleet", Subjects: onFleet, Max: pointer(30.0), MinSamples: 1, Accumulates: true, Basis: "SOW 8.1"},
		{Name: "lost_records", Metric: "lost_records", Stat: "max", Per: "test", Unit: "1", Level: "fleet", Subjects: onFleet, Max: pointer(0.0), MinSamples: 1, Accumulates: true, Basis: "SOW 8.1"},
	}
	return []evidence.Test{bom, inside, across, reads, soak, failover}
}

func (r *rack) record(x evidence.Record) {
	x.Seq, x.Time = int64(len(r.records)), r.now
	r.records = append(r.records, x)
}

func (r *rack) pass(d time.Duration) { r.now = r.now.Add(d) }

func (r *rack) run() {
	r.record(evidence.Record{Event: evidence.EventOpen, Run: "2026-11-30t14-02-11z-3f9a"})
	r.pass(40 * time.Second)
	lengths := map[string]time.Duration{
		"bill_of_materials": 2 * time.Minute, "allreduce_node": 25 * time.Minute, "allreduce_fleet": 40 * time.Minute,
		"scratch_reads": 2 * time.Hour, "soak": 72*time.Hour + 3*time.Minute, "metadata_failover": 20 * time.Minute,
	}
	for _, phase := range r.plan.Phases {
		r.record(evidence.Record{Event: evidence.EventPhaseStart, Phase: phase.Name})
		r.pass(time.Minute)
		for _, t := range r.plan.Tests {
			if t.Phase == phase.Name {
				r.runTest(t, lengths[t.Name])
			}
		}
		r.pass(time.Minute)
		r.record(evidence.Record{Event: evidence.EventPhaseEnd, Phase: phase.Name})
		if r.faulty && phase.Name == "fabric" {
			r.record(evidence.Record{Event: evidence.EventStop, Reason: "stopped by the operator"})
			r.pass(6*time.Hour + 20*time.Minute)
			r.record(evidence.Record{Event: evidence.EventResume})
		}
	}
	r.record(evidence.Record{Event: evidence.EventClose})
}

func (r *rack) runTest(t evidence.Test, length time.Duration) {
	start := r.now
	var cells []evidence.Cell
	for _, c := range r.plan.Cells {
		if c.Test == t.Name {
			cells = append(cells, c)
		}
	}
	for i, c := range cells {
		result := &evidence.CellResult{Cell: c}
		r.results[c.ID] = result
		first := 1
		if r.faulty && t.Name == "soak" && i == 20%len(cells) {
			cut := evidence.Attempt{Cell: c.ID, Number: 1, Cut: true, Start: start, End: start.Add(3 * time.Hour), Problems: []evidence.Problem{{Class: evidence.ClassCut, Detail: "the runner ended while it ran"}}}
			result.Attempts = append(result.Attempts, evidence.MeasuredAttempt{Attempt: cut})
			r.record(evidence.Record{Event: evidence.EventAttemptStart, Cell: c.ID, Attempt: 1})
			first = 2
		}
		a := evidence.MeasuredAttempt{Attempt: evidence.Attempt{Cell: c.ID, Test: t.Name, Nodes: []string{c.Nodes}, Repetition: 1, Number: first, Start: start, End: start.Add(length)}}
		r.measure(&a, t, i)
		result.Attempts = append(result.Attempts, a)
		if first == 1 {
			r.record(evidence.Record{Event: evidence.EventAttemptStart, Cell: c.ID, Attempt: 1})
		}
	}
	if t.Name == "metadata_failover" {
		r.pass(time.Minute)
		r.record(evidence.Record{Event: evidence.EventFaultOpen, Cell: cells[0].ID, Attempt: 1, Node: t.Faults[0].Nodes[0], Fault: &t.Faults[0]})
		r.pass(2 * time.Minute)
		r.record(evidence.Record{Event: evidence.EventFaultClose, Cell: cells[0].ID, Attempt: 1, Node: t.Faults[0].Nodes[0]})
	}
	for _, c := range cells {
		last := r.results[c.ID].Attempts[len(r.results[c.ID].Attempts)-1]
		if last.Number == 2 {
			r.now = start.Add(3 * time.Hour)
			r.record(evidence.Record{Event: evidence.EventResume, Reason: "the operator's machine had restarted"})
			r.record(evidence.Record{Event: evidence.EventAttemptEnd, Cell: c.ID, Attempt: 1})
			r.pass(2 * time.Minute)
			r.record(evidence.Record{Event: evidence.EventAttemptStart, Cell: c.ID, Attempt: 2})
		}
	}
	r.now = start.Add(length)
	for _, c := range cells {
		a := r.results[c.ID].Attempts
		r.pass(time.Second)
		r.record(evidence.Record{Event: evidence.EventAttemptEnd, Cell: c.ID, Attempt: a[len(a)-1].Number})
	}
}

func (r *rack) around(center, share float64) float64 {
	return center * (1 + share*r.noise.NormFloat64())
}

func (r *rack) measure(a *evidence.MeasuredAttempt, t evidence.Test, i int) {
	add := func(metric, unit, subject string, value float64, labels map[string]string) {
		a.Measurements = append(a.Measurements, evidence.Measurement{
			Metric: metric, Unit: unit, Value: value, Subject: evidence.Subject(subject), Labels: labels, Source: t.Check + "." + r.node(i) + "/stdout:12",
		})
	}
	fact := func(name, value string) {
		a.Facts = append(a.Facts, evidence.Fact{Name: name, Value: value, Subject: evidence.Subject(r.node(i)), Source: "inventory." + r.node(i) + "/stdout:3"})
	}
	switch t.Name {
	case "bill_of_materials":
		driver := "580.82.07"
		if r.faulty && i == 9 {
			driver = "570.124.06"
		}
		fact("driver_version", driver)
		fact("nccl_version", "2.27.3")
		fact("fio_version", "fio-3.36")
		add("mismatches", "1", r.node(i), 0, nil)
	case "allreduce_node":
		peak := r.around(462, 0.004)
		if r.faulty && i == 13 {
			peak = 439.99999904
		}
		if r.faulty && i == 22 {
			peak = 391.4
		}
		r.sizes(add, r.node(i), peak)
		add("wrong_elements", "1", r.node(i), 0, nil)
	case "allreduce_fleet":
		r.sizes(add, "fleet", 372)
	case "scratch_reads":
		if r.faulty && i == 27 {
			a.Problems = []evidence.Problem{{Node: r.node(i), Step: "fio", Class: evidence.ClassLost, Detail: "connection reset by peer after 412 s"}}
			return
		}
		if r.faulty && i == 4 {
			a.Unmeasured = []evidence.Problem{{Node: r.node(i), Step: "fio", Class: evidence.ClassUnparsable, Detail: "fio.gpu005/stdout: line 118: the document ends too early"}}
			return
		}
		add("iops", "1/s", r.node(i), math.Round(r.around(148000, 0.03)), nil)
		add("read_clat_p99", "ms", r.node(i), r.around(1.31, 0.04), nil)
	case "soak":
		r.soak(add, i)
	case "metadata_failover":
		add("outage", "s", "fleet", 11.4, nil)
		add("lost_records", "1", "fleet", 0, nil)
	}
}

type adder func(metric, unit, subject string, value float64, labels map[string]string)

// sizes adds a bandwidth that grows with the size towards its peak.
func (r *rack) sizes(add adder, subject string, peak float64) {
	for k, size := range rackSizes {
		share := 1.0
		if k < len(rackSizes)-1 {
			n, _ := evidence.ParseBytes(size)
			share = float64(n) / (float64(n) + 48<<20)
			share = r.around(min(share, 0.99), 0.01)
		}
		add("busbw", "GB/s", subject, peak*share, map[string]string{"size": size})
	}
}

func (r *rack) soak(add adder, i int) {
	for g := range gpusPerNode {
		subject := fmt.Sprintf("%s/gpu%d", r.node(i), g)
		hot := 0.0
		if r.faulty && i == 6 && g == 5 {
			hot = 12.5
		}
		base := r.around(68, 0.025) + hot
		for k, slice := range r.slice {
			day := 2.2 * math.Sin(2*math.Pi*float64(k)/float64(len(r.slice))*3)
			add("series_gpu_temperature", "degC", subject, math.Round(base+day+r.noise.NormFloat64()), map[string]string{sliceLabel: slice})
		}
		hours := 72.05
		if r.faulty && i == 17 && g == 2 {
			hours = 71.99999731
		}
		add(hoursMetric, "h", subject, hours, nil)
		add("tflops", "TFLOP/s", subject, r.around(655, 0.008), nil)
	}
}

func (r *rack) bundle() *evidence.Bundle {
	results := make([]evidence.CellResult, 0, len(r.plan.Cells))
	for _, c := range r.plan.Cells {
		results = append(results, *r.results[c.ID])
	}
	verdict := thresholds.Judge(r.plan, results)
	var lines bytes.Buffer
	for _, line := range evidence.NewDerived(results, verdict).Measurements {
		text, err := evidence.EncodeLine(line)
		if err != nil {
			panic(err)
		}
		lines.Write(text)
	}
	inventory := &evidence.Inventory{Executor: "ssh"}
	for i := range r.nodes {
		id := evidence.NodeIdentity{Node: r.node(i), MachineID: fmt.Sprintf("%032x", i+1), Serial: fmt.Sprintf("SGH%06d", 4400+i), Simulated: r.simulated}
		if r.faulty && i%16 == 11 {
			id.Serial = ""
		}
		inventory.Nodes = append(inventory.Nodes, id)
	}
	return &evidence.Bundle{
		FS: fstest.MapFS{
			evidence.ManifestPath:     {Data: []byte("manifest")},
			evidence.MeasurementsPath: {Data: lines.Bytes()},
		},
		Run: "2026-11-30t14-02-11z-3f9a", Plan: r.plan, PlanBytes: []byte("plan"), Verdict: &verdict, Sealed: true, Signed: true,
		Records: r.records, Inventory: inventory,
		Tool: &evidence.Tool{Name: "rackproof", Version: "0.1.0", Commit: "3eeecde", Go: "go1.26.8", Platform: "linux/amd64", Mode: "plain", Digest: evidence.DigestOf([]byte("rackproof"))},
	}
}
