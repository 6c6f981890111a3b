package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func readXids(text string) xidReader {
	var r xidReader
	for record := range kernelRecords(text, 1) {
		r.read(record)
	}
	return r
}

func TestXidForms(t *testing.T) {
	for _, test := range []struct {
		text, code, pci string // code: empty for no event
		unit            string
		subcode, link   int
		status          uint32
		fatal           bool
	}{
		{text: "NVRM: Xid (PCI:0000:0f:00): 94, pid=123, name=python3, Ch 00000008", code: "94", pci: "0000:0f:00", link: -1},
		{text: "NVRM: Xid (PCI:0000:AB:00): 94", code: "94", pci: "0000:ab:00", link: -1},
		{text: "NVRM: Xid (0000:03:00): 14, Channel 00000001", code: "14", pci: "0000:03:00", link: -1},
		{text: "NVRM: Xid (03:00): 14, Channel 00000001", code: "14", pci: "0000:03:00", link: -1},
		{text: "NVRM: Xid (PCI:00000000:0f:00): 31, x", code: "31", pci: "0000:0f:00", link: -1},
		{text: "NVRM: Xid (PCI:00010002:0f:00.0): 31, x", code: "31", pci: "10002:0f:00", link: -1},
		{text: "NVRM: Xid (PCI:0008:01:00): 31, pid='<unknown>', name=<unknown>, x", code: "31", pci: "0008:01:00", link: -1},
		{text: "NVRM: Xid (PCI:0000:0f:00): 31, pid=48, name=48, Ch 1", code: "31", pci: "0000:0f:00", link: -1},
		{text: "NVRM: Xid (PCI:0000:0f:00): 31, pid=1, name=a:b): 48, c, Ch 1", code: "31", pci: "0000:0f:00", link: -1},
		{text: "NVRM: Xid (PCI:0000:0f:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)", code: "149", pci: "0000:0f:00", unit: "NETIR_LINK_EVT", subcode: 4, link: 8, fatal: true},
		{text: "NVRM: Xid (PCI:0000:0f:00): 149, pid=7, name=a, b, NETIR_LINK_EVT Nonfatal XC1 i0 Link -1 (0x025001c6 0x00000003", code: "149", pci: "0000:0f:00", unit: "NETIR_LINK_EVT", subcode: 37, link: -1, status: 3},
		{text: "NVRM: Xid (PCI:0000:0f:00): 146, TLW_RX/TLW_RX_PIPE0 Non-fatal XC0 i0 Link 01 (0x00000001 0x80000000)", code: "146", pci: "0000:0f:00", unit: "TLW_RX/TLW_RX_PIPE0", link: 1, status: 1 << 31},
		{text: "NVRM: Xid (PCI:0000:0f:00): 147, Fatal, and of another form", code: "147", pci: "0000:0f:00", link: -1, fatal: true},
		{text: "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No", code: "94", pci: "0000:01:00", link: -1},
		{text: "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 48, pid=7194, name=a, x", code: "48", pci: "0000:01:00", link: -1},
		{text: "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", code: "79", pci: "0000:18:00", link: -1},
		{text: "NVRM: The NVIDIA GPU 0000:18:00.0\n                NVRM: (PCI ID: 10de:2330) installed in this system has\n                NVRM: fallen off the bus and is not responding to commands.", code: "79", pci: "0000:18:00", link: -1},
		{text: "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:2330)\nNVRM: installed in this system has fallen off the bus and is not responding to commands.", code: "79", pci: "0000:18:00", link: -1},
		{text: "NVRM: the GPU has fallen off the bus", code: "79", link: -1},
		{text: "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error (First)", code: "SXID:12028", pci: "0000:85:00", link: -1},
		{text: "nvidia-nvswitch: SXid (PCI:0000:85:00.0): 22003, Fatal, Link 2 Minion Halt (First)", code: "SXID:22003", pci: "0000:85:00", link: -1, fatal: true},

		{text: "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:2330)\nNVRM: installed in this system is not supported"},
		{text: "NVRM: GPU at PCI:0000:05:00: GPU-b850f46d-d5ea-c752-ddf3-c3a7e27fdc7d"},
		{text: "audit: NVRM: Xid (PCI:0000:0f:00): 48, said by a process"},
		{text: "NVRM: Xidoo (PCI:0000:0f:00): 48, x"},
		{text: "usb 1-1: fallen off the bus"},
	} {
		r := readXids("kern  :err   : [    1.000000] " + test.text + "\n")
		if test.code == "" {
			if len(r.events) > 0 || len(r.odd) > 0 {
				t.Errorf("%q: events %v, odd %v; want none", test.text, r.events, r.odd)
			}
			continue
		}
		if len(r.events) != 1 || len(r.odd) > 0 {
			t.Errorf("%q: events %v, odd %v; want one event", test.text, r.events, r.odd)
			continue
		}
		want := xidEvent{code: test.code, pci: test.pci, line: 1, at: 1, timed: true,
			unit: test.unit, subcode: test.subcode, link: test.link, status: test.status, fatal: test.fatal}
		if r.events[0] != want {
			t.Errorf("%q:\ngot  %+v\nwant %+v", test.text, r.events[0], want)
		}
	}
	for _, text := range []string{
		"NVRM: Xid (GPU-5c2f): 79, x",
		"NVRM: Xid (PCI:0000:0f:00): , x",
		"NVRM: Xid (PCI:0000:0f:00): -1, x",
		"NVRM: Xid (PCI:0000:0f:00): 123456, x",
		"NVRM: Xid (PCI:0000:0f:00",
		"NVRM: Xid",
		"nvidia-nvswitch2: SXid 12028",
	} {
		if r := readXids("kern  :err   : [    1.000000] " + text + "\n"); len(r.events) > 0 || len(r.odd) != 1 {
			t.Errorf("%q: events %v, odd %v; want one odd line", text, r.events, r.odd)
		}
	}
}

// The embedded tables are the source of what an XID means, so their size and
// the buckets of an acceptance test are held here.
func TestXidTable(t *testing.T) {
	table, err := readXidTable(xidsCSV, nvlink5CSV)
	if err != nil {
		t.Fatal(err)
	}
	xids, sxids := 0, 0
	bySeverity := make(map[severity][]string)
	for code, row := range table.rows {
		s, known := classSeverity(row.class)
		if !known || row.action == "" || row.source == "" {
			t.Errorf("%s has the class %q, which is unknown, or no action or source", code, row.class)
		}
		if strings.HasPrefix(code, "SXID:") {
			sxids++
			continue
		}
		xids++
		bySeverity[s] = append(bySeverity[s], code)
		if n, err := strconv.Atoi(code); err != nil || n < 1 || n > 173 {
			t.Errorf("there is an XID %q", code)
		}
	}
	if xids != 173 || sxids != 92 {
		t.Errorf("there are %d XIDs and %d SXids, want 173 and 92", xids, sxids)
	}
	for s, want := range map[severity]string{
		severityFail:         "48 54 62 64 74 79 95 110 121 136 140 143 157 158 167 171 172 173",
		severityInconclusive: "37 38 44 46 60 66 67 78 109 119 120 141 151 169",
		severityNote:         "45 106 107 152 153 154 162",
	} {
		slices.SortFunc(bySeverity[s], func(a, b string) int { return len(a)*1000 - len(b)*1000 + strings.Compare(a, b) })
		if got := strings.Join(bySeverity[s], " "); got != want {
			t.Errorf("the XIDs of severity %s are %s, want %s", s, got, want)
		}
	}
	answers := make(map[string]int)
	for _, row := range table.nvlink5 {
		answers[row.resolution]++
		if !nvlink5Code(row.code) || row.units == "" || row.severity == "" {
			t.Errorf("row of NVLink 5 %+v", row)
		}
	}
	if answers["IGNORE"] != 45 || answers["RESET_GPU"] != 41 || answers["XID_154_EVAL"] != 8 || len(answers) != 3 {
		t.Errorf("the answers of NVLink 5 are %v", answers)
	}
}

func TestXidTableDamaged(t *testing.T) {
	const xids, nvlink5 = "xid,name,class,action,source\n", "xid,unit,error_status,resolution,severity,source\n"
	for _, test := range []struct{ xids, nvlink5, want string }{
		{"", nvlink5, "the headings are not xid, name"},
		{"xid,name\n", nvlink5, "the headings are not xid, name"},
		{xids + "1,a,b,c,d\n1,a,b,c,d\n", nvlink5, "1 is there twice"},
		{xids + "1,a\n", nvlink5, "wrong number of fields"},
		{xids, "xid\n", "the headings are not xid, unit"},
		{xids, nvlink5 + "144,A,0x100000000,IGNORE,Fatal,s\n", "not a word of 32 bits"},
	} {
		if _, err := readXidTable(test.xids, test.nvlink5); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q, %q: the error is %v, want one with %q", test.xids, test.nvlink5, err, test.want)
		}
	}
}

func TestXidSeverity(t *testing.T) {
	at := func(code string, seconds float64) xidEvent {
		return xidEvent{code: code, pci: "0000:18:00", at: seconds, timed: true, link: -1}
	}
	other := at("48", 5)
	other.pci = "0000:2a:00"
	nvlink := func(unit string, status uint32) xidEvent {
		return xidEvent{code: "149", unit: unit, status: status}
	}
	fatalSwitch := at("SXID:12028", 0)
	fatalSwitch.fatal = true
	for _, test := range []struct {
		events []xidEvent
		given  map[string]severity
		want   severity // of the last one
	}{
		{events: []xidEvent{at("79", 0)}, want: severityFail},
		{events: []xidEvent{at("999", 0)}, want: severityReview},
		{events: []xidEvent{at("1", 0)}, want: severityReview},
		{events: []xidEvent{at("119", 0)}, want: severityInconclusive},
		{events: []xidEvent{at("154", 0)}, want: severityNote},
		{events: []xidEvent{at("79", 0)}, given: map[string]severity{"79": severityNote}, want: severityNote},
		{events: []xidEvent{at("SXID:12028", 0)}, want: severityReview},
		{events: []xidEvent{fatalSwitch}, want: severityFail},
		{events: []xidEvent{at("SXID:11001", 0)}, want: severityFail},
		{events: []xidEvent{at("SXID:99999", 0)}, want: severityReview},
		{events: []xidEvent{at("45", 0)}, want: severityReview},
		{events: []xidEvent{at("13", 0), at("45", 60)}, want: severityNote},
		{events: []xidEvent{at("13", 0), at("45", 60.1)}, want: severityReview},
		{events: []xidEvent{at("154", 0), at("45", 1)}, want: severityReview},
		{events: []xidEvent{at("13", 0), at("45", 50), at("45", 100)}, want: severityReview},
		{events: []xidEvent{other, at("45", 6)}, want: severityReview},
		{events: []xidEvent{at("45", 6)}, given: map[string]severity{"45": severityFail}, want: severityFail},
		{events: []xidEvent{nvlink("NETIR_MFDE_EVENT", 3)}, want: severityReview},
		{events: []xidEvent{nvlink("NETIR_MFDE_EVENT", 5)}, want: severityFail},
		{events: []xidEvent{nvlink("NETIR_MFDE_EVENT", 9)}, want: severityFail}, // of the bits 1 and 8
		{events: []xidEvent{nvlink("NETIR_INT", 0)}, want: severityFail},
		{events: []xidEvent{nvlink("NETIR_OF_TOMORROW", 0)}, want: severityReview},
	} {
		found := nvidiaXids().severities(test.events, test.given)
		if got := found[len(found)-1]; got != test.want {
			t.Errorf("%+v given %v: %s, want %s", test.events, test.given, got, test.want)
		}
	}
}

func TestLinkForms(t *testing.T) {
	for _, test := range []struct {
		text string
		want linkDown
		down bool
	}{
		{"mlx5_core 0000:3b:00.0 ens1np0: Link down", linkDown{"0000:3b:00.0", "ens1np0"}, true},
		{"mlx5_core 0000:3b:00.0: Port: 1 Link DOWN", linkDown{"0000:3b:00.0", ""}, true},
		{"mlx5_0: Port: 1 Link DOWN", linkDown{"", "mlx5_0"}, true},
		{"infiniband mlx5_bond_0: Port: 1 Link DOWN", linkDown{"", "mlx5_bond_0"}, true},
		{"ixgbe 0000:01:00.0 eth0: NIC Link is Down", linkDown{"0000:01:00.0", "eth0"}, true},
		{"ib0: link down", linkDown{"", "ib0"}, true},
		{"mlx5_core 0000:3b:00.0 ens1np0: Link up", linkDown{}, false},
		{"mlx5_core 0000:3b:00.0 ens1np0: link downgraded", linkDown{}, false},
		{"pcieport 0000:00:01.0: pciehp: Slot(1): Link Down", linkDown{}, false},
		{"ata1: SATA link down (SStatus 0 SControl 300)", linkDown{}, false},
		{"ata1: link down", linkDown{}, false},
		{"a process said: eth0: link down", linkDown{}, false},
	} {
		got, down := readLinkDown(test.text)
		if got != test.want || down != test.down {
			t.Errorf("%q: %+v, %v; want %+v, %v", test.text, got, down, test.want, test.down)
		}
	}
}

func TestKernelRecords(t *testing.T) {
	const text = "torn by the cap] before the first record\n" +
		"kern  :err   : [    1.500000] one\r\n" +
		"               and more\n" +
		"user  :warn  : two\n" +
		"kern  :info  : [    2.000000] [    T7] three\n" +
		"kern  :info  : [    2.000000][C12] four\n" +
		"kern  :loud  : [    2.000000] five\n" +
		"31:debug : [    3.000000] six"
	want := []kernelRecord{
		{8, "kern", "err", 1.5, true, "one\nand more"},
		{10, "user", "warn", 0, false, "two"},
		{11, "kern", "info", 2, true, "three"},
		{12, "kern", "info", 2, true, "four\nkern  :loud  : [    2.000000] five"},
		{14, "31", "debug", 3, true, "six"},
	}
	if got := slices.Collect(kernelRecords(text, 7)); !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	for range kernelRecords(text, 7) {
		break // an iterator that is left must not go on
	}
}

var (
	fuzzedCode = regexp.MustCompile(`^(SXID:)?\d{1,5}$`)
	fuzzedPCI  = regexp.MustCompile(`^([0-9a-f]{4,8}:[0-9a-f]{2,8}:[0-9a-f]{2,8})?$`)
)

// FuzzXid reads any log, and any name of a process in a line of the driver.
func FuzzXid(f *testing.F) {
	f.Add("kern  :err   : [    1.000000] NVRM: Xid (PCI:0000:0f:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)\n", "48")
	f.Add("kern  :err   : [    1.000000] NVRM: The NVIDIA GPU 0000:18:00.0\nkern  :err   : NVRM: fallen off the bus\n", "a): 48, b")
	f.Add("kern  :err   : nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61\r\n", "\xff\xfe")
	f.Fuzz(func(t *testing.T, text, name string) {
		lines := strings.Count(text, "\n") + 1
		r := readXids(text)
		for _, e := range r.events {
			if !fuzzedCode.MatchString(e.code) || !fuzzedPCI.MatchString(e.pci) || e.line < 1 || e.line > lines || e.subcode < 0 || e.subcode > 63 {
				t.Errorf("event %+v", e)
			}
		}
		if len(r.events) > lines {
			t.Errorf("%d events in %d lines", len(r.events), lines)
		}
		if found := nvidiaXids().severities(r.events, nil); len(found) != len(r.events) {
			t.Errorf("%d severities of %d events", len(found), len(r.events))
		}

		// The kernel keeps 15 bytes of a name (TASK_COMM_LEN).
		name = strings.Map(func(c rune) rune {
			if c == '\n' || c == '\r' {
				return -1
			}
			return c
		}, name)
		name = name[:min(len(name), 15)]
		r = readXids(fmt.Sprintf("kern  :err   : [    1.000000] NVRM: Xid (PCI:0000:0f:00): 31, pid=1, name=%s, Ch 1\n", name))
		if len(r.events) != 1 || r.events[0].code != "31" || r.events[0].pci != "0000:0f:00" {
			t.Errorf("a process called %q makes %+v", name, r.events)
		}
	})
}
