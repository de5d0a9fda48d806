package tokenbucket

import "time"

// Fraction returns the rate of a bucket that starts full with capacity tokens
// and gains so many tokens in each period. It has no float64 and no limits of
// size: each argument is 1..2^63-1, and the refill of a nanosecond is exact. The
// caller checks them. Its [Rate.Limit] tells the rate to a float64's precision
// and may be none that Validate lets pass.
//
// A token is as many units as the period has nanoseconds, so that a nanosecond
// brings the tokens of the period; both are reduced by what divides them.
func Fraction(capacity, tokens int64, period time.Duration) Rate {
	divisor := gcd(tokens, int64(period))
	token := uint64(int64(period) / divisor)
	return Rate{
		perNano:  uint64(tokens / divisor),
		token:    uint128{lo: token},
		capacity: mul64(uint64(capacity), token),
		perUnit:  1 / float64(token),
		limit: Limit{
			Capacity:        capacity,
			RefillPerSecond: float64(tokens) / period.Seconds(),
			Scale:           1,
			Initial:         capacity,
		},
	}
}

func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
