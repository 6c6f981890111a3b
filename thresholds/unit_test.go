package thresholds

import "testing"

func TestKnown(t *testing.T) {
	for _, u := range units {
		if !Known(u.name) {
			t.Errorf("%q is listed and not known", u.name)
		}
		if Hint(u.name, u.name) != "" {
			t.Errorf("hint between %q and itself", u.name)
		}
	}
	for _, u := range []string{"", "gb/s", "GBps", "IOPS", "KB", "°C", "widgets", "GB/s "} {
		if Known(u) {
			t.Errorf("%q is known", u)
		}
	}
}

func TestHint(t *testing.T) {
	for _, c := range []struct{ given, want, hint string }{
		{"Gb/s", "GB/s", `"b" is bits and "B" is bytes: a factor of eight`},
		{"GB/s", "Gb/s", `"b" is bits and "B" is bytes: a factor of eight`},
		{"GiB/s", "GB/s", `"GiB/s" counts in powers of 1024 and "GB/s" in powers of 1000: 7.4 % apart`},
		{"MB/s", "MiB/s", `"MB/s" counts in powers of 1000 and "MiB/s" in powers of 1024: 4.9 % apart`},
		{"Gb/s", "GiB/s", `"b" is bits and "B" is bytes: a factor of eight; "Gb/s" counts in powers of 1000 and "GiB/s" in powers of 1024: 7.4 % apart`},
		{"MB/s", "GB/s", `"MB/s" and "GB/s" are a factor of 1000 apart`},
		{"ms", "s", `"ms" and "s" are a factor of 1000 apart`},
		{"h", "min", `"h" and "min" are a factor of 60 apart`},
		{"W", "C", `"W" is a unit of power and "C" of temperature`},
		{"1/s", "1", `"1/s" is a unit of events over time and "1" of a count`},
		{"IOPS", "1/s", `"IOPS" is written "1/s"`},
		{"GBps", "GB/s", `"GBps" is written "GB/s"`},
		{"Gbps", "GB/s", `"Gbps" is written "Gb/s"; "b" is bits and "B" is bytes: a factor of eight`},
		{"Gbit/s", "Gb/s", `"Gbit/s" is written "Gb/s"`},
		{"°C", "C", `"°C" is written "C"`},
		{"µs", "us", `"µs" is written "us"`},
		{"percent", "%", `"percent" is written "%"`},
		{"GHZ", "GHz", `"GHZ" is written "GHz"`},
		{"widgets", "1", ""},
		{"gb/s", "GB/s", ""}, // bits or bytes: not for us to guess
		{"W", "widgets", ""},
	} {
		if got := Hint(c.given, c.want); got != c.hint {
			t.Errorf("Hint(%q, %q) = %q, want %q", c.given, c.want, got, c.hint)
		}
	}
}

func TestSpellingsAreKnown(t *testing.T) {
	for text, u := range spellings {
		if !Known(u) || Known(text) {
			t.Errorf("spelling %q of %q", text, u)
		}
	}
}
