package evidence

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// stepFiles are what every step that was not cut off has.
var stepFiles = [...]string{"stdout", "stderr", "exit.json"}

// checkRaw compares what attempt.json says with the files of the attempt: each
// listed file is there with its size and digest, nothing else is there, and
// each step has its three files and an exit.json that agrees with them.
func checkRaw(fsys fs.FS, a Attempt) []Problem {
	c := rawCheck{fsys: fsys, attempt: a, dir: AttemptPath(a.Cell, a.Number),
		steps: make(map[string]Step, len(a.Steps)),
		files: make(map[string]File, len(a.Files)),
		exits: map[string][]byte{},
	}
	c.readSteps()
	c.readFiles()
	c.findUnlisted()
	for _, s := range a.Steps {
		c.checkStep(s)
	}
	return c.problems
}

type rawCheck struct {
	fsys     fs.FS
	attempt  Attempt
	dir      string
	steps    map[string]Step   // by directory
	files    map[string]File   // by path below the attempt
	exits    map[string][]byte // the exit.json of steps, by directory
	problems []Problem
}

// maxProblems bounds what one attempt reports: a hostile attempt.json can
// list millions of files that are not there.
const maxProblems = 100

// report notes a problem of one file, or directory, of the attempt.
func (c *rawCheck) report(file, format string, args ...any) {
	if len(c.problems) == maxProblems {
		return
	}
	rest := strings.TrimPrefix(file, "raw/")
	dir, _, _ := strings.Cut(rest, "/")
	s := c.steps[dir]
	c.problems = append(c.problems, Problem{
		Node: s.Node, Step: s.Step, Class: ClassDamaged,
		Detail: c.dir + "/" + file + ": " + fmt.Sprintf(format, args...),
	})
}

func (c *rawCheck) readSteps() {
	last := ""
	for _, s := range c.attempt.Steps {
		switch {
		case checkSegment(s.Dir) != nil:
			c.report("attempt.json", "step %q on %q has the directory %q", s.Step, s.Node, s.Dir)
		case s.Dir <= last:
			c.report("attempt.json", "steps are out of order, or one is there twice, at %s", s.Dir)
		case StepDir(s.Step, s.Node) != s.Dir && !c.attempt.Cut:
			c.report("attempt.json", "step %q on %q has the directory %s", s.Step, s.Node, s.Dir)
		}
		last = s.Dir
		c.steps[s.Dir] = s
	}
}

func (c *rawCheck) readFiles() {
	last := ""
	for _, f := range c.attempt.Files {
		if !hasDir(f.Path, "raw") || ValidPath(f.Path) != nil {
			c.report("attempt.json", "the list has %q, which is not below raw/", f.Path)
			continue
		}
		if f.Path <= last {
			c.report("attempt.json", "files are out of order, or one is there twice, at %s", f.Path)
		}
		last = f.Path
		if dir, name := path.Split(f.Path); dir != "raw/" && !slices.Contains(stepFiles[:], name) {
			c.report(f.Path, "a step has stdout, stderr and exit.json, and nothing else")
		}
		c.files[f.Path] = f
		c.readFile(f)
	}
}

// readFile compares one file with its entry. The bytes of an exit.json are
// kept, so that what was hashed is what is decoded.
func (c *rawCheck) readFile(f File) {
	p := c.dir + "/" + f.Path
	info, err := fs.Stat(c.fsys, p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.report(f.Path, "is missing")
		return
	case err != nil:
		c.report(f.Path, "%v", plainError(err))
		return
	case !info.Mode().IsRegular():
		c.report(f.Path, "%v", errNotRegular)
		return
	case info.Size() != f.Size:
		c.report(f.Path, "has %d bytes, and %d were recorded", info.Size(), f.Size)
		return
	}
	var digest Digest
	if dir, isExit := exitOf(f.Path); isExit {
		var content []byte
		if content, err = readFile(c.fsys, p, maxExitBytes); err == nil {
			c.exits[dir] = content
			digest = DigestOf(content)
		}
	} else {
		digest, err = hashFile(c.fsys, p)
	}
	switch {
	case err != nil:
		c.report(f.Path, "%v", plainError(err))
	case digest != f.Digest:
		c.report(f.Path, "has changed: it is %s, and %s was recorded", digest, f.Digest)
	}
}

// exitOf is the step directory whose exit.json the file is.
func exitOf(file string) (dir string, isExit bool) {
	dir, name := path.Split(strings.TrimPrefix(file, "raw/"))
	return strings.TrimSuffix(dir, "/"), dir != "" && name == "exit.json"
}

func hashFile(fsys fs.FS, p string) (Digest, error) {
	f, err := fsys.Open(p)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return DigestFromSum(sum.Sum(nil)), nil
}

// findUnlisted looks for what is in the attempt's directory and not in
// attempt.json.
func (c *rawCheck) findUnlisted() {
	err := fs.WalkDir(c.fsys, c.dir, func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative := strings.TrimPrefix(strings.TrimPrefix(p, c.dir), "/")
		if relative == "" || relative == "raw" || relative == "attempt.json" {
			return nil
		}
		if !entry.IsDir() {
			if _, listed := c.files[relative]; !listed {
				c.report(relative, "is there and not in attempt.json")
			} else if !entry.Type().IsRegular() {
				c.report(relative, "%v", errNotRegular)
			}
			return nil
		}
		if _, listed := c.steps[strings.TrimPrefix(relative, "raw/")]; !listed {
			c.report(relative, "is the directory of no step of attempt.json")
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		c.report("raw", "%v", plainError(err))
	}
}

func (c *rawCheck) checkStep(s Step) {
	dir := "raw/" + s.Dir
	_, exited := c.files[dir+"/exit.json"]
	cutOff := c.attempt.Cut && s.Class == ClassCut && !exited
	for _, name := range stepFiles {
		if _, listed := c.files[dir+"/"+name]; !listed && !cutOff {
			c.report(dir+"/"+name, "is not in attempt.json, and every step has one")
		}
	}
	content, read := c.exits[s.Dir]
	if !read {
		return
	}
	var exit Exit
	if err := DecodeStrict(content, &exit); err != nil {
		c.report(dir+"/exit.json", "%v", err)
		return
	}
	if err := writtenAs(content, exit); err != nil {
		c.report(dir+"/exit.json", "%v", err)
	}
	if a := c.attempt; !a.Cut && (exit.Start.Before(a.Start.Add(-clockSlack)) || exit.End.After(a.End.Add(clockSlack))) {
		c.report(dir+"/exit.json", "it ran from %s to %s, and the attempt from %s to %s", exit.Start, exit.End, a.Start, a.End)
	}
	for _, fault := range exitFaults(exit, s, c.files[dir+"/stdout"].Size, c.files[dir+"/stderr"].Size) {
		c.report(dir+"/exit.json", "%s", fault)
	}
}

// exitFaults lists where an exit disagrees with its step, with the sizes of
// the files beside it, or with itself.
func exitFaults(e Exit, s Step, stdout, stderr int64) []string {
	var faults []string
	note := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if e.Class != s.Class {
		note("its class is %q, and attempt.json has %q", e.Class, s.Class)
	}
	if e.StdoutBytes != stdout {
		note("it counts %d bytes of stdout, and the file has %d", e.StdoutBytes, stdout)
	}
	if e.StderrBytes != stderr {
		note("it counts %d bytes of stderr, and the file has %d", e.StderrBytes, stderr)
	}
	if e.End.Before(e.Start) {
		note("it ends at %s, before it starts at %s", e.End, e.Start)
	}
	if e.Class == ClassOK && e.Code != nil && *e.Code != 0 {
		note("its class is %q, and its exit status %d", e.Class, *e.Code)
	}
	if e.Class == ClassOK && e.Signal != "" {
		note("its class is %q, and signal %s ended it", e.Class, e.Signal)
	}
	return faults
}
