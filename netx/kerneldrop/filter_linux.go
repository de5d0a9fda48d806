package kerneldrop

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/seed-ee4278a0/throttled/engine"
)

// A Filter drops what comes to the sockets of a listener from who is banned, or
// locked out under the listener's policy. Its methods may be called from several
// goroutines; those of a nil Filter do nothing.
type Filter struct {
	table  *Table
	policy engine.PolicyID
	prog   *ebpf.Program
	gate   *ebpf.Map // array of one: 0 lets everything pass; guarded by the table's mu

	mu      sync.Mutex // guards what follows
	tallies *ebpf.Map  // array of one for each CPU; nil after Close
	total   tally      // what tallies held at Close
}

// A tally is what a filter has dropped, as the program counts it.
type tally struct{ Packets, Bytes uint64 }

// Filter returns the filter of a listener under the policy. It drops nothing
// while the policy is a dry run.
func (t *Table) Filter(id engine.PolicyID) (*Filter, error) {
	f := &Filter{table: t, policy: id}
	if err := f.load(); err != nil {
		return nil, errors.Join(cure(err), f.free())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filters[f] = struct{}{}
	if err := t.setGates(); err != nil {
		t.fail(err)
	}
	return f, nil
}

func (f *Filter) load() (err error) {
	if f.gate, err = newMap(ebpf.MapSpec{Name: "throttled_gate", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}); err != nil {
		return err
	}
	if f.tallies, err = newMap(ebpf.MapSpec{Name: "throttled_count", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1}); err != nil {
		return err
	}
	f.prog, err = load(f.table.program(f.policy, f.gate, f.tallies))
	return err
}

// free gives up what load has made; nil is fine.
func (f *Filter) free() error { return errors.Join(f.gate.Close(), f.tallies.Close(), f.prog.Close()) }

// setGate lets the filter drop, or lets everything pass.
func (f *Filter) setGate(drops bool) error {
	value := uint32(0)
	if drops {
		value = 1
	}
	if err := f.gate.Put(uint32(0), value); err != nil {
		return fmt.Errorf("kerneldrop: setting a gate: %w", err)
	}
	return nil
}

// Attach puts the filter on a UDP socket, for as long as the socket is open. It
// takes the place of one that is there.
func (f *Filter) Attach(fd int) error {
	if f == nil {
		return nil
	}
	return attach(fd, f.prog)
}

// Locked says that a packet was just denied with a HardLockout, so that the next
// ones are dropped in the kernel if its endpoint is locked out. It never waits;
// where there are too many at once some are forgotten.
func (f *Filter) Locked(from netip.AddrPort) {
	if f == nil {
		return
	}
	select {
	case f.table.offers <- offer{from, f.policy}:
	default:
	}
}

// Counts returns how many datagrams the kernel has dropped, and how many bytes
// of payload they had.
func (f *Filter) Counts() (packets, bytes int64) {
	if f == nil {
		return 0, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	total, err := f.read()
	if err == nil {
		f.total = total
	}
	return int64(f.total.Packets), int64(f.total.Bytes)
}

// read adds the tallies up.
func (f *Filter) read() (total tally, err error) {
	if f.tallies == nil {
		return f.total, nil
	}
	var each []tally
	if err := f.tallies.Lookup(uint32(0), &each); err != nil {
		return total, fmt.Errorf("kerneldrop: reading the counts: %w", err)
	}
	for _, t := range each {
		total.Packets += t.Packets
		total.Bytes += t.Bytes
	}
	return total, nil
}

// Close frees what the filter has; its sockets are to be closed before. Counts
// goes on to answer with what was dropped until then. It is idempotent.
func (f *Filter) Close() (err error) {
	if f == nil {
		return nil
	}
	f.table.mu.Lock()
	delete(f.table.filters, f)
	f.table.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tallies == nil {
		return nil
	}
	f.total, err = f.read()
	err = errors.Join(err, f.free())
	f.tallies = nil
	return err
}
