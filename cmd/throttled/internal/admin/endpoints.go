package admin

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/engine"
)

// How many rows a list has: unless the request says something else, and at most.
const (
	usualLimit = 100
	maxLimit   = 10_000
)

// Endpoints is the answer to GET /v1/endpoints.
type Endpoints struct {
	Tracked   int // how many there are, and of them locked out
	LockedOut int
	Endpoints []engine.EndpointReport // at most the limit: who is locked out first, then by denials
}

// An Explanation is the answer to GET /v1/endpoints/{ip}. A time left of -1 has
// no end.
type Explanation struct {
	Endpoint string
	// Rule is what decides: exempt, deny or ban, with the Prefix; or policies,
	// which say each for itself.
	Rule     string
	Prefix   *netip.Prefix `json:",omitempty"`
	Lists    []Listed      // that hold the address; the first decides
	Policies []Standing
}

// A Listed is what a list says of a prefix.
type Listed struct {
	Rule   string // exempt, deny or ban
	Prefix netip.Prefix
	Until  time.Time `json:",omitzero"` // of a ban with an end
	LeftMs int64     // -1 = no end
	Note   string    `json:",omitempty"`
}

// A Standing is how the endpoint stands with a policy.
type Standing struct {
	engine.EndpointReport
	Tracked      bool // false: not seen, or forgotten
	Capacity     int64
	ByteTokens   int64  // of a byte budget
	ByteCapacity int64  // 0 = there is none
	Lockouts     int    // in a row
	Rule         string // what decides: exempt, deny, ban, lockout or bucket
	Next         Next
}

// A Next is what is decided on the next packet, one with a byte of payload. Where
// the policy is a dry run it passes all the same.
type Next struct {
	Allowed      bool
	Reason       string // none, soft_throttle or hard_lockout
	RetryAfterMs int64
}

func (h *handler) endpoints(w http.ResponseWriter, r *http.Request) {
	limit, ok := limitOf(w, r)
	if !ok {
		return
	}
	all := Endpoints{Endpoints: []engine.EndpointReport{}}
	rows, tracked, lockedOut := h.Engine.Endpoints(limit)
	all.Endpoints = append(all.Endpoints, rows...)
	all.Tracked, all.LockedOut = tracked, lockedOut
	answer(w, http.StatusOK, all)
}

// limitOf reads ?limit=N, or answers what is wrong with it.
func limitOf(w http.ResponseWriter, r *http.Request) (limit int, ok bool) {
	limit = usualLimit
	query := r.URL.Query()
	for key, values := range query {
		if key != "limit" || len(values) > 1 {
			fail(w, http.StatusBadRequest, fmt.Sprintf("%s is no parameter here; allowed: limit, once", strconv.Quote(key)))
			return 0, false
		}
	}
	if query.Has("limit") {
		var err error
		if limit, err = strconv.Atoi(query.Get("limit")); err != nil || limit < 1 || limit > maxLimit {
			fail(w, http.StatusBadRequest, fmt.Sprintf("limit: %s is not a number of 1 to %d", strconv.Quote(query.Get("limit")), maxLimit))
			return 0, false
		}
	}
	return limit, true
}

func (h *handler) endpoint(w http.ResponseWriter, r *http.Request) {
	ep, err := h.endpointOf(r.PathValue("ip"))
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	x, _ := h.Engine.Explain(ep, 1)
	answer(w, http.StatusOK, newExplanation(x, time.Now()))
}

// endpointOf refuses what stands for more than one endpoint.
func (h *handler) endpointOf(s string) (netip.AddrPort, error) {
	ep, bits, err := config.ParseEndpoint(s)
	if err != nil {
		return ep, err
	}
	c := h.Engine.Config()
	length := c.IPv6Prefix
	switch a := ep.Addr(); {
	case a.Is4():
		length = c.IPv4Prefix
	case a.Is4In6():
		length = c.IPv4Prefix + 96
	}
	switch {
	case bits < length:
		return ep, fmt.Errorf("%s is more than one endpoint, which has %d bits here; allowed: an address", s, length)
	case c.KeyByPort && ep.Port() == 0:
		return ep, fmt.Errorf("%s has no port, which tells endpoints apart here; allowed: %s", s, netip.AddrPortFrom(ep.Addr(), 4000))
	}
	return ep, nil
}

func newExplanation(x engine.Explanation, now time.Time) Explanation {
	e := Explanation{Endpoint: x.Endpoint, Rule: "policies", Lists: []Listed{}, Policies: []Standing{}}
	for _, l := range x.Lists {
		row := Listed{Rule: l.Kind.String(), Prefix: l.Prefix, LeftMs: -1, Note: l.Note}
		if !l.Until.IsZero() {
			row.Until, row.LeftMs = l.Until.UTC(), milliseconds(l.Until.Sub(now))
		}
		e.Lists = append(e.Lists, row)
	}
	if len(e.Lists) > 0 {
		e.Rule, e.Prefix = e.Lists[0].Rule, &e.Lists[0].Prefix
	}
	for _, s := range x.Policies {
		rule := "bucket"
		switch {
		case len(e.Lists) > 0:
			rule = e.Rule
		case s.LockedForMs > 0:
			rule = "lockout"
		}
		e.Policies = append(e.Policies, Standing{
			s.EndpointReport, s.Tracked, s.Capacity, s.ByteTokens, s.Bytes, s.Lockouts, rule,
			Next{s.Next.Allowed, s.Next.Reason.String(), milliseconds(s.Next.RetryAfter)},
		})
	}
	return e
}
