package engine

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"sync"

	"github.com/seed-ee4278a0/throttled/shard"
)

// masks cut an address down to what makes an endpoint.
type masks struct {
	v4         uint64 // of the low word
	v6hi, v6lo uint64
}

func newMasks(c Config) masks {
	return masks{
		v4:   ^uint64(0) << (32 - c.IPv4Prefix),
		v6hi: ^uint64(0) << max(0, 64-c.IPv6Prefix),
		v6lo: ^uint64(0) << min(64, 128-c.IPv6Prefix),
	}
}

// mapped is the high half of the low word of an IPv4-mapped address.
const mapped = 0xffff

// key is the identity rule: the unmapped address under its mask, the zone of a
// link-local address, and the port with KeyByPort.
func (e *Engine) key(ep netip.AddrPort, id PolicyID) shard.Key {
	addr := ep.Addr()
	b := addr.As16()
	k := shard.Key{
		Hi:     binary.BigEndian.Uint64(b[:8]),
		Lo:     binary.BigEndian.Uint64(b[8:]),
		Policy: uint16(id),
	}
	if e.cfg.KeyByPort {
		k.Port = ep.Port()
	}
	if k.Hi == 0 && k.Lo>>32 == mapped {
		k.Lo &= e.masks.v4
		return k
	}
	k.Hi &= e.masks.v6hi
	k.Lo &= e.masks.v6lo
	if k.Hi&linkLocalMask == linkLocal {
		k.Hi = e.zones.pack(k.Hi, addr.Zone())
	}
	return k
}

// linkLocal is fe80::/10.
const (
	linkLocal     = 0xfe80 << 48
	linkLocalMask = 0xffc0 << 48
)

// addrPort is the endpoint of a key; prefix is its length.
func (e *Engine) addrPort(k shard.Key) (ep netip.AddrPort, prefix int) {
	if k.Hi == 0 && k.Lo>>32 == mapped {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(k.Lo))
		return netip.AddrPortFrom(netip.AddrFrom4(b), k.Port), e.cfg.IPv4Prefix
	}
	zone := ""
	if k.Hi&linkLocalMask == linkLocal {
		k.Hi, zone = e.zones.unpack(k.Hi)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.Hi)
	binary.BigEndian.PutUint64(b[8:], k.Lo)
	return netip.AddrPortFrom(netip.AddrFrom16(b).WithZone(zone), k.Port), e.cfg.IPv6Prefix
}

// endpoint is how a report writes the endpoint of a key: an address, a prefix
// where it stands for more than one, and the port where it counts.
func (e *Engine) endpoint(k shard.Key) string {
	ep, prefix := e.addrPort(k)
	s := ep.Addr().String()
	if prefix < ep.Addr().BitLen() {
		s += "/" + strconv.Itoa(prefix)
	}
	if !e.cfg.KeyByPort {
		return s
	}
	if ep.Addr().Is6() {
		s = "[" + s + "]"
	}
	return fmt.Sprintf("%s:%d", s, ep.Port())
}

// zones give numbers, from 1 on, to the zones of link-local addresses. The 54
// bits behind fe80::/10 are zero in every such address (RFC 4291, 2.5.6), so the
// number takes their place. Addresses that somebody made up may have other
// bits; a zone with such bits has a number of its own, and so have bits without
// a zone that look like a number.
type zones struct {
	mu      sync.RWMutex
	numbers map[zone]uint16
	zones   []zone
}

type zone struct {
	bits uint64 // the 54
	name string
}

// maxZones bounds what is told apart; those beyond share a number. A host has
// as many zones as it has interfaces.
const maxZones = 1<<16 - 1

// pack returns the high word of a link-local address with its zone in it.
func (z *zones) pack(hi uint64, name string) uint64 {
	bits := hi &^ linkLocalMask
	if name == "" && (bits == 0 || bits > maxZones) {
		return hi
	}
	return linkLocal | uint64(z.number(zone{bits, name}))
}

// unpack is the inverse of pack.
func (z *zones) unpack(hi uint64) (uint64, string) {
	z.mu.RLock()
	defer z.mu.RUnlock()
	n := hi &^ linkLocalMask
	if n == 0 || n > uint64(len(z.zones)) {
		return hi, ""
	}
	is := z.zones[n-1]
	return linkLocal | is.bits, is.name
}

func (z *zones) number(of zone) uint16 {
	z.mu.RLock()
	n, ok := z.numbers[of]
	z.mu.RUnlock()
	if ok {
		return n
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if n, ok = z.numbers[of]; ok {
		return n
	}
	if len(z.zones) == maxZones {
		return maxZones
	}
	if z.numbers == nil {
		z.numbers = make(map[zone]uint16)
	}
	z.zones = append(z.zones, of)
	z.numbers[of] = uint16(len(z.zones))
	return uint16(len(z.zones))
}
