package netx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	lookUpMost = 5 * time.Second // for all upstreams together
	lookUps    = 16              // at a time
)

// lookUp finds the upstreams of those that are fresh.
func (c *change) lookUp() error {
	ctx, cancel := context.WithTimeout(c.ctx, lookUpMost)
	defer cancel()
	var (
		wg   sync.WaitGroup
		turn = make(chan struct{}, lookUps)
		errs = make([]error, len(c.fresh))
	)
	for i, l := range c.fresh {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			var err error
			if l.upstream, err = resolve(ctx, l.want); err != nil {
				errs[i] = fmt.Errorf("netx: listener %s: %w", l.want.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// resolve gives the address of an upstream, where it is known before somebody
// connects.
func resolve(ctx context.Context, l ListenerConfig) (netip.AddrPort, error) {
	switch {
	case l.Upstream == Echo:
		return netip.AddrPort{}, nil
	case l.Protocol == UDP:
		return resolveUDP(ctx, l.Upstream)
	}
	a, _ := netip.ParseAddrPort(l.Upstream)
	return a, nil
}

// resolveUDP looks a name up once; IPv4 is preferred.
func resolveUDP(ctx context.Context, hostport string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(hostport); err == nil {
		return unmapped(a), nil
	}
	fail := func(err error) (netip.AddrPort, error) {
		return netip.AddrPort{}, fmt.Errorf("upstream %s: %w", hostport, err)
	}
	host, service, err := net.SplitHostPort(hostport)
	if err != nil {
		return fail(err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return fail(err)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fail(err)
	}
	best := max(0, slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Unmap().Is4() }))
	return unmapped(netip.AddrPortFrom(addrs[best], uint16(port))), nil
}
