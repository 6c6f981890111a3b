package ssh

import (
	"context"
	"sync"
)

// slots bounds how many hold one at once; the bound can be lowered.
type slots struct {
	mu      sync.Mutex
	limit   int
	used    int
	changed chan struct{} // closed at each release
}

func newSlots(limit int) *slots { return &slots{limit: limit, changed: make(chan struct{})} }

func (s *slots) acquire(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.used < s.limit {
			s.used++
			s.mu.Unlock()
			return nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	close(s.changed)
	s.changed = make(chan struct{})
}

// refused gives a slot back that the other side did not grant, and lowers the
// bound to what it has granted. False means that it grants none at all.
func (s *slots) refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.used == 0 {
		return false
	}
	s.limit = min(s.limit, s.used)
	return true
}
