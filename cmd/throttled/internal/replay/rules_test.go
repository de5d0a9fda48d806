package replay

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A capture that was cut off before the opcodes says so, and counts under the
// listener's policy; what was too short for one was never cut.
func TestOpcodesThatWereNotCaptured(t *testing.T) {
	const yaml = `
policies:
  - {name: status, capacity: 1, refill: 1/h, lockout: off}
listeners:
  - {name: game, protocol: udp, listen: 0.0.0.0:27015, upstream: echo, opcodes: {offset: 4, size: 2, policies: {7: status}}}
`
	payload := []byte{0, 0, 0, 0, 0, 7, 1, 1}
	whole := datagramOf(t, "198.51.100.1:4000", v4server, payload)
	short := datagramOf(t, "198.51.100.1:4000", v4server, payload[:5])
	packets := []stamped{{data: whole}, {data: whole}, {data: short}}
	for cut := range 3 { // of these the last still has the opcode
		packets = append(packets, stamped{data: whole[:len(whole)-4+cut], wire: len(whole)})
	}
	r := replayed(t, yaml, raw(t, packets...))
	l := r.Listeners[0]
	assert.EqualValues(t, 2, l.OpcodesCut)
	assert.EqualValues(t, 4, l.Forwarded)
	assert.Equal(t, map[string]int64{"soft_throttle": 2}, l.Dropped)
	require.Len(t, r.Warnings, 1)
	assert.Contains(t, r.Warnings[0], "of 2 datagrams the opcode was not captured")
	var policies []string
	for _, e := range append(r.Denied, r.Nearest...) {
		policies = append(policies, e.Policy)
	}
	assert.Equal(t, []string{"status", "default"}, policies)
}

// C112, for TCP too: what a dry run lets through is told apart from what is
// dropped, and the text has it.
func TestDryRun(t *testing.T) {
	const yaml = `
policies:
  - {name: default, capacity: 1, refill: 1/h, bytes: {capacity: 10, refill: 1/h}}
  - {name: trial, capacity: 1, refill: 1/h, dry_run: true, lockout: off}
deny: [198.51.100.9]
listeners:
  - {name: udp, protocol: udp, listen: 0.0.0.0:27015, upstream: echo, policy: trial}
  - {name: tcp, protocol: tcp, listen: 0.0.0.0:27015, upstream: echo, dry_run: true}
`
	var packets []stamped
	for i := range uint16(3) {
		from := "198.51.100.1:" + string(rune('1'+i))
		packets = append(packets,
			stamped{data: datagram(t, from, v4server, 5)}, stamped{data: stream(t, from, v4server, "S", 1, 0)},
			stamped{data: stream(t, from, v4server, "A", 2, 100)},
			stamped{data: datagram(t, "198.51.100.9:1", v4server, 5), at: time.Duration(i)})
	}
	r := replayed(t, yaml, raw(t, packets...))
	udp, tcp := r.Listeners[0], r.Listeners[1]
	assert.EqualValues(t, 6, udp.Forwarded)
	assert.Equal(t, map[string]int64{"soft_throttle": 2, "denied": 3}, udp.WouldDrop)
	assert.EqualValues(t, 3, tcp.Forwarded)
	assert.EqualValues(t, 300, tcp.Bytes)
	assert.Equal(t, map[string]int64{"soft_throttle": 2}, tcp.WouldDrop)
	assert.Zero(t, tcp.Paused+tcp.LateBytes)
	assert.Empty(t, udp.Dropped)
	assert.Empty(t, tcp.Dropped)
	assert.EqualValues(t, 3, r.Endpoints.Denied)
	assert.Zero(t, r.Endpoints.LockedOut, "a denied source is not locked out")
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	assert.Contains(t, text.String(), "  let through by a dry run: 3 denied, 2 soft_throttle\n")
}

// C122: who is locked out where that takes an answer of the upstream. The answers
// are in the capture; a session that was idle begins anew.
func TestLockoutRequiresEstablished(t *testing.T) {
	const yaml = `
policies:
  - {name: default, capacity: 1, refill: 1/h, violations: {max: 3, window: 1h}, lockout: {base: 1m}}
listeners:
  - {name: game, protocol: udp, listen: 0.0.0.0:27015, upstream: echo, udp: {lockout_requires: established, session_idle: 30s}}
`
	const client, other = "198.51.100.1:4000", "198.51.100.1:4001"
	var packets []stamped
	sends := func(at time.Duration, from, to string, n int) {
		for range n {
			packets = append(packets, stamped{at: at, data: datagram(t, from, to, 5)})
		}
	}
	sends(0, client, v4server, 11)                     // one passes and makes a session
	sends(time.Second, v4server, other, 1)             // has none, as nothing of it passed
	sends(time.Second, other, v4server, 5)             // so it cannot be locked out
	sends(2*time.Second, "192.0.2.9:27015", client, 1) // from somewhere else
	sends(2*time.Second, client, v4server, 5)
	sends(3*time.Second, v4server, client, 1)
	sends(4*time.Second, client, v4server, 5)  // the third beyond what it would have had itself locks out
	sends(5*time.Second, other, v4server, 2)   // with all of the address
	sends(65*time.Second, client, v4server, 9) // the lockout and the session have ended
	r := replayed(t, yaml, raw(t, packets...))
	assert.EqualValues(t, 1, r.Listeners[0].Forwarded)
	assert.Equal(t, map[string]int64{"soft_throttle": 10 + 5 + 5 + 3 + 9, "hard_lockout": 2 + 2}, r.Listeners[0].Dropped)
	assert.EqualValues(t, 1, r.Endpoints.LockedOut)
	assert.Empty(t, r.Warnings)
	assert.Equal(t, map[string]int64{"other_address": 3}, r.Capture.NotForListener)
}

// C77: what comes from where it is sent to is nobody's.
func TestFromWhereItWasSent(t *testing.T) {
	const yaml = `
listeners:
  - {name: game, protocol: udp, listen: 0.0.0.0:27015, upstream: echo}
`
	own := stamped{data: datagram(t, v4server, v4server, 5)}
	r := replayed(t, yaml, raw(t, own, stamped{data: datagram(t, v4client, v4server, 5)}, own))
	assert.EqualValues(t, 1, r.Listeners[0].Forwarded)
	assert.Equal(t, map[string]int64{"self": 2}, r.Listeners[0].Dropped)
}
