package checks

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// A window of the kernel log is proven by two marks that the check wrote into
// it, or by the boot and a mark: without both the ring was overrun, cleared or
// not readable, and a count of zero would show nothing. A check marks the
// beginning and the end of what it does and then reads the log (markKernel,
// readKernel); Measure takes kernelWindow, and losses of what that holds.

const (
	markBeginStep = "mark-begin"
	markEndStep   = "mark-end"
	kernelStep    = "kernel"
)

// newMark is a nonce that no earlier run has written.
func newMark() string {
	var nonce [8]byte
	rand.Read(nonce[:]) // never fails, by its contract
	return hex.EncodeToString(nonce[:])
}

// kernelArgv is what the steps above run; nil for another step. The mark
// itself goes to tee's stdin, so no argv has it.
func kernelArgv(step string) []string {
	switch step {
	case markBeginStep, markEndStep:
		return []string{"tee", "/dev/kmsg"}
	case kernelStep:
		return []string{"dmesg", "-x"}
	}
	return nil
}

// markKernel writes a mark into the kernel log of every node; it needs root.
// tee repeats it on stdout, which is how Measure knows it.
func markKernel(ctx context.Context, b Bench, step, mark string) error {
	return b.ExecAll(ctx, step, b.Nodes(), func(node string) Command {
		return Command{
			Node: node, Argv: kernelArgv(step),
			Stdin: fmt.Appendf(nil, "rackproof %s %s\n", step, mark),
		}
	})
}

// readKernel reads the kernel log of every node with facility and level.
func readKernel(ctx context.Context, b Bench) error {
	return b.ExecAll(ctx, kernelStep, b.Nodes(), func(node string) Command {
		return Command{Node: node, Argv: kernelArgv(kernelStep)}
	})
}

// kernelRecord is what one printk wrote.
type kernelRecord struct {
	line     int    // of stdout, from 1
	facility string // "kern" for the kernel itself
	level    string // emerg to debug
	at       float64
	timed    bool   // at is known: seconds since the boot
	text     string // its further lines, if any, follow a line end
}

// severe reports whether it is the kernel's own and of level err or worse.
func (r kernelRecord) severe() bool {
	return r.facility == "kern" && slices.Contains([]string{"emerg", "alert", "crit", "err"}, r.level)
}

// recordForm is a line of dmesg -x (util-linux), such as
// "kern  :err   : [   12.345678] text". Since 2.39 the thread or the processor
// may stand behind the time (CONFIG_PRINTK_CALLER).
var recordForm = regexp.MustCompile(`^(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|res[0-3]|local[0-7]|\d+) *:(emerg|alert|crit|err|warn|notice|info|debug) *: ` +
	`(?:\[ *(\d{1,12}\.\d{1,9})\](?: ?\[ *[TC]\d+\])? ?)?(.*)$`)

// kernelRecords are the records of what dmesg -x printed; first is the number
// of its first line. A line without facility and level continues the record
// before it, indented by dmesg, and before the first record it is none.
func kernelRecords(text string, first int) iter.Seq[kernelRecord] {
	return func(yield func(kernelRecord) bool) {
		var record kernelRecord
		var more strings.Builder
		open := false
		emit := func() bool {
			if !open {
				return true
			}
			record.text += more.String()
			more.Reset()
			return yield(record)
		}
		line := first - 1
		for full := range strings.Lines(text) {
			line++
			full = strings.TrimRight(full, "\r\n")
			match := recordForm.FindStringSubmatch(full)
			if match == nil {
				if open {
					more.WriteString("\n" + strings.TrimLeft(full, " \t"))
				}
				continue
			}
			if !emit() {
				return
			}
			record = kernelRecord{line: line, facility: match[1], level: match[2], text: match[4]}
			if match[3] != "" {
				at, err := strconv.ParseFloat(match[3], 64)
				record.at, record.timed = at, err == nil
			}
			open = true
		}
		emit()
	}
}

// kernelWindow is what a node's kernel log holds between two ends.
type kernelWindow struct {
	text        string // whole lines
	first       int    // the number of its first line in stdout
	begin, last int    // the lines of its ends
	out         stepOutput
}

func (w kernelWindow) records() iter.Seq[kernelRecord] { return kernelRecords(w.text, w.first) }

// source is the place of the whole window: a count of zero rests on all of it.
func (w kernelWindow) source() string { return w.out.at("%d-%d", w.begin, w.last) }

// kernelWindow is the node's kernel log between the two marks. It is false,
// and a problem says why, where one of the marks is not proven: what the
// window holds then was logged between them, but is perhaps not all, so that
// counts are lower bounds and zero is none. Rebooted says that the node is
// known to have booted between them.
func (m *collector) kernelWindow(node string, rebooted bool) (kernelWindow, bool) {
	begin, begun := m.mark(markBeginStep, node)
	end, ended := m.mark(markEndStep, node)
	log, whole := m.kernelText(node)
	if !begun && !ended {
		return kernelWindow{out: log.out}, false
	}
	from, to := log.find(begin, begun), log.find(end, ended)
	if whole && begun && ended && (!from.found || !to.found || to.start < from.end) {
		m.report(node, kernelStep, evidence.ClassOutputCut, "the kernel log does not hold both marks: it was overrun, cleared or cut")
		whole = false
	}
	switch {
	case from.found && to.found && to.start >= from.end:
		w := log.between(from, to)
		return w, m.formed(w) && whole
	case from.found && !to.found:
		return log.between(from, log.end()), false
	case to.found && !from.found && begun && (rebooted || !log.fromBoot()):
		// The ring has overwritten what is older than the begin mark as well,
		// or began anew behind it. One that still has the boot never took it.
		return log.between(log.start(), to), false
	}
	return kernelWindow{out: log.out}, false
}

// kernelBoot is the node's kernel log from its boot to the end mark, otherwise
// as kernelWindow.
func (m *collector) kernelBoot(node string) (kernelWindow, bool) {
	end, ended := m.mark(markEndStep, node)
	log, whole := m.kernelText(node)
	to := log.find(end, ended)
	if whole && !log.fromBoot() {
		m.report(node, kernelStep, evidence.ClassOutputCut, "the kernel log does not begin with the boot: its ring was overrun or cleared; log_buf_len= on the kernel's command line makes it longer")
		whole = false
	}
	if whole && ended && !to.found {
		m.report(node, kernelStep, evidence.ClassOutputCut, "the kernel log does not hold the end mark: it was overrun, cleared or cut")
	}
	if !to.found {
		return log.between(log.start(), log.end()), false
	}
	w := log.between(log.start(), to)
	return w, m.formed(w) && whole && ended
}

// Lines that are no further ones of a record and have no form that is read
// here: with the head or the time of a record, or the time of another format
// (dmesg --time-format, --show-delta, --color, journalctl -o short-iso).
const strangeTime = `\s*(?:\x1b\[[0-9;]*m\s*)*(?:\[ *\d+\.\d{6}[^\]]*\]|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d[^\]]*\]|\d{4}-\d\d-\d\dT\d\d:|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )`

var (
	strangeForm   = regexp.MustCompile(`^(?:\s*(?:kern|user|daemon|\d+) *:\s*[a-z]+ *:|` + strangeTime + `|.{0,24}:` + strangeTime + `)`)
	strangeRecord = regexp.MustCompile(`^(?:` + strangeTime + `|\x1b)`)
)

// formed reports the first line of the window that is meant to be a record and
// has no known form: what it says would be passed over.
func (m *collector) formed(w kernelWindow) bool {
	line := w.first - 1
	for text := range strings.Lines(w.text) {
		line++
		text = strings.TrimRight(text, "\r\n")
		match := recordForm.FindStringSubmatch(text)
		if match == nil && strangeForm.MatchString(text) || match != nil && match[3] == "" && strangeRecord.MatchString(match[4]) {
			m.report(w.out.node, kernelStep, evidence.ClassUnparsable, "line %d has no known form of dmesg -x: %q", line, token(text))
			return false
		}
	}
	return true
}

// kernelText is the whole lines of a kernel log.
type kernelText struct {
	out  stepOutput
	text string
}

// refusedForm is what tee says of /dev/kmsg, and dmesg of the ring, to one who
// is not root (dmesg with kernel.dmesg_restrict=1).
var refusedForm = regexp.MustCompile(`(?m): (?:Permission denied|Operation not permitted)\r?$`)

// rootStep is step for one that needs root.
func (m *collector) rootStep(step, node string) (stepOutput, bool) {
	out, ok := m.step(step, node, 0, 1)
	switch {
	case !ok || *out.exit.Code == 0:
		return out, ok
	case refusedForm.Match(out.stderr):
		m.report(node, step, evidence.ClassSudoRefused, "the kernel log is root's: become = \"sudo\" in the executor's block%s", firstLine(out.stderr))
	default:
		m.report(node, step, evidence.ClassExit, "exit status 1, expected 0%s", firstLine(out.stderr))
	}
	return out, false
}

// kernelText is false where the log was not read to its proven end.
func (m *collector) kernelText(node string) (kernelText, bool) {
	out, ok := m.rootStep(kernelStep, node)
	ok = ok && m.wholeLines(out, "stdout", out.stdout)
	text := string(out.stdout)
	return kernelText{out, text[:strings.LastIndexByte(text, '\n')+1]}, ok
}

// logPlace is where a line of a kernel log stands, in bytes and by its number.
type logPlace struct {
	start, end, line int
	found            bool
}

// find is the one record that is the mark and nothing else.
func (l kernelText) find(mark string, known bool) logPlace {
	if !known {
		return logPlace{}
	}
	offset, line := 0, 0
	for text := range strings.Lines(l.text) {
		line++
		if strings.Contains(text, mark) {
			if match := recordForm.FindStringSubmatch(strings.TrimRight(text, "\r\n")); match != nil && match[4] == mark {
				return logPlace{offset, offset + len(text), line, true}
			}
		}
		offset += len(text)
	}
	return logPlace{}
}

func (l kernelText) start() logPlace { return logPlace{} }

func (l kernelText) end() logPlace {
	return logPlace{start: len(l.text), end: len(l.text), line: strings.Count(l.text, "\n") + 1}
}

func (l kernelText) between(from, to logPlace) kernelWindow {
	w := kernelWindow{out: l.out, text: l.text[from.end:to.start], first: from.line + 1, begin: from.line, last: to.line}
	if !from.found {
		w.begin = w.first
	}
	if !to.found {
		w.last = max(to.line-1, w.begin)
	}
	return w
}

// fromBoot reports whether the log begins with the kernel's first words: the
// clock stands at zero until after its banner (linux_banner, init/main.c), and
// a few lines of the architecture may come first.
func (l kernelText) fromBoot() bool {
	for record := range kernelRecords(l.text, 1) {
		switch {
		case record.timed && record.at > 0:
			return false
		case record.facility == "kern" && strings.HasPrefix(record.text, "Linux version "):
			return true
		}
	}
	return false
}

var markForm = regexp.MustCompile(`^rackproof (mark-begin|mark-end) [0-9a-f]{16}\n$`)

// mark is the text of a mark, as tee repeated it.
func (m *collector) mark(step, node string) (string, bool) {
	out, ok := m.rootStep(step, node)
	if !ok {
		return "", false
	}
	if !markForm.Match(out.stdout) || !strings.HasPrefix(string(out.stdout), "rackproof "+step+" ") {
		m.report(node, step, evidence.ClassOutputCut, "stdout is not the mark that was written: %q", token(string(out.stdout)))
		return "", false
	}
	return strings.TrimSuffix(string(out.stdout), "\n"), true
}

// kernelErrors counts the records of the kernel itself with level err or worse
// between the two marks. Where some may be lost, those that were found stand,
// and zero says nothing.
func (m *collector) kernelErrors(node string) (reading, bool) {
	w, whole := m.kernelWindow(node, false)
	whole = m.losses(w, nil) && whole
	count := 0
	for record := range w.records() {
		if record.severe() {
			count++
		}
	}
	return reading{value: float64(count), source: w.source()}, whole || count > 0
}

// lossForm is what the kernel says of lines that it did not log:
// "FUNCTION: 12 callbacks suppressed" (lib/ratelimit.c), and in old releases
// "printk: 12 messages suppressed.".
var lossForm = regexp.MustCompile(`^(?:(\S+): )?\d+ (?:callbacks|messages) suppressed\b`)

// harmlessParam names the functions of which losses says nothing.
var harmlessParam = evidence.Param{
	Name: "harmless", Type: evidence.ParamStrings,
	Doc: "Functions of the kernel, such as audit_printk_skb, whose \"callbacks suppressed\" hide nothing that is counted here. Those of any other make counts lower bounds.",
}

func validateHarmless(names []string) error {
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, " \t\r\n") {
			return fmt.Errorf("harmless has %q as element %d: name a function of the kernel, as its line does", name, i+1)
		}
	}
	return nil
}

// losses reports each function of which the kernel kept lines back in the
// window, unless it is one of harmless, and whether there was none.
func (m *collector) losses(w kernelWindow, harmless []string) bool {
	seen := make(map[string]bool)
	for record := range w.records() {
		match := lossForm.FindStringSubmatch(record.text)
		if match == nil || record.facility != "kern" || slices.Contains(harmless, match[1]) || seen[match[1]] {
			continue
		}
		if seen[match[1]] = true; len(seen) > lossLimit {
			break
		}
		m.report(w.out.node, kernelStep, evidence.ClassOutputCut, "line %d: the kernel kept lines back, so that counts are lower bounds: %q", record.line, token(record.text))
	}
	return len(seen) == 0
}

// lossLimit bounds the problems of one window.
const lossLimit = 8
