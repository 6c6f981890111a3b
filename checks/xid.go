package checks

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// xidEvent is something that the NVIDIA driver logged of a GPU, or of a switch
// of its NVLink fabric.
type xidEvent struct {
	code  string  // "79", or "SXID:12028"
	pci   string  // "0000:18:00"; empty where the line does not say
	line  int     // the first one, in the step's stdout
	at    float64 // of the last of them, in seconds since the boot
	timed bool

	// What NVLink 5 says (XIDs 144 to 150).
	unit    string
	subcode int // bits 20 to 25 of the first word
	link    int // -1 where it is of no one link
	status  uint32
	fatal   bool // the driver calls it fatal
}

func (e xidEvent) isSwitch() bool { return strings.HasPrefix(e.code, "SXID:") }

// name is how people call it, such as "XID 79" or "XID 149.4 on link 8".
func (e xidEvent) name() string {
	text, isSwitch := strings.CutPrefix(e.code, "SXID:")
	if isSwitch {
		return "SXid " + text
	}
	text = "XID " + text
	if e.unit != "" {
		text += fmt.Sprintf(".%d", e.subcode)
		if e.link >= 0 {
			text += fmt.Sprintf(" on link %d", e.link)
		}
	}
	return text
}

// same reports whether a line says once more what e says already: one event
// may log a line for each of its units, within a second.
func (e xidEvent) same(next xidEvent) bool {
	return e.code == next.code && e.pci == next.pci && e.unit == next.unit && e.link == next.link && e.status == next.status &&
		e.timed && next.timed && next.at-e.at >= 0 && next.at-e.at <= 1
}

// The forms are those that gpud 4a8de33a recognises, and its tests hold
// (components/accelerator/nvidia/xid and sxid). Only the first number behind
// the address is a code: a process may be called "48".
var (
	xidPCIForm = `(?:PCI:)?((?:[0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2})(?:\.[0-7])?`

	// Of a GPU that is partitioned the driver names the instances, too (kernel_rc.c
	// and journal.c of NVIDIA's open kernel modules).
	xidForm  = regexp.MustCompile(`^NVRM: Xid \(` + xidPCIForm + `(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (\d{1,5})(?:,(.*)|\s*)$`)
	sxidForm = regexp.MustCompile(`^nvidia-nvswitch\d*: SXid \(` + xidPCIForm + `\): (\d{1,5})(?:,(.*)|\s*)$`)
	// A line that is meant to be one of these.
	xidStart  = regexp.MustCompile(`^NVRM: Xid\b`)
	sxidStart = regexp.MustCompile(`^nvidia-nvswitch\d*: SXid\b`)

	nvlink5Form = regexp.MustCompile(`(?:^|,)\s*([A-Z][A-Z0-9_/]*)\s+(Fatal|Non-?[Ff]atal)\s+XC\d+\s+i\d+\s+Link\s+(-?\d{1,4})\s+\((0x[0-9a-fA-F]{1,8})\s+(0x[0-9a-fA-F]{1,8})[^,]*$`)
	fatalForm   = regexp.MustCompile(`(?:^|[\s,])Fatal\b`)

	// XID 79 without its number: on one line, or its address alone with the
	// rest on one of the next lines (nv.c and nv-pci.c of NVIDIA's open kernel
	// modules).
	lostForm      = regexp.MustCompile(`^NVRM: GPU (?:at )?` + xidPCIForm + `: GPU has fallen off the bus\b`)
	lostStartForm = regexp.MustCompile(`^NVRM: The NVIDIA GPU ` + xidPCIForm + `\b`)
	lostEndForm   = regexp.MustCompile(`^(?:NVRM: .*)?\bfallen off the bus\b`)
)

// lostReach is within how many lines XID 79 without its number is told.
const lostReach = 4

// xidReader finds the driver's events in the lines of a kernel log, which it
// is given in order.
type xidReader struct {
	events []xidEvent
	// odd are lines that are meant to be events and have no known form.
	odd []xidOdd
	// full: there were more than eventLimit of them.
	full bool

	lost     string // the address of a GPU of which the rest may follow
	lostLeft int
	lostLine int
}

type xidOdd struct {
	line int
	text string
}

// oddLimit bounds the odd lines that are kept: a few show the form.
const oddLimit = 8

// eventLimit bounds the events of a window. Beyond it the counts are lower
// bounds.
const eventLimit = 1 << 16

// read looks at each line of a record. It does not ask who wrote it: a line
// written to /dev/kmsg by hand shows a site that the check sees one.
func (r *xidReader) read(record kernelRecord) {
	for i, text := range strings.Split(record.text, "\n") {
		r.readLine(record, record.line+i, strings.TrimSpace(text))
	}
}

func (r *xidReader) readLine(record kernelRecord, line int, text string) {
	event := xidEvent{line: line, at: record.at, timed: record.timed, link: -1}
	if r.lostLeft > 0 {
		r.lostLeft--
		if lostEndForm.MatchString(text) && !xidStart.MatchString(text) {
			event.code, event.pci, event.line = "79", r.lost, r.lostLine
			r.lostLeft = 0
			r.add(event)
			return
		}
	}
	if match := xidForm.FindStringSubmatch(text); match != nil {
		event.code, event.pci = plainCode(match[2]), plainPCI(match[1])
		event.readNVLink5(match[3])
		r.add(event)
		return
	}
	if match := sxidForm.FindStringSubmatch(text); match != nil {
		event.code, event.pci = "SXID:"+plainCode(match[2]), plainPCI(match[1])
		event.fatal = fatalForm.MatchString(match[3])
		r.add(event)
		return
	}
	switch {
	case xidStart.MatchString(text), sxidStart.MatchString(text):
		if len(r.odd) < oddLimit {
			r.odd = append(r.odd, xidOdd{line, text})
		}
	case lostForm.MatchString(text):
		event.code, event.pci = "79", plainPCI(lostForm.FindStringSubmatch(text)[1])
		r.add(event)
	case lostStartForm.MatchString(text):
		address := plainPCI(lostStartForm.FindStringSubmatch(text)[1])
		if lostEndForm.MatchString(text) {
			event.code, event.pci = "79", address
			r.add(event)
			return
		}
		r.lost, r.lostLeft, r.lostLine = address, lostReach, line
	case strings.HasPrefix(text, "NVRM: ") && lostEndForm.MatchString(text):
		event.code = "79"
		r.add(event)
	}
}

// add counts the line to the event that it belongs to, or begins one.
func (r *xidReader) add(event xidEvent) {
	for i := len(r.events) - 1; i >= 0 && i >= len(r.events)-eventReach; i-- {
		last := &r.events[i]
		told := event
		if event.pci == "" && last.code == "79" {
			told.pci = last.pci // once more of a GPU that was named
		}
		if last.same(told) {
			last.at = max(last.at, event.at)
			last.fatal = last.fatal || event.fatal
			return
		}
	}
	if len(r.events) == eventLimit {
		r.full = true
		return
	}
	r.events = append(r.events, event)
}

// eventReach is among how many events that of a line is looked for: those of
// 8 GPUs and their links alternate.
const eventReach = 256

// readNVLink5 reads what stands behind the code of an XID, where it has the
// form of NVLink 5: "[pid=…, name=…,] NETIR_LINK_EVT Fatal XC0 i0 Link 08
// (0x004505c6 0x00000000 …)".
func (e *xidEvent) readNVLink5(text string) {
	match := nvlink5Form.FindStringSubmatch(text)
	if match == nil {
		e.fatal = nvlink5Code(e.code) && fatalForm.MatchString(text)
		return
	}
	first, _ := strconv.ParseUint(match[4], 0, 32) // at most eight digits, by its pattern
	second, _ := strconv.ParseUint(match[5], 0, 32)
	link, _ := strconv.Atoi(match[3])
	e.unit, e.fatal = match[1], match[2] == "Fatal"
	e.link, e.subcode, e.status = link, int(first>>20&0x3f), uint32(second)
}

// nvlink5Code reports whether the code is one of those that NVLink 5 brought.
func nvlink5Code(code string) bool {
	n, err := strconv.Atoi(code)
	return err == nil && n >= 144 && n <= 150
}

// plainCode is a number without leading zeros.
func plainCode(digits string) string {
	n, _ := strconv.Atoi(digits) // at most five digits, by its pattern
	return strconv.Itoa(n)
}

// plainPCI is an address without its function as lspci -D spells it: drivers
// leave the domain out, or write it with eight digits.
func plainPCI(address string) string {
	parts := strings.Split(address, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	var numbers [3]uint64
	for i, part := range parts {
		numbers[i], _ = strconv.ParseUint(part, 16, 32) // hexadecimal digits, by its pattern
	}
	return fmt.Sprintf("%04x:%02x:%02x", numbers[0], numbers[1], numbers[2])
}

// primaryReach is how long before an XID 45 the one that it goes with is
// looked for, in seconds.
const primaryReach = 60

// severities are those of the events in order: what the runbook says of a
// code, else the table. XID 45 goes with another one of its GPU, or it is
// alone, and then one to look at (NVIDIA's catalogue, WORKFLOW_XID_45).
func (t xidTable) severities(events []xidEvent, approved map[string]severity) []severity {
	found := make([]severity, len(events))
	primary := make(map[string]xidEvent) // by GPU, the last that others go with
	for i, e := range events {
		given, ruled := approved[e.code]
		switch before, ok := primary[e.pci]; {
		case ruled:
			found[i] = given
		case e.code == "45" && !(ok && e.timed && before.timed && e.at-before.at <= primaryReach):
			found[i] = severityReview
		default:
			found[i] = t.severity(e)
		}
		if e.code != "45" && found[i] != severityNote {
			primary[e.pci] = e
		}
	}
	return found
}
