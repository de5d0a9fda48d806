package httplimit

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/policy/limiter"
)

const patience = 20 * time.Second

// soon polls in the goroutine of the test, so that it adds none.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%s", what)
	}
}

// A real server and 200 connections at once, for 100 slots and a queue of 50.
func TestServer(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	registry := prometheus.NewPedanticRegistry()
	policy := slots(t, 100, 50)
	l := newLimits(t, Options{Registerer: registry})
	named(t, l, "p", Policy{Limiter: policy})
	site := gated()
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", mark(t, l, "p", site))
	server := httptest.NewServer(l.Wrap(mux))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}

	var ok, denied, other atomic.Int64
	ask := func() {
		response, err := client.Get(server.URL)
		if err != nil {
			other.Add(1)
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		switch response.StatusCode {
		case http.StatusOK:
			ok.Add(1)
		case http.StatusTooManyRequests:
			denied.Add(1)
		default:
			other.Add(1)
		}
	}
	for range 200 {
		go ask()
	}
	soon(t, "50 denied", func() bool { return denied.Load() == 50 })
	soon(t, "100 inside", func() bool { return site.inside.Load() == 100 })
	found := gather(t, registry)
	assert.Equal(t, 100.0, found[active+"{policy=p}"])
	assert.Equal(t, 50.0, found[queued+"{policy=p}"])
	close(site.gate)
	soon(t, "150 served", func() bool { return ok.Load() == 150 })

	// Those who come after are as before, one after the other.
	for range 100 {
		ask()
	}
	assert.Equal(t, [3]int64{250, 50, 0}, [3]int64{ok.Load(), denied.Load(), other.Load()})
	assert.Equal(t, int64(250), site.served.Load())
	client.CloseIdleConnections()
	server.Close()

	found = gather(t, registry)
	assert.Equal(t, 250.0, found[requestsTotal+"{policy=p,result=acquired}"])
	assert.Equal(t, 50.0, found[requestsTotal+"{policy=p,result=endpoint_limiter}"])
	assert.Equal(t, 50.0, found[queueDuration+"{policy=p,result=acquired}"])
	assert.Equal(t, 250.0, found[duration+"{policy=p}"])
	assert.Zero(t, found[active+"{policy=p}"])
	assert.Zero(t, found[queued+"{policy=p}"])
	assert.Equal(t, int64(100), policy.stats().Available)
	soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// The same of a ConcurrencyLimiter, whose clients come one after the other: a
// queue refuses the last, a stack those that have waited longest.
func TestServerConcurrencyLimiter(t *testing.T) {
	const connections, places, room = 200, 100, 50
	for order, first := range map[limiter.Order]int{limiter.OldestFirst: places + room, limiter.NewestFirst: places} {
		t.Run(order.String(), func(t *testing.T) {
			goroutines := runtime.NumGoroutine()
			site := gated()
			h, err := ConcurrencyLimiter(site, ConcurrencyLimiterOptions{
				MaxConcurrentRequests: places, RequestQueueLimit: room, Order: order,
			})
			require.NoError(t, err)
			stats := h.(*concurrency).limiter.Stats
			server := httptest.NewServer(h)
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
			codes := make([]int, connections)
			var clients sync.WaitGroup
			for i := range codes {
				clients.Go(func() {
					response, err := client.Get(server.URL)
					if assert.NoError(t, err) {
						codes[i] = response.StatusCode
						_ = response.Body.Close()
					}
				})
				soon(t, "it has come", func() bool {
					s := stats()
					return s.Successful+s.Queued+s.Failed == int64(i+1)
				})
			}
			soon(t, "100 inside", func() bool { return site.inside.Load() == places })
			assert.Equal(t, limiter.Stats{Queued: room, Successful: places, Failed: connections - places - room}, stats())
			close(site.gate)
			clients.Wait()
			for i, code := range codes {
				want := http.StatusOK
				if i >= first && i < first+connections-places-room {
					want = http.StatusServiceUnavailable
				}
				assert.Equal(t, want, code, "request %d", i)
			}
			client.CloseIdleConnections()
			server.Close()
			assert.Equal(t, int64(places), stats().Available)
			soon(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
		})
	}
}

// A client that hangs up while it waits leaves the queue at once.
func TestServerClientGone(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	policy, rejected := slots(t, 1, 1), &hook{}
	l := newLimits(t, Options{Global: policy, Registerer: registry, OnRejected: rejected.reject})
	site := gated()
	server := httptest.NewServer(l.Wrap(site))
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		response, err := server.Client().Get(server.URL)
		if assert.NoError(t, err) {
			_ = response.Body.Close()
		}
	}()
	soon(t, "one inside", func() bool { return site.inside.Load() == 1 })

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	gone := make(chan error)
	go func() {
		_, err := server.Client().Do(request)
		gone <- err
	}()
	soon(t, "one waits", func() bool { return policy.stats().Queued == 1 })
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	soon(t, "none waits", func() bool { return policy.stats().Queued == 0 })
	soon(t, "it was counted", func() bool {
		return gather(t, registry)[requestsTotal+"{policy=,result=request_canceled}"] == 1
	})
	close(site.gate)
	<-done
	server.Close()
	assert.Equal(t, int64(1), site.served.Load())
	assert.Zero(t, rejected.called)
	assert.Equal(t, int64(1), policy.stats().Available)
}
