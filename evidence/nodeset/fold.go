package nodeset

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Fold writes a set of names in the shortest form that Parse reads back as
// the same set: "gpu[001-032]". Names that differ in several numbers fold in
// all of them ("r[1-4]n[01-16]"). The result depends on the set alone, not on
// order or duplicates. Terms are in natural order, numbers inside a bracket
// have one padding, and steps are never used. Fold of no names is "".
func Fold(names []string) string {
	names = slices.Clone(names)
	slices.SortFunc(names, Compare)
	names = slices.Compact(names)

	byShape := map[string][]split{}
	for _, name := range names {
		s := cut(name)
		byShape[s.shape()] = append(byShape[s.shape()], s)
	}
	var terms []term
	for _, same := range byShape {
		for _, rows := range byPadding(same) {
			terms = append(terms, merge(rows)...)
		}
	}
	slices.SortFunc(terms, func(a, b term) int { return Compare(a.first, b.first) })
	texts := make([]string, len(terms))
	for i, t := range terms {
		texts[i] = t.text
	}
	return strings.Join(texts, ",")
}

// split is a name cut into literals and numbers: literals[0] numbers[0]
// literals[1] … literals[n].
type split struct {
	literals []string
	digits   []string
}

func (s split) shape() string { return strings.Join(s.literals, "\x00") }

// cut takes a name apart. Digits that are too many for a range stay literal.
func cut(name string) split {
	var s split
	literal := 0
	for i := 0; i < len(name); {
		if !digit(name[i]) {
			i++
			continue
		}
		end := i
		for end < len(name) && digit(name[end]) {
			end++
		}
		if end-i <= maxDigits {
			s.literals = append(s.literals, name[literal:i])
			s.digits = append(s.digits, name[i:end])
			literal = end
		}
		i = end
	}
	s.literals = append(s.literals, name[literal:])
	return s
}

// byPadding groups names of one shape so that inside a group every number, at
// its place, is its value written with one width.
func byPadding(names []split) [][]row {
	places := len(names[0].digits)
	padded := make([][]int, places) // widths seen with a leading zero, ascending
	for i := range places {
		for _, s := range names {
			if d := s.digits[i]; len(d) > 1 && d[0] == '0' && !slices.Contains(padded[i], len(d)) {
				padded[i] = append(padded[i], len(d))
			}
		}
		slices.Sort(padded[i])
	}
	groups := map[string][]row{}
	for _, s := range names {
		r := row{literals: s.literals, widths: make([]int, places), values: make([][]uint64, places)}
		var key strings.Builder
		for i, d := range s.digits {
			r.widths[i] = width(d, padded[i])
			n, err := strconv.ParseUint(d, 10, 64)
			if err != nil {
				panic(err) // cut leaves only numbers that fit
			}
			r.values[i] = []uint64{n}
			key.WriteString(strconv.Itoa(r.widths[i]) + ",")
		}
		groups[key.String()] = append(groups[key.String()], r)
	}
	result := make([][]row, 0, len(groups))
	for _, rows := range groups {
		result = append(result, rows)
	}
	return result
}

// width is the padding that digits belong to: their own where they have a
// leading zero, else the widest seen padding that would write them the same
// way, else 1.
func width(digits string, padded []int) int {
	if len(digits) > 1 && digits[0] == '0' {
		return len(digits)
	}
	w := 1
	for _, p := range padded {
		if p <= len(digits) {
			w = p
		}
	}
	return w
}

// row is a product of sets of numbers between literals.
type row struct {
	literals []string
	widths   []int
	values   [][]uint64
}

// key is the same for rows that differ at the given place only.
func (r row) key(without int) string {
	var b strings.Builder
	for i, values := range r.values {
		if i != without {
			for _, v := range values {
				b.WriteString(strconv.FormatUint(v, 36))
				b.WriteByte(',')
			}
		}
		b.WriteByte(';')
	}
	return b.String()
}

// term is one term of the folded text, with its first name for sorting.
type term struct{ first, text string }

// merge joins rows that differ in one number only, from the last place to the
// first, until each row is one term.
func merge(rows []row) []term {
	for place := len(rows[0].values) - 1; place >= 0; place-- {
		index := map[string]int{}
		joined := rows[:0:0]
		for _, r := range rows {
			key := r.key(place)
			if at, ok := index[key]; ok {
				joined[at].values[place] = append(joined[at].values[place], r.values[place]...)
				continue
			}
			index[key] = len(joined)
			joined = append(joined, r)
		}
		for _, r := range joined {
			slices.Sort(r.values[place])
		}
		rows = joined
	}
	terms := make([]term, len(rows))
	for i, r := range rows {
		terms[i] = r.term()
	}
	return terms
}

func (r row) term() term {
	first, text := r.literals[0], r.literals[0]
	for i, values := range r.values {
		first += pad(values[0], r.widths[i]) + r.literals[i+1]
		text += ranges(values, r.widths[i]) + r.literals[i+1]
	}
	return term{first: first, text: text}
}

// ranges writes ascending numbers as one bracket, or bare where there is one.
func ranges(values []uint64, width int) string {
	if len(values) == 1 {
		return pad(values[0], width)
	}
	var parts []string
	for i := 0; i < len(values); {
		end := i
		for end+1 < len(values) && values[end+1] == values[end]+1 {
			end++
		}
		part := pad(values[i], width)
		if end > i {
			part += "-" + pad(values[end], width)
		}
		parts = append(parts, part)
		i = end + 1
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// Compare is natural order: numbers inside names compare by value, so that
// n9 comes before n10. Names that differ in padding only are ordered by the
// shorter number, then byte by byte.
func Compare(a, b string) int {
	x, y := a, b
	padding := 0
	for x != "" && y != "" {
		if !digit(x[0]) || !digit(y[0]) {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		var m, n string
		m, x = leadingDigits(x)
		n, y = leadingDigits(y)
		p, q := strings.TrimLeft(m, "0"), strings.TrimLeft(n, "0")
		if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q)); c != 0 {
			return c
		}
		padding = cmp.Or(padding, cmp.Compare(len(m), len(n)))
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), padding, strings.Compare(a, b))
}

func leadingDigits(s string) (digits, rest string) {
	end := 0
	for end < len(s) && digit(s[end]) {
		end++
	}
	return s[:end], s[end:]
}
