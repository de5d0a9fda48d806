// Package peer starts the gateways that are measured: this project's and those
// that it is compared with, each with a configuration of its own for the same
// route, on the same core.
package peer

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/lab"
	"github.com/seed-ee4278a0/throttled/bench/internal/proc"
)

// A Kind is a gateway that can be started.
type Kind struct {
	Name string
	// write puts the configuration into a folder and returns the command.
	write func(l *lab.Lab, dir string, r Route) ([]string, error)
	needs need
}

// Needing is the kind where another program has to be there too.
func (k Kind) Needing(program, install string) Kind {
	k.needs = need{program: program, install: install}
	return k
}

// A Route is what goes through a gateway.
type Route struct {
	Network  string // udp or tcp
	Listen   netip.AddrPort
	Upstream netip.AddrPort
}

// A Gateway is running.
type Gateway struct {
	*proc.Process
	Route
}

// need is what has to be there for a kind, and the Debian package that brings it.
type need struct{ program, file, install string }

// ErrMissing is that of a kind whose program is not installed.
var ErrMissing = errors.New("not there")

// Start runs a gateway in front of an upstream and returns when it is bound to
// its port, alone.
func (k Kind) Start(l *lab.Lab, network string, upstream netip.AddrPort) (*Gateway, error) {
	if err := k.needs.check(); err != nil {
		return nil, fmt.Errorf("peer: %s: %w", k.Name, err)
	}
	listen, err := lab.FreePort(network)
	if err != nil {
		return nil, err
	}
	if s, err := proc.Bound(network, listen.Port()); err != nil || s.Bound > 0 {
		return nil, fmt.Errorf("peer: %s: %d sockets are bound to port %d already: %w", k.Name, s.Bound, listen.Port(), err)
	}
	dir, err := os.MkdirTemp(l.Dir, "gateway-")
	if err != nil {
		return nil, err
	}
	r := Route{Network: network, Listen: listen, Upstream: upstream}
	command, err := k.write(l, dir, r)
	if err != nil {
		return nil, fmt.Errorf("peer: %s: %w", k.Name, err)
	}
	p, err := proc.Start(k.Name, l.Core, command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	g := &Gateway{Process: p, Route: r}
	if err := p.Await(g.bound); err != nil {
		p.Stop()
		return nil, err
	}
	return g, nil
}

// A Set is of gateways that are measured in turn.
type Set []*Gateway

// StartAll starts the kinds in front of one upstream. Those that are not
// installed are left out, which missing is told.
func StartAll(l *lab.Lab, network string, upstream netip.AddrPort, missing func(error), kinds ...Kind) (s Set, err error) {
	for _, k := range kinds {
		g, err := k.Start(l, network, upstream)
		if errors.Is(err, ErrMissing) {
			missing(err)
			continue
		} else if err != nil {
			s.Stop()
			return nil, err
		}
		s = append(s, g)
	}
	return s, nil
}

// Stop ends them all.
func (s Set) Stop() {
	for _, g := range s {
		g.Stop()
	}
}

// bound is whether it has its port, alone. A gateway with several sockets on
// one core would be no different from a stray receiver.
func (g *Gateway) bound() bool {
	s, err := proc.Bound(g.Network, g.Listen.Port())
	return err == nil && s.Bound == 1
}

// Drops is how many datagrams the kernel has dropped at a UDP gateway's socket:
// its queue was full, or a filter said so.
func (g *Gateway) Drops() (uint64, error) {
	s, err := proc.Bound(g.Network, g.Listen.Port())
	return s.Drops, err
}

// Idle says whether everything that came to a UDP gateway's socket has been read.
func (g *Gateway) Idle() bool {
	s, err := proc.Bound(g.Network, g.Listen.Port())
	return err == nil && s.Queued == 0
}

// CPUOf measures the gateway's CPU time while f runs.
func (g *Gateway) CPUOf(f func() error) (time.Duration, error) {
	before, err := g.CPU()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := g.CPU()
	return after - before, err
}

func (n need) check() error {
	if n.program == "" {
		return nil
	}
	_, err := exec.LookPath(n.program)
	if n.file != "" && err == nil {
		_, err = os.Stat(n.file)
	}
	if err != nil {
		return fmt.Errorf("%w, apt-get install %s", ErrMissing, n.install)
	}
	return nil
}

// write is a file of a gateway.
func write(dir, name, text string) (path string, err error) {
	path = filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o644)
}
