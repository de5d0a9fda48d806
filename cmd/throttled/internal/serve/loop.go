package serve

import (
	"context"
	"os"
	"time"
)

// progress is how often a drain says in the log what it still waits for.
const progress = 5 * time.Second

// What a signal asks for.
type request uint8

const (
	toStop   request = iota // end at once
	toDrain                 // end when the last session has
	toReport                // write a report line
	toReload                // read the configuration again
)

// loop writes report lines and obeys signals, the early ones first, until it is
// time to stop.
func (p *process) loop(signals <-chan os.Signal, early []os.Signal) {
	for _, s := range early {
		p.obey(s)
	}
	interval := p.config.Load().Report.Every
	reports, stopReports := every(interval)
	defer func() { stopReports() }()
	waits, stopWaits := every(progress)
	defer stopWaits()
	signs, stopSigns := every(p.supervisor.alive)
	defer stopSigns()
	for {
		select {
		case <-signs:
			p.isAlive()
		case <-reports:
			p.lines.write(p.report())
		case <-p.changed:
			if now := p.config.Load().Report.Every; now != interval {
				stopReports()
				interval = now
				reports, stopReports = every(interval)
			}
		case <-waits:
			if p.draining.Load() {
				p.logWait("still draining")
			}
		case err := <-p.drained:
			if err != nil {
				p.logWait("grace is over")
				return
			}
			p.log.Info("drained")
			return
		case s := <-signals:
			if p.obey(s) {
				return
			}
		}
	}
}

// obey does what a signal asks for and says whether it is time to stop.
func (p *process) obey(s os.Signal) bool {
	switch meaning(s) {
	case toReport:
		p.lines.write(p.report())
	case toReload:
		select {
		case p.hangups <- struct{}{}:
		default:
		}
	case toDrain:
		if p.impatient {
			p.log.Info("second signal, not waiting any longer", "signal", s.String())
			return true
		}
		p.impatient = true
		p.drain()
	case toStop:
		p.log.Info("stopping", "signal", s.String())
		return true
	}
	return false
}

// drain lets the gateway come to an end in the background, within the grace,
// which it returns. Calling it again does nothing.
func (p *process) drain() (grace time.Duration) {
	grace = p.config.Load().Grace
	if p.draining.Swap(true) {
		return grace
	}
	p.logWait("draining")
	if p.state != nil {
		p.state.Soon() // the wait may end with a SIGKILL
	}
	p.stopping()
	go func() {
		defer close(p.drained)
		ctx, cancel := context.WithTimeout(p.ctx, grace)
		defer cancel()
		p.drained <- p.gateway.Drain(ctx)
	}()
	return grace
}

// logWait logs what a drain waits for.
func (p *process) logWait(what string) {
	sessions, connections := p.gateway.Open()
	p.log.Info(what, "sessions", sessions, "connections", connections, "grace", p.config.Load().Grace.String())
}

// every is a ticker that never ticks where the interval is 0.
func every(interval time.Duration) (ticks <-chan time.Time, stop func()) {
	if interval == 0 {
		return nil, func() {}
	}
	t := time.NewTicker(interval)
	return t.C, t.Stop
}
