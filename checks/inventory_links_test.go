package checks

import (
	"strings"
	"testing"

	"github.com/rackproof/rackproof/evidence"
)

const oneAdapter = "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n\tHardware version: 0\n" +
	"\tNode GUID: 0xa088c20300e3142a\n\tSystem image GUID: 0xa088c20300e3142a\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n" +
	"\t\tRate: 400\n\t\tBase lid: 17\n\t\tLMC: 0\n\t\tSM lid: 1\n\t\tCapability mask: 0xa751e848\n\t\tPort GUID: 0xa088c20300e3142a\n\t\tLink layer: InfiniBand\n"

// TestIbstatCapture reads what ibstat printed on a simulated fabric (ibsim),
// with an adapter of a node behind it.
func TestIbstatCapture(t *testing.T) {
	const simulated = "CA 'ibsim0'\n\tCA type: simulator\n\tNumber of ports: 1\n\tFirmware version: 1\n\tHardware version: a1\n\tNode GUID: 0x0000000000100000\n" +
		"\tSystem image GUID: 0x0000000000100000\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 10\n\t\tBase lid: 1\n\t\tLMC: 0\n\t\tSM lid: 1\n" +
		"\t\tCapability mask: 0x0050c048\n\t\tPort GUID: 0x0000000000100001\n\t\tLink layer: IB\n"
	found, problem := parseIbstat([]byte(simulated + oneAdapter))
	if problem != nil || len(found) != 2 {
		t.Fatalf("%+v %v, want two adapters", found, problem)
	}
	first, second := found[0], found[1]
	if first.name != "ibsim0" || first.firmware != "1" || len(first.port) != 1 || first.port[0].linkLayer != "IB" || first.port[0].rateLine != 11 {
		t.Errorf("the first adapter is %+v", first)
	}
	if second.name != "mlx5_0" || second.line != 18 || second.port[0].stateLine != 26 || second.port[0].rate != "400" {
		t.Errorf("the second adapter is %+v", second)
	}
	out := stepOutput{step: hcaStep, node: "n1"}
	if up, rate := second.port[0].up(out), second.port[0].gbits(out); up != (reading{1, "", "hcas.n1/stdout:26"}) || rate != (reading{400, "", "hcas.n1/stdout:28"}) {
		t.Errorf("the second port is %+v at %+v", up, rate)
	}
}

func TestIbstatDamage(t *testing.T) {
	for _, test := range []struct {
		name, old, new string
		class          evidence.Class
		detail         string
	}{
		{"torn", "Link layer: InfiniBand\n", "Link lay", evidence.ClassOutputCut, "within a line"},
		{"without its last field", "\t\tLink layer: InfiniBand\n", "", evidence.ClassOutputCut, "lacks one of"},
		{"without a port", oneAdapter[strings.Index(oneAdapter, "\tPort 1"):], "", evidence.ClassOutputCut, "0 ports listed and says 1"},
		{"fewer ports than it says", "Number of ports: 1", "Number of ports: 2", evidence.ClassOutputCut, "1 ports listed and says 2"},
		{"no number of ports", "Number of ports: 1", "Number of ports: one", evidence.ClassUnparsable, "number of ports"},
		{"a field twice", "\t\tRate: 400\n", "\t\tRate: 400\n\t\tRate: 200\n", evidence.ClassUnparsable, "Rate is there twice"},
		{"another port first", "Port 1:", "Port 2:", evidence.ClassUnparsable, "where port 1 should be"},
		{"a complaint", "\tPort 1:\n", "ibpanic: [77] main: stat of IB device 'mlx5_0' failed: (No such device)\n\tPort 1:\n", evidence.ClassUnparsable, "not one of ibstat"},
		{"the adapter twice", oneAdapter, oneAdapter + oneAdapter, evidence.ClassUnparsable, "again"},
		{"no adapter", "CA 'mlx5_0'\n", "", evidence.ClassUnparsable, "before any adapter"},
	} {
		found, problem := parseIbstat([]byte(strings.Replace(oneAdapter, test.old, test.new, 1)))
		if problem == nil || problem.Class != test.class || !strings.Contains(problem.Detail, test.detail) || found != nil {
			t.Errorf("%s: %v with %+v, want %s with %q", test.name, problem, found, test.class, test.detail)
		}
	}
}

func TestPortReadings(t *testing.T) {
	for _, test := range []struct {
		state, physical, rate string
		up                    float64
		upMissing             string
		gbits                 float64
		gbitsMissing          string
	}{
		{"Active", "LinkUp", "400", 1, "", 400, ""},
		{"Active", "LinkUp", "10 (FDR10)", 1, "", 10, ""},
		{"Active", "LinkUp", "0x10", 1, "", 0, "0x10"},
		{"Active", "LinkUp", "nan", 1, "", 0, "nan"},
		{"Active", "LinkUp", "400 Gb/sec (4X NDR)", 1, "", 0, "400 Gb/sec (4X NDR)"},
		{"Active", "LinkErrorRecovery", "400", 0, "", 0, "(port is LinkErrorRecovery)"},
		{"Initializing", "LinkUp", "10 (FDR10)", 0, "", 0, "(port is Initializing)"},
		{"Armed", "LinkUp", "2.5", 0, "", 0, "(port is Armed)"},
		{"Down", "Disabled", "40", 0, "", 0, "(port is Down)"},
		{"???", "LinkUp", "0x10", 0, "???", 0, "(port is ???)"},
		{"Active", "Dancing", "400 Gb/sec (4X NDR)", 0, "Dancing", 0, "(port is Dancing)"},
		{"active", "LinkUp", "nan", 0, "active", 0, "(port is active)"},
	} {
		port := hcaPort{state: test.state, physical: test.physical, rate: test.rate}
		up, gbits := port.up(stepOutput{}), port.gbits(stepOutput{})
		if up.value != test.up || up.missing != test.upMissing {
			t.Errorf("%s, %s is up %g, %q, want %g, %q", test.state, test.physical, up.value, up.missing, test.up, test.upMissing)
		}
		if gbits.value != test.gbits || gbits.missing != test.gbitsMissing {
			t.Errorf("rate %s is %g, %q, want %g, %q", test.rate, gbits.value, gbits.missing, test.gbits, test.gbitsMissing)
		}
	}
}

// Whatever ibstat printed, an adapter that is taken for whole has all its
// ports, each with its last field in the text.
func FuzzIbstat(f *testing.F) {
	f.Add([]byte(oneAdapter))
	f.Add([]byte(oneAdapter + strings.ReplaceAll(oneAdapter, "mlx5_0", "mlx5_1")))
	f.Add([]byte(strings.ReplaceAll(oneAdapter, "Active", "Down")))
	f.Add([]byte(oneAdapter[:len(oneAdapter)/2]))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, problem := parseIbstat(data)
		if problem != nil {
			if !problem.Class.Known() || problem.Detail == "" || found != nil {
				t.Errorf("problem %+v with %+v", problem, found)
			}
			return
		}
		lines := strings.Split(string(data), "\n")
		for _, adapter := range found {
			if adapter.ports < 1 || adapter.ports != len(adapter.port) {
				t.Errorf("%+v has not the ports that it says", adapter)
			}
			for _, port := range adapter.port {
				up, gbits := port.up(stepOutput{}), port.gbits(stepOutput{})
				if up.value == 1 && !strings.Contains(lines[port.stateLine-1], "Active") {
					t.Errorf("line %d says nothing of Active", port.stateLine)
				}
				if gbits.missing == "" && !strings.Contains(lines[port.rateLine-1], "Rate") {
					t.Errorf("line %d is not the rate %g", port.rateLine, gbits.value)
				}
			}
		}
	})
}
