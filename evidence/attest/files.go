package attest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// maxApprovals bounds the files of approvals/.
const maxApprovals = 64

const (
	nextUntrusted = "the evidence was changed after it was sealed: ask for the original"
	nextExtra     = "remove it, or ask for the original: what is not listed is not signed"
	nextRead      = "make it readable and verify again"
	nextSeal      = "seal and sign the run: rackproof sign RUN"
	nextUnsealed  = "go on with it: rackproof resume RUN; or seal it as it is: rackproof sign RUN --as-is --key KEY"
)

// checkFiles is step 1: every byte matches the manifest, SHA256SUMS and the
// manifest agree, and nothing else is there.
func checkFiles(fsys fs.FS, l lists) (StepResult, []string) {
	c := fileCheck{fsys: fsys, listed: make(map[string]evidence.ManifestEntry), refused: make(map[string]bool)}
	if l.unsealed() {
		// Without a list every file would be one too many.
		c.fails.add(Failure{Code: CodeManifest, Path: evidence.ManifestPath, Message: "the run is not sealed: nothing lists its files", Next: nextUnsealed})
		return c.fails.result(1, "files", ""), nil
	}
	c.readManifest(l.manifest)
	c.readSums(l.sums)
	c.walk()
	c.checkContents()
	summary := fmt.Sprintf("%d files, %s, match the manifest and SHA256SUMS, and there is nothing else",
		len(c.listed), evidence.FormatBytes(uint64(c.bytes)))
	return c.fails.result(1, "files", summary), c.approvals
}

type fileCheck struct {
	fsys      fs.FS
	fails     failures
	listed    map[string]evidence.ManifestEntry
	order     []string        // the manifest's order
	refused   map[string]bool // not a regular file, as the walk has said
	bytes     int64
	approvals []string
}

func (c *fileCheck) readManifest(doc document) {
	if doc.err != nil {
		next := nextUntrusted
		if errors.Is(doc.err, fs.ErrNotExist) {
			next = nextSeal
		}
		c.fails.add(Failure{Code: CodeManifest, Path: evidence.ManifestPath, Message: readProblem(doc.err), Next: next})
		return
	}
	m, _, err := evidence.ReadManifest(doc.data)
	if err != nil {
		c.fails.add(Failure{Code: CodeManifest, Path: evidence.ManifestPath, Message: err.Error(), Next: nextUntrusted})
		return
	}
	if len(m.Files) == 0 {
		c.fails.add(Failure{Code: CodeManifest, Path: evidence.ManifestPath, Message: "it lists no files", Next: nextUntrusted})
	}
	for _, entry := range m.Files {
		c.listed[entry.Path] = entry
		c.order = append(c.order, entry.Path)
	}
}

// readProblem words an error of readFile.
func readProblem(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "there is no such file"
	}
	return "cannot be read: " + err.Error()
}

func (c *fileCheck) readSums(doc document) {
	if doc.err != nil {
		c.fails.add(Failure{Code: CodeSums, Path: evidence.SumsPath, Message: readProblem(doc.err), Next: nextUntrusted})
		return
	}
	sums, err := evidence.ReadSums(doc.data)
	if err != nil {
		c.fails.add(Failure{Code: CodeSums, Path: evidence.SumsPath, Message: err.Error(), Next: nextUntrusted})
		return
	}
	for _, name := range c.order {
		entry := c.listed[name]
		sum, both := sums[name]
		switch {
		case !both:
			c.fails.add(Failure{
				Code: CodeSumsDiffer, Path: name, Message: "manifest.json lists it and SHA256SUMS does not",
				Expected: entry.SHA256, Next: nextUntrusted,
			})
		case sum != entry.SHA256:
			c.fails.add(Failure{
				Code: CodeSumsDiffer, Path: name, Message: "manifest.json and SHA256SUMS give different digests",
				Expected: entry.SHA256, Actual: sum, Next: nextUntrusted,
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if _, both := c.listed[name]; !both {
			c.fails.add(Failure{
				Code: CodeSumsDiffer, Path: name, Message: "SHA256SUMS lists it and manifest.json does not",
				Actual: sums[name], Next: nextUntrusted,
			})
		}
	}
}

// walk looks at every entry of the run, without following links.
func (c *fileCheck) walk() {
	for _, err := range joined(evidence.Walk(c.fsys, c.visit)) {
		var entry *evidence.EntryError
		if !errors.As(err, &entry) {
			c.fails.add(Failure{Code: CodeFileRead, Message: "the run cannot be listed: " + err.Error(), Next: nextRead})
			continue
		}
		message := entry.Err.Error()
		if twin := strings.ToLower(entry.Path); twin != entry.Path && c.isListed(twin) {
			message += "; the name differs from " + twin + " in upper and lower case only"
		}
		c.fails.add(Failure{Code: entry.Code, Path: entry.Path, Message: message, Next: nextExtra})
		c.refused[entry.Path] = entry.Code == CodeFileType
	}
}

func (c *fileCheck) isListed(name string) bool {
	_, ok := c.listed[name]
	return ok
}

// visit sorts one regular file: listed, one of those outside the lists, or
// extra.
func (c *fileCheck) visit(name string, _ int64) error {
	switch {
	case c.isListed(name):
	case !evidence.Unlisted(name):
		c.fails.add(Failure{
			Code: CodeFileExtra, Path: name, Message: "neither manifest.json nor the signature covers it", Next: nextExtra,
		})
	case path.Dir(name) == evidence.ApprovalsDir:
		c.approvals = append(c.approvals, name)
		if len(c.approvals) == maxApprovals+1 {
			c.fails.add(Failure{
				Code: CodeLimit, Path: evidence.ApprovalsDir, Message: "too many approvals",
				Expected: fmt.Sprintf("at most %d", maxApprovals), Next: nextExtra,
			})
		}
	}
	return nil
}

// checkContents compares size and digest of every listed file.
func (c *fileCheck) checkContents() {
	for _, name := range c.order {
		entry := c.listed[name]
		c.bytes += entry.Size
		if c.refused[name] {
			continue
		}
		if failure := compareFile(c.fsys, entry); failure != nil {
			c.fails.add(*failure)
		}
	}
}

// compareFile compares sizes first: a file of the wrong size is not hashed.
func compareFile(fsys fs.FS, entry evidence.ManifestEntry) *Failure {
	failed := func(code, message, expected, actual, next string) *Failure {
		return &Failure{Code: code, Path: entry.Path, Message: message, Expected: expected, Actual: actual, Next: next}
	}
	info, err := fs.Lstat(fsys, entry.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return failed(CodeFileMissing, "the manifest lists it and it is not there",
			fmt.Sprintf("%d bytes, sha256 %s", entry.Size, entry.SHA256), "", nextUntrusted)
	}
	if err != nil {
		return failed(CodeFileRead, "cannot be read: "+err.Error(), "", "", nextRead)
	}
	if !info.Mode().IsRegular() {
		return failed(CodeFileType, "only regular files can be evidence", "a regular file", typeWord(info.Mode()), nextUntrusted)
	}
	size := func(actual int64) *Failure {
		return failed(CodeFileChanged, "its size is not that of the manifest",
			fmt.Sprintf("%d bytes", entry.Size), fmt.Sprintf("%d bytes", actual), nextUntrusted)
	}
	if info.Size() != entry.Size {
		return size(info.Size())
	}
	file, err := fsys.Open(entry.Path)
	if err != nil {
		return failed(CodeFileRead, "cannot be read: "+err.Error(), "", "", nextRead)
	}
	defer file.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(file, entry.Size+1))
	if err != nil {
		return failed(CodeFileRead, "cannot be read: "+err.Error(), "", "", nextRead)
	}
	if n != entry.Size {
		return size(n)
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != entry.SHA256 {
		return failed(CodeFileChanged, "its contents are not those of the manifest", "sha256 "+entry.SHA256, "sha256 "+sum, nextUntrusted)
	}
	return nil
}

// typeWord names a kind of directory entry.
func typeWord(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode.IsDir():
		return "a directory"
	}
	return "neither a file nor a directory"
}
