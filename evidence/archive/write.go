package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rackproof/rackproof/evidence"
)

// maxFileBytes is what the size field of a ustar header holds (POSIX.1-1988:
// eleven octal digits).
const maxFileBytes = 1<<33 - 1

// Write writes the sealed run in fsys. The bytes depend on the files and on
// mtime, in whole seconds, alone; a zero mtime is that of the Unix epoch.
func Write(w io.Writer, fsys fs.FS, mtime time.Time) error {
	if mtime.IsZero() {
		mtime = time.Unix(0, 0)
	}
	if err := write(w, fsys, mtime); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

type member struct {
	path string
	size int64
}

func write(w io.Writer, fsys fs.FS, mtime time.Time) error {
	var members []member
	listed := map[string]bool{}
	err := evidence.Walk(fsys, func(path string, size int64) error {
		if size > maxFileBytes {
			return fmt.Errorf("%s: %d bytes are over the limit of a tar header, %d", path, size, int64(maxFileBytes))
		}
		members = append(members, member{path, size})
		listed[path] = true
		return nil
	})
	if err != nil {
		return err
	}
	if !listed[evidence.ManifestPath] || !listed[evidence.SumsPath] {
		return errors.New("the run is not sealed: it has no manifest.json or no SHA256SUMS")
	}
	sort.Slice(members, func(i, j int) bool { return before(members[i].path, members[j].path) })

	// One goroutine: with more, the blocks could depend on their timing.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowSize), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, m := range members {
		if err := writeMember(t, fsys, m, mtime); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", m.path, err), z.Close())
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func writeMember(t *tar.Writer, fsys fs.FS, m member, mtime time.Time) error {
	f, err := fsys.Open(m.path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg,
		Name:     m.path,
		Size:     m.size,
		Mode:     0o644,
		ModTime:  mtime.Truncate(time.Second),
		Format:   tar.FormatUSTAR,
	})
	if err != nil {
		return err
	}
	copied, err := io.Copy(t, io.LimitReader(f, m.size+1))
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && copied != m.size {
		return errors.New("its size has changed: something else writes to it")
	}
	return err
}
