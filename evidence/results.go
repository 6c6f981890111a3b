package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackproof/rackproof/evidence/nodeset"
)

// Results rebuilds every cell of the plan from journal and raw files alone;
// checks.Measure adds the measurements. Nothing is taken on trust: an attempt
// is what its attempt.json says only where that has the digest that the
// journal recorded, and every file that it lists is read and hashed.
//
// Whatever is missing, different, undecodable or not listed becomes an
// Unmeasured problem of its attempt that names the file, of the class
// evidence-damaged, which no measurement mends. Such an attempt also spoils
// the others of its cell: what it showed is not known. An attempt that started
// and did not end is a cut one. A cell without any attempt has Skipped.
func Results(p *Plan, records []Record, fsys fs.FS) []CellResult {
	h := readHistory(p, records)
	h.findStrays(fsys)
	results := make([]CellResult, len(p.Cells))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(results) {
					return
				}
				results[i] = h.cells[p.Cells[i].ID].result(p.Cells[i], h.tests[p.Cells[i].Test], fsys)
			}
		})
	}
	workers.Wait()
	return results
}

// history is what the journal says of each cell.
type history struct {
	cells map[string]*cellHistory
	tests map[string]Test

	// Of the journal as far as it was read.
	resumed bool
	running map[*attemptHistory]bool // begun by this process and not ended
}

type cellHistory struct {
	attempts map[int]*attemptHistory
	skipped  *Problem
	running  int      // the attempt that began last and has not ended, while the journal is read
	faults   []string // in the sequence of the cell's records
}

type attemptHistory struct {
	start time.Time
	end   time.Time
	begun bool
	// foundAgain says that a resume found the attempt on the disk and its start
	// not in the journal; outlived, that it was ended by another process than
	// began it. The clocks of two processes have nothing in common.
	foundAgain bool
	outlived   bool
	ended      bool
	doc        Digest
	strays     []string // why there is an attempt that the journal does not know

	opened map[faultKey]Record
	closed map[faultKey]bool
}

func readHistory(p *Plan, records []Record) *history {
	h := &history{
		cells: make(map[string]*cellHistory, len(p.Cells)), tests: make(map[string]Test, len(p.Tests)),
		running: make(map[*attemptHistory]bool),
	}
	for _, t := range p.Tests {
		h.tests[t.Name] = t
	}
	for _, c := range p.Cells {
		h.cells[c.ID] = &cellHistory{}
	}
	for _, r := range records {
		if r.Event == EventResume || r.Event == EventReopen {
			h.resume()
			continue
		}
		c, found := h.cells[r.Cell]
		if !found {
			continue
		}
		switch r.Event {
		case EventAttemptStart:
			h.running[c.start(r, h.resumed)] = true
		case EventAttemptEnd:
			delete(h.running, c.end(r))
		case EventFaultOpen:
			c.attempt(r.Attempt).open(r)
		case EventFaultClose:
			c.attempt(r.Attempt).close(r)
		case EventSkip:
			c.skipped = r.Problem
			if c.skipped == nil {
				c.skipped = &Problem{Class: ClassNotRun, Detail: "skipped, and the journal does not say why"}
			}
		}
	}
	for _, c := range h.cells {
		c.checkSequence()
	}
	return h
}

func (c *cellHistory) attempt(number int) *attemptHistory {
	if c.attempts == nil {
		c.attempts = map[int]*attemptHistory{}
	}
	a, found := c.attempts[number]
	if !found {
		a = &attemptHistory{}
		c.attempts[number] = a
	}
	return a
}

// resume notes that another process goes on with the run. It looks at what
// runs and not at every cell: a journal may have a million resumes.
func (h *history) resume() {
	h.resumed = true
	for a := range h.running {
		a.outlived = true
	}
	clear(h.running)
}

// foundAgain is the reason of a start that a resume records late.
const foundAgain = "found on the disk: its record was in a tail that was cut off"

func (c *cellHistory) start(r Record, resumed bool) *attemptHistory {
	a := c.attempt(r.Attempt)
	if a.begun {
		c.fault("attempt %d starts twice in the journal", r.Attempt)
	}
	if c.running != 0 && c.running != r.Attempt {
		c.fault("attempt %d starts in the journal while attempt %d runs", r.Attempt, c.running)
	}
	c.running = r.Attempt
	a.begun, a.start = true, r.Time
	a.foundAgain = resumed && r.Reason == foundAgain
	return a
}

func (c *cellHistory) end(r Record) *attemptHistory {
	a := c.attempt(r.Attempt)
	switch {
	case !a.begun:
		c.fault("attempt %d ends in the journal and never started", r.Attempt)
	case a.ended:
		c.fault("attempt %d ends twice in the journal", r.Attempt)
	}
	a.ended, a.end, a.doc = true, r.Time, r.Document
	if c.running == r.Attempt {
		c.running = 0
	}
	return a
}

// open notes a fault that was opened while the attempt ran.
func (a *attemptHistory) open(r Record) {
	if !a.begun || a.ended {
		return
	}
	if a.opened == nil {
		a.opened, a.closed = map[faultKey]Record{}, map[faultKey]bool{}
	}
	a.opened[faultKey{r.FaultIndex, r.Node}] = r
}

func (a *attemptHistory) close(r Record) {
	key := faultKey{r.FaultIndex, r.Node}
	if _, open := a.opened[key]; open && !a.ended {
		a.closed[key] = true
	}
}

// maxFaults bounds what one cell reports of a hostile journal.
const maxFaults = 10

func (c *cellHistory) fault(format string, args ...any) {
	if len(c.faults) == maxFaults {
		return
	}
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// checkSequence finds attempts that are missing before the last one, or that
// never ended although a later one is there.
func (c *cellHistory) checkSequence() {
	numbers := c.numbers()
	if len(numbers) == 0 {
		return
	}
	if numbers[0] < 1 {
		c.fault("attempt %d in the journal: attempts count from 1", numbers[0])
	}
	last := numbers[len(numbers)-1]
	for n := 1; n < last && len(c.faults) < maxFaults; n++ {
		if _, found := c.attempts[n]; !found {
			c.fault("attempt %d is not in the journal, and attempt %d is", n, last)
		}
	}
	for _, n := range numbers[:len(numbers)-1] {
		if !c.attempts[n].ended {
			c.fault("attempt %d has no end in the journal, and a later one is there", n)
		}
	}
}

func (c *cellHistory) numbers() []int {
	numbers := make([]int, 0, len(c.attempts))
	for n := range c.attempts {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

// findStrays looks for attempt directories of which the journal knows
// nothing. It reads only directories that are there, so that a run of which
// little was run costs little.
func (h *history) findStrays(fsys fs.FS) {
	for _, test := range entries(fsys, cellsDir) {
		for _, name := range entries(fsys, cellsDir+"/"+test) {
			c, found := h.cells[test+"/"+name]
			if !found {
				continue
			}
			for _, attempt := range entries(fsys, cellsDir+"/"+test+"/"+name) {
				n, err := strconv.Atoi(attempt)
				if err != nil || n < 1 || strconv.Itoa(n) != attempt {
					c.fault("%s/%s/%s/%s is no attempt", cellsDir, test, name, attempt)
					continue
				}
				if a := c.attempts[n]; a == nil {
					c.attempt(n).strays = []string{"the attempt is on the disk and not in the journal"}
				}
			}
		}
	}
}

// entries are the names in dir; none where there is no such directory.
func entries(fsys fs.FS, dir string) []string {
	list, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil // what should be there and cannot be read is found by its name
	}
	names := make([]string, len(list))
	for i, entry := range list {
		names[i] = entry.Name()
	}
	return names
}

func (c *cellHistory) result(cell Cell, test Test, fsys fs.FS) CellResult {
	result := CellResult{Cell: cell}
	numbers := c.numbers()
	if len(numbers) == 0 {
		result.Skipped = c.skipped
		if result.Skipped == nil {
			result.Skipped = &Problem{Class: ClassNotRun, Detail: "the journal has no attempt"}
		}
		if len(c.faults) > 0 {
			result.Skipped = &Problem{Class: ClassDamaged, Detail: strings.Join(c.faults, "; ")}
		}
		return result
	}
	nodes, err := nodeset.Parse(cell.Nodes, nil)
	for _, n := range numbers {
		a := c.attempts[n]
		m := a.read(cell, nodes, n, fsys)
		if len(m.Unmeasured) == 0 {
			m.Unmeasured = a.checkFaults(test, m.Attempt, fsys)
		}
		for _, fault := range append(a.strays, c.faults...) {
			m.Unmeasured = append(m.Unmeasured, Problem{Class: ClassDamaged, Detail: fault})
		}
		if err != nil {
			m.Unmeasured = append(m.Unmeasured, Problem{Class: ClassDamaged, Detail: "the cell's nodes: " + err.Error()})
		}
		result.Attempts = append(result.Attempts, m)
	}
	spoil(result.Attempts)
	return result
}

// spoil notes in each attempt that another of its cell is damaged.
func spoil(attempts []MeasuredAttempt) {
	var notes []Problem // of the first two: one for all attempts but its own
	var damaged []int
	for i, a := range attempts {
		if len(a.Unmeasured) == 0 {
			continue
		}
		damaged = append(damaged, i)
		notes = append(notes, Problem{Class: ClassDamaged, Detail: fmt.Sprintf("attempt %d is damaged, so what it showed is not known: %s", a.Number, a.Unmeasured[0].Detail)})
		if len(notes) == 2 {
			break
		}
	}
	for i := range attempts {
		for j, note := range notes {
			if damaged[j] != i {
				attempts[i].Unmeasured = append(attempts[i].Unmeasured, note)
				break
			}
		}
	}
}

func (a *attemptHistory) read(cell Cell, nodes []string, number int, fsys fs.FS) MeasuredAttempt {
	blank := newAttempt(cell, nodes, number)
	blank.Start, blank.End = a.start, a.start
	if a.begun && !a.ended {
		return readCut(fsys, blank)
	}
	damaged := func(format string, args ...any) MeasuredAttempt {
		return MeasuredAttempt{Attempt: blank, Unmeasured: []Problem{{Class: ClassDamaged, Detail: fmt.Sprintf(format, args...)}}}
	}
	p := AttemptPath(cell.ID, number) + "/attempt.json"
	content, err := readFile(fsys, p, maxAttemptBytes)
	if err != nil {
		return damaged("%s: %v", p, err)
	}
	if digest := DigestOf(content); a.ended && digest != a.doc {
		return damaged("%s: has changed: it is %s, and the journal recorded %s", p, digest, orNothing(a.doc))
	}
	done, err := decodeAttempt(content, blank)
	if err != nil {
		return damaged("%s: %v", p, err)
	}
	if why := a.misdated(done); why != "" {
		return damaged("%s: %s", p, why)
	}
	return MeasuredAttempt{Attempt: done, Unmeasured: checkRaw(fsys, done)}
}

// misdated says where the document's times are not those of the journal, or
// nothing. The end of a cut attempt is that of its last file, by the clock of
// the disk.
func (a *attemptHistory) misdated(done Attempt) string {
	switch {
	case a.begun && !a.foundAgain && !done.Start.Equal(a.start):
		return fmt.Sprintf("it starts at %s, and in the journal at %s", done.Start, a.start)
	case a.ended && !done.Cut && !a.outlived && !a.foundAgain && done.End.After(a.end.Add(clockSlack)):
		return fmt.Sprintf("it ends at %s, and in the journal at %s", done.End, a.end)
	}
	return ""
}

// decodeAttempt decodes attempt.json and checks that it is of the attempt
// that want names.
func decodeAttempt(content []byte, want Attempt) (Attempt, error) {
	var a Attempt
	newer, err := DecodeDocument(content, MediaAttempt, &a)
	if err != nil {
		return Attempt{}, err
	}
	switch {
	case a.Cell != want.Cell || a.Number != want.Number:
		return Attempt{}, fmt.Errorf("it is of %s attempt %d", a.Cell, a.Number)
	case a.Test != want.Test || a.Repetition != want.Repetition:
		return Attempt{}, fmt.Errorf("it is of test %q repetition %d, and the plan has %q and %d", a.Test, a.Repetition, want.Test, want.Repetition)
	case !sameSet(a.Nodes, want.Nodes):
		return Attempt{}, fmt.Errorf("it ran on %s, and the plan has %s", nodeset.Fold(a.Nodes), nodeset.Fold(want.Nodes))
	case a.End.Before(a.Start):
		return Attempt{}, fmt.Errorf("it ends at %s, before it starts at %s", a.End, a.Start)
	case slices.ContainsFunc(a.Problems, func(p Problem) bool { return p.Class == ClassOK }):
		return Attempt{}, fmt.Errorf("it has a problem of class %q", ClassOK)
	}
	if newer {
		return a, nil // with fields that this build would not write
	}
	return a, writtenAs(content, a)
}

// writtenAs holds a document against the bytes that Encode gives for it: a
// space more, and the same document would have another digest.
func writtenAs(content []byte, v any) error {
	canonical, err := Encode(v)
	if err == nil && !bytes.Equal(content, canonical) {
		err = errors.New("it is not written as this program writes it")
	}
	return err
}

func sameSet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// readCut describes an attempt of which only the start is known.
func readCut(fsys fs.FS, blank Attempt) MeasuredAttempt {
	a, err := cutAttempt(fsys, blank)
	m := MeasuredAttempt{Attempt: a}
	if err != nil {
		m.Unmeasured = []Problem{{Class: ClassDamaged, Detail: err.Error()}}
	}
	return m
}

// hasDir reports whether p is below dir.
func hasDir(p, dir string) bool { return strings.HasPrefix(p, dir+"/") }
