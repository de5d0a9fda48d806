package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee4278a0/throttled/netx"
	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

const allowedCap = "1 to 4194304"

// listener reads an entry and adds it to c.
func (d *decoder) listener(c *Config, v value) {
	l := Listener{PolicyName: defaultPolicy}
	at := places{}
	ok := d.mapping(v, at, []field{
		{"name", "name", name(&l.Name)},
		{"protocol", "protocol", choice(&l.Protocol, protocolWords)},
		{"listen", "listen", parsed(&l.Listen, allowedListen, parseListen)},
		{"upstream", "upstream", parsed(&l.Upstream, allowedUpstream, parseUpstream)},
		{"policy", "policy", text(&l.PolicyName, "the name of a policy")},
		{"dry_run", "", truth(&l.DryRun)},
		{"opcodes", "opcodes", func(d *decoder, v value) { d.opcodes(&l, v, at) }},
		{"udp", "udp", func(d *decoder, v value) { d.udp(&l.UDP, v) }},
		{"tcp", "tcp", func(d *decoder, v value) { d.tcp(&l.TCP, v, at) }},
		{"proxy_protocol", "", func(d *decoder, v value) { d.proxy(&l.Proxy, v, at) }},
	})
	if !ok {
		return
	}
	d.required(v, at, "name", "protocol", "listen", "upstream")
	protocol, _, _ := scalar(d.resolve(at["protocol"]).node)
	if n := l.TCP.Queue.Limit; n > 0 && protocol == netx.UDP.String() {
		d.wrong(d.resolve(at["queue.limit"]), "%d on a udp listener, which has no connections that could wait; allowed: 0", n)
	}
	if at["opcodes"].node != d.resolve(v).node && protocol == netx.TCP.String() {
		d.wrong(at["opcodes"], "on a tcp listener, which has no datagrams; allowed: on a udp listener")
	}
	if other := at[otherProtocol(l.Protocol)]; other.node != d.resolve(v).node {
		d.warn(other, "has no effect on a %s listener", l.Protocol)
	}
	d.checkProxy(&l, at)
	c.Listeners = append(c.Listeners, l)
	d.listeners = append(d.listeners, at)
}

func otherProtocol(p netx.Protocol) string {
	if p == netx.UDP {
		return netx.TCP.String()
	}
	return netx.UDP.String()
}

func (d *decoder) udp(o *netx.UDPOptions, v value) {
	d.mapping(v, nil, []field{
		{"session_idle", "", duration(&o.SessionIdle)},
		{"max_sessions", "", whole(&o.MaxSessions, 1, netx.MaxCap, allowedCap)},
		{"max_datagram", "", whole(&o.MaxDatagram, 1, netx.MaxDatagram, "1 to 65507")},
		{"max_reply_ratio", "", parsed(&o.MaxReplyRatio, allowedRatio, parseRatio)},
		{"lockout_requires", "", choice(&o.LockoutRequires, lockoutRequiresWords)},
	})
}

func (d *decoder) tcp(o *netx.TCPOptions, v value, at places) {
	d.mapping(v, at, []field{
		{"max_connections", "", whole(&o.MaxConnections, 1, netx.MaxCap, allowedCap)},
		{"max_connections_per_ip", "", countOrZero(&o.MaxConnectionsPerIP)},
		{"queue", "", func(d *decoder, v value) { d.queue(&o.Queue, v, at) }},
		{"dial_timeout", "", duration(&o.DialTimeout)},
		{"first_byte_timeout", "", durationOrZero(&o.FirstByteTimeout)},
		{"idle_timeout", "", durationOrZero(&o.IdleTimeout)},
		{"on_limit", "", choice(&o.OnLimit, onLimitWords)},
		{"reject", "", choice(&o.Reject, rejectWords)},
	})
}

func (d *decoder) queue(q *limiter.Queue, v value, at places) {
	allowed := fmt.Sprintf("0 to %d", netx.MaxQueueLimit)
	d.mapping(v, at, []field{
		{"limit", "queue.limit", whole(&q.Limit, 0, netx.MaxQueueLimit, allowed)},
		{"order", "", choice(&q.Order, orderWords)},
		{"max_wait", "", duration(&q.MaxWait)},
	})
}

// checkListeners compares the listeners with each other, with the policies and
// with the admin server.
func (d *decoder) checkListeners(c *Config) {
	policies := map[string]bool{defaultPolicy: true}
	for _, p := range c.Engine.Policies {
		policies[p.Name] = true
	}
	for i, l := range c.Listeners {
		if len(d.mistakes) == maxMistakes {
			return // of many listeners each may be in conflict with each
		}
		at := d.listeners[i]
		known := func(name string, at value) {
			if !policies[name] {
				d.wrong(d.resolve(at), "there is no policy %q; allowed: %s", name, strings.Join(c.policyNames(), ", "))
			}
		}
		known(l.PolicyName, at["policy"])
		for _, opcode := range slices.Sorted(maps.Keys(l.OpcodePolicies)) {
			known(l.OpcodePolicies[opcode], at[placeOf(opcode)])
		}
		for _, k := range c.conflicts(l, c.Listeners[:i]) {
			d.wrong(d.resolve(at[k.key]), "%s", k.text)
		}
	}
}

func (c *Config) policyNames() []string {
	names := []string{defaultPolicy}
	for _, p := range c.Engine.Policies {
		names = append(names, p.Name)
	}
	return names
}

// A conflict is a key of a listener that cannot be as it is beside the rest.
type conflict struct{ key, text string }

// conflicts compares l with the listeners before it, with the admin server and
// with itself. A field that is not set conflicts with nothing.
func (c *Config) conflicts(l Listener, before []Listener) []conflict {
	var found []conflict
	add := func(key, format string, args ...any) {
		found = append(found, conflict{key, fmt.Sprintf(format, args...)})
	}
	same := func(b Listener) bool { return b.Protocol == l.Protocol && overlap(b.Listen, l.Listen) }
	if i := slices.IndexFunc(before, same); i >= 0 {
		add("listen", "listener %q has %s %s already; allowed: one listener for each protocol and address",
			before[i].Name, l.Protocol, before[i].Listen)
	}
	if i := slices.IndexFunc(before, func(b Listener) bool { return b.Name == l.Name }); i >= 0 && l.Name != "" {
		add("name", "a second listener %q; allowed: one for each name", l.Name)
	}
	if admin, err := parseListen(c.Admin.Listen); err == nil && l.Protocol == netx.TCP && overlap(admin, l.Listen) {
		add("listen", "the admin server has tcp %s already; allowed: another address", admin)
	}
	to := target(l.Upstream)
	if reaches(l.Listen, to) {
		add("upstream", "%s is the listener's own address; allowed: the address of a server", l.Upstream)
	}
	port := strconv.Itoa(int(l.Listen.Port()))
	for _, b := range before {
		if b.Protocol != l.Protocol {
			continue
		}
		if reaches(b.Listen, to) {
			add("upstream", "%s is the address of listener %q; allowed: the address of a server", l.Upstream, b.Name)
		}
		// Most upstreams need no closer look, and there may be many.
		if strings.HasSuffix(b.Upstream, port) && reaches(l.Listen, target(b.Upstream)) {
			add("listen", "the upstream of listener %q is this address; allowed: another one", b.Name)
		}
	}
	return found
}
