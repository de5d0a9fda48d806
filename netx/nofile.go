package netx

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
)

// What things cost in descriptors.
const (
	// A UDP session is one socket to the upstream. Sessions in quarantine
	// count against the same cap.
	fdsPerSession = 1
	// A TCP connection is two sockets and, while the kernel splices, a pipe
	// for each direction.
	fdsPerConnection = 6
	// The built-in echo server holds the other end of a connection.
	fdsPerEchoConnection = fdsPerConnection + 1
	// Of an event loop: its listening socket and epoll, its eventfd, and what
	// reads the upstream sockets beside it.
	fdsPerLoop = 6
	// Kept free for connections that are accepted only to be turned away, for
	// those that change hands, for the admin server, resolver and log files.
	fdsReserve = 40
)

// loopCount is how many event loops a listener has: one for each core that
// this process may use.
func loopCount() int { return runtime.GOMAXPROCS(0) }

// planDescriptors raises the descriptor limit as far as it goes and fits the
// caps of the listeners into it. Caps that somebody wrote are kept or refused;
// those left at zero get their default, or a fair share of what there is.
func planDescriptors(listeners []ListenerConfig, log *slog.Logger) error {
	limit, used, ok := descriptors()
	if !ok {
		limit, used = 1<<30, 0
	}
	free := limit - used - fdsReserve
	return fitCaps(listeners, free, limit, log)
}

// fitCaps spreads free descriptors over the listeners.
func fitCaps(listeners []ListenerConfig, free, limit int, log *slog.Logger) error {
	var open []*ListenerConfig // with a default cap
	fixed, written := 0, 0
	for i := range listeners {
		l := &listeners[i]
		fixed += loopCount() * fdsPerLoop
		if n, _ := l.connCap(); *n == 0 {
			open = append(open, l)
		} else {
			written += *n * l.connCost()
		}
	}
	left := free - fixed - written
	if left < 0 && written > 0 {
		return fmt.Errorf("netx: the caps of sessions and connections need %d descriptors, the limit of %d leaves %d for them",
			written, limit, max(free-fixed, 0))
	}
	// Those that want least first, so that what they leave goes to the others.
	slices.SortStableFunc(open, func(a, b *ListenerConfig) int { return a.defaultCost() - b.defaultCost() })
	for i, l := range open {
		n, standard := l.connCap()
		*n = min(standard, left/(len(open)-i)/l.connCost())
		if *n < 1 {
			return fmt.Errorf("netx: the descriptor limit of %d is too low for %d listeners", limit, len(listeners))
		}
		left -= *n * l.connCost()
		if *n < standard {
			log.Warn("descriptor limit lowers a default cap", "listener", l.Name, "cap", *n, "default", standard, "limit", limit)
		}
	}
	return nil
}

// connCap points to the cap that counts descriptors, beside its default.
func (l *ListenerConfig) connCap() (n *int, standard int) {
	if l.Protocol == TCP {
		return &l.TCP.MaxConnections, DefaultMaxConnections
	}
	return &l.UDP.MaxSessions, DefaultMaxSessions
}

// connCost is what one more session or connection costs.
func (l *ListenerConfig) connCost() int {
	switch {
	case l.Protocol == UDP:
		return fdsPerSession
	case l.Upstream == Echo:
		return fdsPerEchoConnection
	}
	return fdsPerConnection
}

func (l *ListenerConfig) defaultCost() int {
	_, standard := l.connCap()
	return standard * l.connCost()
}
