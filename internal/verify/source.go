package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/archive"
	"github.com/rackproof/rackproof/evidence/attest"
)

// The limits of an archive whose signature does not verify: it is read so
// that what is wrong can be named, and no further.
const (
	maxUnsignedFiles = 200_000
	maxUnsignedBytes = 4 << 30
)

// What may lie beside the files that a manifest lists: signature, manifest,
// sums, and the approvals that the archive's reader takes.
const (
	besideFiles = 3 + 64
	besideBytes = 64 * (16 << 20)
)

func limits(files, bytes int64) archive.Limits {
	return archive.Limits{Files: int(min(files, evidence.MaxFiles)) + besideFiles, Bytes: bytes + besideBytes}
}

// Limits says how much of an archive is read, from its three leading files.
type Limits func(bundle, manifest, sums []byte) (archive.Limits, error)

// SignedLimits are the totals that a trusted operator signed, or
// UnsignedLimits where no such signature verifies.
func SignedLimits(p attest.Policy, at time.Time) Limits {
	return func(bundle, manifest, sums []byte) (archive.Limits, error) {
		step, payload, _, _ := attest.CheckSignature(bundle, manifest, sums, p, at)
		if step.State != attest.OK || payload == nil {
			return UnsignedLimits(bundle, manifest, sums)
		}
		return limits(payload.Files.Count, payload.Files.Bytes), nil
	}
}

// UnsignedLimits are the totals that the manifest itself claims, below fixed
// bounds.
func UnsignedLimits(_, manifest, _ []byte) (archive.Limits, error) {
	m, _, err := evidence.ReadManifest(manifest)
	if err != nil { // the reader refuses it, by name
		return archive.Limits{}, nil
	}
	refuse := func(format string, args ...any) (archive.Limits, error) {
		return archive.Limits{}, &archive.Error{Code: archive.CodeLimit, Path: evidence.ManifestPath, Err: fmt.Errorf(format, args...)}
	}
	var total int64
	for _, entry := range m.Files {
		if entry.Size < 0 || entry.Size > maxUnsignedBytes-total {
			return refuse("more than %d bytes, without a signature that verifies", int64(maxUnsignedBytes))
		}
		total += entry.Size
	}
	if len(m.Files) > maxUnsignedFiles {
		return refuse("%d files, without a signature that verifies: at most %d are read", len(m.Files), maxUnsignedFiles)
	}
	return limits(int64(len(m.Files)), total), nil
}

// Source is a bundle that was opened from a path. Close removes what was
// unpacked.
type Source struct {
	FS       fs.FS
	archived bool
	files    *evidence.RootFS // of root
	root     *os.Root         // nil: all is in memory
	temp     string           // where an archive was unpacked; empty: nowhere
}

// memoryBytes is how many bytes a bundle may have to be unpacked into memory:
// thousands of small files take a disk longer than judging them.
const memoryBytes = 64 << 20

// OpenSource opens the bundle at path: a run directory, or an archive, which
// is unpacked into memory, or where it is large into a private directory of
// its own. No link is followed out of either. An archive that is refused is an
// *archive.Error.
func OpenSource(path string, limits Limits) (*Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		s := &Source{}
		if err := s.open(path); err != nil {
			return nil, err
		}
		return s, nil
	}
	s := &Source{archived: true}
	if info.Mode().IsRegular() { // a pipe can be read once
		err = withFile(path, func(file *os.File) (err error) {
			s.FS, err = archive.Load(file, memoryBytes, limits)
			return err
		})
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, archive.ErrTooLarge) {
			return nil, err
		}
	}
	if s.temp, err = os.MkdirTemp("", "rackproof-bundle-"); err != nil {
		return nil, fmt.Errorf("unpack %s: %w", path, err)
	}
	err = withFile(path, func(file *os.File) error { return archive.Extract(file, s.temp, limits) })
	if err == nil {
		err = s.open(s.temp)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open reads the directory dir.
func (s *Source) open(dir string) (err error) {
	if s.root, err = os.OpenRoot(dir); err != nil {
		return err
	}
	s.files = evidence.NewRootFS(s.root)
	s.FS = regular{s.files}
	return nil
}

// withFile calls unpack with the file at path.
func withFile(path string, unpack func(*os.File) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unpack(file); err != nil {
		return fmt.Errorf("unpack %s: %w", path, err)
	}
	return nil
}

// Close closes the bundle and removes what was unpacked.
func (s *Source) Close() error {
	var err error
	if s.root != nil {
		err = errors.Join(s.files.Close(), s.root.Close())
	}
	if s.temp != "" {
		err = errors.Join(err, os.RemoveAll(s.temp))
	}
	return err
}

// Path verifies the bundle at path: a run directory or an archive. An archive
// that cannot be read is a Report too.
func Path(ctx context.Context, path string, o Options) (report *Report, err error) {
	source, err := OpenSource(path, SignedLimits(o.Policy, o.At))
	var refused *archive.Error
	if errors.As(err, &refused) {
		return refusal(o, refused)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	report, err = Verify(ctx, source.FS, o)
	if err != nil {
		return nil, err
	}
	report.Stock = stock(path, source.archived, report.Signer, o.Policy.Keys)
	return report, nil
}

// stock are the commands that check the same bundle without this program,
// against the key of the verifier's own policy that signed it.
func stock(path string, packed bool, signer attest.Signatory, keys []attest.Key) []string {
	file, write := "operator.pub", []string(nil)
	for _, key := range keys {
		if key.Name == signer.Key {
			file = key.Name + ".pub"
			write = []string{"printf '%s\\n' '" + strings.Join(strings.Split(strings.TrimSpace(string(key.PEM)), "\n"), "' '") + "' > " + file}
		}
	}
	if !packed {
		return append(write, attest.StockCommands(path, file)...)
	}
	const unpacked = "bundle"
	quoted := "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	unpack := "mkdir " + unpacked + " && tar --zstd -xf " + quoted + " -C " + unpacked
	return append(append(write, unpack), attest.StockCommands(unpacked, file)...)
}

// refusal is the report of an archive that could not be read at all: the
// first step failed, and the others had nothing to look at.
func refusal(o Options, refused *archive.Error) (*Report, error) {
	if err := o.Policy.Validate(); err != nil {
		return nil, fmt.Errorf("trust policy %s: %w", o.Policy.Name, err)
	}
	r := newReport(o)
	for i := range stepNames {
		s := newStep(i)
		if i == stepBytes {
			s.fail(attest.Failure{
				Code: refused.Code, Path: refused.Path, Message: "the archive was refused: " + refused.Err.Error(),
				Next: "do not unpack it with another program; ask for another copy of the bundle",
			})
		} else {
			s.leave("the archive was refused")
		}
		r.Steps[i] = s.result("")
	}
	r.Exit = exit(r.Steps, r.Level, o.required(), nil)
	return r, nil
}
