// Package demo shows in ten seconds what throttled does: it starts a gateway
// with an echo server behind it, an honest client and a flooding one, and prints
// second by second who got how many answers.
package demo

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/serve"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// The two clients, and when the second one begins.
const (
	honestRate  = 10 // packets a second
	floodRate   = 2000
	floodAfter  = 2 * time.Second
	floodTick   = 10 * time.Millisecond
	lookEach    = 50 * time.Millisecond
	rowEach     = time.Second
	defaultTime = 10 * time.Second
)

var (
	honestAddr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	floodAddr  = netip.AddrFrom4([4]byte{127, 0, 0, 2})
)

// rule is tuned so that ten seconds show all of it: throttled for about a
// second, locked out for three, and again.
func rule() policy.Policy {
	return policy.Policy{
		Name:    "default",
		Packets: tokenbucket.Limit{Capacity: 64, RefillPerSecond: 32},
		Escalation: policy.Escalation{
			MaxSoftViolations: 5,
			Window:            8 * time.Second,
			Spacing:           300 * time.Millisecond,
			Lockout:           3 * time.Second,
		},
	}
}

// A demo is a running gateway with its two clients.
type demo struct {
	engine  *engine.Engine
	gateway *netx.Gateway
	honest  *client
	flood   *client
	screen  *Screen
}

// Run shows the demo on s until it is over or ctx ends.
func Run(ctx context.Context, s *Screen, log *slog.Logger) (err error) {
	d := &demo{screen: s}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.start(log); err != nil {
		return err
	}
	s.introduce(rule())
	d.watch(ctx)
	return s.conclude(d.now(), serve.Report{Report: d.engine.Report(), Listeners: d.gateway.Listeners()})
}

func (d *demo) start(log *slog.Logger) (err error) {
	d.engine, err = engine.New(engine.Config{Default: rule(), Load: engine.NoLoad, Logger: log})
	if err != nil {
		return err
	}
	d.gateway, err = netx.StartGateway(netx.GatewayConfig{
		Engine: d.engine,
		Listeners: []netx.ListenerConfig{{
			Name:     "demo",
			Protocol: netx.UDP,
			Listen:   netip.AddrPortFrom(honestAddr, 0),
			Upstream: netx.Echo,
			UDP:      netx.UDPOptions{MaxSessions: 16},
		}},
		Logger: log,
	})
	if err != nil {
		return err
	}
	to := d.gateway.Addrs()[0]
	if d.honest, err = dialFrom(honestAddr, to); err != nil {
		return err
	}
	d.flood, err = dialFrom(floodAddr, to)
	return err
}

func (d *demo) close() error {
	for _, c := range []*client{d.honest, d.flood} {
		if c != nil {
			c.close()
		}
	}
	var errs []error
	if d.gateway != nil {
		errs = append(errs, d.gateway.Close())
	}
	if d.engine != nil {
		errs = append(errs, d.engine.Close())
	}
	return errors.Join(errs...)
}

// watch lets the clients send until the last row, and shows what becomes of it.
func (d *demo) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looks, rows := time.NewTicker(lookEach), time.NewTicker(rowEach)
	defer looks.Stop()
	defer rows.Stop()
	floodStart := time.After(floodAfter)
	start := time.Now()
	d.honest.flow(ctx, 1, time.Second/honestRate)
	for left := defaultTime / rowEach; left > 0; {
		select {
		case <-ctx.Done():
			return
		case <-floodStart:
			d.screen.event(time.Since(start), "the flooder begins")
			d.flood.flow(ctx, int(floodRate*floodTick/time.Second), floodTick)
		case <-looks.C:
			d.screen.look(time.Since(start), d.now())
		case <-rows.C:
			d.screen.row(time.Since(start), d.now())
			left--
		}
	}
}

// A moment is everything that has been counted until then.
type moment struct {
	honestSent, honestAnswered int64
	floodSent, floodAnswered   int64
	throttled, lockedOut       int64         // datagrams of the flooder that were dropped
	honestDenied               int64         // datagrams of the honest client that were
	lock                       time.Duration // what is left of the flooder's lockout
}

func (d *demo) now() moment {
	m := moment{
		honestSent: d.honest.sent.Load(), honestAnswered: d.honest.answered.Load(),
		floodSent: d.flood.sent.Load(), floodAnswered: d.flood.answered.Load(),
	}
	dropped := d.gateway.Listeners()[0].Dropped
	m.throttled, m.lockedOut = dropped[policy.SoftThrottle.String()], dropped[policy.HardLockout.String()]
	if r, known := d.engine.Lookup(d.honest.addr()); known {
		m.honestDenied = r.Denied
	}
	if r, known := d.engine.Lookup(d.flood.addr()); known {
		m.lock = time.Duration(r.LockedForMs) * time.Millisecond
	}
	return m
}
