package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rackproof/rackproof/checks"
	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/archive"
	"github.com/rackproof/rackproof/reports"
	"github.com/rackproof/rackproof/thresholds"
)

func newLines(w io.Writer) *reports.Printer { return &reports.Printer{W: w} }

// seal measures and judges what the store holds, and seals it.
func seal(store *evidence.Store) (evidence.Verdict, error) {
	results := checks.Measure(checks.Builtin(), store.Plan(), store.Records(), store.FS())
	verdict := thresholds.Judge(store.Plan(), results)
	return verdict, store.Seal(evidence.NewDerived(results, verdict))
}

// archivePath is where the run in dir is packed: beside it. A run that was
// sealed before has a number in its archive's name, so that the archive of
// the earlier seal stays.
func archivePath(dir, run string, records []evidence.Record) string {
	seals := 0
	for _, r := range records {
		if r.Event == evidence.EventReopen {
			seals++
		}
	}
	if seals > 0 {
		run += fmt.Sprintf(".%d", seals+1)
	}
	return filepath.Join(filepath.Dir(filepath.Clean(dir)), run+archive.Suffix)
}

func packFS(fsys fs.FS, records []evidence.Record, path string) error {
	if len(records) == 0 {
		return errors.New("the run has no journal")
	}
	err := writeNew(path, 0o644, func(w io.Writer) error { return archive.Write(w, fsys, records[len(records)-1].Time) })
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return nil
}

// packDir packs the sealed run directory dir.
func packDir(dir, path string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return plainPath(err)
	}
	defer root.Close()
	bundle, err := evidence.Open(root.FS())
	if err != nil {
		return err
	}
	return packFS(root.FS(), bundle.Records, path)
}
