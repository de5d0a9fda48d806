package netx

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy"
)

// relayOne relays one connection under a policy and looks often whether its
// client has gone. It gives the client's end, and a channel that is closed when
// the relay has ended.
func relayOne(t *testing.T, p policy.Policy, upstream string) (client *net.TCPConn, ended chan struct{}) {
	t.Helper()
	f := &frame{engine: engineOf(t, p), log: textLog(io.Discard)}
	cfg := ListenerConfig{Name: "t", Protocol: TCP, Listen: loopback(0), Upstream: upstream}.withDefaults()
	cfg.TCP.MaxConnections = 10
	made, err := newTCPServer(cfg, f, &addrLock{probe: -1})
	require.NoError(t, err)
	s := made.(*tcpServer)
	s.lookEvery = 20 * time.Millisecond
	s.relays.Go(s.watchRelays)
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer l.Close()
	client = dialTCP(t, l.Addr().String())
	accepted, err := l.AcceptTCP()
	require.NoError(t, err)
	from := addrPort(accepted.RemoteAddr())
	place, err := s.places.TryAcquire(1)
	require.NoError(t, err)
	require.True(t, s.perIP.take(from.Addr()))
	s.connections.Add(1)
	ended = make(chan struct{})
	s.relays.Go(func() { defer close(ended); s.serve(caller{client: accepted, from: from}, place) })
	t.Cleanup(func() { assert.NoError(t, s.close()) })
	return client, ended
}

// Whoever has reset his connection holds no place for long, whatever it is that
// the relay waits for.
func TestTCPClientGone(t *testing.T) {
	for name, step := range map[string]struct {
		policy policy.Policy
		send   func(c *net.TCPConn) error
	}{
		"waiting for tokens": {bytesPerSecond(1e-3, 1), func(c *net.TCPConn) error {
			_, err := c.Write(make([]byte, 100_000))
			return err
		}},
		"waiting for the upstream to read": {policy.Policy{}, func(c *net.TCPConn) error {
			for range 1000 {
				_ = c.SetWriteDeadline(time.Now().Add(settled / 100))
				if _, err := c.Write(make([]byte, 1<<20)); err != nil {
					return nil // all buffers are full
				}
			}
			return nil
		}},
		"after its end": {policy.Policy{}, (*net.TCPConn).CloseWrite},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan struct{})
			upstream := upstreamTCP(t, func(*net.TCPConn) { close(told); <-t.Context().Done() })
			c, ended := relayOne(t, step.policy, upstream)
			<-told
			require.NoError(t, step.send(c))
			require.NoError(t, c.SetLinger(0))
			require.NoError(t, c.Close())
			select {
			case <-ended:
			case <-time.After(settled):
				require.Fail(t, "the relay goes on")
			}
		})
	}
}

// A connection that both sides have closed is not gone while what the client
// sent before is still on its way.
func TestTCPClosedIsNotGone(t *testing.T) {
	const rate, total = 1000, 400
	got := make(chan []byte, 1)
	upstream := upstreamTCP(t, func(c *net.TCPConn) {
		assert.NoError(t, c.CloseWrite())
		all, err := io.ReadAll(c)
		assert.NoError(t, err)
		got <- all
	})
	c, ended := relayOne(t, bytesPerSecond(rate, 1), upstream)
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	sent := randomBytes(total)
	_, err = c.Write(sent)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	assert.Equal(t, sent, <-got)
	<-ended
}

func TestTCPHasGone(t *testing.T) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer l.Close()
	c := dialTCP(t, l.Addr().String())
	s, err := l.AcceptTCP()
	require.NoError(t, err)
	defer s.Close()
	assert.False(t, hasGone(s, true))
	require.NoError(t, c.SetLinger(0))
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return hasGone(s, false) }, settled, time.Millisecond)
	assert.True(t, hasGone(s, false), "looking took the error away")
	_, err = s.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	assert.False(t, hasGone(s, false))
	assert.True(t, hasGone(s, true))
}
