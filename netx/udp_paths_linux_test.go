package netx

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// Both paths get the same datagrams, of floods and of honest clients, of all
// lengths, with limits that time has no part in: what they count and what the
// upstream gets of each client is the same.
func TestUDPPathsAgree(t *testing.T) {
	counted, passed := runMix(t, fast)
	countedPlain, passedPlain := runMix(t, plain)
	assert.Equal(t, countedPlain, counted)
	assert.Equal(t, passedPlain, passed)
	for _, reason := range []string{"soft_throttle", "hard_lockout", "oversize", "sessions_full"} {
		assert.Positive(t, counted.Dropped[reason], reason)
	}
	assert.Greater(t, counted.Forwarded, int64(1000))
}

const (
	mixClients   = 48
	mixSessions  = 40
	mixDatagrams = 20_000
	mixChunk     = 100 // what the buffers of the sockets have room for
)

// runMix sends the mix through a gateway. It returns what was counted, and a
// hash of what reached the upstream of each client.
func runMix(t *testing.T, on path) (ListenerReport, map[uint16]uint64) {
	t.Helper()
	e, err := engine.New(engine.Config{
		Default: policy.Policy{
			Packets:    tokenbucket.Limit{Capacity: 700, RefillPerSecond: 1e-6},
			Bytes:      &tokenbucket.Limit{Capacity: 600_000, RefillPerSecond: 1e-6},
			Escalation: policy.Escalation{MaxSoftViolations: 20, Window: time.Hour, Lockout: time.Hour},
		},
		Load: engine.NoLoad,
	})
	require.NoError(t, err)
	defer e.Close()
	up := newHashSink(t)
	g := on.start(t, e, up.conn.LocalAddr().String(), UDPOptions{MaxSessions: mixSessions, MaxDatagram: 2000})
	var clients [mixClients]*net.UDPConn
	for i := range clients {
		// Of one address each: the loops would take turns with a shared one.
		from := netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i)})
		clients[i] = dialUDP(t, from.String(), g.Addrs()[0])
	}
	r := rand.New(rand.NewPCG(7, 7))
	sent := 0
	sendChunk := func(n int, who func() int) {
		together(g, func() {
			for range n {
				c := who()
				send(t, clients[c], mixDatagram(r, c, sent))
				sent++
			}
		})
		reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == int64(sent) && r.Forwarded == up.got.Load() })
	}
	for i := range clients { // one after the other, which settles who gets a session
		sendChunk(1, func() int { return i })
	}
	for sent < mixDatagrams {
		sendChunk(mixChunk, func() int { return int(mixClients * r.Float64() * r.Float64()) }) // the first ones flood
	}
	report := g.Listeners()[0]
	report.Listen = ""
	require.NoError(t, g.Close())
	return report, up.close()
}

func mixDatagram(r *rand.Rand, who, number int) []byte {
	size := 4 + r.IntN(300)
	if r.IntN(20) == 0 {
		size = 1800 + r.IntN(300) // some of them too long
	}
	p := make([]byte, size)
	binary.BigEndian.PutUint16(p, uint16(who))
	binary.BigEndian.PutUint16(p[2:], uint16(number))
	return p
}

// A hashSink is an upstream that hashes what it gets of each client, in order.
type hashSink struct {
	conn   *net.UDPConn
	got    atomic.Int64
	hashes map[uint16]uint64
	done   chan struct{}
}

func newHashSink(t *testing.T) *hashSink {
	t.Helper()
	s := &hashSink{conn: manualUpstream(t, "127.0.0.1:0"), hashes: map[uint16]uint64{}, done: make(chan struct{})}
	require.NoError(t, s.conn.SetReadBuffer(socketBuffer))
	go s.run()
	return s
}

func (s *hashSink) run() {
	defer close(s.done)
	buf := make([]byte, 1<<16)
	for {
		n, err := s.conn.Read(buf)
		if err != nil {
			return
		}
		h := fnv.New64a()
		who := binary.BigEndian.Uint16(buf)
		h.Write(binary.BigEndian.AppendUint64(nil, s.hashes[who]))
		h.Write(buf[:n])
		s.hashes[who] = h.Sum64()
		s.got.Add(1)
	}
}

func (s *hashSink) close() map[uint16]uint64 {
	s.conn.Close()
	<-s.done
	return s.hashes
}
