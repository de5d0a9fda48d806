package shard

import (
	"math/bits"
	"sync/atomic"
)

// An index finds slots by hash: open addressing with linear probing, one word
// for each slot. The low bits of a word are 1 + the slot, as many as the size
// of the index needs, the others a tag of the hash, so that a probe rarely has
// to look at an entry that is not the right one. It is never full, so a probe
// always ends.
type index struct {
	words    []uint32
	n        uint32
	slotBits uint32
	expect   uint32 // a number of slots at which it will probably end
}

// minIndex is the first size of an index.
const minIndex = 16

// full reports whether the index must grow before the next put. At seven
// eighths a hit looks at 4 words on average and a miss at 32, two cache lines.
func (ix *index) full() bool { return 8*(int(ix.n)+1) > 7*len(ix.words) }

// grow empties the index and makes it half as large again, or as large as the
// expected number of slots needs if that is less.
func (ix *index) grow() {
	size := max(minIndex, len(ix.words)*3/2)
	if enough := (8*int(ix.expect) + 6) / 7; len(ix.words) < enough {
		size = min(size, max(minIndex, enough))
	}
	*ix = index{words: make([]uint32, size), slotBits: uint32(bits.Len(uint(size))), expect: ix.expect}
}

// first is the place at which a probe begins: the high word of the hash
// scaled to the size.
func (ix *index) first(hash uint64) int {
	return int(hash >> 32 * uint64(len(ix.words)) >> 32)
}

// after is the place at which a probe goes on.
func (ix *index) after(i int) int {
	if i++; i < len(ix.words) {
		return i
	}
	return 0
}

// tag is the part of a word that tells hashes apart.
func (ix *index) tag(hash uint64) uint32 { return uint32(hash>>16) << ix.slotBits }

// slotMask is the part of a word that holds 1 + the slot.
func (ix *index) slotMask() uint32 { return 1<<ix.slotBits - 1 }

// put adds a slot. The index must not be full.
func (ix *index) put(hash uint64, slot uint32) {
	i := ix.first(hash)
	for ix.words[i] != 0 {
		i = ix.after(i)
	}
	atomic.StoreUint32(&ix.words[i], ix.tag(hash)|(slot+1))
	ix.n++
}

// remove takes a slot out and moves what follows it up, so that no probe ends
// early. hashOf gives the hash of another slot.
func (ix *index) remove(hash uint64, slot uint32, hashOf func(slot uint32) uint64) {
	mask := ix.slotMask()
	hole := ix.first(hash)
	for ix.words[hole]&mask != slot+1 {
		hole = ix.after(hole)
	}
	for i := ix.after(hole); ix.words[i] != 0; i = ix.after(i) {
		home := ix.first(hashOf(ix.words[i]&mask - 1))
		if ix.distance(home, i) >= ix.distance(hole, i) {
			atomic.StoreUint32(&ix.words[hole], ix.words[i])
			hole = i
		}
	}
	atomic.StoreUint32(&ix.words[hole], 0)
	ix.n--
}

// distance is the number of steps that a probe takes from one place to another.
func (ix *index) distance(from, to int) int {
	if to >= from {
		return to - from
	}
	return to - from + len(ix.words)
}
