package kerneldrop

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-ee4278a0/throttled/engine"
)

// enterNamespace takes the thread of the test, which ends with it, to a network
// namespace of its own, with lo up.
func enterNamespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and never unlocks it
	require.NoError(t, unix.Unshare(unix.CLONE_NEWNET), "this test needs root")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	require.NoError(t, err)
	lo.SetUint16(unix.IFF_UP)
	require.NoError(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}

func sockaddr(ep netip.AddrPort) (domain int, sa unix.Sockaddr) {
	if ep.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(ep.Port()), Addr: ep.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(ep.Port()), Addr: ep.Addr().As16()}
}

// socket is bound to an address, which for IPv6 need not be there; one that is
// bound to [::] takes IPv4 too.
func socket(t *testing.T, ep netip.AddrPort) int {
	t.Helper()
	domain, sa := sockaddr(ep)
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	if domain == unix.AF_INET6 {
		require.NoError(t, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0))
		require.NoError(t, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1))
	}
	require.NoError(t, unix.Bind(fd, sa))
	return fd
}

// extend puts a destination options header, with padding alone, before the UDP
// header of what a socket sends.
func extend(t *testing.T, fd int) {
	t.Helper()
	require.NoError(t, unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, "\x00\x00\x01\x04\x00\x00\x00\x00"))
}

type sender struct {
	from     string // address and port
	dropped  bool
	extended bool
}

// The filter on real sockets: each kind of packet with the one who is locked out
// and others, in any order, and every datagram counted.
func TestSockets(t *testing.T) {
	for _, test := range []struct {
		name       string
		c          engine.Config
		listen, to string
		locked     string
		senders    []sender
	}{
		{"IPv4", engine.Config{}, "127.0.0.1:7000", "127.0.0.1:7000", "127.0.0.2:1", []sender{
			{"127.0.0.2:1001", true, false}, {"127.0.0.2:1002", true, false}, {"127.0.0.3:1001", false, false}, {"127.0.1.2:1001", false, false},
		}},
		{"IPv4 /24", engine.Config{IPv4Prefix: 24}, "0.0.0.0:7000", "127.0.0.1:7000", "127.0.2.2:1", []sender{
			{"127.0.2.2:1001", true, false}, {"127.0.2.3:1001", true, false}, {"127.0.3.2:1001", false, false},
		}},
		{"IPv4 by port", engine.Config{KeyByPort: true}, "127.0.0.1:7000", "127.0.0.1:7000", "127.0.0.2:1001", []sender{
			{"127.0.0.2:1001", true, false}, {"127.0.0.2:1002", false, false}, {"127.0.0.3:1001", false, false},
		}},
		{"IPv4 on an IPv6 socket", engine.Config{}, "[::]:7000", "127.0.0.1:7000", "127.0.0.2:1", []sender{
			{"127.0.0.2:1001", true, false}, {"127.0.0.3:1001", false, false}, {"[fd00:0:0:1::1]:1001", false, false},
		}},
		{"IPv6", engine.Config{}, "[::]:7000", "[::1]:7000", "[fd00:0:0:1::1]:1", []sender{
			{"[fd00:0:0:1::1]:1001", true, false}, {"[fd00:0:0:1::2]:1001", true, true}, {"[fd00:0:0:2::1]:1001", false, false},
			{"[fd00:0:0:2::1]:1002", false, true}, {"[::1]:1001", false, false}, {"127.0.0.2:1001", false, false},
		}},
		{"IPv6 /128 by port", engine.Config{IPv6Prefix: 128, KeyByPort: true}, "[::1]:7000", "[::1]:7000", "[fd00:0:0:1::1]:1001", []sender{
			{"[fd00:0:0:1::1]:1001", true, true}, {"[fd00:0:0:1::1]:1002", false, true}, {"[fd00:0:0:1::2]:1001", false, false},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEngine(t, test.c, 3, time.Hour)
			f := newFilter(t, newTable(t, Config{Engine: e}), 0)
			locked := netip.MustParseAddrPort(test.locked)
			for e.LockedFor(locked, 0) == 0 {
				e.Evaluate(locked)
			}
			f.table.admit(offer{from: locked})
			enterNamespace(t)
			exchange(t, f, test.listen, test.to, test.senders)
		})
	}
}

// exchange sends from all of them, in any order, and wants to receive what is
// not to be dropped and nothing else.
func exchange(t *testing.T, f *Filter, listen, to string, senders []sender) {
	const datagrams = 3000
	in := socket(t, netip.MustParseAddrPort(listen))
	require.NoError(t, f.Attach(in))
	out := make([]int, len(senders))
	for i, s := range senders {
		out[i] = socket(t, netip.MustParseAddrPort(s.from))
		if s.extended {
			extend(t, out[i])
		}
	}
	var sent, received [16]int // of each sender
	var dropped, droppedBytes, total int
	target := netip.MustParseAddrPort(to)
	buf := make([]byte, 1<<16)
	take := func() {
		for {
			n, _, err := unix.Recvfrom(in, buf, 0)
			if err != nil {
				return
			}
			require.Positive(t, n)
			received[buf[0]]++
			total++
		}
	}
	for range datagrams {
		i := rand.IntN(len(senders))
		payload := make([]byte, 1+rand.IntN(2000))
		payload[0] = byte(i)
		where := target
		if is4 := netip.MustParseAddrPort(senders[i].from).Addr().Is4(); is4 != target.Addr().Is4() {
			where = netip.AddrPortFrom(netip.IPv6Loopback(), target.Port())
			if is4 {
				where = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), target.Port())
			}
		}
		_, sa := sockaddr(where)
		require.NoError(t, unix.Sendto(out[i], payload, 0, sa))
		sent[i]++
		if senders[i].dropped {
			dropped++
			droppedBytes += len(payload)
		}
		take()
	}
	for deadline := time.Now().Add(patience); total < datagrams-dropped && time.Now().Before(deadline); take() {
		time.Sleep(time.Millisecond)
	}
	for i, s := range senders {
		want := sent[i]
		if s.dropped {
			want = 0
		}
		assert.Equal(t, want, received[i], "from %+v", s)
	}
	packets, bytes := f.Counts()
	assert.EqualValues(t, dropped, packets)
	assert.EqualValues(t, droppedBytes, bytes)
}
