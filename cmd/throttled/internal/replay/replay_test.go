package replay

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const strict = `
policies:
  - {name: default, capacity: 3, refill: 1/s, violations: {max: 3, window: 8s}, lockout: {base: 10s}}
`

const game = strict + `
listeners:
  - {name: game, protocol: udp, listen: 0.0.0.0:27015, upstream: echo, udp: {max_datagram: 1000}}
`

func raw(t testing.TB, packets ...stamped) []byte { return capture(t, layers.LinkTypeRaw, packets...) }

// One burst that is throttled and locked out, one that is not, to the second.
func TestWhoIsLockedOutAndWhen(t *testing.T) {
	var packets []stamped
	send := func(at time.Duration, from string, n int) {
		for range n {
			packets = append(packets, stamped{at: at, data: datagram(t, from+":4000", v4server, 50)})
		}
	}
	send(0, "198.51.100.1", 3)             // all there is
	send(0, "198.51.100.2", 1)             // two of three tokens left
	send(time.Second, "198.51.100.1", 4)   // one passes, the third denial locks
	send(5*time.Second, "198.51.100.1", 2) // locked out
	send(11*time.Second, "198.51.100.1", 6)
	r := replayed(t, game, raw(t, packets...))

	assert.Equal(t, began, r.Capture.From)
	assert.Equal(t, began.Add(11*time.Second), r.Capture.To)
	assert.Empty(t, r.Warnings)
	l := r.Listeners[0]
	assert.EqualValues(t, 16, l.Packets)
	assert.EqualValues(t, 800, l.Bytes)
	assert.EqualValues(t, 8, l.Forwarded)
	assert.Equal(t, map[string]int64{"soft_throttle": 4, "hard_lockout": 4}, l.Dropped)
	assert.Equal(t, Endpoints{Seen: 2, Denied: 1, LockedOut: 1}, r.Endpoints)
	assert.Equal(t, []Endpoint{{
		Endpoint: "198.51.100.1", Policy: "default", Packets: 15, Bytes: 750, Denied: 8,
		FirstDenied: began.Add(time.Second), Lockouts: 2, FirstLockout: began.Add(time.Second), LockedFor: 20,
		LowestTokens: 0, LowestAt: began, PeakPerSecond: 0.9,
	}}, r.Denied)
	require.Len(t, r.Nearest, 1)
	assert.Equal(t, "198.51.100.2", r.Nearest[0].Endpoint)
	assert.InDelta(t, 100*2/3., r.Nearest[0].LowestTokens, 1e-9)
}

func TestReasons(t *testing.T) {
	r := replayed(t, `
listeners:
  - {name: a, protocol: udp, listen: "192.0.2.1:27015", upstream: echo, udp: {max_datagram: 1000}}
  - {name: b, protocol: udp, listen: "[::]:27015", upstream: echo}
  - {name: c, protocol: udp, listen: "192.0.2.1:53", upstream: echo}
`, raw(t,
		stamped{data: datagram(t, v4client, v4server, 1000)},
		stamped{data: datagram(t, v4client, v4server, 1001)},
		stamped{data: datagram(t, "198.51.100.7:0", v4server, 1)},
		stamped{data: datagram(t, "224.0.0.1:9", v4server, 1)},
		stamped{data: datagram(t, "192.0.2.1:53", v4server, 1)},
		stamped{data: datagram(t, v6client, v6server, 2000)},
		stamped{data: datagram(t, v6client, "[ff02::1]:27015", 1)},
		stamped{data: datagram(t, v4client, "192.0.2.2:27015", 1)}, // not the address
		stamped{data: stream(t, v4client, v4server, "S", 1, 0)},    // not the protocol
		stamped{data: []byte{0x10, 0, 0}},
	))
	assert.Equal(t, map[string]int64{"oversize": 1, "bogon": 2, "self": 1}, r.Listeners[0].Dropped)
	assert.EqualValues(t, 1, r.Listeners[0].Forwarded)
	assert.EqualValues(t, 1, r.Listeners[1].Forwarded)
	assert.EqualValues(t, 0, r.Listeners[2].Captured)
	assert.Equal(t, map[string]int64{"other_address": 3, "not_ip": 1}, r.Capture.NotForListener)
}

// The lists of the file are in force; who is on one has no bucket and is near to
// nothing.
func TestLists(t *testing.T) {
	var packets []stamped
	for range 10 {
		for _, from := range []string{"198.51.100.1:1", "203.0.113.1:1", "203.0.113.200:1", "192.0.2.7:1"} {
			packets = append(packets, stamped{data: datagram(t, from, v4server, 1)})
		}
	}
	yaml := game + "exempt: [203.0.113.200/32, 192.0.2.0/24]\ndeny: [203.0.113.0/24]\n"
	r := replayed(t, yaml, raw(t, packets...))
	assert.Equal(t, map[string]int64{"denied": 10, "soft_throttle": 2, "hard_lockout": 5}, r.Listeners[0].Dropped)
	assert.EqualValues(t, 23, r.Listeners[0].Forwarded)
	assert.Equal(t, Endpoints{Seen: 4, Denied: 2, LockedOut: 1}, r.Endpoints)
	assert.Empty(t, r.Nearest)
	assert.Equal(t, "203.0.113.1", r.Denied[1].Endpoint)
	assert.Zero(t, r.Denied[1].Lockouts)

	path := inFile(t, "lists.pcap", raw(t, packets...))
	r, err := Run(Options{Config: parsed(t, yaml), Capture: path, Suggest: true})
	require.NoError(t, err)
	require.Len(t, r.Suggested, 1)
	assert.EqualValues(t, 1, r.Suggested[0].Endpoints)
}

// What the server answers is not for the listener, where both have the same port.
func TestAnswers(t *testing.T) {
	there, back := datagram(t, "198.51.100.7:27015", v4server, 1), datagram(t, v4server, "198.51.100.7:27015", 1)
	r := replayed(t, game, raw(t, stamped{data: there}, stamped{data: back}, stamped{data: there}, stamped{data: back}))
	assert.EqualValues(t, 2, r.Listeners[0].Packets)
	assert.Equal(t, map[string]int64{"outgoing": 2}, r.Capture.NotForListener)

	r = replayed(t, game, capture(t, layers.LinkTypeLinuxSLL, stamped{data: sll(back, 4)}, stamped{data: sll(there, 0)}))
	assert.EqualValues(t, 1, r.Listeners[0].Packets)
	assert.Equal(t, map[string]int64{"outgoing": 1}, r.Capture.NotForListener)
}

func TestFragments(t *testing.T) {
	whole := datagram(t, v4client, v4server, 2000)
	first, second := bytes.Clone(whole[:1500]), append(bytes.Clone(whole[:20]), whole[1500:]...)
	first[2], first[3], first[6] = 1500>>8, 1500&255, 0x20
	second[6], second[7] = 0, 185
	r := replayed(t, strict+`
listeners: [{name: game, protocol: udp, listen: 0.0.0.0:27015, upstream: echo}]
`, raw(t, stamped{data: first}, stamped{data: second}))
	assert.EqualValues(t, 1, r.Capture.Fragmented)
	assert.Equal(t, map[string]int64{"fragment": 1}, r.Capture.NotForListener)
	assert.EqualValues(t, 1, r.Listeners[0].Forwarded)
	assert.EqualValues(t, 2000, r.Listeners[0].Bytes)
}

const web = `
policies:
  - {name: default, capacity: 2, refill: 1/m, bytes: {capacity: 1000, refill: 100/s}}
listeners:
  - {name: web, protocol: tcp, listen: 0.0.0.0:80, upstream: echo, tcp: {on_limit: %s}}
`

// A connection counts once and a byte once, whatever is sent again or missing.
func TestConnections(t *testing.T) {
	const server = "192.0.2.1:80"
	var packets []stamped
	send := func(at time.Duration, from, flags string, seq uint32, n int) {
		packets = append(packets, stamped{at: at, data: stream(t, from, server, flags, seq, n)})
	}
	const a, b, c, d = "198.51.100.1:1", "198.51.100.1:2", "198.51.100.1:3", "198.51.100.2:1"
	const wraps = 1<<32 - 5
	send(0, a, "S", wraps, 0)
	send(time.Second, a, "S", wraps, 0) // again
	send(2*time.Second, a, "A", wraps+1, 0)
	send(2*time.Second, a, "A", wraps+1, 100)
	send(3*time.Second, a, "A", wraps+1, 100) // again
	send(3*time.Second, a, "A", 196, 100)     // after 100 that are not in the capture
	send(3*time.Second, a, "A", 96, 100)      // which come now
	send(3*time.Second, a, "A", 1<<31, 100)   // beyond every window
	send(3*time.Second, a, "FA", 296, 0)
	send(3*time.Second, b, "S", 7, 0)
	send(3*time.Second, c, "S", 7, 0) // denied
	send(4*time.Second, c, "A", 8, 500)
	send(4*time.Second, d, "A", 70, 900) // open before
	send(4*time.Second, d, "R", 970, 0)
	send(5*time.Second, a, "S", 99, 0) // a new one, denied
	for _, onLimit := range []string{"pause", "close"} {
		r := replayed(t, fmt.Sprintf(web, onLimit), raw(t, packets...))
		l := r.Listeners[0]
		assert.EqualValues(t, len(packets), l.Captured)
		assert.EqualValues(t, 4, l.Packets)
		assert.EqualValues(t, 2, l.Forwarded)
		assert.Equal(t, map[string]int64{"soft_throttle": 2}, l.Dropped)
		assert.EqualValues(t, 1, l.Retransmitted)
		assert.EqualValues(t, 1, l.OpenBefore)
		assert.EqualValues(t, 300+900, l.Bytes)
		assert.Zero(t, l.Paused+l.Closed+l.LateBytes)
		require.Len(t, r.Nearest, 1)
		assert.Equal(t, "198.51.100.2", r.Nearest[0].Endpoint)
		assert.InDelta(t, 10, r.Nearest[0].LowestTokens, 1e-9, "of the bytes")
	}
}

func TestByteLimitOfConnections(t *testing.T) {
	var packets []stamped
	seq := uint32(1)
	for i := range 4 {
		packets = append(packets, stamped{at: time.Duration(i) * time.Second, data: stream(t, "198.51.100.1:1", "192.0.2.1:80", "A", seq, 600)})
		seq += 600
	}
	// 1000 tokens, 100 a second: 600 are there, then 500, 100 and 100.
	l := replayed(t, fmt.Sprintf(web, "pause"), raw(t, packets...)).Listeners[0]
	assert.EqualValues(t, 2400, l.Bytes)
	assert.EqualValues(t, 1, l.Paused)
	assert.EqualValues(t, 100+500+500, l.LateBytes)
	l = replayed(t, fmt.Sprintf(web, "close"), raw(t, packets...)).Listeners[0]
	assert.EqualValues(t, 1200, l.Bytes)
	assert.EqualValues(t, 1, l.Closed)
	assert.Zero(t, l.Paused+l.LateBytes)
}

// Connections that nothing is heard of are forgotten.
func TestStreamsAreForgotten(t *testing.T) {
	st := streams{open: map[flow]*connection{}}
	for i := range 1000 {
		st.open[flow{client: netip.AddrPortFrom(netip.IPv6Loopback(), uint16(i))}] = &connection{seen: int64(i) * int64(time.Second)}
		st.sweep(int64(i) * int64(time.Second))
		require.LessOrEqual(t, len(st.open), 242)
	}
}

// The clock never goes back, and what has no time is decided on at the last one.
func TestClockStepsBack(t *testing.T) {
	packet := datagram(t, v4client, v4server, 1)
	r := replayed(t, game, raw(t,
		stamped{at: 10 * time.Second, data: packet}, stamped{at: 4 * time.Second, data: packet},
		stamped{at: 9 * time.Second, data: packet}, stamped{at: 10 * time.Second, data: packet},
		stamped{at: 11 * time.Second, data: packet},
	))
	assert.EqualValues(t, 2, r.Capture.Backwards)
	assert.Equal(t, 6*time.Second, r.Capture.BackwardsMost)
	assert.EqualValues(t, 4, r.Listeners[0].Forwarded)
	assert.Equal(t, []string{"2 packets are stamped earlier than one before them, by up to 6s, and were decided on at its time"}, r.Warnings)
}

func TestNothingMatches(t *testing.T) {
	r := replayed(t, `
listeners:
  - {name: a, protocol: udp, listen: "127.0.0.1:27015", upstream: echo}
  - {name: b, protocol: tcp, listen: "127.0.0.1:0", upstream: echo}
`, raw(t, stamped{data: datagram(t, v4client, v4server, 1)}, stamped{data: datagram(t, v4client, v4server, 1)},
		stamped{data: stream(t, v4client, "192.0.2.1:80", "S", 1, 0)}))
	assert.Equal(t, []string{
		"listener b has port 0, which no packet of a capture is for",
		"no packet is for a listener: let one listen on the address of the server in the capture, or on a wildcard, and on its port",
		"2 packets went to udp 192.0.2.1:27015",
		"1 packets went to tcp 192.0.2.1:80",
	}, r.Warnings)
}

func TestBadCaptures(t *testing.T) {
	packet := datagram(t, v4client, v4server, 1)
	good := raw(t, stamped{data: packet}, stamped{data: packet})
	run := func(content []byte) (*Result, string, error) {
		path := inFile(t, "bad.pcap", content)
		r, err := Run(Options{Config: parsed(t, game), Capture: path})
		return r, path, err
	}
	r, path, err := run(good[:len(good)-1])
	require.NoError(t, err)
	assert.EqualValues(t, 1, r.Listeners[0].Forwarded)
	assert.Equal(t, []string{"replay: " + path + ": packet 2 at offset 69: the capture ends in the middle of it; this is about the 1 before"}, r.Warnings)

	damaged := bytes.Clone(good)
	damaged[24+16+len(packet)+11] = 0x7f
	r, path, err = run(damaged)
	require.EqualError(t, err, "replay: "+path+": packet 2 at offset 69: damaged: 2130706461 bytes in one packet")
	assert.EqualValues(t, 1, r.Listeners[0].Forwarded)

	r, path, err = run(good[:20])
	assert.Nil(t, r)
	require.EqualError(t, err, "replay: "+path+": too short for a capture")
	_, err = Run(Options{Config: parsed(t, game), Capture: path + "x"})
	require.ErrorContains(t, err, "no such file")
	_, err = Run(Options{Config: parsed(t, strict), Capture: path})
	require.EqualError(t, err, "replay: the configuration has no listeners")
	_, err = Run(Options{Config: parsed(t, game), Capture: "-", Suggest: true})
	require.EqualError(t, err, "replay: --suggest reads the capture twice and needs a file, not -")

	r, _, err = run(good[:24])
	require.NoError(t, err)
	assert.Zero(t, r.Capture.Packets)
	require.NoError(t, r.WriteText(&bytes.Buffer{}))
}
