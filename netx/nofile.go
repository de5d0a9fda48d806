package netx

import (
	"fmt"
	"runtime"
	"slices"
)

// What things cost in descriptors.
const (
	// A UDP session is one socket to the upstream, and each quarantineShare of
	// them may leave one more in quarantine.
	fdsPerSession = 1
	// A TCP connection is two sockets. The pipes that the kernel splices through
	// are the listener's: see pipeCount.
	fdsPerConnection = 2
	fdsPerPipe       = 2
	// The built-in echo server holds the other end of a connection.
	fdsPerEchoConnection = fdsPerConnection + 1
	// A connection that waits in the queue has no upstream yet.
	fdsPerWaiter = 1
	// Of a UDP loop: its socket and epoll and one socket in quarantine; and the
	// two of the listener's filter in the kernel.
	fdsPerLoop = 5
	// Kept free for connections that are accepted only to be turned away, for
	// those that change hands, for the admin server, resolver and log files.
	fdsReserve = 40
)

// quarantineShare bounds the sockets of ended sessions that are kept for a
// while: for each so many sessions of the cap, one.
const quarantineShare = 4

// loopCount is how many event loops a listener has: one for each core that
// this process may use.
func loopCount() int { return runtime.GOMAXPROCS(0) }

// pipeCount is how many pipes a TCP listener may have: one for each thread that
// runs, and as many again for those that the system has taken the core from.
func pipeCount() int { return 2 * loopCount() }

// planDescriptors raises the descriptor limit as far as it goes and fits the
// caps of the listeners into it. Caps that somebody wrote are kept or refused;
// those left at zero get their default, or a fair share of what there is.
//
// used is how many descriptors are open beside those of the listeners; lowered
// hears of defaults that do not fit into the limit.
func planDescriptors(listeners []ListenerConfig, used int, lowered func(l *ListenerConfig, limit int)) error {
	limit, _, ok := descriptors()
	if !ok {
		limit, used = 1<<30, 0
	}
	free := limit - used - fdsReserve
	return fitCaps(listeners, free, limit, lowered)
}

// fitCaps spreads free descriptors over the listeners.
func fitCaps(listeners []ListenerConfig, free, limit int, lowered func(l *ListenerConfig, limit int)) error {
	var open []*ListenerConfig // with a default cap
	fixed, written := 0, 0
	for i := range listeners {
		l := &listeners[i]
		fixed += l.fixedCost()
		written += l.TCP.Queue.Limit * fdsPerWaiter // 0 for UDP
		if n := l.connCap(); *n == 0 {
			open = append(open, l)
		} else {
			written += l.cost(*n)
		}
	}
	left := free - fixed - written
	if left < 0 && written > 0 {
		return fmt.Errorf("netx: the caps of sessions, connections and queues need %d descriptors, the limit of %d leaves %d for them; lower them or raise it (ulimit -n)",
			written, limit, max(free-fixed, 0))
	}
	// Those that want least first, so that what they leave goes to the others.
	slices.SortStableFunc(open, func(a, b *ListenerConfig) int { return a.standardCost() - b.standardCost() })
	for i, l := range open {
		n, standard := l.connCap(), l.standardCap()
		*n = min(standard, l.fit(left/(len(open)-i)))
		if *n < 1 {
			return fmt.Errorf("netx: the descriptor limit of %d is too low for %d listeners; raise it (ulimit -n)", limit, len(listeners))
		}
		left -= l.cost(*n)
		if *n < standard {
			lowered(l, limit)
		}
	}
	return nil
}

// connCap points to the cap that counts descriptors.
func (l *ListenerConfig) connCap() *int {
	if l.Protocol == TCP {
		return &l.TCP.MaxConnections
	}
	return &l.UDP.MaxSessions
}

func (l *ListenerConfig) standardCap() int {
	if l.Protocol == TCP {
		return DefaultMaxConnections
	}
	return DefaultMaxSessions
}

// capKey is the name of that cap in the configuration.
func (l *ListenerConfig) capKey() string {
	if l.Protocol == TCP {
		return "tcp.max_connections"
	}
	return "udp.max_sessions"
}

// fixedCost is what the listener itself costs.
func (l *ListenerConfig) fixedCost() int {
	if l.Protocol == TCP {
		return 1 + pipeCount()*fdsPerPipe + l.headerSpare()
	}
	return loopCount() * fdsPerLoop
}

// cost is what so many sessions or connections cost.
func (l *ListenerConfig) cost(n int) int {
	switch {
	case l.Protocol == UDP:
		return n*fdsPerSession + n/quarantineShare
	case l.Upstream == Echo:
		return n * fdsPerEchoConnection
	}
	return n * fdsPerConnection
}

// fit is how many may cost so much.
func (l *ListenerConfig) fit(fds int) int {
	switch {
	case l.Protocol == UDP:
		return fds * quarantineShare / (quarantineShare*fdsPerSession + 1)
	case l.Upstream == Echo:
		return fds / fdsPerEchoConnection
	}
	return fds / fdsPerConnection
}

func (l *ListenerConfig) standardCost() int { return l.cost(l.standardCap()) }
