package reports

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode"

	"github.com/rackproof/rackproof/evidence"
)

func renderHTML(t *testing.T, b *evidence.Bundle) string {
	t.Helper()
	var page bytes.Buffer
	if err := (html{}).Render(&page, b); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// hostilePage has markup and controls wherever a node, a runbook or an
// approver may have put them.
func hostilePage() *evidence.Bundle {
	const evil = "</script></style></title><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>\"'\u202e\x1b[2J\x00{{.}}"
	b := rackBundle(rackOptions{nodes: 6, slices: 3, faulty: true})
	p, v := b.Plan, b.Verdict
	b.Run, p.Title, p.Name, p.Version, p.Executor, p.Fleet.Name = evil, evil, evil, evil, evil, evil
	p.Parties[0].Title, p.Parties[1].Name = evil, evil
	p.Owners[0].Title, p.Owners[0].Contact = evil, evil
	p.Fleet.Nodes[2].Labels["rack"], p.Fleet.Nodes[3].Labels["unit"] = evil, evil
	p.Tests[0].Establishes[0].Sentence, p.Tests[0].DoesNotEstablish[0] = evil, evil
	p.Tests[0].Thresholds[0].Basis, p.Tests[1].Thresholds[0].Unit = evil, evil
	p.Tests[1].Thresholds[0].At["size"] = []string{"16GiB", evil}
	p.Variables = []evidence.Variable{{Name: evil, Value: []byte(`"` + evil + `"`), OffContract: true}}
	p.Narrowed = []string{evil}
	p.Quorums[0].Name = evil
	for i := range v.Findings {
		f := &v.Findings[i]
		f.Outcome, f.Reason, f.Source, f.Text, f.Class = evidence.Fail, evil, evil, evil, evidence.Class(evil)
	}
	v.Findings[0].Subject, v.Findings[1].Test, v.Findings[2].Threshold = evil, evil, evil
	v.Coverage.Open = append(v.Coverage.Open, evidence.OpenCell{Cell: evil, Problem: evidence.Problem{Node: evil, Step: evil, Class: evil, Detail: evil}})
	v.Coverage.Retried = []string{evil}
	v.Gates[0].Reason, v.Gates[0].Failing = evil, []string{evil}
	v.Releases[0].Reason, v.Releases[0].Release = evil, evil
	b.Tool.Version, b.Tool.Mode, b.Tool.Digest = evil, evil, evil
	b.Records = append(b.Records,
		evidence.Record{Event: evidence.EventNote, Time: b.Records[5].Time, Node: evil, Reason: evil},
		evidence.Record{Event: evidence.EventFaultOpen, Time: b.Records[5].Time, Cell: p.Cells[0].ID, Attempt: 1, Node: evil, Fault: &evidence.Fault{Kind: evil, Part: evil}},
		evidence.Record{Event: evidence.EventCaptureSkip, Time: b.Records[5].Time, Node: evil, Path: evil, Problem: &evidence.Problem{Detail: evil}})
	b.Inventory.Nodes[0].Problem = &evidence.Problem{Node: evil, Detail: evil}
	files := b.FS.(fstest.MapFS)
	var lines bytes.Buffer
	for i := range 6 {
		for _, metric := range []string{evil, seriesPrefix + evil, hoursMetric} {
			for k, label := range []string{"1MiB", "2MiB", evil} {
				m := evidence.Measurement{
					Metric: metric, Unit: "u", Value: float64(i * i * i), Subject: evidence.Subject(fmt.Sprintf("gpu%03d/", i+1) + "x"),
					Labels: map[string]string{"size": label, sliceLabel: fmt.Sprint(k), "op": evil}, Source: "x",
				}
				text, _ := evidence.EncodeLine(evidence.MeasurementLine{Cell: p.Cells[i].ID, Attempt: 1, Measurement: &m})
				lines.Write(text)
			}
		}
		text, _ := evidence.EncodeLine(evidence.MeasurementLine{Cell: p.Cells[i].ID, Attempt: 1, Fact: &evidence.Fact{Name: "x_version", Value: evil, Subject: "gpu001", Source: "x"}})
		lines.Write(text)
	}
	files[evidence.MeasurementsPath] = &fstest.MapFile{Data: lines.Bytes()}
	files["approvals/"+"a.sigstore.json"] = &fstest.MapFile{}
	return b
}

func TestNothingOfABundleIsMarkup(t *testing.T) {
	page := renderHTML(t, hostilePage())
	if !strings.Contains(page, "&lt;script&gt;alert(1)") {
		t.Fatal("the hostile text is not on the page, so this proves nothing")
	}
	for _, bad := range []string{"<script", "<img", "</script"} {
		if strings.Contains(strings.ToLower(page), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if n := strings.Count(page, "</style>"); n != 1 {
		t.Errorf("%d ends of a style", n)
	}
	for i, r := range page {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("%q at byte %d", r, i)
		}
	}
	tag := regexp.MustCompile(`<[a-zA-Z][a-zA-Z0-9]*((\s+[a-zA-Z0-9-]+(="[^"]*")?)*)\s*/?>`)
	attribute := regexp.MustCompile(`([a-zA-Z0-9-]+)(="[^"]*")?`)
	tags := tag.FindAllStringSubmatch(page, -1)
	if opened := len(regexp.MustCompile(`<[a-zA-Z]`).FindAllString(page, -1)); len(tags) != opened {
		t.Errorf("%d of %d tags have attributes that are all quoted", len(tags), opened)
	}
	for _, found := range tags {
		for _, a := range attribute.FindAllStringSubmatch(found[1], -1) {
			switch name, value := strings.ToLower(a[1]), a[2]; {
			case name == "href" && (value == `="data:,"` || strings.HasPrefix(value, `="#`)):
			case name == "href", name == "src", name == "srcset", name == "style", strings.HasPrefix(name, "on"):
				t.Errorf("%s has %s%s", found[0], name, value)
			}
		}
	}
}

// The page names nothing that a browser would fetch.
func TestPageIsSelfContained(t *testing.T) {
	page := renderHTML(t, rackBundle(rackOptions{nodes: 32, slices: 12, faulty: true}))
	for _, bad := range []string{"http:", "https:", "url(", "@import", "@font-face", "<script", "<img", "src="} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

func TestWordOfTheVerdict(t *testing.T) {
	simulate := func(n int) func(*evidence.Bundle) {
		return func(b *evidence.Bundle) {
			for i := range n {
				b.Inventory.Nodes[i].Simulated = true
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*evidence.Bundle)
		want   string
	}{
		"nothing limits it":  {func(*evidence.Bundle) {}, "PASS"},
		"all simulated":      {simulate(2), "PASS — SIMULATED RACK, NOT A REAL MACHINE"},
		"one simulated":      {simulate(1), "PASS — 1 OF 2 NODES SIMULATED, NOT REAL MACHINES"},
		"simulated executor": {func(b *evidence.Bundle) { b.Plan.Executor, b.Inventory = evidence.ExecutorSim, nil }, "PASS — SIMULATED RACK, NOT A REAL MACHINE"},
		"known by its server": {func(b *evidence.Bundle) {
			b.Inventory.Nodes[1].SSHVersion = "SSH-2.0-rackproof-sim"
		}, "PASS — 1 OF 2 NODES SIMULATED, NOT REAL MACHINES"},
		"known by the journal": {func(b *evidence.Bundle) {
			b.Records = append(b.Records, evidence.Record{Event: evidence.EventNode, Identity: &evidence.NodeIdentity{Node: "gpu001", Simulated: true}})
		}, "PASS — 1 OF 2 NODES SIMULATED, NOT REAL MACHINES"},
		"narrowed":     {func(b *evidence.Bundle) { b.Plan.Narrowed = []string{"--test x"} }, "PASS — NARROWED"},
		"off contract": {func(b *evidence.Bundle) { b.Plan.Variables = []evidence.Variable{{Name: "a", OffContract: true}} }, "PASS — OFF CONTRACT"},
		"shared":       {func(b *evidence.Bundle) { b.Plan.SharedMachine = true }, "PASS — SHARED MACHINE"},
		"not sealed":   {func(b *evidence.Bundle) { b.Sealed, b.Plan.SharedMachine = false, true }, "PASS — SHARED MACHINE; NOT SEALED"},
		"none":         {func(b *evidence.Bundle) { b.Verdict.Outcome = evidence.None }, "NONE"},
		"an open fault": {func(b *evidence.Bundle) {
			b.Records = append(b.Records, evidence.Record{Event: evidence.EventFaultOpen, Fault: &evidence.Fault{Kind: "command"}})
		}, "PASS — A FAULT MAY STILL BE IN EFFECT"},
	} {
		b := passing()
		c.change(b)
		s, err := Summarize(b)
		if err != nil {
			t.Fatal(err)
		}
		if s.Word != c.want {
			t.Errorf("%s: %q, want %q", name, s.Word, c.want)
		}
		page := renderHTML(t, b)
		if !strings.Contains(page, `Verdict: </span>`+c.want+`</p>`) || !strings.Contains(page, "<title>"+c.want+": ") {
			t.Errorf("%s: the page's verdict and title are not %q", name, c.want)
		}
		if limited := strings.Contains(c.want, "—"); limited == strings.Contains(page, `class="verdict pass"`) && c.want != "NONE" {
			t.Errorf("%s: a limited pass looks like a pass, or the other way round", name)
		}
	}
}

func TestPageNeverCallsItselfVerified(t *testing.T) {
	page := renderHTML(t, rackBundle(rackOptions{nodes: 8, slices: 3}))
	if !strings.Contains(page, "<strong>Not verified by this page.</strong>") || !strings.Contains(page, "rackproof verify PATH --trust FILE") {
		t.Error("the page does not say that it is not verified, or not how to")
	}
	for _, claim := range []string{"valid", "is verified", "authentic", "genuine", "trusted"} {
		if strings.Contains(strings.ToLower(page), claim) {
			t.Errorf("the page says %q", claim)
		}
	}
}

// text is what a reader sees of a page, tags taken out.
func visible(page string) string {
	_, body, _ := strings.Cut(page, "<body>")
	return regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, "\x00")
}

func TestPageDoesNotRoundAcrossALimit(t *testing.T) {
	page := visible(renderHTML(t, rackBundle(rackOptions{nodes: 32, slices: 3, faulty: true})))
	for _, value := range []string{"439.999999 GB/s", "71.999997 h", "-0.00000269 h", "-9.6e-07 GB/s"} {
		if !strings.Contains(page, "\x00"+value+"\x00") {
			t.Errorf("the page does not show %q", value)
		}
	}
	for _, limit := range []string{"440 GB/s", "72 h"} {
		if strings.Contains(page, "\x00"+limit+"\x00") {
			t.Errorf("a value is shown as its limit, %q", limit)
		}
	}
}

func TestWorstFirst(t *testing.T) {
	point := func(name string, o evidence.Outcome, observed, limit float64) OpenPoint {
		margin := observed - limit
		return OpenPoint{Finding: evidence.Finding{Test: name, Outcome: o, Observed: &observed, Margin: &margin}, Min: &limit}
	}
	below := point("a tenth over", evidence.Fail, 33, 30)
	*below.Margin, below.Max, below.Min = -3, below.Min, nil
	zero := point("over zero", evidence.Fail, 1, 0)
	*zero.Margin, zero.Max, zero.Min = -1, zero.Min, nil
	more := point("far over zero", evidence.Fail, 5, 0)
	*more.Margin, more.Max, more.Min = -5, more.Min, nil
	s := Summary{Open: []OpenPoint{
		{Finding: evidence.Finding{Test: "nothing", Outcome: evidence.None}},
		{Finding: evidence.Finding{Test: "lost", Outcome: evidence.Inconclusive}},
		{Finding: evidence.Finding{Test: "broken", Outcome: evidence.Error}},
		{Finding: evidence.Finding{Test: "wrong text", Outcome: evidence.Fail}},
		point("just under", evidence.Fail, 124999, 125000),
		zero, below, more,
		point("half", evidence.Fail, 50, 100),
	}}
	var got []string
	for _, o := range s.WorstFirst() {
		got = append(got, o.Test)
	}
	want := []string{"far over zero", "over zero", "half", "a tenth over", "just under", "wrong text", "broken", "nothing", "lost"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.Open[0].Test != "nothing" {
		t.Error("the summary's own order has changed")
	}
}

// Every open point is in the file, and what is folded is counted.
func TestNoOpenPointIsLeftOut(t *testing.T) {
	b := rackBundle(rackOptions{nodes: 64, slices: 3, faulty: true})
	for i := range b.Verdict.Findings {
		f := &b.Verdict.Findings[i]
		f.Outcome, f.Source = evidence.Fail, fmt.Sprintf("point-%d-end", i)
	}
	page := renderHTML(t, b)
	n := len(b.Verdict.Findings)
	for i := range n {
		if strings.Count(page, fmt.Sprintf("point-%d-end", i)) != 1 {
			t.Fatalf("point %d of %d is not on the page once", i, n)
		}
	}
	for _, said := range []string{fmt.Sprintf("Open points: %d</h2>", n), fmt.Sprintf("%d more, by threshold</h3>", n-pointsShown), fmt.Sprintf("</span> %d fail</span>", n)} {
		if !strings.Contains(page, said) {
			t.Errorf("the page does not say %q", said)
		}
	}
	rows := 0
	for _, group := range regexp.MustCompile(`<summary>[a-z_]+: [a-z_]+: (\d+) `).FindAllStringSubmatch(page, -1) {
		var count int
		if _, err := fmt.Sscan(group[1], &count); err != nil {
			t.Fatal(err)
		}
		rows += count
	}
	if rows != n-pointsShown {
		t.Errorf("the summaries count %d points, want %d", rows, n-pointsShown)
	}
}

func TestPlaceOwnerAndContactOfAnOpenPoint(t *testing.T) {
	s, err := Summarize(rackBundle(rackOptions{nodes: 32, slices: 3, faulty: true}))
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(s.Open, func(o OpenPoint) bool { return o.Subject == "gpu018/gpu2" })
	if at < 0 {
		t.Fatal("the short soak is not open")
	}
	if o := s.Open[at]; o.Place != "rack A03, unit 7" || o.Owner != "compute" || o.Contact != "gpu-oncall@example.com" {
		t.Errorf("place %q, owner %q, contact %q", o.Place, o.Owner, o.Contact)
	}
	if s.Identity != (Identity{Nodes: 32, Identified: 32, Serials: 30, MachineIDs: 32}) {
		t.Errorf("identity %+v", s.Identity)
	}
}

func TestSizeOfThePage(t *testing.T) {
	for nodes, limit := range map[int]int{32: 2 << 20, 1024: 15 << 20} {
		b := rackBundle(rackOptions{nodes: nodes, slices: 4, faulty: true})
		for i := range b.Verdict.Findings { // as bad as it can be
			f := &b.Verdict.Findings[i]
			f.Outcome, f.Reason = evidence.Fail, "gpu0001: the reason why this point is open, in a sentence of usual length"
		}
		if n := len(renderHTML(t, b)); n > limit {
			t.Errorf("%d nodes and %d open points: %d bytes, over %d", nodes, len(b.Verdict.Findings), n, limit)
		}
	}
}

func TestMeasurementsThatCannotBeRead(t *testing.T) {
	b := rackBundle(rackOptions{nodes: 8, slices: 3})
	files := b.FS.(fstest.MapFS)
	whole := files[evidence.MeasurementsPath].Data
	files[evidence.MeasurementsPath] = &fstest.MapFile{Data: whole[:len(whole)-10]}
	page := renderHTML(t, b)
	if !strings.Contains(page, "the measurements could not be read to their end: run/measurements.jsonl") {
		t.Error("the page does not say that the measurements are torn")
	}
	for _, drawn := range []string{`class="chart"`, "Outliers", "No test of this run"} {
		if strings.Contains(page, drawn) {
			t.Errorf("the page shows %q all the same", drawn)
		}
	}
}

// Only the attempts that count are drawn, as the judge takes them.
func TestMeasuredTakesTheAttemptThatCounts(t *testing.T) {
	b := sample(samplePlan(), &evidence.Verdict{Coverage: evidence.Coverage{Cuts: []evidence.OpenCell{{Cell: "reads/gpu001.r1", Attempt: 3}}}})
	b.Sealed = false
	for n := range 3 {
		b.Records = append(b.Records, evidence.Record{Event: evidence.EventAttemptStart, Cell: "reads/gpu001.r1", Attempt: n + 1})
	}
	cell := evidence.CellResult{Cell: b.Plan.Cells[0]}
	for n := range 3 {
		cell.Attempts = append(cell.Attempts, evidence.MeasuredAttempt{
			Attempt:      evidence.Attempt{Number: n + 1},
			Measurements: []evidence.Measurement{{Metric: hoursMetric, Unit: "h", Value: float64(n + 1), Subject: "gpu001"}, {Metric: hoursMetric, Unit: "h", Missing: "N/A", Subject: "gpu002"}},
		})
	}
	b.Results = []evidence.CellResult{cell}
	m := measure(b)
	if m.problem != "" {
		t.Fatal(m.problem)
	}
	rows := m.hoursRows(b.Plan, newLimits(b.Plan))
	want := hoursRow{Test: "reads", Subjects: 1, Sum: "2 h", Least: "2 h", LeastOf: "gpu001", Missing: "gpu002"}
	if len(rows) != 1 || rows[0] != want {
		t.Errorf("%+v, want %+v", rows, want)
	}
}

func TestOutliers(t *testing.T) {
	readings := func(values ...float64) []reading {
		var list []reading
		for i, v := range values {
			list = append(list, reading{subject: fmt.Sprintf("n%d", i), value: v})
		}
		return list
	}
	for name, c := range map[string]struct {
		readings   []reading
		resolution float64
		want       []float64
	}{
		"scaled by the MAD":        {readings(1, 2, 3, 4, 5), 0, []float64{-1.349, -0.6745, 0, 0.6745, 1.349}},
		"scaled by the resolution": {readings(0, 0, 0, 0, 10), 2, []float64{0, 0, 0, 0, 3.3725}},
		"nothing else differs":     {readings(0, 0, 0, 0, 1), 0, []float64{0, 0, 0, 0, math.Inf(1)}},
		"too few":                  {readings(1, 1, 1, 9), 0, nil},
		"repetitions":              {append(readings(1, 2, 3, 4, 5), reading{subject: "n4", value: 7}), 0, []float64{-1.349, -0.6745, 0, 0.6745, 2.0235}},
	} {
		got := compareSubjects(c.readings, c.resolution).scores
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	b := rackBundle(rackOptions{nodes: 32, slices: 6, faulty: true})
	list := measure(b).outliers(b.Plan, newLimits(b.Plan), nil)
	if len(list) == 0 || list[0].Subject != "gpu023" || list[0].Place != "rack A03, unit 32" {
		t.Fatalf("the slow node is not first: %+v", list)
	}
	if !slices.ContainsFunc(list, func(o outlier) bool {
		return o.Subject == "gpu007/gpu5" && strings.HasPrefix(o.Quantity, "series_gpu_temperature")
	}) {
		t.Error("the hot GPU is not listed")
	}
}

// The largest numbers are as good as others: they make no score that is none.
func TestOutliersOfTheLargestNumbers(t *testing.T) {
	var readings []reading
	for i, v := range []float64{-1.7e308, -1.7e308, -1.7e308, 1.7e308, 1.7e308, 5e-324} {
		readings = append(readings, reading{subject: fmt.Sprint("gpu00", i), value: v})
	}
	for _, few := range [][]reading{readings, readings[:5], readings[1:]} {
		for i, score := range compareSubjects(few, 0).scores {
			if math.IsNaN(score) || math.IsInf(score, 0) {
				t.Errorf("%d of %v: score %g", i, few, score)
			}
		}
	}
	same := []reading{{subject: "a", value: 1e-300}, {subject: "b"}, {subject: "c"}, {subject: "d"}, {subject: "e"}}
	if got := compareSubjects(same, 0).scores[0]; !math.IsInf(got, 1) {
		t.Errorf("among others that are all alike: %g", got)
	}
}

func TestHeatMapShowsWhatIsOpen(t *testing.T) {
	b := rackBundle(rackOptions{nodes: 40, slices: 3, faulty: true})
	h := newHeatMap(b)
	if len(h.Blocks) != 2 || h.Blocks[0].Nodes != "gpu[001-032]" || h.Blocks[1].Nodes != "gpu[033-040]" || len(h.Blocks[0].Racks) != 4 {
		t.Fatalf("blocks %+v", h.Blocks)
	}
	got := map[string]string{}
	for _, block := range h.Blocks {
		for _, row := range block.Rows {
			for i, cell := range row.Cells {
				got[row.Test+" "+block.Names[i]] = cell.Kind
			}
		}
	}
	for key, want := range map[string]string{
		"bill_of_materials gpu010": "fail", "bill_of_materials gpu011": "pass", "allreduce_node gpu023": "fail", "scratch_reads gpu005": "error",
		"scratch_reads gpu028": "inconclusive", "soak gpu018": "fail", "allreduce_fleet gpu001": "set", "soak gpu040": "pass",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	b.Verdict.Findings = nil
	b.Verdict.Coverage.Open = nil
	for _, row := range newHeatMap(b).Blocks[0].Rows {
		for _, cell := range row.Cells {
			if cell.Kind != "inconclusive" {
				t.Fatalf("nothing was found, and %s shows %q", row.Test, cell.Kind)
			}
		}
	}
}

func TestTimelineShowsGapsCutsAndFaults(t *testing.T) {
	line := newTimeline(rackBundle(rackOptions{nodes: 32, slices: 3, faulty: true}))
	if len(line.Gaps) != 1 || line.Gaps[0].Length != "6h22m0s" || line.Gaps[0].Why != "stopped (stopped by the operator); resumed" {
		t.Errorf("gaps %+v", line.Gaps)
	}
	kinds := map[string]int{}
	for _, row := range line.Tests.Rows {
		for _, b := range row.Bars {
			kinds[row.Kind+" "+b.Kind]++
		}
	}
	if kinds["test cut"] != 1 || kinds["test silent"] != 1 || kinds["faults fault"] != 1 || kinds["phase "] != 5 {
		t.Errorf("bars %v", kinds)
	}
	if len(line.Tests.Marks) != 3 || line.Cuts != 1 {
		t.Errorf("%d marks, %d cuts", len(line.Tests.Marks), line.Cuts)
	}
}

// A runner that died leaves a gap, not a bar.
func TestTimelineOfARunnerThatDied(t *testing.T) {
	b := passing()
	start := b.Records[0].Time
	at := func(minutes int, r evidence.Record) evidence.Record {
		r.Time = start.Add(time.Duration(minutes) * time.Minute)
		return r
	}
	b.Verdict.Coverage.Cuts = []evidence.OpenCell{{Cell: "reads/gpu001.r1", Attempt: 1}}
	b.Records = []evidence.Record{
		at(0, evidence.Record{Event: evidence.EventOpen}),
		at(0, evidence.Record{Event: evidence.EventAttemptStart, Cell: "reads/gpu001.r1", Attempt: 1}),
		at(90, evidence.Record{Event: evidence.EventResume}),
		at(91, evidence.Record{Event: evidence.EventAttemptEnd, Cell: "reads/gpu001.r1", Attempt: 1}),
		at(91, evidence.Record{Event: evidence.EventAttemptStart, Cell: "reads/gpu001.r1", Attempt: 2}),
		at(100, evidence.Record{Event: evidence.EventAttemptEnd, Cell: "reads/gpu001.r1", Attempt: 2}),
		at(100, evidence.Record{Event: evidence.EventClose}),
	}
	gaps := newTimeline(b).Gaps
	if len(gaps) != 1 || gaps[0].Length != "1h31m0s" || !strings.Contains(gaps[0].Why, "resumed") {
		t.Errorf("gaps %+v", gaps)
	}
}

func TestSizeCurves(t *testing.T) {
	b := rackBundle(rackOptions{nodes: 32, slices: 3, faulty: true})
	charts := measure(b).sizeCurves(newLimits(b.Plan), map[string]int{"allreduce_node": 1, "allreduce_fleet": 2})
	if len(charts) != 2 || charts[0].Title != "allreduce_node: busbw (GB/s)" || len(charts[0].Rows) != len(rackSizes) {
		t.Fatalf("charts %+v", charts)
	}
	last := charts[0].Rows[len(rackSizes)-1]
	if last.At != "16GiB" || last.Count != 32 || last.Lowest != "391.4" {
		t.Errorf("last row %+v", last)
	}
	if l := charts[0].Limits; len(l) != 1 || l[0].Label != "busbw ≥ 440 GB/s" {
		t.Errorf("limits %+v", l)
	}
	if n := len(strings.Fields(charts[0].Line)); n != len(rackSizes) {
		t.Errorf("%d points, want %d", n, len(rackSizes))
	}
}

func TestThinnedKeepsExcursions(t *testing.T) {
	var list []*stop
	for i := range 5000 {
		s := &stop{at: float64(i), low: 10, middle: 20, high: 30}
		if i == 3333 {
			s.low, s.high = 1, 99
		}
		list = append(list, s)
	}
	few := thinned(list)
	if len(few) > maxPoints {
		t.Fatalf("%d stops", len(few))
	}
	if !slices.ContainsFunc(few, func(s *stop) bool { return s.low == 1 && s.high == 99 }) {
		t.Error("the excursion is lost")
	}
}

func TestNiceTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      []float64
	}{
		{0, 500, []float64{0, 100, 200, 300, 400, 500}},
		{0, 0.3, []float64{0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3}},
		{61, 88, []float64{65, 70, 75, 80, 85}},
		{5, 5, []float64{5}},
		{-math.MaxFloat64, math.MaxFloat64, []float64{-math.MaxFloat64}},
	} {
		if got := niceTicks(c.low, c.high); !slices.Equal(got, c.want) {
			t.Errorf("%g to %g: %v, want %v", c.low, c.high, got, c.want)
		}
	}
}

// Whatever was measured, a drawing has only numbers in it.
func FuzzChart(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, "1MiB", "0")
	f.Add(-math.MaxFloat64, math.MaxFloat64, math.SmallestNonzeroFloat64, "16EiB", "1e308")
	f.Add(0.0, math.Copysign(0, -1), 0.0, "x", "NaN")
	f.Fuzz(func(t *testing.T, a, b, limit float64, size, slice string) {
		for _, v := range []float64{a, b, limit} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return
			}
		}
		m := &measured{sizes: map[quantity][]reading{}, series: map[quantity][]reading{}}
		q := quantity{test: "t", metric: "m", unit: "u"}
		m.sizes[q] = []reading{{"n1", "1B", a, false}, {"n2", size, b, false}, {"n3", size, a, true}}
		m.series[q] = []reading{{"n1", "0", a, false}, {"n2", slice, b, false}, {"n3", slice, a, true}}
		limits := limitsOf{{"t", "m"}: {{Name: "x", Metric: "m", Stat: "min", Min: &limit, Max: &limit}}}
		for _, c := range append(m.sizeCurves(limits, nil), m.soakSeries(limits, nil)...) {
			if text := fmt.Sprint(c.Line, c.Band, c.Dots, c.Limits, c.XTicks, c.YTicks); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
				t.Fatalf("a drawing has %s", text)
			}
		}
	})
}
