// Package nodeset reads and writes sets of node names in the notation of
// Slurm host lists and ClusterShell: "gpu[001-032,040]!gpu017".
//
// A set is a row of terms, worked off from left to right:
//
//	a,b    the names of a, then those of b that a has not
//	a!b    the names of a that b has not
//	a&b    the names of a that b has too
//
// A term is a name, a pattern with one or more brackets of ranges, or the
// name of a group ("@rack=A3"). A range is "7", "001-032" or, with a step,
// "1-9/2". Padding is part of the name: n1 and n01 are two nodes. A range
// takes its width from its lower bound, as in Slurm, so "[08-100]" is 08, 09,
// 10 … 99, 100; an upper bound that contradicts that width ("[8-010]",
// "[008-10]") is refused.
package nodeset

import (
	"fmt"
	"strings"
)

// MaxNames is the most names that a set may have.
const MaxNames = 65536

const (
	maxNameLength = 255 // of a host name, RFC 1123 section 2.1
	maxDigits     = 18  // of a number in a range; fits in 64 bits
	maxWritten    = 4 * MaxNames
)

// An Error is a node set that cannot be read. Offset and Length are bytes
// inside the text and cover what is wrong.
type Error struct {
	Offset, Length int
	Summary        string // a noun phrase, such as "Unclosed bracket"
	Detail         string // whole sentences: what is wrong, and the remedy
}

// Error renders the error in one line; the position counts from 1.
func (e *Error) Error() string {
	summary := strings.ToLower(e.Summary[:1]) + e.Summary[1:]
	return fmt.Sprintf("node set: %s at byte %d: %s", summary, e.Offset+1, e.Detail)
}

// Parse expands text into names in the order of their first appearance,
// without duplicates. Groups resolves "@name" and may be nil. The error is
// always an *Error.
//
// Nothing is expanded before it has been counted: a set of more than MaxNames
// names is refused, however short its text.
func Parse(text string, groups func(name string) ([]string, bool)) ([]string, error) {
	p := parser{text: text, groups: groups}
	names, err := p.set()
	if err != nil {
		return nil, err
	}
	return names, nil
}

// checkName says why name cannot be the name of a node; nil means that it
// can. A name has 1 to 255 of the characters A-Z a-z 0-9 . _ - and begins
// with a letter, a digit or "_", so that no command can take it for an
// option.
func checkName(name string) error {
	if name == "" {
		return &Error{Summary: "Empty name", Detail: "A node needs a name."}
	}
	if len(name) > maxNameLength {
		return &Error{Length: len(name), Summary: "Name too long", Detail: fmt.Sprintf("A name has at most %d bytes; this one has %d.", maxNameLength, len(name))}
	}
	for i, r := range name {
		if r >= 0x80 || !nameByte(byte(r)) {
			return badCharacter(i, r)
		}
	}
	if name[0] == '-' || name[0] == '.' {
		return &Error{Length: 1, Summary: "Name begins with a sign", Detail: fmt.Sprintf("The name %q has to begin with a letter, a digit or \"_\".", name)}
	}
	return nil
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || digit(c) || c == '.' || c == '_' || c == '-'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func badCharacter(offset int, r rune) *Error {
	return &Error{
		Offset: offset, Length: len(string(r)),
		Summary: "Character not allowed in a name",
		Detail:  fmt.Sprintf("A node's name has letters, digits and the signs \".\", \"_\" and \"-\"; %q is none of them.", r),
	}
}
