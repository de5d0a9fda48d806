package netx

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"
)

// ErrDraining is what Reload answers once Drain has been called.
var ErrDraining = errors.New("netx: the gateway is draining")

// errClosed is what Reload answers after Close.
var errClosed = fmt.Errorf("netx: gateway: %w", net.ErrClosed)

// A served is a listener that is served, or is about to be.
type served struct {
	want     ListenerConfig // what was asked for, with defaults
	cfg      ListenerConfig // want with a real port, a cap, and an address for Echo
	upstream netip.AddrPort // zero where TCP looks a name up
	before   *served        // until it serves: whose address it takes over; nil = nobody's
	lock     *addrLock      // nil until it has the address
	server   server         // nil until it is built
	most     int            // sessions or connections
	history  *history
}

// Reload makes these listeners the ones that are served. A listener that is as
// it was, by name and by what it does, is not touched: its sessions, connections
// and counters stay. One that is new is bound. One that is no longer there lets go
// of its address at once: its UDP sessions end, its TCP connections go on to
// their end, but no longer than the grace. One that has changed is replaced,
// which means all of that; where its address is that of one before it, it takes
// the socket over, so that nothing that waits there is lost.
//
// On an error nothing has changed, and the error names the listener. It is
// ErrDraining after Drain, and matches net.ErrClosed after Close. Calls at the
// same time follow one another.
//
// The caps of a listener that has replaced another one are for its own
// connections; those that the other one still has come on top.
//
// The upstream of a UDP listener that stays is not looked up again. Where the
// descriptor limit is too low for the default caps, those that have them share
// what there is, old and new.
func (g *Gateway) Reload(listeners []ListenerConfig, grace time.Duration) error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	if err := (GatewayConfig{Engine: g.engine, Listeners: listeners}).validate(); err != nil {
		return err
	}
	if grace < 0 {
		return fmt.Errorf("netx: grace: %v is negative", grace)
	}
	return g.change(listeners, grace)
}

// A change is the way from the listeners that are to those that are wanted.
type change struct {
	*Gateway
	now   []*served
	wants []ListenerConfig
	next  []*served           // of wants
	fresh []*served           // of next, those that are not of now
	caps  []int               // of next
	own   *[TCP + 1]selfAddrs // the listen addresses of next
}

func (g *Gateway) change(listeners []ListenerConfig, grace time.Duration) error {
	c := &change{Gateway: g, now: *g.listeners.Load()}
	if err := c.compare(listeners); err != nil { // may look names up, so it holds up nobody
		if g.ctx.Err() != nil {
			return errClosed
		}
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ctx.Err() != nil:
		return errClosed
	case g.draining.Load():
		return ErrDraining
	}
	if err := c.prepare(); err != nil {
		return errors.Join(err, c.undo())
	}
	c.commit(grace)
	return nil
}

// each calls f for listeners until one fails, which the error names.
func each(listeners []*served, f func(*served) error) error {
	for _, l := range listeners {
		if err := f(l); err != nil {
			return fmt.Errorf("netx: listener %s: %w", l.want.Name, err)
		}
	}
	return nil
}

// compare finds out who stays, who comes, and whose address who takes over.
func (c *change) compare(listeners []ListenerConfig) error {
	for _, want := range listeners {
		want = want.withDefaults()
		c.wants = append(c.wants, want)
		i := slices.IndexFunc(c.now, func(l *served) bool { return reflect.DeepEqual(l.want.effect(), want.effect()) })
		if i >= 0 {
			c.next = append(c.next, c.now[i])
			continue
		}
		l := &served{want: want, cfg: want}
		c.next, c.fresh = append(c.next, l), append(c.fresh, l)
	}
	free := slices.DeleteFunc(slices.Clone(c.now), func(old *served) bool { return !c.leaves(old) })
	for _, l := range c.fresh {
		if i := slices.IndexFunc(free, l.follows); i >= 0 {
			l.before = free[i]
			free = slices.Delete(free, i, i+1)
		}
	}
	return c.lookUp()
}

func (c *change) leaves(l *served) bool { return !slices.Contains(c.next, l) }

// follows says whether l wants the address that another listener has.
func (l *served) follows(old *served) bool {
	if l.want.Protocol != old.want.Protocol {
		return false
	}
	if l.want.Listen.Port() == 0 { // any will do, so the same one
		return l.want.Listen == old.want.Listen && l.want.Name == old.want.Name
	}
	return l.want.Listen == old.cfg.Listen
}

// prepare does all that can fail, up to the point where the new servers only
// have to begin. It takes every address before the first server serves, so that
// a mistake in the last listener does not let traffic through the others.
func (c *change) prepare() error {
	if c.dropMode != KernelDropOff && c.kernelDrop == nil && slices.ContainsFunc(c.fresh, isFiltered) {
		c.kernelDrop = openKernelDrop(&c.frame)
	}
	if err := c.planDescriptors(); err != nil {
		return err
	}
	if err := each(c.fresh, c.takeAddr); err != nil {
		return err
	}
	c.own = new([TCP + 1]selfAddrs)
	for _, l := range c.next {
		c.own[l.cfg.Protocol].add(l.cfg.Listen)
	}
	err := each(c.next, func(l *served) error {
		if c.own[l.cfg.Protocol].reaches(l.upstream) {
			return errCircle(l.want.Upstream)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return each(c.fresh, c.bind)
}

func isFiltered(l *served) bool { return l.want.filtered() }

// planDescriptors gives the listeners their caps; those that stay get theirs in
// commit. Connections of listeners that go are not counted, as they are not for
// long.
func (c *change) planDescriptors() error {
	if len(c.now) == 0 {
		_, c.used, _ = descriptors()
	}
	plan := slices.Clone(c.wants)
	if err := planDescriptors(plan, c.used, c.lowered); err != nil {
		return err
	}
	for i, l := range c.next {
		if l.server == nil {
			l.cfg = plan[i]
		}
		c.caps = append(c.caps, *plan[i].connCap())
	}
	return nil
}

// lowered warns of a cap below its default, unless the listener has had it before.
func (c *change) lowered(l *ListenerConfig, limit int) {
	most := *l.connCap()
	if slices.ContainsFunc(c.now, func(old *served) bool { return old.want.sameSeries(l) && old.most == most }) {
		return
	}
	c.log.Warn("the descriptor limit (ulimit -n) is too low for a default: raise it, or write the cap that is enough",
		"listener", l.Name, "key", l.capKey(), "value", most, "default", l.standardCap(), "limit", limit)
}

func (c *change) takeAddr(l *served) (err error) {
	if l.before != nil {
		l.lock = l.before.lock
	} else {
		overlaps := func(old *served) bool {
			return c.leaves(old) && old.cfg.Protocol == l.cfg.Protocol && overlap(old.cfg.Listen, l.cfg.Listen)
		}
		l.lock, err = lockAddr(l.cfg.Protocol, l.cfg.Listen, slices.ContainsFunc(c.now, overlaps))
		if err != nil {
			return err
		}
	}
	l.cfg.Listen = l.lock.addr
	return c.resolveEcho(l)
}

// resolveEcho puts the address of the built-in echo server, which it starts
// for the first that asks, in the place of Echo.
func (g *Gateway) resolveEcho(l *served) (err error) {
	if l.want.Upstream != Echo {
		return nil
	}
	if g.echo == nil {
		if g.echo, err = startEcho(); err != nil {
			return err
		}
	}
	l.upstream = g.echo.udpAddr()
	if l.want.Protocol == TCP {
		l.upstream = g.echo.tcpAddr()
	}
	l.cfg.Upstream = l.upstream.String()
	return nil
}

// bind builds what serves a listener, whose configuration is complete by now.
func (c *change) bind(l *served) (err error) {
	if l.cfg.Protocol == UDP {
		l.server = newUDPServer(l.cfg, l.upstream, &c.frame, l.lock)
	} else if l.server, err = newTCPServer(l.cfg, &c.frame, l.lock); err != nil {
		return err
	}
	if l.before != nil {
		return l.server.bind(l.before.server)
	}
	return l.server.bind(nil)
}

// undo leaves nothing of what prepare has done.
func (c *change) undo() error {
	var errs []error
	for _, l := range c.fresh {
		if l.server != nil {
			errs = append(errs, l.server.close())
		}
		if l.lock != nil && l.before == nil {
			l.lock.release()
		}
	}
	return errors.Join(errs...)
}

// commit cannot fail.
func (c *change) commit(grace time.Duration) {
	c.logChanges()
	c.self.now.Store(c.own)
	for i, l := range c.next {
		l.want, l.most = c.wants[i], c.caps[i]
		l.server.setCap(l.most)
	}
	taken := map[*served]bool{}
	for _, l := range c.fresh {
		if l.before != nil {
			l.before.server.retire()
			taken[l.before] = true
			l.before = nil
		}
		l.history = c.historyOf(l)
		l.history.begin(l.server, l.want.Policy)
	}
	next := c.next // and not the rest of c with it
	c.listeners.Store(&next)
	for _, l := range c.fresh {
		l.server.begin()
	}
	for _, l := range c.now {
		if !c.leaves(l) {
			continue
		}
		l.server.retire()
		if !taken[l] {
			l.lock.release()
		}
		c.retired = append(c.retired, l)
		c.farewells.Go(func() { c.Gateway.farewell(l, grace) })
	}
}

// historyOf is the history that a new listener goes on with.
func (c *change) historyOf(l *served) *history {
	same := func(old *served) bool { return old.want.sameSeries(&l.want) }
	if i := slices.IndexFunc(c.now, same); i >= 0 && c.leaves(c.now[i]) {
		return c.now[i].history
	}
	return newHistory()
}

func (l *ListenerConfig) sameSeries(o *ListenerConfig) bool {
	return l.Name == o.Name && l.Protocol == o.Protocol
}

// farewell closes a server that has retired once nobody needs it any more, or
// when the grace is over.
func (g *Gateway) farewell(l *served, grace time.Duration) {
	over := time.NewTimer(grace)
	defer over.Stop()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for wait := true; wait && l.server.busy(); {
		select {
		case <-tick.C:
		case <-over.C:
			wait = false
		case <-g.ctx.Done():
			wait = false
		}
	}
	if err := l.server.close(); err != nil {
		g.log.Warn("a listener that is gone", "listener", l.want.Name, "error", err)
	}
	l.history.end(l.server)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.retired = slices.DeleteFunc(g.retired, func(o *served) bool { return o == l })
}

func (c *change) logChanges() {
	if len(c.now) == 0 {
		return // whoever starts a gateway knows what he starts
	}
	named := func(name string) func(*served) bool {
		return func(l *served) bool { return l.want.Name == name }
	}
	for _, l := range c.fresh {
		what := "listener added"
		if slices.ContainsFunc(c.now, named(l.want.Name)) {
			what = "listener replaced"
		}
		c.log.Info(what, "listener", l.want.Name, "protocol", l.want.Protocol.String(),
			"listen", l.cfg.Listen.String(), "upstream", l.want.Upstream)
	}
	for _, l := range c.now {
		if !slices.ContainsFunc(c.next, named(l.want.Name)) {
			c.log.Info("listener removed", "listener", l.want.Name, "protocol", l.want.Protocol.String(),
				"listen", l.cfg.Listen.String(), "connections", l.server.active())
		}
	}
}
