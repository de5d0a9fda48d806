package shard

// A slab is a growing array of slots with a free list through them. A pointer
// into it is good until the next take.
type slab[T any, P linked[T]] struct {
	slots  []T
	free   uint32 // 1 + a free slot, 0 = none
	expect uint32 // a size at which it will probably end
}

// linked is a *T with a word that is the slab's while the slot is free.
type linked[T any] interface {
	*T
	link() *uint32
}

// len returns the number of slots that were ever taken.
func (s *slab[T, P]) len() uint32 { return uint32(len(s.slots)) }

func (s *slab[T, P]) at(slot uint32) *T { return &s.slots[slot] }

// take returns a free slot; what is in it is what its last user left. moved
// tells that the slab has grown and lies elsewhere now.
func (s *slab[T, P]) take() (slot uint32, moved bool) {
	if s.free != 0 {
		slot = s.free - 1
		s.free = *P(s.at(slot)).link()
		return slot, false
	}
	n := len(s.slots)
	if moved = n == cap(s.slots); moved {
		s.slots = append(make([]T, 0, s.grown(n)), s.slots...)
	}
	s.slots = s.slots[:n+1]
	return uint32(n), moved
}

// grown is the next capacity: an eighth more, because at a million endpoints
// empty slots cost more than the copying does, and not beyond the expected
// size as long as that will do.
func (s *slab[T, P]) grown(n int) int {
	size := n + n/8 + 8
	if expect := int(s.expect); n < expect {
		return min(size, expect)
	}
	return size
}

// give returns a slot to the free ones.
func (s *slab[T, P]) give(slot uint32) {
	*P(s.at(slot)).link() = s.free
	s.free = slot + 1
}
