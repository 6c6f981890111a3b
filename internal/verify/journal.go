package verify

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
	"github.com/rackproof/rackproof/runbook"
)

const resignedNext = "the signature does not cure this: whoever signed the bundle signed records that do not agree"

// checkJournal holds the journal against the plan, the attempts and the
// manifest: every planned cell is accounted for, attempts are numbered
// without a gap, each attempt.json is the one that the journal names, and each
// raw file is the one that its attempt.json names.
func checkJournal(c *content, known runbook.Known, s *step) {
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
	l.accountForGates(s)
	l.accountForCaptures(s)
	checkFaultRecords(c, known, s)
	checkTool(c, s)
	checkNodes(c, s)
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
	lastRun  map[string]int // the last record of an attempt, by phase
	lastGate map[string]int // the last decision, by phase
	outputs  map[evidence.Digest]string
	spans    map[attemptKey]span
	breaks   []int        // the records with which the run stopped, or went on
	attempts []attemptKey // ended, with an attempt.json that is the journal's
}

func newLedger(c *content) *ledger {
	l := &ledger{
		c: c, planned: make(map[string]bool, len(c.plan.Cells)), started: make(map[string]int), skipped: make(map[string]bool),
		known: make(map[attemptKey]bool), ended: make(map[attemptKey]bool), listed: make(map[string]bool),
		lastRun: make(map[string]int), lastGate: make(map[string]int), outputs: make(map[evidence.Digest]string),
		spans: make(map[attemptKey]span),
	}
	for _, cell := range c.plan.Cells {
		l.planned[cell.ID] = true
	}
	return l
}

func (l *ledger) read(records []evidence.Record, s *step) {
	tests := l.c.testOf()
	for i, r := range records {
		at := fmt.Sprintf("%s:%d", evidence.JournalPath, i+1)
		if r.Cell != "" && !l.planned[r.Cell] {
			s.fail(attest.Failure{Code: CodeCellUnknown, Path: at, Message: "the plan has no cell " + r.Cell, Next: resignedNext})
			continue
		}
		if t, ok := tests[r.Cell]; ok && (r.Event == evidence.EventAttemptStart || r.Event == evidence.EventAttemptEnd) {
			l.lastRun[t.Phase] = i
		}
		switch r.Event {
		case evidence.EventGate:
			l.lastGate[r.Phase] = i
		case evidence.EventCapture:
			l.capture(r, at, s)
		case evidence.EventStop:
			l.stopped = true
			l.breaks = append(l.breaks, i)
		case evidence.EventResume, evidence.EventReopen:
			l.stopped = false
			l.breaks = append(l.breaks, i)
		case evidence.EventSkip:
			l.skipped[r.Cell] = true
		case evidence.EventAttemptStart:
			if want := l.started[r.Cell] + 1; r.Attempt != want {
				s.fail(attest.Failure{
					Code: CodeAttemptMissing, Path: at, Message: "the attempts of cell " + r.Cell + " are not numbered without a gap",
					Expected: strconv.Itoa(want), Actual: strconv.Itoa(r.Attempt), Next: "an attempt was taken out: " + resignedNext,
				})
			}
			before := attemptKey{r.Cell, l.started[r.Cell]}
			if s, ok := l.spans[before]; ok {
				l.spans[before] = span{s.start, i}
			}
			l.spans[attemptKey{r.Cell, r.Attempt}] = span{i, len(records)}
			l.started[r.Cell] = r.Attempt
			l.known[attemptKey{r.Cell, r.Attempt}] = true
			l.starts = append(l.starts, attemptKey{r.Cell, r.Attempt})
		case evidence.EventAttemptEnd:
			l.end(r, at, s)
		}
	}
}

// span is the records from the start of an attempt to that of the next one of
// its cell.
type span struct{ start, next int }

// broken reports whether the run ended, or another process went on with it,
// between the attempt's start and the next of its cell: nothing else cuts an
// attempt.
func (l *ledger) broken(key attemptKey) bool {
	at, _ := slices.BinarySearch(l.breaks, l.spans[key].start)
	return at < len(l.breaks) && l.breaks[at] < l.spans[key].next
}

// capture holds the files of one capture against the manifest.
func (l *ledger) capture(r evidence.Record, at string, s *step) {
	if !strings.HasPrefix(r.Path, capturesFolder) {
		s.fail(attest.Failure{Code: CodeRawDiffers, Path: at, Message: "a capture is not kept below " + capturesFolder, Expected: capturesFolder, Actual: r.Path, Next: resignedNext})
		return
	}
	if l.c.manifest == nil {
		return
	}
	for _, f := range r.Files {
		l.file(r.Path+"/"+f.Path, f, s)
	}
}

const capturesFolder = "captures/"

// accountForGates finds phases that were run in a completed run and whose gate
// was never decided over all of what was run.
func (l *ledger) accountForGates(s *step) {
	if l.stopped {
		return
	}
	for _, phase := range l.c.plan.Phases {
		ran, any := l.lastRun[phase.Name]
		if gate, decided := l.lastGate[phase.Name]; any && (!decided || gate < ran) {
			s.fail(attest.Failure{
				Code: CodeGateMissing, Path: evidence.JournalPath, Message: "the gate of phase " + phase.Name + " was not decided after its last attempt",
				Expected: string(evidence.EventGate), Actual: absent, Next: "the decision was taken out: " + resignedNext,
			})
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
		if attempt.Cut && !l.broken(key) {
			s.fail(attest.Failure{
				Code: CodeCutUnexplained, Path: attemptFolder(key) + "attempt.json",
				Message:  "the attempt is said to be cut by the end of the run, and the run went on without one before the next attempt of its cell",
				Expected: "a stop, or a process that goes on", Actual: absent, Next: "it may be a failure that was given another name: " + resignedNext,
			})
		}
		for _, f := range attempt.Files {
			l.file(attemptFolder(key)+f.Path, f, s)
			l.output(attemptFolder(key)+f.Path, f.Digest, s)
		}
	}
	l.accountForRest(s)
	for _, path := range slices.Sorted(maps.Keys(l.c.manifest)) {
		switch {
		case l.listed[path]:
		case !strings.HasPrefix(path, "cells/"):
			s.fail(attest.Failure{
				Code: CodeFileUnexplained, Path: path, Message: "neither the plan nor the journal says what this file is", Next: resignedNext,
			})
		case !l.reported(path):
			s.fail(attest.Failure{
				Code: CodeAttemptExtra, Path: path, Message: "no attempt that the journal knows lists this file", Next: resignedNext,
			})
		}
	}
}

// accountForRest lists the files of a run that are no attempt's, and finds
// tails and seals that the journal names and that are not there, or that are
// not what it names.
func (l *ledger) accountForRest(s *step) {
	for _, path := range []string{
		evidence.PlanPath, evidence.ToolPath, evidence.InventoryPath, evidence.JournalPath, evidence.MeasurementsPath, evidence.VerdictPath,
	} {
		l.listed[path] = true
	}
	for _, source := range l.c.plan.Sources {
		l.listed[evidence.RunbookDir+"/"+evidence.SourcePath(source.Path)] = true
	}
	seals := l.seals()
	died := false
	for i, r := range l.c.records {
		at := fmt.Sprintf("%s:%d", evidence.JournalPath, i+1)
		died = died || r.Event == evidence.EventResume
		tail := r.Torn
		if r.Event == evidence.EventNote {
			tail = r.Path
		}
		if tail != "" && !evidence.IsTail(tail) {
			s.fail(attest.Failure{Code: CodeFileUnexplained, Path: tail, Message: "the journal keeps no tail here, in line " + strconv.Itoa(i+1), Next: resignedNext})
		} else if tail != "" {
			l.listed[tail] = true
			if _, ok := l.c.manifest[tail]; !ok {
				s.fail(attest.Failure{Code: attest.CodeFileMissing, Path: tail, Message: "the journal keeps a tail here, in line " + strconv.Itoa(i+1), Next: resignedNext})
			}
		}
		if r.Event == evidence.EventReopen && r.Seal != "" && !l.seal(seals, r.Seal) {
			s.fail(attest.Failure{
				Code: attest.CodeFileMissing, Path: at, Message: "the run was sealed before, and that seal is not in " + sealsFolder,
				Expected: string(r.Seal), Actual: absent, Next: "what was sealed first was taken out: " + resignedNext,
			})
		}
	}
	for path := range l.c.manifest {
		// A death in the middle of a capture leaves files that no record names.
		if died && strings.HasPrefix(path, capturesFolder) {
			l.listed[path] = true
		}
	}
}

const sealsFolder = "run/seals/"

// seals are the folders of the seals that were set aside, by the digest of
// the manifest of each.
func (l *ledger) seals() map[evidence.Digest]string {
	seals := make(map[evidence.Digest]string)
	for path, entry := range l.c.manifest {
		folder, name, _ := strings.Cut(strings.TrimPrefix(path, sealsFolder), "/")
		if strings.HasPrefix(path, sealsFolder) && name == evidence.ManifestPath {
			seals[evidence.Digest("sha256:"+entry.SHA256)] = sealsFolder + folder + "/"
		}
	}
	return seals
}

// seal lists the files of one seal, and reports whether it is there.
func (l *ledger) seal(seals map[evidence.Digest]string, digest evidence.Digest) bool {
	folder, ok := seals[digest]
	if !ok || l.listed[folder+evidence.ManifestPath] {
		return ok
	}
	for path := range l.c.manifest {
		if strings.HasPrefix(path, folder) {
			l.listed[path] = true
		}
	}
	return true
}

// output finds the same exit.json in two places. It holds when a command began
// and ended to the nanosecond, so that no two commands leave the same one: the
// output beside it is that of the other step.
func (l *ledger) output(path string, digest evidence.Digest, s *step) {
	if !strings.HasSuffix(path, "/exit.json") {
		return
	}
	first, twice := l.outputs[digest]
	if !twice {
		l.outputs[digest] = path
		return
	}
	s.fail(attest.Failure{
		Code: CodeRawTwice, Path: path, Message: "this is a copy of " + first + ": one command's output stands for two", Next: resignedNext,
	})
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
