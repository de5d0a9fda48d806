package netx

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
)

// Protocol of a listener.
type Protocol uint8

// The protocols of a listener.
const (
	UDP Protocol = iota
	TCP
)

func (p Protocol) String() string {
	if p > TCP {
		return "protocol(" + strconv.Itoa(int(p)) + ")"
	}
	return [...]string{"udp", "tcp"}[p]
}

// Echo as a listener's Upstream stands for the built-in echo server.
const Echo = "echo"

// OnLimit says what a TCP relay does when the client is over its byte budget.
type OnLimit uint8

// What a TCP relay does when the client is over its byte budget.
const (
	Pause     OnLimit = iota // stop reading until there are tokens again
	CloseConn                // end the connection
)

// Reject says how a TCP connection is turned away.
type Reject uint8

// The ways to turn a TCP connection away.
const (
	RejectRST    Reject = iota // a reset
	RejectClose                // an orderly close
	RejectSilent               // no answer; the client runs into its own timeout
)

// Defaults of the zero fields of UDPOptions and TCPOptions.
const (
	DefaultSessionIdle    = 60 * time.Second
	DefaultMaxSessions    = 10_000
	DefaultMaxDatagram    = MaxDatagram
	DefaultMaxConnections = 10_000
	DefaultDialTimeout    = 5 * time.Second
)

// MaxDatagram is the largest payload that fits into a UDP datagram over IPv4.
const MaxDatagram = 65_507

// maxCap bounds what may be written as a cap; a machine gives up much earlier.
const maxCap = 1 << 22

// ListenerConfig is one listener of the gateway.
type ListenerConfig struct {
	// Name stands in reports and errors; not empty, unique in the gateway.
	Name     string
	Protocol Protocol
	// Listen is the address that clients send to; port 0 takes a free one.
	// A wildcard covers its own address family only. The answers of a UDP
	// listener on a wildcard come from the address that the route to the
	// client prefers; a host with several addresses has a listener for each.
	Listen netip.AddrPort
	// Upstream is host:port or Echo. A UDP listener resolves the name once, at
	// the start.
	Upstream string
	Policy   engine.PolicyID
	UDP      UDPOptions // of a UDP listener
	TCP      TCPOptions // of a TCP listener
}

// UDPOptions are those of a UDP listener. Zero fields mean the default behind
// them.
type UDPOptions struct {
	// SessionIdle ends a session through which nothing has passed in either
	// direction for so long. 0 = 60 s.
	SessionIdle time.Duration
	// MaxSessions is the most sessions at a time. 0 = 10000, less where the
	// descriptor limit is lower.
	MaxSessions int
	// MaxDatagram is the longest payload that is forwarded, in bytes; a longer
	// datagram is dropped whole. 0 = 65507.
	MaxDatagram int
}

// TCPOptions are those of a TCP listener. Zero fields mean the default behind
// them.
type TCPOptions struct {
	MaxConnections      int           // 0 = 10000, less where the descriptor limit is lower
	MaxConnectionsPerIP int           // 0 = no cap
	DialTimeout         time.Duration // 0 = 5 s
	FirstByteTimeout    time.Duration // 0 = none
	IdleTimeout         time.Duration // 0 = none
	OnLimit             OnLimit
	Reject              Reject
}

// GatewayConfig is what StartGateway builds a gateway from.
type GatewayConfig struct {
	Engine    *engine.Engine   // decides; not closed by the gateway
	Listeners []ListenerConfig // at least one
	Logger    *slog.Logger     // nil = discard
}

// validate reports every mistake, each naming its listener and field.
func (c GatewayConfig) validate() error {
	var errs []error
	if c.Engine == nil {
		errs = append(errs, errors.New("netx: Engine is nil"))
	}
	if len(c.Listeners) == 0 {
		errs = append(errs, errors.New("netx: no listeners"))
	}
	for i, l := range c.Listeners {
		where := l.Name
		if where == "" {
			where = "#" + strconv.Itoa(i+1)
		}
		for _, err := range append(l.problems(), l.clashes(c.Listeners[:i])...) {
			errs = append(errs, fmt.Errorf("netx: listener %s: %w", where, err))
		}
	}
	return errors.Join(errs...)
}

// problems are the mistakes of a listener that show without the others.
func (l ListenerConfig) problems() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if l.Name == "" {
		bad("Name is empty")
	}
	if l.Protocol > TCP {
		bad("Protocol: %v is neither udp nor tcp", l.Protocol)
	}
	if !l.Listen.IsValid() {
		bad("Listen: no address")
	} else if l.Listen.Addr().IsMulticast() {
		bad("Listen: %v is a multicast address", l.Listen)
	}
	if err := checkUpstream(l.Upstream); err != nil {
		bad("Upstream: %w", err)
	}
	notNegative := func(field string, n int64) {
		if n < 0 {
			bad("%s: %d is negative", field, n)
		}
	}
	notNegative("UDP.SessionIdle", int64(l.UDP.SessionIdle))
	isCap := func(field string, n int) {
		if n < 0 || n > maxCap {
			bad("%s: %d is outside 1..%d (0 means the default)", field, n, maxCap)
		}
	}
	isCap("UDP.MaxSessions", l.UDP.MaxSessions)
	if n := l.UDP.MaxDatagram; n < 0 || n > MaxDatagram {
		bad("UDP.MaxDatagram: %d is outside 1..%d", n, MaxDatagram)
	}
	isCap("TCP.MaxConnections", l.TCP.MaxConnections)
	notNegative("TCP.MaxConnectionsPerIP", int64(l.TCP.MaxConnectionsPerIP))
	notNegative("TCP.DialTimeout", int64(l.TCP.DialTimeout))
	notNegative("TCP.FirstByteTimeout", int64(l.TCP.FirstByteTimeout))
	notNegative("TCP.IdleTimeout", int64(l.TCP.IdleTimeout))
	if l.TCP.OnLimit > CloseConn {
		bad("TCP.OnLimit: %d is neither Pause nor CloseConn", l.TCP.OnLimit)
	}
	if l.TCP.Reject > RejectSilent {
		bad("TCP.Reject: %d is none of RejectRST, RejectClose and RejectSilent", l.TCP.Reject)
	}
	return errs
}

// clashes are the mistakes of a listener against those before it.
func (l ListenerConfig) clashes(before []ListenerConfig) (errs []error) {
	for _, o := range before {
		if l.Name != "" && l.Name == o.Name {
			errs = append(errs, errors.New("Name is not unique"))
		}
		if l.Protocol == o.Protocol && overlap(l.Listen, o.Listen) {
			errs = append(errs, fmt.Errorf("Listen: %v overlaps %v of listener %s", l.Listen, o.Listen, o.Name))
		}
	}
	return errs
}

// overlap says whether two sockets of one protocol cannot listen on a and b at
// the same time. A wildcard covers the addresses of its own family: IPv6
// listeners take IPv6 only.
func overlap(a, b netip.AddrPort) bool {
	x, y := a.Addr().Unmap(), b.Addr().Unmap()
	if a.Port() == 0 || a.Port() != b.Port() || x.Is4() != y.Is4() {
		return false
	}
	return x == y || x.IsUnspecified() || y.IsUnspecified()
}

// checkUpstream checks the form; the name is resolved later.
func checkUpstream(s string) error {
	if s == Echo {
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return fmt.Errorf("%q is neither host:port nor %q", s, Echo)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q: port is outside 1..65535", s)
	}
	return nil
}

// withDefaults fills in what is zero, except for the caps, which the
// descriptor limit has a say in.
func (l ListenerConfig) withDefaults() ListenerConfig {
	l.Listen = netip.AddrPortFrom(l.Listen.Addr().Unmap(), l.Listen.Port())
	if l.UDP.SessionIdle == 0 {
		l.UDP.SessionIdle = DefaultSessionIdle
	}
	if l.UDP.MaxDatagram == 0 {
		l.UDP.MaxDatagram = DefaultMaxDatagram
	}
	if l.TCP.DialTimeout == 0 {
		l.TCP.DialTimeout = DefaultDialTimeout
	}
	return l
}
