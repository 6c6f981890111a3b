package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// The bounds that keep captures/<phase>/<when>/<node>/<name>/exit.json inside
// a ustar header, with room for a number after the name.
const (
	maxCapturePhase = 60
	maxCaptureNode  = 75
	maxCaptureName  = 84
)

// CaptureWhen is "start" or "end", of the Path of a capture's record; empty for
// another path.
func CaptureWhen(p string) string {
	if parts := strings.Split(p, "/"); len(parts) > 3 && parts[0] == capturesDir {
		return parts[2]
	}
	return ""
}

// Capture makes the files of one capture, below
// captures/<phase>/<when>/<node>/<name>; when is "start" or "end" of the
// phase. A capture that is made again, after a resume, gets a number. Close
// appends its record, whose Path is the directory and whose files are
// relative to it.
func (s *Store) Capture(phase, when, node, name string) (*StepFiles, error) {
	fail := func(err error) (*StepFiles, error) {
		return nil, fmt.Errorf("capture %s %s on %s: %s: %w", phase, when, node, name, err)
	}
	if when != "start" && when != "end" {
		return fail(errors.New("captures are made at the start and at the end"))
	}
	s.mu.Lock()
	err := s.writable()
	s.mu.Unlock()
	if err != nil {
		return fail(err)
	}
	parent := captureDir(phase, when, node)
	changed, err := s.mkdir(parent)
	if err != nil {
		return fail(err)
	}
	dir, err := s.numbered(path.Join(parent, shorten(name, maxCaptureName)))
	if err != nil {
		return fail(err)
	}
	f, err := s.openStep(dir)
	if err != nil {
		return fail(err)
	}
	f.step, f.node = name, node
	f.after = func(exit Exit) error {
		if err := s.syncDirs(append([]string{dir, parent}, changed...)); err != nil {
			return err
		}
		files := slices.Clone(f.files)
		slices.SortFunc(files, func(x, y File) int { return strings.Compare(x.Path, y.Path) })
		_, err := s.Append(Record{
			Event: EventCapture, Phase: phase, Node: node, Path: dir, Files: files,
			Problem: exit.Problem(node, name),
		})
		return err
	}
	return f, nil
}

// SkipCaptures records why the captures of a node at the start or the end of a
// phase, or the rest of them, were left out.
func (s *Store) SkipCaptures(phase, when, node string, why Problem) error {
	_, err := s.Append(Record{Event: EventCaptureSkip, Phase: phase, Node: node, Path: captureDir(phase, when, node), Problem: &why})
	return err
}

func captureDir(phase, when, node string) string {
	return path.Join(capturesDir, shorten(phase, maxCapturePhase), when, shorten(node, maxCaptureNode))
}

// numbered makes the directory dir or, where it is there, the first of
// dir.2, dir.3, … that is not.
func (s *Store) numbered(dir string) (string, error) {
	name := dir
	for n := 2; ; n++ {
		err := s.root.Mkdir(name, dirMode)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return name, err
		}
		name = dir + "." + strconv.Itoa(n)
	}
}
