package diag

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/hashicorp/hcl/v2"
)

const mediaDiagnostics = "application/vnd.rackproof.diagnostics.v1+json"

// Document is what JSON writes: the same values that Text shows.
type Document struct {
	MediaType   string       `json:"mediaType"`
	Minor       int          `json:"minor"`
	Valid       bool         `json:"valid"` // no error among the diagnostics
	Errors      int          `json:"errors"`
	Warnings    int          `json:"warnings"`
	Diagnostics []Diagnostic `json:"diagnostics"`
}

// newDocument counts and collects diags.
func newDocument(diags hcl.Diagnostics, files map[string]*hcl.File) Document {
	doc := Document{MediaType: mediaDiagnostics, Diagnostics: From(diags, files)}
	for _, d := range doc.Diagnostics {
		if d.Severity == "warning" {
			doc.Warnings++
		} else {
			doc.Errors++
		}
	}
	doc.Valid = doc.Errors == 0
	return doc
}

// JSON writes diags as one Document, indented, with a line end.
func JSON(w io.Writer, diags hcl.Diagnostics, files map[string]*hcl.File) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(newDocument(diags, files)); err != nil {
		return fmt.Errorf("write diagnostics: %w", err)
	}
	return nil
}
