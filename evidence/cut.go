package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// cutAttempt completes blank, an attempt that started and did not end, from
// what lies on the disk. Its end is the last time that one of its files
// changed: the last that is known of it. Where its start is not known that is
// the first such time. What cannot be read is in the error, and the rest is
// listed.
func cutAttempt(fsys fs.FS, blank Attempt) (Attempt, error) {
	a := blank
	a.Cut = true
	a.Problems = []Problem{{Class: ClassCut, Detail: "the run ended before the attempt did"}}
	dir := AttemptPath(a.Cell, a.Number)
	var errs []error
	found := map[string]bool{} // step directories; true: there is an exit.json
	err := fs.WalkDir(fsys, dir+"/raw", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case p == dir+"/raw":
			return nil
		}
		relative := p[len(dir)+1:]
		if entry.IsDir() {
			found[strings.TrimPrefix(relative, "raw/")] = false
			return nil
		}
		file, modified, err := describe(fsys, p, entry)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
			return nil
		}
		file.Path = relative
		a.Files = append(a.Files, file)
		if modified.After(a.End) {
			a.End = modified
		}
		if blank.Start.IsZero() && (a.Start.IsZero() || modified.Before(a.Start)) {
			a.Start = modified
		}
		if step, isExit := exitOf(relative); isExit {
			found[step] = true
		}
		return nil
	})
	errs = append(errs, err)
	slices.SortFunc(a.Files, func(x, y File) int { return strings.Compare(x.Path, y.Path) })
	for step, exited := range found {
		a.Steps = append(a.Steps, cutStep(fsys, a, step, exited))
	}
	slices.SortFunc(a.Steps, func(x, y Step) int { return strings.Compare(x.Dir, y.Dir) })
	return a, errors.Join(errs...)
}

func describe(fsys fs.FS, p string, entry fs.DirEntry) (File, time.Time, error) {
	if !entry.Type().IsRegular() {
		return File{}, time.Time{}, errNotRegular
	}
	info, err := entry.Info()
	if err != nil {
		return File{}, time.Time{}, plainError(err)
	}
	digest, err := hashFile(fsys, p)
	if err != nil {
		return File{}, time.Time{}, plainError(err)
	}
	return File{Size: info.Size(), Digest: digest}, info.ModTime().UTC().Truncate(time.Microsecond), nil
}

// cutStep describes a step directory of a cut attempt. The names are those of
// the node whose name ends the directory's; where none does, the directory
// stands for the step.
func cutStep(fsys fs.FS, a Attempt, dir string, exited bool) Step {
	s := Step{Dir: dir, Step: dir, Class: ClassCut}
	for _, node := range a.Nodes {
		step, found := strings.CutSuffix(dir, "."+PathName(node))
		if found && step != "" && (s.Node == "" || len(step) < len(s.Step)) {
			s.Step, s.Node = step, node
		}
	}
	if !exited {
		return s
	}
	raw := AttemptPath(a.Cell, a.Number) + "/raw/" + dir
	content, err := readFile(fsys, raw+"/exit.json", maxExitBytes)
	if err != nil {
		return s
	}
	var exit Exit
	if DecodeStrict(content, &exit) == nil && exit.Class != "" {
		s.Class = exit.Class
	}
	return s
}
