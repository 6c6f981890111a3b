package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
	"github.com/rackproof/rackproof/runner"
)

// ended makes the counts of a phase: "pass", 3, "fail", 1.
func ended(counts map[ending]int) (all [endings]int) {
	for how, n := range counts {
		all[how] = n
	}
	return all
}

func TestViewLines(t *testing.T) {
	rack, err := nodeset.Parse("gpu[001-016]", nil)
	if err != nil {
		t.Fatal(err)
	}
	busy := view{
		title: "pod7 3.2.0", elapsed: time.Hour + 2*time.Minute + 3*time.Second, outlook: "about 25 h left",
		phases: []phaseView{
			{name: "inventory", cells: 32, ended: ended(map[ending]int{endPass: 31, endInconclusive: 1}), gate: "gate not met"},
			{name: "node", current: true, cells: 96, ended: ended(map[ending]int{endPass: 11, endFail: 1, endEarlier: 20, endMeasured: 2})},
			{name: "fabric", cells: 8},
		},
		running: []runningView{{"reads", rack}, {"burn", []string{"gpu017", "gpu019"}}},
	}
	many := busy
	many.phases = nil
	for i := range 12 {
		many.phases = append(many.phases, phaseView{name: fmt.Sprintf("phase%d", i), current: i == 6, cells: 1})
	}
	tests := busy
	tests.running = nil
	for i := range 6 {
		tests.running = append(tests.running, runningView{fmt.Sprintf("test%d", i), []string{"n1"}})
	}
	hostile := view{
		title: "\x1b[2Jtitle\n", outlook: "ended",
		phases:  []phaseView{{name: "数据\x1b[31m", cells: 1}, {name: "e\u0301t\u0301", cells: 1}},
		running: []runningView{{"te\u202est", []string{"n\x07"}}},
	}
	for _, c := range []struct {
		name          string
		view          view
		columns, rows int
		want          []string
	}{
		{"80 columns", busy, 80, 24, []string{
			"1:02:03 elapsed, about 25 h left: pod7 3.2.0",
			"  inventory 32/32  1 inconclusive, 31 pass, gate not met",
			"> node      34/96  1 fail, 11 pass, 2 measured, 20 earlier",
			"  fabric      0/8",
			"  running reads on gpu[001-016]",
			"          burn on gpu[017,019]",
		}},
		{"40 columns", busy, 40, 24, []string{
			"1:02:03 elapsed, about 25 h left: po...",
			"  inventory 32/32  1 inconclusive, ...",
			"> node      34/96  1 fail, 11 pass, ...",
			"  fabric      0/8",
			"  running reads on gpu[001-016]",
			"          burn on gpu[017,019]",
		}},
		{"20 columns", busy, 20, 24, []string{
			"1:02:03 elapsed,...",
			"  inven... 32/32...",
			"> node     34/96...",
			"  fabric     0/8",
			"  running reads ...",
			"          burn o...",
		}},
		{"no room for what runs", busy, 80, 6, []string{
			"1:02:03 elapsed, about 25 h left: pod7 3.2.0",
			"  inventory 32/32  1 inconclusive, 31 pass, gate not met",
			"> node      34/96  1 fail, 11 pass, 2 measured, 20 earlier",
			"  fabric      0/8",
			"  running reads on gpu[001-016]",
		}},
		{"room for one phase", busy, 80, 4, []string{
			"1:02:03 elapsed, about 25 h left: pod7 3.2.0",
			"> node      34/96  1 fail, 11 pass, 2 measured, 20 earlier",
		}},
		{"many phases", many, 80, 8, []string{
			"1:02:03 elapsed, about 25 h left: pod7 3.2.0",
			"  4 phases before",
			"  phase4  0/1",
			"  phase5  0/1",
			"> phase6  0/1",
			"  phase7  0/1",
			"  4 phases after",
		}},
		{"many tests", tests, 80, 24, []string{
			"1:02:03 elapsed, about 25 h left: pod7 3.2.0",
			"  inventory 32/32  1 inconclusive, 31 pass, gate not met",
			"> node      34/96  1 fail, 11 pass, 2 measured, 20 earlier",
			"  fabric      0/8",
			"  running test0 on n1",
			"          test1 on n1",
			"          test2 on n1",
			"          test3 on n1",
			"          and 2 tests more",
		}},
		{"hostile", hostile, 80, 24, []string{
			`0:00:00 elapsed, ended: \u001b[2Jtitle\n`,
			`  数据\u001b[31m 0/1`,
			"  e\u0301t\u0301             0/1",
			`  running te\u202est on n\u0007`,
		}},
		{"nothing", view{outlook: "ended"}, 80, 24, []string{"0:00:00 elapsed, ended: "}},
	} {
		got := c.view.lines(c.columns, c.rows)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// Whatever the size, nothing wraps and nothing scrolls.
func TestViewFitsItsTerminal(t *testing.T) {
	v := view{title: "数据中心验收", outlook: "about 25 h left", elapsed: 100 * time.Hour}
	for i := range 9 {
		v.phases = append(v.phases, phaseView{name: strings.Repeat("数e\u0301", i), current: i == 8, cells: 1 << (2 * i), ended: ended(map[ending]int{endCut: i})})
		v.running = append(v.running, runningView{strings.Repeat("测", i), []string{fmt.Sprint("n", i)}})
	}
	for columns := minColumns; columns < 100; columns++ {
		for rows := minRows; rows < 30; rows++ {
			lines := v.lines(columns, rows)
			if len(lines) >= rows {
				t.Fatalf("%d lines on %d rows", len(lines), rows)
			}
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, ">") }) {
				t.Fatalf("%d rows do not show the phase at hand: %q", rows, lines)
			}
			for _, line := range lines {
				if displayWidth(line) >= columns {
					t.Fatalf("%q is %d wide on %d columns", line, displayWidth(line), columns)
				}
			}
		}
	}
}

// twoPhases has two tests on two nodes each, the second of an hour.
func twoPhases() *evidence.Plan {
	hour, minute := evidence.Duration(time.Hour), evidence.Duration(time.Minute)
	return &evidence.Plan{
		Name: "pod7", Version: "1", Parallel: 2, Phases: []evidence.Phase{{Name: "first"}, {Name: "second"}},
		Tests: []evidence.Test{{Name: "a", Phase: "first", Duration: minute, Repeat: 1}, {Name: "b", Phase: "second", Duration: hour, Repeat: 1}},
		Cells: []evidence.Cell{
			{ID: "a/n1.r1", Test: "a", Nodes: "n1", Repetition: 1}, {ID: "a/n2.r1", Test: "a", Nodes: "n2", Repetition: 1},
			{ID: "b/n1.r1", Test: "b", Nodes: "n1", Repetition: 1}, {ID: "b/n2.r1", Test: "b", Nodes: "n2", Repetition: 1},
		},
	}
}

func TestTally(t *testing.T) {
	start := time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)
	at := func(minutes float64) time.Time { return start.Add(time.Duration(minutes * float64(time.Minute))) }
	begins := func(phase, cell string, minutes float64) runner.Progress {
		return runner.Progress{Kind: runner.ProgressCellStart, Time: at(minutes), Phase: phase, Cell: cell, Attempt: 1}
	}
	ends := func(phase, cell string, o evidence.Outcome) runner.Progress {
		return runner.Progress{Kind: runner.ProgressCellEnd, Phase: phase, Cell: cell, Attempt: 1, Outcome: o}
	}
	enters := func(phase string) runner.Progress {
		return runner.Progress{Kind: runner.ProgressPhaseStart, Phase: phase, Pending: 2}
	}
	for _, c := range []struct {
		name    string
		earlier []evidence.Record
		events  []runner.Progress
		minutes float64
		ended   bool
		want    []string
	}{
		{"begun", nil, nil, 0, false, []string{"0:00:00 elapsed, about 1 h 1 min left: pod7 1", "> first  0/2", "  second 0/2"}},
		{"half of the first", nil, []runner.Progress{
			enters("first"), begins("first", "a/n2.r1", 0), begins("first", "a/n1.r1", 0), ends("first", "a/n1.r1", evidence.Fail),
		}, 0.5, false, []string{"0:00:30 elapsed, about 1 h left: pod7 1", "> first  1/2  1 fail", "  second 0/2", "  running a on n2"}},
		{"an hour that lasts", nil, []runner.Progress{
			enters("second"), begins("first", "a/n1.r1", 0), ends("first", "a/n1.r1", evidence.Pass), begins("first", "a/n2.r1", 0), ends("first", "a/n2.r1", evidence.Pass),
			begins("second", "b/n1.r1", 1), begins("second", "b/n2.r1", 1),
		}, 41, false, []string{"0:41:00 elapsed, about 20 min left: pod7 1", "  first  2/2  2 pass", "> second 0/2", "  running b on n[1-2]"}},
		{"an hour that lasts too long", nil, []runner.Progress{
			{Kind: runner.ProgressSkip, Phase: "first", Cell: "a/n1.r1", Outcome: evidence.Inconclusive}, ends("first", "a/n2.r1", evidence.Error),
			enters("second"), begins("second", "b/n1.r1", 0), begins("second", "b/n2.r1", 0),
		}, 90, false, []string{"1:30:00 elapsed, longer than planned: pod7 1", "  first  2/2  1 error, 1 not run", "> second 0/2", "  running b on n[1-2]"}},
		{"a retry counts once", nil, []runner.Progress{
			enters("first"), begins("first", "a/n1.r1", 0), ends("first", "a/n1.r1", evidence.Fail), begins("first", "a/n1.r1", 0), ends("first", "a/n1.r1", evidence.Pass),
		}, 0, false, []string{"0:00:00 elapsed, about 1 h 1 min left: pod7 1", "> first  1/2  1 pass", "  second 0/2"}},
		{"resumed", []evidence.Record{
			{Event: evidence.EventAttemptStart, Cell: "a/n1.r1"}, {Event: evidence.EventAttemptEnd, Cell: "a/n1.r1"}, {Event: evidence.EventSkip, Cell: "a/n2.r1"},
			{Event: evidence.EventGate, Gate: &evidence.GateResult{Phase: "first", Met: true}}, {Event: evidence.EventAttemptStart, Cell: "b/n1.r1"},
			{Event: evidence.EventAttemptEnd, Cell: "b/n1.r1"}, {Event: evidence.EventAttemptStart, Cell: "b/n2.r1"}, {Event: evidence.EventStop},
		}, []runner.Progress{enters("second"), begins("second", "b/n1.r1", 0)}, 30, false,
			[]string{"0:30:00 elapsed, about 45 min left: pod7 1", "  first  2/2  2 earlier, gate met", "> second 0/2", "  running b on n1"}},
		{"measured, cut, gate", nil, []runner.Progress{
			enters("first"), {Kind: runner.ProgressCellEnd, Phase: "first", Cell: "a/n1.r1", Outcome: evidence.Inconclusive, Measured: true},
			{Kind: runner.ProgressCellEnd, Phase: "first", Cell: "a/n2.r1", Outcome: evidence.Inconclusive, Cut: true},
			{Kind: runner.ProgressGate, Phase: "first", Gate: &evidence.GateResult{Phase: "first"}},
		}, 0, true, []string{"0:00:00 elapsed, ended: pod7 1", "  first  2/2  1 cut, 1 measured, gate not met", "  second 0/2"}},
		{"stopping", nil, []runner.Progress{enters("first"), begins("first", "a/n1.r1", 0), {Kind: runner.ProgressWaiting, Running: []string{"a/n1.r1"}}}, 0, false,
			[]string{"0:00:00 elapsed, stopping: pod7 1", "> first  0/2", "  second 0/2", "  running a on n1"}},
		{"stopped", nil, []runner.Progress{enters("first"), {Kind: runner.ProgressStop, Reason: "stop requested"}}, 0, true,
			[]string{"0:00:00 elapsed, stopped: pod7 1", "  first  0/2", "  second 0/2"}},
		{"of another plan", nil, []runner.Progress{enters("third"), begins("third", "c/n1.r1", 0), ends("third", "c/n1.r1", evidence.Pass), {Kind: runner.ProgressGate}}, 0, false,
			[]string{"0:00:00 elapsed, about 1 h 1 min left: pod7 1", "> first  0/2", "  second 0/2"}},
	} {
		tally := newTally(twoPhases(), start)
		tally.recall(c.earlier)
		for _, e := range c.events {
			tally.add(e)
		}
		got := tally.view(at(c.minutes), c.ended).lines(80, 24)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// recorded is a stream that notes when it was written to.
type recorded struct {
	writes []string
	times  []time.Duration
	began  time.Time
}

func (r *recorded) Write(data []byte) (int, error) {
	r.writes = append(r.writes, string(data))
	r.times = append(r.times, time.Since(r.began))
	return len(data), nil
}

// However many events there are, the view is drawn a few times a second.
func TestViewIsDrawnAFewTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stderr := &recorded{began: time.Now()}
		p := &Process{Stderr: stderr, StderrTTY: true, Size: func() (int, int) { return 80, 24 }, Now: time.Now}
		progress := newProgress(p, twoPhases(), false)
		end := progress.begin()
		for range 1000 {
			progress.report(runner.Progress{Kind: runner.ProgressCellStart, Time: time.Now(), Phase: "first", Cell: "a/n1.r1", Attempt: 1})
			progress.report(runner.Progress{Kind: runner.ProgressCellEnd, Time: time.Now(), Phase: "first", Cell: "a/n1.r1", Attempt: 1, Outcome: evidence.Fail})
			<-time.After(time.Millisecond) // of the bubble's clock
		}
		progress.diagnostic("stopping")
		end()
		if len(stderr.writes) != 5 {
			t.Errorf("%d draws in a second, at %v", len(stderr.writes), stderr.times)
		}
		all := strings.Join(stderr.writes, "")
		if got := strings.Count(all, "a@n1: fail"); got != 1000 {
			t.Errorf("%d of 1000 lines were shown", got)
		}
		if !strings.Contains(all, " note      stopping\n") {
			t.Error("what was said last is not there")
		}
	})
}

// A program that reads the stream knows that a long cell is alive.
func TestRunningCellsAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stdout := &recorded{began: time.Now()}
		p := &Process{Stdout: stdout, Stderr: &recorded{}, StderrTTY: true, Size: func() (int, int) { return 80, 24 }, Now: time.Now}
		progress := newProgress(p, twoPhases(), true)
		end := progress.begin()
		for _, cell := range []string{"b/n2.r1", "b/n1.r1"} {
			progress.report(runner.Progress{Kind: runner.ProgressCellStart, Time: time.Now(), Phase: "second", Cell: cell, Attempt: 2, Attempts: 2})
		}
		<-time.After(31 * time.Second) // of the bubble's clock
		end()
		var told []string
		for _, line := range stdout.writes {
			if strings.HasPrefix(line, `{"type":"cell_progress"`) {
				_, rest, _ := strings.Cut(line, `"phase"`)
				told = append(told, rest)
			}
		}
		want := []string{
			`:"second","cell":"b/n1.r1","attempt":2,"elapsed":30,"duration":3600}` + "\n",
			`:"second","cell":"b/n2.r1","attempt":2,"elapsed":30,"duration":3600}` + "\n",
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
