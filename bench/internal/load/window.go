package load

import "time"

// ringBits bounds how many requests can be outstanding.
const ringBits = 17

// outstanding is which of the numbered requests wait for an answer: those from
// tail to next whose time of sending is in the ring.
type outstanding struct {
	sentAt     [1 << ringBits]time.Duration // 0 = answered, or given up
	tail, next uint64
	waiting    int
	lost       uint64
	timeout    time.Duration
}

// send numbers a request. A full ring gives up the oldest.
func (o *outstanding) send(now time.Duration) (number uint64) {
	if o.next-o.tail == uint64(len(o.sentAt)) {
		o.giveUp()
	}
	number = o.next
	o.sentAt[number%uint64(len(o.sentAt))] = max(now, 1)
	o.next++
	o.waiting++
	return number
}

// unsend takes back the last n numbers, which the kernel did not take.
func (o *outstanding) unsend(n int) {
	for range n {
		o.next--
		o.sentAt[o.next%uint64(len(o.sentAt))] = 0
		o.waiting--
	}
}

// answer returns when the request was sent; ok is false for one that is not
// waited for (any more).
func (o *outstanding) answer(number uint64) (sentAt time.Duration, ok bool) {
	if number < o.tail || number >= o.next {
		return 0, false
	}
	slot := &o.sentAt[number%uint64(len(o.sentAt))]
	if *slot == 0 {
		return 0, false
	}
	sentAt, *slot = *slot, 0
	o.waiting--
	return sentAt, true
}

// expire gives up what has waited too long.
func (o *outstanding) expire(now time.Duration) {
	for o.tail < o.next {
		sentAt := o.sentAt[o.tail%uint64(len(o.sentAt))]
		if sentAt != 0 && now-sentAt < o.timeout {
			return
		}
		o.giveUp()
	}
}

// giveUp ends the wait for the oldest.
func (o *outstanding) giveUp() {
	if slot := &o.sentAt[o.tail%uint64(len(o.sentAt))]; *slot != 0 {
		*slot = 0
		o.lost++
		o.waiting--
	}
	o.tail++
}
