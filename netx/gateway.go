package netx

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
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
	Replies           int64 `json:"-"` // datagrams; of a TCP listener 0
	ReplyBytes        int64 `json:"-"` // payload
	RepliesSuppressed int64 `json:"-"` // datagrams that were not sent, for UDPOptions.MaxReplyRatio

	// ReceiveBufferDropped are datagrams that the kernel dropped before they were
	// read, as the receive buffer was full or a checksum wrong. They are not in
	// Packets. It is 0 for TCP and on systems other than Linux.
	ReceiveBufferDropped int64 `json:"-"`
}

// server is one listener of a gateway.
type server interface {
	// bind takes the address, or a part in the sockets of the server before it.
	// Nothing is read before begin, which is called once that one has retired.
	bind(before server) error
	begin()
	report() ListenerReport
	setCap(n int)           // the most sessions or connections from here on
	charge(engine.PolicyID) // for connections that outlive their listener
	drain()                 // no new sessions or connections from here on
	active() int64          // sessions or connections that are open
	retire()                // lets go of the address; UDP sessions end, TCP connections go on
	busy() bool             // close would cut something short
	close() error           // ends everything at once and waits for it; idempotent
}

// frame is what the servers of a gateway share.
type frame struct {
	engine     *engine.Engine
	log        *slog.Logger
	kernelDrop *kerneldrop.Table // nil = off
	self       selfSet           // the listen addresses
	plain      bool              // UDP goes the plain path, also where there is a faster one
}

// A Gateway serves the listeners that StartGateway bound or the last Reload
// left, until Close. Its methods may be called from several goroutines.
type Gateway struct {
	frame
	dropMode  KernelDrop
	used      int        // descriptors that were open before the first listener
	reloading sync.Mutex // held by Reload from end to end
	draining  atomic.Bool
	listeners atomic.Pointer[[]*served] // in the order of the configuration

	mu        sync.Mutex // guards what follows, and changes of listeners
	retired   []*served
	echo      *echoServer     // nil where no listener has asked for it
	ctx       context.Context // ends with Close
	quit      context.CancelFunc
	farewells sync.WaitGroup
	closing   sync.Once
	closeErr  error
}

// StartGateway binds every listener and serves until Close. When it returns a
// nil error all listeners are bound; on an error nothing is left behind.
func StartGateway(cfg GatewayConfig) (*Gateway, error) {
	return StartGatewayContext(context.Background(), cfg)
}

// StartGatewayContext is StartGateway that gives up, also in the middle of looking
// up an upstream, when ctx ends before it returns; the error is ctx's cause.
func StartGatewayContext(ctx context.Context, cfg GatewayConfig) (*Gateway, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{
		frame:    frame{engine: cfg.Engine, log: log, plain: cfg.plainUDP},
		dropMode: cfg.KernelDrop,
	}
	g.ctx, g.quit = context.WithCancel(context.Background())
	g.listeners.Store(new([]*served))
	started := context.AfterFunc(ctx, g.quit)
	err := g.change(cfg.Listeners, 0)
	if !started() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Listeners reports, in the order of the configuration. What a listener has
// counted goes on where a Reload puts another one of the same name and protocol
// into its place.
func (g *Gateway) Listeners() []ListenerReport {
	listeners := *g.listeners.Load()
	out := make([]ListenerReport, len(listeners))
	for i, l := range listeners {
		out[i] = l.history.report()
	}
	return out
}

// Addrs gives the bound addresses in the order of the configuration, with a
// real port where the configuration had port 0.
func (g *Gateway) Addrs() []netip.AddrPort {
	listeners := *g.listeners.Load()
	out := make([]netip.AddrPort, len(listeners))
	for i, l := range listeners {
		out[i] = l.cfg.Listen
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
	g.draining.Store(true) // no listener comes from here on
	for _, l := range g.all() {
		l.server.drain()
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

// all are the listeners, and those that no longer are and have not ended.
func (g *Gateway) all() []*served {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Concat(*g.listeners.Load(), g.retired)
}

// Open counts what a drain waits for: sessions and connections, those of
// listeners that are gone too, and connections that wait for a place.
func (g *Gateway) Open() (sessions, connections int64) {
	for _, l := range g.all() {
		if l.cfg.Protocol == UDP {
			sessions += l.server.active()
		} else {
			connections += l.server.active()
		}
	}
	return sessions, connections
}

func (g *Gateway) active() int64 {
	sessions, connections := g.Open()
	return sessions + connections
}

// Draining says whether Drain has been called.
func (g *Gateway) Draining() bool { return g.draining.Load() }

// Close ends everything at once: sessions, connections, listeners. It is
// idempotent and returns when all of it is gone.
func (g *Gateway) Close() error {
	g.closing.Do(func() {
		g.mu.Lock() // not in the middle of a Reload
		g.quit()
		g.mu.Unlock()
		var (
			wg   sync.WaitGroup
			all  = g.all()
			errs = make([]error, len(all))
		)
		for i, l := range all {
			wg.Go(func() { errs[i] = l.server.close() })
		}
		wg.Wait()
		g.farewells.Wait()
		if g.kernelDrop != nil {
			errs = append(errs, g.kernelDrop.Close())
		}
		if g.echo != nil {
			g.echo.close()
		}
		for _, l := range *g.listeners.Load() {
			l.lock.release()
		}
		g.closeErr = errors.Join(errs...)
	})
	return g.closeErr
}
