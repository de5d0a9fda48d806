package kerneldrop

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/seed-ee4278a0/throttled/engine"
)

// Where the program has what on its stack: the key of the prefixes, whose tail
// and what follows it are the key of the endpoints, and an array index.
const (
	stackPrefix = -32 // prefixKey
	stackFamily = stackPrefix + 4
	stackAddr   = stackFamily + 4
	stackPort   = stackAddr + 16
	stackPolicy = stackPort + 2
	stackIndex  = -40
)

// What the program reads.
const (
	skbLen         = 0  // in __sk_buff
	skbProtocol    = 16 // in __sk_buff
	sourceIPv4     = 12 // in the IPv4 header
	sourceIPv6     = 8  // in the IPv6 header, whatever headers extend it
	fromNetwork    = 1  // BPF_HDR_START_NET
	udpHeader      = 8  // bytes, with which a socket filter's datagram begins
	wholeDatagram  = -1 // the verdict of a filter is how much it keeps
	keepNothing    = 0
	etherTypeIPv4  = 0x0800
	etherTypeIPv6  = 0x86dd
	mappedIPv4Word = 0xffff // the third word of an IPv4-mapped address
)

// program is the filter of a policy's listeners. A source is looked up among
// the prefixes first, where the longest that holds it decides, and then, cut
// down to what makes an endpoint, among the endpoints. It lets pass what it
// cannot read, such as an IPv4-mapped source in an IPv6 header.
//
// r6 is the datagram, r7 the end of what was found, r8 and r9 are the mask.
func (t *Table) program(id engine.PolicyID, gate, tallies *ebpf.Map) asm.Instructions {
	return slices.Concat(
		begin(id),
		source("", family4, sourceIPv4, 4, mask(t.identity.ipv4)),
		asm.Instructions{asm.Ja.Label("prefixes")},
		source("ipv6", family6, sourceIPv6, 16, mask(t.identity.ipv6)),
		unlessMapped(),

		lookup("prefixes", t.prefixes, stackPrefix),
		asm.Instructions{
			asm.JEq.Imm(asm.R0, 0, "endpoint"),
			asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord),
			asm.Ja.Label("compare"),
		},

		endpoint("endpoint", t.identity.byPort),
		lookup("", t.endpoints, stackFamily),
		asm.Instructions{
			asm.JEq.Imm(asm.R0, 0, "pass"),
			asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord),
		},
		// The kernel may have given the place of an entry that was just removed
		// to another one, whose end was read then: the entry must be there still.
		lookup("", t.endpoints, stackFamily),
		asm.Instructions{asm.JEq.Imm(asm.R0, 0, "pass")},

		asm.Instructions{
			asm.FnKtimeGetNs.Call().WithSymbol("compare"),
			asm.JGE.Reg(asm.R0, asm.R7, "pass"),
		},
		lookup("", gate, stackIndex),
		asm.Instructions{
			asm.JEq.Imm(asm.R0, 0, "pass"),
			asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
			asm.JEq.Imm(asm.R1, 0, "pass"),
		},
		count(tallies),
		verdict("", keepNothing),
		verdict("pass", wholeDatagram),
	)
}

// begin fills in what of the keys does not depend on the datagram, and branches
// on the family, by the field that the socket takes the source's family from.
func begin(id engine.PolicyID) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, stackAddr, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, stackAddr+8, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, stackPort, asm.R1, asm.Half),
		asm.StoreMem(asm.RFP, stackIndex, asm.R1, asm.Word),
		asm.StoreImm(asm.RFP, stackPolicy, int64(id), asm.Half),
		asm.LoadMem(asm.R1, asm.R6, skbProtocol, asm.Word),
		asm.JEq.Imm(asm.R1, inOrder16(etherTypeIPv6), "ipv6"),
		asm.JNE.Imm(asm.R1, inOrder16(etherTypeIPv4), "pass"),
	}
}

// source reads the address of a family, of so many bytes at an offset of the
// network header, into the keys.
func source(label string, family, offset, size int, mask [2]uint64) asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, stackPrefix, int64(prefixLength(8*size)), asm.Word).WithSymbol(label),
		asm.StoreImm(asm.RFP, stackFamily, int64(family), asm.Word),
		asm.LoadImm(asm.R8, int64(mask[0]), asm.DWord),
		asm.LoadImm(asm.R9, int64(mask[1]), asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, int32(offset)),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stackAddr),
		asm.Mov.Imm(asm.R4, int32(size)),
		asm.Mov.Imm(asm.R5, fromNetwork),
		asm.FnSkbLoadBytesRelative.Call(),
		asm.JNE.Imm(asm.R0, 0, "pass"),
	}
}

// unlessMapped lets an IPv4-mapped address pass.
func unlessMapped() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, stackAddr, asm.DWord),
		asm.JNE.Imm(asm.R1, 0, "prefixes"),
		asm.LoadMem(asm.R1, asm.RFP, stackAddr+8, asm.Word),
		asm.JEq.Imm32(asm.R1, inOrder32(mappedIPv4Word), "pass"),
	}
}

// endpoint makes the address that of the endpoint, and reads the source port
// where that is a part of it: a filter's datagram begins with it.
func endpoint(label string, byPort bool) asm.Instructions {
	p := asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, stackAddr, asm.DWord).WithSymbol(label),
		asm.And.Reg(asm.R1, asm.R8),
		asm.StoreMem(asm.RFP, stackAddr, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, stackAddr+8, asm.DWord),
		asm.And.Reg(asm.R1, asm.R9),
		asm.StoreMem(asm.RFP, stackAddr+8, asm.R1, asm.DWord),
	}
	if !byPort {
		return p
	}
	return append(p,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stackPort),
		asm.Mov.Imm(asm.R4, 2),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "pass"),
	)
}

// lookup leaves in r0 where the value of the key on the stack is, or 0.
func lookup(label string, m *ebpf.Map, key int32) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, m.FD()).WithSymbol(label),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
	}
}

// count adds the datagram to a tally. A tally belongs to one CPU; it is added to
// atomically all the same, as on some kernels a filter that runs there may be
// interrupted by another one.
func count(tallies *ebpf.Map) asm.Instructions {
	return append(lookup("", tallies, stackIndex),
		asm.JEq.Imm(asm.R0, 0, "pass"), // never, but the verifier wants it
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.LoadMem(asm.R1, asm.R6, skbLen, asm.Word),
		asm.Sub.Imm(asm.R1, udpHeader),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 8),
	)
}

func verdict(label string, keep int32) asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, keep).WithSymbol(label), asm.Return()}
}

// mask is that of a prefix of an address of 16 bytes, or one of 4 bytes and
// zeros, in the two words that a register would load of it.
func mask(length int) (m [2]uint64) {
	var b [16]byte
	for i := range length {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return [2]uint64{binary.NativeEndian.Uint64(b[:8]), binary.NativeEndian.Uint64(b[8:])}
}

// inOrder16 is what a register holds that has loaded n in network byte order.
func inOrder16(n uint16) int32 {
	return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n)))
}

func inOrder32(n uint32) int32 {
	return int32(binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, n)))
}

// load gives a program to the kernel. It calls nothing that is for programs
// under the GPL only.
func load(p asm.Instructions) (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "throttled",
		Type:         ebpf.SocketFilter,
		Instructions: p,
		License:      "Apache-2.0",
	})
	if err != nil {
		return nil, fmt.Errorf("kerneldrop: loading the filter: %w", err)
	}
	return prog, nil
}
