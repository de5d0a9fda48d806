package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// opcodes is a file with the opcodes of a listener, in the third line.
func opcodes(s string) string {
	return "listeners:\n  - {name: a, protocol: udp, listen: 127.0.0.1:1, upstream: echo,\n     opcodes: " + s + "}\n"
}

func TestOpcodeMistakes(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"opcodes", opcodes(`{size: 2, policies: {0x54: a, 84: b, "0x0054": c, 0x10000: d, 65536: e, -1: f, x: g, 017: h, 0x: i, 1.5: j, <<: k, "2": default}}`), []string{
			`3:42: listeners[0].opcodes.policies.0x54: there is no policy "a"; allowed: default`,
			"3:45: listeners[0].opcodes.policies: opcode 84 is given twice, first in line 3; allowed: once",
			"3:52: listeners[0].opcodes.policies: opcode 84 is given twice, first in line 3; allowed: once",
			"3:65: listeners[0].opcodes.policies: 0x10000 has more than 16 bits; allowed: 0 to 65535, or in hexadecimal 0x0 to 0xffff",
			"3:77: listeners[0].opcodes.policies: 65536 has more than 16 bits; allowed: 0 to 65535, or in hexadecimal 0x0 to 0xffff",
			`3:87: listeners[0].opcodes.policies: "-1" is not an opcode; allowed: 0 to 65535, or in hexadecimal 0x0 to 0xffff`,
			`3:94: listeners[0].opcodes.policies: "x" is not an opcode; allowed: 0 to 65535, or in hexadecimal 0x0 to 0xffff`,
			`3:100: listeners[0].opcodes.policies: "017" is not an opcode; allowed: 0 to 65535, or in hexadecimal 0x0 to 0xffff`,
			`3:108: listeners[0].opcodes.policies: "0x" is not an opcode; allowed: 0 to 65535, or in hexadecimal 0x0 to 0xffff`,
			`3:115: listeners[0].opcodes.policies: "1.5" is not an opcode; allowed: 0 to 65535, or in hexadecimal 0x0 to 0xffff`,
			"3:123: listeners[0].opcodes.policies: a merge as an opcode; allowed: 0 to 65535, or in hexadecimal 0x0 to 0xffff",
		}},
		{"opcodes of one byte", opcodes("{policies: {256: default, 255: default, 0xFF: default}}"), []string{
			"3:27: listeners[0].opcodes.policies: 256 has more than 8 bits; allowed: 0 to 255, or in hexadecimal 0x0 to 0xff",
			"3:55: listeners[0].opcodes.policies: opcode 255 is given twice, first in line 3; allowed: once",
		}},
		{"opcode policies", opcodes(`{policies: {1: nobody, 2: "", 3: , 4: [default], 0x5: "no body", 6: 7}}`), []string{
			`3:30: listeners[0].opcodes.policies.1: there is no policy "nobody"; allowed: default`,
			`3:41: listeners[0].opcodes.policies.2: "" is not a name; allowed: 1 to 64 letters, digits and signs, without spaces`,
			"3:45: listeners[0].opcodes.policies.3: no value; allowed: 1 to 64 letters, digits and signs, without spaces",
			"3:53: listeners[0].opcodes.policies.4: a list; allowed: 1 to 64 letters, digits and signs, without spaces",
			`3:69: listeners[0].opcodes.policies.0x5: "no body" is not a name; allowed: 1 to 64 letters, digits and signs, without spaces`,
			"3:83: listeners[0].opcodes.policies.6: 7 is not a text; allowed: 1 to 64 letters, digits and signs, without spaces (in quotes where it looks like a number)",
		}},
		{"where opcodes are", opcodes("{offset: 65507, size: 0, policies: []}"), []string{
			"3:24: listeners[0].opcodes.offset: 65507 is too large; allowed: 0 to 65506",
			"3:37: listeners[0].opcodes.size: 0 has no meaning here; allowed: 1 to 4",
			"3:50: listeners[0].opcodes.policies: a list; allowed: a mapping of opcodes to policies, with the keys 0 to 4294967295, or in hexadecimal 0x0 to 0xffffffff",
		}},
		{"opcodes beyond the end", opcodes("{offset: 65505, size: 4, policies: {1: default}}"), []string{
			"3:24: listeners[0].opcodes.offset: no datagram has 4 bytes from 65505 on; allowed: 0 to 65503",
		}},
		{"no opcodes", opcodes("{}"), []string{
			"3:15: listeners[0].opcodes: the key policies is missing",
		}},
		{"none of the opcodes", opcodes("{policies: {}}"), []string{
			"3:26: listeners[0].opcodes.policies: none; allowed: a mapping of opcodes to policies, with the keys 0 to 255, or in hexadecimal 0x0 to 0xff",
		}},
		{"opcodes in a list", opcodes("[1]"), []string{
			"3:15: listeners[0].opcodes: a list; allowed: a mapping with the keys offset, size, policies",
		}},
		{"opcodes of connections", "listeners: [{name: a, protocol: tcp, listen: 127.0.0.1:1, upstream: echo, opcodes: {policies: {1: default}}}]\n", []string{
			"1:84: listeners[0].opcodes: on a tcp listener, which has no datagrams; allowed: on a udp listener",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f", []byte(c.file))
			assert.EqualError(t, err, "f:"+strings.Join(c.want, "\nf:"))
		})
	}
}
