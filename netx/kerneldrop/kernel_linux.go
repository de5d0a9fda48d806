package kerneldrop

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// The ends in the maps are nanoseconds on the kernel's clock. That of an
// exemption has always come: what it is found for passes.
const (
	exempt  = 0
	forever = math.MaxUint64
)

// newMap makes a map of the kernel. Before Linux 5.11 its memory is locked
// memory, of which a process may not have much.
func newMap(spec ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&spec)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOMEM) {
		if unlockMemory() {
			m, err = ebpf.NewMap(&spec)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("kerneldrop: making the map %s: %w", spec.Name, err)
	}
	return m, nil
}

// unlockMemory raises the limit of locked memory where it may, and reports
// whether there is more than before.
func unlockMemory() bool {
	var was unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was) != nil || was.Cur == unix.RLIM_INFINITY {
		return false
	}
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &all) == nil
}

// cure adds to an error what helps against it.
func cure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: it takes CAP_BPF (setcap cap_bpf+ep FILE; AmbientCapabilities=CAP_BPF in a systemd unit; --cap-add BPF for a container)", err)
	case errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: %w: it takes Linux 5.8 or later with CONFIG_BPF_SYSCALL", ErrUnsupported, err)
	}
	return err
}

// clock reads the monotonic clock that package time reads too.
func clock() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("kerneldrop: reading the clock: %w", err)
	}
	return ts.Nano(), nil
}

// clockAhead measures how far the clock that filters read is ahead of ours, or
// a little less: it is the same one, stands still while the machine sleeps as
// ours does, but starts elsewhere in a time namespace. A filter that notes the
// time is put on a socket of our own, and what passes through it arrives at
// once. Where this works the rest does.
func clockAhead() (int64, error) {
	noted, err := newMap(ebpf.MapSpec{Name: "throttled_clock", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return 0, err
	}
	defer noted.Close()
	prog, err := load(append(append(asm.Instructions{
		asm.StoreImm(asm.RFP, stackIndex, 0, asm.Word),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R7, asm.R0),
	}, lookup("", noted, stackIndex)...),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.StoreMem(asm.R0, 0, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R0, wholeDatagram).WithSymbol("end"),
		asm.Return()))
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	if err := sendThrough(prog); err != nil {
		return 0, err
	}
	now, err := clock()
	if err != nil {
		return 0, err
	}
	var then uint64
	if err := noted.Lookup(uint32(0), &then); err != nil || then == 0 {
		return 0, fmt.Errorf("%w: a filter did not run (%v)", ErrUnsupported, err)
	}
	return int64(then) - now, nil
}

// sendThrough sends a byte through a socket that has the filter.
func sendThrough(prog *ebpf.Program) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("kerneldrop: making a socket: %w", err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := attach(pair[1], prog); err != nil {
		return err
	}
	if _, err := unix.Write(pair[0], []byte{0}); err != nil {
		return fmt.Errorf("kerneldrop: sending through a filter: %w", err)
	}
	return nil
}

// attach puts the filter on a socket, in the place of one that is there.
func attach(fd int, prog *ebpf.Program) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, prog.FD()); err != nil {
		return fmt.Errorf("kerneldrop: attaching the filter: %w", err)
	}
	return nil
}

// Detach takes off what is attached to a socket, if there is something.
func Detach(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	if err != nil && err != unix.ENOENT {
		return fmt.Errorf("kerneldrop: taking the filter off: %w", err)
	}
	return nil
}

// after is the end, on the kernel's clock, of what lasts for so long from now.
func after(now int64, left time.Duration) uint64 {
	if int64(left) > math.MaxInt64-max(0, now) {
		return forever
	}
	return uint64(now + int64(left))
}
