package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gaissmai/bart"

	"github.com/seed-ee4278a0/throttled/policy"
	"github.com/seed-ee4278a0/throttled/shard"
)

// ErrSnapshot is matched by the error of ReadSnapshot for what is not a whole
// and undamaged snapshot.
var ErrSnapshot = errors.New("engine: not a valid snapshot")

// A snapshot is the magic, the gob of a snapshotData, and the xxhash of both.
const snapshotMagic = "throttled-state-1\n"

// snapshotData is the state at At, on the wall clock, and of each endpoint a
// little later, when its turn came. The durations of its state count from then,
// so that they are ends on the wall clock too.
type snapshotData struct {
	At        time.Time
	Bans      []savedBan
	Endpoints []savedEndpoint
}

type savedBan struct {
	Prefix netip.Prefix
	Until  time.Time // zero: until Unban
	Note   string
}

type savedEndpoint struct {
	Endpoint netip.AddrPort
	Policy   string
	Later    time.Duration // than At
	State    policy.Saved
}

// WriteSnapshot writes what a restart must not lose: bans, though not the lists
// of Exempt and Deny, which somebody gave and will give again, and of every
// endpoint that has something to be remembered by its tokens, lockouts, denials
// and growth. Ends are wall-clock times.
func (e *Engine) WriteSnapshot(w io.Writer) error {
	at := e.time()
	data := snapshotData{At: at.Round(0)}
	for _, b := range e.bansAt(at) {
		data.Bans = append(data.Bans, savedBan{b.Prefix, b.Until.Round(0), b.Note})
	}
	e.walk(func(row shard.Row) {
		if row.Rule.ForgetIn(&row.State, &row.History, row.At) == 0 {
			return
		}
		ep, _ := e.addrPort(row.Key)
		data.Endpoints = append(data.Endpoints, savedEndpoint{
			Endpoint: ep,
			Policy:   row.Rule.Policy().Name,
			Later:    max(0, time.Duration(row.At.Now)-at.Sub(e.base)),
			State:    row.Rule.Save(&row.State, &row.History, row.At),
		})
	})
	b, err := data.seal()
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		return fmt.Errorf("engine: snapshot: %w", err)
	}
	return nil
}

func (d snapshotData) seal() ([]byte, error) {
	buf := bytes.NewBufferString(snapshotMagic)
	if err := gob.NewEncoder(buf).Encode(d); err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint64(buf.Bytes(), xxhash.Sum64(buf.Bytes())), nil
}

// ReadSnapshot takes in what WriteSnapshot wrote: the time since then counts
// for refill, lockouts and bans, and none of them gets longer where the wall
// clock was set back. Endpoints that are tracked and prefixes that are banned
// already stay as they are. What has no place any more, since its policy is gone
// or the table is full, is left out with a warning; who is locked out goes
// first. On an error, which matches ErrSnapshot where the snapshot is damaged,
// nothing changes.
func (e *Engine) ReadSnapshot(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("engine: snapshot: %w", err)
	}
	data, err := parseSnapshot(b)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return ErrClosed
	}
	ago := max(0, e.time().Sub(data.At))
	e.restoreBans(data, ago)
	if left := e.restoreEndpoints(data.Endpoints, ago); left > 0 {
		e.cfg.Logger.Warn("endpoints of the snapshot have no place here", "left_out", left, "of", len(data.Endpoints))
	}
	return nil
}

func parseSnapshot(b []byte) (data snapshotData, err error) {
	body, sum := b[:max(0, len(b)-8)], b[max(0, len(b)-8):]
	if !bytes.HasPrefix(body, []byte(snapshotMagic)) || xxhash.Sum64(body) != binary.BigEndian.Uint64(sum) {
		return data, fmt.Errorf("%w: cut, damaged or of another version", ErrSnapshot)
	}
	rest := bytes.NewReader(body[len(snapshotMagic):])
	if err := gob.NewDecoder(rest).Decode(&data); err != nil {
		return data, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if rest.Len() > 0 {
		return data, fmt.Errorf("%w: %d bytes too many", ErrSnapshot, rest.Len())
	}
	return data, data.validate()
}

func (d snapshotData) validate() error {
	for _, b := range d.Bans {
		if !b.Prefix.IsValid() {
			return fmt.Errorf("%w: a ban without a prefix", ErrSnapshot)
		}
	}
	for _, ep := range d.Endpoints {
		s := ep.State
		if !ep.Endpoint.IsValid() || ep.Later < 0 || s.Packets.Tokens < 0 || s.Bytes.Tokens < 0 || s.Window < 0 || s.Counted < 0 {
			return fmt.Errorf("%w: the state of %v is out of range", ErrSnapshot, ep.Endpoint)
		}
	}
	return nil
}

func (e *Engine) restoreBans(data snapshotData, ago time.Duration) {
	now := e.elapsed()
	e.edit(func(t *bart.Table[listed]) {
		for _, b := range data.Bans {
			until := int64(forever)
			if !b.Until.IsZero() {
				left := max(0, b.Until.Sub(data.At)) - ago
				if left <= 0 {
					continue
				}
				until = now + min(int64(left), forever-now)
			}
			if was, ok := t.Get(canonical(b.Prefix)); !ok || !was.banned || now >= was.until {
				t.Modify(canonical(b.Prefix), banned(until, b.Note))
			}
		}
	})
	for _, b := range data.Bans {
		e.changed(canonical(b.Prefix), false)
	}
}

// restoreEndpoints returns how many had no place.
func (e *Engine) restoreEndpoints(endpoints []savedEndpoint, ago time.Duration) (left int) {
	slices.SortStableFunc(endpoints, func(a, b savedEndpoint) int {
		return cmp.Compare(b.State.LockedFor, a.State.LockedFor)
	})
	at, _ := e.now()
	policies := e.names.Load()
	for _, ep := range endpoints {
		id, ok := policies.id(ep.Policy)
		if !ok || !e.table.Restore(e.key(ep.Endpoint, id), ep.State, at, max(0, ago-ep.Later)) {
			left++
		}
	}
	return left
}
