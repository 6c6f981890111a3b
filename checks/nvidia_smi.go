package checks

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// smiTable is what `nvidia-smi --query-gpu=F1,F2,… --format=csv` printed, or
// one of its other queries: a header with units, then a row for each GPU, and
// between them what it has to say about GPUs that it cannot reach.
type smiTable struct {
	rows  []smiRow
	lost  []smiLine // each stands for a GPU that it could not reach
	notes []smiLine // warnings beside what it could list
	none  *smiLine  // where it says that there is no GPU; it says so of lost ones, too
}

// smiLine is a line that is no row.
type smiLine struct {
	stream  string // "stdout" or "stderr"
	line    int    // from 1
	address string // of the GPU that it is about, as pciAddress gives it; may be empty
	text    string
}

// smiColumn is a field of the header: "memory.total [MiB]".
type smiColumn struct{ name, unit string }

// smiRow is what is printed about one GPU.
type smiRow struct {
	line    int // in stdout, from 1
	columns []smiColumn
	cells   []string
}

// smiAlias has the names that one field goes by, in the spelling of the
// header: nvidia-smi takes several names for one field and heads the column
// with one of them, and drivers have renamed some (nvidia-smi
// --help-query-gpu of 470 to 580).
var smiAlias = map[string]string{
	"gpu_name":                 "name",
	"gpu_serial":               "serial",
	"gpu_uuid":                 "uuid",
	"gpu_bus_id":               "pci.bus_id",
	"clocks.gr":                "clocks.current.graphics",
	"clocks.sm":                "clocks.current.sm",
	"clocks.mem":               "clocks.current.memory",
	"pcie.link.gen.current":    "pcie.link.gen.gpucurrent",
	"clocks_throttle_reasons.": "clocks_event_reasons.", // renamed in 535
}

// smiField is the one name of a field.
func smiField(name string) string {
	if known, ok := smiAlias[name]; ok {
		return known
	}
	if group, rest, ok := strings.Cut(name, "."); ok {
		if known, ok := smiAlias[group+"."]; ok {
			return known + rest
		}
	}
	return name
}

// text is a field's value, or the token that stands in its place. Any of the
// field's names will do.
func (r smiRow) text(field string) (value, missing string) {
	i := slices.IndexFunc(r.columns, func(c smiColumn) bool { return c.name == smiField(field) })
	if i < 0 {
		return "", "(no column " + field + ")"
	}
	if cell := r.cells[i]; !smiMissing(cell) {
		return cell, ""
	}
	return "", token(r.cells[i])
}

// number is a field's value in unit, which the header must give; "" is none.
func (r smiRow) number(field, unit string) (value float64, missing string) {
	text, missing := r.text(field)
	if missing != "" {
		return 0, missing
	}
	i := slices.IndexFunc(r.columns, func(c smiColumn) bool { return c.name == smiField(field) })
	if printed := r.columns[i].unit; printed != unit {
		return 0, token(fmt.Sprintf("(%s in %q)", text, printed))
	}
	// Under nounits only the header has it.
	return parseNumber(strings.TrimSuffix(text, " "+unit))
}

// count is a field that counts something: a whole number without a unit. What
// else stands there, below zero above all, would pass under any bound.
func (r smiRow) count(field string) (value float64, missing string) {
	value, missing = r.number(field, "")
	if missing == "" && (value < 0 || value != math.Trunc(value)) {
		text, _ := r.text(field)
		return 0, token(text)
	}
	return value, missing
}

// mask is a field of bits, which is printed as 0x0000000000000004.
func (r smiRow) mask(field string) (bits uint64, missing string) {
	text, missing := r.text(field)
	if missing != "" {
		return 0, missing
	}
	digits, ok := strings.CutPrefix(text, "0x")
	bits, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil {
		return 0, token(text)
	}
	return bits, ""
}

// lost reports whether nvidia-smi says in one of the row's fields that the
// GPU is gone.
func (r smiRow) lost() bool {
	return slices.ContainsFunc(r.cells, func(cell string) bool { return strings.Contains(cell, "GPU is lost") })
}

// smiMissing reports whether a cell stands for a value that there is none of.
// Most are in brackets: [N/A], [Not Supported], [Not Found], [Unknown Error],
// [GPU requires reset], [GPU is lost], [Insufficient Permissions].
func smiMissing(cell string) bool {
	switch strings.ToLower(cell) {
	case "", "n/a", "err!", "nan", "none", "not supported", "not found", "unknown error", "gpu requires reset", "gpu is lost":
		return true
	}
	return strings.HasPrefix(cell, "[")
}

// The limits of one answer, far above what any node has: 64 Ki rows are 16
// GPUs once a second for an hour.
const (
	smiLineLimit   = 16 << 10 // bytes
	smiColumnLimit = 128
	smiRowLimit    = 64 << 10
	smiRemarkLimit = 1 << 10
)

var (
	smiHeaderForm = regexp.MustCompile(`^([a-z][a-z0-9_.]*)(?: \[([^][]+)\])?$`)
	smiLostForm   = regexp.MustCompile(`^(?i:unable to determine the device handle for gpu|gpu is lost)`)
	pciForm       = regexp.MustCompile(`[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]`)
)

// smiFailures are the ways in which the whole of nvidia-smi fails. None of
// them says anything about a GPU.
var smiFailures = []struct {
	form  *regexp.Regexp
	class evidence.Class
}{
	{regexp.MustCompile(`Driver/library version mismatch`), evidence.ClassToolVersion},                                                                    // rc 18
	{regexp.MustCompile(`is not a valid field to query|^Option .* is not recognized|^Invalid combination of input arguments`), evidence.ClassToolVersion}, // rc 2
	{regexp.MustCompile(`^NVIDIA-SMI (has failed|couldn't)|^Failed to initialize NVML`), evidence.ClassToolMissing},                                       // rc 9, 12
}

// parseSMI reads what a query of nvidia-smi printed. The problem has neither
// node nor step; with it there is no table. A GPU that could not be reached is
// none: it stands in the table's lost.
func parseSMI(stdout, stderr []byte) (smiTable, *evidence.Problem) {
	var t smiTable
	var columns []smiColumn
	refuse := func(class evidence.Class, format string, args ...any) (smiTable, *evidence.Problem) {
		return smiTable{}, &evidence.Problem{Class: class, Detail: fmt.Sprintf(format, args...)}
	}
	for _, stream := range []struct {
		name string
		data []byte
	}{{"stderr", stderr}, {"stdout", stdout}} {
		number := 0
		for raw := range bytes.Lines(stream.data) {
			number++
			text := strings.TrimSpace(string(raw))
			if text == "" {
				continue
			}
			if len(text) > smiLineLimit || len(t.rows) == smiRowLimit || len(t.lost)+len(t.notes) == smiRemarkLimit {
				return refuse(evidence.ClassUnparsable, "line %d of %s is beyond what nvidia-smi prints of a node's GPUs", number, stream.name)
			}
			known, failure := t.remark(smiLine{stream: stream.name, line: number, text: text})
			switch {
			case failure != "":
				return refuse(failure, "nvidia-smi: %s", token(text))
			case known || stream.name == "stderr":
				continue // a loader may warn of anything there
			case raw[len(raw)-1] != '\n':
				return refuse(evidence.ClassOutputCut, "stdout ends within line %d", number)
			}
			if columns == nil {
				if columns = smiHeader(text); columns == nil {
					return refuse(evidence.ClassUnparsable, "line %d is not a header of nvidia-smi's CSV: %q", number, token(text))
				}
				continue
			}
			if smiHeader(text) != nil && len(columns) > 1 {
				return refuse(evidence.ClassUnparsable, "line %d is a second header: more than one answer was printed", number)
			}
			cells, ok := smiCells(columns, text)
			if !ok && len(cells) < len(columns) {
				return refuse(evidence.ClassOutputCut, "line %d has %d of %d fields: %q", number, len(cells), len(columns), token(text))
			}
			if !ok {
				return refuse(evidence.ClassUnparsable, "line %d has %d fields and the header %d: %q", number, len(cells), len(columns), token(text))
			}
			t.rows = append(t.rows, smiRow{line: number, columns: columns, cells: cells})
		}
	}
	if len(t.rows) == 0 && len(t.lost) == 0 && t.none == nil {
		return refuse(evidence.ClassOutputCut, "nvidia-smi lists no GPU and does not say that there is none")
	}
	if len(t.rows) > 0 && t.none != nil {
		return refuse(evidence.ClassUnparsable, "nvidia-smi lists %d GPUs and says that there are none", len(t.rows))
	}
	return t, nil
}

// remark keeps a line that is about the listing and no part of it. It returns
// a class where the line says that nvidia-smi itself has failed.
func (t *smiTable) remark(l smiLine) (known bool, failure evidence.Class) {
	for _, f := range smiFailures {
		if f.form.MatchString(l.text) {
			return true, f.class
		}
	}
	switch {
	case smiLostForm.MatchString(l.text):
		// "…for GPU0000:41:00.0: GPU is lost.", "…for GPU0: 0000:41:00.0:
		// Unknown Error" since 560, and with neither.
		l.address, _ = pciAddress(pciForm.FindString(l.text))
		if !slices.ContainsFunc(t.lost, func(other smiLine) bool { return other.text == l.text }) {
			t.lost = append(t.lost, l)
		}
	case strings.EqualFold(l.text, "No devices were found"):
		t.none = &l
	case strings.HasPrefix(l.text, "WARNING:"):
		t.notes = append(t.notes, l)
	default:
		return false, ""
	}
	return true, ""
}

// smiHeader are the columns of a header, or nil: also if one is there twice.
func smiHeader(line string) []smiColumn {
	var columns []smiColumn
	for cell := range strings.SplitSeq(line, ",") {
		match := smiHeaderForm.FindStringSubmatch(strings.TrimSpace(cell))
		if match == nil || len(columns) == smiColumnLimit {
			return nil
		}
		column := smiColumn{name: smiField(match[1]), unit: match[2]}
		if slices.ContainsFunc(columns, func(c smiColumn) bool { return c.name == column.name }) {
			return nil
		}
		columns = append(columns, column)
	}
	return columns
}

// smiCells splits a row. Nothing is quoted, so commas too many are those of
// the product's name.
func smiCells(columns []smiColumn, line string) (cells []string, ok bool) {
	cells = strings.Split(line, ",")
	name := slices.IndexFunc(columns, func(c smiColumn) bool { return c.name == "name" })
	if more := len(cells) - len(columns); more > 0 && name >= 0 {
		cells = slices.Replace(cells, name, name+more+1, strings.Join(cells[name:name+more+1], ","))
	}
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells, len(cells) == len(columns)
}

// pciAddress is the one spelling of a PCI address, 0000:1b:00.0: nvidia-smi
// prints domains of eight digits and capitals, lspci of four and none.
func pciAddress(text string) (string, bool) {
	if text == "" || pciForm.FindString(text) != text {
		return "", false
	}
	domain, rest, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(domain, 16, 32)
	if err != nil {
		return "", false
	}
	return fmt.Sprintf("%04x:%s", number, strings.ToLower(rest)), true
}

// pciCompare orders addresses as the bus does: only domains differ in length.
func pciCompare(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
