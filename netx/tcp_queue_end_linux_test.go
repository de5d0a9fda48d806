package netx

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

func TestTCPQueueDrain(t *testing.T) {
	g, report := startTCP(t, Echo, TCPOptions{MaxConnections: 1, Queue: queueOf(3, limiter.OldestFirst)})
	addr := g.Addrs()[0].String()
	first := keepOpen(t, addr)
	waiters := []*net.TCPConn{dialTCP(t, addr), dialTCP(t, addr), dialTCP(t, addr)}
	awaitQueued(t, g, len(waiters))
	drained := make(chan error, 1)
	go func() { drained <- g.Drain(context.Background()) }()
	for _, c := range waiters {
		isTurnedAway(t, c)
	}
	isServed(t, first)
	select {
	case err := <-drained:
		t.Fatalf("Drain returned with a connection open: %v", err)
	default:
	}
	require.NoError(t, first.Close())
	require.NoError(t, <-drained)
	addsUp(t, report)
	assert.Equal(t, map[string]int64{"draining": 3}, report().Dropped)
}

func TestTCPQueueCloseLeavesNothing(t *testing.T) {
	const waiters = 20
	before := openDescriptors(t)
	g, report := startTCP(t, Echo, TCPOptions{MaxConnections: 1, Queue: queueOf(waiters, limiter.NewestFirst)})
	addr := g.Addrs()[0].String()
	clients := []*net.TCPConn{keepOpen(t, addr)}
	for range waiters {
		clients = append(clients, dialTCP(t, addr))
	}
	awaitQueued(t, g, waiters)
	began := time.Now()
	require.NoError(t, g.Close())
	assert.Less(t, time.Since(began), settled)
	r := report()
	assert.EqualValues(t, waiters+1, r.Packets)
	assert.EqualValues(t, 1, r.Forwarded)
	assert.Zero(t, r.ConnectionsActive)
	assert.Equal(t, map[string]int64{"draining": waiters}, r.Dropped)
	for _, c := range clients {
		isTurnedAway(t, c)
		c.Close()
	}
	nothingRuns(t)
	assert.LessOrEqual(t, openDescriptors(t), before)
}

// nothingRuns checks that no goroutine of a TCP listener is left.
func nothingRuns(t *testing.T) {
	t.Helper()
	buf := make([]byte, 1<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	assert.NotContains(t, stacks, "netx.(*tcpServer)")
	assert.NotContains(t, stacks, "netx.(*relay)")
}

// Clients of every kind at once: the caps hold all the time, and in the end
// every connection has been counted and every place given back.
func TestTCPQueueAddsUp(t *testing.T) {
	const places, queue, clients, rounds = 2, 3, 12, 40
	for _, order := range []limiter.Order{limiter.OldestFirst, limiter.NewestFirst} {
		t.Run(order.String(), func(t *testing.T) {
			g, report := startTCPOn(t, newEngine(t, unlimited), 0, Echo, TCPOptions{
				MaxConnections: places, MaxConnectionsPerIP: 4,
				Queue: limiter.Queue{Limit: queue, Order: order, MaxWait: 5 * time.Millisecond},
			})
			s := g.server(0).(*tcpServer)
			var (
				wg    sync.WaitGroup
				dials atomic.Int64
				done  = make(chan struct{})
			)
			for range clients {
				wg.Go(func() {
					for range rounds {
						if someClient(g.Addrs()[0].String()) {
							dials.Add(1)
						}
					}
				})
			}
			go func() { wg.Wait(); close(done) }()
			for running := true; running; {
				select {
				case <-done:
					running = false
				case <-time.After(time.Millisecond):
				}
				require.LessOrEqual(t, report().ConnectionsActive, int64(places))
				require.LessOrEqual(t, s.places.Stats().Queued, int64(queue))
			}
			addsUp(t, report)
			assert.GreaterOrEqual(t, report().Packets, dials.Load())
			assert.Positive(t, report().Forwarded)
			assert.Positive(t, report().Dropped["queue_full"])
			require.Eventually(t, func() bool { return s.places.Stats().Available == places && len(s.waiting) == 0 }, settled, time.Millisecond)
			require.NoError(t, g.Close()) // and nobody writes to the map any more
			assert.Empty(t, s.perIP.used)
			nothingRuns(t)
		})
	}
}

// someClient connects and goes in one of several ways. It says whether it was
// connected for sure.
func someClient(addr string) bool {
	d := net.Dialer{Timeout: ioTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.0.%d", 1+rand.IntN(3)))}}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		return false // reset before the connect returned
	}
	defer conn.Close()
	c := conn.(*net.TCPConn)
	_ = c.SetDeadline(time.Now().Add(ioTimeout))
	switch rand.IntN(4) {
	case 0:
		return true
	case 1:
		_ = c.SetLinger(0)
		return true
	case 2:
		_, _ = c.Write([]byte("request"))
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		return true
	default:
		_, _ = c.Write([]byte("request"))
		_, _ = io.ReadFull(c, make([]byte, len("request")))
		return true
	}
}
