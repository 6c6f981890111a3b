package archive

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// ErrTooLarge says that an archive holds more than was to be read into memory.
var ErrTooLarge = errors.New("the archive is too large to be read into memory")

// Load unpacks an archive into memory, under the rules of Extract. Where it has
// more than most bytes it gives ErrTooLarge; by the manifest, so that the head
// alone was read, or by approvals beside it.
func Load(r io.Reader, most int64, head func(bundle, manifest, sums []byte) (Limits, error)) (fs.FS, error) {
	m := &memory{files: make(map[string][]byte), dirs: map[string][]fs.DirEntry{".": nil}}
	if err := unpackTo(m, r, most, head); err != nil {
		return nil, err
	}
	for dir := range m.dirs {
		slices.SortFunc(m.dirs[dir], func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
	return m, nil
}

// memory is the files of a bundle in memory. It is written once and then read
// by many.
type memory struct {
	files map[string][]byte
	dirs  map[string][]fs.DirEntry
}

func (m *memory) mkdir(name string) error {
	if _, ok := m.dirs[name]; ok {
		return nil
	}
	if err := m.mkdir(path.Dir(name)); err != nil {
		return err
	}
	m.dirs[name] = nil
	m.list(name, memoryEntry{name: path.Base(name), dir: true})
	return nil
}

func (m *memory) list(name string, e memoryEntry) {
	dir := path.Dir(name)
	m.dirs[dir] = append(m.dirs[dir], e)
}

func (m *memory) create(name string) (io.WriteCloser, error) {
	if err := m.mkdir(path.Dir(name)); err != nil {
		return nil, err
	}
	return &memoryFile{memory: m, name: name}, nil
}

func (m *memory) close() error { return nil }

// memoryFile is one file while it is written.
type memoryFile struct {
	bytes.Buffer
	memory *memory
	name   string
}

func (f *memoryFile) Close() error {
	data := slices.Clone(f.Bytes())
	f.memory.files[f.name] = data
	f.memory.list(f.name, memoryEntry{name: path.Base(f.name), size: int64(len(data))})
	return nil
}

// memoryEntry describes a file or directory, which has no time and no owner.
type memoryEntry struct {
	name string
	size int64
	dir  bool
}

func (e memoryEntry) Name() string               { return e.name }
func (e memoryEntry) Size() int64                { return e.size }
func (e memoryEntry) IsDir() bool                { return e.dir }
func (e memoryEntry) ModTime() time.Time         { return time.Time{} }
func (e memoryEntry) Sys() any                   { return nil }
func (e memoryEntry) Type() fs.FileMode          { return e.Mode().Type() }
func (e memoryEntry) Info() (fs.FileInfo, error) { return e, nil }

func (e memoryEntry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

func (m *memory) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	if data, ok := m.files[name]; ok {
		return memoryEntry{name: path.Base(name), size: int64(len(data))}, nil
	}
	if _, ok := m.dirs[name]; ok {
		return memoryEntry{name: path.Base(name), dir: true}, nil
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

// Lstat is Stat: there are no links.
func (m *memory) Lstat(name string) (fs.FileInfo, error) { return m.Stat(name) }

// ReadLink fails: there are no links.
func (m *memory) ReadLink(name string) (string, error) {
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
}

func (m *memory) ReadFile(name string) ([]byte, error) {
	info, err := m.Stat(name)
	switch {
	case err != nil:
		return nil, reopened(err)
	case info.IsDir():
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("is a directory")}
	}
	return slices.Clone(m.files[name]), nil
}

func (m *memory) ReadDir(name string) ([]fs.DirEntry, error) {
	info, err := m.Stat(name)
	switch {
	case err != nil:
		return nil, reopened(err)
	case !info.IsDir():
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a directory")}
	}
	return slices.Clone(m.dirs[name]), nil
}

func (m *memory) Open(name string) (fs.File, error) {
	info, err := m.Stat(name)
	if err != nil {
		return nil, reopened(err)
	}
	if info.IsDir() {
		return &openDir{info: info, rest: slices.Clone(m.dirs[name]), name: name}, nil
	}
	return &openFile{Reader: bytes.NewReader(m.files[name]), info: info}, nil
}

// reopened is the error of Stat as that of opening.
func reopened(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return &fs.PathError{Op: "open", Path: at.Path, Err: at.Err}
	}
	return err
}

type openFile struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

type openDir struct {
	info fs.FileInfo
	name string
	rest []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errors.New("is a directory")}
}

// ReadDir lists what was not listed so far.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(d.rest) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.rest) {
		n = len(d.rest)
	}
	list := d.rest[:n]
	d.rest = d.rest[n:]
	return list, nil
}
