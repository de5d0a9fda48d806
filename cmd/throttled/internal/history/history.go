// Package history keeps what the listeners of a gateway have counted, second by
// second for ten minutes, so that whoever begins to look sees what went before.
// What it keeps is bounded, in samples and in bytes.
package history

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/seed-ee4278a0/throttled/netx"
)

const (
	// Every is the time between samples.
	Every = time.Second
	// Keep is how many samples are kept, ten minutes of them.
	Keep = 600
	// keepBytes bounds them where there are many listeners: the history is
	// shorter then. It is room for 30 listeners or more.
	keepBytes = 8 << 20
)

// A Sample is what had been counted at a moment.
type Sample struct {
	Seq         int64     // counts samples; none is missing between two that follow each other
	At          time.Time // UTC
	RefillRatio float64
	Listeners   []Listener
}

// A Listener is what one listener had counted since it was started. Reasons
// for which nothing was dropped are left out.
type Listener struct {
	Name              string
	Protocol          string
	Packets           int64 // from clients: datagrams or connections
	Bytes             int64
	Replies           int64 // to clients: datagrams
	ReplyBytes        int64
	Forwarded         int64
	Dropped           map[string]int64
	WouldDrop         map[string]int64 `json:",omitempty"`
	SessionsActive    int64
	ConnectionsActive int64
}

// An Answer is what is served.
type Answer struct {
	EverySeconds float64
	Keep         int
	Samples      []Sample // oldest first
}

// A Recorder takes samples from Start until Close.
type Recorder struct {
	take func() (ratio float64, listeners []netx.ListenerReport)
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex // guards what follows
	seq     int64
	samples [][]byte // as JSON, which takes less room than the maps and is served as it is
	bytes   int
}

// Start takes the first sample and then one each second.
func Start(take func() (ratio float64, listeners []netx.ListenerReport)) *Recorder {
	r := &Recorder{take: take, stop: make(chan struct{})}
	r.sample()
	r.done.Go(r.run)
	return r
}

// Close ends the sampling. What was recorded is still served.
func (r *Recorder) Close() {
	close(r.stop)
	r.done.Wait()
}

func (r *Recorder) run() {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
			r.sample()
		}
	}
}

func (r *Recorder) sample() {
	ratio, reports := r.take()
	s := Sample{At: time.Now().UTC().Truncate(time.Millisecond), RefillRatio: ratio, Listeners: make([]Listener, len(reports))}
	for i, l := range reports {
		s.Listeners[i] = Listener{
			Name: l.Name, Protocol: l.Protocol, Packets: l.Packets, Bytes: l.Bytes, Replies: l.Replies, ReplyBytes: l.ReplyBytes,
			Forwarded: l.Forwarded, Dropped: l.Dropped, WouldDrop: l.WouldDrop,
			SessionsActive: l.SessionsActive, ConnectionsActive: l.ConnectionsActive,
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	s.Seq = r.seq
	line, err := json.Marshal(s)
	if err != nil {
		return // a ratio that is no number, which the engine does not have
	}
	r.samples, r.bytes = append(r.samples, line), r.bytes+len(line)
	for len(r.samples) > Keep || r.bytes > keepBytes {
		r.bytes -= len(r.samples[0])
		r.samples = r.samples[1:]
	}
}

// newest returns the last n samples.
func (r *Recorder) newest(n int) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.samples))
	return append([][]byte(nil), r.samples[len(r.samples)-n:]...)
}

// ServeHTTP answers with an Answer: all samples, or as many of the newest as the
// parameter last asks for.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	n := Keep
	if last := q.URL.Query().Get("last"); last != "" {
		var err error
		if n, err = strconv.Atoi(last); err != nil || n < 1 {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"last has to be a number of samples, 1 or more"}` + "\n"))
			return
		}
	}
	head, _ := json.Marshal(Answer{EverySeconds: Every.Seconds(), Keep: Keep, Samples: []Sample{}})
	head = head[:len(head)-len("]}")]
	for i, line := range r.newest(n) {
		if i > 0 {
			head = append(head, ',')
		}
		head = append(head, line...)
	}
	_, _ = w.Write(append(head, "]}\n"...)) // the client may be gone
}
