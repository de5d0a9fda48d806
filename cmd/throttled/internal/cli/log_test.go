package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Nobody reads the log for a while: what is logged meanwhile holds nobody up,
// and how much of it is lost can be read afterwards.
func TestLogThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 100
		r, w := io.Pipe()
		log, flush := logTo(w, false)
		log.Info("first")
		synctest.Wait() // the first line is being written
		for range logRoom + more {
			log.Info("next")
		}
		lines := make(chan map[string]any)
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(r); s.Scan(); {
				line := map[string]any{}
				assert.NoError(t, json.Unmarshal(s.Bytes(), &line))
				lines <- line
			}
		}()
		var got []map[string]any
		for range 1 + logRoom {
			got = append(got, <-lines)
		}
		go flush()
		last := <-lines
		require.Equal(t, "first", got[0]["msg"])
		require.Equal(t, "next", got[logRoom]["msg"])
		assert.Equal(t, "log lines were left out: nobody read those before them", last["msg"])
		assert.EqualValues(t, more, last["lines"])
		synctest.Wait()
		require.NoError(t, w.Close())
		<-lines
	})
}
