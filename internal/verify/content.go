package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/attest"
)

// maxDocument bounds one document that is read whole, in bytes. The plan of
// 1,000 nodes and 200 tests is near 15 MB.
const maxDocument = 512 << 20

// content is what could be read of a run, document by document: where one is
// damaged the others still serve the steps that need them.
type content struct {
	fsys fs.FS

	plan      *evidence.Plan
	planBytes []byte
	planErr   error
	// newer says that a document is of a minor version that this build does
	// not know, so that steps 4 to 6 cannot be checked.
	newer bool

	records      []evidence.Record
	journalErr   error
	inventory    *evidence.Inventory
	inventoryErr error
	verdict      *evidence.Verdict
	verdictBytes []byte
	verdictErr   error
	manifest     map[string]evidence.ManifestEntry // nil if it cannot be read
}

func read(fsys fs.FS) *content {
	c := &content{fsys: fsys}
	if c.planBytes, c.planErr = c.file(evidence.PlanPath); c.planErr == nil {
		c.planErr = checkTests(c.planBytes)
	}
	if c.planErr == nil {
		c.plan, c.planBytes, c.planErr = document[evidence.Plan](c, evidence.PlanPath, evidence.MediaPlan)
	}
	if c.planErr == nil {
		if c.planErr = c.plan.CheckNodes(); c.planErr != nil {
			c.plan = nil
		}
	}
	c.inventory, _, c.inventoryErr = document[evidence.Inventory](c, evidence.InventoryPath, evidence.MediaInventory)
	c.verdict, c.verdictBytes, c.verdictErr = document[evidence.Verdict](c, evidence.VerdictPath, evidence.MediaVerdict)
	c.records, c.journalErr = c.journal()
	if data, err := c.file(evidence.ManifestPath); err == nil {
		if m, _, err := evidence.ReadManifest(data); err == nil {
			c.manifest = make(map[string]evidence.ManifestEntry, len(m.Files))
			for _, entry := range m.Files {
				c.manifest[entry.Path] = entry
			}
		}
	}
	return c
}

// maxTests bounds the tests of a plan: a hundred times those of the largest
// acceptance that we know. An empty one takes three bytes of a document and
// hundreds in memory, and every step looks at each.
const maxTests = 20_000

// checkTests refuses a plan of too many tests before it is decoded.
func checkTests(data []byte) error {
	if bytes.Count(data, []byte("{")) <= maxTests {
		return nil
	}
	var plan struct {
		Tests []json.RawMessage `json:"tests"`
	}
	// What cannot be decoded is said where it is decoded for good.
	if err := json.Unmarshal(data, &plan); err == nil && len(plan.Tests) > maxTests {
		return fmt.Errorf("it has %d tests: at most %d are read", len(plan.Tests), maxTests)
	}
	return nil
}

// file reads one file of bounded size.
func (c *content) file(path string) ([]byte, error) {
	info, err := fs.Stat(c.fsys, path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxDocument {
		return nil, fmt.Errorf("%s has %d bytes: at most %d are read", path, info.Size(), int64(maxDocument))
	}
	return fs.ReadFile(c.fsys, path)
}

func document[T any](c *content, path, media string) (*T, []byte, error) {
	data, err := c.file(path)
	if err != nil {
		return nil, nil, err
	}
	into := new(T)
	newer, err := evidence.DecodeDocument(data, media, into)
	if err != nil {
		return nil, data, err
	}
	c.newer = c.newer || newer
	return into, data, nil
}

func (c *content) journal() ([]evidence.Record, error) {
	data, err := c.file(evidence.JournalPath)
	if err != nil {
		return nil, err
	}
	records, _, err := evidence.ReadJournal(bytes.NewReader(data))
	return records, err
}

// journalFailure is the failure of a journal that could not be read whole.
func journalFailure(err error) attest.Failure {
	f := attest.Failure{
		Code:    CodeJournal,
		Path:    evidence.JournalPath,
		Message: "the journal cannot be read: " + err.Error(),
		Next:    "each line carries the digest of the line before it: compare this file with another copy of the bundle",
	}
	var at *evidence.JournalError
	if errors.As(err, &at) {
		f.Path = fmt.Sprintf("%s:%d", evidence.JournalPath, at.Line)
		f.Message = "this line is damaged, dropped, moved or added: " + at.Err.Error()
	}
	return f
}

// testOf is the test of each cell, by the cell's name; a cell of a test that
// the plan does not have is not there.
func (c *content) testOf() map[string]*evidence.Test {
	byName := make(map[string]*evidence.Test, len(c.plan.Tests))
	for i := range c.plan.Tests {
		byName[c.plan.Tests[i].Name] = &c.plan.Tests[i]
	}
	byCell := make(map[string]*evidence.Test, len(c.plan.Cells))
	for _, cell := range c.plan.Cells {
		if t, known := byName[cell.Test]; known {
			byCell[cell.ID] = t
		}
	}
	return byCell
}

// setOf is the folded node set of each cell, by the cell's name.
func (c *content) setOf() map[string]string {
	sets := make(map[string]string, len(c.plan.Cells))
	for _, cell := range c.plan.Cells {
		sets[cell.ID] = cell.Nodes
	}
	return sets
}

// run is the run's id as the journal says it.
func (c *content) run() string {
	if len(c.records) == 0 {
		return ""
	}
	return c.records[0].Run
}
