package verify

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

const resignedNext = "the signature does not cure this: whoever signed the bundle signed records that do not agree"

// checkJournal holds the journal against the plan, the attempts and the
// manifest: every planned cell is accounted for, attempts are numbered
// without a gap, each attempt.json is the one that the journal names, and each
// raw file is the one that its attempt.json names.
func checkJournal(c *content, s *step) {
	if c.journalErr != nil {
		s.fail(journalFailure(c.journalErr))
		return
	}
	if len(c.records) == 0 {
		s.fail(attest.Failure{Code: CodeJournal, Path: evidence.JournalPath, Message: "the journal has no records"})
		return
	}
	if first := c.records[0]; first.Event != evidence.EventOpen || first.Plan != evidence.DigestOf(c.planBytes) {
		s.fail(attest.Failure{
			Code: CodeJournalPlan, Path: evidence.JournalPath + ":1", Message: "the journal was opened for another plan",
			Expected: string(evidence.DigestOf(c.planBytes)), Actual: string(first.Plan), Next: resignedNext,
		})
	}
	if last := c.records[len(c.records)-1]; last.Event != evidence.EventClose {
		s.fail(attest.Failure{
			Code: CodeJournalOpen, Path: fmt.Sprintf("%s:%d", evidence.JournalPath, len(c.records)),
			Message: "the journal does not end with the record that closes the run", Expected: string(evidence.EventClose), Actual: string(last.Event),
			Next: "lines were taken from its end, or the run was never sealed",
		})
	}
	l := newLedger(c)
	l.read(c.records, s)
	l.accountForCells(s)
	l.accountForFiles(s)
}

type attemptKey struct {
	cell   string
	number int
}

// ledger is what the journal says of cells and attempts.
type ledger struct {
	c        *content
	planned  map[string]bool
	started  map[string]int // attempts started, by cell
	skipped  map[string]bool
	known    map[attemptKey]bool // started
	ended    map[attemptKey]bool
	stopped  bool // the run ended by a stop, so that cells may be left out
	listed   map[string]bool
	starts   []attemptKey
	attempts []attemptKey // ended, with an attempt.json that is the journal's
}

func newLedger(c *content) *ledger {
	l := &ledger{
		c: c, planned: make(map[string]bool, len(c.plan.Cells)), started: make(map[string]int), skipped: make(map[string]bool),
		known: make(map[attemptKey]bool), ended: make(map[attemptKey]bool), listed: make(map[string]bool),
	}
	for _, cell := range c.plan.Cells {
		l.planned[cell.ID] = true
	}
	return l
}

func (l *ledger) read(records []evidence.Record, s *step) {
	for i, r := range records {
		at := fmt.Sprintf("%s:%d", evidence.JournalPath, i+1)
		if r.Cell != "" && !l.planned[r.Cell] {
			s.fail(attest.Failure{Code: CodeCellUnknown, Path: at, Message: "the plan has no cell " + r.Cell, Next: resignedNext})
			continue
		}
		switch r.Event {
		case evidence.EventStop:
			l.stopped = true
		case evidence.EventResume, evidence.EventReopen:
			l.stopped = false
		case evidence.EventSkip:
			l.skipped[r.Cell] = true
		case evidence.EventAttemptStart:
			if want := l.started[r.Cell] + 1; r.Attempt != want {
				s.fail(attest.Failure{
					Code: CodeAttemptMissing, Path: at, Message: "the attempts of cell " + r.Cell + " are not numbered without a gap",
					Expected: strconv.Itoa(want), Actual: strconv.Itoa(r.Attempt), Next: "an attempt was taken out: " + resignedNext,
				})
			}
			l.started[r.Cell] = r.Attempt
			l.known[attemptKey{r.Cell, r.Attempt}] = true
			l.starts = append(l.starts, attemptKey{r.Cell, r.Attempt})
		case evidence.EventAttemptEnd:
			l.end(r, at, s)
		}
	}
}

// end compares an attempt.json with the journal's digest of it.
func (l *ledger) end(r evidence.Record, at string, s *step) {
	key := attemptKey{r.Cell, r.Attempt}
	if !l.known[key] {
		s.fail(attest.Failure{Code: CodeAttemptMissing, Path: at, Message: fmt.Sprintf("attempt %d of cell %s ends and never started", r.Attempt, r.Cell), Next: resignedNext})
		return
	}
	l.ended[key] = true
	path := attemptFolder(key) + "attempt.json"
	data, err := l.c.file(path)
	actual := absent
	if err == nil {
		actual = string(evidence.DigestOf(data))
	}
	if actual != string(r.Document) {
		s.fail(attest.Failure{
			Code: CodeAttemptDiffers, Path: path, Message: "this is not the document that the journal names in line " + strings.TrimPrefix(at, evidence.JournalPath+":"),
			Expected: string(r.Document), Actual: actual, Next: resignedNext,
		})
		return
	}
	l.attempts = append(l.attempts, key)
}

func attemptFolder(key attemptKey) string {
	return "cells/" + key.cell + "/" + strconv.Itoa(key.number) + "/"
}

func (l *ledger) accountForCells(s *step) {
	for _, key := range l.starts {
		if !l.ended[key] {
			s.fail(attest.Failure{
				Code: CodeAttemptMissing, Path: "cells/" + key.cell, Message: fmt.Sprintf("attempt %d started and has no end", key.number),
				Expected: string(evidence.EventAttemptEnd), Actual: absent, Next: "its end was taken out: " + resignedNext,
			})
		}
	}
	if l.stopped {
		return
	}
	for _, cell := range l.c.plan.Cells {
		if l.started[cell.ID] == 0 && !l.skipped[cell.ID] {
			s.fail(attest.Failure{
				Code: CodeCellMissing, Path: "cells/" + cell.ID, Message: "the run was completed, and its journal has no attempt and no reason for this planned cell",
				Expected: "an attempt or a skip", Actual: absent, Next: "the cell was taken out: " + resignedNext,
			})
		}
	}
}

// accountForFiles compares what the attempts list with the manifest, whose
// digests step 1 has compared with the bytes.
func (l *ledger) accountForFiles(s *step) {
	if l.c.manifest == nil {
		return
	}
	for _, key := range l.attempts {
		l.listed[attemptFolder(key)+"attempt.json"] = true
		attempt, _, err := document[evidence.Attempt](l.c, attemptFolder(key)+"attempt.json", evidence.MediaAttempt)
		if err != nil {
			s.fail(attest.Failure{Code: CodeAttemptDiffers, Path: attemptFolder(key) + "attempt.json", Message: "cannot be read: " + err.Error()})
			continue
		}
		for _, f := range attempt.Files {
			l.file(attemptFolder(key)+f.Path, f, s)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(l.c.manifest)) {
		if strings.HasPrefix(path, "cells/") && !l.listed[path] && !l.reported(path) {
			s.fail(attest.Failure{
				Code: CodeAttemptExtra, Path: path, Message: "no attempt that the journal knows lists this file", Next: resignedNext,
			})
		}
	}
}

func (l *ledger) file(path string, f evidence.File, s *step) {
	l.listed[path] = true
	entry, ok := l.c.manifest[path]
	actual := absent
	if ok {
		actual = "sha256:" + entry.SHA256
	}
	if actual != string(f.Digest) {
		s.fail(attest.Failure{
			Code: CodeRawDiffers, Path: path, Message: "this raw file is not the one that attempt.json names",
			Expected: string(f.Digest), Actual: actual, Next: resignedNext,
		})
	}
}

// reported reports whether path belongs to an attempt whose own document is
// not the journal's, which has been said already.
func (l *ledger) reported(path string) bool {
	parts := strings.Split(path, "/")
	for i := 2; i < len(parts); i++ {
		number, err := strconv.Atoi(parts[i])
		if err != nil {
			continue
		}
		if key := (attemptKey{strings.Join(parts[1:i], "/"), number}); l.known[key] {
			return !l.listed[attemptFolder(key)+"attempt.json"]
		}
	}
	return false
}
