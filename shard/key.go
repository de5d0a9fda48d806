package shard

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// MaxPolicies is the number of rules that a table can hold.
const MaxPolicies = freeSlot

// A Key is an endpoint under a policy: the address as two big-endian words,
// the port where it counts, and the index of the rule.
type Key struct {
	Hi, Lo       uint64
	Port, Policy uint16
}

// id is the port and the policy as one word.
func (k Key) id() uint32 { return uint32(k.Port)<<16 | uint32(k.Policy) }

// hash is xxhash of the key behind the secret seed. Inputs below 32 bytes go
// through xxhash's rounds one after the other, so that with the seed in front
// keys which collide under one seed do not under the next.
//
// The low bits choose the shard, the high word the place in its index, and
// bits from 16 on tell apart what shares a place.
func (k Key) hash(seed uint64) uint64 {
	var b [28]byte
	binary.LittleEndian.PutUint64(b[0:], seed)
	binary.LittleEndian.PutUint64(b[8:], k.Hi)
	binary.LittleEndian.PutUint64(b[16:], k.Lo)
	binary.LittleEndian.PutUint32(b[24:], k.id())
	return xxhash.Sum64(b[:])
}
