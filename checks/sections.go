package checks

import (
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// section is one file out of what `tail -v -n +1 FILE…` or `head -v -n 1
// FILE…` printed.
type section struct {
	text   string
	line   int // of its first line, from 1
	exists bool
}

// sections splits the output at the files' headings, which must come in
// order. The last file is the sentinel: it must be there with a whole line,
// so that nothing before it can have been cut. Every other file that is not
// there must be named on stderr.
func (m *collector) sections(out stepOutput, files ...string) (map[string]section, bool) {
	if !m.wholeLines(out, "stdout", out.stdout) || !m.wholeLines(out, "stderr", out.stderr) {
		return nil, false
	}
	found := make(map[string]section, len(files))
	text := string(out.stdout)
	next, current, start := 0, "", 0
	finish := func(end int) {
		if current == "" {
			return
		}
		s := found[current]
		s.text = text[start:end]
		found[current] = s
	}
	for offset, line := 0, 1; offset < len(text); line++ {
		end := offset + strings.IndexByte(text[offset:], '\n') + 1
		if at := headingOf(text[offset:end], files[next:]); at >= 0 {
			finish(max(offset-1, start)) // without the empty line before a heading
			current, start = files[next+at], end
			next += at + 1
			found[current] = section{line: line + 1, exists: true}
		} else if current == "" {
			m.report(out.node, out.step, evidence.ClassUnparsable, "stdout does not begin with the heading of a file: %q", token(text[:end]))
			return nil, false
		}
		offset = end
	}
	finish(len(text))
	sentinel := files[len(files)-1]
	if s := found[sentinel]; !s.exists || !strings.HasSuffix(s.text, "\n") {
		m.report(out.node, out.step, evidence.ClassOutputCut, "stdout does not end with %s", sentinel)
		return nil, false
	}
	for _, file := range files {
		if !found[file].exists && !strings.Contains(string(out.stderr), file) {
			m.report(out.node, out.step, evidence.ClassOutputCut, "%s is neither in stdout nor named on stderr", file)
			return nil, false
		}
	}
	return found, true
}

func headingOf(line string, files []string) int {
	name, ok := strings.CutPrefix(line, "==> ")
	if !ok {
		return -1
	}
	name, ok = strings.CutSuffix(name, " <==\n")
	if !ok {
		return -1
	}
	for i, file := range files {
		if file == name {
			return i
		}
	}
	return -1
}
