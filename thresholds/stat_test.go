package thresholds

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
	"slices"
	"testing"
)

// generator is a linear congruential generator (Knuth's MMIX constants), so
// that the corpus depends on no library.
type generator uint64

func (g *generator) next() float64 {
	*g = *g*6364136223846793005 + 1442695040888963407
	return float64(*g>>11) / (1 << 53)
}

// corpus is sets of samples of many sizes and magnitudes, sorted.
func corpus() [][]float64 {
	g := generator(20261130)
	var sets [][]float64
	for _, n := range []int{1, 2, 3, 4, 5, 8, 19, 20, 21, 99, 100, 101, 997} {
		for _, scale := range []float64{1e-9, 1, 461.95, 1e9} {
			set := make([]float64, n)
			for i := range set {
				set[i] = (g.next() - 0.25) * scale
			}
			slices.Sort(set)
			sets = append(sets, set)
		}
	}
	return sets
}

// flat is sets of equal samples, whose means rounding may move.
func flat() [][]float64 {
	var sets [][]float64
	for _, x := range []float64{0.1, 0.3, 461.95, -0.1} {
		for _, n := range []int{3, 6, 20} {
			sets = append(sets, slices.Repeat([]float64{x}, n))
		}
	}
	return sets
}

// TestStatisticsAreBitEqual is run with other instruction sets too, such as
// GOAMD64=v3, whose compiler may fuse a multiplication with an addition.
func TestStatisticsAreBitEqual(t *testing.T) {
	hash := sha256.New()
	add := func(v float64) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], math.Float64bits(v))
		hash.Write(b[:])
	}
	for _, set := range slices.Concat(corpus(), flat()) {
		for _, name := range StatNames() {
			s := Stat(name)
			if v, at, undefined := s.of(set); undefined == "" {
				add(v)
				add(float64(at))
			} else {
				hash.Write([]byte(undefined))
			}
		}
		for _, resolution := range []float64{0, 0.1} {
			scores, undefined := madScores(set, resolution)
			hash.Write([]byte(undefined))
			for _, v := range scores {
				add(v)
			}
		}
	}
	const want = "fefb74d02800264cb18fc42963bd21bedf56340db2bb41237e7f92f77bca243e"
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		t.Errorf("the statistics of the corpus have the digest %s, want %s", got, want)
	}
}

func TestStatistics(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		stat Stat
		set  []float64
		want float64
		at   int
	}{
		{"min", []float64{1, 2, 4}, 1, 0},
		{"max", []float64{1, 2, 4}, 4, 2},
		{"mean", []float64{1, 2, 6}, 3, 0},
		{"mean", []float64{0.1, 0.1, 0.1}, 0.1, 0},
		{"mean", []float64{-0.1, -0.1, -0.1}, -0.1, 0},
		{"median", []float64{1, 2, 6}, 2, 1},
		{"median", []float64{1, 2, 3, 6}, 2.5, 1},
		{"count", []float64{0, 0}, 2, 0},
		{"sum", []float64{1, 2, 6}, 9, 0},
		{"spread", []float64{90, 100, 110}, 20, 0},
		{"spread", []float64{-110, -100, -90}, 20, 0},
		{"p1", hundred, 1, 0},
		{"p5", hundred, 5, 4},
		{"p50", hundred, 50, 49},
		{"p95", hundred, 95, 94},
		{"p99", hundred, 99, 98},
		{"p95", hundred[:20], 19, 18},
		{"p50", []float64{7, 8}, 7, 0},
	} {
		got, at, undefined := c.stat.of(c.set)
		if got != c.want || at != c.at || undefined != "" {
			t.Errorf("%s of %v = %v at %d, %q; want %v at %d", c.stat, c.set, got, at, undefined, c.want, c.at)
		}
	}
}

func TestUndefinedStatistics(t *testing.T) {
	for _, c := range []struct {
		stat Stat
		set  []float64
		want string
	}{
		{"min", nil, "min needs 1 sample and has 0"},
		{"count", nil, "count needs 1 sample and has 0"},
		{"sum", nil, "sum needs 1 sample and has 0"},
		{"spread", []float64{1}, "spread needs 2 samples and has 1"},
		{"spread", []float64{-1, 0, 1}, "spread is relative to the median, which is 0"},
		{"p95", make([]float64, 19), "p95 needs 20 samples and has 19"},
		{"p99", make([]float64, 99), "p99 needs 100 samples and has 99"},
		{"p5", make([]float64, 19), "p5 needs 20 samples and has 19"},
		{"sum", []float64{math.MaxFloat64, math.MaxFloat64}, "the result is too large for a number"},
		{"mean", []float64{math.MaxFloat64, math.MaxFloat64}, "the result is too large for a number"},
		{"mad_z", []float64{1}, "mad_z needs 5 samples and has 1"},
		{"distinct", []float64{1}, "distinct is not a statistic of one group of numbers"},
		{"bogus", []float64{1}, "bogus is not a statistic of one group of numbers"},
	} {
		if _, _, got := c.stat.of(c.set); got != c.want {
			t.Errorf("%s of %d samples: %q, want %q", c.stat, len(c.set), got, c.want)
		}
	}
}

// TestAgainstExactArithmetic compares with sums that are not rounded before
// the end.
func TestAgainstExactArithmetic(t *testing.T) {
	for _, set := range corpus() {
		exact := new(big.Float).SetPrec(2000)
		magnitude := 0.0
		for _, x := range set {
			exact.Add(exact, big.NewFloat(x))
			magnitude += math.Abs(x)
		}
		bound := float64(len(set)) * magnitude * 0x1p-53 // Higham 2002, section 4.2, for a plain sum
		wantSum, _ := exact.Float64()
		wantMean, _ := new(big.Float).Quo(exact, big.NewFloat(float64(len(set)))).Float64()
		for stat, want := range map[Stat]float64{StatSum: wantSum, StatMean: wantMean} {
			if got, _, undefined := stat.of(set); undefined != "" || math.Abs(got-want) > bound {
				t.Errorf("%s of %d samples = %v (%s), want %v within %v", stat, len(set), got, undefined, want, bound)
			}
		}
		for q := 1; q < 100; q++ {
			s := Stat("p" + string(big.NewInt(int64(q)).Text(10)))
			got, _, undefined := s.of(set)
			if undefined != "" {
				continue
			}
			atMost := 0
			for _, x := range set {
				if x <= got {
					atMost++
				}
			}
			if atMost*100 < q*len(set) || (atMost-1)*100 >= q*len(set) {
				t.Errorf("%s of %d samples has %d at or below it", s, len(set), atMost)
			}
		}
	}
}

func TestModifiedZScore(t *testing.T) {
	// Median 461.95 and MAD 0.65: the slow node stands out, where its classic
	// z-score of −2.47 cannot reach 3.
	scores, undefined := madScores([]float64{462.1, 461.8, 463.0, 462.5, 460.9, 461.5, 462.7, 430.2}, 0)
	if undefined != "" {
		t.Fatal(undefined)
	}
	// 0.5 % of the median, 2.30975, is more than the MAD and becomes the scale.
	if want := -9.2716; math.Abs(scores[7]-want) > 1e-3 {
		t.Errorf("score of the slow node = %v, want %v", scores[7], want)
	}
	if math.Abs(scores[2]) > 0.5 {
		t.Errorf("score of a good node = %v", scores[2])
	}

	for _, c := range []struct {
		name       string
		set        []float64
		resolution float64
		want       []float64
	}{
		{"MAD is the scale", []float64{1, 2, 3, 4, 5}, 0, []float64{-1.349, -0.6745, 0, 0.6745, 1.349}},
		{"resolution is the scale", []float64{0, 0, 0, 0, 1}, 0.5, []float64{0, 0, 0, 0, 1.349}},
		{"0.5 % of the median is the scale", []float64{100, 100, 100, 100, 101}, 0, []float64{0, 0, 0, 0, 1.349}},
		{"no scale", []float64{0, 0, 0, 0, 1}, 0, []float64{0, 0, 0, 0, math.NaN()}},
		{"all alike", []float64{0, 0, 0, 0, 0}, 0, []float64{0, 0, 0, 0, 0}},
	} {
		got, undefined := madScores(c.set, c.resolution)
		if undefined != "" || len(got) != len(c.want) {
			t.Errorf("%s: %v, %q", c.name, got, undefined)
			continue
		}
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-12 || math.IsNaN(got[i]) != math.IsNaN(c.want[i]) {
				t.Errorf("%s: scores %v, want %v", c.name, got, c.want)
				break
			}
		}
	}
	if _, undefined := madScores([]float64{1, 2, 3, 4}, 1); undefined != "mad_z compares at least 5 subjects and has 4" {
		t.Errorf("four subjects: %q", undefined)
	}
}

func TestParseStat(t *testing.T) {
	for _, name := range StatNames() {
		if s, err := ParseStat(name); err != nil || string(s) != name {
			t.Errorf("ParseStat(%q) = %q, %v", name, s, err)
		}
	}
	for _, bad := range []string{"", "p", "p0", "p100", "p05", "p+5", "p-5", "p5.5", "P95", "average", "Min", "change", "min "} {
		if s, err := ParseStat(bad); err == nil {
			t.Errorf("ParseStat(%q) = %q", bad, s)
		}
	}
	if n := len(StatNames()); n != 109 {
		t.Errorf("%d names", n)
	}
}

func TestStatNeeds(t *testing.T) {
	for s, want := range map[Stat]int{"min": 1, "mean": 1, "count": 1, "spread": 2, "distinct": 2, "mad_z": 5, "p1": 100, "p5": 20, "p33": 4, "p50": 2, "p90": 10, "p95": 20, "p99": 100, "equals": 1} {
		if got := s.Samples(); got != want {
			t.Errorf("%s needs %d samples, want %d", s, got, want)
		}
	}
	for s, want := range map[Stat]string{"min": "W", "p95": "W", "sum": "W", "count": "1", "mad_z": "1", "distinct": "1", "spread": "%", "equals": ""} {
		if got := s.Unit("W"); got != want {
			t.Errorf("%s of watts has the unit %q, want %q", s, got, want)
		}
	}
	for s, want := range map[Stat]bool{"equals": true, "distinct": true, "min": false, "p5": false} {
		if got := s.Text(); got != want {
			t.Errorf("%s.Text() = %v", s, got)
		}
	}
}
