package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/seed-ee4278a0/throttled/bench/internal/result"
)

// weights measures the heap for each key, the key's own bytes included where the
// table holds on to them, and a full collection while the table is alive and
// little else. Lockouts are off, as other libraries have none: with them an endpoint
// that has been denied has a record, which is not measured here.
func weights(r *result.Report, o options, n int) {
	runtime.GOMAXPROCS(runtime.NumCPU())
	for _, p := range paths[:2] {
		for _, c := range contenders {
			if c.name == floorName || c.name == batchName || c.name == wireguardName {
				continue // the first two are no other table; wireguard's forgets while it is looked at
			}
			fmt.Fprintf(os.Stderr, "memory of %d %s keys, %s\n", n, p.name, c.name)
			used, pauses := weigh(c, p, n, o.rounds)
			r.Figure(fmt.Sprintf("heap, %d keys %s", n, p.name), "B/key", xTimeName).Add(c.name, used)
			for _, pause := range pauses {
				r.Figure(fmt.Sprintf("full collection, %d keys %s", n, p.name), "ms", xTimeName).Add(c.name, pause)
			}
		}
	}
}

// weigh returns bytes for each key and the milliseconds of collections.
func weigh(c contender, p path, n, rounds int) (used float64, collections []float64) {
	k := newKeys(n)
	k.names = nil
	before := heap()
	k.nameAll()
	s := c.subject(k, p)
	k.names = nil
	used = float64(heap()-before) / float64(n)
	k.endpoints = nil
	heap()
	for range rounds {
		start := time.Now()
		runtime.GC()
		collections = append(collections, float64(time.Since(start))/float64(time.Millisecond))
	}
	s.close()
	return used, collections
}

// heap is what is alive. Two collections, so that what has a finalizer goes too.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
