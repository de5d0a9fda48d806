//go:build !linux

package netx

import (
	"fmt"
	"net/netip"
	"runtime"
)

// An addrLock holds a listen address for one gateway; here there is none.
type addrLock struct {
	addr netip.AddrPort
}

func lockAddr(Protocol, netip.AddrPort) (*addrLock, error) {
	return nil, fmt.Errorf("the gateway is not supported on %s", runtime.GOOS)
}

func (*addrLock) bound()   {}
func (*addrLock) release() {}
