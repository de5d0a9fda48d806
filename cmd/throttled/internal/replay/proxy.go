package replay

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
)

const proxyHeader = "proxy_header"

// hears says whether a source has to send PROXY headers.
func (l *listener) hears(source netip.Addr) bool {
	return slices.ContainsFunc(l.Proxy.AcceptFrom, func(p netip.Prefix) bool { return p.Contains(source) })
}

// unwrap takes the PROXY header off a datagram, or notes that it has none that is
// valid, or one that is not its source's to send.
func (l *listener) unwrap(s *segment) {
	s.header = proxyproto.Header{Source: s.src, Destination: s.dst}
	if len(l.Proxy.AcceptFrom) == 0 {
		return
	}
	if s.heard = l.hears(s.src.Addr()); !s.heard {
		s.forged, _ = proxyproto.Begins(s.payload)
		return
	}
	h, n, err := netx.ParseProxyHeader(netx.UDP, s.payload)
	if err != nil {
		s.headless = true
		l.cut(err, len(s.payload), s.bytes)
		return
	}
	s.payload, s.bytes = s.payload[n:], s.bytes-n
	if h.Source.IsValid() {
		s.header = h
	}
}

// cut counts the headers that may have been complete, had more been captured.
func (l *listener) cut(err error, kept, bytes int) {
	if err == proxyproto.ErrIncomplete && kept < bytes {
		l.report.HeadersCut++
	}
}

// A beginning is that of a connection where a PROXY header has to be, or must not.
type beginning struct {
	listener *listener
	heard    bool  // it has to be
	since    int64 // the SYN
	bytes    int   // so far
	kept     []byte
}

// late says whether a header that has not come is none.
func (b *beginning) late(now int64) bool {
	return now-b.since > int64(cmp.Or(b.listener.Proxy.Timeout, netx.DefaultProxyTimeout))
}

// start opens a connection, unless its client is yet to be named.
func (c *connection) start(j judge, l *listener, now int64) {
	heard := l.hears(c.from.Addr())
	if len(l.Proxy.AcceptFrom) > 0 {
		c.beginning = &beginning{listener: l, heard: heard, since: now}
	}
	switch {
	case !heard:
		c.over = !j.open(l, c)
	case !j.lets(l, c):
		l.report.Packets++
		c.over = true
	}
}

// begin takes more bytes, and says how many are to be charged by now.
func (c *connection) begin(j judge, kept []byte, n int, now int64) int {
	b := c.beginning
	b.kept, b.bytes = append(b.kept, kept...), b.bytes+n
	if b.heard {
		return c.hear(j, now)
	}
	switch forged, undecided := proxyproto.Begins(b.kept); {
	case forged:
		c.over = true
		b.listener.report.Forwarded-- // which it was taken for
		b.listener.report.Dropped[proxyHeader]++
		return 0
	case !undecided || len(b.kept) < b.bytes:
		c.beginning = nil
	}
	return n
}

// hear reads the header, and then opens the connection.
func (c *connection) hear(j judge, now int64) int {
	b := c.beginning
	h, size, err := netx.ParseProxyHeader(netx.TCP, b.kept)
	switch {
	case err == proxyproto.ErrIncomplete && len(b.kept) == b.bytes && !b.late(now):
		return 0
	case err != nil || b.late(now):
		b.listener.cut(err, len(b.kept), b.bytes)
		c.end()
		return 0
	}
	if h.Source.IsValid() {
		c.from = h.Source
	}
	c.beginning = nil
	c.over = !j.open(b.listener, c)
	return b.bytes - size
}

// end ends a connection, also one whose header has not come.
func (c *connection) end() {
	if c == nil {
		return
	}
	if b := c.beginning; b != nil && b.heard && !c.over {
		b.listener.report.Packets++
		b.listener.report.Dropped[proxyHeader]++
	}
	c.over = true
}
