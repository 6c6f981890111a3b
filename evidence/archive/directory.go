package archive

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// directory is where Extract unpacks to. Files of one directory come one after
// another, and it is opened once for all of them.
type directory struct {
	root   *os.Root
	within *os.Root // the directory of the file before; nil: none
	at     string   // its path
}

// openEmpty opens dir, which must be empty.
func openEmpty(dir string) (*directory, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	list, err := fs.ReadDir(root.FS(), ".")
	if err == nil && len(list) > 0 {
		err = errors.New(dir + " is not empty: it has " + list[0].Name())
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &directory{root: root}, nil
}

func (d *directory) mkdir(name string) error { return d.root.MkdirAll(name, 0o755) }

func (d *directory) create(name string) (io.WriteCloser, error) {
	dir, base := path.Split(name)
	if dir == "" {
		return d.root.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	}
	if dir = path.Clean(dir); d.within == nil || d.at != dir {
		if err := errors.Join(d.leave(), d.mkdir(dir)); err != nil {
			return nil, err
		}
		within, err := d.root.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		d.within, d.at = within, dir
	}
	return d.within.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

func (d *directory) leave() error {
	if d.within == nil {
		return nil
	}
	err := d.within.Close()
	d.within = nil
	return err
}

func (d *directory) close() error { return errors.Join(d.leave(), d.root.Close()) }
