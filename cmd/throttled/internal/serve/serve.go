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
	grace   time.Duration
	every   time.Duration
	log     *slog.Logger
	engine  *engine.Engine
	gateway *netx.Gateway
	admin   *admin.Server     // nil = off
	history *history.Recorder // nil without the admin server
	state   *state.Keeper     // nil = none
	lines   *lines

	supervisor *supervisor

	drains    sync.WaitGroup
	drained   chan error // the end of the drain; nil before SIGTERM
	stopDrain context.CancelFunc
}

// Run serves the configuration until a signal ends it. Report lines go to
// stdout unless the configuration names a file. The process is to end when Run
// returns: a signal that comes later does nothing, so that an impatient second
// one cannot turn a good end into a bad one.
func Run(c *config.Config, stdout io.Writer, log *slog.Logger) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, watched...)
	ignoreBrokenPipe()
	p, err := start(c, stdout, log)
	if err != nil {
		return err
	}
	p.ready()
	p.loop(signals)
	p.stopping()
	return p.stop()
}

// start brings everything up, or leaves nothing behind.
func start(c *config.Config, stdout io.Writer, log *slog.Logger) (_ *process, err error) {
	p := &process{grace: c.Grace, every: c.Report.Every, log: log, supervisor: newSupervisor(log)}
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
	if p.gateway, err = p.startGateway(c); err != nil {
		return nil, err
	}
	if c.State.Path != "" {
		p.state = state.Start(c.State.Path, c.State.Interval, p.engine, log)
	}
	if p.admin != nil {
		p.history = history.Start(func() (float64, []netx.ListenerReport) {
			return p.engine.RefillRatio(), p.gateway.Listeners()
		})
		p.admin.Serve()
	}
	p.announce(c)
	return p, nil
}

func (p *process) startGateway(c *config.Config) (*netx.Gateway, error) {
	listeners, err := c.Gateway(p.engine)
	if err != nil {
		return nil, err
	}
	return netx.StartGateway(netx.GatewayConfig{
		Engine: p.engine, Listeners: listeners, Logger: p.log, KernelDrop: c.KernelDrop,
	})
}

func (p *process) listenAdmin(c *config.Config) (*admin.Server, error) {
	return admin.Listen(admin.Config{
		Listen: c.Admin.Listen,
		Token:  c.Admin.Token,
		Report: func() any { return p.report() },
		Config: c.Tree,
		Ready:  func() bool { return !p.gateway.Draining() },
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
		Reloaded:  func() bool { return true }, // the only one there is
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

// stop takes down what start has brought up, listeners first, so that the last
// report line counts everything, and everything in it has come to rest.
func (p *process) stop() error {
	var errs []error
	if p.gateway != nil {
		errs = append(errs, p.gateway.Close())
		p.lines.write(p.report())
	}
	if p.drained != nil {
		p.stopDrain()
		p.drains.Wait()
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
