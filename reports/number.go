package reports

import (
	"math"
	"strconv"

	"github.com/rackproof/rackproof/evidence"
)

// digits is how many significant digits a measured value is shown with, where
// that does not move it across a limit. A whole number may be a count, of
// which every digit says something.
const digits = 6

// maxWhole is the largest number up to which every whole number is a float64.
const maxWhole = 1 << 53

// Exact is v in the shortest decimal form that reads back as v.
func Exact(v float64) string {
	if size := math.Abs(v); size != 0 && (size < 1e-6 || size >= 1e21) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// Rounded is v with few digits, but always with enough that what is shown
// lies on the same side of every limit as v itself, or on it if v does. Whole
// numbers up to 2^53 are exact.
func Rounded(v float64, limits ...float64) string { return rounded(digits, v, limits...) }

// rounded is Rounded with at least so many digits.
func rounded(digits int, v float64, limits ...float64) string {
	if v == math.Trunc(v) && math.Abs(v) <= maxWhole {
		return Exact(v)
	}
	for precision := digits; precision < 17; precision++ {
		shown, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', precision, 64), 64)
		if err == nil && sameSide(v, shown, limits) {
			return Exact(shown)
		}
	}
	return Exact(v)
}

// WithUnit is a value with its unit, except "1", which stands for a plain
// count.
func WithUnit(value, unit string) string {
	if unit == "" || unit == "1" {
		return value
	}
	return value + " " + unit
}

func sameSide(v, shown float64, limits []float64) bool {
	for _, limit := range limits {
		if (v < limit) != (shown < limit) || (v > limit) != (shown > limit) {
			return false
		}
	}
	return true
}

// bounds lists the numeric limits of t.
func bounds(t evidence.Threshold) []float64 {
	var all []float64
	for _, bound := range []*float64{t.Min, t.Max} {
		if bound != nil {
			all = append(all, *bound)
		}
	}
	return all
}

// limitText is t's bound as a reader writes it: ">= 380", "<= 0", "= 580.82.07".
func limitText(t evidence.Threshold) string {
	switch {
	case t.Equals != nil:
		return "= " + *t.Equals
	case t.Min != nil && t.Max != nil:
		return Exact(*t.Min) + " to " + Exact(*t.Max)
	case t.Min != nil:
		return ">= " + Exact(*t.Min)
	case t.Max != nil:
		return "<= " + Exact(*t.Max)
	}
	return "none"
}
