package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/seed-ee4278a0/throttled/netx"
)

const (
	allowedListen   = "ip:port, such as 127.0.0.1:7000, 0.0.0.0:7000 or [::]:7000"
	allowedUpstream = "host:port, or echo"
	allowedAdmin    = "ip:port, unix:PATH or off"

	// AdminOff as Admin.Listen means that there is no admin server.
	AdminOff = "off"
	// UnixPrefix precedes the path of a unix socket.
	UnixPrefix = "unix:"

	// maxUnixPath is the longest path of a unix socket on every system.
	maxUnixPath = 103
)

// parseListen reads the address of a listener. Port 0 leaves the choice to the
// kernel.
func parseListen(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if err == nil && forMany(a.Addr()) {
		return a, fmt.Errorf("%s is a multicast or broadcast address; allowed: %s", s, allowedListen)
	}
	if err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
	}
	if port, found := strings.CutPrefix(s, ":"); found {
		return a, fmt.Errorf("%q has no address; allowed: 0.0.0.0:%s for every IPv4 address, [::]:%s for every IPv6 address", s, port, port)
	}
	return a, fmt.Errorf("%q is not an address; allowed: %s", s, allowedListen)
}

// forMany says whether an address stands for several machines.
func forMany(a netip.Addr) bool {
	return a.IsMulticast() || a.Unmap() == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// parseUpstream refuses what cannot be dialled. Whether a host name exists is
// seen when it is.
func parseUpstream(s string) (string, error) {
	if s == netx.Echo {
		return s, nil
	}
	wrong := fmt.Errorf("%q is not an upstream; allowed: %s", s, allowedUpstream)
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", wrong
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%q has no port; allowed: a port of 1 to 65535", s)
	}
	a, err := netip.ParseAddr(host)
	if err != nil && !isHostName(host) {
		return "", wrong
	}
	if err == nil && forMany(a) {
		return "", fmt.Errorf("%s is a multicast or broadcast address; allowed: the address of a server", s)
	}
	return s, nil
}

// isHostName says whether s can be a name, and is not an address gone wrong.
func isHostName(s string) bool {
	if s == "" || len(s) > 253 || strings.Trim(s, "0123456789.") == "" {
		return false
	}
	for _, label := range strings.Split(strings.TrimSuffix(s, "."), ".") {
		if label == "" || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return false
		}
		for _, r := range label {
			if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
				return false
			}
		}
	}
	return true
}

// ParseAdmin refuses an address that the admin server cannot listen on.
func ParseAdmin(s string) (string, error) {
	path, isUnix := strings.CutPrefix(s, UnixPrefix)
	if len(path) > maxUnixPath && isUnix {
		return "", fmt.Errorf("the path of %s is longer than %d bytes, which no unix socket can have", shown(s, false), maxUnixPath)
	}
	if strings.HasPrefix(path, "@") && isUnix {
		return "", fmt.Errorf("%s has no path in the file system, which alone says who may connect; allowed: %s", shown(s, false), allowedAdmin)
	}
	_, err := parseListen(s)
	if s == AdminOff || isUnix && path != "" || err == nil {
		return s, nil
	}
	return "", fmt.Errorf("%q is not an address; allowed: %s", s, allowedAdmin)
}

// NeedsToken says whether an admin address can be reached from other machines.
func NeedsToken(listen string) bool {
	a, err := parseListen(listen)
	return err == nil && !a.Addr().IsLoopback()
}

// overlap says whether two sockets of one protocol cannot listen on a and b at
// the same time. A wildcard stands for the addresses of its own family.
func overlap(a, b netip.AddrPort) bool {
	return a.IsValid() && b.IsValid() && a.Port() != 0 && a.Port() == b.Port() &&
		(covers(a.Addr(), b.Addr()) || covers(b.Addr(), a.Addr()))
}

func covers(a, b netip.Addr) bool {
	return a == b || a.IsUnspecified() && a.Is4() == b.Is4()
}

// target is the address that an upstream stands for, where that can be said
// without a resolver; the zero value where it cannot.
func target(upstream string) netip.AddrPort {
	host, port, err := net.SplitHostPort(upstream)
	if err != nil {
		return netip.AddrPort{}
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	a, err := netip.ParseAddr(host)
	n, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil {
		return netip.AddrPort{}
	}
	switch a = a.Unmap(); a { // what is sent to no address in particular stays here
	case netip.IPv4Unspecified():
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case netip.IPv6Unspecified():
		a = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(a, uint16(n))
}

// reaches says whether what goes to an address arrives at listen.
func reaches(listen, to netip.AddrPort) bool {
	return to.IsValid() && to.Port() == listen.Port() &&
		(to.Addr() == listen.Addr() || to.Addr().IsLoopback() && covers(listen.Addr(), to.Addr()))
}
