package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/rackproof/rackproof/evidence"
)

// Limits are what an archive may hold beyond its head. A zero means the
// bound that every archive has.
type Limits struct {
	Files     int   // members that are files
	Bytes     int64 // of all files together
	FileBytes int64 // of one file
	HeadBytes int64 // of signature, manifest and sums together
}

const (
	maxBytes          = 1 << 44
	maxSignatureBytes = 16 << 20
	maxApprovalBytes  = 16 << 20
	maxApprovals      = 64
	// A tar archive ends with two zero blocks and is padded with more to a
	// whole record of, by default, 20 blocks.
	endMark    = 2 * 512
	maxPadding = 20 * 512
	// memberBytes is what a member takes beside its content: its header, and
	// what fills its last block.
	memberBytes = 2 * 512
	// keptBytes is about what a file takes in memory beside its content.
	keptBytes = 1 << 10
)

// Extract unpacks an archive into dir, an empty directory. Once it has the
// signature (nil where there is none), the manifest and the sums it calls
// head, which may be nil: what head returns limits the rest, and an error
// ends the work before anything is written.
//
// It takes plain files and directories in ustar headers only, in the order
// that Write gives them, each a path of a bundle that the manifest lists and
// no larger than it says there, in one zstd frame, and nothing before it or
// after its end. What it refuses is an *Error; the files up to there stay in
// dir.
func Extract(r io.Reader, dir string, head func(bundle, manifest, sums []byte) (Limits, error)) error {
	to, err := openEmpty(dir)
	if err != nil {
		return fmt.Errorf("extract archive: %w", err)
	}
	return errors.Join(unpackTo(to, r, maxBytes, head), to.close())
}

// A target is where an archive is unpacked to.
type target interface {
	mkdir(name string) error // and what is above it; it may be there
	create(name string) (io.WriteCloser, error)
	close() error
}

// unpackTo unpacks an archive of at most so many bytes.
func unpackTo(to target, r io.Reader, most int64, head func(bundle, manifest, sums []byte) (Limits, error)) error {
	frame, err := newOneFrame(r)
	if err != nil {
		return refuse(CodeFormat, "", "%w", err)
	}
	z, err := zstd.NewReader(frame,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(windowSize),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		return refuse(CodeFormat, "", "%w", err)
	}
	defer z.Close()
	tail := &tailReader{r: z, most: maxSignatureBytes + evidence.MaxManifestBytes + evidence.MaxSumsBytes + rankApprovals*memberBytes + maxPadding}
	x := extractor{to: to, most: most, frame: frame, stream: tail, tar: tar.NewReader(tail), files: map[string]bool{}, dirs: map[string]bool{}}
	if err := x.head(head); err != nil {
		return err
	}
	for {
		done, err := x.next()
		if err != nil {
			return err
		}
		if done {
			return x.end()
		}
	}
}

type extractor struct {
	to     target
	most   int64 // bytes that may be unpacked
	listed int64 // bytes that the manifest lists
	frame  *oneFrame
	stream *tailReader
	tar    *tar.Reader
	files  map[string]bool // paths so far
	dirs   map[string]bool // those and their parents
	last   string          // file before

	limits    Limits
	sizes     map[string]int64 // by the manifest
	bytes     int64
	approvals int
}

// head reads the first members, hands them to head, and writes them.
func (x *extractor) head(head func(bundle, manifest, sums []byte) (Limits, error)) error {
	var contents [rankApprovals][]byte
	limits := [...]int64{maxSignatureBytes, evidence.MaxManifestBytes, evidence.MaxSumsBytes}
	paths := [...]string{evidence.SignaturePath, evidence.ManifestPath, evidence.SumsPath}
	for at := rankSignature; at < rankApprovals; at++ {
		h, err := x.header()
		if err != nil {
			return err
		}
		if h == nil {
			return refuse(CodeFormat, "", "it ends before its %s", paths[at])
		}
		if at == rankSignature && h.Name == evidence.ManifestPath {
			at = rankManifest // it is not signed
		}
		if h.Typeflag != tar.TypeReg || h.Name != paths[at] {
			return refuse(CodeOrder, h.Name, "want %s here: an archive begins with signature, manifest and sums", paths[at])
		}
		if h.Size > limits[at] {
			return refuse(CodeLimit, h.Name, "%d bytes are over the limit of %d", h.Size, limits[at])
		}
		if contents[at], err = io.ReadAll(x.tar); err != nil {
			return refuse(CodeFormat, h.Name, "%w", err)
		}
		if err := x.claim(h.Name); err != nil {
			return err
		}
	}
	if err := x.setLimits(head, contents); err != nil {
		return err
	}
	if x.listed > x.most || int64(len(x.sizes)) > x.most/keptBytes {
		return ErrTooLarge
	}
	for at, content := range contents {
		if at == rankSignature && content == nil {
			continue
		}
		f, err := x.to.create(paths[at])
		if err == nil {
			_, err = f.Write(content)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return fmt.Errorf("extract %s: %w", paths[at], err)
		}
	}
	return nil
}

func (x *extractor) setLimits(head func(bundle, manifest, sums []byte) (Limits, error), contents [rankApprovals][]byte) error {
	signature, manifest, sums := contents[rankSignature], contents[rankManifest], contents[rankSums]
	if head != nil {
		var err error
		if x.limits, err = head(signature, manifest, sums); err != nil {
			return err
		}
	}
	total := int64(len(signature) + len(manifest) + len(sums))
	if most := x.limits.HeadBytes; most > 0 && total > most {
		return refuse(CodeLimit, "", "signature, manifest and sums have %d bytes, over the limit of %d", total, most)
	}
	x.limits.Files = atMost(x.limits.Files, evidence.MaxFiles)
	x.limits.Bytes = atMost(x.limits.Bytes, maxBytes)
	x.limits.FileBytes = atMost(x.limits.FileBytes, maxFileBytes)
	m, _, err := evidence.ReadManifest(manifest)
	if err != nil {
		return refuse(CodeManifest, evidence.ManifestPath, "%w", err)
	}
	if _, err := evidence.ReadSums(sums); err != nil {
		return refuse(CodeManifest, evidence.SumsPath, "%w", err)
	}
	x.sizes = make(map[string]int64, len(m.Files))
	for _, f := range m.Files {
		x.sizes[f.Path] = f.Size
		x.listed += min(f.Size, maxBytes-x.listed)
	}
	// What the reader of the tar passes over by itself has a bound too, such
	// as directories that come again and again and names too long for ustar.
	members := int64(x.limits.Files) + int64(len(m.Files)) + maxApprovals
	x.stream.most = x.stream.read + min(x.listed+maxApprovals*maxApprovalBytes, x.limits.Bytes) + members*memberBytes + maxPadding
	return nil
}

func atMost[T int | int64](given, bound T) T {
	if given <= 0 || given > bound {
		return bound
	}
	return given
}

// next unpacks one member.
func (x *extractor) next() (done bool, err error) {
	h, err := x.header()
	if err != nil || h == nil {
		return h == nil, err
	}
	if h.Typeflag == tar.TypeDir {
		return false, x.makeDir(strings.TrimSuffix(h.Name, "/"))
	}
	if err := x.claim(h.Name); err != nil {
		return false, err
	}
	if err := x.admit(h); err != nil {
		return false, err
	}
	return false, x.unpack(h)
}

// header reads the next header and checks what does not depend on limits. It
// is nil at the end.
func (x *extractor) header() (*tar.Header, error) {
	h, err := x.tar.Next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if errors.Is(err, errOverrun) {
		return nil, refuse(CodeLimit, "", "%w", err)
	}
	if err != nil {
		return nil, refuse(CodeFormat, "", "%w", err)
	}
	switch {
	case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
		return nil, refuse(CodeType, h.Name, "a member of type %q: only plain files and directories are evidence", h.Typeflag)
	case h.Format != tar.FormatUSTAR || len(h.PAXRecords) > 0:
		return nil, refuse(CodeType, h.Name, "a header of the format %v: only plain ustar is taken, without extensions", h.Format)
	case h.Mode&^0o777 != 0:
		return nil, refuse(CodeType, h.Name, "mode %#o has more than permissions", h.Mode)
	case h.Typeflag == tar.TypeDir && h.Size != 0:
		return nil, refuse(CodeType, h.Name, "a directory with %d bytes", h.Size)
	}
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	if err := evidence.BundlePath(name); err != nil {
		return nil, refuse(CodePath, h.Name, "%w", err)
	}
	return h, nil
}

// claim notes a file, and refuses one that is there, is a directory, or lies
// below a file; and one that is out of order.
func (x *extractor) claim(name string) error {
	if x.files[name] || x.dirs[name] {
		return refuse(CodeDuplicate, name, "the name is there twice")
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if x.files[dir] {
			return refuse(CodeDuplicate, name, "%s is a file and cannot be a directory too", dir)
		}
		if x.dirs[dir] {
			break
		}
	}
	if x.last != "" && !before(x.last, name) {
		return refuse(CodeOrder, name, "it comes after %s", x.last)
	}
	x.files[name] = true
	x.last = name
	x.addDirs(path.Dir(name))
	return nil
}

func (x *extractor) addDirs(dir string) {
	for ; dir != "." && !x.dirs[dir]; dir = path.Dir(dir) {
		x.dirs[dir] = true
	}
}

func (x *extractor) makeDir(name string) error {
	if x.files[name] {
		return refuse(CodeDuplicate, name, "it is a file and cannot be a directory too")
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if x.files[dir] {
			return refuse(CodeDuplicate, name, "%s is a file and cannot be a directory too", dir)
		}
	}
	if len(x.dirs) >= x.limits.Files {
		return refuse(CodeLimit, name, "more than %d directories", x.limits.Files)
	}
	x.addDirs(name)
	if err := x.to.mkdir(name); err != nil {
		return fmt.Errorf("extract %s: %w", name, err)
	}
	return nil
}

// admit holds a file against the limits and the manifest.
func (x *extractor) admit(h *tar.Header) error {
	if len(x.files) > x.limits.Files {
		return refuse(CodeLimit, h.Name, "more than %d files", x.limits.Files)
	}
	if h.Size > x.limits.FileBytes {
		return refuse(CodeLimit, h.Name, "%d bytes are over the limit of %d for one file", h.Size, x.limits.FileBytes)
	}
	if x.bytes += h.Size; x.bytes > x.limits.Bytes {
		return refuse(CodeLimit, h.Name, "all files together are over the limit of %d bytes", x.limits.Bytes)
	}
	if x.bytes > x.most { // by its approvals
		return ErrTooLarge
	}
	if evidence.Unlisted(h.Name) { // an approval: the others have their place in the head
		if x.approvals++; x.approvals > maxApprovals || h.Size > maxApprovalBytes {
			return refuse(CodeLimit, h.Name, "more than %d approvals, or one over %d bytes", maxApprovals, maxApprovalBytes)
		}
		return nil
	}
	size, listed := x.sizes[h.Name]
	if !listed {
		return refuse(CodeExtra, h.Name, "the manifest does not list it")
	}
	if h.Size > size {
		return refuse(CodeLimit, h.Name, "it has %d bytes, and the manifest says %d", h.Size, size)
	}
	return nil
}

func (x *extractor) unpack(h *tar.Header) error {
	f, err := x.to.create(h.Name)
	if err != nil {
		return fmt.Errorf("extract %s: %w", h.Name, err)
	}
	from := source{r: x.tar}
	_, err = io.Copy(f, &from)
	if err := errors.Join(err, f.Close()); err != nil {
		if from.err != nil {
			return refuse(CodeFormat, h.Name, "%w", from.err)
		}
		return fmt.Errorf("extract %s: %w", h.Name, err)
	}
	return nil
}

// source remembers the error of a reader, to tell a bad archive from a full
// disk.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

var errOverrun = errors.New("it unpacks to more than all that it may hold")

// tailReader counts what is read, up to a bound, and the zero bytes at the end
// of it.
type tailReader struct {
	r          io.Reader
	most, read int64
	zeros      int64
}

func (t *tailReader) Read(b []byte) (int, error) {
	if t.read > t.most {
		return 0, errOverrun
	}
	n, err := t.r.Read(b)
	t.read += int64(n)
	content := bytes.TrimRight(b[:n], "\x00")
	if len(content) > 0 {
		t.zeros = 0
	}
	t.zeros += int64(n - len(content))
	return n, err
}

// end takes nothing after the archive but the padding of its last record.
func (x *extractor) end() error {
	rest, err := io.ReadAll(io.LimitReader(x.stream, maxPadding+1))
	switch {
	case err != nil:
		return refuse(CodeTrailing, "", "after its end: %w", err)
	case len(rest) > maxPadding || len(bytes.Trim(rest, "\x00")) > 0:
		return refuse(CodeTrailing, "", "data after its end")
	case x.stream.zeros < endMark:
		return refuse(CodeFormat, "", "it ends without its end mark: it was cut off")
	}
	ended, err := x.frame.ended()
	if err != nil {
		return refuse(CodeFormat, "", "after its end: %w", err)
	}
	if !ended {
		return refuse(CodeTrailing, "", "data after its end: bytes follow its zstd frame")
	}
	return nil
}
