package netx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx/kerneldrop"
)

// A ListenerReport is what a listener has counted. The keys of the maps are
// the reasons of drops. At rest Packets is Forwarded and all of Dropped.
type ListenerReport struct {
	Name              string
	Protocol          string
	Listen            string // the bound address
	Packets           int64  // datagrams, or connections
	Bytes             int64  // payload from clients, denied included
	Forwarded         int64
	Dropped           map[string]int64
	WouldDrop         map[string]int64
	SessionsActive    int64
	SessionsRejected  int64
	ConnectionsActive int64
	UpstreamErrors    int64

	// What was sent to clients is not part of the JSON, whose names are fixed.
	Replies    int64 `json:"-"` // datagrams; of a TCP listener 0
	ReplyBytes int64 `json:"-"` // payload
}

// server is one listener of a gateway, bound to its address and serving.
type server interface {
	start() error // binds and serves; on an error nothing is left behind
	addr() netip.AddrPort
	report() ListenerReport
	drain()        // no new sessions or connections from here on
	active() int64 // sessions or connections that are open
	close() error  // ends everything at once and waits for it; idempotent
}

// frame is what the servers of a gateway share.
type frame struct {
	engine     *engine.Engine
	log        *slog.Logger
	kernelDrop *kerneldrop.Table  // nil = off
	self       [TCP + 1]selfAddrs // the listen addresses of each protocol, complete before a server starts
	plain      bool               // UDP goes the plain path, also where there is a faster one
}

// A Gateway serves the listeners that StartGateway bound, until Close. Its
// methods may be called from several goroutines.
type Gateway struct {
	servers    []server
	locks      []*addrLock
	echo       *echoServer       // nil where no listener asks for it
	kernelDrop *kerneldrop.Table // nil = off
	draining   atomic.Bool
	closing    sync.Once
	closeErr   error
}

// StartGateway binds every listener and serves until Close. When it returns a
// nil error all listeners are bound; on an error nothing is left behind.
func StartGateway(cfg GatewayConfig) (*Gateway, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	listeners := make([]ListenerConfig, len(cfg.Listeners))
	for i, l := range cfg.Listeners {
		listeners[i] = l.withDefaults()
	}
	g := &Gateway{kernelDrop: openKernelDrop(cfg, log)}
	if err := planDescriptors(listeners, log); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	f := &frame{engine: cfg.Engine, log: log, kernelDrop: g.kernelDrop, plain: cfg.plainUDP}
	if err := g.start(listeners, f); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// start takes every address before the first server serves, so that a mistake
// in the last listener does not let traffic through the others.
func (g *Gateway) start(listeners []ListenerConfig, f *frame) error {
	for i := range listeners {
		l := &listeners[i]
		lock, err := lockAddr(l.Protocol, l.Listen)
		if err != nil {
			return fmt.Errorf("netx: listener %s: %w", l.Name, err)
		}
		g.locks = append(g.locks, lock)
		l.Listen = lock.addr
		f.self[l.Protocol].add(l.Listen)
		if err := g.resolveEcho(l); err != nil {
			return fmt.Errorf("netx: listener %s: %w", l.Name, err)
		}
	}
	for i, l := range listeners {
		s, err := newServer(l, f, g.locks[i])
		if err != nil {
			return fmt.Errorf("netx: listener %s: %w", l.Name, err)
		}
		g.servers = append(g.servers, s)
	}
	for i, s := range g.servers {
		if err := s.start(); err != nil {
			return fmt.Errorf("netx: listener %s: %w", listeners[i].Name, err)
		}
	}
	return nil
}

// newServer builds what serves a listener. The configuration is complete: the
// port is known, no option is zero that has a default, Upstream is host:port.
// The server calls lock.bound once its own sockets hold the address.
func newServer(cfg ListenerConfig, f *frame, lock *addrLock) (server, error) {
	if cfg.Protocol == TCP {
		return newTCPServer(cfg, f, lock)
	}
	return newUDPServer(cfg, f, lock)
}

// resolveEcho puts the address of the built-in echo server, which it starts
// for the first that asks, in the place of Echo.
func (g *Gateway) resolveEcho(l *ListenerConfig) (err error) {
	if l.Upstream != Echo {
		return nil
	}
	if g.echo == nil {
		if g.echo, err = startEcho(); err != nil {
			return err
		}
	}
	l.Upstream = g.echo.udpAddr().String()
	if l.Protocol == TCP {
		l.Upstream = g.echo.tcpAddr().String()
	}
	return nil
}

// Listeners reports, in the order of the configuration.
func (g *Gateway) Listeners() []ListenerReport {
	out := make([]ListenerReport, len(g.servers))
	for i, s := range g.servers {
		out[i] = s.report()
	}
	return out
}

// Addrs gives the bound addresses in the order of the configuration, with a
// real port where the configuration had port 0.
func (g *Gateway) Addrs() []netip.AddrPort {
	out := make([]netip.AddrPort, len(g.servers))
	for i, s := range g.servers {
		out[i] = s.addr()
	}
	return out
}

// Restarts counts listeners that ended by themselves and were started again.
// It is 0: nothing that the system answers ends a listener.
func (g *Gateway) Restarts() int64 { return 0 }

// drainPoll is how often Drain looks whether the last session has ended.
const drainPoll = 20 * time.Millisecond

// Drain takes no new sessions or connections and returns when the last one
// has ended, or with ctx's error. There is no way back but a new gateway.
func (g *Gateway) Drain(ctx context.Context) error {
	g.draining.Store(true)
	for _, s := range g.servers {
		s.drain()
	}
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for g.active() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

func (g *Gateway) active() (n int64) {
	for _, s := range g.servers {
		n += s.active()
	}
	return n
}

// Draining says whether Drain has been called.
func (g *Gateway) Draining() bool { return g.draining.Load() }

// Close ends everything at once: sessions, connections, listeners. It is
// idempotent and returns when all of it is gone.
func (g *Gateway) Close() error {
	g.closing.Do(func() {
		var (
			wg   sync.WaitGroup
			errs = make([]error, len(g.servers))
		)
		for i, s := range g.servers {
			wg.Go(func() { errs[i] = s.close() })
		}
		wg.Wait()
		if g.kernelDrop != nil {
			errs = append(errs, g.kernelDrop.Close())
		}
		if g.echo != nil {
			g.echo.close()
		}
		for _, l := range g.locks {
			l.release()
		}
		g.closeErr = errors.Join(errs...)
	})
	return g.closeErr
}
