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
	// chunk is the most that is spliced at a time. The kernel calls
	// a socket writable when a third of its send buffer is free. That is more,
	// so a splice that begins then does not wait with a pipe in its hands.
	chunk = 192 << 10
	// A relay that waits for tokens waits for half of those it wants, so that
	// the bucket is never full meanwhile; at least pauseLeast, so that it does
	// not spin for a few bytes each time, and at most pauseMost, for the limit
	// may have been raised.
	pauseLeast = time.Millisecond
	pauseMost  = time.Second
)

// What the sockets of a relay may buffer. Left to themselves they would grow to
// many MiB for a client that reads slowly or not at all. So bounded, a direction
// costs less than 1 MiB whatever its ends do. Most of it is where it is written:
// a small window towards the upstream, which is near, keeps what is moved in the
// processor's cache (make bench-tcp).
var (
	clientBuffers   = socketBuffers{read: 128 << 10, write: 416 << 10}
	upstreamBuffers = socketBuffers{read: 64 << 10, write: 320 << 10}
)

// socketBuffers are in bytes. Linux makes twice as much of them, for its own
// records.
type socketBuffers struct{ read, write int }

var (
	// errOverLimit ends a relay whose client is over its byte budget.
	errOverLimit = errors.New("netx: over the byte limit")
	// errForged ends a relay whose client has sent a PROXY header and is no proxy.
	errForged = errors.New("netx: a PROXY header from elsewhere than a proxy")
)

// A brokenRead is an error of the source of a stream; any other is one of the
// destination.
type brokenRead struct{ error }

// A stream is one direction of a relay. It takes a buffer or a pipe only when
// src has bytes, and a pipe only when dst has room, too: so an idle connection
// costs two sockets and nothing more, and one that is stuck a buffer. What has
// to be paid for stays in the kernel until then, which slows the sender down.
type stream struct {
	r          *relay
	src, dst   *net.TCPConn
	raw        syscall.RawConn // of src
	fromClient bool
	unproven   bool          // must not begin with a PROXY header, and may still do so
	begun      []byte        // with what it began, where it was unproven
	bulk       bool          // there was as much as a buffer holds
	payAfter   time.Duration // age of the relay before which there are no tokens

	// What has been read and not yet written, in one of them.
	held []byte // of buf, or the first bytes
	pipe *pipe  // nil = none is held

	buf *[bufferSize]byte // nil = none is needed
	kernel
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
	case err == errOverLimit, err == errForged:
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
	defer st.giveBack()
	for {
		n, err := st.wait()
		if st.fromClient && (err == nil || err == io.EOF) {
			st.r.heard.Store(true)
		}
		if err != nil {
			return err
		}
		st.r.touch()
		if n, err = st.pay(n); err != nil {
			return err
		}
		n, err = st.move(n)
		st.r.touch()
		if st.fromClient {
			st.r.s.bytes.Add(int64(n))
		} else {
			st.r.s.replyBytes.Add(int64(n))
		}
		if err != nil {
			return err
		}
	}
}

// wait returns how many bytes there are to be moved, at least one. It takes
// them from src where they cost nothing.
func (st *stream) wait() (n int, err error) {
	if n = st.holds(); n > 0 {
		return n, nil
	}
	if st.unproven {
		err = st.prove()
		return st.holds(), err
	}
	if canPeek && st.isLimited() {
		n, err = await(st.raw)
		return min(n, bufferSize), ofSource(err)
	}
	if st.bulk {
		if err := st.awaitRoom(); err != nil {
			return 0, err
		}
	}
	err = st.read()
	n = st.holds()
	st.bulk = n >= bufferSize
	return n, ofSource(err)
}

func ofSource(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return brokenRead{err}
}

func (st *stream) isLimited() bool {
	s := st.r.s
	return st.fromClient && s.engine.LimitsBytes(s.policy()) && !s.dryRun()
}

// pay takes tokens for up to n bytes and says how many may move now, at least
// one. It waits where there are none.
func (st *stream) pay(n int) (int, error) {
	r := st.r
	for st.isLimited() {
		if err := st.pause(); err != nil {
			return 0, err
		}
		took, wait := r.s.engine.TakeBytes(r.from, r.s.policy(), n)
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
	return n, nil
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

// move takes n of the bytes that wait has seen to dst.
func (st *stream) move(n int) (moved int, err error) {
	switch {
	case len(st.held) > 0:
		moved, err = st.dst.Write(st.held[:n])
		st.held = st.held[moved:]
	case st.pipe != nil:
		moved, err = st.drain(n)
	default:
		return st.copy(n)
	}
	if st.holds() == 0 {
		st.giveBack()
	}
	return moved, err
}

// copy moves up to n bytes through a buffer.
func (st *stream) copy(n int) (int, error) {
	st.takeBuffer()
	defer st.giveBack()
	n, err := st.src.Read(st.buf[:n])
	if err != nil {
		return 0, brokenRead{err}
	}
	return st.dst.Write(st.buf[:n])
}

// holds is how many bytes have been read and not yet written.
func (st *stream) holds() int {
	if st.pipe != nil {
		return st.pipe.left
	}
	return len(st.held)
}

func (st *stream) takeBuffer() { st.buf = st.r.s.buffers.Get().(*[bufferSize]byte) }

// giveBack gives the buffer or the pipe back.
func (st *stream) giveBack() {
	if st.buf != nil {
		st.r.s.buffers.Put(st.buf)
		st.buf = nil
	}
	st.held = nil
	if st.pipe != nil {
		st.r.s.pipes.put(st.pipe)
		st.pipe = nil
	}
}
