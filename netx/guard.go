package netx

import (
	"github.com/panjf2000/gnet/v2"

	"github.com/seed-ee4278a0/throttled/engine"
)

// Guard puts a throttle in front of a gnet server: h sees only what the
// default policy of e lets through.
//
// A TCP connection is evaluated as one packet when it opens. A denied one is
// closed, and h never hears of it: neither OnOpen nor OnTraffic nor OnClose.
// A UDP datagram is evaluated with its payload when it arrives. A denied one
// is discarded whole, and OnTraffic is not called. Everything else reaches h
// unchanged.
//
// Where the default policy is a dry run everything is evaluated and reaches h,
// but for what comes from no IP address.
//
// An address that is no IP address (a Unix socket) is denied. Connections that
// the server itself opens to others through gnet look like those of clients
// and are evaluated too; Engine.Exempt frees the peers they go to.
//
// Guard adds no locks: h is called from where gnet would call it. The engine
// stays the caller's and must outlive the server. Once it is closed everything
// is denied.
func Guard(e *engine.Engine, h gnet.EventHandler) gnet.EventHandler {
	return &guard{EventHandler: h, engine: e}
}

type guard struct {
	gnet.EventHandler
	engine *engine.Engine
}

// turnedAway is the context of a connection that was denied. It lives from
// OnOpen to OnClose, and h has no part in either.
type turnedAway struct{}

func (g *guard) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if isDatagram(c.RemoteAddr()) {
		// A UDP socket that the server has connected: its datagrams count.
		return g.EventHandler.OnOpen(c)
	}
	if !connects(g.engine, addrPort(c.RemoteAddr())) {
		c.SetContext(turnedAway{})
		return nil, gnet.Close
	}
	return g.EventHandler.OnOpen(c)
}

func (g *guard) OnTraffic(c gnet.Conn) gnet.Action {
	remote := c.RemoteAddr()
	if isDatagram(remote) && !allowed(g.engine, addrPort(remote), c.InboundBuffered()) {
		_, _ = c.Discard(-1) // all of it: what stays would run into the next one
		return gnet.None
	}
	return g.EventHandler.OnTraffic(c)
}

func (g *guard) OnClose(c gnet.Conn, err error) gnet.Action {
	if _, denied := c.Context().(turnedAway); denied {
		return gnet.None
	}
	return g.EventHandler.OnClose(c, err)
}
