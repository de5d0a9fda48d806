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
	k := shard.Key{Policy: uint16(id)}
	if e.cfg.KeyByPort {
		k.Port = ep.Port()
	}
	addr := ep.Addr()
	if addr.Is4() || addr.Is4In6() { // As16 would do, at three times the cost: BenchmarkEvaluateBatch
		b := addr.As4()
		k.Lo = (mapped<<32 | uint64(binary.BigEndian.Uint32(b[:]))) & e.masks.v4
		return k
	}
	b := addr.As16()
	k.Hi = binary.BigEndian.Uint64(b[:8]) & e.masks.v6hi
	k.Lo = binary.BigEndian.Uint64(b[8:]) & e.masks.v6lo
	if k.Hi&linkLocalMask == linkLocal {
		k.Hi = linkLocal | uint64(e.zones.number(addr.Zone()))
	}
	return k
}

// linkLocal is fe80::/10. The 54 bits behind it are zero in every such address
// (RFC 4291, 2.5.6), so the number of the zone takes their place, and what an
// address that somebody made up has there makes no endpoint of its own.
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
		zone = e.zones.name(uint16(k.Hi))
		k.Hi = linkLocal
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

// maxZones bounds the zones that are told apart; those beyond share a number.
// A host has as many as it has interfaces.
const maxZones = 1<<16 - 1

// zones give numbers to the zones of link-local addresses: 0 for none, from 1
// on for the others.
type zones struct {
	mu      sync.RWMutex
	numbers map[string]uint16
	names   []string
}

func (z *zones) number(name string) uint16 {
	if name == "" {
		return 0
	}
	z.mu.RLock()
	n, ok := z.numbers[name]
	z.mu.RUnlock()
	if ok {
		return n
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if n, ok = z.numbers[name]; ok {
		return n
	}
	if len(z.names) == maxZones {
		return maxZones
	}
	if z.numbers == nil {
		z.numbers = make(map[string]uint16)
	}
	z.names = append(z.names, name)
	n = uint16(len(z.names))
	z.numbers[z.names[n-1]] = n
	return n
}

func (z *zones) name(n uint16) string {
	z.mu.RLock()
	defer z.mu.RUnlock()
	if n == 0 {
		return ""
	}
	return z.names[n-1]
}
