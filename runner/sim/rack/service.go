package rack

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// A replicated key-value service runs on the first three nodes of the rack, as
// etcd does: a write is acknowledged when a majority has it, and when the
// leader is gone the others elect another one.
const (
	members      = 3
	electionTime = 1200 * time.Millisecond // etcd's default: 1 s, and the vote
)

// ErrNoLeader says that the service cannot take a write now.
var ErrNoLeader = errors.New("etcdserver: no leader")

type service struct {
	rack *Rack

	mu      sync.Mutex
	nodes   []*Node
	up      map[*Node]bool
	leader  *Node
	elected time.Time // the leader acts from then on
	values  map[string]string
}

func (s *service) found(nodes []*Node) {
	s.nodes = nodes[:min(members, len(nodes))]
	s.up = make(map[*Node]bool)
	for _, n := range s.nodes {
		s.up[n] = true
	}
	s.leader = s.nodes[0]
	s.elected = s.rack.start
	s.values = make(map[string]string)
}

// Member reports whether the node runs the service by its role.
func (n *Node) Member() bool { return slices.Contains(n.rack.service.nodes, n) }

// Serving reports whether the node's member of the service runs.
func (n *Node) Serving() bool {
	s := &n.rack.service
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up[n]
}

// KillMember ends the node's member of the service, and says whether it ran.
func (n *Node) KillMember() bool {
	s := &n.rack.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up[n] {
		return false
	}
	s.up[n] = false
	s.elect()
	return true
}

// StartMember starts the node's member of the service. The values of the
// others reach it.
func (n *Node) StartMember() {
	s := &n.rack.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.nodes, n) && !s.up[n] {
		s.up[n] = true
		s.elect()
	}
}

// elect finds a leader where there is none and a majority is up.
func (s *service) elect() {
	if s.leader != nil && s.up[s.leader] && s.majority() {
		return
	}
	s.leader = nil
	if !s.majority() {
		return
	}
	for _, n := range s.nodes {
		if s.up[n] {
			s.leader, s.elected = n, time.Now().Add(electionTime)
			return
		}
	}
}

func (s *service) majority() bool {
	up := 0
	for _, n := range s.nodes {
		if s.up[n] {
			up++
		}
	}
	return up > len(s.nodes)/2
}

func (s *service) ready() bool {
	return s.leader != nil && !s.leader.Hung() && !time.Now().Before(s.elected)
}

// Put writes a value. Without a leader it is ErrNoLeader, and nothing is
// written.
func (r *Rack) Put(key, value string) error {
	s := &r.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready() {
		return ErrNoLeader
	}
	s.values[key] = value
	return nil
}

// Get is the values of all keys that keep chooses, in the order of the keys.
func (r *Rack) Get(keep func(key string) bool) ([][2]string, error) {
	s := &r.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready() {
		return nil, ErrNoLeader
	}
	var found [][2]string
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if keep(key) {
			found = append(found, [2]string{key, s.values[key]})
		}
	}
	return found, nil
}

// Leader is the name of the member that takes writes now, or "".
func (r *Rack) Leader() string {
	s := &r.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready() {
		return ""
	}
	return s.leader.Name
}
