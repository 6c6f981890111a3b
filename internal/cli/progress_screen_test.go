package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/rackproof/rackproof/reports"
)

// emulator is a terminal that knows what the live view may send, and nothing
// else: text, line ends, CR, erase line, cursor up. What a real terminal would
// show in disorder is a fault.
type emulator struct {
	mu            sync.Mutex
	columns, rows int
	lines         []string // from the first that was ever written
	row, column   int
	first         int    // row on which the line at hand began; a wrapped one has several
	pending       string // an unfinished sequence
	faults        []string
	changed       chan struct{} // closed and made anew at each write
}

func newEmulator(columns, rows int) *emulator {
	return &emulator{columns: columns, rows: rows, lines: []string{""}, changed: make(chan struct{})}
}

func (e *emulator) fault(format string, args ...any) {
	e.faults = append(e.faults, fmt.Sprintf(format, args...))
}

func (e *emulator) Write(data []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := e.pending + string(data)
	for text != "" {
		n := e.take(text)
		if n == 0 {
			break
		}
		text = text[n:]
	}
	e.pending = text
	close(e.changed)
	e.changed = make(chan struct{})
	return len(data), nil
}

// take does the first thing that text asks for, and says how long it was; 0
// where it is not whole.
func (e *emulator) take(text string) int {
	switch text[0] {
	case '\r':
		e.column = 0
		return 1
	case '\n':
		e.down()
		e.first = e.row
		return 1
	case '\x1b':
		end := strings.IndexFunc(text, unicode.IsLetter)
		if end < 0 {
			return 0
		}
		e.sequence(text[1 : end+1])
		return end + 1
	}
	for i, r := range text {
		if r == unicode.ReplacementChar && !strings.HasPrefix(text, "\ufffd") {
			return 0 // half a character; the stream is UTF-8
		}
		if i == 0 {
			e.print(r)
			return len(string(r))
		}
	}
	return 0
}

func (e *emulator) down() {
	e.row++
	if e.row == len(e.lines) {
		e.lines = append(e.lines, "")
	}
}

func (e *emulator) sequence(s string) {
	switch {
	case s == "[K":
		if e.column != 0 {
			e.fault("a line is erased from column %d on", e.column)
		}
		e.lines[e.row] = ""
	case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "A"):
		n, err := strconv.Atoi(s[1 : len(s)-1])
		if top := max(0, len(e.lines)-e.rows); err != nil || n < 1 || e.row-n < top {
			e.fault("the cursor goes up by %q from row %d, and the screen begins at row %d", s, e.row, top)
			return
		}
		e.row -= n
		e.first = e.row
	default:
		e.fault("sequence %q", s)
	}
}

// print shows one character. Its width is told by other means than those of
// the program.
func (e *emulator) print(r rune) {
	width := 1
	switch {
	case unicode.IsControl(r):
		e.fault("control character %q", r)
	case unicode.Is(unicode.Mn, r):
		width = 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana):
		width = 2
	}
	shown := 0
	for _, before := range e.lines[e.row] {
		if !unicode.Is(unicode.Mn, before) {
			shown++
			if unicode.In(before, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) {
				shown++
			}
		}
	}
	if shown != e.column {
		e.fault("%q is written at column %d over %q", r, e.column, e.lines[e.row])
		e.lines[e.row] = ""
	}
	if e.column+width > e.columns {
		// Errors and hints come after the view and are never cut: people copy
		// the commands in them.
		if !strings.HasPrefix(e.lines[e.first], "rackproof: ") {
			e.fault("a line is wider than %d columns: %q", e.columns, e.lines[e.row])
		}
		e.down()
		e.column = 0
	}
	e.lines[e.row] += string(r)
	e.column += width
}

// screen gives what is shown, without the empty line of the cursor at its end.
func (e *emulator) screen() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := e.lines
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return append([]string{}, lines...)
}

// check reports what went wrong, and whether the cursor is where a shell would
// begin its prompt.
func (e *emulator) check(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, fault := range e.faults {
		t.Error(fault)
	}
	if e.column != 0 || e.pending != "" || e.lines[e.row] != "" {
		t.Errorf("the cursor is at column %d of %q, after %q", e.column, e.lines[e.row], e.pending)
	}
}

// driver is what a terminal's driver in the kernel does with a line end.
type driver struct{ w io.Writer }

func (d driver) Write(data []byte) (int, error) {
	return d.w.Write([]byte(strings.ReplaceAll(string(data), "\n", "\r\n")))
}

func TestScreen(t *testing.T) {
	terminal := newEmulator(20, 6)
	columns, rows := 20, 6
	s := &screen{w: driver{terminal}, size: func() (int, int) { return columns, rows }}
	block := func(lines ...string) func(int, int) []string { return func(int, int) []string { return lines } }
	shows := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, terminal.screen()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		terminal.check(t)
	}
	s.draw([]string{"plan"}, nil)
	shows("plan")
	s.draw(nil, block("one", "two", "three"))
	shows("plan", "one", "two", "three")
	s.draw(nil, block("1", "2"))
	shows("plan", "1", "2")
	s.draw([]string{"a fail that is too long for this terminal"}, block("1", "2", "3"))
	shows("plan", "a fail that is too", "  long for this", "  terminal", "1", "2", "3")
	io.WriteString(terminal, "^C") // the terminal shows what is typed
	s.draw([]string{"stopping"}, block("1"))
	shows("plan", "a fail that is too", "  long for this", "  terminal", "stopping", "1")
	s.draw(nil, block("1", "2", "3"))
	columns, terminal.columns = 12, 12 // a terminal that has become too small
	s.draw([]string{"rackproof: plain, whole"}, block("1"))
	shows("plan", "a fail that is too", "  long for this", "  terminal", "stopping", "rackproof: p", "lain, whole")
	columns, terminal.columns = 20, 20
	s.draw(nil, block("1", "2"))
	s.leave()
	s.draw([]string{"verdict"}, nil)
	shows("plan", "a fail that is too", "  long for this", "  terminal", "stopping", "rackproof: p", "lain, whole", "1", "2", "verdict")
}

func TestFold(t *testing.T) {
	for _, c := range []struct {
		line    string
		columns int
		want    []string
	}{
		{"", 20, []string{""}},
		{"just fits, it is 20.", 20, []string{"just fits, it is 20."}},
		{"one word more than 20 columns", 20, []string{"one word more than", "  20 columns"}},
		{"aword" + strings.Repeat("x", 30), 20, []string{"aword" + strings.Repeat("x", 15), "  " + strings.Repeat("x", 15)}},
		{strings.Repeat("数", 15), 21, []string{strings.Repeat("数", 10), "  " + strings.Repeat("数", 5)}},
		{strings.Repeat("e\u0301", 25), 20, []string{strings.Repeat("e\u0301", 20), "  " + strings.Repeat("e\u0301", 5)}},
		{strings.Repeat("word ", 40), 20, []string{"word word word word", "  word word word", "  word word word", "  word word word ..."}},
	} {
		if diff := cmp.Diff(c.want, fold(c.line, c.columns)); diff != "" {
			t.Errorf("%q in %d (-want +got):\n%s", c.line, c.columns, diff)
		}
	}
}

func FuzzFold(f *testing.F) {
	f.Add("a 数e\u0301 👩 ❤\ufe0f", 19)
	f.Fuzz(func(t *testing.T, line string, columns int) {
		columns = minColumns - 1 + max(0, columns)%200
		rows := fold(reports.Printable(line), columns)
		if len(rows) > foldRows {
			t.Fatalf("%d rows", len(rows))
		}
		for _, row := range rows {
			if displayWidth(row) > columns {
				t.Fatalf("%q is wider than %d", row, columns)
			}
		}
	})
}

func TestDisplayWidth(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "plain": 5, "naïve": 5, "e\u0301": 1, "数据": 4, "한글": 4, "ｱ": 1, "Ａ": 2, "👩": 2, "❤\ufe0f": 3, "ж": 1, "\U00020000": 2,
	} {
		if got := displayWidth(text); got != want {
			t.Errorf("displayWidth(%q) = %d, want %d", text, got, want)
		}
	}
}

// Where there is no terminal that can do it, there is no live view.
func TestScreenNeedsATerminal(t *testing.T) {
	size := func(columns, rows int) func() (int, int) { return func() (int, int) { return columns, rows } }
	for _, c := range []struct {
		name    string
		process Process
		live    bool
	}{
		{"a terminal", Process{StderrTTY: true, Size: size(80, 24)}, true},
		{"without colour", Process{StderrTTY: true, Size: size(80, 24), Environ: []string{"NO_COLOR=1"}}, true},
		{"the smallest", Process{StderrTTY: true, Size: size(20, 4)}, true},
		{"too narrow", Process{StderrTTY: true, Size: size(19, 24)}, false},
		{"too low", Process{StderrTTY: true, Size: size(80, 3)}, false},
		{"of unknown size", Process{StderrTTY: true, Size: size(0, 0)}, false},
		{"dumb", Process{StderrTTY: true, Size: size(80, 24), Environ: []string{"TERM=dumb"}}, false},
		{"a pipe", Process{Size: size(80, 24)}, false},
		{"nobody knows", Process{StderrTTY: true}, false},
	} {
		if got := newScreen(&c.process) != nil; got != c.live {
			t.Errorf("%s: live is %v", c.name, got)
		}
	}
}

// A pipe gets one plain line an event, and no byte that moves a cursor.
func TestPipesGetPlainLines(t *testing.T) {
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "rackproof", "run", edited(t, "small.runbook.hcl", `"printf"`, hostileTool), "--color", "always", "--dir", filepath.Join(dir, "runs"))
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); Exit(command.ProcessState.ExitCode()) != ExitInconclusive {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for name, out := range map[string]string{"stdout": stdout.String(), "stderr": stderr.String()} {
		for i, b := range []byte(out) {
			if b < ' ' && b != '\n' || b == 0x7f {
				t.Errorf("%s: byte %#x at %d of %q", name, b, i, out)
			}
		}
	}
	var words []string
	for line := range strings.SplitSeq(stderr.String(), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 {
			words = append(words, fields[1])
		}
	}
	want := []string{"plan", "run", "phase", "cell", "gate", "verdict"}
	if diff := cmp.Diff(want, words[:min(len(words), len(want))]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// edited gives a copy of a runbook with something of it replaced.
func edited(t *testing.T, runbook, old, new string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "runbook", runbook))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(old)) {
		t.Fatalf("the runbook does not hold %q", old)
	}
	path := filepath.Join(t.TempDir(), "edited.runbook.hcl")
	if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(old), []byte(new)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// hostileTool is a tool whose name would rewrite the screen, and it is not
// there. Its name is also wide, and has combining characters.
const hostileTool = `"数据中心验收x\u0301\u001b[2J\u001b[9A\r\u202eall pass\u0007"`
