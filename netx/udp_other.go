//go:build !linux

package netx

import (
	"fmt"
	"runtime"
)

func newUDPServer(ListenerConfig, *frame, *addrLock) (server, error) {
	return nil, fmt.Errorf("a udp relay is not supported on %s", runtime.GOOS)
}
