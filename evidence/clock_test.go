package evidence

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClockGoesOnByTheMonotonicClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		before := time.Now()
		<-time.After(time.Minute)
		if now, want := c.now(), before.Add(time.Minute); !now.Equal(want) {
			t.Errorf("a minute later it is %s, want %s", now, want)
		}
		if at := c.at(before); !at.Equal(before) {
			t.Errorf("the minute before began at %s, want %s", at, before)
		}
	})
}

// TestJournalTimesDoNotFall: but for another process, whose wall clock may be
// another one.
func TestJournalTimesDoNotFall(t *testing.T) {
	now := time.Date(2026, 11, 30, 14, 2, 11, 0, time.UTC)
	for name, tc := range map[string]struct {
		last Event
		next Record
		good bool
	}{
		"one moment":                            {EventOpen, Record{Event: EventStop, Time: now}, true},
		"before the one above":                  {EventOpen, Record{Event: EventStop, Time: now.Add(-time.Microsecond)}, false},
		"resumed by a clock that was set back":  {EventStop, Record{Event: EventResume, Time: now.Add(-time.Hour)}, true},
		"reopened by a clock that was set back": {EventClose, Record{Event: EventReopen, Time: now.Add(-time.Hour)}, true},
	} {
		if err := checkOrder([]Record{{Event: tc.last, Time: now}}, tc.next); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOutlivedAttemptHasTwoClocks: an attempt that one process began and
// another one recorded as ended may end after its record by the clock of the
// first; one that a resume found keeps its own start. No other may.
func TestOutlivedAttemptHasTwoClocks(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 30, 14, minute, 0, 0, time.UTC) }
	plan := &Plan{Cells: []Cell{{ID: "t/n1.r1", Test: "t", Nodes: "n1"}}}
	start := Record{Event: EventAttemptStart, Cell: "t/n1.r1", Attempt: 1, Time: at(10)}
	end := Record{Event: EventAttemptEnd, Cell: "t/n1.r1", Attempt: 1, Time: at(20)}
	late := Attempt{Start: at(10), End: at(30)}
	early := Attempt{Start: at(5), End: at(8)}
	found := start
	found.Reason = foundAgain
	resume := Record{Event: EventResume, Time: at(10)}
	for name, tc := range map[string]struct {
		records []Record
		done    Attempt
		good    bool
	}{
		"late end":                     {[]Record{start, end}, late, false},
		"late end over a resume":       {[]Record{start, resume, end}, late, true},
		"late end, resumed before":     {[]Record{resume, start, end}, late, false},
		"early start":                  {[]Record{start, end}, early, false},
		"early start, found":           {[]Record{resume, found, end}, early, true},
		"early start, found by nobody": {[]Record{found, end}, early, false},
		"early start over a resume":    {[]Record{start, resume, end}, early, false},
	} {
		a := readHistory(plan, tc.records).cells["t/n1.r1"].attempts[1]
		if why := a.misdated(tc.done); (why == "") != tc.good {
			t.Errorf("%s: %q", name, why)
		}
	}
}
