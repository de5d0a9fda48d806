package netx

import (
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
)

// A saturated gateway allocates next to nothing, whether it denies, or forwards
// and carries the answers back, which the clients do not read.
func TestUDPSaturatedAllocates(t *testing.T) {
	for _, tc := range []struct {
		name     string
		capacity int64
		o        UDPOptions
	}{
		{"forwarded", unlimited, UDPOptions{}}, {"denied", 1, UDPOptions{}},
		{"replies suppressed", unlimited, UDPOptions{MaxReplyRatio: 1e-6, LockoutRequires: LockoutEstablished}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const chunk, chunks = 100, 30
			g := fast.listener(t, newEngine(t, tc.capacity), silent, ListenerConfig{
				Name: "u", Listen: netip.AddrPortFrom(localhost, 0), Upstream: Echo, UDP: tc.o,
				Opcodes: Opcodes{Size: 2, Policies: map[uint32]engine.PolicyID{0: 0}},
			})
			var clients [10]*net.UDPConn
			for i := range clients {
				clients[i] = dialUDP(t, "127.0.0.2", g.Addrs()[0])
			}
			p := make([]byte, 64)
			sent := int64(0)
			saturate := func() {
				together(g, func() {
					for i := range chunk {
						send(t, clients[i%len(clients)], p)
					}
				})
				sent += chunk
				for packets(g) < sent {
					runtime.Gosched()
				}
			}
			saturate() // makes the sessions
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range chunks {
				saturate()
			}
			runtime.ReadMemStats(&after)
			assert.LessOrEqual(t, float64(after.Mallocs-before.Mallocs), 0.1*chunk*chunks)
		})
	}
}

func packets(g *Gateway) (n int64) {
	for _, l := range g.server(0).(*udpServer).loops {
		n += l.count.packets.Load()
	}
	return n
}

// What it costs to receive and deny a datagram: 64 that wait in the socket,
// many with one system call beside one at a time.
func BenchmarkUDPReceiveDenied(b *testing.B) {
	for _, on := range []path{fast, plain} {
		b.Run(string(on), func(b *testing.B) {
			l := boundLoop(b, on)
			receive := receiver(b, l)
			c := dialUDP(b, "127.0.0.2", l.cfg.Listen)
			p := make([]byte, 64)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for range batchSize {
					send(b, c, p)
				}
				b.StartTimer()
				receive(batchSize)
			}
			require.Equal(b, int64(b.N*batchSize), l.count.packets.Load())
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batchSize), "ns/packet")
		})
	}
}

// boundLoop is a loop that nobody serves.
func boundLoop(b *testing.B, on path) *udpLoop {
	b.Helper()
	lock, err := lockAddr(UDP, netip.AddrPortFrom(localhost, 0), false)
	require.NoError(b, err)
	b.Cleanup(lock.release)
	cfg := ListenerConfig{Name: "u", Listen: lock.addr, Upstream: "127.0.0.1:9"}.withDefaults()
	f := &frame{engine: newEngine(b, 1), log: slog.New(slog.DiscardHandler), plain: on == plain}
	upstream, err := resolveUDP(b.Context(), cfg.Upstream)
	require.NoError(b, err)
	s := newUDPServer(cfg, upstream, f, lock).(*udpServer)
	b.Cleanup(func() { assert.NoError(b, s.close()) })
	procs := runtime.GOMAXPROCS(1) // which makes it the only one
	err = s.bind(nil)
	runtime.GOMAXPROCS(procs)
	require.NoError(b, err)
	lock.bound()
	return s.loops[0]
}

// receiver does the work of a loop's goroutine.
func receiver(b *testing.B, l *udpLoop) func(packets int) {
	p, ok := l.path.(*plainPath)
	if !ok {
		return func(int) { l.path.(*fastPath).drain() }
	}
	var one [1]datagram
	buf := make([]byte, readBuffer)
	return func(packets int) {
		for range packets {
			n, src, err := p.listen.socket.ReadFromUDPAddrPort(buf)
			require.NoError(b, err)
			one[0] = datagram{src: unmapped(src), payload: buf[:n], size: n}
			l.relay(one[:])
		}
	}
}
