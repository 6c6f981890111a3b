package checks

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

func TestSMIRows(t *testing.T) {
	const text = "index, name, pci.bus_id, memory.total [MiB], power.draw [W], temperature.gpu, clocks_event_reasons.active, persistence_mode, ecc.errors.uncorrected.volatile.total\n" +
		"0, NVIDIA H100, 80GB, HBM3, 00000000:1B:00.0, 81559 MiB, 690.12 W, 67, 0x0000000000000004, Enabled, 0\n" +
		"\n" +
		"1, NVIDIA H100 80GB HBM3, 00000000:43:00.0, 81559, [Unknown Error], ERR!, [N/A], Disabled, [Not Supported]\n"
	table, problem := parseSMI([]byte(text), []byte("some loader: a warning\n"))
	if problem != nil || len(table.rows) != 2 || len(table.lost) != 0 || len(table.notes) != 0 || table.none != nil {
		t.Fatalf("%+v %v, want two rows", table, problem)
	}
	for _, want := range []struct {
		row            int
		field          string
		value, missing string
	}{
		{0, "name", "NVIDIA H100, 80GB, HBM3", ""},
		{0, "gpu_name", "NVIDIA H100, 80GB, HBM3", ""},
		{0, "gpu_bus_id", "00000000:1B:00.0", ""},
		{0, "persistence_mode", "Enabled", ""},
		{0, "serial", "", "(no column serial)"},
		{1, "index", "1", ""},
		{1, "power.draw", "", "[Unknown Error]"},
		{1, "temperature.gpu", "", "ERR!"},
		{1, "ecc.errors.uncorrected.volatile.total", "", "[Not Supported]"},
	} {
		if value, missing := table.rows[want.row].text(want.field); value != want.value || missing != want.missing {
			t.Errorf("%s of row %d is %q, %q, want %q, %q", want.field, want.row, value, missing, want.value, want.missing)
		}
	}
	for _, want := range []struct {
		row         int
		field, unit string
		value       float64
		missing     string
	}{
		{0, "memory.total", "MiB", 81559, ""},
		{1, "memory.total", "MiB", 81559, ""}, // as under nounits
		{0, "memory.total", "GiB", 0, `(81559 MiB in "MiB")`},
		{0, "memory.total", "", 0, `(81559 MiB in "MiB")`},
		{0, "power.draw", "W", 690.12, ""},
		{0, "temperature.gpu", "", 67, ""},
		{0, "name", "", 0, "NVIDIA H100, 80GB, HBM3"},
		{1, "temperature.gpu", "", 0, "ERR!"},
	} {
		if value, missing := table.rows[want.row].number(want.field, want.unit); value != want.value || missing != want.missing {
			t.Errorf("%s of row %d in %q is %g, %q, want %g, %q", want.field, want.row, want.unit, value, missing, want.value, want.missing)
		}
	}
	for _, field := range []string{"clocks_event_reasons.active", "clocks_throttle_reasons.active"} {
		if bits, missing := table.rows[0].mask(field); bits != 4 || missing != "" {
			t.Errorf("%s is %#x, %q, want 0x4", field, bits, missing)
		}
	}
	if bits, missing := table.rows[1].mask("clocks_event_reasons.active"); bits != 0 || missing != "[N/A]" {
		t.Errorf("the mask of row 1 is %#x, %q, want [N/A]", bits, missing)
	}
	if _, missing := table.rows[0].mask("index"); missing != "0" {
		t.Errorf("a number without 0x is taken for a mask, missing %q", missing)
	}
	if a, b := table.rows[0].line, table.rows[1].line; a != 2 || b != 4 {
		t.Errorf("the rows are in lines %d and %d, want 2 and 4", a, b)
	}
}

func TestSMIFailures(t *testing.T) {
	const head = "index, pci.bus_id\n"
	for _, test := range []struct {
		name, stdout, stderr string
		class                evidence.Class // empty: none
		rows, lost           int
		none                 bool
		detail               string
	}{
		{name: "driver gone", stdout: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that…\n\n", class: evidence.ClassToolMissing, detail: "communicate"},
		{name: "library gone", stdout: "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", class: evidence.ClassToolMissing, detail: "libnvidia-ml.so"},
		{name: "versions differ", stdout: "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.127\n", class: evidence.ClassToolVersion, detail: "mismatch"},
		{name: "on stderr", stdout: head + "0, 00000000:1B:00.0\n", stderr: "Failed to initialize NVML: Unknown Error\n", class: evidence.ClassToolMissing, detail: "Unknown Error"},
		{name: "amid the rows", stdout: head + "0, 00000000:1B:00.0\nFailed to initialize NVML: Unknown Error\n", class: evidence.ClassToolMissing, detail: "Unknown Error"},
		{name: "unknown field", stdout: "Field \"x\" is not a valid field to query.\n\n", class: evidence.ClassToolVersion, detail: `Field "x"`},
		{name: "unknown option", stdout: "Option --query-gpus=index is not recognized. Please run 'nvidia-smi -h'.\n", class: evidence.ClassToolVersion, detail: "--query-gpus"},
		{name: "empty", class: evidence.ClassOutputCut, detail: "does not say that there is none"},
		{name: "header alone", stdout: head, class: evidence.ClassOutputCut, detail: "lists no GPU"},
		{name: "torn row", stdout: head + "0, 00000000:1B:00.0\n1, 00000000:4", class: evidence.ClassOutputCut, detail: "within line 3"},
		{name: "torn before the line's end", stdout: head + "0, 00000000:1B:00.0", class: evidence.ClassOutputCut, detail: "within line 2"},
		{name: "short row", stdout: head + "0\n", class: evidence.ClassOutputCut, detail: "1 of 2 fields"},
		{name: "long row", stdout: head + "0, a, b\n", class: evidence.ClassUnparsable, detail: "3 fields"},
		{name: "no header", stdout: "0, 00000000:1B:00.0\n", class: evidence.ClassUnparsable, detail: "not a header"},
		{name: "two answers", stdout: head + "0, 00000000:1B:00.0\n" + head, class: evidence.ClassUnparsable, detail: "second header"},
		{name: "no device and a row", stdout: head + "0, 00000000:1B:00.0\nNo devices were found\n", class: evidence.ClassUnparsable, detail: "there are none"},
		{name: "no device", stdout: "No devices were found\n", none: true},
		{name: "no device and a lost one", stdout: "No devices were found\n", stderr: "Unable to determine the device handle for GPU0: 0000:1B:00.0: Unknown Error\n", none: true, lost: 1},
		{name: "lost", stdout: "Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error\n", lost: 1},
		{name: "lost, on both streams", stdout: "Unable to determine the device handle for GPU 0000:1B:00.0: GPU is lost.\n", stderr: "Unable to determine the device handle for GPU 0000:1B:00.0: GPU is lost.\n", lost: 1},
		{name: "lost among rows", stdout: head + "0, 00000000:1B:00.0\nUnable to determine the device handle for GPU0000:43:00.0: Unknown Error\n2, 00000000:52:00.0\n", rows: 2, lost: 1},
		{name: "lines of Windows", stdout: "index, pci.bus_id\r\n0, 00000000:1B:00.0\r\n", rows: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			table, problem := parseSMI([]byte(test.stdout), []byte(test.stderr))
			if problem == nil {
				problem = &evidence.Problem{}
			}
			if problem.Class != test.class || !strings.Contains(problem.Detail, test.detail) {
				t.Errorf("the problem is %q %q, want %q with %q", problem.Class, problem.Detail, test.class, test.detail)
			}
			if len(table.rows) != test.rows || len(table.lost) != test.lost || (table.none != nil) != test.none {
				t.Errorf("%d rows, %d lost, none %v, want %d, %d, %v", len(table.rows), len(table.lost), table.none, test.rows, test.lost, test.none)
			}
			for _, line := range table.lost {
				if line.address != "0000:1b:00.0" && line.address != "0000:43:00.0" {
					t.Errorf("the lost GPU of %q is at %q", line.text, line.address)
				}
			}
		})
	}
}

// A line that names no address is of some GPU all the same.
func TestSMILostWithoutAddress(t *testing.T) {
	for _, line := range []string{"Unable to determine the device handle for GPU0: Unknown Error", "GPU is lost. Reboot the system to recover this GPU"} {
		table, problem := parseSMI([]byte(line+"\n"), nil)
		if problem != nil || len(table.lost) != 1 || table.lost[0].address != "" {
			t.Errorf("%q: %+v %v, want one lost GPU without an address", line, table.lost, problem)
		}
	}
}

func TestPCIAddress(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"00000000:1B:00.0", "0000:1b:00.0"},
		{"0000:1b:00.0", "0000:1b:00.0"},
		{"00010000:E1:00.0", "10000:e1:00.0"},
		{"10000:e1:00.0", "10000:e1:00.0"},
		{"1b:00.0", ""},
		{"0000:1b:00.8", ""},
		{"0000:1b:00", ""},
		{" 0000:1b:00.0", ""},
		{"0000:1b:00.01", ""},
		{"[N/A]", ""},
		{"", ""},
	} {
		if got, ok := pciAddress(test.text); got != test.want || ok != (test.want != "") {
			t.Errorf("pciAddress(%q) is %q, %v, want %q", test.text, got, ok, test.want)
		}
	}
	if pciCompare("0000:e1:00.0", "10000:01:00.0") >= 0 || pciCompare("0000:1b:00.0", "0000:43:00.0") >= 0 || pciCompare("0000:1b:00.0", "0000:1b:00.0") != 0 {
		t.Error("addresses are not in the order of the bus")
	}
}

// What is read of any text stands in it, whole, and no number is made up.
func FuzzNvidiaSmi(f *testing.F) {
	const head = "index, name, pci.bus_id, memory.total [MiB], clocks_event_reasons.active\n"
	for _, seed := range []string{
		head + "0, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 81559 MiB, 0x0000000000000004\n",
		head + "0, NVIDIA, H100, 00000000:1B:00.0, [N/A], [N/A]\nUnable to determine the device handle for GPU0000:43:00.0: Unknown Error\n",
		"No devices were found\n", "Field \"x\" is not a valid field to query.\n", "WARNING: infoROM is corrupted at gpu 0000:52:00.0\n",
		"Failed to initialize NVML: Driver/library version mismatch\n", "GPU is lost\n", "name\nA\n", "index,name\n0,,,,\n",
	} {
		f.Add([]byte(seed), []byte(""))
		f.Add([]byte(head), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, stdout, stderr []byte) {
		table, problem := parseSMI(stdout, stderr)
		if problem != nil {
			if !problem.Class.Known() || problem.Detail == "" || len(table.rows)+len(table.lost) > 0 {
				t.Errorf("problem %+v with %+v", problem, table)
			}
			return
		}
		if len(table.rows)+len(table.lost) == 0 && table.none == nil {
			t.Error("nothing is listed, and that is no problem")
		}
		if len(table.rows) > 0 && stdout[len(stdout)-1] != '\n' && len(table.lost)+len(table.notes) == 0 {
			t.Error("a text that ends within a line is taken for whole")
		}
		lines := bytes.Split(stdout, []byte("\n"))
		for _, row := range table.rows {
			for _, column := range row.columns {
				text, missing := row.text(column.name)
				if (text == "") == (missing == "") {
					t.Errorf("%s is %q and missing %q", column.name, text, missing)
				}
				if !bytes.Contains(lines[row.line-1], []byte(text)) {
					t.Errorf("%q is not in line %d", text, row.line)
				}
				value, missing := row.number(column.name, column.unit)
				if math.IsNaN(value) || math.IsInf(value, 0) || missing != "" && value != 0 {
					t.Errorf("%s is %g and missing %q", column.name, value, missing)
				}
				if bits, missing := row.mask(column.name); missing != "" && bits != 0 {
					t.Errorf("%s is %x and missing %q", column.name, bits, missing)
				}
			}
		}
	})
}
