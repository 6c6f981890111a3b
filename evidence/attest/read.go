package attest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/rackproof/rackproof/evidence"
)

// The limits of what is read into memory, in bytes.
const (
	maxBundle    = 16 << 20
	maxStatement = 8 << 20
	maxDocument  = 1 << 30 // journal and verdict
)

var errTooLarge = errors.New("larger than this build reads")

// readFile reads a whole regular file of at most limit bytes.
func readFile(fsys fs.FS, path string, limit int64) ([]byte, error) {
	info, err := fs.Lstat(fsys, path) // before opening, which would wait on a named pipe
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %s, not a regular file", path, typeWord(info.Mode()))
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s: %d bytes: %w", path, info.Size(), errTooLarge)
	}
	file, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: %w", path, errTooLarge)
	}
	return data, nil
}

// document is a file that was read once, or the reason why it was not. What
// is verified is then what is used.
type document struct {
	data []byte
	err  error
}

// lists are the two subjects of the statement.
type lists struct {
	manifest, sums document
}

func readLists(fsys fs.FS) (l lists) {
	l.manifest.data, l.manifest.err = readFile(fsys, evidence.ManifestPath, evidence.MaxManifestBytes)
	l.sums.data, l.sums.err = readFile(fsys, evidence.SumsPath, evidence.MaxSumsBytes)
	return l
}

// unsealed reports whether neither list is there: a run that has not ended, not
// one that was changed.
func (l lists) unsealed() bool {
	return errors.Is(l.manifest.err, fs.ErrNotExist) && errors.Is(l.sums.err, fs.ErrNotExist)
}

// err is why one of the lists is not there.
func (l lists) err() error { return errors.Join(l.manifest.err, l.sums.err) }
