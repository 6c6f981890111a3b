package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// What a step printed counts only if it ran what the plan's parameters make
// it run: a weaker command that was recorded honestly is still another one.
// So each check has one pure function that gives the argv of every step, for
// Drive to run and for Measure to hold exit.json against.

// commandLine is what a step must have run. Where mark is not empty it stands,
// in the words, for a text of form that only the attempt itself knew.
type commandLine struct {
	argv []string
	mark string
	form string // RE2
}

// exactly is a commandLine of which every word is known.
func exactly(argv []string) commandLine { return commandLine{argv: argv} }

// holds reports whether the word is the one wanted.
func (c commandLine) holds(want, word string) bool {
	if c.mark == "" || !strings.Contains(want, c.mark) {
		return word == want
	}
	pieces := strings.Split(want, c.mark)
	for i := range pieces {
		pieces[i] = regexp.QuoteMeta(pieces[i])
	}
	form, err := regexp.Compile(`\A(?s:` + strings.Join(pieces, "(?:"+c.form+")") + `)\z`)
	return err == nil && form.MatchString(word)
}

// difference says where argv is not what must have run, or nothing.
func (c commandLine) difference(argv []string) string {
	if len(argv) == 0 {
		return "exit.json has no argv"
	}
	for i, word := range argv {
		if i >= len(c.argv) {
			return fmt.Sprintf("it ran with %s as word %d, where none was asked", excerpt(word, 0), i+1)
		}
		if want := c.argv[i]; !c.holds(want, word) {
			from := commonPrefix(want, word)
			return fmt.Sprintf("it ran with %s as word %d, where %s was asked", excerpt(word, from), i+1, excerpt(want, from))
		}
	}
	if len(argv) < len(c.argv) {
		return fmt.Sprintf("it ran without word %d, where %s was asked", len(argv)+1, excerpt(c.argv[len(argv)], 0))
	}
	return ""
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// excerpt quotes the part of a word around the byte at: a script that is one
// word differs far behind what would fit in a line.
func excerpt(word string, at int) string {
	const before, whole = 16, 48
	start, end := 0, len(word)
	if len(word) > whole {
		start = max(0, min(at-before, len(word)-whole))
		end = min(start+whole, len(word))
		for start > 0 && !utf8.RuneStart(word[start]) {
			start--
		}
		for end < len(word) && !utf8.RuneStart(word[end]) {
			end++
		}
	}
	text := fmt.Sprintf("%q", strings.ToValidUTF8(word[start:end], "\uFFFD"))
	if start > 0 {
		text = "…" + text
	}
	if end < len(word) {
		text += "…"
	}
	return text
}

// substitute is argv with text in place of mark, in its arguments.
func substitute(argv []string, mark, text string) []string {
	words := slices.Clone(argv)
	for i := 1; i < len(words); i++ {
		words[i] = strings.ReplaceAll(words[i], mark, text)
	}
	return words
}
