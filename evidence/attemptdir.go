package evidence

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// AttemptDir is the directory of an attempt that runs. It is safe for
// concurrent use.
type AttemptDir struct {
	store  *Store
	cell   Cell
	nodes  []string
	number int
	start  time.Time
	began  time.Time // start, with a monotonic reading
	dir    string
	dirs   []string // to be synced, outermost first

	mu    sync.Mutex
	done  bool
	steps map[string]*StepFiles
	files map[string]*os.File
}

// Number is the attempt's number, from 1.
func (a *AttemptDir) Number() int { return a.number }

// Began is when the attempt started, as its record says, with a monotonic
// reading: what durations since the start are counted from.
func (a *AttemptDir) Began() time.Time { return a.began }

func (a *AttemptDir) rawPath(name string) string { return path.Join(a.dir, "raw", name) }

// Step makes the files of one step on one node. A step name is used once per
// node.
func (a *AttemptDir) Step(step, node string) (*StepFiles, error) {
	dir := StepDir(step, node)
	a.mu.Lock()
	defer a.mu.Unlock()
	fail := func(err error) (*StepFiles, error) {
		return nil, fmt.Errorf("%s attempt %d: step %s on %s: %w", a.cell.ID, a.number, step, node, err)
	}
	if a.done {
		return fail(ErrClosed)
	}
	if other, used := a.steps[dir]; used {
		if other.step == step && other.node == node {
			return fail(errors.New("the step was used before"))
		}
		return fail(fmt.Errorf("its directory %s is that of step %s on %s: rename one", dir, other.step, other.node))
	}
	if err := a.store.root.Mkdir(a.rawPath(dir), dirMode); err != nil {
		return fail(err)
	}
	f, err := a.store.openStep(a.rawPath(dir))
	if err != nil {
		return fail(err)
	}
	f.step, f.node = step, node
	a.steps[dir] = f
	return f, nil
}

// File makes the file raw/<name> for what is no command's output. End takes
// whatever it holds by then, and closes it where that was not done.
func (a *AttemptDir) File(name string) (*os.File, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return nil, fmt.Errorf("%s attempt %d: file %s: %w", a.cell.ID, a.number, name, ErrClosed)
	}
	if err := checkSegment(name); err != nil {
		return nil, fmt.Errorf("%s attempt %d: file %q: %w", a.cell.ID, a.number, name, err)
	}
	f, err := a.store.root.OpenFile(a.rawPath(name), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, fileMode)
	if err != nil {
		return nil, fmt.Errorf("%s attempt %d: file %s: %w", a.cell.ID, a.number, name, err)
	}
	a.files[name] = f
	return f, nil
}

// abandon closes what is open, for a store that closes before the attempt has
// ended.
func (a *AttemptDir) abandon() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = true
	var errs []error
	for _, f := range a.steps {
		errs = append(errs, f.abandon())
	}
	for _, f := range a.files {
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// finish closes everything and lists steps and files, synced and hashed.
func (a *AttemptDir) finish() ([]Step, []File, error) {
	if err := a.abandon(); err != nil {
		return nil, nil, err
	}
	steps := []Step{}
	known := map[string]File{}
	for dir, f := range a.steps {
		class := ClassCut
		if f.exit != nil {
			class = f.exit.Class
		}
		steps = append(steps, Step{Dir: dir, Step: f.step, Node: f.node, Class: class})
		for _, file := range f.files {
			known["raw/"+dir+"/"+file.Path] = file
		}
		a.dirs = append(a.dirs, a.rawPath(dir))
	}
	slices.SortFunc(steps, func(x, y Step) int { return strings.Compare(x.Dir, y.Dir) })
	files, err := listRaw(a.store.root, a.dir, known)
	return steps, files, err
}

// listRaw lists every file below raw of the attempt directory dir, sorted by
// path. A file that was hashed as it was written is in known and must have
// its size; any other is hashed and synced now.
func listRaw(root *os.Root, dir string, known map[string]File) ([]File, error) {
	files := []File{}
	err := fs.WalkDir(root.FS(), dir+"/raw", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && p == dir+"/raw" && errors.Is(err, fs.ErrNotExist):
			return fs.SkipAll
		case err != nil:
			return err
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file: remove it", p)
		}
		relative := p[len(dir)+1:]
		if err := ValidPath(p); err != nil {
			return fmt.Errorf("%w: remove the file", err)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		file, found := known[relative]
		if found && file.Size != info.Size() {
			return fmt.Errorf("%s has %d bytes after %d were written: something else writes to it", p, info.Size(), file.Size)
		}
		if !found {
			if file, err = hashAndSync(root, p); err != nil {
				return err
			}
		}
		file.Path = relative
		files = append(files, file)
		return nil
	})
	slices.SortFunc(files, func(x, y File) int { return strings.Compare(x.Path, y.Path) })
	return files, err
}

func hashAndSync(root *os.Root, p string) (File, error) {
	f, err := root.OpenFile(p, os.O_RDWR, 0)
	if err != nil {
		return File{}, err
	}
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return File{}, err
	}
	return File{Size: size, Digest: DigestFromSum(sum.Sum(nil))}, nil
}

// StepFiles are the files of one step on one node, or of one capture: stdout
// and stderr stream to the disk and are hashed as they come.
type StepFiles struct {
	store          *Store
	dir            string
	step, node     string
	stdout, stderr *stream

	mu     sync.Mutex
	closed bool
	exit   *Exit
	files  []File // paths relative to dir
	after  func(Exit) error
}

func (s *Store) openStep(dir string) (*StepFiles, error) {
	f := &StepFiles{store: s, dir: dir}
	var err error
	if f.stdout, err = s.openStream(dir + "/stdout"); err != nil {
		return nil, err
	}
	if f.stderr, err = s.openStream(dir + "/stderr"); err != nil {
		return nil, errors.Join(err, f.stdout.close())
	}
	return f, nil
}

// Stdout takes the step's standard output. Writing fails after Close.
func (f *StepFiles) Stdout() io.Writer { return f.stdout }

// Stderr takes the step's standard error. Writing fails after Close.
func (f *StepFiles) Stderr() io.Writer { return f.stderr }

// Close ends the step: both streams are synced, exit gets their sizes and is
// written as exit.json. Where a stream could not be written Close fails and
// there is no exit.json: the step stays one that was cut off.
func (f *StepFiles) Close(exit Exit) error {
	if err := f.close(exit); err != nil {
		return fmt.Errorf("close %s: %w", f.dir, err)
	}
	return nil
}

func (f *StepFiles) close(exit Exit) error {
	if exit.Class == "" {
		return errors.New("the exit has no class")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	if err := f.stop(); err != nil {
		return err
	}
	if err := errors.Join(f.stdout.failed, f.stderr.failed); err != nil {
		return err
	}
	exit.StdoutBytes, exit.StderrBytes = f.stdout.size, f.stderr.size
	exit.Detail = strings.ToValidUTF8(exit.Detail, "\uFFFD")
	exit.Start, exit.End = f.store.clock.at(exit.Start).UTC().Round(0), f.store.clock.at(exit.End).UTC().Round(0)
	content, err := Encode(exit)
	if err != nil {
		return err
	}
	if err := f.store.place(f.dir+"/exit.json", content); err != nil {
		return err
	}
	f.exit = &exit
	f.files = append(f.files, File{Path: "exit.json", Size: int64(len(content)), Digest: DigestOf(content)})
	if f.after != nil {
		return f.after(exit)
	}
	return nil
}

// abandon closes the streams of a step that will have no exit.
func (f *StepFiles) abandon() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	return f.stop()
}

func (f *StepFiles) stop() error {
	f.closed = true
	err := errors.Join(f.stdout.close(), f.stderr.close())
	f.files = append(f.files, f.stdout.file("stdout"), f.stderr.file("stderr"))
	return err
}

// stream is one output on its way to the disk.
type stream struct {
	mu     sync.Mutex
	f      *os.File
	sum    hash.Hash
	size   int64
	failed error
	closed bool
}

func (s *Store) openStream(p string) (*stream, error) {
	f, err := s.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	return &stream{f: f, sum: sha256.New()}, nil
}

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	if s.failed != nil {
		return 0, s.failed
	}
	n, err := s.f.Write(b)
	s.sum.Write(b[:n])
	s.size += int64(n)
	s.failed = err
	return n, err
}

func (s *stream) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return errors.Join(s.f.Sync(), s.f.Close())
}

func (s *stream) file(name string) File {
	return File{Path: name, Size: s.size, Digest: DigestFromSum(s.sum.Sum(nil))}
}
