package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ncclForm is one release's way to print.
type ncclForm struct {
	name     string
	group    bool // in the list of devices, since 2022-09
	fullBus  bool // with the domain, since 2025
	delta    bool // the largest difference and no root, up to 2.11
	narrow   bool // #wrong of 6 since 2.17.3, and numbers by getFloatStr
	named    bool // says its own name, since 2025-06
	versions bool // says versions, since 2.17.3
	copies   bool // a build with copies beside the collective
	stamped  bool // -S 1
	single   bool // -I 1
	memory   bool // -M 1
	unchecks bool // -c 0
}

var ncclForms = []ncclForm{
	{name: "2.0.0", delta: true},
	{name: "2.13.0"},
	{name: "2.13.4", group: true},
	{name: "2.14.0 with copies", group: true, copies: true},
	{name: "2.15.0", group: true, fullBus: true},
	{name: "2.16.5", group: true, fullBus: true, named: true},
	{name: "2.17.6", group: true, fullBus: true, named: true, narrow: true, versions: true},
	{name: "2.17.6 with times", group: true, fullBus: true, named: true, narrow: true, versions: true, stamped: true, memory: true},
	{name: "2.19.6", group: true, fullBus: true, named: true, narrow: true, versions: true},
	{name: "2.19.6 with iterations", group: true, fullBus: true, named: true, narrow: true, versions: true, single: true, stamped: true},
	{name: "2.13.0 unchecked", unchecks: true},
}

// ncclSample is what a run prints, as the pieces in which it writes.
type ncclSample struct {
	form       ncclForm
	hosts      []string
	gpus       int // of each host
	ofProcess  bool
	sizes      []uint64
	busbw      float64
	wrong      map[uint64]int64
	iterations int
	warmup     int
	json       string // the path that it says
}

func (s ncclSample) ranks() int { return len(s.hosts) * s.gpus }

func (f ncclForm) number(value float64, width int, time bool) string {
	if f.narrow {
		for _, form := range []string{"%*.2f", "%*.1f", "%*.0f"} {
			if text := fmt.Sprintf(form, width, value); len(text) <= width {
				return text
			}
		}
		return fmt.Sprintf("%*.*e", width, width-6, value)
	}
	switch {
	case time && value >= 10000:
		return fmt.Sprintf("%7.0f", value)
	case time && value >= 100:
		return fmt.Sprintf("%7.1f", value)
	}
	return fmt.Sprintf("%*.2f", width, value)
}

func (f ncclForm) wrong(n int64) string {
	switch {
	case f.unchecks:
		return "  N/A"
	case f.delta:
		return fmt.Sprintf("%5s", fmt.Sprintf("%de+00", n))
	case f.narrow:
		return fmt.Sprintf("%6s", fmt.Sprint(n))
	}
	return fmt.Sprintf("%5s", fmt.Sprint(n))
}

// pieces are the program's writes.
func (s ncclSample) pieces() []string {
	f := s.form
	var out []string
	print := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if s.json != "" {
		print("# Writing JSON output to %s\n", s.json)
	}
	if f.versions {
		print("# nccl-tests version %s nccl-headers=22105 nccl-library=22105\n", strings.Fields(f.name)[0])
	}
	if f.named {
		print("# Collective test starting: all_reduce_perf\n")
	}
	gpus, validation := 1, 1
	if s.ofProcess {
		gpus = s.gpus
	}
	if f.unchecks {
		validation = 0
	}
	factor := uint64(2)
	if len(s.sizes) > 1 {
		factor = s.sizes[1] / s.sizes[0]
	}
	print("# nThread 1 nGpus %d minBytes %d maxBytes %d step: %d(factor) warmup iters: %d iters: %d agg iters: 1 validation: %d graph: 0\n",
		gpus, s.sizes[0], s.sizes[len(s.sizes)-1], factor, s.warmup, s.iterations, validation)
	if f.single {
		print("# Per-Iteration Report: CUDA event timing; i_* uses max over process rows \n")
	}
	print("#\n# Using devices\n")
	for i := range s.ranks() {
		host, device := s.hosts[i/s.gpus], i%s.gpus
		rank, group, bus := fmt.Sprintf("#   Rank %2d", i), "", fmt.Sprintf("0x%02x", 0x18+8*device)
		if f.group {
			rank, group = fmt.Sprintf("#  Rank %2d", i), " Group  0"
		}
		if f.fullBus {
			bus = fmt.Sprintf("%04x:%02x:%02x", 0, 0x18+8*device, 0)
		}
		print("%s%s Pid %6d on %10s device %2d [%s] NVIDIA H100 80GB HBM3\n", rank, group, 4000+i, host, device, bus)
	}
	half := []string{"time", "algbw", "busbw"}
	units := []string{"(us)", "(GB/s)", "(GB/s)"}
	if f.copies {
		half, units = append(half, "copybw"), append(units, "(GB/s)")
	}
	if f.delta {
		half = append(half, "error")
	} else {
		half = append(half, "#wrong")
	}
	units = append(units, "")
	if f.single {
		half, units = append(half, "i_min", "i_max", "i_p99", "i_cv%"), append(units, "(us)", "(us)", "(us)", "(%)")
	}
	head, headUnits := []string{"size", "count", "type", "redop", "root"}, []string{"(B)", "(elements)", "", "", ""}
	if f.delta {
		head, headUnits = head[:4], headUnits[:4]
	}
	columns := func(head, half []string, stamp string) {
		print("#")
		for _, word := range slices.Concat(head, half, half) {
			print("  %8s", word)
		}
		if f.stamped {
			print("%20s", stamp)
		}
		print("\n")
	}
	print("#\n#                                                              out-of-place                       in-place          \n")
	columns(head, half, "timestamp")
	columns(headUnits, units, "%Y-%m-%d %H:%M:%S")
	var sum float64
	var bad int64
	for _, size := range s.sizes {
		print("%12d  %12d  %8s  %6s", size, size/4, "float", "sum")
		if !f.delta {
			print("  %6s", "    -1")
		}
		for place := range 2 {
			bus := s.busbw * (1 + 0.0013*float64(place))
			alg := bus / ncclFactor(s.ranks())
			time := float64(size) / 1000 / alg
			sum += bus
			text := fmt.Sprintf("  %s  %s  %s", f.number(time, 7, true), f.number(alg, 6, false), f.number(bus, 6, false))
			if f.copies {
				text += fmt.Sprintf("  %6.2f", 25.5)
			}
			wrong := int64(0)
			if place == 0 {
				if wrong = s.wrong[size]; wrong > 0 {
					bad++
				}
			}
			text += "  " + f.wrong(wrong)
			if f.single {
				text += fmt.Sprintf("  %s  %s  %s  %s", f.number(time*0.97, 7, true), f.number(time*1.06, 7, true), f.number(time*1.05, 7, true), f.number(0.84, 7, true))
			}
			print("%s", text)
		}
		if f.stamped {
			print("%21s", "2026-11-30 14:02:11")
		}
		print("\n")
	}
	judged := "OK"
	if bad > 0 {
		judged = "FAILED"
	}
	print("# Out of bounds values : %d %s\n", bad, judged)
	print("# Avg bus bandwidth    : %g \n", roundTo6(sum/float64(2*len(s.sizes))))
	print("#\n")
	if f.named {
		print("# Collective test concluded: all_reduce_perf\n")
	}
	if f.memory {
		print("# GPU memory usage     : fixed 1.93 GB | per-rank 96.0 MB | Total  2.02 GB\n")
	}
	print("\n")
	if f.versions {
		print("#\n")
	}
	return out
}

// roundTo6 leaves six digits, as %g does in C.
func roundTo6(value float64) float64 {
	var rounded float64
	fmt.Sscan(fmt.Sprintf("%.6g", value), &rounded)
	return rounded
}

func (s ncclSample) text() string { return strings.Join(s.pieces(), "") }

// logLine is a line of the log of the rank i, with its end.
func (s ncclSample) logLine(i int) string {
	rank := i % s.ranks()
	return fmt.Sprintf("%s:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> 0[0] via NET/IB/0/GDRDMA\n", s.hosts[rank/s.gpus], 4000+rank, 4000+rank, rank%s.gpus, i, rank, rank%s.gpus)
}

// ncclMangles are what launchers make of the pieces, with the logs of other
// ranks between them where the launcher lets that happen.
var ncclMangles = []struct {
	name string
	of   func(s ncclSample) string
}{
	{"as it is", ncclSample.text},
	{"plain mpirun", func(s ncclSample) string {
		// The first lines of the logs come before everything, each on its own.
		text := s.logLine(1) + s.logLine(s.gpus)
		for i, piece := range s.pieces() {
			text += piece
			if i%3 == 0 {
				text += s.logLine(i + 1)
			}
		}
		return text
	}},
	{"--tag-output", func(s ncclSample) string { return s.tagged("", "") }},
	{"--timestamp-output", func(s ncclSample) string { return s.tagged("Mon Nov 30 14:16:20 2026", "") }},
	{"PRRTE", func(s ncclSample) string { return s.tagged("", " ") }},
	{"-xml", func(s ncclSample) string {
		escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\n", "&#010;")
		text := "<mpirun>\n"
		element := func(rank int, piece string) {
			text += fmt.Sprintf("<stdout rank=\"%d\">%s</stdout>", rank, escape.Replace(piece))
			if strings.HasSuffix(piece, "\n") {
				text += "\n"
			}
		}
		for i, piece := range s.pieces() {
			element(0, piece)
			if i%3 == 0 {
				element(1, s.logLine(i+1))
			}
		}
		return text + "</mpirun>\n"
	}},
	{"srun --label", func(s ncclSample) string {
		return s.labelled(func(rank int) string { return fmt.Sprintf("%3d: ", rank) })
	}},
	{"-prepend-rank", func(s ncclSample) string {
		return s.labelled(func(rank int) string { return fmt.Sprintf("[%d] ", rank) })
	}},
	{"kubectl logs", func(s ncclSample) string {
		return s.prefixed(func(int) string { return "[pod/nccl-launcher-x7k2p/mpi] " })
	}},
	{"journalctl", func(s ncclSample) string {
		return s.prefixed(func(i int) string { return fmt.Sprintf("Nov 30 14:02:%02d gpu001 nccl[4242]: ", i%60) })
	}},
	{"a terminal", func(s ncclSample) string {
		return "\x1b[32mWelcome to the cluster\x1b[0m\r\nWarning: Permanently added 'n2' (ED25519) to the list of known hosts.\r\n" + strings.ReplaceAll(s.text(), "\n", "\r\n")
	}},
}

func (s ncclSample) tagged(before, after string) string {
	text := "------------------------------\nWARNING: no OpenFabrics device was found.\n------------------------------\n"
	for i, piece := range s.pieces() {
		for line := range strings.Lines(piece) {
			text += before + "[1,0]<stdout>:" + after + line
		}
		if i%3 == 0 {
			text += before + "[1,1]<stdout>:" + after + s.logLine(i+1)
		}
	}
	return text
}

func (s ncclSample) labelled(label func(rank int) string) string {
	text := ""
	for i, line := range strings.SplitAfter(s.text(), "\n") {
		if line == "" {
			break
		}
		text += label(0) + line
		if i%2 == 0 && i < 20 {
			text += label(i%s.ranks()) + s.logLine(i)
		}
	}
	return text
}

func (s ncclSample) prefixed(prefix func(line int) string) string {
	text := ""
	for i, line := range strings.SplitAfter(s.text(), "\n") {
		if line != "" {
			text += prefix(i) + line
		}
	}
	return text
}

func (f ncclForm) sample() ncclSample {
	return ncclSample{form: f, hosts: []string{"gpu001", "gpu002"}, gpus: 1, sizes: []uint64{1 << 30, 2 << 30}, busbw: 462.08, iterations: 20, warmup: 5}
}

// objection is why the table of a run on so many ranks is not a result.
func (t ncclTable) objection(ranks int, sizes []uint64) string {
	if t.failure != "" {
		return t.failure
	}
	if len(t.faults) > 0 {
		return t.faults[0].detail
	}
	if what := t.incomplete(); what != "" {
		return what
	}
	if what := t.disagreement(); what != "" {
		return what
	}
	var have []uint64
	for _, row := range t.rows {
		if what := row.disagreement(ranks, true); what != "" {
			return what
		}
		have = append(have, row.size)
	}
	switch {
	case !slices.Equal(have, sizes):
		return "other sizes"
	case len(t.devices) != ranks:
		return "other ranks"
	}
	return ""
}

// rates are the numbers of a row that a test compares.
func (r ncclRow) rates() [6]float64 {
	return [6]float64{r.halves[0].time.value, r.halves[0].algbw.value, r.halves[0].busbw.value, r.halves[1].time.value, r.halves[1].algbw.value, r.halves[1].busbw.value}
}

// TestNcclForms: every release's table is read whole, whatever its launcher
// made of it; and every form, and every mangle of one, cut at any byte, gives no
// other number, and no result before its end.
func TestNcclForms(t *testing.T) {
	for _, form := range ncclForms {
		s := form.sample()
		want := readNcclTable([]byte(s.text()))
		if len(want.rows) != 2 || fmt.Sprintf("%.2f %.2f", want.rows[0].halves[0].busbw.value, want.rows[1].halves[1].busbw.value) != "462.08 462.68" {
			t.Fatalf("%s: rows %+v, faults %v\n%s", form.name, want.rows, want.faults, s.text())
		}
		for _, mangle := range ncclMangles {
			t.Run(form.name+"/"+mangle.name, func(t *testing.T) {
				t.Parallel()
				text := mangle.of(s)
				whole := readNcclTable([]byte(text))
				if what := whole.objection(s.ranks(), s.sizes); what != "" {
					t.Fatalf("%s\n%s", what, text)
				}
				if whole.devices[1].host != "gpu002" || whole.devices[1].rank != 1 || whole.config["iters"] != 20 || whole.config["warmup iters"] != 5 {
					t.Errorf("devices %+v, config %v", whole.devices, whole.config)
				}
				if mangle.name != "as it is" && form.name != "2.19.6" {
					return
				}
				ended := strings.LastIndex(text, "Avg bus bandwidth")
				for cut := range len(text) {
					got := readNcclTable([]byte(text[:cut]))
					for i, row := range got.rows {
						if i >= len(want.rows) || row.rates() != want.rows[i].rates() || row.size != want.rows[i].size {
							t.Fatalf("cut at byte %d of %d: row %d is %+v", cut, len(text), i, row)
						}
					}
					if cut < ended+len("Avg bus bandwidth    : 462") && got.objection(s.ranks(), s.sizes) == "" {
						t.Fatalf("cut at byte %d of %d it is a result", cut, len(text))
					}
					if got.average != nil && got.average.value.value != whole.average.value.value {
						t.Fatalf("cut at byte %d of %d: the average is %s", cut, len(text), got.average.value.text)
					}
				}
			})
		}
	}
}

// capture is real output of Open MPI 4.1.4 with a stand-in for the program,
// whose second and third row have a size that is not that of their count.
func capture(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "nccl_allreduce", "capture_"+name, "raw", "allreduce-1.n1", "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestNcclCaptures(t *testing.T) {
	for _, name := range []string{"plain", "tag_output", "tag_timestamp", "xml_output"} {
		raw := capture(t, name)
		for cut := range len(raw) + 1 {
			table := readNcclTable(raw[:cut])
			for i, row := range table.rows {
				if row.halves[0].busbw.value != 462.08 || row.halves[1].busbw.value != 462.69 || row.size != uint64(i+1)<<30 || row.rates() != [6]float64{4066.5, 264.05, 462.08, 4061.2, 264.39, 462.69} {
					t.Fatalf("%s, cut at byte %d: row %d is %+v", name, cut, i, row)
				}
			}
			if table.objection(8, []uint64{1 << 30, 2 << 30, 3 << 30}) == "" {
				t.Fatalf("%s, cut at byte %d: it is a result", name, cut)
			}
		}
		table := readNcclTable(raw)
		if len(table.rows) != 3 || table.rows[0].disagreement(8, true) != "" || table.average.value.value != 462.385 || table.disagreement() != "" {
			t.Errorf("%s: rows %+v, average %+v, %s", name, table.rows, table.average, table.disagreement())
		}
		for _, row := range table.rows[1:] {
			if row.disagreement(8, true) == "" {
				t.Errorf("%s: row %+v agrees with itself", name, row)
			}
		}
	}
}

// TestNcclRefusals: what is not the one table of all ranks, whole and in its
// own form, is no result.
func TestNcclRefusals(t *testing.T) {
	s := ncclForms[8].sample()
	text := s.text()
	replaced := func(old, new string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("there is no %q in\n%s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	row := text[strings.Index(text, "  1073741824"):strings.Index(text, "  2147483648")]
	for name, test := range map[string]struct{ text, want string }{
		"nothing":                    {"", "no header"},
		"something else":             {"all is well\n# of it\n", "no header"},
		"two tables":                 {text + text, "below the table"},
		"two tables under a label":   {"0: " + strings.ReplaceAll(text, "\n", "\n0: ") + "\n1: " + strings.ReplaceAll(text, "\n", "\n1: ") + "\n", "more than one process"},
		"the table of 2017":          {strings.ReplaceAll(text, "size", "bytes") + "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res\n", "2017"},
		"a comma":                    {replaced("462.08", "462,08"), "not a number"},
		"a lost digit":               {replaced("462.08", "46.08"), "is not 1 times"},
		"a lost decimal":             {replaced("462.08", "462.0"), "not how the program prints"},
		"lost decimals":              {replaced("462.08", "462."), "not a number"},
		"a leading zero":             {replaced("     0  ", "    04  "), "not a number"},
		"half a wrong element":       {replaced("     0  ", "   0.5  "), "#wrong"},
		"a root":                     {replaced("    -1", "     0"), "has none"},
		"a lost row":                 {replaced(row, ""), "other sizes"},
		"a row twice":                {replaced(row, row+row), "other sizes"},
		"a row in two":               {replaced("    -1", "    -1\n"), "words"},
		"a word more":                {replaced("    -1", "    -1 7"), "words"},
		"a row after the end":        {text + row, "follows the end"},
		"another time":               {replaced(row[50:60], strings.ReplaceAll(row[50:60], "2", "3")), "GB/s"},
		"another unit":               {replaced("(GB/s)", "(MB/s)"), "units"},
		"no units":                   {replaced("(B)", "(X)"), "no line of units"},
		"an unknown column":          {replaced("busbw", "msgs"), "same columns"},
		"reduced":                    {replaced("#\n# Using", "#\n# Reducing maxBytes to 1073741824 due to memory limitation\n# Using"), "reduced the largest size to 1073741824"},
		"a cut list of devices":      {replaced(" device  0 [0000:18:00] NVIDIA H100 80GB HBM3", " dev..."), "2048 bytes"},
		"devices twice":              {replaced("# Out", "#  Rank  0 Group  0 Pid   4000 on     gpu001 device  0 [0000:18:00] NVIDIA H100 80GB HBM3\n# Out"), "below the table"},
		"other wrong results":        {replaced("values : 0 OK", "values : 3 FAILED"), "counts 3"},
		"wrong and OK":               {replaced("values : 0 OK", "values : 3 OK"), "number of wrong results"},
		"wrong results twice":        {replaced("# Avg", "# Out of bounds values : 0 OK\n# Avg"), "twice"},
		"no wrong results":           {replaced("# Out of bounds values : 0 OK\n", ""), "not there"},
		"an average that is nan":     {replaced(": 462.3", ": nan 462.3"), "not there"},
		"an average of nan":          {text[:strings.Index(text, "Avg bus")] + "Avg bus bandwidth    : -nan \n#\n# Collective test concluded: all_reduce_perf\n", "the average is"},
		"not concluded":              {replaced("# Collective test concluded: all_reduce_perf\n", ""), "not that it concluded"},
		"another test concluded":     {replaced("concluded: all_reduce_perf", "concluded: all_gather_perf"), "not that it concluded"},
		"a failure of NCCL":          {replaced(row, "  1073741824     268435456     float     sum      -1gpu001: Test NCCL failure common.cu:292 'unhandled system error / '\n"), "Test NCCL failure"},
		"a failure of a test":        {replaced(row, row+" .. gpu001 pid 4000: Test failure common.cu:402\n"), "Test failure"},
		"a timeout":                  {replaced(row, "gpu001: Test timeout (30s) common.cu:523\n"), "Test timeout"},
		"two releases of NCCL":       {"NCCL version 2.20.3+cuda12.4\n" + text, "two releases"},
		"a number for a host":        {replaced("    -1", "    -14node:17:18 [0] NCCL INFO x\n"), "words"},
		"a host like another's end":  {"n1:1:2 [0] NCCL INFO x\n1n1:1:2 [0] NCCL INFO x\n#  Rank  7 on 1n1 device 0 [0x01] X\n" + replaced("    -1", "    -11n1:17:18 [0] NCCL INFO x\n"), "words"},
		"an end within the log":      {replaced("    -1", "    -1gpu002:17:18 [0] NCCL INFO x"), "words"},
		"two sources under a prefix": {"[pod/a/x] " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n[pod/b/x] ") + "\n", "no header"},
	} {
		got := readNcclTable([]byte(test.text)).objection(2, s.sizes)
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: objection %q, want one with %q", name, got, test.want)
		}
	}
}

// TestNcclNumbers: what the program prints is read, and what it does not print
// is refused.
func TestNcclNumbers(t *testing.T) {
	for _, test := range []struct {
		text    string
		width   int
		time    bool
		printed bool
	}{
		{"4066.52", 7, true, true}, {"4066.5", 7, true, true}, {"12345", 7, true, true}, {"12345.6", 7, true, true}, {"1.2e+07", 7, true, true}, {"0.00", 7, true, true},
		{"4066", 7, true, false}, {"96.4", 7, true, false}, {"1.2e+06", 7, true, false}, {"462.083", 7, true, false},
		{"462.08", 6, false, true}, {"1234.5", 6, false, true}, {"12345", 6, false, true}, {"1e+06", 6, false, true}, {"1234.56", 6, false, true},
		{"462.0", 6, false, false}, {"462", 6, false, false}, {"1234", 6, false, false}, {"1.0e+06", 6, false, false},
	} {
		n := readNcclNumber(test.text)
		if n.missing != "" || n.printed(test.width, test.time) != test.printed {
			t.Errorf("%q in %d: %+v, printed %t, want %t", test.text, test.width, n, n.printed(test.width, test.time), test.printed)
		}
	}
	for _, text := range []string{"462.", ".5", "04", "+1", "-1", "1,5", "0x10", "1e5", "", "nan", "1_0", "٣"} {
		if n := readNcclNumber(text); n.missing == "" {
			t.Errorf("%q is read as %g", text, n.value)
		}
	}
	if n := readNcclNumber("1.2e+06"); n.value != 1.2e6 || n.half != 0.5e5 {
		t.Errorf("1.2e+06 is %+v", n)
	}
}

// TestNcclBlankHalf: a replayed trace has results in place alone.
func TestNcclBlankHalf(t *testing.T) {
	header, err := readNcclHeader(strings.Fields("size count type redop root time algbw busbw #wrong time algbw busbw #wrong"))
	if err != nil {
		t.Fatal(err)
	}
	row := "  1073741824     268435456     float     sum      -1" + strings.Repeat(" ", 32) + "  4066.50  264.05  462.08       0"
	got, err := header.row(ncclLine{text: row, whole: true})
	if err != nil || !got.halves[0].blank || got.halves[1].busbw.value != 462.08 {
		t.Errorf("row %+v, %v", got, err)
	}
	if got, err := header.row(ncclLine{text: strings.Replace(row, strings.Repeat(" ", 9), "", 1)}); err == nil {
		t.Errorf("a row that lost a half is %+v", got)
	}
}
