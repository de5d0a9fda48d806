package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/engine"
	"github.com/seed-ee4278a0/throttled/policy"
)

const (
	maxBody = 4096
	maxNote = 200 // bytes
)

// Bans is the answer to GET /v1/bans.
type Bans struct {
	Bans      []Ban     `json:"bans"`
	Lockouts  []Lockout `json:"lockouts"`   // at most the limit, those denied most first
	LockedOut int       `json:"locked_out"` // how many there are in all
}

// A Ban is a prefix that is kept out.
type Ban struct {
	Prefix netip.Prefix `json:"prefix"`
	Kind   string       `json:"kind"`             // ban, or deny where the configuration says so
	Until  time.Time    `json:"until,omitzero"`   // left out: until somebody lifts it
	LeftMs int64        `json:"left_ms,omitzero"` // likewise
	Note   string       `json:"note,omitzero"`
	// Warning says why the ban is not what it looks like; only of a new one.
	Warning string `json:"warning,omitzero"`
}

// A Lockout is an endpoint that is locked out under a policy.
type Lockout struct {
	Endpoint string `json:"endpoint"` // as it is to be named to lift it
	Policy   string `json:"policy"`
	LeftMs   int64  `json:"left_ms"`
	DryRun   bool   `json:"dry_run,omitzero"` // of the policy: nobody is kept out
}

// A BanRequest is the body of POST /v1/bans.
type BanRequest struct {
	Prefix string `json:"prefix"`
	For    string `json:"for,omitzero"` // a duration; "" and 0 = until somebody lifts it
	Note   string `json:"note,omitzero"`
}

// Lifted is the answer to DELETE /v1/bans/{prefix}.
type Lifted struct {
	Prefix  netip.Prefix `json:"prefix"`
	Warning string       `json:"warning,omitzero"`
}

func (h *handler) bans(w http.ResponseWriter, r *http.Request) {
	limit, ok := limitOf(w, r)
	if !ok {
		return
	}
	now := time.Now()
	all := Bans{Bans: []Ban{}, Lockouts: []Lockout{}}
	for _, l := range h.Engine.Listings() {
		if l.Kind != engine.Exempted {
			all.Bans = append(all.Bans, newBan(l, now))
		}
	}
	rows, _, lockedOut := h.Engine.Endpoints(limit)
	for _, row := range rows {
		if row.LockedForMs > 0 {
			all.Lockouts = append(all.Lockouts, Lockout{row.Endpoint, row.Policy, row.LockedForMs, row.DryRun})
		}
	}
	all.LockedOut = lockedOut
	answer(w, http.StatusOK, all)
}

func newBan(l engine.Listing, now time.Time) Ban {
	b := Ban{Prefix: l.Prefix, Kind: l.Kind.String(), Note: l.Note}
	if !l.Until.IsZero() {
		b.Until, b.LeftMs = l.Until.UTC(), milliseconds(l.Until.Sub(now))
	}
	return b
}

// milliseconds rounds up, and is -1 for what has no end.
func milliseconds(d time.Duration) int64 {
	if d == policy.Never {
		return -1
	}
	return int64(max(0, d+time.Millisecond-1) / time.Millisecond)
}

func (h *handler) ban(w http.ResponseWriter, r *http.Request) {
	var body BanRequest
	if status, err := readJSON(w, r, &body); err != nil {
		fail(w, status, err.Error())
		return
	}
	p, d, err := body.parse()
	if err == nil {
		err = h.Engine.Ban(p, d, body.Note)
	}
	switch {
	case errors.Is(err, engine.ErrClosed):
		fail(w, http.StatusServiceUnavailable, "the gateway is at its end")
		return
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	b := Ban{Prefix: p, Kind: engine.Banned.String(), Note: body.Note, Warning: h.saved()}
	length := "until unban"
	if d > 0 {
		length = d.String()
		b.Until, b.LeftMs = time.Now().Add(d).UTC(), milliseconds(d)
	}
	h.Logger.Info("banned", "prefix", p.String(), "for", length, "note", body.Note)
	if exempt, _ := h.Engine.Listed(p); exempt {
		b.Warning = strings.TrimPrefix(b.Warning+"; the prefix is exempt, too, and that counts", "; ")
	}
	answer(w, http.StatusOK, b)
}

func (b *BanRequest) parse() (p netip.Prefix, d time.Duration, err error) {
	p, errPrefix := config.ParsePrefix(b.Prefix)
	if b.For != "" {
		if d, err = config.ParseInterval(b.For); err != nil {
			err = fmt.Errorf("for: %w", err)
		}
	}
	return p, d, errors.Join(errPrefix, err, CheckNote(b.Note))
}

// CheckNote refuses a note that does not fit into a line of a table.
func CheckNote(s string) error {
	if len(s) > maxNote || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("note: it is too long or has control characters; allowed: up to %d bytes of text in a line", maxNote)
	}
	return nil
}

// held says why a prefix is kept out.
var held = map[engine.ListKind]string{
	engine.Banned: "which is banned",
	engine.Denied: "which the configuration denies",
}

func (h *handler) unban(w http.ResponseWriter, r *http.Request) {
	p, err := ParseBanned(r.PathValue("prefix"))
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if h.Engine.Unban(p) {
		h.Logger.Info("unbanned", "prefix", p.String())
		answer(w, http.StatusOK, Lifted{p, h.saved()})
		return
	}
	holds := ""
	if x, ok := h.Engine.Explain(netip.AddrPortFrom(p.Addr(), 0), 0); ok {
		for _, l := range x.Lists {
			if l.Prefix == p && l.Kind == engine.Denied {
				fail(w, http.StatusConflict, p.String()+" is denied by the configuration, and no ban: take it out there")
				return
			}
			if l.Prefix.Bits() < p.Bits() && l.Kind != engine.Exempted && holds == "" {
				holds = "; it is within " + l.Prefix.String() + ", " + held[l.Kind]
			}
		}
	}
	fail(w, http.StatusNotFound, "there is no ban of "+p.String()+" and no lockout"+holds)
}

// ParseBanned reads what is to be lifted: the prefix of a ban, or an endpoint as
// the list of lockouts and a report write it, whose port counts for nothing.
func ParseBanned(s string) (netip.Prefix, error) {
	p, err := config.ParsePrefix(s)
	if err == nil {
		return p, nil
	}
	ep, bits, otherErr := config.ParseEndpoint(s)
	if otherErr != nil {
		return p, err
	}
	a := ep.Addr().WithZone("")
	return config.ParsePrefix(netip.PrefixFrom(a, bits).String())
}

// saved has the change saved, and returns a warning where that cannot be done.
func (h *handler) saved() string {
	if err := h.Save(); err != nil {
		return "in force, but a restart will forget it: " + err.Error()
	}
	return ""
}

// readJSON reads a body that is one JSON object and nothing else.
func readJSON(w http.ResponseWriter, r *http.Request, to any) (status int, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, errors.New("the body has to be JSON, with Content-Type: application/json")
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err = d.Decode(to)
	if err == nil {
		if err = d.Decode(new(json.RawMessage)); err == io.EOF {
			return 0, nil
		}
		err = errors.Join(errors.New("the body goes on behind the object"), err)
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", maxBody)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("a JSON %s; allowed: an object", wrong.Value)
		if wrong.Field != "" {
			err = fmt.Errorf("%s: a %s; allowed: a %s", wrong.Field, wrong.Value, wrong.Type)
		}
	}
	if err == io.EOF {
		err = errors.New("it is empty")
	}
	return http.StatusBadRequest, fmt.Errorf("the body is not what it has to be: %w", err)
}
