package evidence

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence/nodeset"
)

// maxSubjects bounds what one list of patterns expands to.
const maxSubjects = 1 << 22

// ExpandSubjects lists the subjects that folded patterns stand for: each
// "/"-separated component of a pattern is a node set, and a pattern stands
// for every combination. The order is that of the patterns; a subject that is
// there twice is listed once.
func ExpandSubjects(patterns []string) ([]Subject, error) {
	var subjects []Subject
	seen := map[Subject]struct{}{}
	for _, pattern := range patterns {
		levels := strings.Split(pattern, "/")
		partial := []string{""}
		for i, level := range levels {
			names, err := nodeset.Parse(level, nil)
			if err != nil {
				return nil, fmt.Errorf("subject %q: %w", pattern, err)
			}
			if len(partial)*len(names) > maxSubjects {
				return nil, fmt.Errorf("subject %q: stands for more than %d subjects", pattern, maxSubjects)
			}
			next := make([]string, 0, len(partial)*len(names))
			for _, head := range partial {
				if i > 0 {
					head += "/"
				}
				for _, name := range names {
					next = append(next, head+name)
				}
			}
			partial = next
		}
		for _, text := range partial {
			s := Subject(text)
			if _, found := seen[s]; found {
				continue
			}
			seen[s] = struct{}{}
			subjects = append(subjects, s)
		}
		if len(subjects) > maxSubjects {
			return nil, fmt.Errorf("subjects: %d patterns stand for more than %d subjects", len(patterns), maxSubjects)
		}
	}
	return subjects, nil
}

// FoldSubjects is the inverse of ExpandSubjects: a list of patterns that
// stands for the same set. Subjects whose lower levels are alike share one
// pattern, so 32 nodes with 8 GPUs each are "gpu[001-032]/gpu[0-7]". The
// result does not depend on the order of subjects.
func FoldSubjects(subjects []Subject) []string {
	paths := make([][]string, 0, len(subjects))
	for _, s := range subjects {
		paths = append(paths, strings.Split(string(s), "/"))
	}
	return foldPaths(paths)
}

func foldPaths(paths [][]string) []string {
	below := map[string][][]string{} // first level to the rests
	var leaves []string
	for _, path := range paths {
		if len(path) == 1 {
			leaves = append(leaves, path[0])
			continue
		}
		below[path[0]] = append(below[path[0]], path[1:])
	}
	alike := map[string][]string{} // folded rests to first levels
	rests := map[string][]string{}
	for first, tails := range below {
		folded := foldPaths(tails)
		key := strings.Join(folded, "\n")
		alike[key] = append(alike[key], first)
		rests[key] = folded
	}
	var patterns []string
	if len(leaves) > 0 {
		patterns = append(patterns, nodeset.Fold(leaves))
	}
	for key, firsts := range alike {
		head := nodeset.Fold(firsts)
		for _, rest := range rests[key] {
			patterns = append(patterns, head+"/"+rest)
		}
	}
	slices.SortFunc(patterns, nodeset.Compare)
	return patterns
}
