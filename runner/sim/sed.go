package sim

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/rackproof/rackproof/runner/sshserver"
)

// sedCommand is one command of a sed program: s/regex/text/, or the address
// /regex/ with d or p.
type sedCommand struct {
	form    *regexp.Regexp
	replace string // as regexp.Expand takes it
	verb    byte   // s, d or p
	print   bool   // of s: the flag p
}

// sed is GNU sed 4.8 with -n, -E, -e and files.
func sed(_ context.Context, c *Call) sshserver.Exit {
	quiet, extended := false, false
	var scripts []string
	args := c.Argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch {
		case args[0] == "-n":
			quiet = true
		case args[0] == "-E" || args[0] == "-r":
			extended = true
		case args[0] == "-e" && len(args) > 1:
			scripts = append(scripts, args[1])
			args = args[1:]
		default:
			return c.usage("%q", c.Argv)
		}
		args = args[1:]
	}
	if scripts == nil && len(args) > 0 {
		scripts, args = args[:1], args[1:]
	}
	if !extended || len(scripts) == 0 || len(args) == 0 {
		return c.usage("%q", c.Argv)
	}
	commands := make([]sedCommand, len(scripts))
	for i, script := range scripts {
		var err error
		if commands[i], err = parseSed(script); err != nil {
			return c.usage("%v", err)
		}
	}
	status := 0
	for _, name := range args {
		data, err := c.Files.read(name)
		if err != nil {
			fmt.Fprintf(c.Stderr, "sed: can't read %s: %s\n", name, err)
			status = 2
			continue
		}
		for line := range bytes.Lines(data) {
			text, whole := strings.CutSuffix(string(line), "\n")
			out := sedLine(commands, text, quiet)
			if !whole {
				// The last line has no end where the input's has none.
				out = strings.TrimSuffix(out, "\n")
			}
			c.printf("%s", out)
		}
	}
	return code(status)
}

// sedLine is what the program prints of one line.
func sedLine(commands []sedCommand, text string, quiet bool) string {
	out := ""
	for _, command := range commands {
		at := command.form.FindStringSubmatchIndex(text)
		if at == nil {
			continue
		}
		switch command.verb {
		case 'd':
			return out
		case 'p':
			out += text + "\n"
		case 's':
			text = text[:at[0]] + string(command.form.ExpandString(nil, command.replace, text, at)) + text[at[1]:]
			if command.print {
				out += text + "\n"
			}
		}
	}
	if !quiet {
		out += text + "\n"
	}
	return out
}

func parseSed(script string) (sedCommand, error) {
	p := &awkParser{rest: script}
	substitute := strings.HasPrefix(script, "s/")
	if substitute {
		p.rest = script[1:]
	}
	form, err := posix(strings.ReplaceAll(p.delimited('/'), `\/`, "/"))
	if p.err != nil || err != nil {
		return sedCommand{}, fmt.Errorf("%q", script)
	}
	if !substitute {
		if p.rest != "d" && p.rest != "p" {
			return sedCommand{}, fmt.Errorf("%q", script)
		}
		return sedCommand{form: form, verb: p.rest[0]}, nil
	}
	p.rest = "/" + p.rest
	text := p.delimited('/')
	if p.err != nil || p.rest != "" && p.rest != "p" || strings.Contains(text, "&") {
		return sedCommand{}, fmt.Errorf("%q", script)
	}
	return sedCommand{form: form, replace: sedText(text), verb: 's', print: p.rest == "p"}, nil
}

// sedText turns \1 and \n of sed into what regexp.Expand takes.
func sedText(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch ch := text[i]; {
		case ch == '$':
			out.WriteString("$$")
		case ch == '\\' && i+1 < len(text):
			i++
			switch next := text[i]; {
			case next >= '0' && next <= '9':
				fmt.Fprintf(&out, "${%c}", next)
			case next == 'n':
				out.WriteByte('\n')
			default:
				out.WriteByte(next)
			}
		default:
			out.WriteByte(ch)
		}
	}
	return out.String()
}
