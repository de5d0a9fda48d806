// Package replay runs a configuration against a capture of network traffic and
// tells what the gateway would have done, and to whom: `throttled replay`.
//
// A capture is read once, packet by packet; what is kept grows with the number of
// endpoints and open connections. Every packet to a listener is decided on by an
// [engine.Replay] at the time of its stamp, so the rules, the identities, the
// sweeps and the cap of the table are the gateway's own. Not replayed are CPU
// adaptation, which is taken to be off, and what depends on the machine: sessions
// and connections at a time, queues, upstreams, drains and the kernel filter.
//
// The rules of what counts:
//
//   - A UDP datagram counts with the length that its UDP header names. Of a
//     datagram in fragments the first one has that header and stands for all of
//     it, as if the rest had come at once; the others are counted and left out.
//   - A TCP connection counts at its SYN, once however often that is sent, whether
//     or not it is answered. Bytes count as their sequence numbers go on, so that
//     what was sent twice counts once and what the capture has missed counts too. A
//     connection that is open when the capture begins counts its bytes and is no
//     new one.
//   - What was kept of a packet does not matter beyond its headers, and the opcode
//     where a listener has some; a datagram without it is decided on under the
//     listener's policy.
//   - Behind a proxy the client is whom the PROXY header names, which has to have
//     been kept. A connection of a proxy counts once its header is there, or has
//     not come; of one that was open before, nothing is known.
//   - The upstream has answered a client, as udp.lockout_requires has it, where the
//     capture has a datagram back to it from the address that it has sent to; behind
//     a proxy, which is who gets that, all are answered who share its address and port.
//   - In a dry run what is denied is let through and counted apart, and bytes of
//     streams are not charged, as in the gateway.
//   - A packet is for the listener with exactly its destination; else for the one
//     on the wildcard of its family and its port, whatever host the capture is from.
//     What the host has sent is for none: cooked captures say so, and in others it
//     is what comes from an address that was itself sent to before, where client
//     and server have the same port.
//   - The clock never goes back. A packet that is stamped earlier than one before
//     it, or not at all, is decided on at the time of that one.
package replay

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/config"
	"github.com/seed-ee4278a0/throttled/cmd/throttled/internal/pcap"
)

// Options say what to replay.
type Options struct {
	Config  *config.Config
	Capture string // a file; "-" = standard input
	Suggest bool   // read the file a second time for policies that fit
	Limit   int    // endpoints in each list; 0 = all
}

// Run replays the capture. Where that cannot be read to its end the Result says
// what was read, and has a warning; the error is nil where it was merely cut off.
func Run(o Options) (*Result, error) {
	if len(o.Config.Listeners) == 0 {
		return nil, errors.New("replay: the configuration has no listeners")
	}
	if o.Suggest {
		if info, err := os.Stat(o.Capture); err != nil || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("replay: --suggest reads the capture twice and needs a file, not %s", o.Capture)
		}
	}
	trial := newTrial(o.Config)
	defer trial.close()
	t := newTraffic(o.Config, trial)
	failed := t.read(o.Capture)
	if failed != nil && t.capture.Packets == 0 {
		return nil, failed
	}
	r := t.result()
	trial.report(r, o.Limit)
	r.warn(t, failed)
	if errors.Is(failed, pcap.ErrCut) {
		failed = nil
	}
	if o.Suggest && failed == nil {
		return r, suggest(o, trial, r)
	}
	return r, failed
}

// newTraffic prepares a run through a capture.
func newTraffic(c *config.Config, j judge) *traffic {
	t := &traffic{
		judge:     j,
		listeners: newListeners(c.Listeners),
		streams:   streams{open: map[flow]*connection{}},
		elsewhere: map[address]int64{},
	}
	t.capture.NotForListener = map[string]int64{}
	return t
}

// result is what has been counted.
func (t *traffic) result() *Result {
	t.streams.finish(t.now)
	r := &Result{Capture: t.capture, Warnings: []string{}}
	for _, l := range t.listeners.all {
		r.Listeners = append(r.Listeners, l.report)
	}
	return r
}

// read takes every packet of a file.
func (t *traffic) read(file string) error {
	t.capture.File = file
	in := os.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		defer f.Close()
		in = f
	}
	if err := t.readFrom(in); err != nil {
		return fmt.Errorf("replay: %s: %w", file, err)
	}
	return nil
}

func (t *traffic) readFrom(in io.Reader) error {
	r, err := pcap.NewReader(in)
	if err != nil {
		return err
	}
	for {
		p, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.packet(p); err != nil {
			return err
		}
	}
}
