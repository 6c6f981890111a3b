package evidence

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClockNeverFallsBehindTheLastRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := time.Now().Add(time.Hour) // the wall clock was set back since
		c := newClock(last)
		if now := c.now(); !now.Equal(last) {
			t.Errorf("now is %s, want %s", now, last)
		}
		<-time.After(time.Minute)
		if now := c.now(); !now.Equal(last.Add(time.Minute)) {
			t.Errorf("a minute later it is %s, want %s", now, last.Add(time.Minute))
		}
		c = newClock(time.Time{})
		if now := c.now(); !now.Equal(time.Now()) {
			t.Errorf("now is %s, want the wall clock's %s", now, time.Now())
		}
	})
}

func TestJournalTimesDoNotFall(t *testing.T) {
	now := time.Date(2026, 11, 30, 14, 2, 11, 0, time.UTC)
	before := []Record{{Event: EventOpen, Time: now}}
	if err := checkOrder(before, Record{Event: EventStop, Time: now}); err != nil {
		t.Errorf("two records of one moment: %v", err)
	}
	if err := checkOrder(before, Record{Event: EventStop, Time: now.Add(-time.Microsecond)}); err == nil {
		t.Error("a record that is older than the one above it was taken")
	}
}
