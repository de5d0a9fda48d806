package netx

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/seed-ee4278a0/throttled/netx/proxyproto"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// A caller is a connection that has been accepted, and who it is from.
type caller struct {
	client   *net.TCPConn
	from     netip.AddrPort // the client, or a proxy that speaks for itself
	to       netip.AddrPort // where a PROXY header says that the client has sent to
	early    []byte         // what was read behind that header
	unproven bool           // must not begin with a header
	passed   bool           // a dry run has let it pass, and counted that
}

const (
	// headerRoom takes the headers that there are: those with TLVs may be longer.
	headerRoom = 256
	// headerSpare is how many proxies may be heard beyond what a listener holds,
	// where newcomers put out those who wait.
	headerSpare = 16
)

// identify hears a proxy say who its client is, and then decides on that client.
func (s *tcpServer) identify(c caller) {
	if reason, ok := s.hear(&c); !ok {
		s.turnAway(c.client, reason)
		return
	}
	s.relays.Go(func() {
		err := s.readHeader(&c)
		reason, ok := dropProxyHeader, false
		s.placing.Lock()
		switch {
		case s.draining.Load():
			reason = dropDraining
		case err == nil:
			reason, ok = s.admit(&c)
		}
		s.unheard.Add(-1) // it counts as a connection by now, or is none
		s.placing.Unlock()
		if reason == dropProxyHeader {
			s.logHeader(c.from, err)
		}
		if !ok {
			s.turnAway(c.client, reason)
		}
	})
}

// hear says whether a proxy may be heard. It is not limited for what it brings:
// only the lists apply to its own address. Meanwhile it takes the place of one who
// is served, or waits.
func (s *tcpServer) hear(c *caller) (dropReason, bool) {
	if s.draining.Load() {
		return dropDraining, false
	}
	if d, listed := s.engine.ListDecision(c.from.Addr()); listed && !d.Allowed {
		if reason, ok := s.refuse(c, d); ok {
			return reason, false
		}
	}
	s.placing.Lock()
	defer s.placing.Unlock()
	most, q := s.most.Load(), &s.cfg.TCP.Queue
	switch full := s.active() >= most+int64(q.Limit+s.cfg.headerSpare()); {
	case full && q.Limit > 0:
		s.logFull("queue.limit", q.Limit)
		return dropQueueFull, false
	case full:
		s.logFull("max_connections", most)
		return dropConnectionsFull, false
	}
	s.unheard.Add(1)
	return 0, true
}

func (l *ListenerConfig) headerSpare() int {
	if len(l.Proxy.AcceptFrom) > 0 && l.TCP.Queue.Limit > 0 && l.TCP.Queue.Order == limiter.NewestFirst {
		return headerSpare
	}
	return 0
}

// readHeader takes the PROXY header off a connection. It may read more, which it
// keeps.
func (s *tcpServer) readHeader(c *caller) error {
	_ = c.client.SetReadDeadline(time.Now().Add(s.cfg.Proxy.Timeout))
	stop := context.AfterFunc(s.taking, func() { _ = c.client.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b := make([]byte, 0, headerRoom)
	for {
		n, err := c.client.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		h, size, wrong := ParseProxyHeader(TCP, b)
		switch {
		case wrong == nil:
			c.early = b[size:]
			if h.Source.IsValid() {
				c.from, c.to = h.Source, h.Destination
			}
			if !stop() {
				return context.Canceled // the deadline may be on its way
			}
			return c.client.SetReadDeadline(time.Time{})
		case wrong != proxyproto.ErrIncomplete:
			return wrong
		case err != nil && len(b) > 0:
			return proxyproto.ErrIncomplete
		case err != nil:
			return err
		}
		b = slices.Grow(b, 1)
	}
}

// logHeader is silent about who has sent nothing at all: so some load balancers
// look whether anybody listens.
func (s *tcpServer) logHeader(from netip.AddrPort, err error) {
	if err == io.EOF || errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if n, ok := s.headerGate.pass(); ok {
		s.log.Warn("no PROXY header that is valid", "address", from.Addr(), "error", err, "suppressed", n)
	}
}

// announce sends the PROXY header of a connection, if it is to have one.
func (s *tcpServer) announce(c caller, upstream *net.TCPConn) error {
	if s.cfg.Proxy.Send == SendNone {
		return nil
	}
	h := proxyproto.Header{Source: c.from, Destination: c.to}
	if !c.to.IsValid() {
		h.Destination = addrPort(c.client.LocalAddr())
	}
	b := make([]byte, 0, proxyproto.MaxSizeWritten)
	if s.cfg.Proxy.Send == SendV1 {
		b = h.AppendV1(b)
	} else {
		b = h.AppendV2(b, proxyproto.Stream)
	}
	_, err := upstream.Write(b)
	return err
}

// prove reads the first bytes of a client that must not begin with a PROXY header,
// and no more than it takes to tell. They go on as they come: the client may wait
// for an answer to them, and what is missing its last byte is no header.
func (st *stream) prove() error {
	if st.begun == nil {
		st.begun = make([]byte, 0, proxyproto.SignatureSize)
	}
	n, err := st.src.Read(st.begun[len(st.begun):cap(st.begun)])
	if err != nil && err != io.EOF {
		return brokenRead{err}
	}
	st.begun = st.begun[:len(st.begun)+n]
	header, undecided := proxyproto.Begins(st.begun)
	if header {
		st.r.counted.Do(func() { st.r.s.drop(dropProxyHeader) })
		return errForged
	}
	if !undecided || err == io.EOF {
		st.unproven = false
		st.r.forwarded()
	}
	st.held = st.begun[len(st.begun)-n:]
	return err
}
