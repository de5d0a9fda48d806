package replay

import (
	"net/netip"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/netx"
)

// A listener is one of the configuration, and what came for it.
type listener struct {
	netx.ListenerConfig
	report Listener
}

// policyFor is the policy of a datagram. Where the opcode was not kept it is the
// listener's.
func (l *listener) policyFor(s *segment) engine.PolicyID {
	o := &l.Opcodes
	if end := o.Offset + max(1, o.Size); len(o.Policies) > 0 && len(s.payload) < end && end <= s.bytes {
		l.report.OpcodesCut++
	}
	return l.PolicyOf(s.payload)
}

// listeners finds the one that a packet is for.
type listeners struct {
	all       []*listener
	byAddress map[address]*listener // wildcards under the unspecified address of their family
	local     map[netip.Addr]bool   // addresses that a wildcard has been sent something to
	last      netip.Addr            // of them
	policies  map[engine.PolicyID]string
}

func newListeners(from []config.Listener) *listeners {
	ls := &listeners{byAddress: map[address]*listener{}, local: map[netip.Addr]bool{}, policies: map[engine.PolicyID]string{}}
	for _, l := range from {
		at := netip.AddrPortFrom(l.Listen.Addr().Unmap(), l.Listen.Port())
		is := &listener{ListenerConfig: l.ListenerConfig, report: Listener{
			Name: l.Name, Protocol: l.Protocol.String(), Listen: at.String(),
			Dropped: map[string]int64{}, WouldDrop: map[string]int64{},
		}}
		ls.all = append(ls.all, is)
		if at.Port() != 0 {
			ls.byAddress[address{l.Protocol, at}] = is
		}
	}
	return ls
}

// under gives every listener the numbers that its policies have in an engine.
func (ls *listeners) under(e *engine.Engine, c *config.Config) error {
	numbered, err := c.Gateway(e)
	for i, l := range numbered {
		ls.all[i].ListenerConfig = l
		ls.policies[l.Policy] = c.Listeners[i].PolicyName
		for opcode, id := range l.Opcodes.Policies {
			ls.policies[id] = c.Listeners[i].OpcodePolicies[opcode]
		}
	}
	return err
}

// find is the rule of the sockets: the listener on exactly this address and port,
// else the one on the wildcard of its family. It returns nil and why where there
// is none.
func (ls *listeners) find(s *segment) (*listener, outside) {
	if s.outgoing {
		return nil, outgoing
	}
	if l := ls.byAddress[address{s.protocol, s.dst}]; l != nil {
		return l, ""
	}
	to := s.dst.Addr()
	wildcard := netip.IPv6Unspecified()
	if to.Is4() {
		wildcard = netip.IPv4Unspecified()
	}
	l := ls.byAddress[address{s.protocol, netip.AddrPortFrom(wildcard, s.dst.Port())}]
	switch {
	case l == nil || to.IsMulticast():
		return nil, otherAddress
	case s.src.Port() == s.dst.Port() && s.src != s.dst && ls.local[s.src.Addr()]:
		return nil, outgoing // the answer to a client that has the same port
	}
	if to != ls.last {
		ls.local[to], ls.last = true, to
	}
	return l, ""
}

// own says whether an address is that of a listener.
func (ls *listeners) own(p netx.Protocol, a netip.AddrPort) bool {
	return ls.byAddress[address{p, a}] != nil
}
