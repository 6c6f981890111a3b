package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/reports"
)

// writeNew makes path and fills it, whole or not at all. It never overwrites.
func writeNew(path string, mode fs.FileMode, fill func(io.Writer) error) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) {
		return fail(ExitUsage, fmt.Errorf("%s exists, and nothing is overwritten", path), "choose another name, or move the file away")
	}
	if err != nil {
		return plainPath(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := fill(file); err != nil {
		return errors.Join(err, file.Close())
	}
	return errors.Join(file.Sync(), file.Close())
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
