package limiter

import "math/bits"

// uint128 is an unsigned 128-bit integer. Its users keep sums below 2^128.
type uint128 struct{ hi, lo uint64 }

func mul64(a, b uint64) uint128 {
	hi, lo := bits.Mul64(a, b)
	return uint128{hi, lo}
}

func (a uint128) add(b uint128) uint128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return uint128{hi, lo}
}

func (a uint128) sub(b uint128) uint128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return uint128{hi, lo}
}

func (a uint128) subOrZero(b uint128) uint128 {
	if a.less(b) {
		return uint128{}
	}
	return a.sub(b)
}

func (a uint128) less(b uint128) bool {
	return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo
}

func (a uint128) max(b uint128) uint128 {
	if a.less(b) {
		return b
	}
	return a
}
