package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
	"github.com/rackproof/rackproof/reports"
	"github.com/rackproof/rackproof/runner"
)

// ending is how a cell ended, as the live view counts it.
type ending int

// The endings, in the order in which they are shown: a narrow terminal cuts
// off what is good.
const (
	endFail ending = iota
	endError
	endInconclusive
	endCut
	endSkipped
	endPass
	endMeasured
	endEarlier // before this process began
	endings
	notEnded = endings
)

var endingWords = [endings]string{"fail", "error", "inconclusive", "cut", "not run", "pass", "measured", "earlier"}

// tally is what the events of a run add up to.
type tally struct {
	title    string
	began    time.Time
	phases   []phaseTally
	cells    map[string]*cellTally
	running  map[string]*cellTally
	current  int // index of the phase at hand
	stopping bool
}

type phaseTally struct {
	name  string
	cells int
	ended [endings]int
	gate  string // "gate met", "gate not met", or nothing yet

	wall float64 // seconds that the plan gives the phase
	work float64 // seconds of all of its cells, one after another
	left float64 // of work: what has not ended
}

type cellTally struct {
	cell    evidence.Cell
	order   int // in the plan
	phase   int
	seconds float64
	ended   ending
	attempt int
	since   time.Time // when the running attempt began
}

func newTally(plan *evidence.Plan, now time.Time) *tally {
	t := &tally{
		title: strings.TrimSpace(plan.Name + " " + plan.Version), began: now,
		cells: make(map[string]*cellTally, len(plan.Cells)), running: make(map[string]*cellTally),
	}
	about, phase := estimates(plan), make(map[string]int, len(plan.Phases))
	for i, p := range plan.Phases {
		phase[p.Name] = i
		t.phases = append(t.phases, phaseTally{name: p.Name, wall: about[p.Name].wall})
	}
	tests := make(map[string]*evidence.Test, len(plan.Tests))
	for i := range plan.Tests {
		tests[plan.Tests[i].Name] = &plan.Tests[i]
	}
	for i, c := range plan.Cells {
		test := tests[c.Test]
		cell := &cellTally{cell: c, order: i, phase: phase[test.Phase], seconds: test.Duration.Std().Seconds(), ended: notEnded}
		t.cells[c.ID] = cell
		p := &t.phases[cell.phase]
		p.cells++
		p.work += cell.seconds
		p.left += cell.seconds
	}
	return t
}

// add takes in one event.
func (t *tally) add(e runner.Progress) {
	switch e.Kind {
	case runner.ProgressPhaseStart:
		t.current = max(0, t.phase(e.Phase))
	case runner.ProgressCellStart:
		if c := t.cells[e.Cell]; c != nil {
			t.end(c, notEnded)
			c.attempt, c.since = e.Attempt, e.Time
			t.running[e.Cell] = c
		}
	case runner.ProgressCellEnd, runner.ProgressSkip:
		if c := t.cells[e.Cell]; c != nil {
			t.end(c, endingOf(e))
			delete(t.running, e.Cell)
		}
	case runner.ProgressGate:
		t.decide(e.Gate)
	case runner.ProgressWaiting, runner.ProgressStop:
		t.stopping = true
	}
}

func (t *tally) phase(name string) int {
	return slices.IndexFunc(t.phases, func(p phaseTally) bool { return p.name == name })
}

func (t *tally) decide(gate *evidence.GateResult) {
	if gate == nil {
		return
	}
	if i := t.phase(gate.Phase); i >= 0 {
		t.phases[i].gate = map[bool]string{true: "gate met", false: "gate not met"}[gate.Met]
	}
}

// recall takes in what earlier processes did, as far as the journal says it:
// that a cell ended, and not how. What has to be done again is told anew.
func (t *tally) recall(records []evidence.Record) {
	for _, r := range records {
		c := t.cells[r.Cell]
		switch {
		case r.Event == evidence.EventGate:
			t.decide(r.Gate)
		case c == nil:
		case r.Event == evidence.EventAttemptStart:
			t.end(c, notEnded)
		case r.Event == evidence.EventAttemptEnd, r.Event == evidence.EventSkip:
			t.end(c, endEarlier)
		}
	}
}

// end moves a cell from one ending to another.
func (t *tally) end(c *cellTally, how ending) {
	p := &t.phases[c.phase]
	if c.ended != notEnded {
		p.ended[c.ended]--
		p.left += c.seconds
	}
	if how != notEnded {
		p.ended[how]++
		p.left -= c.seconds
	}
	c.ended = how
}

func endingOf(e runner.Progress) ending {
	switch {
	case e.Kind == runner.ProgressSkip:
		return endSkipped
	case e.Outcome == evidence.Fail:
		return endFail
	case e.Cut:
		return endCut
	case e.Measured: // by itself it neither passes nor fails
		return endMeasured
	case e.Outcome == evidence.Pass:
		return endPass
	case e.Outcome == evidence.Error:
		return endError
	}
	return endInconclusive
}

// inOrder lists the running cells in the plan's order.
func (t *tally) inOrder() []*cellTally {
	cells := make([]*cellTally, 0, len(t.running))
	for _, c := range t.running {
		cells = append(cells, c)
	}
	slices.SortFunc(cells, func(a, b *cellTally) int { return a.order - b.order })
	return cells
}

// remaining is about how many seconds the run still takes: of each phase's
// wall time the share that has not been worked off.
func (t *tally) remaining(now time.Time) float64 {
	left := make([]float64, len(t.phases))
	for i, p := range t.phases {
		left[i] = p.left
	}
	for _, c := range t.running {
		left[c.phase] -= min(max(0, now.Sub(c.since).Seconds()), c.seconds)
	}
	seconds := 0.0
	for i, p := range t.phases {
		if p.work > 0 {
			seconds += p.wall * max(0, left[i]) / p.work
		}
	}
	return seconds
}

// view is what the tally looks like at a moment.
func (t *tally) view(now time.Time, ended bool) view {
	v := view{title: t.title, elapsed: now.Sub(t.began)}
	switch seconds := t.remaining(now); {
	case ended && t.stopping:
		v.outlook = "stopped"
	case ended:
		v.outlook = "ended"
	case t.stopping:
		v.outlook = "stopping"
	case seconds >= 1:
		v.outlook = "about " + roughly(seconds) + " left"
	default:
		v.outlook = "longer than planned"
	}
	for i, p := range t.phases {
		v.phases = append(v.phases, phaseView{name: p.name, current: i == t.current && !ended, cells: p.cells, ended: p.ended, gate: p.gate})
	}
	if ended {
		return v
	}
	for _, c := range t.inOrder() {
		i := slices.IndexFunc(v.running, func(r runningView) bool { return r.test == c.cell.Test })
		if i < 0 {
			i = len(v.running)
			v.running = append(v.running, runningView{test: c.cell.Test})
		}
		v.running[i].nodes = append(v.running[i].nodes, nodesOf(c.cell)...)
	}
	return v
}

// view is the live view of a run: all that lines needs, and nothing of where
// it came from.
type view struct {
	title   string
	elapsed time.Duration
	outlook string // "about 2 h left"
	phases  []phaseView
	running []runningView
}

type phaseView struct {
	name    string
	current bool
	cells   int
	ended   [endings]int
	gate    string
}

type runningView struct {
	test  string
	nodes []string
}

// maxRunning is how many tests are shown as running, a line each.
const maxRunning = 4

// lines are the view on a terminal of so many columns and rows: none is wider
// than the terminal, and with the line below them, on which the cursor rests,
// they are not higher. All foreign text is escaped.
func (v view) lines(columns, rows int) []string {
	room := rows - 1
	lines := []string{fmt.Sprintf("%s elapsed, %s: %s", clock(v.elapsed), v.outlook, reports.Printable(v.title))}
	running := v.runningLines()
	phases := v.phaseLines(columns)
	if over := len(lines) + len(phases) + len(running) - room; over > 0 {
		running = running[:max(0, len(running)-over)]
	}
	if over := len(lines) + len(phases) + len(running) - room; over > 0 {
		phases = v.around(phases, max(0, len(phases)-over))
	}
	lines = slices.Concat(lines, phases, running)
	lines = lines[:min(len(lines), max(room, 1))]
	for i, line := range lines {
		lines[i] = clip(line, columns-1)
	}
	return lines
}

// around keeps room lines: those about the phase at hand, and between how many
// phases they stand.
func (v view) around(phases []string, room int) []string {
	current := max(0, slices.IndexFunc(v.phases, func(p phaseView) bool { return p.current }))
	if room < 3 {
		return phases[current:][:min(room, 1)]
	}
	shown := room - 2
	first := min(max(0, current-shown/2), len(phases)-shown)
	return slices.Concat(
		[]string{fmt.Sprintf("  %s before", evidence.Count(first, "phase"))}, phases[first:first+shown],
		[]string{fmt.Sprintf("  %s after", evidence.Count(len(phases)-first-shown, "phase"))})
}

func (v view) phaseLines(columns int) []string {
	name, count := 0, 0
	for _, p := range v.phases {
		name = max(name, displayWidth(reports.Printable(p.name)))
		count = max(count, len(p.count()))
	}
	name = min(name, max(8, columns/3))
	var lines []string
	for _, p := range v.phases {
		mark := " "
		if p.current {
			mark = ">"
		}
		shown := clip(reports.Printable(p.name), name)
		line := fmt.Sprintf("%s %s%s %*s  ", mark, shown, strings.Repeat(" ", name-displayWidth(shown)), count, p.count())
		lines = append(lines, strings.TrimRight(line+p.counts(columns-1-displayWidth(line)), " "))
	}
	return lines
}

// count says how many cells of the phase have ended.
func (p phaseView) count() string {
	done := 0
	for _, n := range p.ended {
		done += n
	}
	return fmt.Sprintf("%d/%d", done, p.cells)
}

// counts says how the cells of the phase ended, the bad ones first, and leaves
// out what has no room: half a number is a wrong one.
func (p phaseView) counts(room int) string {
	var parts []string
	for how, n := range p.ended {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, endingWords[how]))
		}
	}
	if p.gate != "" {
		parts = append(parts, p.gate)
	}
	text := strings.Join(parts, ", ")
	for n := len(parts) - 1; len(text) > room && n >= 0; n-- {
		text = strings.Join(append(parts[:n:n], "..."), ", ")
	}
	return text
}

func (v view) runningLines() []string {
	var lines []string
	word := "running"
	for i, r := range v.running {
		if i == maxRunning {
			return append(lines, fmt.Sprintf("          and %s more", evidence.Count(len(v.running)-i, "test")))
		}
		lines = append(lines, fmt.Sprintf("  %7s %s", word, reports.Printable(r.test+" on "+nodeset.Fold(r.nodes))))
		word = ""
	}
	return lines
}

// clock is a span of time as h:mm:ss.
func clock(d time.Duration) string {
	seconds := int64(max(0, d) / time.Second)
	return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
}
