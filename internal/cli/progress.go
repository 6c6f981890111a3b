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
	Elapsed   float64              `json:"elapsed,omitempty"`  // cell_progress: seconds
	Duration  float64              `json:"duration,omitempty"` // cell_progress: seconds that the plan gives the cell
	Coverage  *evidence.Coverage   `json:"coverage,omitempty"`
	Archive   string               `json:"archive,omitempty"`
	Signed    bool                 `json:"signed,omitempty"`
	Simulated bool                 `json:"simulated,omitempty"` // verdict: nodes of the run are not real machines
	Text      string               `json:"text,omitempty"`      // diagnostic, error
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

// progress tells what a run does: one plain line an event on stderr, a live
// view where that is a terminal, or one JSON object an event on stdout. It is
// safe for use by many goroutines.
type progress struct {
	now    func() time.Time
	ndjson io.Writer // nil: on stderr

	mu      sync.Mutex
	plain   *reports.Printer
	screen  *screen // nil: plain lines
	tally   *tally
	live    bool     // the view is being drawn, by one goroutine
	waiting []string // lines that the next draw puts above the view
}

const (
	// drawEvery is the time between two draws of the live view.
	drawEvery = 250 * time.Millisecond
	// tellEvery is the time between two cell_progress of a running cell.
	tellEvery = 30 * time.Second
)

func newProgress(p *Process, plan *evidence.Plan, ndjson bool) *progress {
	t := newEvents(p, ndjson, true)
	t.tally = newTally(plan, p.Now())
	if !ndjson {
		t.screen = newScreen(p)
	}
	return t
}

// newEvents tells events of no plan. first says whether the stream begins
// here.
func newEvents(p *Process, ndjson, first bool) *progress {
	t := &progress{now: p.Now, plain: &reports.Printer{W: p.Stderr}}
	if ndjson {
		t.ndjson = p.Stdout
	}
	if ndjson && first {
		minor := progressMinor
		t.say(message{Type: "version", Time: p.Now(), MediaType: mediaProgress, Minor: &minor, Tool: version}, "", "")
	}
	return t
}

// begin keeps the view, or the reader of the stream, up to date until end is
// called. The last view stays.
func (t *progress) begin() (end func()) {
	tick, every := t.draw, drawEvery
	switch {
	case t.ndjson != nil:
		tick, every = t.tellRunning, tellEvery
	case t.screen == nil:
		return func() {}
	}
	t.mu.Lock()
	t.live = t.screen != nil
	t.mu.Unlock()
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				tick()
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		ticking.Wait()
		t.leave()
	}
}

// draw draws the view. The lock is not held meanwhile: a terminal that was
// halted must not halt the run.
func (t *progress) draw() {
	t.mu.Lock()
	stay, v := t.waiting, t.tally.view(t.now(), false)
	t.waiting = nil
	t.mu.Unlock()
	t.screen.draw(stay, v.lines)
}

// leave draws the last view.
func (t *progress) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.live {
		return
	}
	t.screen.draw(t.waiting, t.tally.view(t.now(), true).lines)
	t.screen.leave()
	t.waiting, t.live = nil, false
}

// tellRunning says of every running cell that it runs.
func (t *progress) tellRunning() {
	t.mu.Lock()
	now := t.now()
	var messages []message
	for _, c := range t.tally.inOrder() {
		messages = append(messages, message{
			Type: "cell_progress", Time: now, Phase: t.tally.phases[c.phase].name, Cell: c.cell.ID, Attempt: c.attempt,
			Elapsed: max(0, now.Sub(c.since).Seconds()), Duration: c.seconds,
		})
	}
	t.mu.Unlock()
	for _, m := range messages {
		t.say(m, "", "")
	}
}

// recall takes in what the journal says of earlier processes.
func (t *progress) recall(records []evidence.Record) { t.tally.recall(records) }

// say prints one event in the form that was asked for. An event without a
// word has no plain line; one without a type has no JSON line.
func (t *progress) say(m message, word, text string) { t.tell(m, word, text, false) }

// routine is say for what the live view shows by itself.
func (t *progress) routine(m message, word, text string) { t.tell(m, word, text, true) }

func (t *progress) tell(m message, word, text string, routine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.Time = m.Time.UTC()
	switch {
	case t.ndjson != nil && m.Type != "":
		if doc, err := json.Marshal(m); err == nil {
			// A reader that has gone away must not end a run of many hours.
			_, _ = t.ndjson.Write(append(reports.PrintableJSON(doc), '\n'))
		}
	case t.ndjson != nil || word == "":
	case t.screen == nil:
		t.plain.Line("%s", plainLine(m.Time, word, text))
	case t.live:
		if !routine || t.screen.small() {
			t.waiting = append(t.waiting, plainLine(m.Time, word, text))
		}
	default:
		t.screen.draw([]string{plainLine(m.Time, word, text)}, nil)
	}
}

// plainLine is one event as one line, which is escaped.
func plainLine(at time.Time, word, text string) string {
	return fmt.Sprintf("%s %-9s %s", at.Format("15:04:05"), word, reports.Printable(text))
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
	t.mu.Lock()
	t.tally.add(e)
	t.mu.Unlock()
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
		t.routine(m, "phase", fmt.Sprintf("%s: %s", e.Phase, evidence.Count(e.Pending, "cell")))
	case runner.ProgressCellStart:
		m.Type, m.Pending = "cell_start", &e.Pending
		t.say(m, "", "")
	case runner.ProgressCellEnd, runner.ProgressSkip:
		m.Type, m.Outcome, m.Pending = "cell_end", &e.Outcome, &e.Pending
		if how := endingOf(e); how == endPass || how == endMeasured {
			t.routine(m, "cell", t.cellLine(e))
			break
		}
		t.say(m, "cell", t.cellLine(e))
	case runner.ProgressGate:
		m.Type = "gate"
		if e.Gate != nil && e.Gate.Met {
			t.routine(m, "gate", t.gateLine(e))
			break
		}
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

// name is a cell as people say it: test@node, and the repetition from the
// second on.
func (t *progress) name(id string) string {
	known, ok := t.tally.cells[id]
	if !ok {
		return id
	}
	cell := known.cell
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
	line := fmt.Sprintf("%s: %s: %s", e.Gate.Phase, answer, t.passing(e.Phase))
	if e.Gate.Reason != "" {
		line += ": " + e.Gate.Reason
	}
	if !e.Gate.Met && e.OnFail != "" {
		line += "; on_fail = " + e.OnFail
	}
	return line
}

// passing says how many cells of a phase passed, of those that this process ran
// and that pass or fail by themselves.
func (t *progress) passing(phase string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ended [endings]int
	if i := t.tally.phase(phase); i >= 0 {
		ended = t.tally.phases[i].ended
	}
	judged := 0
	for how, n := range ended {
		if ending(how) != endMeasured && ending(how) != endEarlier {
			judged += n
		}
	}
	return fmt.Sprintf("%d of %d cells pass", ended[endPass], judged)
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
func (t *progress) verdict(run, dir, archive string, signed, simulated bool, v evidence.Verdict) {
	t.say(message{
		Type: "verdict", Time: t.now(), Run: run, Dir: dir, Archive: archive, Signed: signed, Simulated: simulated, Outcome: &v.Outcome, Coverage: &v.Coverage,
	}, "verdict", verdictLine(v))
}

// simulatedLine is told beside every verdict of a run with simulated nodes.
const simulatedLine = "simulated: nodes of this run are not real machines"

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
