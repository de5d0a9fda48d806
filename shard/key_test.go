package shard

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// Keys whose hashes are the same are told apart by every part of them.
func TestSameHash(t *testing.T) {
	table := newTable(Config{}, soft(t, 1, 1), soft(t, 1, 1))
	s := &table.shards[0]
	const hash = 0x123456789abcdef0
	keys := []Key{
		{Hi: 1, Lo: 1, Port: 1}, {Hi: 2, Lo: 1, Port: 1}, {Hi: 1, Lo: 2, Port: 1}, {Hi: 1, Lo: 1, Port: 2},
		{Hi: 1, Lo: 1, Port: 1, Policy: 1},
	}
	for i, k := range keys {
		require.Nil(t, s.find(hash, k))
		s.insert(s.rules[k.Policy].rule, hash, k, after(0))
		for _, k := range keys[:i+1] {
			e := s.find(hash, k)
			require.NotNil(t, e)
			require.Equal(t, k, e.key())
		}
	}
	require.Nil(t, s.find(hash, Key{Hi: 2, Lo: 2, Port: 1}))
	require.Nil(t, s.find(hash+1<<16, keys[0]), "another tag")
}
