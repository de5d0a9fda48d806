package kerneldrop

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
)

// errFull is what a map answers that has no room for something new. What is in
// it already stays right.
var errFull = errors.New("no room")

// A copyOf is a map of the kernel and what we have put into it. What the kernel
// has beyond ends, or otherwise, has ended.
type copyOf[K comparable] struct {
	m     *ebpf.Map
	most  int
	batch bool         // the map takes many keys at once
	ends  map[K]uint64 // on the kernel's clock, or exempt
	next  uint64       // no end comes earlier
	said  bool         // that it is full
}

func newCopy[K comparable](m *ebpf.Map, most int, batch bool) copyOf[K] {
	return copyOf[K]{m: m, most: most, batch: batch, ends: make(map[K]uint64), next: math.MaxUint64}
}

// put writes ends, which may replace others, as far as there is room. It answers
// errFull where only something new has not been written.
func (c *copyOf[K]) put(keys []K, ends []uint64) error {
	room := c.most - len(c.ends)
	fits := 0
	for ; fits < len(keys); fits++ {
		if _, there := c.ends[keys[fits]]; !there {
			if room == 0 {
				break
			}
			room--
		}
	}
	n, err := c.write(keys[:fits], ends[:fits])
	for i, k := range keys[:n] {
		c.ends[k] = ends[i]
		if ends[i] != exempt {
			c.next = min(c.next, ends[i])
		}
	}
	switch {
	case err != nil && n < fits && c.has(keys[n]):
		return fmt.Errorf("kerneldrop: replacing an entry: %w", err)
	case err != nil:
		return fmt.Errorf("%w: %w", errFull, err)
	case fits < len(keys):
		return fmt.Errorf("%w: %d entries", errFull, c.most)
	}
	return nil
}

func (c *copyOf[K]) has(k K) bool { _, ok := c.ends[k]; return ok }

func (c *copyOf[K]) write(keys []K, ends []uint64) (n int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if c.batch {
		return c.m.BatchUpdate(keys, ends, nil)
	}
	for i := range keys {
		if err := c.m.Put(&keys[i], &ends[i]); err != nil {
			return i, err
		}
	}
	return len(keys), nil
}

// remove takes keys out, those that are not there included.
func (c *copyOf[K]) remove(keys ...K) (err error) {
	there := keys[:0]
	for _, k := range keys {
		if c.has(k) {
			there = append(there, k)
			delete(c.ends, k)
		}
	}
	switch {
	case len(there) == 0:
	case c.batch:
		_, err = c.m.BatchDelete(there, nil)
	default:
		for i := range there {
			err = errors.Join(err, c.m.Delete(&there[i]))
		}
	}
	if err != nil {
		return fmt.Errorf("kerneldrop: removing entries: %w", err)
	}
	return nil
}

// sweep takes out what has ended.
func (c *copyOf[K]) sweep(now uint64) error {
	if now < c.next {
		return nil
	}
	c.next = math.MaxUint64
	var ended []K
	for k, end := range c.ends {
		switch {
		case end == exempt:
		case end <= now:
			ended = append(ended, k)
		default:
			c.next = min(c.next, end)
		}
	}
	return c.remove(ended...)
}
