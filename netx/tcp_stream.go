package netx

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

const (
	// bufferSize is what a relay copies through where it does not splice.
	bufferSize = 32 << 10
	// chunk is the most that is moved, and paid for, at a time; it is the size
	// of the pipe of a splice.
	chunk = 1 << 20
	// A relay that waits for tokens waits for half of those it wants, so that
	// the bucket is never full meanwhile; at least pauseLeast, so that it does
	// not spin for a few bytes each time, and at most pauseMost, for the limit
	// may have been raised.
	pauseLeast = time.Millisecond
	pauseMost  = time.Second
)

// errOverLimit ends a relay whose client is over its byte budget.
var errOverLimit = errors.New("netx: over the byte limit")

// A brokenRead is an error of the source of a stream; any other is one of the
// destination.
type brokenRead struct{ error }

// A stream is one direction of a relay. It waits until src has bytes before it
// takes a buffer or a pipe, so an idle connection costs two sockets and
// nothing more, and a pause leaves the bytes in the kernel, which slows the
// sender down.
type stream struct {
	r          *relay
	src, dst   *net.TCPConn
	raw        syscall.RawConn // of src
	fromClient bool
	payAfter   time.Duration // age of the relay before which there are no tokens

	limited io.LimitedReader // reused
}

func newStream(r *relay, src, dst *net.TCPConn) (*stream, error) {
	raw, err := src.SyscallConn()
	return &stream{r: r, src: src, dst: dst, raw: raw}, err
}

// run moves bytes until the stream has ended, and sees to what that means for
// the rest of the relay.
func (st *stream) run() {
	err := st.pump()
	_, read := err.(brokenRead)
	switch {
	case err == io.EOF && !st.r.broken.Load():
		_ = st.dst.CloseWrite()
	case err == errOverLimit:
		st.r.kill()
	case err == io.EOF, read:
		// The source was reset. (The kernel tells one of read and write, so
		// where the other stream has heard of it this one sees an end.) There
		// is nobody left for the other stream to write to.
		st.r.settle(st.dst)
		st.r.kill()
	default:
		// The destination is gone. What it sent before that is still read by
		// the other stream, which then finds its end.
		st.r.broken.Store(true)
	}
}

// pump moves bytes until src ends (io.EOF) or something breaks.
func (st *stream) pump() error {
	for {
		n, err := await(st.raw)
		if st.fromClient && (err == nil || err == io.EOF) {
			st.r.heard.Store(true)
		}
		if err == io.EOF {
			return err
		}
		if err != nil {
			return brokenRead{err}
		}
		st.r.touch()
		if n, err = st.pay(min(n, chunk)); err != nil {
			return err
		}
		n, err = st.move(n)
		st.r.touch()
		if st.fromClient {
			st.r.s.bytes.Add(int64(n))
		}
		if err != nil {
			return err
		}
	}
}

// pay takes tokens for up to n bytes and says how many may move now, at least
// one. It waits where there are none.
func (st *stream) pay(n int) (int, error) {
	r := st.r
	if !st.fromClient || !r.s.engine.LimitsBytes(r.s.cfg.Policy) {
		return n, nil
	}
	for {
		if err := st.pause(); err != nil {
			return 0, err
		}
		took, wait := r.s.engine.TakeBytes(r.from, r.s.cfg.Policy, n)
		if took == n {
			return n, nil
		}
		if r.s.cfg.TCP.OnLimit == CloseConn {
			return 0, errOverLimit
		}
		st.payAfter = r.age() + min(max(wait/2, pauseLeast), pauseMost)
		if took > 0 {
			return took, nil
		}
	}
}

// pause waits until there may be tokens.
func (st *stream) pause() error {
	d := st.payAfter - st.r.age()
	if d <= 0 {
		return nil
	}
	st.r.paused.Store(true)
	alive := st.r.sleep(d)
	st.r.touch()
	st.r.paused.Store(false)
	if !alive {
		return net.ErrClosed
	}
	return nil
}

// move takes n bytes, which src has, to dst: in the kernel where it is worth
// it and there is a pipe to be had. An error is one of dst.
func (st *stream) move(n int) (moved int, err error) {
	if n <= bufferSize {
		return st.copy(n)
	}
	select {
	case st.r.s.splices <- struct{}{}:
		defer func() { <-st.r.s.splices }()
		st.limited = io.LimitedReader{R: st.src, N: int64(n)}
		spliced, err := st.dst.ReadFrom(&st.limited)
		return int(spliced), err
	default:
		return st.copy(n)
	}
}

// copy moves n bytes through a buffer.
func (st *stream) copy(n int) (moved int, err error) {
	buf := st.r.s.buffers.Get().(*[bufferSize]byte)
	defer st.r.s.buffers.Put(buf)
	for moved < n && err == nil {
		var got, put int
		if got, err = st.src.Read(buf[:min(n-moved, bufferSize)]); err == nil {
			put, err = st.dst.Write(buf[:got])
			moved += put
		}
	}
	return moved, err
}
