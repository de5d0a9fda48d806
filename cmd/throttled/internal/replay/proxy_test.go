package replay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
)

func brought(client netip.AddrPort, payload []byte) []byte {
	h := proxyproto.Header{Source: client, Destination: netip.MustParseAddrPort(v4server)}
	return append(h.AppendV2(nil, proxyproto.Datagram), payload...)
}

const behindProxy = `
policies:
  - {name: default, capacity: 2, refill: 1/h, lockout: off}
deny: [198.51.100.99]
listeners:
  - {name: tcp, protocol: tcp, listen: 0.0.0.0:27015, upstream: echo, proxy_protocol: {accept_from: [10.0.0.0/8], timeout: 2s}}
  - {name: udp, protocol: udp, listen: 0.0.0.0:27015, upstream: echo, proxy_protocol: {accept_from: [10.0.0.0/8]}}
`

// A connection of a proxy is one of the client that its header names, in however
// many segments that comes.
func TestProxyConnections(t *testing.T) {
	const line = "PROXY TCP4 198.51.100.7 192.0.2.1 1000 80\r\n"
	for name, c := range map[string]struct {
		from      string
		segments  []string
		forwarded int64
		dropped   map[string]int64
		bytes     int64
		endpoint  string
	}{
		"at once":        {"10.0.0.1:1", []string{line + "hello"}, 1, nil, 5, "198.51.100.7"},
		"in two":         {"10.0.0.1:1", []string{line[:9], line[9:] + "hello"}, 1, nil, 5, "198.51.100.7"},
		"alone":          {"10.0.0.1:1", []string{line}, 1, nil, 0, "198.51.100.7"},
		"more data":      {"10.0.0.1:1", []string{line, "hello", "hello"}, 1, nil, 10, "198.51.100.7"},
		"for itself":     {"10.0.0.1:1", []string{"PROXY UNKNOWN\r\n", "hello"}, 1, nil, 5, "10.0.0.1"},
		"denied":         {"10.0.0.1:1", []string{"PROXY TCP4 198.51.100.99 192.0.2.1 1000 80\r\n", "x"}, 0, map[string]int64{"denied": 1}, 0, "198.51.100.99"},
		"port 0":         {"10.0.0.1:1", []string{"PROXY TCP4 198.51.100.7 192.0.2.1 0 80\r\n", "x"}, 0, map[string]int64{"proxy_header": 1}, 0, ""},
		"none":           {"10.0.0.1:1", []string{"hello", "hello"}, 0, map[string]int64{"proxy_header": 1}, 0, ""},
		"nothing":        {"10.0.0.1:1", nil, 0, map[string]int64{"proxy_header": 1}, 0, ""},
		"cut":            {"10.0.0.1:1", []string{line[:9]}, 0, map[string]int64{"proxy_header": 1}, 0, ""},
		"from elsewhere": {"203.0.113.1:1", []string{line + "hello", "hello"}, 0, map[string]int64{"proxy_header": 1}, 0, "203.0.113.1"},
		"in bits":        {"203.0.113.1:1", []string{"P", "ROXY "}, 0, map[string]int64{"proxy_header": 1}, 1, "203.0.113.1"},
		"plain":          {"203.0.113.1:1", []string{"P", "ASS x", "hello"}, 1, nil, 11, "203.0.113.1"},
	} {
		t.Run(name, func(t *testing.T) {
			packets := []stamped{{data: stream(t, c.from, v4server, "S", 7, 0)}}
			seq := uint32(8)
			for _, payload := range c.segments {
				again := stamped{data: streamOf(t, c.from, v4server, "A", seq, []byte(payload))}
				packets = append(packets, again, again)
				seq += uint32(len(payload))
			}
			packets = append(packets, stamped{data: stream(t, c.from, v4server, "FA", seq, 0)})
			r := replayed(t, behindProxy, raw(t, packets...))
			l := r.Listeners[0]
			assert.EqualValues(t, 1, l.Packets)
			assert.EqualValues(t, c.forwarded, l.Forwarded)
			assert.EqualValues(t, c.bytes, l.Bytes)
			if c.dropped == nil {
				c.dropped = map[string]int64{}
			}
			assert.Equal(t, c.dropped, l.Dropped)
			assert.Empty(t, r.Warnings)
			var seen []string
			for _, e := range append(r.Denied, r.Nearest...) {
				seen = append(seen, e.Endpoint)
			}
			if c.endpoint == "" {
				assert.Empty(t, seen)
			} else {
				assert.Equal(t, []string{c.endpoint}, seen)
			}
		})
	}
}

// What the capture has not kept of the headers is told, and a header that comes
// too late is none.
func TestProxyHeadersThatWereNotCaptured(t *testing.T) {
	line := []byte("PROXY TCP4 198.51.100.7 192.0.2.1 1000 80\r\nhello")
	whole := datagramOf(t, "10.0.0.1:1", v4server, brought(netip.MustParseAddrPort("198.51.100.7:1"), []byte("hello")))
	segment := streamOf(t, "10.0.0.1:1", v4server, "A", 8, line)
	r := replayed(t, behindProxy, raw(t,
		stamped{data: whole}, stamped{data: whole[:len(whole)-5], wire: len(whole)}, stamped{data: whole[:len(whole)-6], wire: len(whole)},
		stamped{data: stream(t, "10.0.0.1:1", v4server, "S", 7, 0)}, stamped{data: segment[:len(segment)-6], wire: len(segment)},
		stamped{data: stream(t, "10.0.0.2:1", v4server, "S", 7, 0)},
		stamped{data: streamOf(t, "10.0.0.2:1", v4server, "A", 8, line), at: 3 * time.Second},
	))
	assert.EqualValues(t, 1, r.Listeners[0].HeadersCut)
	assert.Equal(t, map[string]int64{"proxy_header": 2}, r.Listeners[0].Dropped)
	assert.EqualValues(t, 1, r.Listeners[1].HeadersCut)
	assert.EqualValues(t, 2, r.Listeners[1].Forwarded)
	require.Len(t, r.Warnings, 2)
	assert.Contains(t, r.Warnings[0], "1 PROXY headers were not captured whole")
}

// A connection that says nothing counts once its header is late, also at the end of
// the capture; until then nobody knows.
func TestProxyHeadersThatDoNotCome(t *testing.T) {
	r := replayed(t, behindProxy, raw(t,
		stamped{data: stream(t, "10.0.0.1:1", v4server, "S", 7, 0)},
		stamped{data: stream(t, "203.0.113.1:1", v4server, "S", 7, 0)},
		stamped{data: stream(t, "10.0.0.2:1", v4server, "S", 7, 0), at: 2*time.Second + 1},
	))
	l := r.Listeners[0]
	assert.EqualValues(t, 2, l.Packets)
	assert.EqualValues(t, 1, l.Forwarded)
	assert.Equal(t, map[string]int64{"proxy_header": 1}, l.Dropped)
}

// A header to the upstream takes room from the payload.
func TestProxyHeadersToTheUpstream(t *testing.T) {
	const yaml = `
listeners:
  - {name: udp, protocol: udp, listen: 0.0.0.0:27015, upstream: "127.0.0.1:9", proxy_protocol: {send: v2}}
  - {name: six, protocol: udp, listen: "[::]:27015", upstream: "127.0.0.1:9", proxy_protocol: {send: v2}}
`
	var packets []stamped
	for i, end := range [][2]string{{v4client, v4server}, {v6client, v6server}} {
		most := 65507 - []int{28, 52}[i]
		packets = append(packets, stamped{data: datagram(t, end[0], end[1], most)}, stamped{data: datagram(t, end[0], end[1], most+1)})
	}
	r := replayed(t, yaml, raw(t, packets...))
	for _, l := range r.Listeners {
		assert.EqualValues(t, 1, l.Forwarded, l.Name)
		assert.Equal(t, map[string]int64{"oversize": 1}, l.Dropped, l.Name)
	}
}
