package thresholds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackproof/rackproof/evidence"
	"github.com/rackproof/rackproof/evidence/nodeset"
)

// MaxExpected bounds the measurements that one threshold may expect, and the
// subjects of all lists of a plan that differ: far more than any run gives,
// and few enough for memory. What is over it is inconclusive, so a plan should
// not be made with it.
const MaxExpected = 1 << 22

// crowded is said of the list that brings all lists of a plan over the limit,
// and of each that follows: every list is kept until the plan is judged.
var crowded = fmt.Sprintf("the plan's thresholds expect more than %d subjects in all", MaxExpected)

// subject is one expected subject, taken apart.
type subject struct {
	name  evidence.Subject
	parts []string
	fleet bool
}

// subjects are the expected subjects of a threshold, in order. Thresholds
// that expect the same share one list.
type subjects struct {
	list     []subject
	index    map[evidence.Subject]int32
	problem  string // why there is no list
	grouping map[string]*grouping
}

// expand lists the subjects of the patterns.
func (j *judge) expand(patterns []string) *subjects {
	key := strings.Join(patterns, "\x00")
	if known := j.subjects[key]; known != nil {
		return known
	}
	s := &subjects{grouping: map[string]*grouping{}}
	j.subjects[key] = s
	if j.expanded <= MaxExpected {
		j.expanded += countSubjects(patterns)
	}
	if j.expanded > MaxExpected {
		s.problem = crowded
		return s
	}
	names, err := evidence.ExpandSubjects(patterns)
	switch {
	case err != nil:
		s.problem = "its expected subjects cannot be read: " + err.Error()
		return s
	case len(names) == 0:
		s.problem = "it expects no subject"
		return s
	}
	s.list = make([]subject, len(names))
	s.index = make(map[evidence.Subject]int32, len(names))
	for i, name := range names {
		s.list[i] = subject{name: name, parts: strings.Split(string(name), "/"), fleet: name == evidence.SubjectFleet}
		s.index[name] = int32(i)
	}
	return s
}

// countSubjects is how many subjects the patterns stand for, before any is
// written out; at most one more than the limit.
func countSubjects(patterns []string) int {
	total := 0
	for _, pattern := range patterns {
		n := 1
		for level := range strings.SplitSeq(pattern, "/") {
			names, _ := nodeset.Parse(level, nil) // ExpandSubjects says what is wrong with it
			n = min(n*len(names), MaxExpected+1)
		}
		total = min(total+n, MaxExpected+1)
	}
	return total
}

// group is what one finding is about.
type group struct {
	name     evidence.Subject
	node     string  // where it is one node or a part of it
	label    string  // where it is all nodes with a value of a layout label
	value    string  // of that label
	subjects []int32 // expected, in order
	problem  string  // why it cannot be judged
}

// whole reports whether the group is about more than one node.
func (g *group) whole() bool { return g.node == "" }

// grouping divides subjects into groups.
type grouping struct {
	groups  []group
	problem string // why there are none
}

// groups divides the subjects of a threshold by what its Per names.
func (j *judge) groups(s *subjects, t *evidence.Threshold) *grouping {
	key := t.Level + "\x00" + t.Per
	if known := s.grouping[key]; known != nil {
		return known
	}
	g := j.newGrouping(s, t)
	s.grouping[key] = g
	return g
}

func (j *judge) newGrouping(s *subjects, t *evidence.Threshold) *grouping {
	levels := strings.Split(t.Level, "/")
	depth := slices.Index(levels, t.Per) + 1
	byLabel := depth == 0 && t.Per != perTest
	if byLabel && !j.labels[t.Per] {
		return &grouping{problem: fmt.Sprintf("per = %q is neither a part of %q, nor a label of the layout, nor \"test\"", t.Per, t.Level)}
	}
	g := &grouping{}
	index := map[evidence.Subject]int{}
	for i, sub := range s.list {
		to := group{name: evidence.SubjectFleet}
		switch {
		case len(sub.parts) != len(levels):
			to = group{name: sub.name, node: j.fleetNode(sub.parts[0]), problem: fmt.Sprintf("%s is not of the form %s", sub.name, t.Level)}
		case byLabel:
			value, ok := j.nodes[sub.parts[0]].Labels[t.Per]
			if ok {
				to = group{name: evidence.Subject(t.Per + "=" + value), label: t.Per, value: value}
			} else {
				to = group{name: evidence.Subject(sub.parts[0]), node: j.fleetNode(sub.parts[0]), problem: fmt.Sprintf("%s has no label %q in the layout", sub.parts[0], t.Per)}
			}
		case depth > 0 && !sub.fleet:
			to = group{name: evidence.Subject(strings.Join(sub.parts[:depth], "/")), node: j.fleetNode(sub.parts[0])}
		}
		at, ok := index[to.name]
		if !ok {
			at = len(g.groups)
			index[to.name] = at
			g.groups = append(g.groups, to)
		}
		if g.groups[at].problem == "" {
			g.groups[at].problem = to.problem
		}
		g.groups[at].subjects = append(g.groups[at].subjects, int32(i))
	}
	return g
}

// perTest is the Per for all subjects together.
const perTest = "test"

// fleetNode is name where it is a node of the fleet, else "".
func (j *judge) fleetNode(name string) string {
	if _, ok := j.nodes[name]; ok {
		return name
	}
	return ""
}

// axis is one label that a threshold binds, with its values.
type axis struct {
	label  string
	values []string
}

// axes are the labels of a threshold in order of their names.
func axes(t *evidence.Threshold) []axis {
	list := make([]axis, 0, len(t.At))
	for _, label := range slices.Sorted(maps.Keys(t.At)) {
		a := axis{label: label}
		for _, v := range t.At[label] {
			if !slices.Contains(a.values, v) {
				a.values = append(a.values, v)
			}
		}
		list = append(list, a)
	}
	return list
}

// combination is the number of the combination of label values that labels
// belong to, among all of list; false where they belong to none.
func combination(list []axis, labels map[string]string) (int, bool) {
	at := 0
	for _, a := range list {
		value, ok := labels[a.label]
		if !ok {
			return 0, false
		}
		i := slices.Index(a.values, value)
		if i < 0 {
			return 0, false
		}
		at = at*len(a.values) + i
	}
	return at, true
}

// spell writes the combination numbered at: "size=16GiB, op=read".
func spell(list []axis, at int) string {
	parts := make([]string, len(list))
	for i := len(list) - 1; i >= 0; i-- {
		n := len(list[i].values)
		parts[i] = list[i].label + "=" + list[i].values[at%n]
		at /= n
	}
	return strings.Join(parts, ", ")
}

// owners lists, for each subject, the cells that have to measure it, in order
// of their repetition. Where no cell can, the list has −r for repetition r.
func (t *test) owners(s *subjects) [][]int32 {
	if known := t.owned[s]; known != nil {
		return known
	}
	owned := make([][]int32, len(s.list))
	for i := range s.list {
		owned[i] = t.gaps(t.candidates(&s.list[i]))
	}
	t.owned[s] = owned
	return owned
}

// candidates are the cells that contain the subject's node: all cells for
// the subject of a whole set; for a subject on two nodes of a pair the cells
// of that pair.
func (t *test) candidates(s *subject) []int32 {
	if s.fleet {
		return t.byRepetition
	}
	for _, other := range s.parts[1:] {
		if pair := t.byPair[pairOf(s.parts[0], other)]; pair != nil {
			return pair
		}
	}
	return t.byNode[s.parts[0]]
}

// gaps puts −r where repetition r has no cell.
func (t *test) gaps(cells []int32) []int32 {
	repeat := max(1, t.plan.Repeat)
	next, whole := 1, true
	for _, c := range cells {
		r := t.cells[c].plan.Repetition
		whole = whole && r <= next
		next = r + 1
	}
	if whole && next == repeat+1 {
		return cells
	}
	var filled []int32
	r := 1
	for _, c := range cells {
		for ; r < t.cells[c].plan.Repetition; r++ {
			filled = append(filled, int32(-r))
		}
		r = t.cells[c].plan.Repetition + 1
		filled = append(filled, c)
	}
	for ; r <= repeat; r++ {
		filled = append(filled, int32(-r))
	}
	return filled
}

func pairOf(a, b string) [2]string {
	if b < a {
		a, b = b, a
	}
	return [2]string{a, b}
}
