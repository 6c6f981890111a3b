package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/runner/sshserver"
)

// The tools of GNU coreutils and their kin (Debian 12), as far as the runner
// and the checks call them.

func succeed(context.Context, *Call) sshserver.Exit { return code(0) }

func fail(context.Context, *Call) sshserver.Exit { return code(1) }

func echo(_ context.Context, c *Call) sshserver.Exit {
	c.printf("%s\n", strings.Join(c.Argv[1:], " "))
	return code(0)
}

// id knows -u: everybody is root here.
func id(_ context.Context, c *Call) sshserver.Exit {
	if !slices.Equal(c.Argv[1:], []string{"-u"}) {
		return c.usage("%q", c.Argv)
	}
	c.printf("0\n")
	return code(0)
}

// date knows -u, which is nothing new where TZ is UTC, and a format of %s, %N,
// %Z, %F, %T.
func date(_ context.Context, c *Call) sshserver.Exit {
	args := c.Argv[1:]
	if len(args) > 0 && args[0] == "-u" {
		args = args[1:]
	}
	if len(args) != 1 || !strings.HasPrefix(args[0], "+") {
		return c.usage("%q", c.Argv)
	}
	now := time.Now().UTC()
	text := strings.NewReplacer(
		"%s", strconv.FormatInt(now.Unix(), 10), "%N", fmt.Sprintf("%09d", now.Nanosecond()), "%Z", "UTC",
		"%F", now.Format(time.DateOnly), "%T", now.Format(time.TimeOnly), "%%", "%",
	).Replace(args[0][1:])
	c.printf("%s\n", text)
	return code(0)
}

func cat(_ context.Context, c *Call) sshserver.Exit {
	names := words(c.Argv[1:])
	if len(names) == 0 {
		_, _ = io.Copy(c.Stdout, c.Stdin)
		return code(0)
	}
	status := 0
	for _, name := range names {
		data, err := c.Files.read(name)
		if err != nil {
			fmt.Fprintf(c.Stderr, "cat: %s: %s\n", name, err)
			status = 1
			continue
		}
		_, _ = c.Stdout.Write(data)
	}
	return code(status)
}

// words are arguments without the -- that ends options.
func words(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}

func head(_ context.Context, c *Call) sshserver.Exit {
	return excerpts(c, func(lines [][]byte, n int) [][]byte { return lines[:min(n, len(lines))] })
}

func tail(_ context.Context, c *Call) sshserver.Exit {
	return excerpts(c, func(lines [][]byte, n int) [][]byte {
		if n < 0 { // "+N": from line N on
			return lines[min(-n-1, len(lines)):]
		}
		return lines[max(0, len(lines)-n):]
	})
}

// excerpts is head and tail with -n and -v, or -q for none of the headings
// that several files get.
func excerpts(c *Call, choose func([][]byte, int) [][]byte) sshserver.Exit {
	n, headings := 10, false
	args := c.Argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch {
		case args[0] == "-v":
			headings = true
		case args[0] == "-n" && len(args) > 1:
			from, text := 1, args[1]
			if rest, ok := strings.CutPrefix(text, "+"); ok {
				from, text = -1, rest
			}
			count, err := strconv.Atoi(text)
			if err != nil {
				return c.usage("%q", c.Argv)
			}
			n = from * count
			args = args[1:]
		case args[0] == "--":
		default:
			return c.usage("%q", c.Argv)
		}
		args = args[1:]
	}
	headings = headings || len(args) > 1
	status, shown := 0, 0
	for _, name := range args {
		data, err := c.Files.read(name)
		if err != nil {
			fmt.Fprintf(c.Stderr, "%s: cannot open '%s' for reading: %s\n", path.Base(c.Argv[0]), name, err)
			status = 1
			continue
		}
		if headings {
			if shown > 0 {
				c.printf("\n")
			}
			c.printf("==> %s <==\n", name)
		}
		shown++
		_, _ = c.Stdout.Write(bytes.Join(choose(slices.Collect(bytes.Lines(data)), n), nil))
	}
	return code(status)
}

func mkdir(_ context.Context, c *Call) sshserver.Exit {
	parents := false
	args := c.Argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-p":
			parents = true
		case "-m":
			args = args[min(1, len(args)-1):]
		case "--":
		default:
			return c.usage("%q", c.Argv)
		}
		args = args[1:]
	}
	status := 0
	for _, name := range args {
		if err := c.Files.mkdir(name, parents); err != nil {
			fmt.Fprintf(c.Stderr, "mkdir: cannot create directory '%s': %s\n", name, err)
			status = 1
		}
	}
	return code(status)
}

// rm knows -r and -f.
func rm(_ context.Context, c *Call) sshserver.Exit {
	recursive, force := false, false
	args := c.Argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if args[0] != "--" {
			recursive = recursive || strings.ContainsAny(args[0], "rR")
			force = force || strings.Contains(args[0], "f")
			if strings.Trim(args[0], "-rRf") != "" {
				return c.usage("%q", c.Argv)
			}
		}
		args = args[1:]
	}
	status := 0
	for _, name := range args {
		found := []string{name}
		if recursive {
			files, dirs := c.Files.below(name)
			slices.Reverse(dirs)
			found = append(files, dirs...)
		}
		if len(found) == 0 && !force {
			found = []string{name}
		}
		for _, each := range found {
			if err := c.Files.remove(each); err != nil && !(force && err == errNoEntry) {
				fmt.Fprintf(c.Stderr, "rm: cannot remove '%s': %s\n", each, err)
				status = 1
			}
		}
	}
	return code(status)
}

// kmsg is where a write becomes a message of the kernel.
const kmsg = "/dev/kmsg"

func tee(_ context.Context, c *Call) sshserver.Exit {
	add := false
	args := c.Argv[1:]
	if len(args) > 0 && args[0] == "-a" {
		add, args = true, args[1:]
	}
	data, err := io.ReadAll(c.Stdin)
	if err != nil {
		fmt.Fprintf(c.Stderr, "tee: read error: %s\n", err)
		return code(1)
	}
	_, _ = c.Stdout.Write(data)
	status := 0
	for _, name := range words(args) {
		if name == kmsg {
			writeKernel(c, string(data))
			continue
		}
		if err := c.Files.write(name, data, add); err != nil {
			fmt.Fprintf(c.Stderr, "tee: %s: %s\n", name, err)
			status = 1
		}
	}
	return code(status)
}

// writeKernel logs one message a line; "<5>" before it is its priority (the
// kernel's Documentation/ABI/testing/dev-kmsg).
func writeKernel(c *Call, text string) {
	for line := range strings.Lines(text) {
		priority := 4
		if rest, ok := strings.CutPrefix(line, "<"); ok {
			if number, after, found := strings.Cut(rest, ">"); found {
				if n, err := strconv.Atoi(number); err == nil {
					priority, line = n&7, after
				}
			}
		}
		c.Node.Log(priority, strings.TrimSuffix(line, "\n"))
	}
}

func sleep(ctx context.Context, c *Call) sshserver.Exit {
	if len(c.Argv) != 2 {
		return c.usage("%q", c.Argv)
	}
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(c.Argv[1], "s"), 64)
	if err != nil {
		fmt.Fprintf(c.Stderr, "sleep: invalid time interval '%s'\n", c.Argv[1])
		return code(1)
	}
	return pause(ctx, time.Duration(min(seconds, 1e9)*float64(time.Second)))
}

// pause waits for d; an end before that is one by TERM.
func pause(ctx context.Context, d time.Duration) sshserver.Exit {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return code(0)
	case <-ctx.Done():
		return sshserver.Exit{Signal: "TERM"}
	}
}

// flock knows -n, -E, --verbose and a command (util-linux 2.38).
func flock(ctx context.Context, c *Call) sshserver.Exit {
	busy, verbose, wait := 1, false, true
	args := c.Argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch {
		case args[0] == "-n":
			wait = false
		case args[0] == "--verbose":
			verbose = true
		case args[0] == "-E" && len(args) > 1:
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return c.usage("%q", c.Argv)
			}
			busy, args = n, args[1:]
		default:
			return c.usage("%q", c.Argv)
		}
		args = args[1:]
	}
	if len(args) < 2 || wait {
		return c.usage("%q", c.Argv)
	}
	if !c.Files.lock(args[0]) {
		if verbose {
			fmt.Fprintf(c.Stderr, "flock: failed to get lock\n")
		}
		return code(busy)
	}
	defer c.Files.unlock(args[0])
	if verbose {
		c.printf("flock: getting lock took 0.000002 seconds\nflock: executing %s\n", args[1])
	}
	return c.exec(ctx, args[1:])
}

// stdbuf, env, nice, timeout and sudo run another program.

func stdbuf(ctx context.Context, c *Call) sshserver.Exit { return c.behind(ctx, 1) }

func nice(ctx context.Context, c *Call) sshserver.Exit {
	args := 1
	if len(c.Argv) > 2 && c.Argv[1] == "-n" {
		args = 3
	}
	return c.behind(ctx, args)
}

func sudo(ctx context.Context, c *Call) sshserver.Exit { return c.behind(ctx, 1) }

func env(ctx context.Context, c *Call) sshserver.Exit {
	next := *c
	args := c.Argv[1:]
	for len(args) > 0 && (strings.Contains(args[0], "=") || strings.HasPrefix(args[0], "-")) {
		switch name, _, set := strings.Cut(args[0], "="); {
		case set && name != "":
			next.Env = append(slices.Clone(next.Env), args[0])
		case args[0] == "-i":
			next.Env = nil
		case args[0] == "-u" && len(args) > 1:
			unset := args[1] + "="
			next.Env = slices.DeleteFunc(slices.Clone(next.Env), func(e string) bool { return strings.HasPrefix(e, unset) })
			args = args[1:]
		default:
			return c.usage("%q", c.Argv)
		}
		args = args[1:]
	}
	if len(args) == 0 {
		for _, e := range next.Env {
			c.printf("%s\n", e)
		}
		return code(0)
	}
	return next.exec(ctx, args)
}

func timeout(ctx context.Context, c *Call) sshserver.Exit {
	args := c.Argv[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if args[0] == "-k" || args[0] == "-s" {
			args = args[min(1, len(args)-1):]
		}
		args = args[1:]
	}
	if len(args) < 2 {
		return c.usage("%q", c.Argv)
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		if d, err = time.ParseDuration(args[0] + "s"); err != nil {
			return c.usage("%q", c.Argv)
		}
	}
	bound, stop := context.WithTimeout(ctx, d)
	defer stop()
	exit := c.exec(bound, args[1:])
	if bound.Err() != nil && ctx.Err() == nil {
		return code(124)
	}
	return exit
}

// behind runs the program after options, of which the first so many words of
// argv are none.
func (c *Call) behind(ctx context.Context, from int) sshserver.Exit {
	args := c.Argv[min(from, len(c.Argv)):]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		args = args[1:]
	}
	if len(args) == 0 {
		return c.usage("%q", c.Argv)
	}
	return c.exec(ctx, args)
}
