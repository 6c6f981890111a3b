package thresholds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// unit says what a unit measures and how large it is. The size is used in
// hints alone: nothing is ever converted.
type unit struct {
	name      string
	dimension string
	size      float64 // in the dimension's base unit
	binary    bool    // its prefix counts in powers of 1024
	bits      bool
}

const (
	kibi = 1 << 10
	mebi = 1 << 20
	gibi = 1 << 30
	tebi = 1 << 40
)

var units = []unit{
	{name: "1", dimension: "a count"},
	{name: "%", dimension: "a share", size: 0.01},
	{name: "ppm", dimension: "a share", size: 1e-6},
	{name: "ppb", dimension: "a share", size: 1e-9},
	{name: "1/s", dimension: "events over time", size: 1},

	{name: "ns", dimension: "time", size: 1e-9},
	{name: "us", dimension: "time", size: 1e-6},
	{name: "ms", dimension: "time", size: 1e-3},
	{name: "s", dimension: "time", size: 1},
	{name: "min", dimension: "time", size: 60},
	{name: "h", dimension: "time", size: 3600},

	{name: "B", dimension: "size", size: 1},
	{name: "kB", dimension: "size", size: 1e3},
	{name: "MB", dimension: "size", size: 1e6},
	{name: "GB", dimension: "size", size: 1e9},
	{name: "TB", dimension: "size", size: 1e12},
	{name: "KiB", dimension: "size", size: kibi, binary: true},
	{name: "MiB", dimension: "size", size: mebi, binary: true},
	{name: "GiB", dimension: "size", size: gibi, binary: true},
	{name: "TiB", dimension: "size", size: tebi, binary: true},

	{name: "B/s", dimension: "data rate", size: 1},
	{name: "kB/s", dimension: "data rate", size: 1e3},
	{name: "MB/s", dimension: "data rate", size: 1e6},
	{name: "GB/s", dimension: "data rate", size: 1e9},
	{name: "TB/s", dimension: "data rate", size: 1e12},
	{name: "KiB/s", dimension: "data rate", size: kibi, binary: true},
	{name: "MiB/s", dimension: "data rate", size: mebi, binary: true},
	{name: "GiB/s", dimension: "data rate", size: gibi, binary: true},
	{name: "TiB/s", dimension: "data rate", size: tebi, binary: true},
	{name: "b/s", dimension: "data rate", size: 1.0 / 8, bits: true},
	{name: "kb/s", dimension: "data rate", size: 1e3 / 8, bits: true},
	{name: "Mb/s", dimension: "data rate", size: 1e6 / 8, bits: true},
	{name: "Gb/s", dimension: "data rate", size: 1e9 / 8, bits: true},
	{name: "Tb/s", dimension: "data rate", size: 1e12 / 8, bits: true},

	{name: "Hz", dimension: "frequency", size: 1},
	{name: "kHz", dimension: "frequency", size: 1e3},
	{name: "MHz", dimension: "frequency", size: 1e6},
	{name: "GHz", dimension: "frequency", size: 1e9},
	{name: "rpm", dimension: "rotation", size: 1},
	{name: "MT/s", dimension: "transfers over time", size: 1e6},
	{name: "GT/s", dimension: "transfers over time", size: 1e9},

	{name: "FLOP/s", dimension: "computing rate", size: 1},
	{name: "GFLOP/s", dimension: "computing rate", size: 1e9},
	{name: "TFLOP/s", dimension: "computing rate", size: 1e12},
	{name: "PFLOP/s", dimension: "computing rate", size: 1e15},

	{name: "mW", dimension: "power", size: 1e-3},
	{name: "W", dimension: "power", size: 1},
	{name: "kW", dimension: "power", size: 1e3},
	{name: "MW", dimension: "power", size: 1e6},
	{name: "J", dimension: "energy", size: 1},
	{name: "kWh", dimension: "energy", size: 3.6e6},
	{name: "mV", dimension: "voltage", size: 1e-3},
	{name: "V", dimension: "voltage", size: 1},
	{name: "mA", dimension: "current", size: 1e-3},
	{name: "A", dimension: "current", size: 1},
	{name: "dBm", dimension: "optical power"},
	{name: "C", dimension: "temperature"},
	{name: "Pa", dimension: "pressure", size: 1},
	{name: "kPa", dimension: "pressure", size: 1e3},
	{name: "l/min", dimension: "flow", size: 1},
}

// spellings are ways to write a unit that are not in the table, in lower
// case where case does not matter.
var spellings = map[string]string{
	"iops": "1/s", "ops": "1/s", "ops/s": "1/s", "op/s": "1/s", "io/s": "1/s", "req/s": "1/s", "tokens/s": "1/s", "/s": "1/s",
	"count": "1", "errors": "1", "ratio": "1",
	"percent": "%", "pct": "%",
	"sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"msec": "ms", "millisecond": "ms", "milliseconds": "ms",
	"usec": "us", "µs": "us", "μs": "us", "microseconds": "us",
	"nsec": "ns", "nanoseconds": "ns",
	"minute": "min", "minutes": "min", "mins": "min", "hour": "h", "hours": "h", "hr": "h",
	"byte": "B", "bytes": "B", "bytes/s": "B/s",
	"kbit/s": "kb/s", "mbit/s": "Mb/s", "gbit/s": "Gb/s", "tbit/s": "Tb/s", "bit/s": "b/s",
	"kbits/sec": "kb/s", "mbits/sec": "Mb/s", "gbits/sec": "Gb/s",
	"°c": "C", "degc": "C", "celsius": "C",
	"watt": "W", "watts": "W", "volt": "V", "volts": "V", "amp": "A", "amps": "A", "ampere": "A",
	"flops": "FLOP/s", "gflops": "GFLOP/s", "tflops": "TFLOP/s", "pflops": "PFLOP/s", "gflop/s": "GFLOP/s", "tflop/s": "TFLOP/s",
	"lpm": "l/min",
}

// Known reports whether unit is in the table of units. Spelling counts: "b"
// is bits and "B" is bytes.
func Known(unit string) bool { return find(unit) != nil }

func find(name string) *unit {
	if i := slices.IndexFunc(units, func(u unit) bool { return u.name == name }); i >= 0 {
		return &units[i]
	}
	return nil
}

// Hint says how the unit given differs from the unit want, such as "\"b\" is
// bits and \"B\" is bytes: a factor of eight"; it is empty where they are the
// same. A given unit that is not known is explained by the known spelling of
// it, if there is one.
func Hint(given, want string) string {
	if given == want {
		return ""
	}
	g, w := find(given), find(want)
	if g == nil {
		if known := spelling(given); known != "" {
			hint := fmt.Sprintf("%q is written %q", given, known)
			if more := Hint(known, want); more != "" && find(want) != nil {
				hint += "; " + more
			}
			return hint
		}
		return ""
	}
	if w == nil {
		return ""
	}
	if g.dimension != w.dimension {
		return fmt.Sprintf("%q is a unit of %s and %q of %s", given, g.dimension, want, w.dimension)
	}
	var parts []string
	if g.bits != w.bits {
		parts = append(parts, `"b" is bits and "B" is bytes: a factor of eight`)
	}
	ratio := w.size / g.size
	if g.bits != w.bits {
		if g.bits {
			ratio /= 8
		} else {
			ratio *= 8
		}
	}
	if ratio < 1 {
		ratio = 1 / ratio
	}
	switch {
	case ratio == 1:
	case g.binary != w.binary:
		prefixes := fmt.Sprintf("%q counts in powers of 1000 and %q in powers of 1024", given, want)
		if g.binary {
			prefixes = fmt.Sprintf("%q counts in powers of 1024 and %q in powers of 1000", given, want)
		}
		if ratio < 2 {
			prefixes += fmt.Sprintf(": %.1f %% apart", (ratio-1)*100)
		}
		parts = append(parts, prefixes)
	default:
		parts = append(parts, fmt.Sprintf("%q and %q are a factor of %s apart", given, want, strconv.FormatFloat(ratio, 'g', 6, 64)))
	}
	return strings.Join(parts, "; ")
}

// spelling is the known unit that text is another way to write, or "".
func spelling(text string) string {
	text = strings.TrimSpace(text)
	if known, ok := spellings[strings.ToLower(text)]; ok {
		return known
	}
	// GBps is bytes and Gbps is bits: the case of the b decides.
	if prefix, ok := strings.CutSuffix(text, "ps"); ok && Known(prefix+"/s") {
		return prefix + "/s"
	}
	if prefix, ok := strings.CutSuffix(text, "/sec"); ok && Known(prefix+"/s") {
		return prefix + "/s"
	}
	for _, u := range units {
		// A wrong case is only safe to mend where bits and bytes, or milli
		// and mega, cannot be meant.
		if strings.EqualFold(u.name, text) && !strings.ContainsAny(u.name, "bBmM") {
			return u.name
		}
	}
	return ""
}
