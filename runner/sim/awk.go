package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/runner/sshserver"
)

// awk is the part of POSIX awk that sums lines up: rules with a pattern, if,
// print, next, sub, arrays and arithmetic by + and -. A program that has more
// is refused.

// awkExpr is an expression: what it comes to, as text. Numbers are texts that
// read as one.
type awkExpr func(*awkRun) string

// awkStatement reports whether the record is done with (next).
type awkStatement func(*awkRun) (next bool)

type awkRule struct {
	when string // BEGIN, END, or empty: for each record
	test awkExpr
	do   awkStatement
}

type awkRun struct {
	c      *Call
	record string
	values map[string]string
	arrays map[string]map[string]string
}

func awk(_ context.Context, c *Call) sshserver.Exit {
	args := c.Argv[1:]
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return c.usage("%q", c.Argv)
	}
	p := &awkParser{rest: args[0]}
	rules := p.program()
	if p.err != nil {
		return c.usage("%v", p.err)
	}
	run := &awkRun{c: c, values: make(map[string]string), arrays: make(map[string]map[string]string)}
	at := func(when string) {
		for _, r := range rules {
			if r.when == when && (r.test == nil || awkTrue(r.test(run))) && r.do(run) {
				return
			}
		}
	}
	at("BEGIN")
	status := 0
	for _, name := range args[1:] {
		data, err := c.Files.read(name)
		if err != nil {
			fmt.Fprintf(c.Stderr, "awk: cannot open \"%s\" (%s)\n", name, err)
			status = 2
			continue
		}
		for line := range bytes.Lines(data) {
			run.record = strings.TrimSuffix(string(line), "\n")
			at("")
		}
	}
	at("END")
	return code(status)
}

func awkTrue(text string) bool { return text != "" && text != "0" }

func awkBool(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func awkNumber(text string) float64 {
	n, _ := strconv.ParseFloat(strings.TrimSpace(text), 64) // what is no number is 0
	return n
}

func awkText(n float64) string { return strconv.FormatFloat(n, 'g', 6, 64) }

// awkParser reads a program by recursive descent. After the first error it
// reads nothing.
type awkParser struct {
	rest string
	err  error
}

func (p *awkParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	p.rest = ""
}

func (p *awkParser) blank(ends string) { p.rest = strings.TrimLeft(p.rest, " \t"+ends) }

// take reads a word or a sign, if it is next.
func (p *awkParser) take(word string) bool {
	p.blank("")
	rest, ok := strings.CutPrefix(p.rest, word)
	if ok && isName(word) && rest != "" && isName(rest[:1]) {
		return false // it is the beginning of a longer name
	}
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *awkParser) expect(word string) {
	if !p.take(word) {
		p.fail("%q before %.20q", word, p.rest)
	}
}

func isName(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == ""
}

func (p *awkParser) program() []awkRule {
	var rules []awkRule
	for p.blank(";\n"); p.rest != ""; p.blank(";\n") {
		var r awkRule
		switch {
		case p.take("BEGIN"):
			r.when = "BEGIN"
		case p.take("END"):
			r.when = "END"
		case !strings.HasPrefix(p.rest, "{"):
			r.test = p.expr()
		}
		r.do = p.block()
		rules = append(rules, r)
	}
	return rules
}

func (p *awkParser) block() awkStatement {
	p.expect("{")
	var all []awkStatement
	for p.blank(";\n"); p.err == nil && !p.take("}"); p.blank(";\n") {
		all = append(all, p.statement())
	}
	return func(r *awkRun) bool {
		return slices.ContainsFunc(all, func(s awkStatement) bool { return s(r) })
	}
}

func (p *awkParser) statement() awkStatement {
	p.blank("")
	switch {
	case p.err != nil || p.rest == "":
		p.fail("the program ends early")
		return nil
	case strings.HasPrefix(p.rest, "{"):
		return p.block()
	case p.take("next"):
		return func(*awkRun) bool { return true }
	case p.take("print"):
		text := func(r *awkRun) string { return r.record }
		if p.blank(""); p.rest != "" && !strings.ContainsRune(";\n}", rune(p.rest[0])) {
			text = p.expr()
		}
		return func(r *awkRun) bool { r.c.printf("%s\n", text(r)); return false }
	case p.take("if"):
		p.expect("(")
		test := p.expr()
		p.expect(")")
		p.blank("\n")
		then := p.statement()
		before := p.rest
		if p.blank(";\n"); !p.take("else") {
			p.rest = before
			return func(r *awkRun) bool { return awkTrue(test(r)) && then(r) }
		}
		p.blank("\n")
		other := p.statement()
		return func(r *awkRun) bool {
			if awkTrue(test(r)) {
				return then(r)
			}
			return other(r)
		}
	}
	value := p.expr()
	return func(r *awkRun) bool { value(r); return false }
}

// expr is a chain of && and of comparisons, without parentheses from the left.
func (p *awkParser) expr() awkExpr {
	left := p.comparison()
	for p.err == nil {
		switch {
		case p.take("&&"):
			a, b := left, p.comparison()
			left = func(r *awkRun) string { return awkBool(awkTrue(a(r)) && awkTrue(b(r))) }
		case p.take("||"):
			a, b := left, p.comparison()
			left = func(r *awkRun) string { return awkBool(awkTrue(a(r)) || awkTrue(b(r))) }
		default:
			return left
		}
	}
	return left
}

func (p *awkParser) comparison() awkExpr {
	left := p.joined()
	switch {
	case p.take("~"):
		form := p.regex()
		return func(r *awkRun) string { return awkBool(form.MatchString(left(r))) }
	case p.take("in"):
		name := p.name()
		return func(r *awkRun) string { _, ok := r.arrays[name][left(r)]; return awkBool(ok) }
	case p.take("<"):
		right := p.joined()
		return func(r *awkRun) string { return awkBool(awkNumber(left(r)) < awkNumber(right(r))) }
	}
	return left
}

// joined are values side by side, which makes one text of them.
func (p *awkParser) joined() awkExpr {
	all := []awkExpr{p.sum()}
	for p.err == nil && p.startsValue() {
		all = append(all, p.sum())
	}
	if len(all) == 1 {
		return all[0]
	}
	return func(r *awkRun) string {
		var text strings.Builder
		for _, e := range all {
			text.WriteString(e(r))
		}
		return text.String()
	}
}

func (p *awkParser) startsValue() bool {
	p.blank("")
	if p.rest == "" || strings.HasPrefix(p.rest, "in ") {
		return false
	}
	return strings.ContainsAny(p.rest[:1], "\"$(") || isName(p.rest[:1])
}

func (p *awkParser) sum() awkExpr {
	left := p.value()
	for p.err == nil && !strings.HasPrefix(p.rest, "++") {
		var sign float64
		switch {
		case p.take("+"):
			sign = 1
		case p.take("-"):
			sign = -1
		default:
			return left
		}
		a, b := left, p.value()
		left = func(r *awkRun) string { return awkText(awkNumber(a(r)) + sign*awkNumber(b(r))) }
	}
	return left
}

func (p *awkParser) value() awkExpr {
	p.blank("")
	switch {
	case p.rest == "":
		p.fail("the program ends early")
		return nil
	case p.take("!"):
		inner := p.value()
		return func(r *awkRun) string { return awkBool(!awkTrue(inner(r))) }
	case p.take("("):
		inner := p.expr()
		p.expect(")")
		return inner
	case p.take("$0"):
		return func(r *awkRun) string { return r.record }
	case p.rest[0] == '/':
		form := p.regex()
		return func(r *awkRun) string { return awkBool(form.MatchString(r.record)) }
	case p.rest[0] == '"':
		text := p.quoted()
		return func(*awkRun) string { return text }
	case p.take("sub"):
		return p.substitution()
	case !isName(p.rest[:1]):
		p.fail("%.20q", p.rest)
		return nil
	}
	name := p.name()
	if number, err := strconv.ParseFloat(name, 64); err == nil {
		return func(*awkRun) string { return awkText(number) }
	}
	return p.variable(name)
}

// variable is a variable's or an array element's value, or what sets it.
func (p *awkParser) variable(name string) awkExpr {
	read := func(r *awkRun) string { return r.values[name] }
	write := func(r *awkRun, text string) { r.values[name] = text }
	if p.take("[") {
		key := p.expr()
		p.expect("]")
		read = func(r *awkRun) string { return r.arrays[name][key(r)] }
		write = func(r *awkRun, text string) {
			if r.arrays[name] == nil {
				r.arrays[name] = make(map[string]string)
			}
			r.arrays[name][key(r)] = text
		}
	}
	switch {
	case p.take("++"):
		return func(r *awkRun) string {
			before := awkNumber(read(r))
			write(r, awkText(before+1))
			return awkText(before)
		}
	case !strings.HasPrefix(p.rest, "==") && p.take("="):
		text := p.expr()
		return func(r *awkRun) string { write(r, text(r)); return read(r) }
	}
	return read
}

// substitution is sub(regex, "text"), on the record.
func (p *awkParser) substitution() awkExpr {
	p.expect("(")
	p.blank("")
	form := p.regex()
	p.expect(",")
	p.blank("")
	text := p.quoted()
	if p.expect(")"); strings.Contains(text, "&") {
		p.fail("& in sub")
	}
	return func(r *awkRun) string {
		at := form.FindStringIndex(r.record)
		if at == nil {
			return "0"
		}
		r.record = r.record[:at[0]] + text + r.record[at[1]:]
		return "1"
	}
}

func (p *awkParser) name() string {
	p.blank("")
	end := 0
	for end < len(p.rest) && isName(p.rest[end:end+1]) {
		end++
	}
	name := p.rest[:end]
	if p.rest = p.rest[end:]; name == "" {
		p.fail("a name before %.20q", p.rest)
	}
	return name
}

// delimited reads up to the next end that no backslash stands before.
func (p *awkParser) delimited(end byte) string {
	p.blank("")
	if p.rest == "" || p.rest[0] != end {
		p.fail("%q before %.20q", end, p.rest)
		return ""
	}
	for i := 1; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case end:
			text := p.rest[1:i]
			p.rest = p.rest[i+1:]
			return text
		}
	}
	p.fail("%q is not closed", end)
	return ""
}

func (p *awkParser) quoted() string {
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n", `\t`, "\t").Replace(p.delimited('"'))
}

func (p *awkParser) regex() *regexp.Regexp {
	form, err := posix(strings.ReplaceAll(p.delimited('/'), `\/`, "/"))
	if err != nil {
		p.fail("%v", err)
		return regexp.MustCompile("")
	}
	return form
}

// posix is an extended regular expression of POSIX, where the longest of the
// leftmost matches counts. Those that mean another thing in RE2 are refused.
func posix(text string) (*regexp.Regexp, error) {
	if strings.Contains(text, "(?") || strings.Contains(text, "*?") || strings.Contains(text, "+?") {
		return nil, errors.New("a regular expression of another kind")
	}
	form, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	form.Longest()
	return form, nil
}
