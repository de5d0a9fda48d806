package netx

import (
	"context"
	"sync"
	"time"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

// wait puts a connection into the queue of those that wait for a place. Nothing
// of it is read meanwhile.
//
// It returns when the connection has its place in the queue, so that the next
// one that is accepted stands behind it.
func (s *tcpServer) wait(c caller) {
	// Whoever was put out by a newer one is closed by a goroutine of its own.
	// Where they fall behind, accept waits for them here, so that no more
	// descriptors are open than were planned for.
	s.waiting <- struct{}{}
	queued := make(chan struct{})
	s.relays.Go(func() { s.queue(c, sync.OnceFunc(func() { close(queued) })) })
	<-queued
}

// queue takes a connection from the queue to its end. It calls queued as soon
// as the connection has its place in the queue, or is through with it.
func (s *tcpServer) queue(c caller, queued func()) {
	place, ok := s.turn(c, queued)
	queued()
	if !ok {
		// Once draining nobody gets a place, whatever the queue was like.
		reason := dropQueueFull
		if s.draining.Load() {
			reason = dropDraining
		}
		s.turnAway(c.client, reason)
		s.perIP.free(c.from.Addr())
		<-s.waiting
		return
	}
	s.connections.Add(1)
	<-s.waiting // it counts as a connection from here on: active never misses it
	s.serve(c, place)
}

// turn waits until there is a place for the connection. It returns false where
// it gets none: the queue is full, a newer one has put it out, it has waited
// too long, the client has left, or the gateway drains.
func (s *tcpServer) turn(c caller, queued func()) (limiter.Lease, bool) {
	raw, err := c.client.SyscallConn()
	if err != nil {
		return limiter.Lease{}, false
	}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	var watch sync.WaitGroup
	watch.Go(func() {
		if departed(raw, len(c.early) > 0) == nil {
			leave()
		}
	})
	place, err := s.places.Acquire(queueContext{ctx, queued}, 1)
	_ = c.client.SetReadDeadline(time.Unix(1, 0)) // ends the watch
	watch.Wait()
	_ = c.client.SetReadDeadline(time.Time{})
	if err != nil {
		return limiter.Lease{}, false
	}
	if ctx.Err() != nil { // left in the moment in which its turn came
		place.Release()
		return limiter.Lease{}, false
	}
	return place, place.Acquired()
}

// A queueContext learns when an Acquire has its place in the queue: it asks
// for Done to wait there and for nothing else.
type queueContext struct {
	context.Context
	queued func()
}

func (c queueContext) Done() <-chan struct{} {
	c.queued()
	return c.Context.Done()
}
