package reports

import (
	"fmt"
	"io"

	"github.com/rackproof/rackproof/evidence"
)

// document is the json format: one Summary.
type document struct{}

func (document) Name() string { return "json" }

func (document) Render(w io.Writer, b *evidence.Bundle) error {
	s, err := Summarize(b)
	if err != nil {
		return err
	}
	doc, err := evidence.Encode(s)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(PrintableJSON(doc))
	return err
}
