package netx

// A proof is what is known of whether a client is there or was made up by whoever
// sends: it is there once it has sent something after a reply.
type proof struct {
	proven  bool
	replied bool
	in, out int64 // payload from the client, and to it, until it is proven
}

// received hears of a datagram of the client's.
func (p *proof) received(size int) {
	p.proven = p.proven || p.replied
	p.in += int64(size)
}

// allows says whether a reply may be sent to the client, as it is then. Without a
// ratio it may.
func (p *proof) allows(size int, ratio float64) bool {
	if ratio > 0 && !p.proven && float64(p.out+int64(size)) > ratio*float64(p.in) {
		return false
	}
	p.replied = true
	p.out += int64(size)
	return true
}
