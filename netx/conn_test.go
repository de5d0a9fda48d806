package netx

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// settled is how long a test waits at most for something that is about to be.
const settled = 10 * time.Second

// noRefill is slow enough for no token to come back in a test.
const noRefill = 1e-6

// engineOf is an engine whose default policy is p.
func engineOf(t *testing.T, p policy.Policy) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{Default: p, Load: engine.NoLoad})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// atMost lets n packets through and then denies without ever locking out.
func atMost(n int64) policy.Policy {
	return policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: n, RefillPerSecond: noRefill},
		Escalation: policy.Escalation{Disabled: true},
	}
}

func loopback(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

// plainPacketConn hides what kind of a connection it is.
type plainPacketConn struct{ net.PacketConn }

// eachPacketConn runs a test on a UDP socket and on a PacketConn that is none.
func eachPacketConn(t *testing.T, p policy.Policy, f func(t *testing.T, c net.PacketConn, client net.Conn)) {
	for name, wrap := range map[string]func(net.PacketConn) net.PacketConn{
		"UDPConn": func(c net.PacketConn) net.PacketConn { return c },
		"other":   func(c net.PacketConn) net.PacketConn { return plainPacketConn{c} },
	} {
		t.Run(name, func(t *testing.T) {
			udp, err := net.ListenPacket("udp", "127.0.0.1:0")
			require.NoError(t, err)
			c := PacketConn(engineOf(t, p), wrap(udp))
			t.Cleanup(func() { c.Close() })
			client, err := net.Dial("udp", c.LocalAddr().String())
			require.NoError(t, err)
			t.Cleanup(func() { client.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(ioTimeout)))
			f(t, c, client)
		})
	}
}

func TestPacketConnSkipsTheDenied(t *testing.T) {
	p := policy.Policy{
		Packets:    tokenbucket.Limit{Capacity: 100, RefillPerSecond: noRefill},
		Bytes:      &tokenbucket.Limit{Capacity: 10, RefillPerSecond: noRefill},
		Escalation: policy.Escalation{Disabled: true},
	}
	eachPacketConn(t, p, func(t *testing.T, c net.PacketConn, client net.Conn) {
		for _, s := range []string{"12345", "longer than the budget", "", "67890", "x", ""} {
			_, err := client.Write([]byte(s))
			require.NoError(t, err)
		}
		buf := make([]byte, 100)
		for _, want := range []string{"12345", "", "67890", ""} { // C76
			n, from, err := c.ReadFrom(buf)
			require.NoError(t, err)
			assert.Equal(t, want, string(buf[:n]))
			assert.Equal(t, loopback(0).Addr(), addrPort(from).Addr().Unmap())
		}
	})
}

func TestPacketConnWhereAllIsDenied(t *testing.T) {
	eachPacketConn(t, atMost(1), func(t *testing.T, c net.PacketConn, client net.Conn) {
		_, err := client.Write([]byte("first"))
		require.NoError(t, err)
		buf := make([]byte, 100)
		_, from, err := c.ReadFrom(buf)
		require.NoError(t, err)
		_, err = c.WriteTo([]byte("answer"), from)
		require.NoError(t, err)

		stop := make(chan struct{})
		var flood sync.WaitGroup
		flood.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = client.Write([]byte("denied")) // refused once c is closed
				}
			}
		})
		require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, _, err = c.ReadFrom(buf)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "a flood must not hold up a deadline")

		require.NoError(t, c.SetReadDeadline(time.Time{}))
		closed := time.AfterFunc(20*time.Millisecond, func() { c.Close() })
		defer closed.Stop()
		_, _, err = c.ReadFrom(buf)
		assert.ErrorIs(t, err, net.ErrClosed)
		close(stop)
		flood.Wait()
	})
}

func TestPacketConnDeniedDoesNotAllocate(t *testing.T) {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	e := engineOf(t, atMost(1))
	c := PacketConn(e, udp)
	defer c.Close()
	client, err := net.Dial("udp", c.LocalAddr().String())
	require.NoError(t, err)
	defer client.Close()
	const rounds = 20
	e.Evaluate(addrPort(client.LocalAddr()))
	// Each read skips 10 denied datagrams and ends at its deadline. The error
	// is what it may allocate for; ten addresses would show.
	buf, packet := make([]byte, 100), []byte("denied")
	perRead := testing.AllocsPerRun(rounds, func() {
		for range 10 {
			_, _ = client.Write(packet)
		}
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
		_, _, _ = c.ReadFrom(buf)
	})
	assert.Less(t, perRead, 10.0)
	assert.GreaterOrEqual(t, e.Report().Evaluated, int64(rounds*10))
}

func TestListenerSkipsTheDenied(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := Listener(engineOf(t, atMost(2)), plain)
	accepted := make(chan string)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				assert.ErrorIs(t, err, net.ErrClosed)
				return
			}
			accepted <- addrPort(c.RemoteAddr()).Addr().String()
			_, _ = c.Write([]byte("x"))
			c.Close()
		}
	}()
	served := func() error {
		c, err := net.DialTimeout("tcp", l.Addr().String(), ioTimeout)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
		return err
	}
	for range 2 {
		done := make(chan error, 1)
		go func() { done <- served() }()
		require.Equal(t, "127.0.0.1", <-accepted)
		require.NoError(t, <-done)
	}
	for range 3 {
		require.Error(t, served(), "a denied client")
	}
	require.NoError(t, l.Close())
	_, open := <-accepted
	assert.False(t, open)
}

// A peer without an IP address is nobody that a limit could hold to account.
func TestListenerDeniesWhatIsNoIP(t *testing.T) {
	plain, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	require.NoError(t, err)
	e := engineOf(t, policy.Policy{})
	l := Listener(e, plain)
	ended := make(chan error, 1)
	go func() { _, err := l.Accept(); ended <- err }()
	c, err := net.Dial("unix", plain.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(ioTimeout)))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, l.Close())
	assert.ErrorIs(t, <-ended, net.ErrClosed)
	assert.EqualValues(t, 1, e.Report().Invalid)
}
