package history

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ee4278a0/throttled/netx"
)

func ask(t *testing.T, r *Recorder, query string) (a Answer) {
	t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", "/v1/history"+query, nil))
	require.Equal(t, 200, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a), w.Body.String())
	return a
}

func TestTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := int64(0)
		r := Start(func() (float64, []netx.ListenerReport) {
			n++
			return 0.5, []netx.ListenerReport{{
				Name: "game", Protocol: "udp", Packets: n, Bytes: 10 * n, Forwarded: n - 1, Replies: 2 * n, ReplyBytes: 20 * n,
				Dropped: map[string]int64{"soft_throttle": 1}, SessionsActive: 3, ConnectionsActive: 4,
			}}
		})
		defer r.Close()
		start := time.Now().UTC()
		first := ask(t, r, "")
		assert.Equal(t, Answer{EverySeconds: 1, Keep: 600, Samples: []Sample{{
			Seq: 1, At: start, RefillRatio: 0.5, Listeners: []Listener{{
				Name: "game", Protocol: "udp", Packets: 1, Bytes: 10, Replies: 2, ReplyBytes: 20,
				Dropped: map[string]int64{"soft_throttle": 1}, SessionsActive: 3, ConnectionsActive: 4,
			}},
		}}}, first, "there is something to see at once")

		time.Sleep(20*time.Minute + time.Millisecond)
		synctest.Wait()
		all := ask(t, r, "").Samples
		require.Len(t, all, Keep)
		for i, s := range all {
			assert.EqualValues(t, 1201-Keep+1+i, s.Seq)
			assert.EqualValues(t, s.Seq, s.Listeners[0].Packets)
			assert.Equal(t, start.Add(time.Duration(s.Seq-1)*time.Second), s.At)
		}
		assert.Equal(t, all[Keep-2:], ask(t, r, "?last=2").Samples)
		assert.Equal(t, all, ask(t, r, "?last=1000000").Samples)
	})
}

// Many listeners make the history shorter, not larger.
func TestBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := make([]netx.ListenerReport, 1000)
		for i := range many {
			many[i].Name = strings.Repeat("x", 100)
		}
		r := Start(func() (float64, []netx.ListenerReport) { return 1, many })
		defer r.Close()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		assert.LessOrEqual(t, r.bytes, keepBytes)
		assert.Greater(t, len(r.samples), 10)
		assert.Less(t, len(r.samples), 120)
	})
}

func TestWrongQuestion(t *testing.T) {
	r := &Recorder{}
	for _, last := range []string{"0", "-1", "x", "1e3"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/v1/history?last="+last, nil))
		assert.Equal(t, 400, w.Code, last)
		assert.JSONEq(t, `{"error": "last has to be a number of samples, 1 or more"}`, w.Body.String())
	}
	assert.Empty(t, ask(t, r, "?last=5").Samples)
}
