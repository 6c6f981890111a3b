package evidence

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestWorst(t *testing.T) {
	for _, tc := range []struct {
		in   []Outcome
		want Outcome
	}{
		{nil, Inconclusive},
		{[]Outcome{None}, Inconclusive},
		{[]Outcome{Pass}, Pass},
		{[]Outcome{Pass, Pass}, Pass},
		{[]Outcome{Pass, None}, Inconclusive},
		{[]Outcome{None, Pass}, Inconclusive},
		{[]Outcome{Inconclusive, Pass}, Inconclusive},
		{[]Outcome{Error, Inconclusive}, Error},
		{[]Outcome{Error, Fail, Pass}, Fail},
		{[]Outcome{Fail, None}, Fail},
		{[]Outcome{Outcome(7)}, Inconclusive},
		{[]Outcome{Pass, Outcome(-1)}, Inconclusive},
	} {
		if got := Worst(tc.in...); got != tc.want {
			t.Errorf("Worst(%v) = %v, want %v", tc.in, got, tc.want)
		}
	}
	all := []Outcome{None, Pass, Inconclusive, Error, Fail}
	for _, a := range all {
		for _, b := range all {
			if Worst(a, b) != Worst(b, a) || Worst(a, Worst(b)) != Worst(a, b) {
				t.Errorf("Worst of %v and %v depends on their order or grouping", a, b)
			}
			if Worst(a, b) == Pass && (a != Pass || b != Pass) {
				t.Errorf("Worst(%v, %v) is a pass", a, b)
			}
		}
	}
}

func TestOutcomeWords(t *testing.T) {
	for _, o := range []Outcome{None, Pass, Inconclusive, Error, Fail} {
		text, err := o.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back Outcome
		if err := back.UnmarshalText(text); err != nil || back != o || string(text) != o.String() {
			t.Errorf("%v reads back as %v from %q, %v", o, back, text, err)
		}
	}
	var o Outcome
	for _, text := range []string{"", "Pass", "PASS", "ok", "1"} {
		if err := o.UnmarshalText([]byte(text)); err == nil || o != None {
			t.Errorf("the word %q is taken for %v", text, o)
		}
	}
	if _, err := Outcome(9).MarshalText(); err == nil {
		t.Error("an unknown outcome reaches a document")
	}
}

func TestClassesNeverPass(t *testing.T) {
	for class := range classTable {
		if class != ClassOK && class.Outcome() == Pass {
			t.Errorf("class %s is a pass", class)
		}
	}
	if got := Class("new").Outcome(); got != Inconclusive || Class("new").Known() || Class("new").ProvedByMeasure() {
		t.Errorf("an unknown class is %v", got)
	}
	if ClassDamaged.ProvedByMeasure() {
		t.Error("measurements mend damaged evidence")
	}
}

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "30m": 30 * time.Minute, "72h": 3 * day, "3d": 3 * day,
		"1d12h": 36 * time.Hour, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "1.5h": 90 * time.Minute,
		"0d": 0, "1d0s": day,
	} {
		d, err := ParseDuration(text)
		if err != nil || d.Std() != want {
			t.Errorf("%q is %v, %v; want %v", text, d, err, want)
		}
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Errorf("%q is written %q and read back as %v, %v", text, d, again, err)
		}
	}
	for _, text := range []string{
		"", "d", "1", "s", "-1s", "+1s", "1d-2h", "1h1d", "1.5d", "1us", "1ns", "1µs", "99999d", "70000d",
		"9999999h", "1 h", "1H", " 1h", "1d1d", "٣h", "1e3s", "NaNs", "Infh",
	} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken for %v", text, d)
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]uint64{
		"0B": 0, "1500B": 1500, "4KiB": 4096, "16GiB": 16 << 30, "1EiB": 1 << 60, "15EiB": 15 << 60,
		"1024B": 1024, "18446744073709551615B": math.MaxUint64, "007MiB": 7 << 20,
	} {
		if n, err := ParseBytes(text); err != nil || n != want {
			t.Errorf("%q is %d, %v; want %d", text, n, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "want a whole number", "B": "want", "GiB": "want", "16": "without a unit", "16G": "want", "16GB": `write "GiB"`, "16kB": `write "KiB"`,
		"1.5GiB": "want", "-1B": "want", "16 GiB": "want", "16gib": "want", "16EiB": "beyond 16 EiB",
		"18446744073709551616B": "beyond", "99999999999999999999GiB": "beyond", "1ZiB": "want", "1Gib": "want", "0x10B": "want", "1GiBB": "want",
	} {
		if n, err := ParseBytes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %d, %v; want %q", text, n, err, want)
		}
	}
	for n, want := range map[uint64]string{0: "0B", 1: "1B", 1023: "1023B", 1024: "1KiB", 1536: "1536B", 3 << 30: "3GiB", math.MaxUint64: "18446744073709551615B", 1 << 63: "8EiB"} {
		if got := FormatBytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		n := random.Uint64() >> random.IntN(64) << random.IntN(64)
		if back, err := ParseBytes(FormatBytes(n)); err != nil || back != n {
			t.Fatalf("%d is written %q and read back as %d, %v", n, FormatBytes(n), back, err)
		}
	}
}

func TestDigest(t *testing.T) {
	d := DigestOf([]byte("abc")) // FIPS 180-2, appendix B.1
	if d != "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" || len(d.Hex()) != 64 {
		t.Errorf("digest of abc is %s", d)
	}
	for _, text := range []string{"", "sha256:", d.Hex(), "SHA256:" + d.Hex(), strings.ToUpper(string(d)), string(d) + "0", string(d)[:70], "sha512:" + d.Hex()} {
		if got, err := ParseDigest(text); err == nil {
			t.Errorf("%q is taken for %s", text, got)
		}
	}
}

func TestNewRunID(t *testing.T) {
	at := time.Date(2026, 11, 30, 15, 2, 11, 0, time.FixedZone("", 3600))
	id, err := NewRunID(at, bytes.NewReader([]byte{0x3f, 0x9a}))
	if err != nil || id != "2026-11-30t14-02-11z-3f9a" || ValidPath(id) != nil {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := NewRunID(at, bytes.NewReader([]byte{0x3f})); err == nil {
		t.Error("a name with one random byte")
	}
}

func TestSimulatedServer(t *testing.T) {
	for version, want := range map[string]bool{
		"SSH-2.0-rackproof-sim": true, "SSH-2.0-rackproof-sim_1.2 lab": true, "SSH-1.99-rackproof-sim": true,
		"": false, "SSH-2.0-OpenSSH_10.0": false, "SSH-2.0-OpenSSH_10.0 rackproof-sim": false, "rackproof-sim": false,
	} {
		if got := SimulatedServer(version); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}
