package netx

import "github.com/seed-ee4278a0/throttled/engine"

// MaxOpcodeSize is the most bytes that an opcode has.
const MaxOpcodeSize = 4

// Opcodes pick the policy of a datagram by what its payload says: Size bytes from
// Offset on, read as one big-endian number. A number without an entry and a payload
// that is too short for one get the listener's Policy. Buckets and lockouts are
// those of an endpoint under a policy, so that somebody who is locked out under the
// policy of one opcode may still send others. The zero value picks nothing.
type Opcodes struct {
	Offset   int // of the first byte; Offset+Size is at most 65507
	Size     int // bytes, 1..4; 0 = 1
	Policies map[uint32]engine.PolicyID
}

// PolicyOf is the policy of a datagram with the payload, and of a connection,
// which has none.
func (l *ListenerConfig) PolicyOf(payload []byte) engine.PolicyID {
	if len(l.Opcodes.Policies) > 0 {
		if id, ok := l.Opcodes.pick(payload); ok {
			return id
		}
	}
	return l.Policy
}

func (o *Opcodes) pick(payload []byte) (id engine.PolicyID, ok bool) {
	end := o.Offset + max(1, o.Size)
	if len(payload) < end {
		return 0, false
	}
	opcode := uint32(0)
	for _, b := range payload[o.Offset:end] {
		opcode = opcode<<8 | uint32(b)
	}
	id, ok = o.Policies[opcode]
	return id, ok
}

func (o *Opcodes) check(m *mistakes, p Protocol) {
	if len(o.Policies) > 0 && p == TCP {
		m.add("Opcodes: on a tcp listener, which has no datagrams")
	}
	if o.Size < 0 || o.Size > MaxOpcodeSize {
		m.add("Opcodes.Size: %d is outside 1..%d", o.Size, MaxOpcodeSize)
		return
	}
	size := max(1, o.Size)
	if most := MaxDatagram - size; o.Offset < 0 || o.Offset > most {
		m.add("Opcodes.Offset: %d is outside 0..%d", o.Offset, most)
	}
	for opcode := range o.Policies {
		if uint64(opcode)>>(8*size) != 0 {
			m.add("Opcodes.Policies: %#x has more than %d bits", opcode, 8*size)
		}
	}
}
