package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A client sends datagrams at a steady pace and counts what comes back.
type client struct {
	conn     *net.UDPConn
	sent     atomic.Int64
	answered atomic.Int64
	running  sync.WaitGroup
}

// dialFrom connects a client of its own address to the gateway.
func dialFrom(from netip.Addr, to netip.AddrPort) (*client, error) {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, fmt.Errorf("demo: %w (the demo needs the loopback address %s; "+
			"Linux has it, on macOS: sudo ifconfig lo0 alias %s)", err, from, from)
	}
	c := &client{conn: conn}
	c.running.Go(c.count)
	return c, nil
}

// addr is the endpoint that the gateway sees.
func (c *client) addr() netip.AddrPort { return c.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// flow starts sending burst datagrams each interval, until ctx ends. It begins
// half an interval late, so that each second sees the same number of them.
func (c *client) flow(ctx context.Context, burst int, interval time.Duration) {
	c.running.Go(func() {
		tick := time.NewTimer(interval / 2)
		defer tick.Stop()
		payload := []byte("hello, is anybody there?")
		for due := time.Now().Add(interval / 2); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for range burst {
				if _, err := c.conn.Write(payload); err == nil {
					c.sent.Add(1)
				}
			}
			due = due.Add(interval)
			tick.Reset(time.Until(due))
		}
	})
}

// count counts answers until the connection is closed.
func (c *client) count() {
	buffer := make([]byte, 2048)
	for {
		_, err := c.conn.Read(buffer)
		switch {
		case err == nil:
			c.answered.Add(1)
		case !errors.Is(err, syscall.ECONNREFUSED):
			return
		}
	}
}

// close ends the client; what flow has started must have been told to end.
func (c *client) close() {
	c.conn.Close()
	c.running.Wait()
}
