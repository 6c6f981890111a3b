package runner

import (
	"slices"
	"strings"
	"sync"

	"github.com/rackproof/rackproof/evidence"
)

// ownSubjects finds the subjects of thresholds that a cell alone decides. It
// lists those of a threshold once and not for every cell, of which a fleet has
// as many as it has nodes.
type ownSubjects struct {
	fleet map[string]bool

	mu    sync.Mutex
	index map[thresholdName]map[string][]evidence.Subject // by the first node that they name
}

type thresholdName struct{ test, threshold string }

func newOwnSubjects(fleet map[string]bool) *ownSubjects {
	return &ownSubjects{fleet: fleet, index: make(map[thresholdName]map[string][]evidence.Subject)}
}

// of lists the subjects of t that name no node but those given.
func (o *ownSubjects) of(test string, t evidence.Threshold, nodes []string) ([]evidence.Subject, error) {
	byNode, err := o.byNode(test, t)
	if err != nil {
		return nil, err
	}
	own := slices.Clone(byNode[""])
	for _, node := range nodes {
		own = append(own, byNode[node]...)
	}
	elsewhere := func(component string) bool { return o.fleet[component] && !slices.Contains(nodes, component) }
	return slices.DeleteFunc(own, func(s evidence.Subject) bool {
		return slices.ContainsFunc(strings.Split(string(s), "/"), elsewhere)
	}), nil
}

func (o *ownSubjects) byNode(test string, t evidence.Threshold) (map[string][]evidence.Subject, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := thresholdName{test, t.Name}
	if byNode, ok := o.index[name]; ok {
		return byNode, nil
	}
	subjects, err := evidence.ExpandSubjects(t.Subjects)
	if err != nil {
		return nil, err
	}
	byNode := make(map[string][]evidence.Subject)
	for _, s := range subjects {
		first := ""
		for component := range strings.SplitSeq(string(s), "/") {
			if o.fleet[component] {
				first = component
				break
			}
		}
		byNode[first] = append(byNode[first], s)
	}
	o.index[name] = byNode
	return byNode, nil
}
