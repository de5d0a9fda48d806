package netx

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
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

// LockoutRequires says who may be locked out.
type LockoutRequires uint8

// Whose denials count towards a lockout.
const (
	LockoutAny         LockoutRequires = iota // those of anybody
	LockoutEstablished                        // those of a session that the upstream has answered in
)

// KernelDrop says whether the kernel may drop what would be denied.
type KernelDrop uint8

// Who drops the datagrams of those who are banned or locked out.
const (
	KernelDropOff    KernelDrop = iota // the gateway
	KernelDropSocket                   // the kernel, on the sockets of UDP listeners
)

// Defaults of the zero fields of UDPOptions and TCPOptions.
const (
	DefaultSessionIdle    = 60 * time.Second
	DefaultMaxSessions    = 10_000
	DefaultMaxDatagram    = MaxDatagram
	DefaultMaxConnections = 10_000
	DefaultQueueMaxWait   = 5 * time.Second
	DefaultDialTimeout    = 5 * time.Second
)

// MaxDatagram is the largest payload that fits into a UDP datagram over IPv4.
const MaxDatagram = 65_507

// MaxQueueLimit is the most connections that may wait at a listener.
const MaxQueueLimit = 1 << 20

// MaxCap bounds what may be written as a cap; a machine gives up much earlier.
const MaxCap = 1 << 22

// ListenerConfig is one listener of the gateway.
type ListenerConfig struct {
	// Name stands in reports and errors; not empty, unique in the gateway.
	Name     string
	Protocol Protocol
	// Listen is the address that clients send to; port 0 takes a free one.
	// A wildcard covers its own address family only. A UDP listener on a
	// wildcard answers from the address that the client has sent to; on other
	// systems than Linux from the one that the route to the client prefers.
	Listen netip.AddrPort
	// Upstream is host:port or Echo. A UDP listener resolves the name once,
	// before it serves.
	Upstream string
	Policy   engine.PolicyID
	// DryRun decides and counts as ever, in ListenerReport.WouldDrop, and lets
	// through what the limits, the bans and the list of the denied would keep
	// out. What cannot be served is dropped all the same: for want of room or of
	// an upstream, too long, without a sender, or during a drain. A TCP listener
	// does not charge for bytes. For one policy alone there is policy.Policy.DryRun.
	DryRun  bool
	Opcodes Opcodes    // of a UDP listener
	UDP     UDPOptions // of a UDP listener
	TCP     TCPOptions // of a TCP listener
	Proxy   ProxyOptions
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
	// MaxReplyRatio bounds what a forged source has sent to it: until a client
	// has sent something after a first reply, all replies to it together have at
	// most so many times the payload that it has sent. Others are dropped and
	// counted in ListenerReport.RepliesSuppressed. It is RFC 9000's rule (8.1) with
	// its 3. A session has to prove itself anew. 0..1000, also in parts; 0 = no
	// bound.
	MaxReplyRatio float64
	// LockoutRequires LockoutEstablished throttles a source softly, and does not
	// lock it out, until the upstream has answered it in the session that it has.
	// So a forged source does not lock out whoever really has it, unless the
	// upstream answers that, too: it is for upstreams that answer only who has
	// proven itself, or knows something. It does not keep the forger from using up
	// the tokens of the source, nor from hitting a session that there is, of which
	// he needs the port. A lockout that there is holds.
	LockoutRequires LockoutRequires
}

// MaxReplyRatioMost is the largest MaxReplyRatio.
const MaxReplyRatioMost = 1000

// TCPOptions are those of a TCP listener. Zero fields mean the default behind
// them.
type TCPOptions struct {
	// MaxConnections is the most connections that are served at a time. 0 =
	// 10000, less where the descriptor limit is lower.
	MaxConnections int
	// MaxConnectionsPerIP is the most of an address at a time, those that wait
	// included. 0 = no cap.
	MaxConnectionsPerIP int
	// Queue is where connections over MaxConnections wait, before the upstream
	// is dialled; nothing is read from them meanwhile. Limit is how many, up to
	// MaxQueueLimit; 0 turns them away at once. MaxWait 0 = 5 s. A client that
	// resets its connection, or ends it without having sent anything, gives up
	// its place; one that has sent a request before its end is still served.
	Queue       limiter.Queue
	DialTimeout time.Duration // 0 = 5 s
	// FirstByteTimeout closes a connection whose client sends nothing for so
	// long from when it is served; time in the queue does not count. 0 = none.
	FirstByteTimeout time.Duration
	IdleTimeout      time.Duration // 0 = none
	OnLimit          OnLimit
	Reject           Reject
}

// GatewayConfig is what StartGateway builds a gateway from.
type GatewayConfig struct {
	Engine    *engine.Engine   // decides; not closed by the gateway
	Listeners []ListenerConfig // at least one
	Logger    *slog.Logger     // nil = discard
	// KernelDrop KernelDropSocket lets the kernel drop datagrams that the engine
	// would deny with a HardLockout, those of bans included; not at listeners with
	// DryRun or Opcodes, nor under a policy that is a dry run. Where it cannot, one
	// warning says why, and the gateway goes on without.
	KernelDrop KernelDrop

	plainUDP bool // for tests: the UDP path of other systems
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
	if c.KernelDrop > KernelDropSocket {
		errs = append(errs, fmt.Errorf("netx: KernelDrop: %d is neither KernelDropOff nor KernelDropSocket", c.KernelDrop))
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
func (l ListenerConfig) problems() []error {
	var m mistakes
	if l.Name == "" {
		m.add("Name is empty")
	}
	if l.Protocol > TCP {
		m.add("Protocol: %v is neither udp nor tcp", l.Protocol)
	}
	if !l.Listen.IsValid() {
		m.add("Listen: no address")
	} else if l.Listen.Addr().IsMulticast() {
		m.add("Listen: %v is a multicast address", l.Listen)
	}
	if err := checkUpstream(l.Upstream); err != nil {
		m.add("Upstream: %w", err)
	}
	l.Opcodes.check(&m, l.Protocol)
	l.UDP.check(&m)
	l.TCP.check(&m)
	l.checkProxy(&m)
	if l.Protocol == UDP && l.TCP.Queue.Limit > 0 {
		m.add("TCP.Queue.Limit: %d on a udp listener, which has no connections that could wait", l.TCP.Queue.Limit)
	}
	return m
}

func (o UDPOptions) check(m *mistakes) {
	m.negative("UDP.SessionIdle", int64(o.SessionIdle))
	m.limit("UDP.MaxSessions", o.MaxSessions)
	if n := o.MaxDatagram; n < 0 || n > MaxDatagram {
		m.add("UDP.MaxDatagram: %d is outside 1..%d", n, MaxDatagram)
	}
	if r := o.MaxReplyRatio; !(r >= 0 && r <= MaxReplyRatioMost) {
		m.add("UDP.MaxReplyRatio: %v is outside 0..%d", r, MaxReplyRatioMost)
	}
	if o.LockoutRequires > LockoutEstablished {
		m.add("UDP.LockoutRequires: %d is neither LockoutAny nor LockoutEstablished", o.LockoutRequires)
	}
}

func (o TCPOptions) check(m *mistakes) {
	m.limit("TCP.MaxConnections", o.MaxConnections)
	m.negative("TCP.MaxConnectionsPerIP", int64(o.MaxConnectionsPerIP))
	if n := o.Queue.Limit; n < 0 || n > MaxQueueLimit {
		m.add("TCP.Queue.Limit: %d is outside 0..%d", n, MaxQueueLimit)
	}
	if o.Queue.Order > limiter.NewestFirst {
		m.add("TCP.Queue.Order: %d is neither OldestFirst nor NewestFirst", o.Queue.Order)
	}
	m.negative("TCP.Queue.MaxWait", int64(o.Queue.MaxWait))
	m.negative("TCP.DialTimeout", int64(o.DialTimeout))
	m.negative("TCP.FirstByteTimeout", int64(o.FirstByteTimeout))
	m.negative("TCP.IdleTimeout", int64(o.IdleTimeout))
	if o.OnLimit > CloseConn {
		m.add("TCP.OnLimit: %d is neither Pause nor CloseConn", o.OnLimit)
	}
	if o.Reject > RejectSilent {
		m.add("TCP.Reject: %d is none of RejectRST, RejectClose and RejectSilent", o.Reject)
	}
}

// mistakes collects what is wrong with a listener.
type mistakes []error

func (m *mistakes) add(format string, args ...any) { *m = append(*m, fmt.Errorf(format, args...)) }

func (m *mistakes) negative(field string, n int64) {
	if n < 0 {
		m.add("%s: %d is negative", field, n)
	}
}

// limit checks one of the caps that the descriptor limit has a say in.
func (m *mistakes) limit(field string, n int) {
	if n < 0 || n > MaxCap {
		m.add("%s: %d is outside 1..%d (0 means the default)", field, n, MaxCap)
	}
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
	l.Opcodes.Policies = maps.Clone(l.Opcodes.Policies)
	if l.UDP.SessionIdle == 0 {
		l.UDP.SessionIdle = DefaultSessionIdle
	}
	if l.UDP.MaxDatagram == 0 {
		l.UDP.MaxDatagram = DefaultMaxDatagram
	}
	if l.TCP.Queue.MaxWait == 0 {
		l.TCP.Queue.MaxWait = DefaultQueueMaxWait
	}
	if l.TCP.DialTimeout == 0 {
		l.TCP.DialTimeout = DefaultDialTimeout
	}
	l.Proxy.AcceptFrom = slices.Clone(l.Proxy.AcceptFrom)
	if l.Proxy.Timeout == 0 {
		l.Proxy.Timeout = DefaultProxyTimeout
	}
	return l
}

// effect is a configuration with defaults in the one form that all have which do
// the same: without what has no effect, and with the default for a cap that is
// not set.
func (l ListenerConfig) effect() ListenerConfig {
	most := l.connCap()
	*most = cmp.Or(*most, l.standardCap())
	l.Opcodes.Size = max(1, l.Opcodes.Size)
	if l.Protocol == TCP || len(l.Opcodes.Policies) == 0 {
		l.Opcodes = Opcodes{}
	}
	l.Proxy.AcceptFrom = slices.Clone(l.Proxy.AcceptFrom)
	slices.SortFunc(l.Proxy.AcceptFrom, netip.Prefix.Compare)
	if len(l.Proxy.AcceptFrom) == 0 {
		l.Proxy.AcceptFrom = nil
	}
	if l.Protocol == UDP || len(l.Proxy.AcceptFrom) == 0 {
		l.Proxy.Timeout = 0
	}
	if l.TCP.Queue.Limit == 0 {
		l.TCP.Queue = limiter.Queue{}
	}
	if l.Protocol == UDP {
		l.TCP = TCPOptions{}
	} else {
		l.UDP = UDPOptions{}
	}
	return l
}
