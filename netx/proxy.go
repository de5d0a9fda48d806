package netx

import (
	"cmp"
	"errors"
	"net/netip"
	"time"

	"github.com/gaissmai/bart"

	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
)

// SendProxy says which PROXY header goes to the upstream.
type SendProxy uint8

// The PROXY headers that a listener may send.
const (
	SendNone SendProxy = iota
	SendV1             // text, of a TCP listener alone
	SendV2             // binary; of a UDP listener before the payload of each datagram
)

// DefaultProxyTimeout is what a zero ProxyOptions.Timeout means.
const DefaultProxyTimeout = 3 * time.Second

// ProxyOptions say who the real client is behind a proxy that speaks the PROXY
// protocol, and tell the upstream.
type ProxyOptions struct {
	// AcceptFrom are the proxies. Each of their connections must begin with a
	// header of version 1 or 2, each of their datagrams with one of version 2. The
	// client that it names is who is limited, counted and reported; a proxy that
	// names nobody (LOCAL, UNKNOWN) speaks for itself. What has no header, a broken
	// one, or one with a client that is a Bogon is dropped. Of all other sources
	// what begins with a header is dropped. Empty = headers are payload.
	AcceptFrom []netip.Prefix
	// Timeout is how long a TCP connection may take for its header. 0 = 3 s.
	Timeout time.Duration
	// Send puts a header with the client, and the address that it has sent to,
	// before what goes to the upstream, which must not be Echo.
	Send SendProxy
}

func (l *ListenerConfig) checkProxy(m *mistakes) {
	o := &l.Proxy
	for _, p := range o.AcceptFrom {
		if !p.IsValid() {
			m.add("Proxy.AcceptFrom: %v is not a prefix", p)
		}
	}
	m.negative("Proxy.Timeout", int64(o.Timeout))
	switch {
	case o.Send > SendV2:
		m.add("Proxy.Send: %d is none of SendNone, SendV1 and SendV2", o.Send)
	case o.Send == SendV1 && l.Protocol == UDP:
		m.add("Proxy.Send: SendV1 on a udp listener; version 1 is for TCP alone")
	case o.Send != SendNone && l.Upstream == Echo:
		m.add("Proxy.Send: the upstream is the built-in echo, which would send the header back")
	}
}

// proxies are the sources that must send a header; nil where there are none.
type proxies struct{ prefixes bart.Lite }

func newProxies(from []netip.Prefix) *proxies {
	if len(from) == 0 {
		return nil
	}
	p := new(proxies)
	for _, prefix := range from {
		if a := prefix.Addr(); a.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
		}
		p.prefixes.Insert(prefix)
	}
	return p
}

func (p *proxies) has(a netip.Addr) bool { return p.prefixes.Contains(a.Unmap().WithZone("")) }

// errNoClient refuses a header that names nobody who could have sent anything.
var errNoClient = errors.New("netx: the PROXY header names a client that nothing can be sent to")

// ParseProxyHeader reads the header that b begins with as a listener does, and
// says how long it is. The header is zero where the proxy speaks for itself. The
// error is proxyproto.ErrIncomplete where more bytes may complete it.
func ParseProxyHeader(p Protocol, b []byte) (h proxyproto.Header, n int, err error) {
	h, n, err = proxyproto.Parse(b, transportOf(p))
	if h.Source.IsValid() && Bogon(h.Source) {
		return proxyproto.Header{}, 0, errNoClient
	}
	return h, n, err
}

// MaxPayload is the longest payload of a UDP listener that the header leaves room
// for, where one is sent.
func (l *ListenerConfig) MaxPayload(h proxyproto.Header) int {
	most := cmp.Or(l.UDP.MaxDatagram, DefaultMaxDatagram)
	if l.Proxy.Send != SendNone {
		most = min(most, MaxDatagram-h.SizeV2())
	}
	return most
}

func transportOf(p Protocol) proxyproto.Transport {
	if p == UDP {
		return proxyproto.Datagram
	}
	return proxyproto.Stream
}
