package tokenbucket

import (
	"math/big"
	"math/bits"
)

// uint128 is an unsigned 128-bit integer. Its users keep sums and products
// below 2^128; see Limit.Compile for why they can.
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
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, borrow := bits.Sub64(a.hi, b.hi, borrow)
	if borrow != 0 {
		return uint128{}
	}
	return uint128{hi, lo}
}

func (a uint128) mul(n uint64) uint128 {
	p := mul64(a.lo, n)
	p.hi += a.hi * n
	return p
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

func (a uint128) float() float64 { return float64(a.hi)*(1<<64) + float64(a.lo) }

func (a uint128) big() *big.Int {
	x := new(big.Int).SetUint64(a.hi)
	return x.Lsh(x, 64).Or(x, new(big.Int).SetUint64(a.lo))
}

func fromBig(x *big.Int) uint128 {
	lo := new(big.Int).And(x, new(big.Int).SetUint64(1<<64-1))
	return uint128{hi: new(big.Int).Rsh(x, 64).Uint64(), lo: lo.Uint64()}
}
