// Package reports tells what a bundle says, one format a file. A format only
// renders: it changes no verdict and no exit code, and it verifies nothing,
// which every format says on its first lines.
package reports

import (
	"io"

	"github.com/rackproof/rackproof/evidence"
)

// A Format is one way to tell what a bundle says.
type Format interface {
	// Name is what users type: "text", "json".
	Name() string
	// Render writes the whole report of b, which must have a verdict: its
	// own if it is sealed, or one that the caller derived just now.
	Render(w io.Writer, b *evidence.Bundle) error
}

// Formats lists the formats, the default first.
func Formats() []Format {
	return []Format{
		text{},
		document{},
		html{},
		junit{},
		markdown{},
	}
}
