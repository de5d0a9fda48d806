package load

import "time"

// pace says how many datagrams are due when they are sent at a steady rate. An
// overslept one is made up for, so that the rate holds.
type pace struct {
	rate float64 // a second, more than 0
	sent uint64
}

// due is how many are to be sent at a time after the start, at most limit.
func (p *pace) due(since time.Duration, limit int) int {
	total := uint64(p.rate*since.Seconds()) + 1 // the first at once
	if total <= p.sent {
		return 0
	}
	return int(min(total-p.sent, uint64(limit)))
}

// next is how long after the start another one is due.
func (p *pace) next() time.Duration {
	return time.Duration(float64(p.sent) / p.rate * float64(time.Second))
}
