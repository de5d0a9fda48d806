package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

// The types below are a file's mappings. Zero fields are keys that are left out,
// with which a file says the same.

type tree struct {
	Admin      adminTree      `json:"admin"`
	State      *stateTree     `json:"state,omitempty"`
	Report     reportTree     `json:"report"`
	Engine     engineTree     `json:"engine"`
	Exempt     []netip.Prefix `json:"exempt,omitempty"`
	Deny       []netip.Prefix `json:"deny,omitempty"`
	KernelDrop string         `json:"kernel_drop"`
	Drain      drainTree      `json:"drain"`
	Policies   []policyTree   `json:"policies"`
	Listeners  []listenerTree `json:"listeners,omitempty"`
}

type adminTree struct {
	Listen    string `json:"listen"`
	TokenFile string `json:"token_file,omitzero"`
}

type stateTree struct {
	Path     string `json:"path"`
	Interval span   `json:"interval"`
}

type reportTree struct {
	Every span   `json:"every"`
	Path  string `json:"path"`
}

type drainTree struct {
	Grace span `json:"grace"`
}

type engineTree struct {
	Shards          int          `json:"shards,omitzero"`
	MaxEndpoints    int          `json:"max_endpoints,omitzero"`
	OnFull          string       `json:"on_full"`
	StaleAfter      span         `json:"stale_after,omitzero"`
	CleanupInterval span         `json:"cleanup_interval,omitzero"`
	IPv4Prefix      int          `json:"ipv4_prefix,omitzero"`
	IPv6Prefix      int          `json:"ipv6_prefix,omitzero"`
	KeyByPort       bool         `json:"key_by_port"`
	Adaptive        adaptiveTree `json:"adaptive"`
}

type adaptiveTree struct {
	Enabled bool        `json:"enabled"`
	Low     json.Number `json:"low"`
	High    json.Number `json:"high"`
	Floor   json.Number `json:"floor"`
}

type policyTree struct {
	Name       string         `json:"name"`
	Capacity   int64          `json:"capacity"`
	Refill     string         `json:"refill"`
	Scale      int64          `json:"scale"`
	DryRun     bool           `json:"dry_run"`
	Initial    any            `json:"initial"`
	Bytes      *bytesTree     `json:"bytes,omitempty"`
	Violations violationsTree `json:"violations"`
	Lockout    any            `json:"lockout"` // off, or a lockoutTree
}

type bytesTree struct {
	Capacity int64  `json:"capacity"`
	Refill   string `json:"refill"`
}

type violationsTree struct {
	Max            int  `json:"max"`
	Window         span `json:"window"`
	Spacing        span `json:"spacing"`
	ResetOnSuccess bool `json:"reset_on_success"`
}

type lockoutTree struct {
	Base        span        `json:"base"`
	Growth      json.Number `json:"growth"`
	Max         span        `json:"max"`
	ForgetAfter span        `json:"forget_after"`
}

type listenerTree struct {
	Name     string       `json:"name"`
	Protocol string       `json:"protocol"`
	Listen   string       `json:"listen"`
	Upstream string       `json:"upstream"`
	Policy   string       `json:"policy"`
	DryRun   bool         `json:"dry_run"`
	Opcodes  *opcodesTree `json:"opcodes,omitempty"`
	UDP      *udpTree     `json:"udp,omitempty"`
	TCP      *tcpTree     `json:"tcp,omitempty"`
	Proxy    *proxyTree   `json:"proxy_protocol,omitempty"`
}

type opcodesTree struct {
	Offset   int               `json:"offset"`
	Size     int               `json:"size"`
	Policies map[string]string `json:"policies"`
}

type udpTree struct {
	SessionIdle     span        `json:"session_idle,omitzero"`
	MaxSessions     int         `json:"max_sessions,omitzero"`
	MaxDatagram     int         `json:"max_datagram,omitzero"`
	MaxReplyRatio   json.Number `json:"max_reply_ratio"`
	LockoutRequires string      `json:"lockout_requires"`
}

type tcpTree struct {
	MaxConnections      int       `json:"max_connections,omitzero"`
	MaxConnectionsPerIP int       `json:"max_connections_per_ip"`
	Queue               queueTree `json:"queue"`
	DialTimeout         span      `json:"dial_timeout,omitzero"`
	FirstByteTimeout    span      `json:"first_byte_timeout"`
	IdleTimeout         span      `json:"idle_timeout"`
	OnLimit             string    `json:"on_limit"`
	Reject              string    `json:"reject"`
}

type proxyTree struct {
	AcceptFrom []netip.Prefix `json:"accept_from,omitempty"`
	Timeout    span           `json:"timeout,omitzero"`
	Send       string         `json:"send"`
}

type queueTree struct {
	Limit   int    `json:"limit"`
	Order   string `json:"order"`
	MaxWait span   `json:"max_wait,omitzero"`
}

// A span is a duration as a file has it.
type span time.Duration

// MarshalText implements encoding.TextMarshaler.
func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// Tree is the configuration as JSON writes it with the keys of a file; as JSON is
// YAML, it is a file that says the same. It has no secrets. Keys that nobody set
// are left out, but for those of the policies.
func (c *Config) Tree() any {
	t := tree{
		Admin:      adminTree{c.Admin.Listen, c.Admin.TokenFile},
		Report:     reportTree{span(c.Report.Every), c.Report.Path},
		Engine:     c.engineTree(),
		Exempt:     c.Exempt,
		Deny:       c.Deny,
		KernelDrop: kernelDropWords[c.KernelDrop],
		Drain:      drainTree{span(c.Grace)},
		Policies:   []policyTree{newPolicyTree(c.Engine.Default)},
	}
	if c.State.Path != "" {
		t.State = &stateTree{c.State.Path, span(c.State.Interval)}
	}
	for _, p := range c.Engine.Policies {
		t.Policies = append(t.Policies, newPolicyTree(p))
	}
	for _, l := range c.Listeners {
		t.Listeners = append(t.Listeners, newListenerTree(l))
	}
	return t
}

func (c *Config) engineTree() engineTree {
	e := &c.Engine
	return engineTree{
		Shards:          e.Shards,
		MaxEndpoints:    e.MaxTrackedEndpoints,
		OnFull:          onFullWords[e.OnFull],
		StaleAfter:      span(e.StaleAfter),
		CleanupInterval: span(e.CleanupInterval),
		IPv4Prefix:      e.IPv4Prefix,
		IPv6Prefix:      e.IPv6Prefix,
		KeyByPort:       e.KeyByPort,
		Adaptive: adaptiveTree{
			Enabled: c.Adaptive.Enabled,
			Low:     decimal(c.Adaptive.Low),
			High:    decimal(c.Adaptive.High),
			Floor:   decimal(c.Adaptive.Floor),
		},
	}
}

func newPolicyTree(p policy.Policy) policyTree {
	p = p.WithDefaults()
	e := p.Escalation
	t := policyTree{
		Name:     cmp.Or(p.Name, defaultPolicy),
		Capacity: p.Packets.Capacity,
		Refill:   perSecond(p.Packets.RefillPerSecond),
		Scale:    p.Packets.Scale,
		DryRun:   p.DryRun,
		Initial:  initialWord(p.Packets.Initial),
		Lockout:  "off",
	}
	if p.Bytes != nil {
		t.Bytes = &bytesTree{p.Bytes.Capacity, perSecond(p.Bytes.RefillPerSecond)}
	}
	t.Violations = violationsTree{e.MaxSoftViolations, span(e.Window), span(e.Spacing), e.ResetOnSuccess}
	if !e.Disabled {
		t.Lockout = lockoutTree{span(e.Lockout), decimal(e.Growth), span(e.MaxLockout), span(e.ForgetAfter)}
	}
	return t
}

func newListenerTree(l Listener) listenerTree {
	t := listenerTree{
		Name:     l.Name,
		Protocol: protocolWords[l.Protocol],
		Listen:   l.Listen.String(),
		Upstream: l.Upstream,
		Policy:   l.PolicyName,
		DryRun:   l.DryRun,
		Proxy:    newProxyTree(l.Proxy),
	}
	if l.Protocol == netx.UDP {
		t.Opcodes = newOpcodesTree(l)
		t.UDP = &udpTree{
			SessionIdle:     span(l.UDP.SessionIdle),
			MaxSessions:     l.UDP.MaxSessions,
			MaxDatagram:     l.UDP.MaxDatagram,
			MaxReplyRatio:   decimal(l.UDP.MaxReplyRatio),
			LockoutRequires: lockoutRequiresWords[l.UDP.LockoutRequires],
		}
		return t
	}
	o := &l.TCP
	t.TCP = &tcpTree{
		MaxConnections:      o.MaxConnections,
		MaxConnectionsPerIP: o.MaxConnectionsPerIP,
		Queue:               queueTree{o.Queue.Limit, orderWords[o.Queue.Order], span(o.Queue.MaxWait)},
		DialTimeout:         span(o.DialTimeout),
		FirstByteTimeout:    span(o.FirstByteTimeout),
		IdleTimeout:         span(o.IdleTimeout),
		OnLimit:             onLimitWords[o.OnLimit],
		Reject:              rejectWords[o.Reject],
	}
	return t
}

// newOpcodesTree writes all opcodes with the same digits, so that JSON's order of
// the keys is that of the numbers.
func newOpcodesTree(l Listener) *opcodesTree {
	if len(l.OpcodePolicies) == 0 {
		return nil
	}
	t := &opcodesTree{l.Opcodes.Offset, l.Opcodes.Size, make(map[string]string, len(l.OpcodePolicies))}
	for opcode, name := range l.OpcodePolicies {
		t.Policies[fmt.Sprintf("0x%0*x", 2*l.Opcodes.Size, opcode)] = name
	}
	return t
}

func newProxyTree(o netx.ProxyOptions) *proxyTree {
	if len(o.AcceptFrom) == 0 && o.Timeout == 0 && o.Send == netx.SendNone {
		return nil
	}
	return &proxyTree{o.AcceptFrom, span(o.Timeout), sendWords[o.Send]}
}

// initialWord is what a bucket holds at first sight: a word, or a number.
func initialWord(n int64) any {
	switch n {
	case 0:
		return "full"
	case tokenbucket.Empty:
		return "empty"
	}
	return n
}

func perSecond(rate float64) string { return string(decimal(rate)) + "/s" }

// decimal writes a number without an exponent, which a file does not take.
func decimal(f float64) json.Number { return json.Number(strconv.FormatFloat(f, 'f', -1, 64)) }
