package config

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/engine"
)

// FuzzConfig feeds anything to Parse: it never panics, and it either points to
// what is wrong or has a configuration that an engine accepts.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(full))
	f.Add(defaultFile)
	for _, c := range wrong {
		f.Add([]byte(c.file))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		c, err := Parse("f", data)
		if err == nil {
			e, err := engine.New(c.Engine)
			require.NoError(t, err)
			defer e.Close()
			_, err = c.Gateway(e)
			require.NoError(t, err)
			again(t, c)
			return
		}
		var m *Mistakes
		require.True(t, errors.As(err, &m), "%v", err)
		require.NotEmpty(t, m.List)
		lines := bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) + 1
		for _, k := range m.List {
			require.True(t, k.Line >= 1 && k.Line <= lines+1 && k.Column >= 1, "%+v", k)
			require.NotEmpty(t, k.Text)
			require.False(t, strings.ContainsAny(k.Path+k.Text, "\n\r"), "%+v", k)
		}
	})
}
