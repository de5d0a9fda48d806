package policy

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

func TestSizes(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Decision{}), uintptr(16)) // 12 where words have 32 bits
	assert.Equal(t, uintptr(32), unsafe.Sizeof(State{}))
}

func TestReason(t *testing.T) {
	tests := []struct {
		reason Reason
		value  uint8
		want   string
	}{
		{None, 0, "none"},
		{SoftThrottle, 1, "soft_throttle"},
		{HardLockout, 2, "hard_lockout"},
		{Reason(3), 3, "unknown"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.value, uint8(tt.reason))
		assert.Equal(t, tt.want, tt.reason.String())
	}
}

// 30: never "retry now" to somebody who has to wait.
func TestRetryAfterMs(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		retryAfter time.Duration
		want       int32
	}{
		{0, 0},
		{1, 1},
		{ms - 1, 1},
		{ms, 1},
		{ms + 1, 2},
		{200 * ms, 200},
		{30 * time.Second, 30_000},
		{(math.MaxInt32 - 1) * ms, math.MaxInt32 - 1},
		{(math.MaxInt32-1)*ms + 1, math.MaxInt32},
		{math.MaxInt32 * ms, math.MaxInt32},
		{math.MaxInt32*ms + 1, math.MaxInt32},
		{(1 << 32) * ms, math.MaxInt32},
		{Never, math.MaxInt32},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, Decision{RetryAfter: tt.retryAfter}.RetryAfterMs(), "%d ns", tt.retryAfter)
	}
}
