package evidence

import "strconv"

// Count is n things in words: "1 cell", "2 cells".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
