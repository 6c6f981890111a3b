package sim

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackproof/rackproof/runner/sshserver"
)

// findTest is one part of find's expression: it says whether it holds for a
// path, and may do something about it.
type findTest func(name string, dir bool) bool

// finder evaluates an expression of find (findutils 4.9) on a node's files.
type finder struct {
	c      *Call
	ctx    context.Context
	least  int      // -mindepth
	most   int      // -maxdepth; negative: none
	last   []func() // what is done when all is walked
	acts   bool     // the expression prints or deletes by itself
	failed bool
	err    error // what the expression holds and is not known here
}

// listing is the expression with which links are listed.
var listing = []string{"-type", "l", "-printf", `%f %l\n`}

// find knows one starting point and -depth, -mindepth, -maxdepth, -type f and
// d, -name, -empty, -delete, -print, -exec with {} +, -o, and parentheses; and
// several starting points for a listing of links.
func find(ctx context.Context, c *Call) sshserver.Exit {
	args := c.Argv[1:]
	if n := len(args) - len(listing); n > 0 && slices.Equal(args[n:], listing) {
		text, missing := c.listLinks(args[:n])
		c.printf("%s", text)
		for _, start := range missing {
			fmt.Fprintf(c.Stderr, "find: '%s': No such file or directory\n", start)
		}
		return code(min(1, len(missing)))
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || args[0] == "(" {
		return c.usage("%q", c.Argv)
	}
	start, args := args[0], args[1:]
	deep := slices.Contains(args, "-depth") || slices.Contains(args, "-delete")
	f := &finder{c: c, ctx: ctx, most: -1}
	holds := func(string, bool) bool { return true }
	if len(args) > 0 {
		var rest []string
		if holds, rest = f.either(args); f.err == nil && len(rest) > 0 {
			f.err = fmt.Errorf("%q", rest)
		}
	}
	if f.err != nil {
		return c.usage("%v", f.err)
	}
	if !c.Files.exists(start) {
		fmt.Fprintf(c.Stderr, "find: '%s': No such file or directory\n", start)
		return code(1)
	}
	files, dirs := c.Files.below(start)
	all := append(files, dirs...)
	slices.SortFunc(all, func(a, b string) int { return walkOrder(a, b, deep) })
	top := strings.Count(path.Clean(start), "/")
	for _, name := range all {
		depth := strings.Count(name, "/") - top
		if depth < f.least || f.most >= 0 && depth > f.most {
			continue
		}
		if holds(name, c.Files.isDir(name)) && !f.acts {
			c.printf("%s\n", name)
		}
	}
	for _, end := range f.last {
		end()
	}
	if f.failed {
		return code(1)
	}
	return code(0)
}

// walkOrder compares paths by their names, one after another: a directory
// comes before what is in it, or where the walk is deep after it.
func walkOrder(a, b string, deep bool) int {
	one, other := strings.Split(a, "/"), strings.Split(b, "/")
	n := min(len(one), len(other))
	if order := slices.Compare(one[:n], other[:n]); order != 0 {
		return order
	}
	if deep {
		return len(other) - len(one)
	}
	return len(one) - len(other)
}

// either reads terms with -o between them.
func (f *finder) either(args []string) (findTest, []string) {
	all, args := f.both(args)
	for f.err == nil && len(args) > 0 && args[0] == "-o" {
		var next findTest
		before := all
		next, args = f.both(args[1:])
		all = func(name string, dir bool) bool { return before(name, dir) || next(name, dir) }
	}
	return all, args
}

// both reads terms with nothing between them, which means and.
func (f *finder) both(args []string) (findTest, []string) {
	all, args := f.term(args)
	for f.err == nil && len(args) > 0 && args[0] != "-o" && args[0] != ")" {
		var next findTest
		before := all
		next, args = f.term(args)
		all = func(name string, dir bool) bool { return before(name, dir) && next(name, dir) }
	}
	return all, args
}

func (f *finder) term(args []string) (findTest, []string) {
	if len(args) == 0 {
		f.err = errors.New("the expression ends early")
		return nil, nil
	}
	word, rest := args[0], args[1:]
	switch {
	case word == "(":
		inner, rest := f.either(rest)
		if f.err == nil && (len(rest) == 0 || rest[0] != ")") {
			f.err = errors.New("a parenthesis is not closed")
		}
		if f.err != nil {
			return nil, nil
		}
		return inner, rest[1:]
	case word == "-depth":
		return always, rest
	case (word == "-mindepth" || word == "-maxdepth") && len(rest) > 0:
		n, err := strconv.Atoi(rest[0])
		if err != nil {
			f.err = fmt.Errorf("%s %s", word, rest[0])
			return nil, nil
		}
		if word == "-mindepth" {
			f.least = n
		} else {
			f.most = n
		}
		return always, rest[1:]
	case word == "-exec":
		return f.execute(rest)
	case word == "-type" && len(rest) > 0 && (rest[0] == "f" || rest[0] == "d"):
		return func(_ string, dir bool) bool { return dir == (rest[0] == "d") }, rest[1:]
	case word == "-name" && len(rest) > 0:
		if _, err := path.Match(rest[0], ""); err != nil {
			f.err = fmt.Errorf("-name %s", rest[0])
			return nil, nil
		}
		return func(name string, _ bool) bool {
			match, _ := path.Match(rest[0], path.Base(name)) // the pattern was tried above
			return match
		}, rest[1:]
	case word == "-empty":
		return f.empty, rest
	case word == "-print":
		f.acts = true
		return func(name string, _ bool) bool { f.c.printf("%s\n", name); return true }, rest
	case word == "-delete":
		f.acts = true
		return f.remove, rest
	}
	f.err = fmt.Errorf("%q", word)
	return nil, nil
}

func always(string, bool) bool { return true }

// execute reads the command of -exec … {} +, which runs once, with all paths.
func (f *finder) execute(args []string) (findTest, []string) {
	end := slices.Index(args, "+")
	if end < 2 || args[end-1] != "{}" {
		f.err = errors.New("-exec without {} +")
		return nil, nil
	}
	f.acts = true
	command := args[:end-1]
	var found []string
	f.last = append(f.last, func() {
		if len(found) > 0 && f.c.exec(f.ctx, slices.Concat(command, found)) != code(0) {
			f.failed = true
		}
	})
	return func(name string, _ bool) bool { found = append(found, name); return true }, args[end+1:]
}

func (f *finder) empty(name string, dir bool) bool {
	if !dir {
		return f.c.Files.size(name) == 0
	}
	files, dirs := f.c.Files.below(name)
	return len(files) == 0 && len(dirs) <= 1
}

func (f *finder) remove(name string, _ bool) bool {
	if err := f.c.Files.remove(name); err != nil {
		fmt.Fprintf(f.c.Stderr, "find: cannot delete '%s': %s\n", name, err)
		f.failed = true
		return false
	}
	return true
}
