package evidence

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// The codes of an EntryError.
const (
	CodePath      = "E-PATH"       // no path of a bundle
	CodeFileType  = "E-FILE-TYPE"  // neither regular file nor directory
	CodeFileExtra = "E-FILE-EXTRA" // a directory without a file
	CodeLimit     = "E-LIMIT"      // more files than a bundle has
)

// EntryError is one entry of a directory that no bundle has.
type EntryError struct {
	Code string
	Path string
	Err  error
}

// Error is one line: the path and what is wrong with it.
func (e *EntryError) Error() string { return fmt.Sprintf("%.300q: %v", e.Path, e.Err) }

// Unwrap is the cause.
func (e *EntryError) Unwrap() error { return e.Err }

// maxEntryErrors bounds what one walk reports.
const maxEntryErrors = 1000

// Walk visits every file of a run directory or bundle, in lexical order, with
// its size. It is a closed world: a symbolic link, a device, a fifo, a socket,
// a name outside the alphabet, an empty directory and more than MaxFiles
// entries are each an *EntryError. The walk goes on past them, and they are
// returned joined, 1000 at most; an error of visit ends it at once.
func Walk(fsys fs.FS, visit func(path string, size int64) error) error {
	w := walker{visit: visit}
	return w.walk(fsys)
}

type walker struct {
	visit     func(path string, size int64) error
	skip      func(path string) bool // leaves an entry out
	anyName   bool                   // only types and number count
	prune     func(dir string) error // removes an empty directory; nil: it is refused
	errs      []error
	entries   int
	directory []openDir // from the top to where the walk is
}

type openDir struct {
	path    string
	entries int
}

var errTooMany = errors.New("too many entries")

func (w *walker) walk(fsys fs.FS) error {
	err := fs.WalkDir(fsys, ".", w.entry)
	if err == nil {
		err = w.leave("")
	}
	if err != nil && !errors.Is(err, errTooMany) {
		return err
	}
	return errors.Join(w.errs...)
}

func (w *walker) entry(p string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if p == "." {
		w.directory = []openDir{{path: "."}}
		return nil
	}
	if err := w.leave(p); err != nil {
		return err
	}
	if w.skip != nil && w.skip(p) {
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	w.directory[len(w.directory)-1].entries++
	// Directories count twice over at most: a file has 7 above it, shared.
	if w.entries++; w.entries > 2*MaxFiles {
		return w.refuse(CodeLimit, p, fmt.Errorf("more than %d entries", 2*MaxFiles))
	}
	if entry.IsDir() {
		if !w.anyName {
			if err := ValidPath(p); err != nil {
				if err := w.refuse(CodePath, p, err); err != nil {
					return err
				}
				return fs.SkipDir
			}
		}
		w.directory = append(w.directory, openDir{path: p})
		return nil
	}
	if !entry.Type().IsRegular() {
		return w.refuse(CodeFileType, p, fmt.Errorf("a %s: only regular files and directories are evidence", typeWord(entry.Type())))
	}
	if w.anyName {
		return nil
	}
	if err := BundlePath(p); err != nil {
		if p == lockPath {
			err = errors.New("a lock that a killed program has left: if none works on this folder, remove it")
		}
		return w.refuse(CodePath, p, err)
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	return w.visit(p, info.Size())
}

// refuse notes an error and ends the walk when there are too many.
func (w *walker) refuse(code, p string, err error) error {
	w.errs = append(w.errs, &EntryError{Code: code, Path: p, Err: err})
	if code == CodeLimit || len(w.errs) >= maxEntryErrors {
		return errTooMany
	}
	return nil
}

// leave closes the directories that p is not in.
func (w *walker) leave(p string) error {
	for len(w.directory) > 1 {
		last := w.directory[len(w.directory)-1]
		if p != "" && path.Dir(p) == last.path {
			return nil
		}
		w.directory = w.directory[:len(w.directory)-1]
		if last.entries > 0 || w.anyName {
			continue
		}
		if w.prune == nil {
			if err := w.refuse(CodeFileExtra, last.path, errors.New("an empty directory is no evidence: remove it")); err != nil {
				return err
			}
			continue
		}
		if err := w.prune(last.path); err != nil {
			return err
		}
		w.directory[len(w.directory)-1].entries--
	}
	return nil
}

func typeWord(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "fifo"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// OpenDir opens a run directory for reading. It refuses one that holds
// anything but regular files and directories, and the result cannot leave it.
func OpenDir(dir string) (fs.FS, io.Closer, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", dir, plainError(err))
	}
	w := walker{anyName: true}
	if err := w.walk(root.FS()); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open %s: %w", dir, err), root.Close())
	}
	return root.FS(), root, nil
}
