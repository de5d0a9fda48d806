package policy

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/tokenbucket"
)

func TestValidate(t *testing.T) {
	const minute = time.Minute
	bytes := func(l tokenbucket.Limit) Policy { return Policy{Bytes: &l} }
	packets := func(l tokenbucket.Limit) Policy { return Policy{Packets: l} }
	escalation := func(e Escalation) Policy { return Policy{Escalation: e} }
	tests := []struct {
		name   string
		policy Policy
		want   []string // what each line of the error begins with
	}{
		{"zero value", Policy{}, nil},
		{"every field", Policy{
			Packets: tokenbucket.Limit{Capacity: -1, RefillPerSecond: -1, Scale: -1, Initial: -2},
			Bytes:   &tokenbucket.Limit{Scale: -1, Initial: -2},
			Escalation: Escalation{
				MaxSoftViolations: -1, Window: -1, Lockout: -1, Growth: -1, MaxLockout: -2, ForgetAfter: -1, Spacing: -1,
			},
		}, []string{
			"Packets.Capacity: -1", "Packets.RefillPerSecond: -1", "Packets.Scale: -1", "Packets.Initial: -2",
			"Bytes.Capacity: 0", "Bytes.RefillPerSecond: 0", "Bytes.Scale: -1", "Bytes.Initial: -2",
			"Escalation.MaxSoftViolations: -1", "Escalation.Window: -1ns", "Escalation.Lockout: -1ns", "Escalation.Growth: -1",
			"Escalation.MaxLockout: -2ns is below Lockout, -1ns", "Escalation.ForgetAfter: -1ns", "Escalation.Spacing: -1ns",
		}},

		{"NaN packets", packets(tokenbucket.Limit{RefillPerSecond: math.NaN()}), []string{"Packets.RefillPerSecond: NaN"}},
		{"initial at the default capacity", packets(tokenbucket.Limit{Initial: 64}), nil},
		{"initial above it", packets(tokenbucket.Limit{Initial: 65}), []string{"Packets.Initial: 65"}},
		{"bytes", bytes(tokenbucket.Limit{Capacity: 1500, RefillPerSecond: 1e6}), nil},
		{"bytes have no defaults", bytes(tokenbucket.Limit{}), []string{"Bytes.Capacity: 0", "Bytes.RefillPerSecond: 0"}},

		{"most violations", escalation(Escalation{MaxSoftViolations: math.MaxInt32}), nil},
		{"smallest times", escalation(Escalation{MaxSoftViolations: 1, Window: 1, Lockout: 1, MaxLockout: 1, ForgetAfter: 1, Spacing: 1}), nil},
		{"largest times", escalation(Escalation{Window: Never, Lockout: Never, MaxLockout: Never, ForgetAfter: Never, Spacing: Never}), nil},
		{"growth of 1", escalation(Escalation{Growth: 1}), nil},
		{"growth below 1", escalation(Escalation{Growth: 0.999}), []string{"Escalation.Growth: 0.999 is outside 1..1000"}},
		{"growth of 1000", escalation(Escalation{Growth: 1000}), nil},
		{"growth above 1000", escalation(Escalation{Growth: 1000.1}), []string{"Escalation.Growth: 1000.1"}},
		{"growth NaN", escalation(Escalation{Growth: math.NaN()}), []string{"Escalation.Growth: NaN"}},
		{"growth Inf", escalation(Escalation{Growth: math.Inf(1)}), []string{"Escalation.Growth: +Inf"}},
		{"cap below the lockout", escalation(Escalation{Lockout: minute, MaxLockout: minute - 1}), []string{"Escalation.MaxLockout: 59.999999999s is below Lockout, 1m0s"}},
		{"cap at the lockout", escalation(Escalation{Lockout: minute, MaxLockout: minute}), nil},
		{"cap below the default lockout", escalation(Escalation{MaxLockout: 29 * time.Second}), []string{"Escalation.MaxLockout: 29s is below Lockout, 30s"}},
		{"lockout above the default cap", escalation(Escalation{Lockout: 2 * time.Hour}), nil},
		{"negative spacing", escalation(Escalation{Spacing: -1}), []string{"Escalation.Spacing: -1ns is negative"}},
		{"disabled is checked too", escalation(Escalation{Disabled: true, Window: -1}), []string{"Escalation.Window: -1ns"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.policy.Name = "game"
			err := tt.policy.Validate()
			rule, compileErr := tt.policy.Compile()
			if tt.want == nil {
				require.NoError(t, err)
				require.NoError(t, compileErr)
				return
			}
			require.Error(t, err)
			require.EqualError(t, compileErr, `policy "game": `+err.Error())
			assert.Nil(t, rule)
			lines := strings.Split(err.Error(), "\n")
			require.Len(t, lines, len(tt.want), "%v", err)
			for i, want := range tt.want {
				assert.True(t, strings.HasPrefix(lines[i], want), "%q is not %q...", lines[i], want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	want := Policy{
		Packets: tokenbucket.Limit{Capacity: 64, RefillPerSecond: 32, Scale: 100},
		Escalation: Escalation{
			MaxSoftViolations: 5, Window: 8 * time.Second, Lockout: 30 * time.Second,
			Growth: 1, MaxLockout: time.Hour, ForgetAfter: 10 * time.Minute,
		},
	}
	assert.Equal(t, want, Policy{}.WithDefaults())
	assert.Equal(t, want, newEndpoint(t, Policy{}).rule.Policy())
	assert.Equal(t, int64(64), newEndpoint(t, Policy{}).rule.Tokens(&State{}, at(0)))

	want.Escalation.Lockout, want.Escalation.MaxLockout = 2*time.Hour, 2*time.Hour
	assert.Equal(t, want, Policy{Escalation: Escalation{Lockout: 2 * time.Hour}}.WithDefaults())
	assert.Equal(t, 2*time.Hour, newEndpoint(t, want).rule.LockoutLength())
}

// A rule is immutable, whatever its makers and users do with their policies.
func TestRuleKeepsItsPolicy(t *testing.T) {
	bytes := tokenbucket.Limit{Capacity: 10, RefillPerSecond: 1}
	rule := newEndpoint(t, Policy{Name: "game", Bytes: &bytes}).rule
	assert.Zero(t, bytes.Scale, "the defaults were written into the caller's limit")
	bytes.Capacity = 99
	rule.Policy().Bytes.Capacity = 77
	assert.Equal(t, &tokenbucket.Limit{Capacity: 10, RefillPerSecond: 1, Scale: 100}, rule.Policy().Bytes)
	assert.Equal(t, "game", rule.Policy().Name)
	assert.True(t, rule.HasBytes())
	assert.False(t, newEndpoint(t, Policy{}).rule.HasBytes())
}
