package evidence

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// MeasurementLine is one line of run/measurements.jsonl: one measurement or
// one fact.
type MeasurementLine struct {
	Cell        string       `json:"cell"`
	Attempt     int          `json:"attempt"`
	Measurement *Measurement `json:"measurement,omitempty"`
	Fact        *Fact        `json:"fact,omitempty"`
}

// Derived is what anyone may derive again from a run: it is kept for reading,
// and nothing relies on it.
type Derived struct {
	Measurements []MeasurementLine
	Verdict      Verdict
}

// NewDerived lists the measurements and facts of results in their order, and
// gives v its media type.
func NewDerived(results []CellResult, v Verdict) Derived {
	lines := []MeasurementLine{}
	for _, cell := range results {
		for _, a := range cell.Attempts {
			for i := range a.Measurements {
				lines = append(lines, MeasurementLine{Cell: cell.Cell.ID, Attempt: a.Number, Measurement: &a.Measurements[i]})
			}
			for i := range a.Facts {
				lines = append(lines, MeasurementLine{Cell: cell.Cell.ID, Attempt: a.Number, Fact: &a.Facts[i]})
			}
		}
	}
	v.MediaType, v.Minor = MediaVerdict, Minor
	return Derived{Measurements: lines, Verdict: v}
}

func (d Derived) writeMeasurements(w io.Writer) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	for i := range d.Measurements {
		if err := e.Encode(&d.Measurements[i]); err != nil {
			return err
		}
	}
	return b.Flush()
}

// readMeasurements yields the lines of run/measurements.jsonl.
func readMeasurements(r io.Reader, yield func(MeasurementLine, error) bool) {
	b := bufio.NewReaderSize(r, 1<<16)
	var buffer []byte
	for n := 1; ; n++ {
		text, err := readLine(b, &buffer)
		if err == io.EOF && len(text) == 0 {
			return
		}
		if err == io.EOF {
			err = errors.New("the line has no end")
		}
		var line MeasurementLine
		if err == nil {
			err = DecodeStrict(text, &line)
		}
		if err == nil && (line.Measurement == nil) == (line.Fact == nil) {
			err = errors.New("want one measurement or one fact")
		}
		if err != nil {
			yield(MeasurementLine{}, fmt.Errorf("%s line %d: %w", MeasurementsPath, n, err))
			return
		}
		if !yield(line, nil) {
			return
		}
	}
}

// Seal closes the run: it appends the close record unless that is there,
// writes what is derived, then SHA256SUMS and, last and in one step,
// manifest.json, whose presence is what sealed means. A crash before that
// leaves a run that Reopen and Seal finish. A sealed run is not sealed again,
// and neither is one with an attempt that has not ended.
func (s *Store) Seal(d Derived) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.seal(d); err != nil {
		return fmt.Errorf("seal run %s: %w", s.run, err)
	}
	return nil
}

func (s *Store) seal(d Derived) error {
	if err := s.writable(); err != nil {
		return err
	}
	for cell, a := range s.open {
		return fmt.Errorf("%s attempt %d has not ended", cell, a.number)
	}
	signed, err := s.exists(SignaturePath)
	if err != nil {
		return err
	}
	if signed {
		return fmt.Errorf("there is a %s already, and what it signs is not sealed: move it away", SignaturePath)
	}
	if !s.ended() {
		if _, err := s.append(Record{Event: EventClose}); err != nil {
			return err
		}
	}
	if err := s.placeFunc(MeasurementsPath, d.writeMeasurements); err != nil {
		return err
	}
	verdict, err := Encode(d.Verdict)
	if err != nil {
		return err
	}
	if err := s.replace(VerdictPath, verdict); err != nil {
		return err
	}
	m, err := s.manifest()
	if err != nil {
		return err
	}
	// On the disk before the manifest is: no power cut leaves a sealed run
	// without its sums.
	if err := s.replace(SumsPath, encodeSums(m)); err != nil {
		return err
	}
	content, err := encodeManifest(m)
	if err != nil {
		return err
	}
	if len(content) > MaxManifestBytes {
		return fmt.Errorf("the manifest of %d files has %d bytes, over the limit of %d", len(m.Files), len(content), MaxManifestBytes)
	}
	if err := s.root.RemoveAll(tempDir); err != nil {
		return err
	}
	// The lock's own file becomes the manifest: one rename seals the run and
	// gives it free, so that no crash can leave a sealed run with a lock that
	// its manifest does not list.
	if err := replaceContent(s.lock, content); err != nil {
		return fmt.Errorf("write %s: %w", ManifestPath, err)
	}
	if err := s.root.Rename(lockPath, ManifestPath); err != nil {
		return err
	}
	s.sealed = true
	return s.syncDir(".")
}

// ended reports whether the journal ends with close.
func (s *Store) ended() bool {
	n := len(s.journal.chain.records)
	return n > 0 && s.journal.chain.records[n-1].Event == EventClose
}

// manifest hashes every file as it lies on the disk now.
func (s *Store) manifest() (Manifest, error) {
	l := lister{fsys: s.FS(), nodes: s.nodesOf()}
	w := walker{
		visit: l.visit,
		skip: func(p string) bool {
			return p == lockPath || p == tempDir || p == SumsPath || p == ApprovalsDir
		},
		// A death between making a directory and its first file leaves one.
		prune: s.root.Remove,
	}
	if err := w.walk(l.fsys); err != nil {
		return Manifest{}, err
	}
	if len(l.files) > MaxFiles {
		return Manifest{}, fmt.Errorf("%d files are over the limit of %d", len(l.files), MaxFiles)
	}
	slices.SortFunc(l.files, func(x, y ManifestEntry) int { return strings.Compare(x.Path, y.Path) })
	for i := range l.files {
		var random [saltBytes]byte
		if _, err := rand.Read(random[:]); err != nil {
			return Manifest{}, fmt.Errorf("salt: %w", err)
		}
		l.files[i].Salt = hexSalt(random[:])
	}
	return Manifest{MediaType: MediaManifest, Minor: Minor, Files: l.files}, nil
}

// nodesOf gives directories to the one node whose output they hold: those of
// captures here, those of steps as the attempts are listed.
func (s *Store) nodesOf() map[string]string {
	nodes := map[string]string{}
	for _, r := range s.journal.chain.records {
		if r.Event == EventCapture && r.Path != "" {
			nodes[r.Path] = r.Node
		}
	}
	return nodes
}

// lister makes manifest entries of the files that it visits.
type lister struct {
	fsys  fs.FS
	nodes map[string]string // by directory
	files []ManifestEntry
}

func (l *lister) visit(p string, size int64) error {
	f, err := l.fsys.Open(p)
	if err != nil {
		return err
	}
	sum := sha256.New()
	hashed, err := io.Copy(sum, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	if hashed != size {
		return fmt.Errorf("%s has changed from %d to %d bytes: something else writes to it", p, size, hashed)
	}
	role := roleOf(p)
	if role == "attempt" {
		if err := l.readSteps(p); err != nil {
			return err
		}
	}
	l.files = append(l.files, ManifestEntry{
		Path: p, Size: size, SHA256: DigestFromSum(sum.Sum(nil)).Hex(),
		Role: role, Node: l.nodes[path.Dir(p)],
	})
	return nil
}

// readSteps learns the nodes of an attempt's directories. attempt.json comes
// before raw in lexical order. One that cannot be read is listed all the same:
// what it means is for Results to say.
func (l *lister) readSteps(p string) error {
	content, err := readFile(l.fsys, p, maxAttemptBytes)
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	var a Attempt
	if _, err := DecodeDocument(content, MediaAttempt, &a); err != nil {
		return nil
	}
	dir := path.Dir(p)
	if len(a.Nodes) == 1 {
		l.nodes[dir] = a.Nodes[0]
		l.nodes[dir+"/raw"] = a.Nodes[0]
	}
	for _, step := range a.Steps {
		l.nodes[dir+"/raw/"+step.Dir] = step.Node
	}
	return nil
}

// roleOf names what a file is, from where it is.
func roleOf(p string) string {
	top, rest, _ := strings.Cut(p, "/")
	name := path.Base(p)
	raw := map[string]string{"stdout": "-stdout", "stderr": "-stderr", "exit.json": "-exit"}[name]
	switch {
	case strings.HasPrefix(p, RunbookDir+"/"):
		return "runbook"
	case strings.HasPrefix(p, sealsDir+"/"):
		return "seal"
	case strings.HasPrefix(p, tornPrefix):
		return "torn"
	case top == "run":
		base, _, _ := strings.Cut(rest, ".")
		return base // plan, tool, inventory, journal, measurements, verdict
	case top == capturesDir:
		return "capture" + raw
	case top == cellsDir && name == "attempt.json":
		return "attempt"
	case top == cellsDir:
		return "raw" + raw
	}
	return "other"
}
