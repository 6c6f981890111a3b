package checks

import (
	"regexp"
	"slices"
	"strings"
)

// What a launcher makes of the output of many processes is taken apart here:
// first into one stream a process, where the launcher says whose bytes they
// are, and then within a stream the lines of NCCL's own log are taken out,
// which other processes write into the middle of a row. Bytes are moved, never
// changed: a row that does not come out whole is refused by its reader.

// ncclPiece is a part of one line of the raw output: up to its end, or less.
type ncclPiece struct {
	text string
	line int // of the raw output, from 1
}

// ncclLine is a line of one stream, put together again.
type ncclLine struct {
	text  string // without its end
	line  int    // of the raw output, where it begins
	whole bool   // it has an end
}

// ncclStream is what one process wrote, as far as that is known.
type ncclStream struct {
	pieces []ncclPiece
}

var (
	ansiColour = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

	// Lines of `kubectl logs` with --prefix and --timestamps, and of journalctl
	// (short and short-iso). The group is the source, if they name one.
	linePrefixes = []*regexp.Regexp{
		regexp.MustCompile(`^\[(pod/[^\]\s]+)\] `),
		regexp.MustCompile(`^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (\S+ [^\s:]+): `),
		regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* (\S+ [^\s:]+): `),
		regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)() ?`),
	}

	// A rank's element under `mpirun -xml` of Open MPI 4.
	xmlElement = regexp.MustCompile(`<std(out|err|diag) rank="(\d+)">`)

	// The tag of `mpirun --tag-output`: "[1,0]<stdout>:" in Open MPI 4, also with
	// the time before it (--timestamp-output) or that alone, "[0]<stdout>:" and
	// "[name,0][host:pid]<stdout>:" in PRRTE.
	rankTag = regexp.MustCompile(`(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}` +
		`(?:\[([^\[\]<>\s]+)\])?|\[([^\[\]<>\s]+)\](?:\[[^\[\]<>\s]+\])?)<std(out|err|diag)>:`)

	// The label of `srun --label`, and that of Hydra's -prepend-rank.
	rankLabel    = regexp.MustCompile(`^(?: *(\d+): |\[(\d+)\] )`)
	labelledHash = regexp.MustCompile(`(?m)^(?: *\d+: |\[\d+\] ) *#`)

	// A line of NCCL's log has logWord in it: its host (whatever is glued before it), process and
	// thread, device, and from where it comes (src/debug.cc, 2.4 to 2.28).
	ncclLogLine = regexp.MustCompile(`(?:\[\d{4}-\d\d-\d\d[ T][\d:.]+\] )?([A-Za-z0-9_.-]*):\d+:\d+ \[\d+\] (?:NCCL INFO |\S+:\d+ (?:\([^()]*\) )?NCCL WARN |[\d.]+ \S+:\d+ NCCL TRACE |NCCL WARN )`)
)

// logWord is in every line of NCCL's log.
const logWord = " NCCL "

// ucxLogLine is a line of UCX, which logs to stdout (ucs_log_default_handler of
// src/ucs/debug/log.c): its time, host, process and thread, and from where it
// comes. It begins with a bracket, as no part of a row does.
var ucxLogLine = regexp.MustCompile(`\[\d{9,11}\.\d{6}\](?: \[[^\[\]\s]+:\d+ *:\d+\])? +\S+:\d+ +UCX +[A-Z]+ `)

// ncclStreams takes raw output apart. The streams are in the order of their
// first bytes.
func ncclStreams(raw []byte) []ncclStream {
	text := string(raw)
	if strings.Contains(text, "\x1b[") {
		text = ansiColour.ReplaceAllString(text, "")
	}
	pieces := splitLines(text)
	pieces = withoutPrefix(pieces)
	var streams []ncclStream
	switch {
	case strings.Contains(text, "<stdout rank=") && xmlElement.MatchString(text):
		streams = xmlStreams(pieces)
	case strings.Contains(text, ">:") && rankTag.MatchString(text):
		streams = taggedStreams(pieces)
	case labelled(pieces):
		streams = labelledStreams(pieces)
	default:
		streams = []ncclStream{{pieces}}
	}
	hosts := ncclHosts(streams)
	for i := range streams {
		for j := range streams[i].pieces {
			p := &streams[i].pieces[j]
			p.text = withoutLog(p.text, hosts)
		}
	}
	return streams
}

func splitLines(text string) []ncclPiece {
	var pieces []ncclPiece
	for line := range strings.Lines(text) {
		if body, ok := strings.CutSuffix(line, "\r\n"); ok {
			line = body + "\n"
		}
		pieces = append(pieces, ncclPiece{line, len(pieces) + 1})
	}
	return pieces
}

// withoutPrefix takes away what a collector of logs puts before each line, if
// it is before every one and always the same but for the time: otherwise there
// is more than one source in it, or it is no prefix.
func withoutPrefix(pieces []ncclPiece) []ncclPiece {
next:
	for _, form := range linePrefixes {
		source, found := "", false
		bare := slices.Clone(pieces)
		for i, p := range pieces {
			if strings.TrimSpace(p.text) == "" {
				continue
			}
			at := form.FindStringSubmatchIndex(p.text)
			if at == nil {
				continue next
			}
			from := p.text[at[2]:at[3]]
			if found && from != source {
				continue next
			}
			source, found = from, true
			bare[i].text = p.text[at[1]:]
		}
		if found {
			return withoutPrefix(bare) // a time may follow a source
		}
	}
	return pieces
}

// splitter keeps the stream of each name that a launcher uses.
type splitter struct {
	streams []ncclStream
	index   map[string]int
}

func (s *splitter) add(name string, p ncclPiece) {
	if p.text == "" {
		return
	}
	i, ok := s.index[name]
	if !ok {
		if s.index == nil {
			s.index = make(map[string]int)
		}
		i = len(s.streams)
		s.index[name] = i
		s.streams = append(s.streams, ncclStream{})
	}
	s.streams[i].pieces = append(s.streams[i].pieces, p)
}

// launcherName is the stream of what no process wrote.
const launcherName = "launcher"

func taggedStreams(pieces []ncclPiece) []ncclStream {
	var s splitter
	current := launcherName
	for _, p := range pieces {
		rest := p.text
		for {
			if !strings.Contains(rest, ">:") {
				break
			}
			at := rankTag.FindStringSubmatchIndex(rest)
			if at == nil {
				break
			}
			s.add(current, ncclPiece{rest[:at[0]], p.line})
			rank := ""
			for _, group := range []int{2, 4} {
				if at[group] >= 0 {
					rank = rest[at[group]:at[group+1]]
				}
			}
			current = rest[at[6]:at[7]] + " " + rank
			rest = rest[at[1]:]
		}
		s.add(current, ncclPiece{rest, p.line})
	}
	return s.streams
}

var xmlEntity = regexp.MustCompile(`&(?:lt|gt|amp|quot|apos|#0*10|#0*13|#0*9);`)

func unescapeXML(text string) string {
	return xmlEntity.ReplaceAllStringFunc(text, func(entity string) string {
		switch strings.ReplaceAll(entity, "#0", "#") {
		case "&lt;":
			return "<"
		case "&gt;":
			return ">"
		case "&amp;":
			return "&"
		case "&quot;":
			return `"`
		case "&apos;":
			return "'"
		case "&#9;":
			return "\t"
		case "&#13;":
			return "\r"
		}
		return "\n"
	})
}

func xmlStreams(pieces []ncclPiece) []ncclStream {
	var s splitter
	name, end := "", "" // of the element that is open
	for _, p := range pieces {
		rest := p.text
		for rest != "" {
			if end == "" {
				at := xmlElement.FindStringSubmatchIndex(rest)
				if at == nil {
					break // outside of the elements there is only the launcher's own
				}
				kind := rest[at[2]:at[3]]
				name, end = kind+" "+rest[at[4]:at[5]], "</std"+kind+">"
				rest = rest[at[1]:]
				continue
			}
			inside, after, closed := strings.Cut(rest, end)
			for line := range strings.Lines(unescapeXML(inside)) {
				s.add(name, ncclPiece{line, p.line})
			}
			if rest = after; closed {
				end = ""
			}
		}
	}
	return s.streams
}

// labelled reports whether the lines have labels: the comments of nccl-tests
// do.
func labelled(pieces []ncclPiece) bool {
	return slices.ContainsFunc(pieces, func(p ncclPiece) bool { return labelledHash.MatchString(p.text) })
}

func labelledStreams(pieces []ncclPiece) []ncclStream {
	var s splitter
	for _, p := range pieces {
		label := rankLabel.FindString(p.text)
		if label == "" {
			s.add(launcherName, p)
			continue
		}
		s.add(strings.Trim(label, " :[]"), ncclPiece{p.text[len(label):], p.line})
	}
	return s.streams
}

// ncclHosts are the names of hosts that are certain: those in the list of
// devices, and those before a line of the log that begins a line, where they
// begin with a letter: a digit could be the end of somebody's number.
func ncclHosts(streams []ncclStream) map[string]bool {
	hosts := make(map[string]bool)
	for _, s := range streams {
		for _, p := range s.pieces {
			if device, ok := readNcclDevice(strings.TrimSpace(p.text)); ok {
				hosts[device.host] = true
			}
			if !strings.Contains(p.text, logWord) {
				continue
			}
			at := ncclLogLine.FindStringSubmatchIndex(p.text)
			if at == nil || at[0] != 0 || at[2] == at[3] {
				continue
			}
			if host := p.text[at[2]:at[3]]; host[0] >= 'A' {
				hosts[host] = true
			}
		}
	}
	return hosts
}

// withoutLog cuts a line of the log off, with the line's end. Where the host's
// name begins is told by the names that are known; if that is not certain the
// text stays as it is, for its reader to refuse.
func withoutLog(text string, hosts map[string]bool) string {
	if strings.Contains(text, " UCX ") {
		if at := ucxLogLine.FindStringIndex(text); at != nil {
			return text[:at[0]]
		}
	}
	if !strings.Contains(text, logWord) {
		return text
	}
	at := ncclLogLine.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	run := text[at[2]:at[3]]
	found := ""
	for host := range hosts {
		if len(host) > len(found) && strings.HasSuffix(run, host) {
			found = host
		}
	}
	if found == "" {
		return text
	}
	for host := range hosts {
		if more, ok := strings.CutSuffix(found, host); ok && more != "" && strings.Trim(more, "0123456789.-") == "" {
			return text // what the longer name has more could be the end of a number
		}
	}
	start := at[0]
	if at[0] == at[2] { // no time before the host
		start = at[3] - len(found)
	} else if run != found {
		return text
	}
	return text[:start]
}

// lines puts the stream's lines together.
func (s ncclStream) lines() []ncclLine {
	var lines []ncclLine
	var text strings.Builder
	line := 0
	for _, p := range s.pieces {
		if p.text == "" {
			continue
		}
		if line == 0 {
			line = p.line
		}
		body, whole := strings.CutSuffix(p.text, "\n")
		text.WriteString(body)
		if whole {
			lines = append(lines, ncclLine{text.String(), line, true})
			text.Reset()
			line = 0
		}
	}
	if text.Len() > 0 {
		lines = append(lines, ncclLine{text.String(), line, false})
	}
	return lines
}
