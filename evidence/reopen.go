package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence/nodeset"
)

// Reopen goes on with a run that stopped, was killed at any moment, or was
// sealed. It takes the lock; where another process has it the error is
// ErrLocked and names the process.
//
// A torn tail of the journal is kept as run/torn-<n> and cut off. A sealed
// run is opened again: its lists, its signature and what was derived move to
// run/seals/<n>/. An attempt that started and did not end is ended as a cut
// one, with every file that it left; one that had ended but for the record is
// recorded as it is. All of that is in the journal when Reopen returns.
//
// What must match for a resume beyond plan and journal (machines, versions of
// checks) is for the caller to compare.
func Reopen(dir string, tool Tool) (*Store, error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, fmt.Errorf("reopen run: %w", err)
	}
	r := reopener{store: s, tool: tool}
	if err := r.run(); err != nil {
		return nil, fmt.Errorf("reopen run %s: %w", dir, errors.Join(err, s.Close()))
	}
	return s, nil
}

type reopener struct {
	store *Store
	tool  Tool
	holds chain // the journal as it was found
	torn  bool
	lost  []string // where torn tails are kept that no record names
}

func (r *reopener) run() error {
	s := r.store
	if err := s.root.RemoveAll(tempDir); err != nil {
		return err
	}
	if err := r.readRun(); err != nil {
		return err
	}
	if err := r.cutTail(); err != nil {
		return err
	}
	if err := r.findTails(); err != nil {
		return err
	}
	first, err := r.unseal()
	if err != nil {
		return err
	}
	if err := s.openJournal(r.holds); err != nil {
		return err
	}
	if err := r.announce(first); err != nil {
		return err
	}
	return r.endAttempts()
}

// readRun reads plan and journal as a bundle does, and refuses what this
// build could not go on with.
func (r *reopener) readRun() error {
	s := r.store
	b := Bundle{FS: s.FS()}
	var err error
	if b.Sealed, err = s.exists(ManifestPath); err != nil {
		return err
	}
	if b.Plan, b.PlanBytes, err = b.readPlan(); err != nil {
		return err
	}
	if b.Newer {
		return fmt.Errorf("%s was written by a newer version: go on with that one", PlanPath)
	}
	if s.cells, err = indexCells(b.Plan); err != nil {
		return err
	}
	if err := b.readJournal(); err != nil {
		var damaged *JournalError
		if errors.As(err, &damaged) {
			err = fmt.Errorf("%w; a run with a damaged journal cannot go on: keep the directory as it is, and begin another run", err)
		}
		return err
	}
	s.plan, s.run = b.Plan, b.Run
	r.holds, r.torn = b.chain, b.Torn
	for _, record := range r.holds.records {
		if record.Event == EventAttemptStart {
			s.attempts[record.Cell] = max(s.attempts[record.Cell], record.Attempt)
		}
	}
	return nil
}

// cutTail keeps and cuts off what follows the last whole record.
func (r *reopener) cutTail() error {
	if !r.torn {
		return nil
	}
	s := r.store
	content, err := readFile(s.FS(), JournalPath, maxJournalBytes)
	if err != nil {
		return fmt.Errorf("%s: %w", JournalPath, err)
	}
	tail := content[r.holds.whole:]
	kept, err := r.tailPath(tail)
	if err != nil {
		return err
	}
	if err := s.replace(kept, tail); err != nil {
		return err
	}
	f, err := s.root.OpenFile(JournalPath, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(r.holds.whole), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("cut %s: %w", JournalPath, err)
	}
	return nil
}

// tailPath is the place for a tail: that of the same tail, where an earlier
// try has kept it, or the next free one.
func (r *reopener) tailPath(tail []byte) (string, error) {
	for n := 1; ; n++ {
		p := tornPrefix + strconv.Itoa(n)
		content, err := readFile(r.store.FS(), p, maxJournalBytes)
		if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(content, tail) {
			return p, nil
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
	}
}

// findTails lists the tails that no record names yet: the one that was cut
// just now, and any that was cut before a second death.
func (r *reopener) findTails() error {
	list, err := fs.ReadDir(r.store.FS(), "run")
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, record := range r.holds.records {
		named[record.Torn] = true
		if record.Event == EventNote {
			named[record.Path] = true
		}
	}
	for _, entry := range list {
		p := "run/" + entry.Name()
		if strings.HasPrefix(p, tornPrefix) && !named[p] {
			r.lost = append(r.lost, p)
		}
	}
	return nil
}

// announce appends the first record, with the first unnamed tail, and a note
// for each further one.
func (r *reopener) announce(first Record) error {
	first.Tool = &r.tool
	further := r.lost
	if len(further) > 0 {
		first.Torn, further = further[0], further[1:]
	}
	if err := r.append(first); err != nil {
		return err
	}
	for _, p := range further {
		if err := r.append(Record{Event: EventNote, Path: p, Reason: "a tail of the journal that was cut off earlier"}); err != nil {
			return err
		}
	}
	return nil
}

func (r *reopener) append(record Record) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	_, err := r.store.append(record)
	return err
}

// sealedFiles are what a seal made, with the names that they get when it is
// set aside. The manifest moves last: while it is at its place the run is
// sealed.
var sealedFiles = [...]struct{ from, to string }{
	{SignaturePath, "evidence.sigstore.json"},
	{SumsPath, "sha256sums"},
	{VerdictPath, "verdict.json"},
	{MeasurementsPath, "measurements.jsonl"},
	{ManifestPath, "manifest.json"},
}

// unseal sets a seal aside, or what is left of one that was never finished,
// and returns the record with which the journal goes on.
func (r *reopener) unseal() (Record, error) {
	sealed, err := r.store.exists(ManifestPath)
	if err != nil {
		return Record{}, err
	}
	if sealed {
		digest, err := r.setAside()
		return Record{Event: EventReopen, Seal: digest}, err
	}
	if r.holds.records[len(r.holds.records)-1].Event != EventClose {
		return Record{Event: EventResume}, r.removeDerived()
	}
	digest, err := r.unnamedSeal()
	if err != nil {
		return Record{}, err
	}
	first := Record{Event: EventReopen, Seal: digest}
	if digest == "" {
		first.Reason = "the run was closed and its seal was not finished"
	}
	return first, r.removeDerived()
}

func (r *reopener) setAside() (Digest, error) {
	s := r.store
	held, err := lockManifest(s.root)
	if err != nil {
		return "", err
	}
	defer held.Close()
	content, err := readFile(s.FS(), ManifestPath, MaxManifestBytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", ManifestPath, err)
	}
	if err := r.unchanged(content); err != nil {
		return "", err
	}
	dir, err := r.sealDir()
	if err != nil {
		return "", err
	}
	changed, err := s.mkdir(dir)
	if err != nil {
		return "", err
	}
	for _, f := range sealedFiles {
		err := s.root.Rename(f.from, dir+"/"+f.to)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("set the seal aside: %w", err)
		}
	}
	return DigestOf(content), s.syncDirs(append([]string{dir, "run", "."}, changed...))
}

// unchanged checks that the journal is the one that was sealed.
func (r *reopener) unchanged(manifest []byte) error {
	m, _, err := ReadManifest(manifest)
	if err != nil {
		return err
	}
	digest, err := hashFile(r.store.FS(), JournalPath)
	if err != nil {
		return err
	}
	i, found := slices.BinarySearchFunc(m.Files, JournalPath, func(e ManifestEntry, p string) int { return strings.Compare(e.Path, p) })
	if !found || m.Files[i].SHA256 != digest.Hex() {
		return fmt.Errorf("%s is not the one that was sealed: verify the run, it cannot go on", JournalPath)
	}
	return nil
}

// sealDir is the directory for the seal: one that an interrupted try has
// begun, or the next.
func (r *reopener) sealDir() (string, error) {
	for n := 1; ; n++ {
		dir := path.Join(sealsDir, strconv.Itoa(n))
		taken, err := r.store.exists(dir + "/manifest.json")
		if err != nil || !taken {
			return dir, err
		}
	}
}

// unnamedSeal is the digest of a seal that was set aside just before a death,
// so that no record names it; empty where there is none.
func (r *reopener) unnamedSeal() (Digest, error) {
	named := map[Digest]bool{}
	for _, record := range r.holds.records {
		named[record.Seal] = true
	}
	for n := 1; ; n++ {
		content, err := readFile(r.store.FS(), path.Join(sealsDir, strconv.Itoa(n), "manifest.json"), MaxManifestBytes)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if digest := DigestOf(content); !named[digest] {
			return digest, nil
		}
	}
}

// removeDerived removes what a seal that was never finished has left: anyone
// may derive it again.
func (r *reopener) removeDerived() error {
	for _, p := range []string{SumsPath, VerdictPath, MeasurementsPath} {
		if err := r.store.root.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// endAttempts ends every attempt that started and did not end. An attempt
// whose directory is there although its start was in the torn tail is begun
// in the journal first: what was measured counts.
func (r *reopener) endAttempts() error {
	h := readHistory(r.store.plan, r.holds.records)
	h.findStrays(r.store.FS())
	for _, id := range slices.Sorted(maps.Keys(h.cells)) {
		c := h.cells[id]
		for _, n := range c.numbers() {
			a := c.attempts[n]
			if a.ended {
				continue
			}
			if err := r.endAttempt(r.store.cells[id], n, a); err != nil {
				return fmt.Errorf("%s attempt %d: %w", id, n, err)
			}
		}
	}
	return nil
}

func (r *reopener) endAttempt(cell Cell, number int, a *attemptHistory) error {
	s := r.store
	nodes, err := nodeset.Parse(cell.Nodes, nil)
	if err != nil {
		return err
	}
	if !a.begun {
		if number != s.attempts[cell.ID]+1 {
			return fmt.Errorf("its directory %s is there, the journal does not know it, and it does not follow attempt %d: move it away", AttemptPath(cell.ID, number), s.attempts[cell.ID])
		}
		s.attempts[cell.ID] = number
		if err := r.append(Record{Event: EventAttemptStart, Cell: cell.ID, Attempt: number, Reason: foundAgain}); err != nil {
			return err
		}
		a.begun = true
	}
	blank := newAttempt(cell, nodes, number)
	blank.Start, blank.End = a.start, a.start
	recorded, err := r.recordFinished(blank)
	if err != nil || recorded {
		return err
	}
	return r.recordCut(blank)
}

// recordFinished records the end of an attempt whose attempt.json was written
// and is true, and moves one away that is not.
func (r *reopener) recordFinished(blank Attempt) (bool, error) {
	s := r.store
	p := AttemptPath(blank.Cell, blank.Number) + "/attempt.json"
	content, err := readFile(s.FS(), p, maxAttemptBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", p, err)
	}
	a, err := decodeAttempt(content, blank)
	if err == nil && len(checkRaw(s.FS(), a)) == 0 {
		return true, r.append(Record{Event: EventAttemptEnd, Cell: a.Cell, Attempt: a.Number, Document: DigestOf(content)})
	}
	kept, err := r.tailPath(content)
	if err != nil {
		return false, err
	}
	if err := s.replace(kept, content); err != nil {
		return false, err
	}
	return false, r.append(Record{Event: EventNote, Path: kept, Reason: p + " does not agree with its files; the attempt is one that was cut off"})
}

func (r *reopener) recordCut(blank Attempt) error {
	s := r.store
	if err := r.pruneSteps(blank); err != nil {
		return err
	}
	a, err := cutAttempt(s.FS(), blank)
	if err != nil {
		return err
	}
	if a.Start.IsZero() {
		a.Start = s.clock.now().UTC().Truncate(time.Microsecond)
		a.End = a.Start
	}
	dir := AttemptPath(a.Cell, a.Number)
	dirs, err := s.mkdir(dir)
	if err != nil {
		return err
	}
	dirs = append(dirs, path.Dir(dir), dir)
	raw, err := s.exists(dir + "/raw")
	if err != nil {
		return err
	}
	if raw {
		dirs = append(dirs, dir+"/raw")
	}
	for _, step := range a.Steps {
		dirs = append(dirs, dir+"/raw/"+step.Dir)
	}
	if _, err := listRaw(s.root, dir, nil); err != nil { // syncs what is kept
		return err
	}
	return s.record(a, dirs)
}

// pruneSteps removes the directories of steps that died before their first
// file.
func (r *reopener) pruneSteps(a Attempt) error {
	raw := AttemptPath(a.Cell, a.Number) + "/raw"
	for _, step := range entries(r.store.FS(), raw) {
		if len(entries(r.store.FS(), raw+"/"+step)) > 0 {
			continue
		}
		info, err := r.store.root.Lstat(raw + "/" + step)
		if err == nil && info.IsDir() {
			err = r.store.root.Remove(raw + "/" + step)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
