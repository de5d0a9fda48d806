package netx

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
)

func TestPolicyOf(t *testing.T) {
	const other = 9
	for _, test := range []struct {
		o       Opcodes
		payload string
		want    engine.PolicyID
	}{
		{Opcodes{}, "T", other},
		{Opcodes{Policies: map[uint32]engine.PolicyID{'T': 1, 0: 2}}, "T", 1}, // one byte at the beginning
		{Opcodes{Policies: map[uint32]engine.PolicyID{'T': 1, 0: 2}}, "\x00T", 2},
		{Opcodes{Policies: map[uint32]engine.PolicyID{'T': 1, 0: 2}}, "", other},
		{Opcodes{Policies: map[uint32]engine.PolicyID{'T': 1, 0: 2}}, "U", other},
		{Opcodes{Size: 2, Policies: map[uint32]engine.PolicyID{0x0102: 1, 0x0201: 2}}, "\x01\x02", 1}, // big-endian
		{Opcodes{Size: 2, Policies: map[uint32]engine.PolicyID{0x0102: 1, 0x0201: 2}}, "\x02\x01\x02", 2},
		{Opcodes{Size: 2, Policies: map[uint32]engine.PolicyID{1: 1}}, "\x01", other}, // too short
		{Opcodes{Offset: 4, Size: 4, Policies: map[uint32]engine.PolicyID{0xffffffff: 1}}, "\x00\x00\x00\x00\xff\xff\xff\xff", 1},
		{Opcodes{Offset: 4, Size: 4, Policies: map[uint32]engine.PolicyID{0xffffffff: 1}}, "\xff\xff\xff\xff\xff\xff\xff", other},
	} {
		l := ListenerConfig{Policy: other, Opcodes: test.o}
		assert.Equal(t, test.want, l.PolicyOf([]byte(test.payload)), "%+v %q", test.o, test.payload)
	}
}

func TestPolicyOfAllocatesNothing(t *testing.T) {
	l := ListenerConfig{Opcodes: Opcodes{Size: 2, Policies: map[uint32]engine.PolicyID{0x5454: 1}}}
	payload := []byte("TTT")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if l.PolicyOf(payload) != 1 {
			t.Error("another policy")
		}
	}))
}

func TestOpcodeMistakes(t *testing.T) {
	one := map[uint32]engine.PolicyID{1: 0}
	for want, o := range map[string]Opcodes{
		"":                                                  {Offset: MaxDatagram - 4, Size: 4, Policies: map[uint32]engine.PolicyID{0xffffffff: 0}},
		"Opcodes.Size: 5 is outside 1..4":                   {Size: 5, Policies: one},
		"Opcodes.Size: -1 is outside 1..4":                  {Size: -1},
		"Opcodes.Offset: -1 is outside 0..65506":            {Offset: -1, Policies: one},
		"Opcodes.Offset: 65504 is outside 0..65503":         {Offset: 65504, Size: 4, Policies: one},
		"Opcodes.Policies: 0x100 has more than 8 bits":      {Policies: map[uint32]engine.PolicyID{0x100: 0}},
		"Opcodes.Policies: 0x1000000 has more than 24 bits": {Size: 3, Policies: map[uint32]engine.PolicyID{1 << 24: 0}},
	} {
		var m mistakes
		o.check(&m, UDP)
		if want == "" {
			assert.Empty(t, m)
			continue
		}
		require.Len(t, m, 1, want)
		assert.EqualError(t, m[0], want)
	}
	l := ListenerConfig{Name: "a", Protocol: TCP, Listen: loopback(0), Upstream: Echo, Opcodes: Opcodes{Policies: one}}
	require.ErrorContains(t, GatewayConfig{Engine: new(engine.Engine), Listeners: []ListenerConfig{l}}.validate(),
		"netx: listener a: Opcodes: on a tcp listener, which has no datagrams")
}

// What the caller does with the map later is nothing to the gateway.
func TestOpcodesAreCopied(t *testing.T) {
	l := ListenerConfig{Opcodes: Opcodes{Policies: map[uint32]engine.PolicyID{1: 1}}}
	mine := l.withDefaults()
	clear(l.Opcodes.Policies)
	require.Equal(t, []uint32{1}, slices.Collect(maps.Keys(mine.Opcodes.Policies)))
}
