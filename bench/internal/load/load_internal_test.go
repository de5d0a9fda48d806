package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPaceMakesUpForSleep(t *testing.T) {
	p := pace{rate: 1000}
	for _, step := range []struct {
		at          time.Duration
		limit, want int
	}{
		{0, 64, 1},
		{0, 64, 0},
		{999 * time.Microsecond, 64, 0},
		{time.Millisecond, 64, 1},
		{11 * time.Millisecond, 4, 4},
		{11 * time.Millisecond, 64, 6},
		{11 * time.Millisecond, 64, 0},
	} {
		got := p.due(step.at, step.limit)
		assert.Equal(t, step.want, got, "at %v", step.at)
		p.sent += uint64(got)
	}
	assert.Equal(t, 12*time.Millisecond, p.next())
}

func TestPaceHoldsItsRate(t *testing.T) {
	for _, rate := range []float64{0.5, 3, 20_000, 600_000} {
		p := pace{rate: rate}
		for at := time.Duration(0); at <= 10*time.Second; at += 7 * time.Millisecond {
			p.sent += uint64(p.due(at, 1<<20))
		}
		assert.InDelta(t, rate*10, float64(p.sent), 1+rate*0.007)
		assert.GreaterOrEqual(t, p.next(), 10*time.Second-7*time.Millisecond-time.Duration(float64(time.Second)/rate))
	}
}

func TestOutstanding(t *testing.T) {
	o := outstanding{timeout: 10}
	first, second, third := o.send(0), o.send(5), o.send(9)
	require.Equal(t, 3, o.waiting)
	at, ok := o.answer(second)
	assert.True(t, ok)
	assert.EqualValues(t, 5, at)
	_, ok = o.answer(second)
	assert.False(t, ok, "an answer counts once")
	_, ok = o.answer(third + 1)
	assert.False(t, ok, "nobody has asked")

	o.expire(10)
	assert.EqualValues(t, 0, o.lost, "the first was sent at 1 at the earliest")
	o.expire(11)
	assert.EqualValues(t, 1, o.lost)
	assert.Equal(t, 1, o.waiting)
	_, ok = o.answer(first)
	assert.False(t, ok, "too late")
	at, ok = o.answer(third)
	assert.True(t, ok)
	assert.EqualValues(t, 9, at)
	assert.Zero(t, o.waiting)

	o.send(20)
	o.unsend(1)
	assert.Zero(t, o.waiting)
	_, ok = o.answer(third + 1)
	assert.False(t, ok)
	o.expire(100)
	assert.EqualValues(t, 1, o.lost)
}

func TestOutstandingRingIsBounded(t *testing.T) {
	o := outstanding{timeout: time.Hour}
	for range len(o.sentAt) + 10 {
		o.send(1)
	}
	assert.EqualValues(t, 10, o.lost)
	assert.Equal(t, len(o.sentAt), o.waiting)
	_, ok := o.answer(9)
	assert.False(t, ok)
	_, ok = o.answer(10)
	assert.True(t, ok)
}
