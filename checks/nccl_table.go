package checks

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/evidence"
)

// The table of nccl-tests is read by its own header, in every form from 2019
// (v2.0.0) to 2026 (v2.19.6). The forms were read in src/common.cu and
// src/util.cu of github.com/NVIDIA/nccl-tests, tag by tag.

// ncclTable is what one run of an nccl-tests program printed.
type ncclTable struct {
	header      ncclHeader
	units       bool // the line of units was there and is the expected one
	version     string
	release     string // the release of NCCL that was loaded
	config      map[string]int64
	devices     []ncclDevice
	rows        []ncclRow
	outOfBounds *ncclFooter
	average     *ncclFooter
	closed      bool   // something of the program follows the average
	starting    string // the program's name, where it says so
	concluded   string
	jsonPath    string
	failure     string // the first line of a failure
	faults      []ncclFault
}

// ncclFault is a reason not to take the table for a result.
type ncclFault struct {
	class  evidence.Class
	detail string
}

func (t *ncclTable) fault(class evidence.Class, format string, args ...any) {
	t.faults = append(t.faults, ncclFault{class, fmt.Sprintf(format, args...)})
}

// ncclDevice is one line of the list of devices.
type ncclDevice struct {
	rank, group int
	host        string // up to its first dot, as the program cuts it
	device      int
	bus         string
	name        string
	line        int
}

// ncclFooter is a line below the table.
type ncclFooter struct {
	value  ncclNumber
	judged string // OK or FAILED, or empty
	line   int
}

// ncclNumber is a number as it was printed.
type ncclNumber struct {
	text    string
	value   float64
	half    float64 // half a unit of its last digit
	missing string
	delta   bool // a largest difference stands in its place
}

// ncclHalf is one half of a row: out of place or in place.
type ncclHalf struct {
	time, algbw, busbw, wrong ncclNumber
	p99, cv                   ncclNumber // of single iterations, with -I 1
	blank                     bool       // the half is not there at all
}

// ncclRow is one line of the table.
type ncclRow struct {
	size, count uint64
	dtype, op   string
	root        string
	halves      [2]ncclHalf // in the order of ncclPlaces
	line        int
}

// ncclPlaces are the values of the label place.
var ncclPlaces = [2]string{"out", "in"}

// ncclHeader says where the columns are.
type ncclHeader struct {
	head      []string // size count type redop, and root since 2.13
	half      []string // time … #wrong …, twice in each row
	timestamp bool     // -S 1: two words more at the end
	delta     bool     // up to 2.11 the errors are the largest difference, not how many are wrong
	line      int
}

const (
	ncclWrong   = "#wrong"
	ncclTime    = "time"
	ncclCPUTime = "cputime"
)

// ncclUnits are the columns of a half and their units.
var ncclUnits = map[string]string{
	ncclTime: "(us)", ncclCPUTime: "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)", ncclWrong: "",
	// A build of 2024 and 2025 with copies beside the collective.
	"copybw": "(GB/s)", "sidebw": "(GB/s)",
	"i_min": "(us)", "i_max": "(us)", "i_p99": "(us)", "i_cv%": "(%)",
}

// readNcclHeader reads the words of a header, without its "#".
func readNcclHeader(words []string) (ncclHeader, error) {
	var h ncclHeader
	if n := len(words); words[n-1] == "timestamp" {
		h.timestamp = true
		words = words[:n-1]
	}
	first := slices.IndexFunc(words, func(w string) bool { return w == ncclTime || w == ncclCPUTime })
	if first < 0 {
		return h, fmt.Errorf("the header has no column of time")
	}
	h.head = words[:first]
	if !slices.Equal(h.head, []string{"size", "count", "type", "redop", "root"}) && !slices.Equal(h.head, []string{"size", "count", "type", "redop"}) {
		return h, fmt.Errorf("the header begins with the columns %q, which are not those of an all-reduce", h.head)
	}
	rest := slices.Clone(words[first:])
	for i, word := range rest {
		if word == "error" {
			rest[i], h.delta = ncclWrong, true
		}
	}
	if len(rest)%2 != 0 || !slices.Equal(rest[:len(rest)/2], rest[len(rest)/2:]) {
		return h, fmt.Errorf("the header does not have the same columns out of place and in place: %q", rest)
	}
	h.half = rest[:len(rest)/2]
	for i, column := range h.half {
		if _, known := ncclUnits[column]; !known {
			return h, fmt.Errorf("the header has the unknown column %q", column)
		}
		if slices.Index(h.half, column) != i {
			return h, fmt.Errorf("the header has the column %q twice in one half", column)
		}
	}
	for _, column := range []string{"algbw", "busbw", ncclWrong} {
		if !slices.Contains(h.half, column) {
			return h, fmt.Errorf("the header has no column %q", column)
		}
	}
	return h, nil
}

// unitWords are the words of the line below the header.
func (h ncclHeader) unitWords() []string {
	words := []string{"(B)", "(elements)"}
	for range 2 {
		for _, column := range h.half {
			if unit := ncclUnits[column]; unit != "" {
				words = append(words, unit)
			}
		}
	}
	if h.timestamp {
		words = append(words, "%Y-%m-%d", "%H:%M:%S")
	}
	return words
}

func (h ncclHeader) width() int {
	width := len(h.head) + 2*len(h.half)
	if h.timestamp {
		width += 2
	}
	return width
}

// The forms of what the program prints. A failure may follow the beginning of a
// row on its line (the macros CUDACHECK, NCCLCHECK and TESTCHECK of
// src/common.h, and -T).
var (
	ncclDeviceForm = regexp.MustCompile(`^#\s+Rank\s+(\d{1,7})(?:\s+Group\s+(\d{1,9}))?(?:\s+Pid\s+\d+)? on\s+(.+?) device\s+(\d{1,4}) \[([0-9a-fA-Fx:]+)\] (.+)$`)
	ncclFooterForm = regexp.MustCompile(`^# (Out of bounds values|Avg bus bandwidth)\s+: (\S+)(?: (OK|FAILED))?$`)
	ncclTrace      = regexp.MustCompile(`^\.\. \S+ pid \d+: Test failure `)
	ncclConfigForm = regexp.MustCompile(`(nThread|nGpus|minBytes|maxBytes|warmup iters:|iters:|agg iters:|validation:) (\d{1,18})`)
	ncclFailure    = regexp.MustCompile(`: Test (?:CUDA|NCCL) failure \S|: Test timeout \(\d+s\)|(?:^| )\.\. \S+ pid \d+: Test failure `)
	ncclVersions   = regexp.MustCompile(`^nccl-tests version (\S+) nccl-headers=\d+ nccl-library=(\d{1,9})$`)
	ncclLoaded     = regexp.MustCompile(`^NCCL version (\d+\.\d+\.\d+)`)
	ncclRowStart   = regexp.MustCompile(`^[0-9.,]+(?:\s+[0-9.,]+(?:\s|$)|$)`)
	ncclInteger    = regexp.MustCompile(`^(0|[1-9]\d{0,18})$`)
	ncclDecimal    = regexp.MustCompile(`^(?:0|[1-9]\d*)(?:\.(\d+))?(?:e([+-]\d\d\d?))?$`)
	ncclNotNumber  = regexp.MustCompile(`(?i)^(?:-?nan|-?inf|N/A)$`)
	// A replayed trace has no result out of place, and 32 blanks there.
	ncclBlankHalf = regexp.MustCompile(`^ *\S+ +\S+ +\S+ +\S+ +\S+ {32,}\S`)
	ncclStampDay  = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	ncclStampTime = regexp.MustCompile(`^\d\d:\d\d:\d\d$`)
)

func readNcclDevice(line string) (ncclDevice, bool) {
	if !strings.HasPrefix(line, "#") || !strings.Contains(line, " device ") {
		return ncclDevice{}, false
	}
	match := ncclDeviceForm.FindStringSubmatch(line)
	if match == nil {
		return ncclDevice{}, false
	}
	d := ncclDevice{host: strings.TrimSpace(match[3]), bus: match[5], name: match[6]}
	d.rank, _ = strconv.Atoi(match[1])
	d.group, _ = strconv.Atoi(match[2]) // there is one group where none is named
	d.device, _ = strconv.Atoi(match[4])
	return d, true
}

// ncclRelease is NCCL_VERSION_CODE as a release: 22105 is 2.21.5, and up to 2.8
// 2708 was 2.7.8 (src/nccl.h.in).
func ncclRelease(code int64) string {
	if code < 10000 {
		return fmt.Sprintf("%d.%d.%d", code/1000, code/100%10, code%100)
	}
	return fmt.Sprintf("%d.%d.%d", code/10000, code/100%100, code%100)
}

// readNcclTable reads what one run printed, whatever a launcher made of it.
// Faults are among the table's own; rows are those that came out whole.
func readNcclTable(raw []byte) ncclTable {
	var t ncclTable
	tables := 0
	for _, stream := range ncclStreams(raw) {
		lines := stream.lines()
		if !slices.ContainsFunc(lines, ncclSpeaks) {
			continue
		}
		if slices.ContainsFunc(lines, ncclHeads) {
			tables++
		}
		if tables > 1 {
			break
		}
		for _, line := range lines {
			t.read(line)
		}
	}
	switch {
	case tables > 1:
		// None of them is the result of all ranks.
		return ncclTable{failure: t.failure, faults: []ncclFault{{evidence.ClassUnparsable,
			"more than one process printed a table: each ran a test of its own, as a program does that was built without MPI"}}}
	case t.header.half == nil && t.failure == "":
		t.fault(evidence.ClassUnparsable, "there is no header of nccl-tests in the output")
	}
	t.settleDeltas()
	return t
}

// settleDeltas says how many elements are wrong where the rows have the largest
// differences: none, if the program found each within what it allows the type
// (DeltaMaxValue in src/common.cu, up to 2.11), and otherwise nobody knows.
func (t *ncclTable) settleDeltas() {
	if !t.header.delta || t.outOfBounds == nil || t.outOfBounds.value.text != "0" {
		return
	}
	for i := range t.rows {
		for place := range t.rows[i].halves {
			if wrong := &t.rows[i].halves[place].wrong; wrong.delta {
				wrong.missing = ""
			}
		}
	}
}

// ncclSpeaks reports whether a line may be the program's own.
func ncclSpeaks(l ncclLine) bool {
	text := strings.TrimSpace(l.text)
	return strings.HasPrefix(text, "#") || ncclFails(text) || ncclLoaded.MatchString(text)
}

func ncclFails(text string) bool {
	return strings.Contains(text, ": Test ") && ncclFailure.MatchString(text)
}

func ncclHeads(l ncclLine) bool {
	words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(l.text), "#"))
	return len(words) > 3 && (words[0] == "size" && words[1] == "count" || words[0] == "bytes" && words[1] == "N")
}

// footed reports whether the table is over.
func (t *ncclTable) footed() bool { return t.outOfBounds != nil || t.average != nil }

// saysFailed reports whether text, behind a whole table that has failed, only
// says so again: newer releases end each process with a line of its own then.
func (t *ncclTable) saysFailed(text string) bool {
	return t.outOfBounds != nil && t.average != nil && ncclTrace.MatchString(text) &&
		(t.outOfBounds.judged == "FAILED" || t.average.judged == "FAILED")
}

func (t *ncclTable) read(l ncclLine) {
	text := strings.TrimSpace(l.text)
	switch {
	case text == "":
		t.closed = t.closed || t.average != nil && l.whole
		return
	case ncclFails(text):
		if t.failure == "" && !t.saysFailed(text) {
			t.failure = text
		}
		return
	case !l.whole:
		if strings.HasPrefix(text, "#") || t.header.half != nil && !t.footed() {
			t.fault(evidence.ClassOutputCut, "line %d ends within itself: %q", l.line, token(text))
		}
		return
	case strings.HasPrefix(text, "#"):
		t.comment(l, text)
		return
	}
	if loaded := ncclLoaded.FindStringSubmatch(text); loaded != nil {
		t.loaded(loaded[1])
		return
	}
	// A row begins with two numbers, and so does what is left of one; anything
	// else comes from elsewhere, and if it took the place of a row that will be
	// missed.
	if t.header.half == nil || !ncclRowStart.MatchString(text) {
		return
	}
	row, err := t.header.row(l)
	switch {
	case err != nil && t.footed():
		return // not of the table
	case err != nil:
		t.fault(evidence.ClassUnparsable, "line %d is not a row of the table: %v: %q", l.line, err, token(text))
	case t.footed():
		t.fault(evidence.ClassUnparsable, "line %d: a row follows the end of the table", l.line)
	default:
		t.rows = append(t.rows, row)
	}
}

func (t *ncclTable) loaded(release string) {
	if t.release != "" && t.release != release {
		t.fault(evidence.ClassUnparsable, "two releases of NCCL were loaded: %s and %s", t.release, release)
	}
	t.release = release
}

// comment reads a line that begins with "#".
func (t *ncclTable) comment(l ncclLine, text string) {
	if footer := ncclFooterForm.FindStringSubmatch(text); footer != nil {
		t.footer(footer[1], footer[2], footer[3], l.line)
		return
	}
	if device, ok := readNcclDevice(text); ok {
		if t.header.half != nil {
			t.fault(evidence.ClassUnparsable, "line %d: a device is listed below the table's header", l.line)
		}
		device.line = l.line
		t.devices = append(t.devices, device)
		return
	}
	body := strings.TrimSpace(strings.TrimPrefix(text, "#"))
	words := strings.Fields(body)
	after := func(prefix string) (string, bool) {
		rest, ok := strings.CutPrefix(body, prefix)
		return strings.TrimSpace(rest), ok
	}
	t.closed = t.closed || t.average != nil
	switch {
	case body == "":
	case words[0] == "Rank" || strings.HasSuffix(body, "...") && len(t.devices) > 0 && t.header.half == nil:
		t.fault(evidence.ClassUnparsable, "line %d is not a whole line of the list of devices, of which a process prints 2048 bytes: %q", l.line, token(text))
	case ncclHeads(l):
		t.readHeader(l, words)
	case words[0] == "(B)" && t.header.half != nil:
		if t.units = slices.Equal(words, t.header.unitWords()); !t.units {
			t.fault(evidence.ClassUnparsable, "line %d: the units are %q, expected %q", l.line, words, t.header.unitWords())
		}
	case words[0] == "nThread":
		t.config = make(map[string]int64)
		for _, match := range ncclConfigForm.FindAllStringSubmatch(body, -1) {
			t.config[strings.TrimSuffix(match[1], ":")], _ = strconv.ParseInt(match[2], 10, 64) // at most 18 digits
		}
	default:
		if match := ncclVersions.FindStringSubmatch(body); match != nil {
			t.version = match[1]
			code, _ := strconv.ParseInt(match[2], 10, 64) // at most 9 digits
			t.loaded(ncclRelease(code))
		} else if rest, ok := after("Reducing maxBytes to "); ok {
			size, _, _ := strings.Cut(rest, " ")
			t.fault(evidence.ClassUnparsable, "the program reduced the largest size to %s bytes, for want of memory", token(size))
		} else if rest, ok := after("Collective test starting: "); ok {
			t.starting = rest
		} else if rest, ok := after("Collective test concluded: "); ok {
			t.concluded = rest
		} else if rest, ok := after("Writing JSON output to "); ok {
			t.jsonPath = rest
		} else if rest, ok := after("skipping json output; "); ok {
			t.fault(evidence.ClassUnparsable, "the program wrote no JSON: %s", token(rest))
		}
	}
}

func (t *ncclTable) readHeader(l ncclLine, words []string) {
	switch {
	case words[0] == "bytes":
		t.fault(evidence.ClassToolVersion, "line %d: the table is that of the nccl-tests of 2017 and 2018, with times in ms; 2.0.0 (2019-03) is the oldest that is read", l.line)
		return
	case t.header.half != nil:
		t.fault(evidence.ClassUnparsable, "line %d: a second header: more than one process printed a table, as a program does that was built without MPI", l.line)
		return
	}
	header, err := readNcclHeader(words)
	if err != nil {
		t.fault(evidence.ClassUnparsable, "line %d: %v", l.line, err)
		return
	}
	header.line = l.line
	t.header = header
}

func (t *ncclTable) footer(name, value, judged string, line int) {
	into := &t.outOfBounds
	if name[0] == 'A' {
		into = &t.average
	}
	if *into != nil {
		t.fault(evidence.ClassUnparsable, "line %d: %q stands there twice", line, name)
		return
	}
	footer := &ncclFooter{value: readNcclNumber(value), judged: judged, line: line}
	if n := &footer.value; n.value > 0 {
		// %g leaves zeros at the end out, of six digits.
		n.half = min(n.half, 0.5*math.Pow(10, math.Floor(math.Log10(n.value))-5))
	}
	if into == &t.outOfBounds && (!ncclInteger.MatchString(value) || judged == "" || (judged == "OK") != (value == "0")) {
		t.fault(evidence.ClassUnparsable, "line %d: the number of wrong results is %q, and it says %q", line, token(value), judged)
	}
	*into = footer
}

// readNcclNumber reads a number in one of the forms that printf gives.
func readNcclNumber(text string) ncclNumber {
	n := ncclNumber{text: text}
	match := ncclDecimal.FindStringSubmatch(text)
	if match == nil {
		n.missing = token(text)
		return n
	}
	if n.value, n.missing = parseNumber(text); n.missing != "" {
		return n
	}
	exponent, _ := strconv.Atoi(match[2]) // three digits at most, or none
	n.half = 0.5 * math.Pow(10, float64(exponent-len(match[1])))
	return n
}

// printed reports whether the program prints a number in this form, in a
// column of width: two decimals, and fewer only where they do not fit (since
// 2.17.9 all columns; before, times by their magnitude and rates always with
// two). So a number that lost its last digits is told from a whole one.
func (n ncclNumber) printed(width int, time bool) bool {
	digits, exponent, _ := strings.Cut(n.text, "e")
	_, decimals, _ := strings.Cut(digits, ".")
	least := math.Pow(10, float64(width-2-len(decimals))) // with one decimal less than it would have
	switch {
	case exponent != "":
		return n.value >= math.Pow(10, float64(width))*0.99 && len(decimals) == width-6
	case len(decimals) == 2:
		return true
	case len(decimals) == 1 && time:
		return n.value >= 99.9
	case len(decimals) == 0 && time:
		return n.value >= 9999
	case len(decimals) == 1, len(decimals) == 0:
		return n.value >= least*0.99
	}
	return false
}

// row reads one row; its numbers are in the forms that the program prints.
func (h ncclHeader) row(l ncclLine) (ncclRow, error) {
	row := ncclRow{line: l.line}
	words := strings.Fields(l.text)
	blank := len(words) == h.width()-len(h.half) && ncclBlankHalf.MatchString(l.text)
	if len(words) != h.width() && !blank {
		return row, fmt.Errorf("it has %d words, and the header has %d columns", len(words), h.width())
	}
	var err error
	for i, into := range []*uint64{&row.size, &row.count} {
		if !ncclInteger.MatchString(words[i]) {
			return row, fmt.Errorf("its %s is %q", h.head[i], token(words[i]))
		}
		if *into, err = strconv.ParseUint(words[i], 10, 64); err != nil {
			return row, fmt.Errorf("its %s is %q", h.head[i], token(words[i]))
		}
	}
	row.dtype, row.op, row.root = words[2], words[3], "-1"
	if len(h.head) > 4 {
		row.root = words[4]
	}
	if row.root != "-1" {
		return row, fmt.Errorf("its root is %q, and an all-reduce has none", token(row.root))
	}
	if h.timestamp {
		if n := len(words); !ncclStampDay.MatchString(words[n-2]) || !ncclStampTime.MatchString(words[n-1]) {
			return row, fmt.Errorf("it does not end with a time")
		}
	}
	rest := words[len(h.head):]
	for place := range row.halves {
		if place == 0 && blank {
			row.halves[0].blank = true
			continue
		}
		if row.halves[place], err = h.readHalf(rest[:len(h.half)]); err != nil {
			return row, err
		}
		rest = rest[len(h.half):]
	}
	return row, nil
}

func (h ncclHeader) readHalf(words []string) (ncclHalf, error) {
	var half ncclHalf
	for i, column := range h.half {
		n := readNcclNumber(words[i])
		var into *ncclNumber
		width, time := 7, true
		switch column {
		case ncclTime, ncclCPUTime:
			into = &half.time
		case "algbw":
			into, width, time = &half.algbw, 6, false
		case "busbw":
			into, width, time = &half.busbw, 6, false
		case ncclWrong:
			// %5g or %6g of a whole number. Of a largest difference (%5.0le)
			// nothing but zero says how many are wrong.
			if h.delta && n.value > 0 {
				n.value, n.missing, n.delta = 0, "(largest difference "+n.text+")", true
			}
			if n.missing == "" && (n.value != math.Trunc(n.value) || strings.Contains(n.text, ".") && n.value < 1e5) {
				return half, fmt.Errorf("its %s is %q", column, token(words[i]))
			}
			half.wrong = n
		case "i_p99":
			into, time = &half.p99, false
		case "i_cv%":
			into, time = &half.cv, false
		default:
			into, width, time = new(ncclNumber), 6, false
			if strings.HasPrefix(column, "i_") {
				width = 7
			}
		}
		if n.missing == token(words[i]) && !ncclNotNumber.MatchString(words[i]) {
			return half, fmt.Errorf("its %s is %q, which is not a number", column, token(words[i]))
		}
		if into == nil {
			continue
		}
		if n.missing == "" && !n.printed(width, time) {
			return half, fmt.Errorf("its %s is %q, which is not how the program prints a number", column, token(words[i]))
		}
		*into = n
	}
	return half, nil
}

// ncclElement is the size of an element in bytes, by the names that nccl-tests
// gives its types.
var ncclElement = map[string]uint64{
	"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
	"half": 2, "float": 4, "double": 8, "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1,
}

// ncclFactor is what the bus bandwidth of an all-reduce on n ranks is of its
// algorithm bandwidth (doc/PERFORMANCE.md of nccl-tests).
func ncclFactor(ranks int) float64 { return 2 * float64(ranks-1) / float64(ranks) }

// disagreement says how a row's numbers contradict each other, beyond what
// rounding explains, or nothing. Without ranks (0) their factor is not known.
func (r ncclRow) disagreement(ranks int, timed bool) string {
	element, known := ncclElement[r.dtype]
	if !known {
		return fmt.Sprintf("its type is %q, which is none of nccl-tests", token(r.dtype))
	}
	if r.count > math.MaxUint64/element || r.count*element != r.size {
		return fmt.Sprintf("its size is %d bytes, and %d elements of type %s are another", r.size, r.count, r.dtype)
	}
	for place, half := range r.halves {
		if half.algbw.missing != "" || half.busbw.missing != "" || half.blank {
			continue
		}
		if ranks > 0 {
			factor := ncclFactor(ranks)
			if apart(half.busbw.value, factor*half.algbw.value, half.busbw.half+factor*half.algbw.half) {
				return fmt.Sprintf("%s of place, busbw %s is not %.6g times algbw %s, as with %d ranks", ncclPlaces[place], half.busbw.text, factor, half.algbw.text, ranks)
			}
		}
		if timed && half.time.missing == "" {
			bytes := float64(r.size) / 1000 // GB/s from bytes and microseconds
			longest := half.time.value + half.time.half
			shortest := half.time.value - half.time.half
			if half.algbw.value+half.algbw.half < bytes/longest*(1-1e-9) || shortest > 0 && half.algbw.value-half.algbw.half > bytes/shortest*(1+1e-9) {
				return fmt.Sprintf("%s of place, %d bytes in %s us are not %s GB/s", ncclPlaces[place], r.size, half.time.text, half.algbw.text)
			}
		}
	}
	return ""
}

// apart reports whether two numbers differ by more than their rounding.
func apart(a, b, rounding float64) bool {
	return math.Abs(a-b) > rounding+1e-9*(math.Abs(a)+math.Abs(b))
}

// disagreement says how the table contradicts itself, or nothing: the average
// below it is that of all rates in it, so no row can have been lost.
func (t ncclTable) disagreement() string {
	var sum, rounding float64
	n, wrong, missing, uncounted := 0, false, false, false
	for _, row := range t.rows {
		for _, half := range row.halves {
			if half.blank {
				continue
			}
			n++
			sum += half.busbw.value
			rounding += half.busbw.half
			missing = missing || half.busbw.missing != ""
			wrong = wrong || half.wrong.value > 0
			uncounted = uncounted || half.wrong.missing != ""
		}
	}
	switch average := t.average.value; {
	case missing:
	case average.missing != "":
		return fmt.Sprintf("the average is %q, and every rate is a number", average.missing)
	case n > 0 && apart(average.value, sum/float64(n), average.half+rounding/float64(n)):
		return fmt.Sprintf("the average is %s GB/s, and that of the rows is %.6g", average.text, sum/float64(n))
	}
	if bad := t.outOfBounds.value.value > 0; bad != wrong && !uncounted {
		return fmt.Sprintf("it counts %s wrong results, and the rows say otherwise", t.outOfBounds.value.text)
	}
	return ""
}

// incomplete says what of a whole output is not there, or nothing.
func (t ncclTable) incomplete() string {
	switch {
	case t.header.half == nil:
		return "there is no table"
	case !t.units:
		return "there is no line of units below the table's header"
	case len(t.rows) == 0:
		return "the table has no rows"
	case t.outOfBounds == nil:
		return "the number of wrong results is not there, so the program did not come to its end"
	case t.average == nil:
		return "the average is not there, so the program did not come to its end"
	case !t.closed:
		return "the output ends with the average, and more should follow"
	case t.starting != "" && t.concluded != t.starting:
		return fmt.Sprintf("the program said that test %q begins, and not that it concluded", token(t.starting))
	}
	return ""
}
