package evidence

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

var byteUnits = [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// ParseBytes reads a size: a whole number and one of B, KiB, MiB, GiB, TiB,
// PiB, EiB, with nothing between them. Units of 1000 are refused: tools use
// "GB" for either.
func ParseBytes(text string) (uint64, error) {
	digits := strings.TrimLeft(text, "0123456789")
	number, unit := text[:len(text)-len(digits)], digits
	n, err := strconv.ParseUint(number, 10, 64)
	if number == "" || err != nil && unit == "" {
		return 0, sizeError(text, "")
	}
	for i, known := range byteUnits {
		if unit != known {
			continue
		}
		if err != nil || bits.Len64(n)+10*i > 64 {
			return 0, fmt.Errorf("size %q is beyond 16 EiB", text)
		}
		return n << (10 * i), nil
	}
	hint := ""
	switch {
	case unit == "":
		hint = ": a number without a unit could be anything"
	case strings.HasSuffix(unit, "B") && len(unit) == 2:
		hint = fmt.Sprintf(": %q is a thousand to some tools and 1024 to others; write %q or the bytes", unit, strings.ToUpper(unit[:1])+"iB")
	}
	return 0, sizeError(text, hint)
}

func sizeError(text, hint string) error {
	return fmt.Errorf("size %q: want a whole number and B, KiB, MiB, GiB, TiB, PiB or EiB, such as \"16GiB\"%s", text, hint)
}

// FormatBytes is the one spelling of a size that labels use: with the largest
// unit that divides it, such as 16GiB, 4KiB and 1500B.
func FormatBytes(n uint64) string {
	unit := 0
	for n != 0 && unit < len(byteUnits)-1 && n%1024 == 0 {
		n /= 1024
		unit++
	}
	return strconv.FormatUint(n, 10) + byteUnits[unit]
}
