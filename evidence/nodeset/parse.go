package nodeset

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

type parser struct {
	text    string
	pos     int
	groups  func(string) ([]string, bool)
	written int // names written out by all terms so far
}

// set reads the whole text: term { operator term }.
func (p *parser) set() ([]string, error) {
	p.blanks()
	if p.pos == len(p.text) {
		return nil, &Error{Length: len(p.text), Summary: "Empty node set", Detail: "There is no name here. Write at least one, such as \"gpu001\" or \"gpu[001-032]\"."}
	}
	result := newOrdered()
	operator, at := byte(','), p.pos
	for {
		names, err := p.term(operator, at)
		if err != nil {
			return nil, err
		}
		result.apply(operator, names)
		if len(result.names) > MaxNames {
			return nil, tooMany(0, len(p.text))
		}
		p.blanks()
		if p.pos == len(p.text) {
			break
		}
		operator, at = p.text[p.pos], p.pos
		if !isOperator(operator) {
			return nil, p.unexpected()
		}
		p.pos++
		p.blanks()
	}
	if len(result.names) == 0 {
		return nil, &Error{Length: len(p.text), Summary: "Empty node set", Detail: "No name is left after the operators \"!\" and \"&\" have been applied."}
	}
	return result.names, nil
}

func isOperator(c byte) bool { return c == ',' || c == '!' || c == '&' }

func (p *parser) blanks() {
	for p.pos < len(p.text) && (p.text[p.pos] == ' ' || p.text[p.pos] == '\t') {
		p.pos++
	}
}

// unexpected explains the character at pos, which can neither go on with the
// term nor begin the next.
func (p *parser) unexpected() error {
	r, size := utf8.DecodeRuneInString(p.text[p.pos:])
	switch r {
	case ']':
		return &Error{Offset: p.pos, Length: 1, Summary: "Unopened bracket", Detail: "This \"]\" closes a bracket that was never opened."}
	case '@':
		return &Error{Offset: p.pos, Length: 1, Summary: "Group inside a name", Detail: "\"@\" begins the name of a group and stands at the beginning of a term. Separate the terms with \",\", \"!\" or \"&\"."}
	}
	if before := p.pos; before > 0 && (p.text[before-1] == ' ' || p.text[before-1] == '\t') && (nameByte(p.text[before]) || r == '[') {
		return &Error{Offset: p.pos, Length: size, Summary: "Missing operator", Detail: "Two terms are only separated by blanks. Write \",\" between them."}
	}
	e := badCharacter(p.pos, r)
	e.Length = size
	return e
}

// term reads one term. The operator before it, at the byte at, is named where
// the term is missing.
func (p *parser) term(operator byte, at int) ([]string, error) {
	if p.pos == len(p.text) || isOperator(p.text[p.pos]) {
		if p.pos < len(p.text) && at == p.pos {
			return nil, &Error{Offset: p.pos, Length: 1, Summary: "Missing name", Detail: fmt.Sprintf("A node set begins with a name, not with %q.", p.text[p.pos])}
		}
		return nil, &Error{Offset: at, Length: 1, Summary: "Missing name", Detail: fmt.Sprintf("A name, a pattern or a group has to follow this %q.", operator)}
	}
	if p.text[p.pos] == '@' {
		return p.group()
	}
	return p.pattern()
}

func (p *parser) group() ([]string, error) {
	start := p.pos
	p.pos++
	for p.pos < len(p.text) && groupByte(p.text[p.pos]) {
		p.pos++
	}
	name := p.text[start+1 : p.pos]
	fail := func(summary, detail string) ([]string, error) {
		return nil, &Error{Offset: start, Length: p.pos - start, Summary: summary, Detail: detail}
	}
	if name == "" {
		return fail("Missing group name", "The name of a group has to follow this \"@\".")
	}
	if p.groups == nil {
		return fail("Group not allowed", "No groups are known here. Write the names of the nodes.")
	}
	names, ok := p.groups(name)
	if !ok {
		return fail("Unknown group", fmt.Sprintf("There is no group named %q.", name))
	}
	for _, n := range names {
		if err := checkName(n); err != nil {
			detail := err.Error()
			if e := (*Error)(nil); errors.As(err, &e) {
				detail = e.Detail
			}
			return fail("Group with a bad name", fmt.Sprintf("The group %q holds the name %q. %s", name, n, detail))
		}
	}
	if err := p.write(uint64(len(names)), start); err != nil {
		return nil, err
	}
	return names, nil
}

func groupByte(c byte) bool { return nameByte(c) || c == '=' || c == ':' || c == '/' }

// write counts n names that the term since start is about to write out.
func (p *parser) write(n uint64, start int) error {
	if n > MaxNames {
		return tooMany(start, p.pos-start)
	}
	if p.written += int(n); p.written > maxWritten {
		return &Error{Length: len(p.text), Summary: "Too many names", Detail: fmt.Sprintf("The terms of this set write out more than %d names in all. Name each node once.", maxWritten)}
	}
	return nil
}

func tooMany(offset, length int) *Error {
	return &Error{Offset: offset, Length: length, Summary: "Too many names", Detail: fmt.Sprintf("A set has at most %d names.", MaxNames)}
}

// piece is a literal or a bracket of a pattern.
type piece struct {
	literal string
	ranges  []numbers // a bracket, unless empty
}

// numbers is one range: from low to high in steps, written with a least
// width.
type numbers struct {
	low, high, step uint64
	width           int
}

func (n numbers) count() uint64 { return (n.high-n.low)/n.step + 1 }

func (p *parser) pattern() ([]string, error) {
	start := p.pos
	var pieces []piece
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case nameByte(c):
			from := p.pos
			for p.pos < len(p.text) && nameByte(p.text[p.pos]) {
				p.pos++
			}
			pieces = append(pieces, piece{literal: p.text[from:p.pos]})
			continue
		case c == '[':
			ranges, err := p.bracket()
			if err != nil {
				return nil, err
			}
			pieces = append(pieces, piece{ranges: ranges})
			continue
		}
		break
	}
	if p.pos == start {
		return nil, p.unexpected()
	}
	if p.pos < len(p.text) && !isOperator(p.text[p.pos]) && p.text[p.pos] != ' ' && p.text[p.pos] != '\t' {
		return nil, p.unexpected()
	}
	if c := pieces[0].literal; c != "" && (c[0] == '-' || c[0] == '.') {
		return nil, &Error{Offset: start, Length: 1, Summary: "Name begins with a sign", Detail: fmt.Sprintf("The name %q has to begin with a letter, a digit or \"_\".", p.text[start:p.pos])}
	}

	total, longest := uint64(1), 0
	for _, piece := range pieces {
		if len(piece.ranges) == 0 {
			longest += len(piece.literal)
			continue
		}
		inBracket, widest := uint64(0), 0
		for _, r := range piece.ranges {
			inBracket += min(r.count(), MaxNames+1)
			widest = max(widest, len(pad(r.high, r.width)))
		}
		longest += widest
		// Both factors are small enough for 64 bits: the first is at most
		// MaxNames, the second at most MaxNames+1 a range of a text in memory.
		if total *= inBracket; total > MaxNames {
			return nil, tooMany(start, p.pos-start)
		}
	}
	if longest > maxNameLength {
		return nil, &Error{Offset: start, Length: p.pos - start, Summary: "Name too long", Detail: fmt.Sprintf("A name has at most %d bytes; this one has %d.", maxNameLength, longest)}
	}
	if err := p.write(total, start); err != nil {
		return nil, err
	}
	return expand(pieces, int(total)), nil
}

// expand writes the names of pieces out; the last bracket runs fastest.
func expand(pieces []piece, total int) []string {
	names := make([]string, 0, total)
	var walk func(prefix string, rest []piece)
	walk = func(prefix string, rest []piece) {
		if len(rest) == 0 {
			names = append(names, prefix)
			return
		}
		if len(rest[0].ranges) == 0 {
			walk(prefix+rest[0].literal, rest[1:])
			return
		}
		for _, r := range rest[0].ranges {
			for i, n := r.count(), r.low; i > 0; i, n = i-1, n+r.step {
				walk(prefix+pad(n, r.width), rest[1:])
			}
		}
	}
	walk("", pieces)
	return names
}

// bracket reads "[" range { "," range } "]".
func (p *parser) bracket() ([]numbers, error) {
	start := p.pos
	unclosed := func(end int) error {
		return &Error{Offset: start, Length: end - start, Summary: "Unclosed bracket", Detail: "The range opened by \"[\" is never closed. Write \"]\" after its last number."}
	}
	if !strings.Contains(p.text[start:], "]") {
		return nil, unclosed(len(p.text))
	}
	p.pos++
	var ranges []numbers
	for {
		r, err := p.numbers()
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
		if p.pos == len(p.text) {
			return nil, unclosed(p.pos)
		}
		switch p.text[p.pos] {
		case ',':
			if next := p.text[p.pos+1:]; next != "" && nameByte(next[0]) && !digit(next[0]) {
				return nil, unclosed(p.pos) // the comma stands before another name
			}
			p.pos++
		case ']':
			p.pos++
			return ranges, nil
		case '[':
			return nil, unclosed(p.pos)
		case '/':
			return nil, &Error{Offset: p.pos, Length: 1, Summary: "Step without a range", Detail: "A step stands after a range of two numbers, as in \"1-9/2\"."}
		default:
			r, size := utf8.DecodeRuneInString(p.text[p.pos:])
			return nil, &Error{Offset: p.pos, Length: size, Summary: "Character not allowed in a range", Detail: fmt.Sprintf("Inside brackets there are numbers, \"-\", \",\" and \"/\"; %q is none of them.", r)}
		}
	}
}

// numbers reads one range: low [ "-" high [ "/" step ] ].
func (p *parser) numbers() (numbers, error) {
	start := p.pos
	low, lowText, err := p.number()
	if err != nil {
		return numbers{}, err
	}
	r := numbers{low: low, high: low, step: 1, width: len(lowText)}
	if p.pos == len(p.text) || p.text[p.pos] != '-' {
		return r, nil
	}
	p.pos++
	high, highText, err := p.number()
	if err != nil {
		return numbers{}, err
	}
	r.high = high
	whole := func(summary, detail string) (numbers, error) {
		return numbers{}, &Error{Offset: start, Length: p.pos - start, Summary: summary, Detail: detail}
	}
	if high < low {
		return whole("Reversed range", fmt.Sprintf("The range begins at %s and ends below, at %s. Write the smaller number first.", lowText, highText))
	}
	padded := len(highText) > 1 && highText[0] == '0'
	if len(highText) < len(lowText) || padded && len(highText) != len(lowText) {
		return whole("Mixed padding", fmt.Sprintf("%q has %d digits and %q has %d, so the width of the names is not clear. Pad both to the same width.", lowText, len(lowText), highText, len(highText)))
	}
	if p.pos < len(p.text) && p.text[p.pos] == '/' {
		at := p.pos
		p.pos++
		step, _, err := p.number()
		if err != nil {
			return numbers{}, err
		}
		if step == 0 {
			return numbers{}, &Error{Offset: at, Length: p.pos - at, Summary: "Step of zero", Detail: "A range with the step 0 never ends. Write a step of at least 1."}
		}
		r.step = step
	}
	return r, nil
}

func (p *parser) number() (uint64, string, error) {
	start := p.pos
	for p.pos < len(p.text) && digit(p.text[p.pos]) {
		p.pos++
	}
	text := p.text[start:p.pos]
	if text == "" {
		length := 0
		found := "the end of the text"
		if p.pos < len(p.text) {
			r, size := utf8.DecodeRuneInString(p.text[p.pos:])
			length, found = size, strconv.QuoteRune(r)
		}
		return 0, "", &Error{Offset: start, Length: length, Summary: "Missing number", Detail: fmt.Sprintf("A number has to stand here, not %s.", found)}
	}
	if len(text) > maxDigits {
		return 0, "", &Error{Offset: start, Length: len(text), Summary: "Number too long", Detail: fmt.Sprintf("A number in a range has at most %d digits; this one has %d.", maxDigits, len(text))}
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, "", &Error{Offset: start, Length: len(text), Summary: "Bad number", Detail: err.Error()}
	}
	return n, text, nil
}

func pad(n uint64, width int) string {
	text := strconv.FormatUint(n, 10)
	if missing := width - len(text); missing > 0 {
		return strings.Repeat("0", missing) + text
	}
	return text
}

// ordered is a set that remembers the order in which names came.
type ordered struct {
	names []string
	has   map[string]bool
}

func newOrdered() *ordered { return &ordered{has: map[string]bool{}} }

func (o *ordered) apply(operator byte, names []string) {
	if operator == ',' {
		for _, n := range names {
			if !o.has[n] {
				o.has[n] = true
				o.names = append(o.names, n)
			}
		}
		return
	}
	other := make(map[string]bool, len(names))
	for _, n := range names {
		other[n] = true
	}
	keep := o.names[:0]
	for _, n := range o.names {
		if other[n] == (operator == '&') {
			keep = append(keep, n)
		} else {
			delete(o.has, n)
		}
	}
	o.names = keep
}
