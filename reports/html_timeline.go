package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rackproof/rackproof/evidence"
)

// The frame of the timeline, in the units of its drawing.
const (
	timelineLeft, timelineRight = 200, 1000
	timelineTop, timelineRow    = 22, 22
	timelineLabel               = 24 // characters of a label
	timelineRows                = 40 // more tests than this are drawn folded
)

// timeline is what the journal says happened when, by the runner's clock.
type timeline struct {
	Phases drawing
	Tests  drawing
	Gaps   []gap
	Events []happening
	Cuts   int
}

// drawing is bars on rows over one span of time.
type drawing struct {
	Height, Bottom, GapHeight int
	Ticks                     []tick
	Rows                      []timelineLine
	Marks                     []timeMark
	Gaps                      []bar
}

type timelineLine struct {
	Label, Full string
	Kind        string // phase, test, faults
	Y, TextY    int
	Bars        []bar
}

type bar struct{ X, Width, Kind, Title string }

type timeMark struct{ X, Kind, Title string }

// gap is a time in which nothing was attempted.
type gap struct {
	From, To, Length, Why string

	from, to time.Time
}

type happening struct{ Time, What, Detail string }

// span is a stretch of time.
type span struct {
	from, to time.Time
	kind     string // "", cut, silent, fault
	title    string
}

// history is the journal sorted by what it tells of.
type history struct {
	from, to time.Time
	phases   map[string][]span
	tests    map[string][]span
	faults   []span
	marks    []evidence.Record
}

// newTimeline reads the journal of b; nil where there is none.
func newTimeline(b *evidence.Bundle) *timeline {
	if len(b.Records) == 0 {
		return nil
	}
	h := readHistory(b)
	t := &timeline{Gaps: h.gaps(), Events: h.events(), Cuts: len(b.Verdict.Coverage.Cuts)}
	var phases, tests []timelineLine
	x := scale(0, h.to.Sub(h.from).Seconds(), timelineLeft, timelineRight)
	at := func(t time.Time) float64 { return x(t.Sub(h.from).Seconds()) }
	for _, p := range b.Plan.Phases {
		line := newLine(p.Name, "phase", h.phases[p.Name], at)
		phases, tests = append(phases, line), append(tests, line)
		for _, test := range b.Plan.Tests {
			if test.Phase == p.Name {
				tests = append(tests, newLine(test.Name, "test", h.tests[test.Name], at))
			}
		}
	}
	if len(h.faults) > 0 {
		line := newLine("faults", "faults", h.faults, at)
		phases, tests = append(phases, line), append(tests, line)
	}
	t.Tests = h.drawing(tests, t.Gaps, at)
	if len(tests) > timelineRows {
		t.Phases = h.drawing(phases, t.Gaps, at)
	}
	return t
}

func readHistory(b *evidence.Bundle) *history {
	h := &history{
		from: b.Records[0].Time, to: b.Records[0].Time,
		phases: map[string][]span{}, tests: map[string][]span{},
	}
	for _, r := range b.Records {
		if r.Time.After(h.to) {
			h.to = r.Time
		}
		if r.Time.Before(h.from) {
			h.from = r.Time
		}
	}
	cut := cutAttempts(b.Verdict)
	testOf := testsOfCells(b.Plan)
	running := map[attemptKey]time.Time{}
	phases := map[string]time.Time{}
	end := func(a attemptKey, at time.Time) {
		start, ok := running[a]
		if !ok {
			return
		}
		delete(running, a)
		s := span{from: start, to: at, title: fmt.Sprintf("%s attempt %d", a.cell, a.number)}
		if cut[a] {
			s.kind = "cut"
			s.title += ", cut"
		}
		h.tests[testOf[a.cell]] = append(h.tests[testOf[a.cell]], s)
	}
	last := h.from
	for _, r := range b.Records {
		a := attemptKey{r.Cell, r.Attempt}
		switch r.Event {
		case evidence.EventPhaseStart:
			if _, open := phases[r.Phase]; !open {
				phases[r.Phase] = r.Time
			}
		case evidence.EventPhaseEnd:
			if start, open := phases[r.Phase]; open {
				h.phases[r.Phase] = append(h.phases[r.Phase], span{from: start, to: r.Time, title: "phase " + r.Phase})
				delete(phases, r.Phase)
			}
		case evidence.EventAttemptStart:
			running[a] = r.Time
		case evidence.EventAttemptEnd:
			end(a, r.Time)
		case evidence.EventResume, evidence.EventReopen:
			for a := range running {
				if cut[a] {
					end(a, last) // when the process that ran it was last heard of
					silent := span{from: last, to: r.Time, kind: "silent", title: fmt.Sprintf("%s attempt %d was cut at a time that the journal does not know", a.cell, a.number)}
					h.tests[testOf[a.cell]] = append(h.tests[testOf[a.cell]], silent)
				}
			}
		}
		last = r.Time
		if marks[r.Event] != "" {
			h.marks = append(h.marks, r)
		}
	}
	for a := range running {
		end(a, h.to)
	}
	for phase, start := range phases {
		h.phases[phase] = append(h.phases[phase], span{from: start, to: h.to, title: "phase " + phase + ", which has no end in the journal"})
	}
	h.faults = faultSpans(b.Records, h.to)
	return h
}

func faultSpans(records []evidence.Record, end time.Time) []span {
	var spans []span
	open := map[string]int{}
	for _, r := range records {
		key := fmt.Sprintf("%s %d %d %s", r.Cell, r.Attempt, r.FaultIndex, r.Node)
		switch {
		case r.Event == evidence.EventFaultOpen && r.Fault != nil:
			open[key] = len(spans)
			spans = append(spans, span{from: r.Time, to: end, kind: "fault", title: fmt.Sprintf("%s on %s, by %s attempt %d", r.Fault, r.Node, r.Cell, r.Attempt)})
		case r.Event == evidence.EventFaultClose:
			if i, ok := open[key]; ok {
				spans[i].to = r.Time
				delete(open, key)
			}
		}
	}
	for _, i := range open {
		spans[i].title += ", without a record of its undo"
	}
	return spans
}

// marks are the events that are told one by one, in words.
var marks = map[evidence.Event]string{
	evidence.EventOpen:       "run begins",
	evidence.EventStop:       "stopped",
	evidence.EventResume:     "resumed",
	evidence.EventReopen:     "reopened after it was sealed",
	evidence.EventNote:       "note",
	evidence.EventGate:       "gate",
	evidence.EventFaultOpen:  "fault injected",
	evidence.EventFaultClose: "fault undone",
	evidence.EventClose:      "run complete",
}

func (h *history) events() []happening {
	var list []happening
	for _, r := range h.marks {
		list = append(list, happening{Time: stamp(r.Time), What: marks[r.Event], Detail: detail(r)})
	}
	return list
}

func detail(r evidence.Record) string {
	switch {
	case r.Event == evidence.EventFaultOpen && r.Fault != nil:
		return fmt.Sprintf("%s on %s, by %s attempt %d", r.Fault, r.Node, r.Cell, r.Attempt)
	case r.Event == evidence.EventFaultClose:
		return fmt.Sprintf("on %s, by %s attempt %d", r.Node, r.Cell, r.Attempt)
	case r.Event == evidence.EventGate && r.Gate != nil:
		return r.Gate.Phase + ": " + word(r.Gate.Met, "met", "not met") + reason(r.Gate.Reason)
	case r.Torn != "":
		return "a torn tail of the journal was set aside as " + r.Torn
	}
	return strings.TrimSpace(r.Node + " " + r.Reason)
}

// gaps are the times without an attempt that are longer than a minute and a
// two-hundredth of the whole.
func (h *history) gaps() []gap {
	shortest := max(time.Minute, h.to.Sub(h.from)/200)
	var all []span
	for _, spans := range h.tests {
		for _, s := range spans {
			if s.kind != "silent" {
				all = append(all, s)
			}
		}
	}
	var gaps []gap
	reached := h.from
	for _, s := range append(merged(all), span{from: h.to, to: h.to}) {
		if s.from.Sub(reached) > shortest {
			gaps = append(gaps, gap{
				From: stamp(reached), To: stamp(s.from), Length: s.from.Sub(reached).Round(time.Second).String(), Why: h.between(reached, s.from),
				from: reached, to: s.from,
			})
		}
		if s.to.After(reached) {
			reached = s.to
		}
	}
	return gaps
}

// between is what the journal says of a time without an attempt.
func (h *history) between(from, to time.Time) string {
	var words []string
	for _, r := range h.marks {
		if r.Time.Before(from) || r.Time.After(to) {
			continue
		}
		text := marks[r.Event]
		if d := detail(r); d != "" {
			text += " (" + d + ")"
		}
		words = append(words, text)
	}
	if len(words) == 0 {
		return "the journal does not say"
	}
	return strings.Join(words, "; ")
}

// merged joins spans of one kind that touch, in the order of time.
func merged(spans []span) []span {
	sorted := slices.SortedStableFunc(slices.Values(spans), func(a, b span) int {
		return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to), cmp.Compare(a.title, b.title))
	})
	var list []span
	count := 1
	for _, s := range sorted {
		if n := len(list); n > 0 && list[n-1].kind == s.kind && !s.from.After(list[n-1].to) {
			count++
			if s.to.After(list[n-1].to) {
				list[n-1].to = s.to
			}
			list[n-1].title = evidence.Count(count, "attempt")
			continue
		}
		count = 1
		list = append(list, s)
	}
	return list
}

func newLine(name, kind string, spans []span, at func(time.Time) float64) timelineLine {
	line := timelineLine{Label: shortened(name), Full: name, Kind: kind}
	var whole, others []span
	for _, s := range spans {
		if s.kind == "" {
			whole = append(whole, s)
		} else {
			others = append(others, s)
		}
	}
	if kind == "test" {
		whole = merged(whole)
	}
	for _, s := range append(whole, others...) {
		line.Bars = append(line.Bars, newBar(s.from, s.to, s.kind, s.title, at))
	}
	return line
}

func newBar(from, to time.Time, kind, title string, at func(time.Time) float64) bar {
	x := at(from)
	return bar{X: coordinate(x), Width: coordinate(max(at(to)-x, 1.5)), Kind: kind, Title: title + ", " + stamp(from) + " to " + stamp(to)}
}

// shortened is name as it fits beside a row; the whole is in the row's title.
func shortened(name string) string {
	name = Printable(name)
	if utf8.RuneCountInString(name) <= timelineLabel {
		return name
	}
	return string([]rune(name)[:timelineLabel-1]) + "…"
}

func (h *history) drawing(lines []timelineLine, gaps []gap, at func(time.Time) float64) drawing {
	d := drawing{Rows: slices.Clone(lines)}
	for i := range d.Rows {
		d.Rows[i].Y = timelineTop + i*timelineRow
		d.Rows[i].TextY = d.Rows[i].Y + 15
	}
	d.Bottom = timelineTop + len(lines)*timelineRow
	d.Height, d.GapHeight = d.Bottom+6, d.Bottom-18
	for _, g := range gaps {
		d.Gaps = append(d.Gaps, newBar(g.from, g.to, "gap", "nothing was attempted: "+g.Why, at))
	}
	for _, r := range h.marks {
		switch r.Event {
		case evidence.EventStop, evidence.EventResume, evidence.EventReopen:
			d.Marks = append(d.Marks, timeMark{X: coordinate(at(r.Time)), Kind: string(r.Event), Title: marks[r.Event] + " at " + stamp(r.Time)})
		}
	}
	d.Ticks = h.ticks(at)
	return d
}

// ticks are round times since the start.
func (h *history) ticks(at func(time.Time) float64) []tick {
	whole := h.to.Sub(h.from)
	unit, per := "h", time.Hour
	switch {
	case whole < 2*time.Minute:
		unit, per = "s", time.Second
	case whole < 2*time.Hour:
		unit, per = "min", time.Minute
	}
	var ticks []tick
	for _, v := range niceTicks(0, whole.Seconds()/per.Seconds()) {
		ticks = append(ticks, tick{coordinate(at(h.from.Add(time.Duration(v * float64(per))))), Exact(v) + " " + unit})
	}
	return ticks
}
