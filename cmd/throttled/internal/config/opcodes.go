package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/seed-ee4278a0/throttled/netx"
)

// opcodes reads which policies the payload picks.
func (d *decoder) opcodes(l *Listener, v value, at places) {
	o := &l.Opcodes
	o.Size = 1
	ok := d.mapping(v, at, []field{
		{"offset", "opcodes.offset", whole(&o.Offset, 0, netx.MaxDatagram-1, "0 to 65506")},
		{"size", "", orElse(&o.Size, netx.MaxOpcodeSize, whole(&o.Size, 1, netx.MaxOpcodeSize, "1 to 4"))},
		{"policies", "opcodes.policies", func(d *decoder, v value) { d.opcodePolicies(l, v, at) }},
	})
	if !ok || !d.required(v, at, "opcodes.policies") {
		return
	}
	if most := netx.MaxDatagram - o.Size; o.Offset > most {
		d.wrong(d.resolve(at["opcodes.offset"]), "no datagram has %d bytes from %d on; allowed: 0 to %d", o.Size, o.Offset, most)
	}
}

// opcodePolicies reads the policy of each opcode.
func (d *decoder) opcodePolicies(l *Listener, v value, at places) {
	v = d.resolve(v)
	allowed := allowedOpcodes(l.Opcodes.Size)
	entries, ok := entriesOf(v.node)
	if !ok || len(entries) == 0 {
		given := describe(v.node)
		if ok {
			given = "none"
		}
		d.wrong(v, "%s; allowed: a mapping of opcodes to policies, with the keys %s", given, allowed)
		return
	}
	l.OpcodePolicies = make(map[uint32]string, len(entries))
	lines := make(map[uint32]int, len(entries))
	for _, e := range entries {
		if !d.visit(v) {
			return
		}
		key := value{node: e.Key, path: v.path}
		opcode, err := parseOpcode(e.Key, l.Opcodes.Size)
		if err != nil {
			d.wrong(key, "%s; allowed: %s", err, allowed)
			continue
		}
		line, _ := position(e.Key)
		if first, twice := lines[opcode]; twice {
			d.wrong(key, "opcode %d is given twice, first in line %d; allowed: once", opcode, first)
			continue
		}
		lines[opcode] = line
		policy, called := d.memberOf(e, join(v.path, word(e.Key))), ""
		if name(&called)(d, policy); called != "" {
			l.OpcodePolicies[opcode], at[placeOf(opcode)] = called, policy
		}
	}
}

// placeOf is the name of the place of an opcode's policy.
func placeOf(opcode uint32) string { return fmt.Sprintf("opcodes.policies.%d", opcode) }

func allowedOpcodes(size int) string {
	most := uint32(1<<(8*size) - 1)
	return fmt.Sprintf("0 to %d, or in hexadecimal 0x0 to %#x", most, most)
}

// parseOpcode reads a number of so many bytes, in decimal or hexadecimal.
func parseOpcode(key ast.MapKeyNode, size int) (uint32, error) {
	var node ast.Node = key
	if marked, ok := key.(*ast.MappingKeyNode); ok {
		node = marked.Value
	}
	s, _, ok := scalar(node)
	if !ok {
		return 0, fmt.Errorf("%s as an opcode", describe(key))
	}
	digits, base := s, 10
	if hex, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 8*size)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s has more than %d bits", shown(s, false), 8*size)
	case err != nil || base == 10 && len(s) > 1 && s[0] == '0':
		return 0, fmt.Errorf("%s is not an opcode", shown(s, true))
	}
	return uint32(n), nil
}
