package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
)

// The bounds of what is read whole, in bytes.
const (
	maxPlanBytes      = 256 << 20
	maxInventoryBytes = 64 << 20
	maxToolBytes      = 1 << 20
	maxVerdictBytes   = 512 << 20
	maxAttemptBytes   = 64 << 20
	maxExitBytes      = 4 << 20
	maxDerivedBytes   = 1 << 30
	maxSourceBytes    = 64 << 20
)

// Bundle is a run as it is read: sealed, or as far as it has come.
type Bundle struct {
	FS        fs.FS
	Run       string
	Plan      *Plan
	PlanBytes []byte
	Records   []Record
	Inventory *Inventory // nil where no node was identified yet
	Tool      *Tool
	Verdict   *Verdict // nil unless sealed
	Sealed    bool
	Signed    bool // there is a signature; whether it is good is for verify
	Torn      bool // the journal's last line is cut off; unsealed runs only
	Newer     bool // a document has a newer minor than this build knows

	// Results is what a caller derived of a run that is not sealed, as it
	// derived the verdict; Open leaves it empty.
	Results []CellResult

	chain chain
}

// Open reads the documents of a run, strictly and within limits. It verifies
// the journal's chain and that it is of this plan, and no other digest.
func Open(fsys fs.FS) (*Bundle, error) {
	b := &Bundle{FS: fsys}
	if err := b.read(); err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	return b, nil
}

func (b *Bundle) read() error {
	var err error
	if b.Sealed, err = present(b.FS, ManifestPath); err != nil {
		return err
	}
	if b.Signed, err = present(b.FS, SignaturePath); err != nil {
		return err
	}
	b.Plan, b.PlanBytes, err = b.readPlan()
	if err != nil {
		return err
	}
	if _, err := indexCells(b.Plan); err != nil {
		return err
	}
	if err := b.readJournal(); err != nil {
		return err
	}
	b.Tool = new(Tool)
	if err := b.document(ToolPath, MediaTool, maxToolBytes, b.Tool); err != nil {
		return err
	}
	b.Inventory = new(Inventory)
	err = b.document(InventoryPath, MediaInventory, maxInventoryBytes, b.Inventory)
	if errors.Is(err, fs.ErrNotExist) {
		b.Inventory = nil
	} else if err != nil {
		return err
	}
	if b.Sealed {
		b.Verdict = new(Verdict)
		return b.document(VerdictPath, MediaVerdict, maxVerdictBytes, b.Verdict)
	}
	return nil
}

func present(fsys fs.FS, p string) (bool, error) {
	_, err := fs.Stat(fsys, p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (b *Bundle) document(p, media string, limit int64, into any) error {
	content, err := readFile(b.FS, p, limit)
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	newer, err := DecodeDocument(content, media, into)
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	b.Newer = b.Newer || newer
	return nil
}

func (b *Bundle) readPlan() (*Plan, []byte, error) {
	content, err := readFile(b.FS, PlanPath, maxPlanBytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w: this is no run directory", PlanPath, err)
	}
	p := new(Plan)
	newer, err := DecodeDocument(content, MediaPlan, p)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", PlanPath, err)
	}
	if err := p.CheckNodes(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", PlanPath, err)
	}
	b.Newer = b.Newer || newer
	return p, content, nil
}

func (b *Bundle) readJournal() error {
	content, err := readFile(b.FS, JournalPath, maxJournalBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", JournalPath, err)
	}
	err = b.chain.read(bytes.NewReader(content))
	if b.Torn, err = tolerateTorn(err, b.Sealed); err != nil {
		return fmt.Errorf("%s: %w", JournalPath, err)
	}
	if len(b.chain.records) == 0 {
		return b.noJournal()
	}
	b.Records = b.chain.records
	if err := matchPlan(b.Records, b.PlanBytes, b.Plan); err != nil {
		return err
	}
	b.Run = b.Records[0].Run
	if last := b.Records[len(b.Records)-1].Event; b.Sealed && last != EventClose {
		return fmt.Errorf("%s ends with %q, and a sealed run ends with %q", JournalPath, last, EventClose)
	}
	return nil
}

// noJournal tells a run that died before its first record from one that has
// lost its journal.
func (b *Bundle) noJournal() error {
	ran, err := present(b.FS, cellsDir)
	if err != nil {
		return err
	}
	if ran || b.Sealed {
		return fmt.Errorf("%s has no whole line, and there is what a run leaves: the journal was lost, so nothing here can be judged", JournalPath)
	}
	return ErrNeverStarted
}

// tolerateTorn takes a torn tail for what it is in a run that is not sealed.
func tolerateTorn(err error, sealed bool) (torn bool, _ error) {
	var journal *JournalError
	if !sealed && errors.As(err, &journal) && journal.Torn {
		return true, nil
	}
	return false, err
}

// matchPlan checks that the records are of this plan and its cells.
func matchPlan(records []Record, planBytes []byte, p *Plan) error {
	if digest := DigestOf(planBytes); records[0].Plan != digest {
		return fmt.Errorf("%s is %s, and the journal was begun for %s: the plan was replaced", PlanPath, digest, records[0].Plan)
	}
	known := make(map[string]struct{}, len(p.Cells))
	for _, c := range p.Cells {
		known[c.ID] = struct{}{}
	}
	for _, r := range records {
		if _, found := known[r.Cell]; r.Cell != "" && !found {
			return fmt.Errorf("journal line %d: cell %q is not in the plan", r.Seq+1, r.Cell)
		}
	}
	return nil
}

// Measurements are all measurements and facts of the run in its order: of a
// sealed one as run/measurements.jsonl has them, which is read line by line,
// since a large run has millions; else those of Results. An error is the last
// that it yields, and what came before it is not the whole.
func (b *Bundle) Measurements() iter.Seq2[MeasurementLine, error] {
	if !b.Sealed {
		return b.derived
	}
	return func(yield func(MeasurementLine, error) bool) {
		f, _, err := openFile(b.FS, MeasurementsPath, maxDerivedBytes)
		if err != nil {
			yield(MeasurementLine{}, fmt.Errorf("%s: %w", MeasurementsPath, err))
			return
		}
		defer f.Close()
		readMeasurements(f, yield)
	}
}

func (b *Bundle) derived(yield func(MeasurementLine, error) bool) {
	if b.Results == nil {
		yield(MeasurementLine{}, errors.New("the run is not sealed, and its raw files were not measured"))
		return
	}
	for _, line := range NewDerived(b.Results, Verdict{}).Measurements {
		if !yield(line, nil) {
			return
		}
	}
}

// ManifestDigest is the digest of manifest.json, which stands for every byte
// of a sealed run; empty where the run is not sealed.
func (b *Bundle) ManifestDigest() (Digest, error) {
	if !b.Sealed {
		return "", nil
	}
	content, err := readFile(b.FS, ManifestPath, MaxManifestBytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", ManifestPath, err)
	}
	return DigestOf(content), nil
}

// ApprovalFiles names the files that may be approvals. Nothing of them is
// read.
func (b *Bundle) ApprovalFiles() []string {
	var files []string
	for _, name := range entries(b.FS, ApprovalsDir) {
		if p := ApprovalsDir + "/" + name; Unlisted(p) {
			files = append(files, p)
		}
	}
	return files
}

// Sources reads the enclosed files of the runbook, by the paths that the plan
// gives them, and checks their digests.
func (b *Bundle) Sources() (map[string][]byte, error) {
	sources := make(map[string][]byte, len(b.Plan.Sources))
	for _, source := range b.Plan.Sources {
		place := RunbookDir + "/" + SourcePath(source.Path)
		content, err := readFile(b.FS, place, maxSourceBytes)
		if err != nil {
			return nil, fmt.Errorf("source %s: %s: %w", source.Path, place, err)
		}
		if digest := DigestOf(content); digest != source.Digest {
			return nil, fmt.Errorf("source %s: %s is %s, and the plan has %s", source.Path, place, digest, source.Digest)
		}
		sources[source.Path] = content
	}
	return sources, nil
}

// RawFS reads the raw folder of one attempt. An attempt without files has an
// empty one.
func RawFS(fsys fs.FS, cell string, attempt int) (fs.FS, error) {
	dir := AttemptPath(cell, attempt) + "/raw"
	if err := ValidPath(dir); err != nil {
		return nil, fmt.Errorf("raw files of %s attempt %d: %w", cell, attempt, err)
	}
	raw, err := fs.Sub(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("raw files of %s attempt %d: %w", cell, attempt, err)
	}
	return raw, nil
}
