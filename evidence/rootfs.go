package evidence

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"
)

// rootDirs is how many directories a RootFS keeps open.
const rootDirs = 64

// RootFS is the files below a directory, out of which no link leads, as
// os.Root has them. An os.Root opens every directory of a path again for every
// file, six or seven in a bundle; a RootFS keeps those that were used last, so
// that whoever reads a bundle file by file does it in half the time. Close
// closes them, and leaves the os.Root alone.
type RootFS struct {
	root *os.Root

	mu   sync.RWMutex // held for reading while a kept directory is in use
	dirs map[string]*os.Root
	kept []string // keys of dirs, the oldest first
}

// NewRootFS gives the files below root.
func NewRootFS(root *os.Root) *RootFS {
	return &RootFS{root: root, dirs: make(map[string]*os.Root)}
}

// Close closes the directories that are kept open.
func (f *RootFS) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var failed []error
	for _, dir := range f.dirs {
		failed = append(failed, dir.Close())
	}
	clear(f.dirs)
	f.kept = nil
	return errors.Join(failed...)
}

// in calls do with the directory of name and the name in it.
func (f *RootFS) in(op, name string, do func(dir *os.Root, base string) error) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	dir, base := path.Split(name)
	if dir == "" {
		return do(f.root, base)
	}
	dir = path.Clean(dir)
	if err := f.keep(dir); err != nil {
		return named(err, name)
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	in, ok := f.dirs[dir]
	if !ok { // closed again by others that needed the room
		return do(f.root, name)
	}
	return named(do(in, base), name)
}

// keep opens dir unless it is open.
func (f *RootFS) keep(dir string) error {
	f.mu.RLock()
	_, ok := f.dirs[dir]
	f.mu.RUnlock()
	if ok {
		return nil
	}
	opened, err := f.root.OpenRoot(dir)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dirs[dir] != nil {
		return opened.Close()
	}
	if len(f.kept) >= rootDirs {
		oldest := f.kept[0]
		f.kept = f.kept[1:]
		err = f.dirs[oldest].Close()
		delete(f.dirs, oldest)
	}
	f.dirs[dir] = opened
	f.kept = append(f.kept, dir)
	return err
}

// named is err of a file by its whole name.
func named(err error, name string) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return &fs.PathError{Op: at.Op, Path: name, Err: at.Err}
	}
	return err
}

// Open opens a file or a directory.
func (f *RootFS) Open(name string) (file fs.File, err error) {
	if name == "." {
		return f.root.Open(name)
	}
	err = f.in("open", name, func(dir *os.Root, base string) error {
		opened, err := dir.Open(base)
		if err == nil {
			file = opened
		}
		return err
	})
	return file, err
}

// ReadFile reads a whole file.
func (f *RootFS) ReadFile(name string) (data []byte, err error) {
	err = f.in("open", name, func(dir *os.Root, base string) error {
		data, err = dir.ReadFile(base)
		return err
	})
	return data, err
}

// ReadDir lists a directory, sorted by name.
func (f *RootFS) ReadDir(name string) ([]fs.DirEntry, error) {
	// The directory that is listed is not kept: those in it are.
	return fs.ReadDir(f.root.FS(), name)
}

// Stat describes a file, or what a link leads to.
func (f *RootFS) Stat(name string) (info fs.FileInfo, err error) {
	if name == "." {
		return f.root.Stat(name)
	}
	err = f.in("stat", name, func(dir *os.Root, base string) error {
		info, err = dir.Stat(base)
		return err
	})
	return info, err
}

// Lstat describes a file, or a link itself.
func (f *RootFS) Lstat(name string) (info fs.FileInfo, err error) {
	if name == "." {
		return f.root.Lstat(name)
	}
	err = f.in("lstat", name, func(dir *os.Root, base string) error {
		info, err = dir.Lstat(base)
		return err
	})
	return info, err
}

// ReadLink says where a link leads.
func (f *RootFS) ReadLink(name string) (target string, err error) {
	err = f.in("readlink", name, func(dir *os.Root, base string) error {
		target, err = dir.Readlink(base)
		return err
	})
	return target, err
}
