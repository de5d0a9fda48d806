package engine

import (
	"net/netip"
	"time"
)

// A ListKind is the list that a Listing is on.
type ListKind uint8

// The kinds of listings.
const (
	Exempted ListKind = iota // by Exempt
	Denied                   // by Deny
	Banned                   // by Ban
)

// String returns exempt, deny or ban.
func (k ListKind) String() string { return [...]string{"exempt", "deny", "ban"}[k] }

// A Listing is what one list says of a prefix.
type Listing struct {
	Kind   ListKind
	Prefix netip.Prefix
	Until  time.Time // of a ban; zero: until Unban
	Note   string    // of a ban
}

// listings are what the lists say of the prefix at a reading of the clock, what
// counts first. The ends are on the wall clock as it shows then, whatever it
// showed when the engine was made.
func (l listed) listings(list []Listing, p netip.Prefix, at time.Time, now int64) []Listing {
	if l.exempt {
		list = append(list, Listing{Kind: Exempted, Prefix: p})
	}
	if l.denied {
		list = append(list, Listing{Kind: Denied, Prefix: p})
	}
	if l.bannedAt(now) {
		ban := Listing{Kind: Banned, Prefix: p, Note: l.note}
		if l.until != forever {
			ban.Until = at.Add(time.Duration(l.until - now))
		}
		list = append(list, ban)
	}
	return list
}

// Listings returns all that is listed and has not ended, in the order of the
// prefixes; of one prefix what counts comes first.
func (e *Engine) Listings() []Listing { return e.listingsAt(e.time()) }

func (e *Engine) listingsAt(at time.Time) (list []Listing) {
	for p, rule := range e.prefixes().AllSorted() {
		list = rule.listings(list, p, at, int64(at.Sub(e.base)))
	}
	return list
}

// listingsOf are those that hold an address, the longest prefix first.
func (e *Engine) listingsOf(addr netip.Addr, at time.Time) (list []Listing) {
	addr = addr.Unmap().WithZone("")
	for p, rule := range e.prefixes().Supernets(netip.PrefixFrom(addr, addr.BitLen())) {
		list = rule.listings(list, p, at, int64(at.Sub(e.base)))
	}
	return list
}

// Bans returns the bans that have not ended, in the order of their prefixes.
func (e *Engine) Bans() []Ban { return e.bansAt(e.time()) }

func (e *Engine) bansAt(at time.Time) (bans []Ban) {
	for _, l := range e.listingsAt(at) {
		if l.Kind == Banned {
			bans = append(bans, Ban{l.Prefix, l.Until, l.Note})
		}
	}
	return bans
}
