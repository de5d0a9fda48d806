package netx

import (
	"net/netip"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
)

// unwrap takes the PROXY header off a datagram that has to have one, and notes
// where one is that must not. It counts what it drops, and is false then. A proxy
// is not limited for what it brings: only the lists apply to its own address.
func (l *udpLoop) unwrap(d *datagram) bool {
	if !l.proxies.has(d.src.Addr()) {
		d.forged, _ = proxyproto.Begins(d.payload)
		return true
	}
	h, n, err := ParseProxyHeader(UDP, d.payload)
	d.payload, d.size = d.payload[n:], d.size-n
	if rule, listed := l.engine.ListDecision(d.src.Addr()); listed && !rule.Allowed {
		if l.refuse(d, &engine.Request{Endpoint: d.src, Policy: l.cfg.PolicyOf(d.payload)}, rule) {
			return false
		}
	}
	if err != nil {
		if n, ok := l.headerGate.pass(); ok {
			l.log.Warn("no PROXY header that is valid", "listener", l.cfg.Name,
				"address", d.src.Addr(), "error", err, "suppressed", n)
		}
		l.batch.dropped[dropProxyHeader]++
		return false
	}
	if h.Source.IsValid() {
		d.client = h.Source
		if l.cfg.Proxy.Send != SendNone {
			d.to = h.Destination
		}
	}
	return true
}

// proxyHeader is what the upstream is told of a client.
func (l *udpLoop) proxyHeader(d *datagram) proxyproto.Header {
	h := proxyproto.Header{Source: d.client, Destination: d.to}
	if !d.to.IsValid() {
		local := d.local
		if !local.IsValid() {
			local = l.cfg.Listen.Addr()
		}
		h.Destination = netip.AddrPortFrom(local, l.cfg.Listen.Port())
	}
	return h
}

// header is what begins the datagrams of a new session, nil where nothing does.
func (l *udpLoop) header(d *datagram) []byte {
	if l.cfg.Proxy.Send == SendNone {
		return nil
	}
	return l.proxyHeader(d).AppendV2(nil, proxyproto.Datagram)
}

func (l *udpLoop) tooLong(d *datagram) bool {
	return d.size > l.cfg.UDP.MaxDatagram || l.cfg.Proxy.Send != SendNone && d.size > l.cfg.MaxPayload(l.proxyHeader(d))
}
