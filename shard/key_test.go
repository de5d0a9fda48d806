package shard

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Keys that meet in one shard under one seed spread under another. C14.
func TestSeedSpreadsKeys(t *testing.T) {
	const shards, n = 256, 5_000
	r := rand.New(rand.NewPCG(3, 3))
	for name, key := range map[string]func() Key{
		"IPv4":  func() Key { return host(int(r.Uint32())) },
		"IPv6":  func() Key { return Key{Hi: r.Uint64()} },
		"ports": func() Key { return Key{Lo: 0xffff<<32 | uint64(r.Uint32N(1<<16)), Port: uint16(r.Uint32())} },
	} {
		var keys []Key
		for len(keys) < n {
			if k := key(); k.hash(testSeed)%shards == 7 {
				keys = append(keys, k)
			}
		}
		for range 3 {
			seed := r.Uint64()
			var sizes [shards]int
			for _, k := range keys {
				sizes[k.hash(seed)%shards]++
			}
			assert.Less(t, slices.Max(sizes[:]), 3*n/shards, name)
		}
	}
}

// Every part of a key is part of its hash.
func TestHashOfEveryPart(t *testing.T) {
	hashes := map[uint64]bool{}
	keys := []Key{{}}
	for bit := range 64 {
		keys = append(keys, Key{Hi: 1 << bit}, Key{Lo: 1 << bit})
	}
	for bit := range 16 {
		keys = append(keys, Key{Port: 1 << bit}, Key{Policy: 1 << bit})
	}
	for _, k := range keys {
		hashes[k.hash(1)] = true
		hashes[k.hash(2)] = true
	}
	assert.Len(t, hashes, 2*len(keys))
}
