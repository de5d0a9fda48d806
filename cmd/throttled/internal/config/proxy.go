package config

import (
	"net/netip"

	"github.com/seed-ee4278a0/throttled/netx"
)

func (d *decoder) proxy(o *netx.ProxyOptions, v value, at places) {
	d.mapping(v, at, []field{
		{"accept_from", "", prefixes(&o.AcceptFrom, warnOfEverybody)},
		{"timeout", "proxy.timeout", duration(&o.Timeout)},
		{"send", "proxy.send", choice(&o.Send, sendWords)},
	})
}

func warnOfEverybody(d *decoder, v value, p netip.Prefix) {
	if p.Bits() == 0 {
		d.warn(v, "lets everybody say who he is, and be limited as somebody else")
	}
}

// checkProxy compares what was read with the rest of the listener.
func (d *decoder) checkProxy(l *Listener, at places) {
	o := &l.Proxy
	protocol, _, _ := scalar(d.resolve(at["protocol"]).node)
	switch {
	case o.Send == netx.SendNone:
	case l.Upstream == netx.Echo:
		d.wrong(d.resolve(at["proxy.send"]), "%s to the built-in echo, which would send the header back; allowed: off", sendWords[o.Send])
	case o.Send == netx.SendV1 && protocol == netx.UDP.String():
		d.wrong(d.resolve(at["proxy.send"]), "v1 on a udp listener, which is for tcp alone; allowed: off, v2")
	}
	switch {
	case o.Timeout == 0:
	case protocol == netx.UDP.String():
		d.warn(at["proxy.timeout"], "has no effect on a udp listener")
	case len(o.AcceptFrom) == 0:
		d.warn(at["proxy.timeout"], "has no effect without accept_from")
	}
}
