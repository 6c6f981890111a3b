package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/internal/diag"
	"github.com/rackproof/rackproof/reports"
	"github.com/rackproof/rackproof/runner"
)

// progressMinor is the minor version of the NDJSON stream.
const progressMinor = 0

// mediaProgress names the NDJSON stream in its first message.
const mediaProgress = "application/vnd.rackproof.progress.v1+json"

// message is one line of the NDJSON stream of run and resume.
type message struct {
	Type string    `json:"type"`
	Time time.Time `json:"time"`

	MediaType string               `json:"mediaType,omitempty"` // version
	Minor     *int                 `json:"minor,omitempty"`
	Tool      string               `json:"tool,omitempty"`
	Run       string               `json:"run,omitempty"` // plan, verdict
	Dir       string               `json:"dir,omitempty"`
	Plan      *planMessage         `json:"plan,omitempty"`
	Phase     string               `json:"phase,omitempty"`
	Cell      string               `json:"cell,omitempty"`
	Attempt   int                  `json:"attempt,omitempty"`
	Attempts  int                  `json:"attempts,omitempty"`
	Node      string               `json:"node,omitempty"`
	Outcome   *evidence.Outcome    `json:"outcome,omitempty"`
	Cut       bool                 `json:"cut,omitempty"`
	Problem   *evidence.Problem    `json:"problem,omitempty"`
	Gate      *evidence.GateResult `json:"gate,omitempty"`
	OnFail    string               `json:"onFail,omitempty"`
	Fault     *evidence.Fault      `json:"fault,omitempty"`
	Event     string               `json:"event,omitempty"`
	Running   []string             `json:"running,omitempty"`
	Pending   *int                 `json:"pending,omitempty"`
	Coverage  *evidence.Coverage   `json:"coverage,omitempty"`
	Archive   string               `json:"archive,omitempty"`
	Signed    bool                 `json:"signed,omitempty"`
	Text      string               `json:"text,omitempty"` // diagnostic, error
	// error: why the command did not end with 0.
	Exit        *Exit             `json:"exit,omitempty"`
	Hints       []string          `json:"hints,omitempty"`
	Diagnostics []diag.Diagnostic `json:"diagnostics,omitempty"`
}

type planMessage struct {
	Name    string          `json:"name"`
	Version string          `json:"version,omitempty"`
	Digest  evidence.Digest `json:"digest"`
	Tests   int             `json:"tests"`
	Cells   int             `json:"cells"`
	Seconds float64         `json:"seconds"` // estimate
}

// progress tells what a run does: one plain line an event on stderr, or one
// JSON object an event on stdout. It is safe for use by many goroutines.
type progress struct {
	mu     sync.Mutex
	now    func() time.Time
	plain  *reports.Printer
	ndjson io.Writer // nil: plain lines
	cells  map[string]evidence.Cell
	passed map[string]int // by phase: cells that passed
	open   map[string]int // by phase: cells that did not
}

func newProgress(p *Process, plan *evidence.Plan, ndjson bool) *progress {
	t := newEvents(p, ndjson, true)
	for _, c := range plan.Cells {
		t.cells[c.ID] = c
	}
	return t
}

// newEvents tells events of no plan. first says whether the stream begins
// here.
func newEvents(p *Process, ndjson, first bool) *progress {
	t := &progress{
		now: p.Now, plain: &reports.Printer{W: p.Stderr}, cells: make(map[string]evidence.Cell),
		passed: make(map[string]int), open: make(map[string]int),
	}
	if ndjson {
		t.ndjson = p.Stdout
	}
	if ndjson && first {
		minor := progressMinor
		t.say(message{Type: "version", Time: p.Now(), MediaType: mediaProgress, Minor: &minor, Tool: version}, "", "")
	}
	return t
}

// say prints one event in the form that was asked for. An event without a
// word has no plain line; one without a type has no JSON line.
func (t *progress) say(m message, word, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.Time = m.Time.UTC()
	switch {
	case t.ndjson == nil && word != "":
		t.plain.Line("%s %-9s %s", m.Time.Format("15:04:05"), word, text)
	case t.ndjson != nil && m.Type != "":
		if doc, err := json.Marshal(m); err == nil {
			// A reader that has gone away must not end a run of many hours.
			_, _ = t.ndjson.Write(append(reports.PrintableJSON(doc), '\n'))
		}
	}
}

func (t *progress) plan(run, dir string, plan *evidence.Plan, digest evidence.Digest) {
	wall := wallTime(plan, estimates(plan))
	t.say(message{Type: "plan", Time: t.now(), Run: run, Dir: dir, Plan: &planMessage{
		Name: plan.Name, Version: plan.Version, Digest: digest, Tests: len(plan.Tests), Cells: len(plan.Cells), Seconds: wall,
	}}, "plan", fmt.Sprintf("%s  %s  %s, about %s", strings.TrimSpace(plan.Name+" "+plan.Version), digest, sizeOf(len(plan.Tests), len(plan.Cells)), roughly(wall)))
	t.say(message{Time: t.now()}, "run", dir)
}

// report is the runner's callback.
func (t *progress) report(e runner.Progress) {
	t.remember(e)
	m := message{
		Time: e.Time, Phase: e.Phase, Cell: e.Cell, Attempt: e.Attempt, Attempts: e.Attempts, Node: e.Node,
		Cut: e.Cut, Problem: e.Problem, Gate: e.Gate, OnFail: e.OnFail, Fault: e.Fault, Event: e.FaultEvent, Running: e.Running,
	}
	switch e.Kind {
	case runner.ProgressNode:
		if e.Problem != nil {
			m.Type, m.Text = "diagnostic", e.Problem.Error()
			t.say(m, "node", fmt.Sprintf("%s: %s: %s", e.Node, e.Problem.Class, e.Problem.Detail))
		}
	case runner.ProgressPhaseStart:
		t.say(m, "phase", fmt.Sprintf("%s: %s", e.Phase, evidence.Count(e.Pending, "cell")))
	case runner.ProgressCellStart:
		m.Type, m.Pending = "cell_start", &e.Pending
		t.say(m, "", "")
	case runner.ProgressCellEnd, runner.ProgressSkip:
		m.Type, m.Outcome, m.Pending = "cell_end", &e.Outcome, &e.Pending
		t.say(m, "cell", t.cellLine(e))
	case runner.ProgressGate:
		m.Type = "gate"
		t.say(m, "gate", t.gateLine(e))
	case runner.ProgressFault:
		m.Type = "fault"
		t.say(m, "fault", t.faultLine(e))
	case runner.ProgressWaiting:
		m.Type, m.Text = "diagnostic", "waiting for running cells"
		t.say(m, "waiting", "for "+t.names(e.Running))
	case runner.ProgressStop:
		m.Type, m.Text = "diagnostic", "stopped: "+e.Reason
		t.say(m, "stop", e.Reason)
	}
}

func (t *progress) remember(e runner.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.Kind != runner.ProgressCellEnd && e.Kind != runner.ProgressSkip:
	case e.Measured: // by itself it neither passes nor fails
	case e.Outcome == evidence.Pass && !e.Cut:
		t.passed[e.Phase]++
	default:
		t.open[e.Phase]++
	}
}

// name is a cell as people say it: test@node, and the repetition from the
// second on.
func (t *progress) name(id string) string {
	cell, ok := t.cells[id]
	if !ok {
		return id
	}
	name := cell.Test + "@" + cell.Nodes
	if cell.Repetition > 1 {
		name += fmt.Sprintf(" repetition %d", cell.Repetition)
	}
	return name
}

func (t *progress) names(ids []string) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = t.name(id)
	}
	return strings.Join(names, ", ")
}

func (t *progress) cellLine(e runner.Progress) string {
	var line strings.Builder
	outcome := e.Outcome.String()
	if e.Measured {
		outcome = "measured"
	}
	fmt.Fprintf(&line, "%s: %s", t.name(e.Cell), outcome)
	if e.Cut && (e.Problem == nil || e.Problem.Class != evidence.ClassCut) {
		line.WriteString(", cut")
	}
	if e.Problem != nil {
		fmt.Fprintf(&line, ": %s", e.Problem.Error())
	}
	if e.Attempt > 0 {
		fmt.Fprintf(&line, " (attempt %d of %d)", e.Attempt, max(e.Attempts, e.Attempt))
	}
	return line.String()
}

func (t *progress) gateLine(e runner.Progress) string {
	if e.Gate == nil {
		return e.Phase
	}
	answer := "met"
	if !e.Gate.Met {
		answer = "not met"
	}
	t.mu.Lock()
	counts := fmt.Sprintf("%d of %d cells pass", t.passed[e.Phase], t.passed[e.Phase]+t.open[e.Phase])
	t.mu.Unlock()
	line := fmt.Sprintf("%s: %s: %s", e.Gate.Phase, answer, counts)
	if e.Gate.Reason != "" {
		line += ": " + e.Gate.Reason
	}
	if !e.Gate.Met && e.OnFail != "" {
		line += "; on_fail = " + e.OnFail
	}
	return line
}

func (t *progress) faultLine(e runner.Progress) string {
	kind := ""
	if e.Fault != nil {
		kind = e.Fault.String()
	}
	line := fmt.Sprintf("%s: %s on %s: %s", t.name(e.Cell), kind, e.Node, e.FaultEvent)
	if e.Problem != nil {
		line += ": " + e.Problem.Detail
	}
	return line
}

// verdict is the last event of a run.
func (t *progress) verdict(run, dir, archive string, signed bool, v evidence.Verdict) {
	t.say(message{
		Type: "verdict", Time: t.now(), Run: run, Dir: dir, Archive: archive, Signed: signed, Outcome: &v.Outcome, Coverage: &v.Coverage,
	}, "verdict", verdictLine(v))
}

// verdictLine says the outcome, and by how many cells.
func verdictLine(v evidence.Verdict) string {
	passed, cells := 0, 0
	for _, t := range v.Tests {
		passed += t.Passed
		cells += t.Cells
	}
	return fmt.Sprintf("%s: %d of %d cells pass, %d of %d findings pass, %s not measured", v.Outcome, passed, cells,
		v.Coverage.Passing, v.Coverage.Findings, evidence.Count(v.Coverage.Cells-v.Coverage.Measured, "cell"))
}

// diagnostic is a sentence for whoever follows the run.
func (t *progress) diagnostic(text string) {
	t.say(message{Type: "diagnostic", Time: t.now(), Text: text}, "note", text)
}
