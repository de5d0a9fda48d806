package netx

import (
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// canPeek says that await works.
const canPeek = true

// A pipe is what a splice goes through.
type pipe struct {
	r, w int
	left int // bytes in it
}

// pipes are those of a listener, made when they are needed and kept. As nobody
// waits with one in his hands, one for each thread that runs is enough.
type pipes struct {
	free chan *pipe
	made atomic.Int64
}

func newPipes() *pipes { return &pipes{free: make(chan *pipe, pipeCount())} }

// get returns false where there is none. The others copy.
func (ps *pipes) get() (*pipe, bool) {
	select {
	case p := <-ps.free:
		return p, true
	default:
	}
	var fds [2]int
	if ps.made.Add(1) > int64(cap(ps.free)) || unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		ps.made.Add(-1)
		return nil, false
	}
	// A smaller one only takes more calls.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, chunk)
	return &pipe{r: fds[0], w: fds[1]}, true
}

// put takes a pipe back; one that holds bytes of a connection that broke is
// closed.
func (ps *pipes) put(p *pipe) {
	if p.left == 0 {
		ps.free <- p
		return
	}
	p.close()
	ps.made.Add(-1)
}

// close must not be called beside get or put.
func (ps *pipes) close() {
	for len(ps.free) > 0 {
		(<-ps.free).close()
	}
}

func (p *pipe) close() {
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
}

// fill moves what a socket has into the pipe, which is empty.
func (p *pipe) fill(fd int) (n int, err error) {
	p.left, err = splice(fd, p.w, chunk)
	return p.left, err
}

// drain moves up to n of the bytes in the pipe to a socket.
func (p *pipe) drain(fd, n int) (int, error) {
	n, err := splice(p.r, fd, min(n, p.left))
	p.left -= n
	return n, err
}

func splice(from, to, n int) (int, error) {
	for {
		moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_NONBLOCK)
		switch err {
		case nil:
			return int(moved), nil
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}

// kernel is what a stream needs to call the kernel itself. The functions are
// kept, as each would else be made anew for each call.
type kernel struct {
	out     syscall.RawConn // of dst; nil before the first splice
	want    int             // what is left to drain
	err     error           // of the last call
	onRead  func(fd uintptr) bool
	onDrain func(fd uintptr) bool
}

// read waits for bytes and takes them into a buffer or a pipe, which it gets
// only then.
func (st *stream) read() error {
	if st.onRead == nil {
		st.onRead = st.tryRead
	}
	if err := st.raw.Read(st.onRead); err != nil {
		return err
	}
	return st.err
}

func (st *stream) tryRead(fd uintptr) bool {
	n, err := st.take(int(fd))
	if n > 0 {
		st.err = nil
		return true
	}
	st.giveBack()
	switch err {
	case unix.EAGAIN:
		return false
	case nil:
		st.err = io.EOF
	default:
		st.err = os.NewSyscallError("read", err)
	}
	return true
}

// take fills a pipe where there is much and a pipe to be had, else a buffer.
func (st *stream) take(fd int) (n int, err error) {
	if st.bulk {
		if p, ok := st.r.s.pipes.get(); ok {
			st.pipe = p
			return p.fill(fd)
		}
	}
	st.takeBuffer()
	for {
		n, err = unix.Read(fd, st.buf[:])
		if err != unix.EINTR {
			st.held = st.buf[:max(n, 0)]
			return n, err
		}
	}
}

// awaitRoom waits until dst is writable.
func (st *stream) awaitRoom() (err error) {
	if st.out == nil {
		if st.out, err = st.dst.SyscallConn(); err != nil {
			return err
		}
		st.onDrain = st.tryDrain
	}
	return st.out.Write(hasRoom)
}

// hasRoom asks in the way that makes the kernel say when there is room again.
// An error of the socket is for the write to find.
func hasRoom(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(p[:], 0)
	return n != 0 || err != nil && err != unix.EINTR
}

// drain writes n of the bytes in the pipe.
func (st *stream) drain(n int) (moved int, err error) {
	st.want, st.err = n, nil
	err = st.out.Write(st.onDrain)
	if err == nil {
		err = st.err
	}
	return n - st.want, err
}

func (st *stream) tryDrain(fd uintptr) bool {
	for st.want > 0 {
		n, err := st.pipe.drain(int(fd), st.want)
		if err == unix.EAGAIN {
			return false
		}
		if err != nil {
			st.err = os.NewSyscallError("splice", err)
			return true
		}
		st.want -= n
	}
	return true
}
