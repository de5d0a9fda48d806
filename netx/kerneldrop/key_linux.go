package kerneldrop

import (
	"encoding/binary"
	"net/netip"

	"github.com/seed-ee4278a0/throttled/engine"
)

// The families of addresses. They are kept apart, as a prefix such as ::/0 holds
// no IPv4 address.
const (
	family4 = 4
	family6 = 6
)

// A prefixKey is a prefix as the kernel's trie has it: Length counts the bits of
// what follows it. An IPv4 address is the first 4 bytes of Addr.
type prefixKey struct {
	Length uint32
	Family uint32
	Addr   [16]byte
}

// prefixLength is the length of a prefix of so many bits with its family.
func prefixLength(bits int) uint32 { return uint32(32 + bits) }

func keyOfPrefix(p netip.Prefix) prefixKey {
	k := prefixKey{Length: prefixLength(p.Bits())}
	k.Family, k.Addr = parts(p.Masked().Addr())
	return k
}

// An endpointKey is somebody who may be locked out under a policy.
type endpointKey struct {
	Family uint32
	Addr   [16]byte
	Port   [2]byte // big-endian, or zeros
	Policy uint16
}

// parts takes an unmapped address apart.
func parts(a netip.Addr) (family uint32, bytes [16]byte) {
	if a.Is4() {
		b := a.As4()
		copy(bytes[:], b[:])
		return family4, bytes
	}
	return family6, a.As16()
}

func (k endpointKey) addr() netip.Addr {
	if k.Family == family4 {
		return netip.AddrFrom4([4]byte(k.Addr[:4]))
	}
	return netip.AddrFrom16(k.Addr)
}

func (k endpointKey) addrPort() netip.AddrPort {
	return netip.AddrPortFrom(k.addr(), binary.BigEndian.Uint16(k.Port[:]))
}

// identity is how the engine makes endpoints of addresses.
type identity struct {
	ipv4, ipv6 int // bits
	byPort     bool
}

func identityOf(c engine.Config) identity {
	return identity{c.IPv4Prefix, c.IPv6Prefix, c.KeyByPort}
}

// endpoint is the address of the endpoint that an address belongs to.
func (id identity) endpoint(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	bits := id.ipv6
	if a.Is4() {
		bits = id.ipv4
	}
	return netip.PrefixFrom(a, bits).Masked().Addr()
}

// key is the endpoint of a packet under a policy. ok is false for a link-local
// one: it is known by its zone too, which the filter does not see.
func (id identity) key(from netip.AddrPort, policy engine.PolicyID) (k endpointKey, ok bool) {
	a := id.endpoint(from.Addr())
	k.Policy = uint16(policy)
	k.Family, k.Addr = parts(a)
	if id.byPort {
		binary.BigEndian.PutUint16(k.Port[:], from.Port())
	}
	return k, !(a.Is6() && a.IsLinkLocalUnicast())
}
