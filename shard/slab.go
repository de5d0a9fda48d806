package shard

// A slab is a growing array of slots with a free list through them. A pointer
// into it is good until the next take.
type slab[T any, P linked[T]] struct {
	slots []T
	free  uint32 // 1 + a free slot, 0 = none
}

// linked is a *T with a word that is the slab's while the slot is free.
type linked[T any] interface {
	*T
	link() *uint32
}

// len returns the number of slots that were ever taken.
func (s *slab[T, P]) len() uint32 { return uint32(len(s.slots)) }

func (s *slab[T, P]) at(slot uint32) *T { return &s.slots[slot] }

// take returns a free slot; what is in it is what its last user left. The slab
// grows by an eighth: a million endpoints cost more than the copying does.
func (s *slab[T, P]) take() uint32 {
	if s.free != 0 {
		slot := s.free - 1
		s.free = *P(s.at(slot)).link()
		return slot
	}
	n := len(s.slots)
	if n == cap(s.slots) {
		grown := make([]T, n, n+n/8+8)
		copy(grown, s.slots)
		s.slots = grown
	}
	s.slots = s.slots[:n+1]
	return uint32(n)
}

// give returns a slot to the free ones.
func (s *slab[T, P]) give(slot uint32) {
	*P(s.at(slot)).link() = s.free
	s.free = slot + 1
}
