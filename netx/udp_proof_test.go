package netx

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// RFC 9000, 8.1, with its ratio and others. A positive step is a datagram of the
// client's, a negative one a reply.
func TestProof(t *testing.T) {
	for _, test := range []struct {
		ratio float64
		steps []int
		sent  []bool // of the replies
	}{
		{0, []int{1, -1000, -1000}, []bool{true, true}},
		{3, []int{10, -30, -1}, []bool{true, false}},
		{3, []int{10, -31, -10, -20, 0, -1000}, []bool{false, true, true, true}}, // an empty datagram proves it, too
		{3, []int{10, -31, 10, -31, 10, -60}, []bool{false, true, true}},         // what was not sent proves nothing
		{3, []int{10, -31, 10, -61, -60}, []bool{false, false, true}},
		{0.5, []int{10, -6, -5, -1}, []bool{false, true, false}},
		{1.5, []int{3, -5, -4, -1}, []bool{false, true, false}},
		{3, []int{0, -1, -0}, []bool{false}},
	} {
		var p proof
		var sent []bool
		for _, n := range test.steps {
			if n < 0 {
				sent = append(sent, p.allows(-n, test.ratio))
			} else {
				p.received(n)
			}
		}
		assert.Equal(t, test.sent, sent, "%+v", test)
	}
	var p proof
	p.received(0)
	assert.True(t, p.allows(0, 3), "nothing is no more than three times nothing")
	p.received(0)
	assert.True(t, p.allows(1000, 3))
}
