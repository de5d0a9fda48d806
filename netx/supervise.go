package netx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// How long a supervisor waits before it starts an engine again: twice as long
// each time, and from the start again after one that lived.
const (
	restartFirst = 50 * time.Millisecond
	restartMost  = 2 * time.Second
	restartCalm  = 10 * time.Second
)

// errEngineEnded is what an engine that gave no reason ended with. gnet
// returns nil where accept runs out of descriptors.
var errEngineEnded = errors.New("netx: event engine ended by itself")

// A supervisor keeps one gnet engine running from start until stop: an engine
// that ends though nobody stopped it is started again on the same address.
type supervisor struct {
	address string // "udp://127.0.0.1:7000", with a real port
	handler gnet.EventHandler
	options []gnet.Option
	log     *slog.Logger

	restarted atomic.Int64
	quit      chan struct{} // closed by stop
	done      chan struct{} // closed when the last engine has ended
	stopOnce  sync.Once

	mu      sync.Mutex // guards what follows
	engine  gnet.Engine
	started bool
	booted  bool
	stopped bool
}

// newSupervisor adds what every engine of the gateway needs to the options.
func newSupervisor(address string, h gnet.EventHandler, log *slog.Logger, options ...gnet.Option) *supervisor {
	return &supervisor{
		address: address,
		handler: h,
		options: append([]gnet.Option{
			// The ticker's first tick is the only sign that the loops run.
			gnet.WithTicker(true),
			// Without it a restart fails while connections are in TIME_WAIT.
			gnet.WithReuseAddr(true),
			gnet.WithLogger(&gnetLog{log: log}),
		}, options...),
		log:  log,
		quit: make(chan struct{}),
		done: make(chan struct{}),
	}
}

// start returns when the engine's loops run, or with the reason why they don't.
func (s *supervisor) start() error {
	ready := make(chan struct{})
	failed := make(chan error, 1)
	s.mu.Lock()
	s.started = true
	s.mu.Unlock()
	go s.run(ready, failed)
	select {
	case <-ready:
		return nil
	case err := <-failed:
		return err
	}
}

// run keeps the engine running. The first run reports to ready or failed.
func (s *supervisor) run(ready chan struct{}, failed chan<- error) {
	defer close(s.done)
	up := &superviseHandler{EventHandler: s.handler, s: s, ready: ready}
	wait := restartFirst
	for {
		began := time.Now()
		err := gnet.Run(up, s.address, s.options...)
		if s.isStopped() {
			return
		}
		if err == nil {
			err = errEngineEnded
		}
		if !up.isReady() {
			failed <- err
			return
		}
		if time.Since(began) > restartCalm {
			wait = restartFirst
		}
		s.log.Warn("listener ended by itself, starting it again", "address", s.address, "error", err, "in", wait.String())
		select {
		case <-s.quit:
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, restartMost)
		s.restarted.Add(1)
	}
}

func (s *supervisor) restarts() int64 { return s.restarted.Load() }

// stop ends the engine and returns when it has ended. It must not be called
// from one of the engine's loops, nor beside start.
func (s *supervisor) stop() {
	s.stopOnce.Do(func() {
		close(s.quit)
		s.mu.Lock()
		s.stopped = true
		eng, started, booted := s.engine, s.started, s.booted
		s.mu.Unlock()
		if !started {
			close(s.done)
		}
		if booted {
			s.halt(eng)
		}
	})
	<-s.done
}

// halt asks an engine to end without waiting for it: Stop would look for the
// end only each half second, and run sees it at once.
func (s *supervisor) halt(eng gnet.Engine) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = eng.Stop(ctx)
}

func (s *supervisor) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// superviseHandler passes all events on to the real handler and tells its
// supervisor when an engine has its sockets and when its loops run.
type superviseHandler struct {
	gnet.EventHandler
	s     *supervisor
	once  sync.Once
	ready chan struct{}
}

func (h *superviseHandler) isReady() bool {
	select {
	case <-h.ready:
		return true
	default:
		return false
	}
}

// OnBoot runs when the sockets are bound and no loop runs yet.
func (h *superviseHandler) OnBoot(eng gnet.Engine) gnet.Action {
	h.s.mu.Lock()
	h.s.engine, h.s.booted = eng, true
	stopped := h.s.stopped
	h.s.mu.Unlock()
	if stopped {
		return gnet.Shutdown
	}
	return h.EventHandler.OnBoot(eng)
}

// OnTick of a handler that has nothing to do returns a zero delay, which gnet
// would take for "again at once".
func (h *superviseHandler) OnTick() (time.Duration, gnet.Action) {
	h.once.Do(func() { close(h.ready) })
	delay, action := h.EventHandler.OnTick()
	if delay <= 0 {
		delay = time.Hour
	}
	return delay, action
}

// gnetLog lets gnet write to our log, at most one line a second of each level.
type gnetLog struct {
	log         *slog.Logger
	warn, error logGate
}

func (l *gnetLog) Debugf(string, ...any) {}
func (l *gnetLog) Infof(string, ...any)  {}

func (l *gnetLog) Warnf(format string, args ...any) {
	if n, ok := l.warn.pass(); ok {
		l.log.Warn("gnet: "+fmt.Sprintf(format, args...), "suppressed", n)
	}
}

func (l *gnetLog) Errorf(format string, args ...any) {
	if n, ok := l.error.pass(); ok {
		l.log.Error("gnet: "+fmt.Sprintf(format, args...), "suppressed", n)
	}
}

func (l *gnetLog) Fatalf(format string, args ...any) { l.Errorf(format, args...) }
