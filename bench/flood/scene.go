package main

import (
	"fmt"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/load"
	"github.com/seed-ee4278a0/throttled/bench/internal/peer"
)

// A scene is a gateway with its honest clients.
type scene struct {
	*peer.Gateway
	honest *load.Client
	firewall
	o options
}

// seen is what a scene has come to.
type seen struct {
	trips   *load.Result
	cpu     time.Duration // the gateway's
	flooded load.Flooded
}

// floodNet is the network of the addresses that flood, far from the honest ones.
const floodNet = 100

func newScene(g *peer.Gateway, o options) (*scene, error) {
	honest, err := load.NewClient(load.Config{Target: g.Listen, Sources: load.Sources{Addresses: o.honest}, Rate: o.trips})
	if err != nil {
		return nil, err
	}
	s := &scene{Gateway: g, honest: honest, o: o}
	if g.Name == nftName {
		s.firewall = firewall{o.flooders}
	}
	if err := s.warm(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// warm locks out who floods, and gives every honest client its session.
func (s *scene) warm() error {
	f, err := s.flood(0)
	if err != nil {
		return err
	}
	defer f.Close()
	want := uint64(s.o.flooders * 4 * s.o.budget().Capacity)
	for sent := uint64(0); sent < want; {
		r, err := f.Run(100*time.Millisecond, nil)
		if err != nil {
			return err
		}
		sent += r.Sent
	}
	_, err = s.play(200*time.Millisecond, 0)
	return err
}

func (s *scene) flood(rate int) (*load.Flood, error) {
	return load.NewFlood(s.Listen, load.Sources{Net: floodNet, Addresses: s.o.flooders}, float64(rate))
}

func (s *scene) close() { s.honest.Close() }

// play lets the honest clients make their round trips for so long, while the
// others flood at a rate, which may be 0. The flood begins before and ends after.
func (s *scene) play(d time.Duration, rate int) (r seen, err error) {
	if err := s.firewall.up(); err != nil {
		return r, err
	}
	defer s.firewall.down()
	stop, ended := make(chan struct{}), make(chan error, 1)
	if rate > 0 {
		f, err := s.flood(rate)
		if err != nil {
			return r, err
		}
		defer f.Close()
		go func() {
			var err error
			r.flooded, err = f.Run(time.Hour, stop)
			ended <- err
		}()
		time.Sleep(50 * time.Millisecond)
	} else {
		ended <- nil
	}
	r.cpu, err = s.CPUOf(func() (err error) { r.trips, err = s.honest.Run(d); return err })
	close(stop)
	if floodErr := <-ended; err == nil {
		err = floodErr
	}
	if err == nil && r.trips.Sent == 0 {
		err = fmt.Errorf("%s: nothing sent in %v", s.Name, d)
	}
	return r, err
}

// answered is the part of the honest requests that were, in percent.
func (r seen) answered() float64 { return 100 * float64(r.trips.Answered) / float64(r.trips.Sent) }

// ofCore is the gateway's CPU time in percent of a core.
func (r seen) ofCore() float64 { return 100 * r.cpu.Seconds() / r.trips.Elapsed.Seconds() }

// rate is that of the flood as it was, in thousands a second.
func (r seen) rate() float64 {
	return float64(r.flooded.Sent) / max(r.flooded.Elapsed.Seconds(), 1e-9) / 1000
}
