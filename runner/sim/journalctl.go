package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sim/rack"
	"github.com/rackproof/rackproof/runner/sshserver"
)

// dmesg of util-linux 2.37 and journalctl of systemd 249 (Ubuntu 22.04), both
// on the kernel's log.

// levels are the names of priorities, as dmesg has them.
var levels = []string{"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"}

func facility(l rack.KernelLine) string {
	if l.User {
		return "user"
	}
	return "kern"
}

// dmesg knows -x, -T, -t, --time-format iso, -l LEVELS and -f FACILITIES.
func dmesg(_ context.Context, c *Call) sshserver.Exit {
	decode, form := false, "seconds"
	var wantLevels, wantFacilities []string
	args := c.Argv[1:]
	for len(args) > 0 {
		name, value, given := strings.Cut(args[0], "=")
		args = args[1:]
		next := func() string {
			if !given && len(args) > 0 {
				value, args = args[0], args[1:]
			}
			return value
		}
		switch name {
		case "-x", "--decode":
			decode = true
		case "-T", "--ctime":
			form = "ctime"
		case "-t", "--notime":
			form = "none"
		case "--time-format":
			if form = next(); form != "iso" && form != "ctime" {
				return c.usage("%q", c.Argv)
			}
		case "-l", "--level":
			wantLevels = strings.Split(next(), ",")
		case "-f", "--facility":
			wantFacilities = strings.Split(next(), ",")
		case "-k", "--kernel":
			wantFacilities = []string{"kern"}
		case "--nopager", "-P", "--color=never":
		default:
			return c.usage("%q", c.Argv)
		}
	}
	var text strings.Builder
	for _, l := range c.Node.KernelLog() {
		if wantLevels != nil && !slices.Contains(wantLevels, levels[l.Priority]) ||
			wantFacilities != nil && !slices.Contains(wantFacilities, facility(l)) {
			continue
		}
		if decode {
			fmt.Fprintf(&text, "%-6s:%-6s: ", facility(l), levels[l.Priority])
		}
		switch form {
		case "seconds":
			fmt.Fprintf(&text, "[%12.6f] ", l.Time.Sub(c.Node.Boot).Seconds())
		case "ctime":
			fmt.Fprintf(&text, "[%s] ", l.Time.UTC().Format(time.ANSIC))
		case "iso":
			text.WriteString(l.Time.UTC().Format("2006-01-02T15:04:05,000000-07:00 "))
		}
		text.WriteString(l.Text + "\n")
	}
	c.printf("%s", text.String())
	return code(0)
}

// journal is the command line of journalctl, read.
type journal struct {
	form     string
	priority int // the least severe that is wanted
	last     int // lines; negative: all
	since    time.Time
}

// journalctl knows the kernel's log alone: -k with -b, -o, -p, -n, --since,
// --no-pager, --no-hostname and -q.
func journalctl(_ context.Context, c *Call) sshserver.Exit {
	j := journal{form: "short", priority: len(levels) - 1, last: -1}
	kernel := false
	args := c.Argv[1:]
	for len(args) > 0 {
		name, value, given := strings.Cut(args[0], "=")
		args = args[1:]
		next := func() string {
			if !given && len(args) > 0 {
				value, args = args[0], args[1:]
			}
			return value
		}
		ok := true
		switch name {
		case "-k", "--dmesg":
			kernel = true
		case "-b", "--boot":
			if len(args) > 0 && args[0] == "0" {
				args = args[1:]
			}
			ok = value == "" || value == "0"
		case "-o", "--output":
			j.form = next()
		case "-p", "--priority":
			j.priority, ok = priority(next())
		case "-n", "--lines":
			var err error
			j.last, err = strconv.Atoi(next())
			ok = err == nil
		case "-S", "--since":
			j.since, ok = sinceTime(next())
		case "--no-pager", "-q", "--quiet", "--utc", "-a", "--all":
		default:
			ok = false
		}
		if !ok {
			return c.usage("%q", c.Argv)
		}
	}
	if !kernel {
		return c.usage("%q: the kernel's log alone (-k)", c.Argv)
	}
	lines := slices.DeleteFunc(c.Node.KernelLog(), func(l rack.KernelLine) bool {
		return l.Priority > j.priority || l.Time.Before(j.since)
	})
	if j.last >= 0 {
		lines = lines[max(0, len(lines)-j.last):]
	}
	var text strings.Builder
	for _, l := range lines {
		if !j.print(&text, c.Node, l) {
			return c.usage("-o %s", j.form)
		}
	}
	if len(lines) == 0 && j.form != "json" {
		text.WriteString("-- No entries --\n")
	}
	c.printf("%s", text.String())
	return code(0)
}

// priority reads a level by its name or its number.
func priority(text string) (int, bool) {
	if text == "warning" {
		text = "warn"
	}
	if i := slices.Index(levels, text); i >= 0 {
		return i, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n < len(levels)
}

// sinceTime reads a time as journalctl takes it: @SECONDS, or a date and time
// in UTC.
func sinceTime(text string) (time.Time, bool) {
	if seconds, ok := strings.CutPrefix(text, "@"); ok {
		n, err := strconv.ParseFloat(seconds, 64)
		return time.UnixMicro(int64(n * 1e6)), err == nil
	}
	at, err := time.Parse(time.DateTime, strings.TrimSuffix(text, " UTC"))
	return at, err == nil
}

// print writes a line in the chosen form, and says whether it knows the form.
func (j journal) print(text *strings.Builder, n *rack.Node, l rack.KernelLine) bool {
	at := l.Time.UTC()
	var stamp string
	switch j.form {
	case "short":
		stamp = at.Format("Jan 02 15:04:05")
	case "short-precise":
		stamp = at.Format("Jan 02 15:04:05.000000")
	case "short-iso":
		stamp = at.Format("2006-01-02T15:04:05-0700")
	case "short-iso-precise":
		stamp = at.Format("2006-01-02T15:04:05.000000-0700")
	case "short-full":
		stamp = at.Format("Mon 2006-01-02 15:04:05 UTC")
	case "short-unix":
		stamp = fmt.Sprintf("%.6f", float64(at.UnixMicro())/1e6)
	case "short-monotonic":
		stamp = fmt.Sprintf("[%12.6f]", at.Sub(n.Boot).Seconds())
	case "cat":
		text.WriteString(l.Text + "\n")
		return true
	case "json":
		text.Write(journalJSON(n, l))
		text.WriteByte('\n')
		return true
	default:
		return false
	}
	fmt.Fprintf(text, "%s %s %s: %s\n", stamp, n.Name, identifier(l), l.Text)
	return true
}

// identifier is who wrote a line: journald takes a user's line for one of an
// unknown program.
func identifier(l rack.KernelLine) string {
	if l.User {
		return "unknown"
	}
	return "kernel"
}

func journalJSON(n *rack.Node, l rack.KernelLine) []byte {
	number := 0
	if l.User {
		number = 1
	}
	monotonic := l.Time.Sub(n.Boot).Microseconds()
	boot := strings.ReplaceAll(n.BootID, "-", "")
	fields := map[string]string{
		"__CURSOR":                    fmt.Sprintf("s=%s;i=%x;b=%s;m=%x;t=%x;x=0", n.MachineID, monotonic, boot, monotonic, l.Time.UnixMicro()),
		"__REALTIME_TIMESTAMP":        strconv.FormatInt(l.Time.UnixMicro(), 10),
		"__MONOTONIC_TIMESTAMP":       strconv.FormatInt(monotonic, 10),
		"_SOURCE_MONOTONIC_TIMESTAMP": strconv.FormatInt(monotonic, 10),
		"_BOOT_ID":                    boot,
		"_MACHINE_ID":                 n.MachineID,
		"_HOSTNAME":                   n.Name,
		"_TRANSPORT":                  "kernel",
		"PRIORITY":                    strconv.Itoa(l.Priority),
		"SYSLOG_FACILITY":             strconv.Itoa(number),
		"MESSAGE":                     l.Text,
	}
	if !l.User {
		fields["SYSLOG_IDENTIFIER"] = identifier(l)
	}
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err) // strings alone
	}
	return data
}
