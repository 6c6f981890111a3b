package verify

import (
	"fmt"
	"io/fs"
)

// regular is a file system in which nothing can be opened but regular files
// and directories: no link is followed, and no pipe is waited for.
type regular struct{ inner fs.FS }

func (r regular) admit(op, name string) error {
	info, err := fs.Lstat(r.inner, name)
	if err != nil {
		return err
	}
	if mode := info.Mode(); !mode.IsRegular() && !mode.IsDir() {
		return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("%w: neither a regular file nor a directory", fs.ErrInvalid)}
	}
	return nil
}

func (r regular) Open(name string) (fs.File, error) {
	if err := r.admit("open", name); err != nil {
		return nil, err
	}
	return r.inner.Open(name)
}

func (r regular) ReadFile(name string) ([]byte, error) {
	if err := r.admit("open", name); err != nil {
		return nil, err
	}
	return fs.ReadFile(r.inner, name)
}

func (r regular) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(r.inner, name) }
func (r regular) Lstat(name string) (fs.FileInfo, error)     { return fs.Lstat(r.inner, name) }
func (r regular) Stat(name string) (fs.FileInfo, error)      { return fs.Lstat(r.inner, name) }
func (r regular) ReadLink(name string) (string, error)       { return fs.ReadLink(r.inner, name) }
