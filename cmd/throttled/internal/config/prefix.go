package config

import (
	"fmt"
	"net/netip"
	"strings"
)

const (
	allowedPrefix   = "an address or a prefix, such as 203.0.113.7, 203.0.113.0/24 or 2001:db8::/32"
	allowedEndpoint = "an address, with its port where endpoints are told apart by it, or an endpoint as a report writes it"
)

// ParsePrefix reads a prefix, or an address, which stands for itself alone. A
// prefix of mapped addresses is that of the IPv4 addresses. Bits behind the
// length are refused: they may be a slip of either the address or the length.
func ParsePrefix(s string) (netip.Prefix, error) {
	p, err := parsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s is not a prefix; allowed: %s", shown(s, true), allowedPrefix)
	}
	switch a := p.Addr(); {
	case a.Is4In6() && p.Bits() >= 96:
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	case a.Is4In6():
		return netip.Prefix{}, fmt.Errorf("%s is shorter than the 96 bits that make an address a mapped one; allowed: %s", s, allowedPrefix)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%s has bits behind its length; allowed: %s for that address, %s for all that share its first %d bits",
			s, p.Addr(), p.Masked(), p.Bits())
	}
	return p, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		return netip.ParsePrefix(s)
	}
	a, err := netip.ParseAddr(s)
	if err == nil && a.Zone() != "" {
		err = fmt.Errorf("%s has a zone", s)
	}
	return netip.PrefixFrom(a, a.BitLen()), err
}

// ParseEndpoint reads an endpoint as a report writes it (192.0.2.1,
// 192.0.2.1:4000, 2001:db8::/64, [2001:db8::/64]:4000, fe80::1%eth0), and the
// length of its prefix, that of a whole address where it has none. The port is 0
// where there is none.
func ParseEndpoint(s string) (ep netip.AddrPort, bits int, err error) {
	wrong := fmt.Errorf("%s is not an endpoint; allowed: %s", shown(s, true), allowedEndpoint)
	host, port := s, "0"
	switch bracketed, rest, found := strings.Cut(strings.TrimPrefix(s, "["), "]:"); {
	case found && strings.HasPrefix(s, "["):
		host, port = bracketed, rest
	case strings.Count(s, ":") == 1:
		host, port, _ = strings.Cut(s, ":")
	}
	text, length, cut := strings.Cut(host, "/")
	a, err := netip.ParseAddr(text)
	if err != nil {
		return ep, 0, wrong
	}
	bits = a.BitLen()
	if cut {
		p, err := netip.ParsePrefix(a.WithZone("").String() + "/" + length)
		if err != nil {
			return ep, 0, wrong
		}
		bits = p.Bits()
	}
	n, err := netip.ParseAddrPort("0.0.0.0:" + port)
	if err != nil {
		return ep, 0, wrong
	}
	return netip.AddrPortFrom(a, n.Port()), bits, nil
}

// prefixes reads a list of prefixes, each of which may be there once.
func prefixes(to *[]netip.Prefix, each func(d *decoder, v value, p netip.Prefix)) func(*decoder, value) {
	lines := map[netip.Prefix]int{}
	return list(func(d *decoder, v value) {
		var p netip.Prefix
		parsed(&p, allowedPrefix, ParsePrefix)(d, v)
		if !p.IsValid() {
			return
		}
		v = d.resolve(v)
		line, _ := position(v.node)
		if first, twice := lines[p]; twice {
			d.wrong(v, "%s is given twice, first in line %d; allowed: once", p, first)
			return
		}
		lines[p] = line
		*to = append(*to, p)
		each(d, v, p)
	})
}
