package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

const (
	// minColumns and minRows are the smallest terminal that has room for a
	// live view.
	minColumns, minRows = 20, 4
	// foldRows bounds the rows of one line that is wider than the terminal.
	foldRows = 4
)

// screen is stderr where it is a terminal that can move its cursor. It holds
// a block of lines, which is drawn again in place, below lines that stay.
//
// Whatever ends the program, the terminal is left well: each draw is one write
// that ends at the start of a line below the block, and the cursor is never
// hidden, so that nothing is to be undone. It is not safe for use by many
// goroutines.
type screen struct {
	w     io.Writer
	size  func() (columns, rows int)
	block []string // on the screen, above the cursor
}

// newScreen gives the screen that a live view may be drawn on, or nil:
// then it is plain lines.
func newScreen(p *Process) *screen {
	if !p.StderrTTY || p.Size == nil || p.getenv("TERM") == "dumb" {
		return nil
	}
	s := &screen{w: p.Stderr, size: p.Size}
	if s.small() {
		return nil
	}
	return s
}

// small reports whether the terminal has no room for a live view. One that
// does not know its size has none either.
func (s *screen) small() bool {
	columns, rows := s.size()
	return columns < minColumns || rows < minRows
}

// draw writes lines that stay above the block, and the block anew, unless that
// would change nothing. A terminal that has become too small gets the lines
// alone, as they are.
func (s *screen) draw(stay []string, block func(columns, rows int) []string) {
	columns, rows := s.size()
	if columns < minColumns || rows < minRows {
		s.write(nil, nil) // first: these lines wrap, and would run over the block
		s.write(stay, nil)
		return
	}
	var lines, shown []string
	for _, line := range stay {
		lines = append(lines, fold(line, columns-1)...)
	}
	if block != nil {
		shown = block(columns, rows)
	}
	s.write(lines, shown)
}

// write puts the lines where the block was. Every line is cleared before it is
// written; the first one to be cleared is that of the cursor, where the
// terminal shows what is typed.
func (s *screen) write(stay, block []string) {
	if len(stay) == 0 && slices.Equal(block, s.block) {
		return
	}
	var out strings.Builder
	out.WriteString("\r\x1b[K")
	up(&out, len(s.block))
	for _, line := range slices.Concat(stay, block) {
		out.WriteString("\x1b[K" + line + "\n")
	}
	stale := max(0, len(s.block)-len(stay)-len(block))
	out.WriteString(strings.Repeat("\x1b[K\n", stale))
	up(&out, stale)
	s.block = block
	// A terminal that has gone away must not end a run of many hours.
	_, _ = io.WriteString(s.w, out.String())
}

// leave makes the block lines that stay.
func (s *screen) leave() { s.block = nil }

func up(out *strings.Builder, lines int) {
	if lines > 0 {
		fmt.Fprintf(out, "\x1b[%dA", lines)
	}
}

// clip shortens an escaped line to so many columns.
func clip(line string, columns int) string {
	if displayWidth(line) <= columns {
		return line
	}
	const mark = "..."
	if columns <= len(mark) {
		head, _ := cutAt(line, columns)
		return head
	}
	head, _ := cutAt(line, columns-len(mark))
	return head + mark
}

// fold breaks an escaped line that is wider than so many columns into rows, of
// which all but the first are indented: between words, and inside one that is
// wider than a row by itself.
func fold(line string, columns int) []string {
	const indent = "  "
	var rows []string
	head, rest := cutAt(line, columns)
	for rest != "" && len(rows) < foldRows-1 {
		if i := strings.LastIndexByte(head, ' '); strings.TrimSpace(head[:max(i, 0)]) != "" && rest[0] != ' ' {
			word, _, _ := strings.Cut(head[i+1:]+rest, " ")
			if displayWidth(indent+word) <= columns {
				head, rest = head[:i], head[i+1:]+rest
			}
		}
		rows = append(rows, strings.TrimRight(head, " "))
		head, rest = cutAt(indent+strings.TrimLeft(rest, " "), columns)
	}
	return append(rows, clip(head+rest, columns))
}

// cutAt splits a line after as many characters as fit into so many columns. A
// combining character stays with the one before it.
func cutAt(line string, columns int) (head, rest string) {
	width := 0
	for i, r := range line {
		if width += runeWidth(r); width > columns {
			return line[:i], line[i:]
		}
	}
	return line, ""
}

// displayWidth is how many columns an escaped line takes on a terminal.
func displayWidth(line string) int {
	width := 0
	for _, r := range line {
		width += runeWidth(r)
	}
	return width
}

// wide are the characters of two columns: those that Unicode's UAX #11 calls
// wide or fullwidth, with the blocks of symbols and emoji as a whole. Terminals
// differ about some of these, and a line that is a little short is better than
// one that wraps.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x2300, 0x23ff, 1}, {0x25a0, 0x27bf, 1}, {0x2b00, 0x2bff, 1}, {0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1},
		{0xa960, 0xa97f, 1}, {0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1}, {0xfe10, 0xfe19, 1}, {0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x16fe0, 0x18d8f, 1}, {0x1aff0, 0x1b2ff, 1}, {0x1d300, 0x1d37f, 1}, {0x1f000, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

// emojiStyle asks for the wide form of the character before it.
const emojiStyle = '\ufe0f'

func runeWidth(r rune) int {
	switch {
	case r < 0x300 || r == emojiStyle:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}
