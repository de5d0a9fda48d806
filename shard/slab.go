package shard

// chunkLen entries (1792 bytes) or records (1536 bytes) fill a size class of
// the allocator without a rest.
const chunkLen = 32

// A slab is a growing array whose elements never move. Its free slots form a
// list through an element's link.
type slab[T any, P linked[T]] struct {
	chunks []*[chunkLen]T
	used   uint32 // slots that were ever taken
	free   uint32 // 1 + a free slot, 0 = none
}

// linked is a *T with a word that is the slab's while the element is free.
type linked[T any] interface {
	*T
	link() *uint32
}

// len returns the number of slots that were ever taken.
func (s *slab[T, P]) len() uint32 { return s.used }

func (s *slab[T, P]) at(slot uint32) *T { return &s.chunks[slot/chunkLen][slot%chunkLen] }

// take returns a free slot; what is in it is what its last user left.
func (s *slab[T, P]) take() uint32 {
	if s.free != 0 {
		slot := s.free - 1
		s.free = *P(s.at(slot)).link()
		return slot
	}
	if s.used%chunkLen == 0 {
		s.chunks = append(s.chunks, new([chunkLen]T))
	}
	s.used++
	return s.used - 1
}

// give returns a slot to the free ones.
func (s *slab[T, P]) give(slot uint32) {
	*P(s.at(slot)).link() = s.free
	s.free = slot + 1
}
