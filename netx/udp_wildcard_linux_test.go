package netx

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A client hears from the address that it has sent to and from no other, as its
// socket is connected to that.
func TestUDPWildcardAnswersFromWhereItWasAsked(t *testing.T) {
	g := fast.listener(t, newEngine(t, unlimited), nil, ListenerConfig{
		Name: "any", Listen: netip.MustParseAddrPort("0.0.0.0:0"), Upstream: Echo,
	})
	for i := range 20 {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i%5)}), g.Addrs()[0].Port())
		for _, from := range []string{"127.0.0.1", "127.0.0.77"} {
			exchange(t, dialUDP(t, from, to), []byte(to.String()))
		}
	}
}

// One socket of a client that asks at two addresses has a session for each.
func TestUDPWildcardOneClientTwoAddresses(t *testing.T) {
	g := fast.listener(t, newEngine(t, unlimited), nil, ListenerConfig{
		Name: "any", Listen: netip.MustParseAddrPort("0.0.0.0:0"), Upstream: Echo,
	})
	c := manualUpstream(t, "127.0.0.1:0")
	port := g.Addrs()[0].Port()
	for i := range 10 {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(1 + i%2)}), port)
		_, err := c.WriteToUDPAddrPort([]byte(to.String()), to)
		require.NoError(t, err)
		got, from := readFrom(t, c)
		assert.Equal(t, to, from)
		assert.Equal(t, to.String(), string(got))
	}
	reportWhen(t, g, func(r ListenerReport) bool { return r.Packets == 10 && r.SessionsActive == 2 })
}

// In a namespace of its own the loopback interface has addresses of both
// families that the route to the client does not prefer, and the last of them
// only since the gateway has been running.
func TestUDPWildcardMultihomed(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	upLoopback(t)
	for _, tc := range []struct {
		wildcard      string
		clients, addr []string
	}{
		{"0.0.0.0:7000", []string{"127.0.0.1", "10.1.1.1"}, []string{"10.1.1.1", "10.1.1.2", "10.1.1.3"}},
		{"[::]:7000", []string{"::1", "fd00::1"}, []string{"fd00::1", "fd00::2", "fe80::7%lo", "fd00::3"}},
	} {
		last := len(tc.addr) - 1
		for _, a := range tc.addr[:last] {
			addLoopback(t, netip.MustParseAddr(a))
		}
		g := fast.listener(t, newEngine(t, unlimited), nil, ListenerConfig{
			Name: "any", Listen: netip.MustParseAddrPort(tc.wildcard), Upstream: Echo,
		})
		addLoopback(t, netip.MustParseAddr(tc.addr[last]))
		for _, to := range tc.addr {
			for _, from := range tc.clients {
				at := netip.AddrPortFrom(netip.MustParseAddr(to), g.Addrs()[0].Port())
				exchange(t, dialUDP(t, from, at), []byte(from+" to "+to))
			}
		}
	}
}

const namespaceEnv = "THROTTLED_TEST_NAMESPACE"

// inNamespace says whether the process has a network namespace of its own.
// Where it has none, the test runs in a process that does, before it returns.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return false
}

// upLoopback brings the loopback interface of the namespace up.
func upLoopback(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	require.NoError(t, err)
	req.SetUint16(unix.IFF_UP)
	require.NoError(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req))
}

// addLoopback gives the loopback interface one address more, and waits for the
// kernel to have a route to it.
func addLoopback(t *testing.T, a netip.Addr) {
	t.Helper()
	lo, err := net.InterfaceByName("lo")
	require.NoError(t, err)
	family, ip := byte(unix.AF_INET6), a.AsSlice()
	if a.Is4() {
		family = unix.AF_INET
	}
	e := binary.NativeEndian
	body := []byte{family, byte(8 * len(ip)), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	body = e.AppendUint32(body, uint32(lo.Index))
	for _, attr := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		body = e.AppendUint16(body, uint16(4+len(ip)))
		body = e.AppendUint16(body, attr)
		body = append(body, ip...)
	}
	msg := e.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	msg = e.AppendUint16(msg, unix.RTM_NEWADDR)
	msg = e.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	msg = append(msg, make([]byte, 8)...) // sequence and port
	msg = append(msg, body...)

	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, unix.SizeofNlMsghdr+4)
	require.Zero(t, int32(e.Uint32(answer[unix.SizeofNlMsghdr:])), "adding %v", a)
	require.Eventually(t, func() bool { return reachesItself(a) }, ioTimeout, time.Millisecond, "%v", a)
}

func reachesItself(a netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		return false
	}
	defer c.Close()
	if _, err := c.WriteTo([]byte("x"), c.LocalAddr()); err != nil {
		return false
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, _, err = c.ReadFrom(make([]byte, 1))
	return err == nil
}
