package evidence

import "strconv"

// Count is n things in words: "1 cell", "2 cells".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// OrEmpty is list, or an empty one where it is nil: in a document "[]" says
// that there is nothing, and "null" says nothing.
func OrEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
