package shard

// A Lockout is an endpoint that was locked out, and until when.
type Lockout struct {
	Key   Key
	Until int64 // on the clock of policy.Instant.Now; 0: there is none
}

// noteLockout keeps the lockout that ends last.
func (s *shard) noteLockout(e *entry) {
	if e.state.LockedUntil > s.longest.Until {
		s.longest = Lockout{e.key(), e.state.LockedUntil}
	}
}

// LongestLockout returns which of the lockouts that have begun since the last
// call ends last. It looks at one shard at a time.
func (t *Table) LongestLockout() (longest Lockout) {
	for i := range t.shards {
		if l := t.shards[i].takeLongest(); l.Until > longest.Until {
			longest = l
		}
	}
	return longest
}

func (s *shard) takeLongest() Lockout {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.longest
	s.longest = Lockout{}
	return l
}
