package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// nvidia-smi of driver 550. Names, units and the forms of values are those of
// an H100's capture in utkuozdemir/nvidia_gpu_exporter (driver 590, whose
// fields of these names are the same).

// device is a GPU as the driver numbers it, and CUDA after it.
type device struct {
	node  *rack.Node
	index int
	slot  int
	lost  bool
}

// devices are the GPUs that have an index: one that never came up has none,
// and those behind it move up.
func devices(n *rack.Node) []device {
	slots, lost := n.Answering()
	found := make([]device, len(slots))
	for i, slot := range slots {
		found[i] = device{n, i, slot, lost[i]}
	}
	return found
}

func (d device) gpu() rack.GPU { return d.node.GPUs[d.slot] }

// Statuses of nvidia-smi (nvidia-smi(1), RETURN VALUE).
const (
	smiBadArgument = 2
	smiNoDevice    = 6
	smiLost        = 15
)

// smiCall is the command line of nvidia-smi, read.
type smiCall struct {
	fields    []smiField
	noHeader  bool
	noUnits   bool
	ids       []string // -i; nil: all
	every     time.Duration
	list      bool
	links     bool
	version   bool
	formatted bool
}

func nvidiaSMI(ctx context.Context, c *Call) sshserver.Exit {
	s, exit, ok := parseSMICall(c)
	if !ok {
		return exit
	}
	if s.version {
		version := c.Node.DriverVersion()
		c.printf("NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : %s\n",
			version, version[:strings.LastIndexByte(version, '.')], version, cudaVersion(version))
		return code(0)
	}
	for first := true; ; first = false {
		if exit := s.once(c, first); exit.Code != 0 || s.every == 0 {
			return exit
		}
		if exit := pause(ctx, s.every); exit.Signal != "" {
			return exit
		}
	}
}

// cudaVersion is the CUDA that a driver's branch has.
func cudaVersion(driver string) string {
	if driver == rack.OldDriver {
		return "12.2"
	}
	return "12.4"
}

// parseSMICall reads the command line; where it is not right, exit is how
// nvidia-smi ends.
func parseSMICall(c *Call) (s smiCall, exit sshserver.Exit, ok bool) {
	args := c.Argv[1:]
	if len(args) > 0 && args[0] == "nvlink" {
		s.links, args = true, args[1:]
	}
	status := false
	for len(args) > 0 {
		name, value, given := strings.Cut(args[0], "=")
		args = args[1:]
		next := func() string {
			if !given && len(args) > 0 {
				value, args = args[0], args[1:]
			}
			return value
		}
		switch name {
		case "--query-gpu", "--query-remapped-rows":
			names := strings.Split(next(), ",")
			for _, field := range names {
				found, known := findSMIField(name, strings.TrimSpace(field))
				if !known {
					c.printf("Field \"%s\" is not a valid field to query.\n\n", strings.TrimSpace(field))
					return s, code(smiBadArgument), false
				}
				s.fields = append(s.fields, found)
			}
		case "--format":
			for _, word := range strings.Split(next(), ",") {
				switch strings.TrimSpace(word) {
				case "csv":
					s.formatted = true
				case "noheader":
					s.noHeader = true
				case "nounits":
					s.noUnits = true
				default:
					c.printf("Invalid format option \"%s\".\n", word)
					return s, code(smiBadArgument), false
				}
			}
		case "-i", "--id":
			s.ids = strings.Split(next(), ",")
		case "-l", "--loop", "-lms", "--loop-ms":
			unit := time.Second
			if strings.HasSuffix(name, "ms") {
				unit = time.Millisecond
			}
			n, err := strconv.Atoi(next())
			if err != nil || n < 1 {
				return s, c.usage("%q", c.Argv), false
			}
			s.every = time.Duration(n) * unit
		case "-L", "--list-gpus":
			s.list = true
		case "-s", "--status":
			status = true
		case "--version":
			s.version = true
		default:
			return s, c.usage("%q", c.Argv), false
		}
	}
	if s.links != status || !s.links && !s.list && !s.version && s.fields == nil {
		return s, c.usage("%q", c.Argv), false
	}
	if s.fields != nil && !s.formatted {
		c.printf("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n\n")
		return s, code(smiBadArgument), false
	}
	return s, code(0), true
}

// once answers one time. nvidia-smi of this branch takes the handles of all
// the GPUs that it is asked for before it prints anything, so that a lost one
// costs the rows of the others. Since 560 it prints those.
func (s smiCall) once(c *Call, first bool) sshserver.Exit {
	chosen := devices(c.Node)
	if s.ids != nil {
		chosen = slices.DeleteFunc(chosen, func(d device) bool {
			return !slices.ContainsFunc(s.ids, func(id string) bool { return d.named(strings.TrimSpace(id)) })
		})
	}
	if len(chosen) == 0 {
		c.printf("No devices were found\n")
		return code(smiNoDevice)
	}
	if !s.list {
		for _, d := range chosen {
			if d.lost {
				c.printf("Unable to determine the device handle for GPU%s: Unknown Error\n", d.gpu().BusID)
				return code(smiLost)
			}
		}
	}
	switch {
	case s.list:
		return s.printList(c, chosen)
	case s.links:
		for _, d := range chosen {
			c.printf("GPU %d: %s (UUID: %s)\n", d.index, rack.GPUModel, d.gpu().UUID)
			for link := range nvLinks {
				c.printf("\t Link %d: %s GB/s\n", link, nvLinkSpeed)
			}
		}
		return code(0)
	}
	if first && !s.noHeader {
		headings := make([]string, len(s.fields))
		for i, f := range s.fields {
			headings[i] = f.heading()
		}
		c.printf("%s\n", strings.Join(headings, ", "))
	}
	for _, d := range chosen {
		reading := smiReading{device: d, state: d.node.State(d.slot), count: len(devices(d.node)), now: time.Now().UTC()}
		values := make([]string, len(s.fields))
		for i, f := range s.fields {
			values[i] = f.print(reading, !s.noUnits)
		}
		c.printf("%s\n", strings.Join(values, ", "))
	}
	return code(0)
}

// An H100 has 18 NVLinks of the fourth generation.
const (
	nvLinks     = 18
	nvLinkSpeed = "26.562"
)

func (s smiCall) printList(c *Call, chosen []device) sshserver.Exit {
	exit := code(0)
	for _, d := range chosen {
		if d.lost {
			c.printf("Unable to determine the device handle for gpu %s: Unknown Error\n", d.gpu().BusID)
			exit = code(smiLost)
			continue
		}
		c.printf("GPU %d: %s (UUID: %s)\n", d.index, rack.GPUModel, d.gpu().UUID)
	}
	return exit
}

// named reports whether id is one of the GPU's names: its index, UUID, serial
// number or PCI address.
func (d device) named(id string) bool {
	gpu := d.gpu()
	return id == strconv.Itoa(d.index) || id == gpu.UUID || id == gpu.Serial ||
		strings.EqualFold(strings.TrimLeft(id, "0"), strings.TrimLeft(gpu.BusID, "0"))
}

// smiReading is what a field's value is printed from.
type smiReading struct {
	device
	state rack.GPUState
	count int
	now   time.Time
}

// smiField is a field of a query. A value of its own, such as [N/A], bears no
// unit.
type smiField struct {
	name  string
	unit  string
	value func(smiReading) string
}

func (f smiField) heading() string {
	if f.unit == "" {
		return f.name
	}
	return f.name + " [" + f.unit + "]"
}

func (f smiField) print(r smiReading, units bool) string {
	text := f.value(r)
	if f.unit == "" || !units || strings.HasPrefix(text, "[") {
		return text
	}
	return text + " " + f.unit
}

// smiAlias has the other names that a field is asked by; the heading has the
// first name (nvidia-smi --help-query-gpu).
var smiAlias = map[string]string{
	"gpu_name": "name", "gpu_serial": "serial", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id",
	"inforom.image": "inforom.img", "inforom.power": "inforom.pwr",
	"remapped_rows.sbe": "remapped_rows.correctable", "remapped_rows.dbe": "remapped_rows.uncorrectable",
	"retired_pages.sbe": "retired_pages.single_bit_ecc.count", "retired_pages.dbe": "retired_pages.double_bit.count",
	"clocks.gr": "clocks.current.graphics", "clocks.sm": "clocks.current.sm", "clocks.mem": "clocks.current.memory", "clocks.video": "clocks.current.video",
	"clocks.max.gr": "clocks.max.graphics", "clocks.max.mem": "clocks.max.memory",
}

// findSMIField looks a field up by any of its names.
func findSMIField(query, name string) (smiField, bool) {
	table := smiFields
	if query == "--query-remapped-rows" {
		table = smiRowFields
	} else {
		if first, ok := smiAlias[name]; ok {
			name = first
		}
		// The older name is taken and the newer one printed.
		if rest, ok := strings.CutPrefix(name, "clocks_throttle_reasons."); ok {
			name = "clocks_event_reasons." + rest
		}
	}
	i := slices.IndexFunc(table, func(f smiField) bool { return f.name == name })
	if i < 0 {
		return smiField{}, false
	}
	return table[i], true
}

func fixed(text string) func(smiReading) string { return func(smiReading) string { return text } }

func rounded(pick func(rack.GPUState) float64) func(smiReading) string {
	return func(r smiReading) string { return strconv.Itoa(int(math.Round(pick(r.state)))) }
}

func watts(r smiReading) string { return fmt.Sprintf("%.2f", r.state.Power) }

func utilization(s rack.GPUState) float64 { return s.Utilization }

// memoryLoad is the share of the time that memory is read or written: a matrix
// product has less to fetch than to compute.
func memoryLoad(s rack.GPUState) float64 { return 0.45 * s.Utilization }

func smClock(s rack.GPUState) float64 { return s.Clock }

// usedMemory is what the load has allocated, in MiB: a burn-in takes nine
// tenths.
func usedMemory(s rack.GPUState) float64 { return 1 + 0.9*s.Load*rack.CUDAMemory }

func freeMemory(s rack.GPUState) float64 { return rack.CUDAMemory - usedMemory(s) }

func reason(bits uint64) func(smiReading) string {
	return func(r smiReading) string {
		if r.state.Reasons&bits != 0 {
			return "Active"
		}
		return "Not Active"
	}
}

const none = "[N/A]"

// wideBusID is a PCI address with the eight digits of a domain that nvidia-smi
// gives it.
func wideBusID(r smiReading) string { return "0000" + r.gpu().BusID }

var smiFields = slices.Concat([]smiField{
	{"timestamp", "", func(r smiReading) string { return r.now.Format("2006/01/02 15:04:05.000") }},
	{"driver_version", "", func(r smiReading) string { return r.node.DriverVersion() }},
	{"count", "", func(r smiReading) string { return strconv.Itoa(r.count) }},
	{"name", "", fixed(rack.GPUModel)},
	{"serial", "", func(r smiReading) string { return r.gpu().Serial }},
	{"uuid", "", func(r smiReading) string { return r.gpu().UUID }},
	{"pci.bus_id", "", wideBusID},
	{"pci.domain", "", fixed("0x0000")},
	{"pci.bus", "", func(r smiReading) string { return "0x" + r.gpu().BusID[5:7] }},
	{"pci.device", "", fixed("0x00")},
	{"pci.device_id", "", fixed("0x" + rack.GPUDevice + "10DE")},
	{"pci.sub_device_id", "", fixed("0x16C110DE")},
	{"pcie.link.gen.current", "", fixed("5")},
	{"pcie.link.gen.gpucurrent", "", fixed("5")},
	{"pcie.link.gen.max", "", fixed("5")},
	{"pcie.link.gen.gpumax", "", fixed("5")},
	{"pcie.link.gen.hostmax", "", fixed("5")},
	{"pcie.link.width.current", "", fixed("16")},
	{"pcie.link.width.max", "", fixed("16")},
	{"index", "", func(r smiReading) string { return strconv.Itoa(r.index) }},
	{"display_mode", "", fixed("Enabled")},
	{"display_active", "", fixed("Disabled")},
	{"persistence_mode", "", fixed("Enabled")},
	{"accounting.mode", "", fixed("Disabled")},
	{"vbios_version", "", fixed(rack.VBIOS)},
	{"inforom.img", "", fixed(rack.InforomImage)},
	{"inforom.oem", "", fixed("2.1")},
	{"inforom.ecc", "", fixed("7.16")},
	{"inforom.pwr", "", fixed(none)},
	{"fan.speed", "%", fixed(none)},
	{"pstate", "", fixed("P0")},
	{"clocks_event_reasons.supported", "", fixed("0x00000000000001FF")},
	{"clocks_event_reasons.active", "", func(r smiReading) string { return fmt.Sprintf("0x%016X", r.state.Reasons) }},
	{"clocks_event_reasons.gpu_idle", "", reason(rack.ReasonIdle)},
	{"clocks_event_reasons.applications_clocks_setting", "", reason(0)},
	{"clocks_event_reasons.sw_power_cap", "", reason(rack.ReasonPowerCap)},
	{"clocks_event_reasons.hw_slowdown", "", reason(rack.ReasonHWSlowdown)},
	{"clocks_event_reasons.hw_thermal_slowdown", "", reason(rack.ReasonHWThermal)},
	{"clocks_event_reasons.hw_power_brake_slowdown", "", reason(rack.ReasonHWPowerBrake)},
	{"clocks_event_reasons.sw_thermal_slowdown", "", reason(0)},
	{"clocks_event_reasons.sync_boost", "", reason(0)},
	{"memory.total", "MiB", fixed(strconv.Itoa(rack.GPUMemory))},
	{"memory.reserved", "MiB", fixed(strconv.Itoa(rack.GPUMemory - rack.CUDAMemory))},
	{"memory.used", "MiB", rounded(usedMemory)},
	{"memory.free", "MiB", rounded(freeMemory)},
	{"compute_mode", "", fixed("Default")},
	{"compute_cap", "", fixed("9.0")},
	{"utilization.gpu", "%", rounded(utilization)},
	{"utilization.memory", "%", rounded(memoryLoad)},
	{"ecc.mode.current", "", fixed("Enabled")},
	{"ecc.mode.pending", "", fixed("Enabled")},
	{"retired_pages.single_bit_ecc.count", "", fixed(none)},
	{"retired_pages.double_bit.count", "", fixed(none)},
	{"retired_pages.pending", "", fixed(none)},
	{"remapped_rows.correctable", "", fixed("0")},
	{"remapped_rows.uncorrectable", "", fixed("0")},
	{"remapped_rows.pending", "", fixed("No")},
	{"remapped_rows.failure", "", fixed("No")},
	{"temperature.gpu", "", rounded(func(s rack.GPUState) float64 { return s.Temperature })},
	{"temperature.gpu.tlimit", "", rounded(func(s rack.GPUState) float64 { return rack.SlowdownAt - s.Temperature })},
	{"temperature.memory", "", rounded(func(s rack.GPUState) float64 { return s.MemoryTemperature })},
	{"power.management", "", fixed("Enabled")},
	{"power.draw", "W", watts},
	{"power.draw.average", "W", watts},
	{"power.draw.instant", "W", watts},
	{"power.limit", "W", fixed(fmt.Sprintf("%.2f", rack.PowerLimit))},
	{"enforced.power.limit", "W", fixed(fmt.Sprintf("%.2f", rack.PowerLimit))},
	{"power.default_limit", "W", fixed(fmt.Sprintf("%.2f", rack.PowerLimit))},
	{"power.min_limit", "W", fixed("200.00")},
	{"power.max_limit", "W", fixed(fmt.Sprintf("%.2f", rack.PowerLimit))},
	{"clocks.current.graphics", "MHz", rounded(smClock)},
	{"clocks.current.sm", "MHz", rounded(smClock)},
	{"clocks.current.memory", "MHz", rounded(func(s rack.GPUState) float64 { return s.MemoryClock })},
	{"clocks.current.video", "MHz", fixed("765")},
	{"clocks.max.graphics", "MHz", fixed(strconv.Itoa(rack.BoostClock))},
	{"clocks.max.sm", "MHz", fixed(strconv.Itoa(rack.BoostClock))},
	{"clocks.max.memory", "MHz", fixed(strconv.Itoa(rack.MemoryClock))},
	{"mig.mode.current", "", fixed("Disabled")},
	{"mig.mode.pending", "", fixed("Disabled")},
	{"fabric.state", "", fixed("Completed")},
	{"fabric.status", "", fixed("Success")},
}, eccFields())

// eccFields are ecc.errors.<corrected>.<volatile>.<place>. What a Hopper has
// no counter for is not applicable.
func eccFields() []smiField {
	var fields []smiField
	for _, kind := range []string{"corrected", "uncorrected"} {
		for _, span := range []string{"volatile", "aggregate"} {
			for _, place := range []string{"device_memory", "dram", "register_file", "l1_cache", "l2_cache", "texture_memory", "cbu", "sram", "total"} {
				value := "0"
				switch place {
				case "register_file", "l1_cache", "l2_cache", "texture_memory", "cbu":
					value = none
				}
				fields = append(fields, smiField{"ecc.errors." + kind + "." + span + "." + place, "", fixed(value)})
			}
		}
	}
	return fields
}

// smiRowFields are those of --query-remapped-rows, which keeps the older names
// of GPUs and prints 1 for yes.
var smiRowFields = []smiField{
	{"timestamp", "", func(r smiReading) string { return r.now.Format("2006/01/02 15:04:05.000") }},
	{"gpu_name", "", fixed(rack.GPUModel)},
	{"gpu_bus_id", "", wideBusID},
	{"gpu_serial", "", func(r smiReading) string { return r.gpu().Serial }},
	{"gpu_uuid", "", func(r smiReading) string { return r.gpu().UUID }},
	{"remapped_rows.correctable", "", fixed("0")},
	{"remapped_rows.uncorrectable", "", fixed("0")},
	{"remapped_rows.pending", "", fixed("0")},
	{"remapped_rows.failure", "", fixed("0")},
}
