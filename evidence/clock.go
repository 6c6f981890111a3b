package evidence

import "time"

// clock is a run's time in one process: the wall clock's when the process
// opened the run, and from there on the monotonic clock's. So a wall clock
// that is set back meanwhile, by NTP or by hand, makes no record precede the
// one above it and no command begin before its attempt. A process that resumes
// has the wall clock of its own beginning, whatever the one before had.
type clock struct{ base time.Time }

func newClock() clock { return clock{time.Now()} }

// at is the time of t by the clock. A t without a monotonic reading is taken
// by the wall clock.
func (c clock) at(t time.Time) time.Time { return c.base.Add(t.Sub(c.base)) }

func (c clock) now() time.Time { return c.at(time.Now()) }

// clockSlack is how far two times of one process may be apart that should not
// be: a record is written a moment after what it is about.
const clockSlack = time.Second
