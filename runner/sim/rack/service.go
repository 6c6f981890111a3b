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
	term    int       // rises at every election
	values  map[string]string
	writes  int
	pids    map[*Node]int
	killed  map[*Node]bool // did not end by itself
}

// MemberName is the name of a member's process and of its service.
const MemberName = "etcd"

// firstPID is a member's process id after boot; each start takes some more.
const firstPID = 1873

func (s *service) found(nodes []*Node) {
	s.nodes = nodes[:min(members, len(nodes))]
	s.up = make(map[*Node]bool)
	for _, n := range s.nodes {
		s.up[n] = true
	}
	s.leader = s.nodes[0]
	s.elected, s.term = s.rack.start, 2
	s.pids, s.killed = make(map[*Node]int), make(map[*Node]bool)
	for _, n := range s.nodes {
		s.pids[n] = firstPID
	}
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
	s.up[n], s.killed[n] = false, true
	s.elect(electionTime)
	return true
}

// StopMember ends the node's member of the service in order. A leader hands
// over to another member before it goes.
func (n *Node) StopMember() {
	s := &n.rack.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up[n] {
		s.up[n] = false
		s.elect(0)
	}
	s.killed[n] = false
}

// MemberPID is the process id of the node's member of the service, which it
// had while it ran; 0 on a node without one.
func (n *Node) MemberPID() int {
	s := &n.rack.service
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids[n]
}

// MemberKilled reports whether the node's member was killed and has not been
// started or stopped since.
func (n *Node) MemberKilled() bool {
	s := &n.rack.service
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killed[n]
}

// StartMember starts the node's member of the service. The values of the
// others reach it.
func (n *Node) StartMember() {
	s := &n.rack.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.nodes, n) && !s.up[n] {
		s.up[n], s.killed[n] = true, false
		s.pids[n] += 1117
		s.elect(electionTime)
	}
}

// elect finds a leader, who acts after the delay, where there is none and a
// majority is up.
func (s *service) elect(delay time.Duration) {
	if s.leader != nil && s.answers(s.leader) && s.majority() {
		return
	}
	s.leader = nil
	if !s.majority() {
		return
	}
	for _, n := range s.nodes {
		if s.answers(n) {
			s.leader, s.elected = n, time.Now().Add(delay)
			s.term++
			return
		}
	}
}

func (s *service) majority() bool {
	up := 0
	for _, n := range s.nodes {
		if s.answers(n) {
			up++
		}
	}
	return up > len(s.nodes)/2
}

// answers reports whether a node's member runs, on a node that does.
func (s *service) answers(n *Node) bool { return s.up[n] && !n.Hung() }

// ready reports whether there is a leader who acts. Members that hang, or come
// back, show when somebody asks.
func (s *service) ready() bool {
	s.elect(electionTime)
	return s.leader != nil && !time.Now().Before(s.elected)
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
	s.writes++
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

// Term is how often a leader was elected, and Revision how often a value was
// written, both as etcd counts them.
func (r *Rack) Term() (term, revision int) {
	s := &r.service
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term, s.writes + 1
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
