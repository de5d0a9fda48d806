package netx

import "errors"

func newUDPServer(cfg ListenerConfig, f *frame, lock *addrLock) (server, error) {
	return nil, errors.New("netx: no udp yet")
}
