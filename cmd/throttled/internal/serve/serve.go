// Package serve is the life of a gateway process: it starts the engine, the
// listeners and the admin server of a configuration, writes report lines, obeys
// signals and takes everything down again in order.
package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/admin"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/history"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/metrics"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/state"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

// A process is a running gateway and what stands around it.
type process struct {
	config  atomic.Pointer[config.Config]  // what runs
	reread  func() (*config.Config, error) // nil: there is no file
	log     *slog.Logger
	engine  *engine.Engine
	gateway *netx.Gateway
	admin   *admin.Server     // nil = off
	history *history.Recorder // nil without the admin server
	state   *state.Keeper     // nil = none
	lines   *lines

	supervisor *supervisor

	reloading sync.Mutex // held while a configuration comes into force
	reloaded  atomic.Bool
	hangups   chan struct{} // SIGHUP
	obeyed    chan struct{} // closed when no SIGHUP is obeyed any more
	changed   chan struct{} // another configuration runs

	ctx       context.Context // ends with stop
	cancel    context.CancelFunc
	draining  atomic.Bool
	impatient bool       // of the loop: a signal has asked for the drain already
	drained   chan error // how the drain has ended
}

// Run serves the configuration until a signal ends it. A reload reads it again,
// unless that is nil. Report lines go to stdout unless the configuration names a
// file. The process is to end when Run returns: a signal that comes later does
// nothing, so that an impatient second one cannot turn a good end into a bad one.
func Run(c *config.Config, reread func() (*config.Config, error), stdout io.Writer, log *slog.Logger) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, watched...)
	ignoreBrokenPipe()
	p, early, err := startUnless(signals, c, reread, stdout, log)
	if p == nil {
		return err
	}
	p.ready()
	p.loop(signals, early)
	p.stopping()
	return p.stop()
}

// startUnless starts the process unless a signal that comes meanwhile is to end it,
// which it says with nil: a name of an upstream may take a while to be looked up.
// The process is to obey the early signals.
func startUnless(signals <-chan os.Signal, c *config.Config, reread func() (*config.Config, error), stdout io.Writer, log *slog.Logger) (p *process, early []os.Signal, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan struct{})
	go func() {
		defer close(started)
		p, err = start(ctx, c, reread, stdout, log)
	}()
	for {
		select {
		case <-started:
			if p != nil && ctx.Err() != nil {
				return nil, nil, p.stop()
			}
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return p, early, err
		case s := <-signals:
			switch meaning(s) {
			case toStop, toDrain:
				log.Info("stopping", "signal", s.String())
				cancel()
			default:
				early = append(early, s)
			}
		}
	}
}

// start brings everything up, or leaves nothing behind. It gives up when ctx ends.
func start(ctx context.Context, c *config.Config, reread func() (*config.Config, error), stdout io.Writer, log *slog.Logger) (_ *process, err error) {
	p := newProcess(c, reread, log)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	out, err := reportFile(c.Report.Path, stdout)
	if err != nil {
		return nil, err
	}
	p.lines = newLines(out, log)
	engineConfig := c.Engine
	engineConfig.Logger = log
	if p.engine, err = engine.New(engineConfig); err != nil {
		return nil, err
	}
	if err := errors.Join(p.engine.Exempt(c.Exempt...), p.engine.Deny(c.Deny...)); err != nil {
		return nil, err
	}
	if c.Admin.Listen != config.AdminOff {
		if p.admin, err = p.listenAdmin(c); err != nil {
			return nil, err
		}
	}
	if c.State.Path != "" { // before anybody is served, and after another gateway's address was noticed
		state.Load(c.State.Path, p.engine, log)
	}
	if p.gateway, err = p.startGateway(ctx, c); err != nil {
		return nil, err
	}
	if c.State.Path != "" {
		p.state = state.Start(c.State.Path, c.State.Interval, p.engine, log)
	}
	if p.admin != nil {
		p.history = history.Start(func() (float64, []netx.ListenerReport) {
			return p.engine.RefillRatio(), p.gateway.Listeners()
		})
	}
	p.announce(c)
	if p.admin != nil {
		p.admin.Serve() // only now, as it may be asked to reload
	}
	return p, nil
}

// newProcess is a process in which nothing is up.
func newProcess(c *config.Config, reread func() (*config.Config, error), log *slog.Logger) *process {
	p := &process{
		reread:     reread,
		log:        log,
		supervisor: newSupervisor(log),
		hangups:    make(chan struct{}, 1),
		obeyed:     make(chan struct{}),
		changed:    make(chan struct{}, 1),
		drained:    make(chan error, 1),
	}
	p.config.Store(c)
	p.reloaded.Store(true)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(p.obeyed)
		p.reloads()
	}()
	return p
}

func (p *process) startGateway(ctx context.Context, c *config.Config) (*netx.Gateway, error) {
	listeners, err := c.Gateway(p.engine)
	if err != nil {
		return nil, err
	}
	return netx.StartGatewayContext(ctx, netx.GatewayConfig{
		Engine: p.engine, Listeners: listeners, Logger: p.log, KernelDrop: c.KernelDrop,
	})
}

func (p *process) listenAdmin(c *config.Config) (*admin.Server, error) {
	return admin.Listen(admin.Config{
		Listen: c.Admin.Listen,
		Token:  func() string { return p.config.Load().Admin.Token },
		Report: func() any { return p.report() },
		Config: func() any { return p.config.Load().Tree() },
		Ready:  func() bool { return !p.draining.Load() },
		Reload: p.reload,
		Drain:  p.drain,
		Engine: p.engine,
		Save:   p.save,
		Handlers: map[string]http.Handler{
			"GET /metrics":    metrics.NewHandler(p.metrics(), p.log),
			"GET /v1/history": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.history.ServeHTTP(w, r) }),
		},
		Logger: p.log,
	})
}

// metrics is what a scrape reads. There are no scrapes before Serve.
func (p *process) metrics() metrics.Source {
	return metrics.Source{
		Listeners: func() []netx.ListenerReport { return p.gateway.Listeners() },
		Engine:    func() engine.Summary { return p.engine.Summary() },
		Restarts:  func() int64 { return p.gateway.Restarts() },
		Reloaded:  p.reloaded.Load,
	}
}

// save returns when what there is to remember is in the state file, if there is
// one.
func (p *process) save() error {
	if p.state == nil {
		return nil
	}
	return p.state.Save()
}

// announce logs what is served where; with port 0 this is where one learns it.
func (p *process) announce(c *config.Config) {
	for _, w := range c.Warnings {
		p.log.Warn("configuration", "warning", w)
	}
	for i, addr := range p.gateway.Addrs() {
		l := c.Listeners[i]
		p.log.Info("listening", "name", l.Name, "protocol", l.Protocol.String(), "listen", addr.String(),
			"upstream", l.Upstream, "policy", l.PolicyName)
	}
	if p.admin != nil {
		p.log.Info("admin server listening", "listen", p.admin.Addr())
	}
}

// patience is how long stop waits for a reload.
const patience = time.Second

// stop takes down what start has brought up, listeners first, so that the last
// report line counts everything, and everything in it has come to rest.
func (p *process) stop() error {
	var errs []error
	p.cancel()
	close(p.hangups)
	if p.gateway != nil {
		errs = append(errs, p.gateway.Close())
		p.lines.write(p.report())
	}
	select {
	case <-p.obeyed:
	case <-time.After(patience): // a file that it reads may hang
	}
	if p.draining.Load() {
		for range p.drained { // what the loop has not read
		}
	}
	if p.admin != nil {
		errs = append(errs, p.admin.Close())
	}
	if p.history != nil {
		p.history.Close()
	}
	if p.state != nil {
		p.state.Close()
	}
	if p.engine != nil {
		errs = append(errs, p.engine.Close())
	}
	if p.lines != nil {
		errs = append(errs, p.lines.close())
	}
	return errors.Join(errs...)
}
