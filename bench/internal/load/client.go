package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-ee4278a0/throttled/bench/internal/stat"
)

// Config is what a client sends. Either Rate or Window is set.
type Config struct {
	Target  netip.AddrPort // in 127.0.0.0/8
	Sources Sources        // in turn
	Payload int            // bytes; 0 = Payload
	Rate    float64        // open loop: requests a second, whatever is answered
	Window  int            // closed loop: requests that wait for their answer at a time
	Timeout time.Duration  // after which an answer counts as lost; 0 = 200 ms
}

// A Result is what became of the requests of a run.
type Result struct {
	Sent, Answered, Lost uint64
	Elapsed              time.Duration
	RTT                  stat.Histogram // from the system call that sent to the one that received
}

// A Client sends requests and waits for their echo. It is for one goroutine.
type Client struct {
	cfg     Config
	senders []*sender
	fds     []unix.PollFd
	turn    int
	base    time.Time
	open    outstanding
	in      messages
}

// NewClient opens the sockets.
func NewClient(cfg Config) (*Client, error) {
	if (cfg.Rate > 0) == (cfg.Window > 0) || cfg.Window > 1<<ringBits {
		return nil, fmt.Errorf("load: rate %v and window %d: one of them has to be positive", cfg.Rate, cfg.Window)
	}
	if err := cfg.Sources.complete(); err != nil {
		return nil, err
	}
	if cfg.Payload == 0 {
		cfg.Payload = Payload
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 200 * time.Millisecond
	}
	c := &Client{cfg: cfg, base: time.Now(), open: outstanding{timeout: cfg.Timeout}}
	c.in.receivable()
	for range cfg.Sources.Ports {
		s, err := newSender(cfg.Target, cfg.Sources, cfg.Payload)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.senders = append(c.senders, s)
		c.fds = append(c.fds, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
	}
	return c, nil
}

// Close closes the sockets.
func (c *Client) Close() (err error) {
	for _, s := range c.senders {
		err = errors.Join(err, s.close())
	}
	return err
}

// Run sends for so long and then waits for the answers that are still missing.
func (c *Client) Run(d time.Duration) (*Result, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it pacing is some 50 µs coarse
	r := &Result{}
	p := pace{rate: c.cfg.Rate}
	lost := c.open.lost
	start := c.now()
	for {
		now := c.now()
		c.open.expire(now)
		sending := now-start < d
		if !sending && c.open.waiting == 0 {
			r.Sent, r.Lost, r.Elapsed = p.sent, c.open.lost-lost, now-start
			return r, nil
		}
		sent, got := 0, 0
		var err error
		if sending {
			if sent, err = c.send(c.wanted(&p, now-start)); err != nil {
				return nil, fmt.Errorf("load: send: %w", err)
			}
			p.sent += uint64(sent)
		}
		if got, err = c.receive(r); err != nil {
			return nil, fmt.Errorf("load: receive: %w", err)
		}
		if got == 0 && sent == 0 {
			if err := wait(c.fds, c.pause(&p, start, sending)); err != nil {
				return nil, fmt.Errorf("load: poll: %w", err)
			}
		}
	}
}

// now is never 0, which stands for an answer that has come.
func (c *Client) now() time.Duration { return time.Since(c.base) }

// wanted is how many requests are to be sent now.
func (c *Client) wanted(p *pace, since time.Duration) int {
	if c.cfg.Rate > 0 {
		return p.due(since, batch)
	}
	return min(c.cfg.Window-c.open.waiting, batch)
}

// pause is how long there is nothing to do unless an answer comes.
func (c *Client) pause(p *pace, start time.Duration, sending bool) time.Duration {
	if sending && c.cfg.Rate > 0 {
		return min(start+p.next()-c.now(), c.cfg.Timeout)
	}
	return c.cfg.Timeout / 10
}

func (c *Client) send(n int) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	s := c.senders[c.turn]
	c.turn = (c.turn + 1) % len(c.senders)
	now := c.now()
	sent, err := s.send(n, func() uint64 { return c.open.send(now) })
	c.open.unsend(n - sent)
	return sent, err
}

// receive takes what has come at all sockets, a batch of each.
func (c *Client) receive(r *Result) (total int, err error) {
	for _, s := range c.senders {
		n, err := c.in.receive(s.fd)
		if err != nil {
			return total, err
		}
		now := c.now()
		for i := range n {
			if c.in.headers[i].n < minPayload {
				continue
			}
			if sentAt, ok := c.open.answer(binary.BigEndian.Uint64(c.in.data[i][:])); ok {
				r.Answered++
				r.RTT.Add(now - sentAt)
			}
		}
		total += n
	}
	return total, nil
}
