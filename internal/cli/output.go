package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/reports"
)

// notThere refuses a path that exists, before any work is done for it.
func notThere(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fail(ExitUsage, fmt.Errorf("%s exists, and nothing is overwritten", path), "choose another name, or move the file away")
	}
	return nil
}

// writeNew makes path and fills it, whole or not at all. It never overwrites.
// Until it is whole it has another name, so that what a kill or a full disk
// leaves behind is not taken for the file.
func writeNew(path string, mode fs.FileMode, fill func(io.Writer) error) (err error) {
	if err := notThere(path); err != nil {
		return err
	}
	// In a container every process may have the same id, so that a part which a
	// kill has left must not stand in the way.
	part, file, err := "", (*os.File)(nil), fs.ErrExist
	for n := 0; errors.Is(err, fs.ErrExist); n++ {
		part = filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d-%d.part", filepath.Base(path), os.Getpid(), n))
		file, err = os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		return fmt.Errorf("%s: %w", path, at.Err)
	}
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.Remove(part); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	if err := fill(file); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := publish(part, path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return plainPath(err)
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// publish gives part its final name, which must not exist.
func publish(part, path string) error {
	err := os.Link(part, path)
	if errors.Is(err, fs.ErrExist) {
		return notThere(path)
	}
	if err == nil {
		return nil
	}
	// A filesystem without hard links: the name is taken first, then filled.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return notThere(path)
	}
	if err != nil {
		return plainPath(err)
	}
	if err := errors.Join(file.Close(), os.Rename(part, path)); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// printJSON writes one document, safe to show on a terminal.
func printJSON(w io.Writer, v any) error {
	doc, err := evidence.Encode(v)
	if err != nil {
		return err
	}
	_, err = w.Write(reports.PrintableJSON(doc))
	return err
}
