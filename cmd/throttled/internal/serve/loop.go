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

// loop writes report lines and obeys signals until it is time to stop.
func (p *process) loop(signals <-chan os.Signal) {
	reports, stopReports := every(p.every)
	defer stopReports()
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
		case <-waits:
			if p.drained != nil {
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
		p.log.Warn("this version cannot reload its configuration; restart it to read the file again", "signal", s.String())
	case toDrain:
		if p.drained != nil {
			p.log.Info("second signal, not waiting any longer", "signal", s.String())
			return true
		}
		p.drain()
	case toStop:
		p.log.Info("stopping", "signal", s.String())
		return true
	}
	return false
}

// drain lets the gateway come to an end in the background.
func (p *process) drain() {
	p.logWait("draining")
	if p.state != nil {
		p.state.Soon() // the wait may end with a SIGKILL
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.grace)
	p.drained, p.stopDrain = make(chan error, 1), cancel
	p.stopping()
	p.drains.Go(func() { p.drained <- p.gateway.Drain(ctx) })
}

// logWait logs what a drain waits for.
func (p *process) logWait(what string) {
	var sessions, connections int64
	for _, l := range p.gateway.Listeners() {
		sessions += l.SessionsActive
		connections += l.ConnectionsActive
	}
	p.log.Info(what, "sessions", sessions, "connections", connections, "grace", p.grace.String())
}

// every is a ticker that never ticks where the interval is 0.
func every(interval time.Duration) (ticks <-chan time.Time, stop func()) {
	if interval == 0 {
		return nil, func() {}
	}
	t := time.NewTicker(interval)
	return t.C, t.Stop
}
