package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackproof/rackproof/evidence/nodeset"
)

var (
	// ErrLocked says that another process writes to the run.
	ErrLocked = errors.New("the run is in use")
	// ErrClosed says that the store, or the step, was closed.
	ErrClosed = errors.New("closed")
	// ErrSealed says that the run is sealed: only Reopen goes on with it.
	ErrSealed = errors.New("the run is sealed")
	// ErrNeverStarted says that a run directory has a plan and no journal.
	ErrNeverStarted = errors.New("the run was never started: its journal has no whole line and nothing was measured; remove the directory and run again")
)

// Store is the writing side of one run directory. It holds a lock on it from
// Create or Reopen to Close. It is safe for concurrent use.
//
// What it has acknowledged is on the disk: every record is synced before
// Append returns, every file of an attempt and its directories before the
// attempt's end is recorded.
type Store struct {
	dir   string
	run   string
	plan  *Plan
	cells map[string]Cell
	root  *os.Root
	files *RootFS // of root
	temps atomic.Int64
	clock clock

	mu       sync.Mutex
	lock     *os.File
	journal  *journal
	attempts map[string]int         // of a cell, begun so far
	open     map[string]*AttemptDir // begun and not ended, by cell
	sealed   bool
	closed   bool
}

// Create makes a run directory, which must not exist, writes the plan, its
// sources by the paths that the plan gives them, and the tool, and opens the
// journal.
func Create(dir, run string, plan *Plan, sources map[string][]byte, tool Tool) (*Store, error) {
	if err := checkSegment(run); err != nil {
		return nil, fmt.Errorf("create run %q: %w", run, err)
	}
	cells, err := indexCells(plan)
	if err != nil {
		return nil, fmt.Errorf("create run %s: %w", run, err)
	}
	if err := checkSources(plan, sources); err != nil {
		return nil, fmt.Errorf("create run %s: %w", run, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), dirMode); err != nil {
		return nil, fmt.Errorf("create run %s: %w", run, err)
	}
	if err := os.Mkdir(dir, dirMode); err != nil {
		return nil, fmt.Errorf("create run %s: %w", run, err)
	}
	s, err := openStore(dir)
	if err == nil {
		s.run, s.plan, s.cells = run, plan, cells
		if err = s.begin(sources, tool); err != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create run %s: %w", run, errors.Join(err, os.RemoveAll(dir)))
	}
	return s, nil
}

// openStore opens and locks dir.
func openStore(dir string) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	lock, err := takeLock(root)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Store{
		dir: dir, root: root, files: NewRootFS(root), lock: lock,
		attempts: map[string]int{},
		open:     map[string]*AttemptDir{},
	}, nil
}

// indexCells checks the names that a plan gives and indexes its cells.
func indexCells(p *Plan) (map[string]Cell, error) {
	cells := make(map[string]Cell, len(p.Cells))
	for _, c := range p.Cells {
		test, name, _ := strings.Cut(c.ID, "/")
		if checkSegment(test) != nil || checkSegment(name) != nil || len(c.ID) > maxTestDir+1+maxCellDir {
			return nil, fmt.Errorf("plan: cell %q is no path of two segments, at most %d bytes", c.ID, maxTestDir+1+maxCellDir)
		}
		if _, found := cells[c.ID]; found {
			return nil, fmt.Errorf("plan: cell %q is there twice", c.ID)
		}
		cells[c.ID] = c
	}
	return cells, nil
}

// checkSources compares the sources with the plan's list of them.
func checkSources(p *Plan, sources map[string][]byte) error {
	places := map[string]string{}
	for _, source := range p.Sources {
		content, found := sources[source.Path]
		if !found {
			return fmt.Errorf("source %s is in the plan and was not given", source.Path)
		}
		if DigestOf(content) != source.Digest || int64(len(content)) != source.Size {
			return fmt.Errorf("source %s is not the file that the plan was made from", source.Path)
		}
		place := RunbookDir + "/" + SourcePath(source.Path)
		if err := ValidPath(place); err != nil {
			return fmt.Errorf("source %s: %w", source.Path, err)
		}
		if other, found := places[place]; found {
			return fmt.Errorf("sources %s and %s: both are enclosed as %s: rename one", other, source.Path, place)
		}
		places[place] = source.Path
	}
	if len(places) != len(sources) {
		return fmt.Errorf("%d sources were given and %d are in the plan", len(sources), len(places))
	}
	return nil
}

// begin writes what a run starts with. The journal comes last: a directory
// without one was never started.
func (s *Store) begin(sources map[string][]byte, tool Tool) error {
	planBytes, err := Encode(s.plan)
	if err != nil {
		return err
	}
	toolBytes, err := Encode(tool)
	if err != nil {
		return err
	}
	files := map[string][]byte{PlanPath: planBytes, ToolPath: toolBytes}
	for name, content := range sources {
		files[RunbookDir+"/"+SourcePath(name)] = content
	}
	dirs := map[string]struct{}{".": {}}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		changed, err := s.mkdir(path.Dir(p))
		if err != nil {
			return err
		}
		for _, dir := range append(changed, path.Dir(p)) {
			dirs[dir] = struct{}{}
		}
		if err := s.place(p, files[p]); err != nil {
			return err
		}
	}
	if err := s.openJournal(chain{}); err != nil {
		return err
	}
	if err := s.syncDirs(slices.Sorted(maps.Keys(dirs))); err != nil {
		return err
	}
	_, err = s.journal.append(Record{
		Event: EventOpen, Media: MediaJournal, Run: s.run, Plan: DigestOf(planBytes), Tool: &tool,
	})
	if err != nil {
		return err
	}
	return syncParent(s.dir)
}

func syncParent(dir string) error {
	f, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// openJournal opens the journal for appending to what it holds.
func (s *Store) openJournal(holds chain) error {
	f, err := s.root.OpenFile(JournalPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, fileMode)
	if err != nil {
		return err
	}
	s.clock = newClock()
	s.journal = &journal{file: f, chain: holds, now: s.clock.now}
	return nil
}

// Dir is the run directory as it was given.
func (s *Store) Dir() string { return s.dir }

// Run is the run's name.
func (s *Store) Run() string { return s.run }

// Plan is the plan. It must not be changed.
func (s *Store) Plan() *Plan { return s.plan }

// FS reads the run directory and cannot leave it.
func (s *Store) FS() fs.FS { return s.files }

// Time is t, which has a monotonic reading, by the clock of the run's records.
func (s *Store) Time(t time.Time) time.Time { return s.clock.at(t).UTC().Round(0) }

// Records are all records so far. Later appends do not show in the slice,
// whose elements must not be changed.
func (s *Store) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.journal.chain.records)
}

// Append writes one record: it fills in Seq, Prev and Time, and returns once
// the record is on the disk. An error of the disk is a *JournalFull, and then
// every later Append fails. The events that open a run, and those of
// attempts, are the store's own; see Begin and End.
func (s *Store) Append(r Record) (Record, error) {
	switch r.Event {
	case EventOpen, EventResume, EventReopen, EventAttemptStart, EventAttemptEnd:
		return Record{}, fmt.Errorf("append to journal: %q is written by the store itself", r.Event)
	}
	if r.Cell != "" {
		if _, known := s.cells[r.Cell]; !known {
			return Record{}, fmt.Errorf("append to journal: cell %q is not in the plan", r.Cell)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.append(r)
}

func (s *Store) append(r Record) (Record, error) {
	if err := s.writable(); err != nil {
		return Record{}, fmt.Errorf("append to journal: %w", err)
	}
	return s.journal.append(r)
}

func (s *Store) writable() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.sealed:
		return ErrSealed
	}
	return nil
}

// Begin starts the next attempt of a cell on nodes, by their real names. The
// start is recorded before the directory is made.
func (s *Store) Begin(cell Cell, nodes []string) (*AttemptDir, error) {
	if known, found := s.cells[cell.ID]; !found || known != cell {
		return nil, fmt.Errorf("begin %s: the cell is not in the plan", cell.ID)
	}
	planned, err := nodeset.Parse(cell.Nodes, nil)
	if err != nil {
		return nil, fmt.Errorf("begin %s: %w", cell.ID, err)
	}
	if !sameSet(planned, nodes) {
		return nil, fmt.Errorf("begin %s: the nodes %s are not those of the cell, %s", cell.ID, nodeset.Fold(nodes), cell.Nodes)
	}
	a, err := s.start(cell, nodes)
	if err != nil {
		return nil, fmt.Errorf("begin %s: %w", cell.ID, err)
	}
	changed, err := s.mkdir(path.Dir(a.dir))
	if err == nil {
		// Mkdir and not mkdir: an attempt is never written over.
		err = s.root.Mkdir(a.dir, dirMode)
	}
	if err == nil {
		err = s.root.Mkdir(a.rawPath(""), dirMode)
	}
	if err != nil {
		return nil, fmt.Errorf("begin %s attempt %d: %w", cell.ID, a.number, err)
	}
	a.dirs = append(changed, path.Dir(a.dir), a.dir, a.rawPath(""))
	return a, nil
}

func (s *Store) start(cell Cell, nodes []string) (*AttemptDir, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if running, found := s.open[cell.ID]; found {
		return nil, fmt.Errorf("attempt %d has not ended", running.number)
	}
	number := s.attempts[cell.ID] + 1
	record, err := s.append(Record{Event: EventAttemptStart, Cell: cell.ID, Attempt: number})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	a := &AttemptDir{
		store: s, cell: cell, nodes: slices.Clone(nodes), number: number, start: record.Time,
		began: now.Add(record.Time.Sub(s.clock.at(now))),
		dir:   AttemptPath(cell.ID, number),
		steps: map[string]*StepFiles{},
		files: map[string]*os.File{},
	}
	s.attempts[cell.ID] = number
	s.open[cell.ID] = a
	return a, nil
}

// End ends an attempt: everything below raw is hashed and on the disk, then
// attempt.json, then the record of its end. Problems are those of the runner
// and the executor. Cut says that a stop ended it. A step that was not closed
// is of class cut. After an error the attempt has not ended, and resuming
// makes it a cut one.
func (s *Store) End(a *AttemptDir, problems []Problem, cut bool) (Attempt, error) {
	done, err := s.end(a, problems, cut)
	if err != nil {
		return Attempt{}, fmt.Errorf("end %s attempt %d: %w", a.cell.ID, a.number, err)
	}
	return done, nil
}

func (s *Store) end(a *AttemptDir, problems []Problem, cut bool) (Attempt, error) {
	s.mu.Lock()
	ours, err := s.open[a.cell.ID] == a, s.writable()
	s.mu.Unlock()
	if err != nil {
		return Attempt{}, err
	}
	if !ours {
		return Attempt{}, errors.New("it has ended already")
	}
	steps, files, err := a.finish()
	if err != nil {
		return Attempt{}, err
	}
	done := newAttempt(a.cell, a.nodes, a.number)
	done.Start, done.End = a.start, s.clock.now().UTC().Truncate(time.Microsecond)
	done.Cut, done.Problems, done.Steps, done.Files = cut, printable(problems), steps, files
	if err := s.record(done, a.dirs); err != nil {
		return Attempt{}, err
	}
	s.mu.Lock()
	delete(s.open, a.cell.ID)
	s.mu.Unlock()
	return done, nil
}

// printable are problems whose details are valid UTF-8: what a server or a
// panic said may be anything, and a document is its own bytes when it is
// written again.
func printable(problems []Problem) []Problem {
	for i := range problems {
		problems[i].Detail = strings.ToValidUTF8(problems[i].Detail, "\uFFFD")
	}
	return problems
}

func newAttempt(cell Cell, nodes []string, number int) Attempt {
	return Attempt{
		MediaType: MediaAttempt, Minor: Minor,
		Cell: cell.ID, Test: cell.Test, Nodes: nodes, Repetition: cell.Repetition, Number: number,
		Steps: []Step{}, Files: []File{},
	}
}

// record writes attempt.json, syncs the given directories, innermost last,
// and appends the attempt's end.
func (s *Store) record(a Attempt, dirs []string) error {
	dir := AttemptPath(a.Cell, a.Number)
	content, err := Encode(a)
	if err != nil {
		return err
	}
	if len(a.Files) == 0 {
		// A sealed run has no empty directory.
		if err := s.root.Remove(dir + "/raw"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		dirs = slices.DeleteFunc(slices.Clone(dirs), func(d string) bool { return d == dir+"/raw" })
	}
	if err := s.place(dir+"/attempt.json", content); err != nil {
		return err
	}
	slices.Reverse(dirs)
	if err := s.syncDirs(slices.Compact(dirs)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.append(Record{Event: EventAttemptEnd, Cell: a.Cell, Attempt: a.Number, Document: DigestOf(content)})
	return err
}

// WriteDocument writes or replaces a document below run/, such as
// run/inventory.json. Those that the store itself writes are refused.
func (s *Store) WriteDocument(p string, v any) error {
	if err := ValidPath(p); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	switch p {
	case PlanPath, ToolPath, JournalPath, MeasurementsPath, VerdictPath:
		return fmt.Errorf("write document: %s is written by the store itself", p)
	}
	if path.Dir(p) != "run" || strings.HasPrefix(p, tornPrefix) {
		return fmt.Errorf("write document: %s is not a document of run/", p)
	}
	content, err := Encode(v)
	if err != nil {
		return fmt.Errorf("write document %s: %w", p, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return fmt.Errorf("write document %s: %w", p, err)
	}
	return s.replace(p, content)
}

// FreeBytes is the space that is left where the run is written.
func (s *Store) FreeBytes() (uint64, error) { return freeBytes(s.dir) }

// FreeBytes is the space that is left where the run in dir is written.
func FreeBytes(dir string) (uint64, error) { return freeBytes(dir) }

// Close gives the run directory free. An attempt that has not ended becomes a
// cut one when the run is resumed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.closed = true
	var errs []error
	for _, a := range s.open {
		errs = append(errs, a.abandon())
	}
	if s.journal != nil {
		errs = append(errs, s.journal.file.Close())
	}
	if !s.sealed {
		errs = append(errs, s.root.Remove(lockPath), s.root.RemoveAll(tempDir))
	}
	errs = append(errs, s.lock.Close(), s.files.Close(), s.root.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close run %s: %w", s.dir, err)
	}
	return nil
}
