package netx

import "errors"

func newTCPServer(cfg ListenerConfig, f *frame, lock *addrLock) (server, error) {
	return nil, errors.New("netx: no tcp yet")
}
