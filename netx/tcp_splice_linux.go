package netx

import (
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// canPeek says that await works, and splice where there is a pipe.
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

// fill moves up to n bytes from a socket into the pipe, which is empty.
func (p *pipe) fill(fd, n int) (err error) {
	p.left, err = spliceOnce(fd, p.w, n)
	return err
}

// drain moves what the pipe holds to a socket.
func (p *pipe) drain(fd int) error {
	for p.left > 0 {
		n, err := spliceOnce(p.r, fd, p.left)
		if err != nil {
			return err
		}
		p.left -= n
	}
	return nil
}

func spliceOnce(from, to, n int) (int, error) {
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
	err             error // of the last call
	onRead          func(fd uintptr) bool
	out             syscall.RawConn // of dst; nil before the first splice
	pipe            *pipe           // of the splice that runs
	want            int
	onFill          func(fd uintptr)
	onRoom, onDrain func(fd uintptr) bool
}

// read waits for bytes and reads them into a buffer, which it takes only then.
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
	st.takeBuffer()
	n, err := unix.Read(int(fd), st.buf[:])
	for err == unix.EINTR {
		n, err = unix.Read(int(fd), st.buf[:])
	}
	if n > 0 {
		st.held, st.err = st.buf[:n], nil
		return true
	}
	st.giveBuffer()
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

// splice moves up to n bytes, which src has, to dst within the kernel. It
// returns false where nothing has been moved for want of a pipe.
func (st *stream) splice(n int) (moved int, ok bool, err error) {
	if err := st.awaitRoom(); err != nil {
		return 0, false, err
	}
	p, ok := st.r.s.pipes.get()
	if !ok {
		return 0, false, nil
	}
	defer st.r.s.pipes.put(p)
	st.pipe, st.want = p, n
	if err := st.raw.Control(st.onFill); err != nil || p.left == 0 {
		return 0, false, err // a read tells why there is nothing
	}
	filled := p.left
	if err = st.out.Write(st.onDrain); err == nil {
		err = st.err
	}
	return filled - p.left, true, err
}

// awaitRoom waits until dst is writable.
func (st *stream) awaitRoom() (err error) {
	if st.out == nil {
		if st.out, err = st.dst.SyscallConn(); err != nil {
			return err
		}
		st.onRoom, st.onDrain = hasRoom, st.tryDrain
		st.onFill = func(fd uintptr) { _ = st.pipe.fill(int(fd), st.want) }
	}
	return st.out.Write(st.onRoom)
}

func (st *stream) tryDrain(fd uintptr) bool {
	err := st.pipe.drain(int(fd))
	st.err = os.NewSyscallError("splice", err)
	return err != unix.EAGAIN
}

// hasRoom asks in the way that makes the kernel say when there is room again.
// An error of the socket is for the write to find.
func hasRoom(fd uintptr) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(p[:], 0)
	return n != 0 || err != nil && err != unix.EINTR
}
