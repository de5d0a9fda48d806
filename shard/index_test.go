package shard

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// An indexModel is an index beside the Go map that it stands for. Its slots are
// those of a slab.
type indexModel struct {
	ix     index
	slots  slab[record, *record]
	hashes map[uint32]uint64 // by slot
}

func (m *indexModel) put(hash uint64) {
	if m.ix.full() {
		m.ix.grow()
		for slot, hash := range m.hashes {
			m.ix.put(hash, slot)
		}
	}
	slot, _ := m.slots.take()
	m.ix.put(hash, slot)
	m.hashes[slot] = hash
}

func (m *indexModel) remove(slot uint32) {
	hash := m.hashes[slot]
	m.ix.remove(hash, slot, func(slot uint32) uint64 { return m.hashes[slot] })
	delete(m.hashes, slot)
	m.slots.give(slot)
}

func (m *indexModel) has(slot uint32) bool {
	_, ok := m.hashes[slot]
	return ok
}

// probe walks from the place of the hash to the end of the probe and returns
// the slots whose tag fits, and the number of steps.
func (m *indexModel) probe(hash uint64) (slots []uint32, steps int) {
	ix := &m.ix
	for i := ix.first(hash); steps <= len(ix.words); i = ix.after(i) {
		steps++
		w := ix.words[i]
		if w == 0 {
			return slots, steps
		}
		if w&^ix.slotMask() == ix.tag(hash) {
			slots = append(slots, w&ix.slotMask()-1)
		}
	}
	return slots, steps
}

// check compares the index with the map: as many words as slots, every slot
// found once from its hash, and every probe at an end before it is round.
func (m *indexModel) check(t *testing.T) {
	t.Helper()
	words := 0
	for _, w := range m.ix.words {
		if w != 0 {
			words++
		}
	}
	require.Len(t, m.hashes, words)
	require.EqualValues(t, words, m.ix.n)
	for slot, hash := range m.hashes {
		slots, steps := m.probe(hash)
		require.LessOrEqual(t, steps, len(m.ix.words))
		found := 0
		for _, s := range slots {
			if s == slot {
				found++
			}
		}
		require.Equal(t, 1, found, "slot %d of hash %#x", slot, hash)
	}
}

// The index against a map, over hashes that spread, that share a place, that
// share a place and a tag, and that wrap round the end.
func TestIndexAgainstMap(t *testing.T) {
	for _, test := range []struct {
		name string
		hash func(*rand.Rand) uint64
	}{
		{"spread", (*rand.Rand).Uint64},
		{"same place", func(r *rand.Rand) uint64 { return 0x80000000<<32 | uint64(r.Uint32()) }},
		{"same hash", func(*rand.Rand) uint64 { return 0x123456789abcdef0 }},
		{"zero", func(*rand.Rand) uint64 { return 0 }},
		{"at the end", func(r *rand.Rand) uint64 { return 0xfffffff0<<32 | r.Uint64() }},
		{"few places", func(r *rand.Rand) uint64 { return r.Uint64N(5)<<61 | r.Uint64N(3)<<16 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(len(test.name))))
			m := &indexModel{hashes: map[uint32]uint64{}}
			for step := range 2000 {
				if slot := r.Uint32N(250); m.has(slot) {
					m.remove(slot)
				} else {
					m.put(test.hash(r))
				}
				if step%100 == 0 {
					m.check(t)
				}
			}
			m.check(t)
		})
	}
}

// Slots come in order while an index grows, up to where its tags get short.
func TestIndexGrowth(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	m := &indexModel{hashes: map[uint32]uint64{}}
	size := 0
	for range 5_000 {
		m.put(r.Uint64())
		require.LessOrEqual(t, 8*m.ix.n, uint32(7*len(m.ix.words)), "load")
		if len(m.ix.words) != size {
			size = len(m.ix.words)
			m.check(t)
		}
	}
	m.check(t)
	for slot := range uint32(5_000) {
		m.remove(slot)
	}
	m.check(t)
}

// With an expected number of slots the index stops there first, full, and goes
// on growing where there are more after all.
func TestIndexExpected(t *testing.T) {
	for _, expect := range []uint32{0, 1, 13, 14, 15, 1000, 1007} {
		m := &indexModel{ix: index{expect: expect}, hashes: map[uint32]uint64{}}
		r := rand.New(rand.NewPCG(3, uint64(expect)))
		for range expect {
			m.put(r.Uint64())
		}
		enough := max(minIndex, (8*int(expect)+6)/7)
		require.LessOrEqual(t, len(m.ix.words), enough, "expected %d", expect)
		for range 2 * enough {
			m.put(r.Uint64())
			require.LessOrEqual(t, 8*m.ix.n, uint32(7*len(m.ix.words)), "load")
		}
		m.check(t)
	}
}
