package kerneldrop

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/seed-ee4278a0/throttled/engine"
)

const (
	// queued bounds the denials that wait for the goroutine, and a batch of them.
	queued = 1024
	// pause is the time between two batches: what comes meanwhile makes one.
	pause = 2 * time.Millisecond
	// sweepEvery is how soon what has ended leaves the maps.
	sweepEvery = 250 * time.Millisecond
)

// A Table is what the kernel knows of an engine. Its methods may be called from
// several goroutines.
type Table struct {
	engine   *engine.Engine
	identity identity
	log      *slog.Logger
	ahead    int64 // the kernel's clock, less ours

	prefixes  *ebpf.Map // trie: prefixKey -> exempt or the end of a ban
	endpoints *ebpf.Map // hash: endpointKey -> the end of a lockout

	offers  chan offer
	stop    chan struct{}
	done    sync.WaitGroup
	unwatch func()
	closing sync.Once

	mu      sync.Mutex // guards what follows, and is held while the maps are made to match
	listed  copyOf[prefixKey]
	locked  copyOf[endpointKey]
	filters map[*Filter]struct{} // those that are not closed
	failed  bool
}

// An offer is somebody who was just denied with a HardLockout.
type offer struct {
	from   netip.AddrPort
	policy engine.PolicyID
}

// New returns a Table that follows the engine until Close. The error says what
// is missing where the kernel does not allow it; it matches ErrUnsupported where
// the kernel never will.
func New(c Config) (*Table, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	t := &Table{
		engine:   c.Engine,
		identity: identityOf(c.Engine.Config()),
		log:      c.Logger,
		offers:   make(chan offer, queued),
		filters:  make(map[*Filter]struct{}),
		stop:     make(chan struct{}),
	}
	if err := t.makeMaps(c); err != nil {
		return nil, errors.Join(cure(err), t.closeMaps())
	}
	t.unwatch = t.engine.Watch(t.changed)
	t.done.Go(t.run)
	return t, nil
}

func (t *Table) makeMaps(c Config) (err error) {
	if t.ahead, err = clockAhead(); err != nil {
		return err
	}
	// One more than is ever in use: older kernels want room to replace an entry.
	if t.prefixes, err = newMap(ebpf.MapSpec{
		Name: "throttled_lists", Type: ebpf.LPMTrie, KeySize: 24, ValueSize: 8,
		MaxEntries: uint32(c.Prefixes) + 1, Flags: unix.BPF_F_NO_PREALLOC,
	}); err != nil {
		return err
	}
	if t.endpoints, err = newMap(ebpf.MapSpec{
		Name: "throttled_locked", Type: ebpf.Hash, KeySize: 24, ValueSize: 8,
		MaxEntries: uint32(c.Endpoints) + 1,
	}); err != nil {
		return err
	}
	t.listed = newCopy[prefixKey](t.prefixes, c.Prefixes, false)
	t.locked = newCopy[endpointKey](t.endpoints, c.Endpoints, true)
	return nil
}

// run copies the lockouts that are offered and removes what has ended.
func (t *Table) run() {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-sweep.C:
			t.sweep()
		case o := <-t.offers:
			t.admit(o)
			select {
			case <-t.stop:
				return
			case <-time.After(pause):
			}
		}
	}
}

// now is the kernel's clock, or a little less.
func (t *Table) now() int64 {
	now, err := clock()
	if err != nil {
		t.fail(err) // never seen; without a clock nothing may be copied
	}
	return now + t.ahead
}

// admit copies the lockout of a source and of those that wait behind it. The
// engine is asked whether there is one: a denial may have another reason, or may
// have been lifted. The clock is read first, so that no end comes out late.
func (t *Table) admit(o offer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed {
		return
	}
	now := t.now()
	var (
		seen = make(map[endpointKey]bool)
		keys []endpointKey
		ends []uint64
	)
	for n := len(t.offers); ; n-- {
		k, ok := t.identity.key(o.from, o.policy)
		if ok && !seen[k] && t.locked.ends[k] <= uint64(now) {
			seen[k] = true
			if left := t.engine.LockedFor(o.from, o.policy); left > 0 {
				keys = append(keys, k)
				ends = append(ends, after(now, left))
			}
		}
		if n == 0 {
			break
		}
		o = <-t.offers
	}
	t.settle(t.locked.put(keys, ends), &t.locked.said)
}

// changed follows the engine where it keeps somebody out for less long.
func (t *Table) changed(p netip.Prefix, lifted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed {
		return
	}
	if p.IsValid() {
		t.settle(t.list(p), &t.listed.said)
	}
	if lifted {
		t.settle(t.recheck(p), &t.locked.said)
	}
	if lifted && !p.IsValid() {
		t.settle(t.setGates(), nil)
	}
}

// setGates follows what is said of the policies, and lets everything pass at the
// end.
func (t *Table) setGates() (err error) {
	for f := range t.filters {
		err = errors.Join(err, f.setGate(!t.failed && !t.engine.DryRun(f.policy)))
	}
	return err
}

// list copies what the lists say of a prefix. Without one of the exemptions the
// others would be worth nothing.
func (t *Table) list(p netip.Prefix) error {
	now := t.now()
	k := keyOfPrefix(p)
	free, left := t.engine.Listed(p)
	switch {
	case free:
		if err := t.listed.put([]prefixKey{k}, []uint64{exempt}); err != nil {
			return fmt.Errorf("kerneldrop: exempting %v: %v", p, err) // not errFull
		}
		return nil
	case left > 0:
		return t.listed.put([]prefixKey{k}, []uint64{after(now, left)})
	}
	return t.listed.remove(k)
}

// recheck asks again about the lockouts of the endpoint that p is an address
// of, and about all where p is zero.
func (t *Table) recheck(p netip.Prefix) error {
	var of netip.Addr
	if p.IsValid() {
		of = t.identity.endpoint(p.Addr())
	}
	var (
		gone, kept []endpointKey
		ends       []uint64
	)
	for k, end := range t.locked.ends {
		if of.IsValid() && k.addr() != of {
			continue
		}
		now := t.now()
		left := t.engine.LockedFor(k.addrPort(), engine.PolicyID(k.Policy))
		switch until := after(now, left); {
		case left == 0:
			gone = append(gone, k)
		case until < end: // locked out anew meanwhile, or just the time that asking took
			kept = append(kept, k)
			ends = append(ends, until)
		}
	}
	return errors.Join(t.locked.remove(gone...), t.locked.put(kept, ends))
}

// sweep removes what has ended.
func (t *Table) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed {
		return
	}
	now := uint64(t.now())
	t.settle(t.listed.sweep(now), nil)
	t.settle(t.locked.sweep(now), nil)
}

// settle deals with the outcome of a change. That a map is full is said once.
func (t *Table) settle(err error, said *bool) {
	switch {
	case err == nil:
	case !errors.Is(err, errFull):
		t.fail(err)
	case !*said:
		*said = true
		t.log.Warn("kernel drop: no room in the kernel, user space drops the others", "error", err)
	}
}

// fail ends all dropping, as a copy that cannot follow would drop what it must
// not. The caller holds mu.
func (t *Table) fail(err error) {
	if t.failed {
		return
	}
	t.failed = true
	t.log.Warn("kernel drop has ended, user space drops", "error", errors.Join(err, t.setGates()))
}

// Close ends the copying and frees the maps; filters that are still on a socket
// let everything pass from then on. It is idempotent and returns when the
// goroutine has ended.
func (t *Table) Close() (err error) {
	t.closing.Do(func() {
		t.unwatch()
		close(t.stop)
		t.done.Wait()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.failed = true
		err = errors.Join(t.setGates(), t.closeMaps())
	})
	return err
}

func (t *Table) closeMaps() error {
	return errors.Join(t.prefixes.Close(), t.endpoints.Close()) // nil is fine
}
