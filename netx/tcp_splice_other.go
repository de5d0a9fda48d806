//go:build !linux

package netx

// canPeek says that await works.
const canPeek = false

type (
	pipes struct{}
	pipe  struct{ left int }
)

func newPipes() *pipes   { return &pipes{} }
func (*pipes) put(*pipe) {}
func (*pipes) close()    {}

type kernel struct{}

// read holds a buffer while it waits.
func (st *stream) read() error {
	st.takeBuffer()
	n, err := st.src.Read(st.buf[:])
	if st.held = st.buf[:n]; n > 0 {
		return nil
	}
	st.giveBack()
	return err
}

func (st *stream) awaitRoom() error               { return nil }
func (st *stream) drain(int) (moved int, _ error) { return 0, nil }
