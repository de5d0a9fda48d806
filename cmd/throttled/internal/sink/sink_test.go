package sink

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestEverythingIsWrittenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, want strings.Builder
		n := 0
		s := New(&out, 100, func(err error) { assert.NoError(t, err); n++ })
		for i := range 100 {
			line := fmt.Sprintln("line", i)
			want.WriteString(line)
			assert.True(t, s.Put([]byte(line)))
		}
		assert.True(t, s.Close())
		assert.Equal(t, want.String(), out.String())
		assert.Equal(t, 100, n)
		s.Put(nil) // too late, and no harm
	})
}

func TestAStalledReaderHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := New(w, 2, func(error) {})
		assert.True(t, s.Put([]byte("a")))
		synctest.Wait() // it is being written
		assert.True(t, s.Put([]byte("b")))
		assert.True(t, s.Put([]byte("c")))
		assert.False(t, s.Put([]byte("d")), "there is room for two")
		assert.False(t, s.Empty())
		began := time.Now()
		assert.False(t, s.Close())
		assert.Equal(t, patience, time.Since(began))
		got := make([]byte, 4)
		for i := range 3 {
			_, _ = r.Read(got[i:])
		}
		assert.Equal(t, "abc\x00", string(got))
		assert.True(t, s.Empty())
	})
}

func TestErrorsAreToldAndPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []error
		full := errors.New("full")
		s := New(writer(func() error { return full }), 1, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		})
		for range 3 {
			s.Put([]byte("x"))
			synctest.Wait()
		}
		s.Close()
		assert.Equal(t, []error{full, full, full}, told)
	})
}

type writer func() error

func (w writer) Write([]byte) (int, error) { return 0, w() }
