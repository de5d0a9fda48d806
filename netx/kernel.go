package netx

import (
	"errors"
	"log/slog"

	"github.com/seed-ee4278a0/throttled/netx/kerneldrop"
)

// openKernelDrop returns what the filters of the UDP listeners share, nil where
// the kernel does not allow it.
func openKernelDrop(f *frame) *kerneldrop.Table {
	table, err := kerneldrop.New(kerneldrop.Config{Engine: f.engine, Logger: f.log})
	if err != nil {
		warnNoKernelDrop(f.log, err)
		return nil
	}
	return table
}

// filtered says whether the kernel may drop by the source alone: not where nothing
// is to be dropped, nor where the policy or the client hangs on the payload.
func (l ListenerConfig) filtered() bool {
	return l.Protocol == UDP && !l.DryRun && len(l.Opcodes.Policies)+len(l.Proxy.AcceptFrom) == 0
}

// kernelFilter returns the filter of a UDP listener, nil where there is none.
func (f *frame) kernelFilter(cfg ListenerConfig) *kerneldrop.Filter {
	if f.kernelDrop == nil || !cfg.filtered() {
		return nil
	}
	filter, err := f.kernelDrop.Filter(cfg.Policy)
	if err != nil {
		warnNoKernelDrop(f.log.With("listener", cfg.Name), err)
		return nil
	}
	return filter
}

// useFilter puts the listener's filter on one of its sockets, in the place of
// one that is there.
func (s *udpServer) useFilter(fd int) {
	if s.kernelDrop == nil {
		return
	}
	err := s.filter.Attach(fd)
	if s.filter == nil || err != nil {
		err = errors.Join(err, kerneldrop.Detach(fd))
	}
	if err != nil {
		warnNoKernelDrop(s.log.With("listener", s.cfg.Name), err)
	}
}

func warnNoKernelDrop(log *slog.Logger, err error) {
	log.Warn("kernel drop is not available, user space drops", "error", err)
}

// addKernelDrops adds what a filter has dropped to the report of its listener.
func (r *ListenerReport) addKernelDrops(f *kerneldrop.Filter) {
	packets, bytes := f.Counts()
	if packets == 0 {
		return
	}
	r.ReceiveBufferDropped -= packets // which the socket has counted, too
	r.Packets += packets
	r.Bytes += bytes
	r.Dropped[dropKernel.String()] += packets
}
