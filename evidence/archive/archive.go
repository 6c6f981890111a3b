// Package archive is the one file that a sealed run travels in: a ustar
// archive inside zstd, with no folder at the top, the same bytes for the same
// run. Stock tar unpacks it.
//
// The order of its members lets a reader verify in one pass: the signature,
// the manifest and the sums come first, and with them the size of everything
// that follows.
package archive

import (
	"fmt"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// Suffix is what the name of an archive ends with, after the run's name.
const Suffix = ".evidence.tar.zst"

// windowSize bounds the memory of a reader: what Write uses and the most that
// Extract takes.
const windowSize = 8 << 20

// The codes of an Error.
const (
	CodeFormat    = "E-ARCHIVE-FORMAT"    // neither zstd nor ustar, or cut off
	CodeType      = "E-ARCHIVE-TYPE"      // a member that is no plain file or directory
	CodeDuplicate = "E-ARCHIVE-DUPLICATE" // a member that takes another's place
	CodeOrder     = "E-ARCHIVE-ORDER"     // members out of order
	CodeLimit     = "E-ARCHIVE-LIMIT"     // more than what is allowed or announced
	CodeTrailing  = "E-ARCHIVE-TRAILING"  // data after the end
	CodePath      = "E-PATH"              // a member's name that no bundle has
	CodeExtra     = "E-FILE-EXTRA"        // a member that the manifest does not list
	CodeManifest  = "E-MANIFEST"          // the manifest or the sums cannot be read
)

// Error is an archive that was refused. Code is stable.
type Error struct {
	Code string
	Path string // of the member; empty where it is the whole archive
	Err  error
}

// Error is one line: the member and what is wrong with it.
func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("archive: %v", e.Err)
	}
	return fmt.Sprintf("archive: %.300q: %v", e.Path, e.Err)
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(code, path, format string, args ...any) error {
	return &Error{Code: code, Path: path, Err: fmt.Errorf(format, args...)}
}

// The ranks of the first members; members of one rank are sorted bytewise.
const (
	rankSignature = iota
	rankManifest
	rankSums
	rankApprovals
	rankRun
	rankCells
	rankRest
)

func rank(path string) int {
	switch path {
	case evidence.SignaturePath:
		return rankSignature
	case evidence.ManifestPath:
		return rankManifest
	case evidence.SumsPath:
		return rankSums
	}
	top, _, _ := strings.Cut(path, "/")
	switch top {
	case evidence.ApprovalsDir:
		return rankApprovals
	case "run":
		return rankRun
	case "cells":
		return rankCells
	}
	return rankRest
}

// before reports whether the member a comes before b.
func before(a, b string) bool {
	if x, y := rank(a), rank(b); x != y {
		return x < y
	}
	return a < b
}
