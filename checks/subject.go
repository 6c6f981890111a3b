package checks

import (
	"slices"

	"github.com/rackproof/rackproof/evidence"
)

// nodeSubjects are nodes as subjects.
func nodeSubjects(nodes []string) []evidence.Subject {
	subjects := make([]evidence.Subject, len(nodes))
	for i, node := range nodes {
		subjects[i] = evidence.Subject(node)
	}
	return subjects
}

// fleetOrder sorts nodes as the fleet lists them; strangers come last.
func fleetOrder(f evidence.Fleet, nodes []string) []string {
	place := make(map[string]int, len(f.Nodes))
	for i, n := range f.Nodes {
		place[n.Name] = i
	}
	rank := func(name string) int {
		if i, ok := place[name]; ok {
			return i
		}
		return len(place)
	}
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(a, b string) int { return rank(a) - rank(b) })
	return sorted
}
