package evidence

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
)

const (
	dirMode  = 0o755
	fileMode = 0o644
)

var errNotRegular = errors.New("not a regular file")

// takeLock locks the run directory below root. A holder removes the file when
// it is done, so a lock counts only while its file still has the name.
func takeLock(root *os.Root) (*os.File, error) {
	for {
		f, err := root.OpenFile(lockPath, os.O_RDWR|os.O_CREATE, fileMode)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", root.Name(), err)
		}
		taken, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", root.Name(), err), f.Close())
		}
		if !taken {
			return nil, errors.Join(lockedError(root.Name(), f), f.Close())
		}
		ours, err := f.Stat()
		named, nameErr := root.Lstat(lockPath)
		if err == nil && nameErr == nil && os.SameFile(ours, named) {
			if err := replaceContent(f, []byte(strconv.Itoa(os.Getpid())+"\n")); err != nil {
				return nil, errors.Join(fmt.Errorf("lock %s: %w", root.Name(), err), f.Close())
			}
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("lock %s: %w", root.Name(), err)
		}
	}
}

// LockSealed locks a sealed run directory against every other writer, until
// unlock. It adds no file: the manifest, which was the lock of the process that
// sealed the run, is the lock of the sealed run too. Where another process has
// it the error is ErrLocked.
func LockSealed(dir string) (unlock func() error, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f, err := lockManifest(root)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return func() error { return errors.Join(f.Close(), root.Close()) }, nil
}

func lockManifest(root *os.Root) (*os.File, error) {
	f, err := root.OpenFile(ManifestPath, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", root.Name(), err)
	}
	taken, err := tryLock(f)
	if err == nil && taken {
		ours, statErr := f.Stat()
		named, nameErr := root.Lstat(ManifestPath)
		taken = statErr == nil && nameErr == nil && os.SameFile(ours, named)
	}
	switch {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", root.Name(), err), f.Close())
	case !taken:
		return nil, errors.Join(lockedError(root.Name(), f), f.Close())
	}
	return f, nil
}

func lockedError(dir string, f *os.File) error {
	holder := "another process"
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if pid, convErr := strconv.Atoi(string(trimLine(text))); err == nil && convErr == nil {
		holder = fmt.Sprintf("process %d", pid)
	}
	return fmt.Errorf("%s: %w by %s: wait for it, or stop it", dir, ErrLocked, holder)
}

func trimLine(b []byte) []byte {
	if len(b) > 0 && b[len(b)-1] == '\n' {
		return b[:len(b)-1]
	}
	return b
}

func replaceContent(f *os.File, content []byte) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	return f.Sync()
}

// writeTemp writes content to a new synced file in tempDir and returns its
// path.
func (s *Store) writeTemp(write func(io.Writer) error) (string, error) {
	name := path.Join(tempDir, strconv.FormatInt(s.temps.Add(1), 10))
	if err := s.root.MkdirAll(tempDir, dirMode); err != nil {
		return "", err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return "", err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, s.root.Remove(name))
	}
	return name, nil
}

// place writes a file in one step: it is there whole or not at all. The
// caller syncs the directory.
func (s *Store) place(p string, content []byte) error {
	return s.placeFunc(p, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

func (s *Store) placeFunc(p string, write func(io.Writer) error) error {
	temp, err := s.writeTemp(write)
	if err == nil {
		err = s.root.Rename(temp, p)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p, err)
	}
	return nil
}

// replace is place with the directory synced.
func (s *Store) replace(p string, content []byte) error {
	if err := s.place(p, content); err != nil {
		return err
	}
	return s.syncDir(path.Dir(p))
}

// mkdir makes dir and what is missing above it, and returns the directories
// that got a new entry.
func (s *Store) mkdir(dir string) (changed []string, err error) {
	if err := s.root.Mkdir(dir, dirMode); err == nil {
		return []string{path.Dir(dir)}, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		if info, statErr := s.root.Lstat(dir); statErr == nil && info.IsDir() {
			return nil, nil
		}
		return nil, fmt.Errorf("make directory %s: %w", dir, err)
	}
	changed, err = s.mkdir(path.Dir(dir))
	if err != nil {
		return changed, err
	}
	more, err := s.mkdir(dir)
	return append(changed, more...), err
}

func (s *Store) syncDir(dir string) error {
	f, err := s.root.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

func (s *Store) syncDirs(dirs []string) error {
	for _, dir := range dirs {
		if err := s.syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) exists(p string) (bool, error) {
	_, err := s.root.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// openFile opens a regular file of at most limit bytes.
func openFile(fsys fs.FS, p string, limit int64) (fs.File, int64, error) {
	info, err := fs.Stat(fsys, p) // before opening, which would wait on a fifo
	switch {
	case err != nil:
		return nil, 0, plainError(err)
	case !info.Mode().IsRegular():
		return nil, 0, errNotRegular
	case info.Size() > limit:
		return nil, 0, fmt.Errorf("%d bytes are over the limit of %d", info.Size(), limit)
	}
	f, err := fsys.Open(p)
	if err != nil {
		return nil, 0, plainError(err)
	}
	return f, info.Size(), nil
}

// readFile reads a whole regular file of at most limit bytes.
func readFile(fsys fs.FS, p string, limit int64) ([]byte, error) {
	f, size, err := openFile(fsys, p, limit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, 0, size+1)
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if int64(len(data)) > limit {
			return nil, fmt.Errorf("more than the limit of %d bytes", limit)
		}
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, plainError(err)
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// plainError drops the operation and path of err, which the caller names.
func plainError(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fs.ErrNotExist
	}
	return err
}
