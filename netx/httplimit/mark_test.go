package httplimit

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A site is Limits with policies a and b and a global limiter, each with so many
// slots, of which nobody ever returns one, so that what is gone tells what was
// asked.
type site struct {
	t testing.TB
	*Limits
	global, a, b one
}

func newSite(t testing.TB) *site {
	s := &site{t: t, global: rate(t, 100), a: rate(t, 100), b: rate(t, 100)}
	s.Limits = newLimits(t, Options{Global: s.global})
	named(t, s.Limits, "a", Policy{Limiter: s.a})
	named(t, s.Limits, "b", Policy{Limiter: s.b})
	return s
}

func (s *site) require(name string, h http.Handler) http.Handler { return mark(s.t, s.Limits, name, h) }

// asked are the limiters that requests have cost something, as in "ab global".
func (s *site) asked() string {
	var names []string
	for _, l := range []struct {
		name string
		one
	}{{"a", s.a}, {"b", s.b}, {"global", s.global}} {
		switch st := l.stats(); st.Successful {
		case 0:
		case 1:
			names = append(names, l.name)
		default:
			names = append(names, l.name+" again")
		}
	}
	return strings.Join(names, " ")
}

func TestWhichMarkApplies(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Pattern)) })
	mux := func(routes map[string]http.Handler) http.Handler {
		m := http.NewServeMux()
		for pattern, h := range routes {
			m.Handle(pattern, h)
		}
		return m
	}
	for _, tc := range []struct {
		name string
		next func(s *site) http.Handler
		path string // "/" where empty
		want string
		code int // 200 where 0
	}{
		{name: "none", next: func(*site) http.Handler { return ok }, want: "global"},
		{name: "next's own", next: func(s *site) http.Handler { return s.require("a", ok) }, want: "a global"},
		{name: "H207 the innermost", next: func(s *site) http.Handler { return s.require("a", s.require("b", ok)) }, want: "b global"},
		{name: "disabled", next: func(*site) http.Handler { return Disable(ok) }},
		{name: "disabled around", next: func(s *site) http.Handler { return Disable(s.require("a", ok)) }},
		{name: "disabled inside", next: func(s *site) http.Handler { return s.require("a", Disable(s.require("b", ok))) }},

		{name: "matched, none", next: func(*site) http.Handler { return mux(map[string]http.Handler{"/": ok}) }, want: "global"},
		{name: "matched", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"/": s.require("a", ok), "/b": s.require("b", ok)})
		}, path: "/b", want: "b global"},
		{name: "H207 matched, the innermost", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"/": s.require("a", s.require("b", ok))})
		}, want: "b global"},
		{name: "matched, disabled", next: func(s *site) http.Handler { return mux(map[string]http.Handler{"/": Disable(s.require("a", ok))}) }},
		{name: "matched, disabled inside", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"/": s.require("a", Disable(s.require("b", ok)))})
		}},
		{name: "by method", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"POST /x": s.require("a", ok), "GET /x": s.require("b", ok)})
		}, path: "/x", want: "b global"},
		{name: "by wildcard", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"/{id}/edit": s.require("a", ok), "/": s.require("b", ok)})
		}, path: "/17/edit", want: "a global"},
		{name: "by host", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"example.com/": s.require("a", ok), "/": s.require("b", ok)})
		}, want: "a global"},
		{name: "not found", next: func(s *site) http.Handler { return mux(map[string]http.Handler{"/a": s.require("a", ok)}) },
			path: "/b", want: "global", code: 404},
		{name: "wrong method", next: func(s *site) http.Handler { return mux(map[string]http.Handler{"POST /": s.require("a", ok)}) },
			want: "global", code: 405},
		{name: "redirected to the directory", next: func(s *site) http.Handler { return mux(map[string]http.Handler{"/a/": s.require("a", ok)}) },
			path: "/a", want: "global", code: 307},
		{name: "redirected to the clean path", next: func(s *site) http.Handler { return mux(map[string]http.Handler{"/a": s.require("a", ok)}) },
			path: "//a", want: "global", code: 307},

		{name: "a mark around the mux", next: func(s *site) http.Handler {
			return s.require("a", mux(map[string]http.Handler{"/": ok}))
		}, want: "a global"},
		{name: "a mark around the mux, and nothing found", next: func(s *site) http.Handler {
			return s.require("a", mux(map[string]http.Handler{"/x": ok}))
		}, want: "a global", code: 404},
		{name: "a mark around the mux and one inside", next: func(s *site) http.Handler {
			return s.require("a", mux(map[string]http.Handler{"/": s.require("b", ok)}))
		}, want: "b global"},
		{name: "the mux disabled", next: func(s *site) http.Handler {
			return Disable(mux(map[string]http.Handler{"/": s.require("b", ok)}))
		}},
		{name: "a mux in a mux", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"/api/": mux(map[string]http.Handler{"/api/x": s.require("a", ok)})})
		}, path: "/api/x", want: "a global"},
		{name: "a marked mux in a mux", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"/api/": s.require("a", mux(map[string]http.Handler{"/api/x": ok, "/api/y": s.require("b", ok)}))})
		}, path: "/api/x", want: "a global"},
		{name: "H207 a mark in a marked mux in a mux", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"/api/": s.require("a", mux(map[string]http.Handler{"/api/x": ok, "/api/y": s.require("b", ok)}))})
		}, path: "/api/y", want: "b global"},

		{name: "wrapped twice", next: func(s *site) http.Handler { return s.Wrap(s.require("a", ok)) }, want: "a global"},
		{name: "wrapped twice with a mark between", next: func(s *site) http.Handler { return s.require("b", s.Wrap(s.require("a", ok))) }, want: "a global"},
		{name: "wrapped in the mux too", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"/": s.Wrap(mux(map[string]http.Handler{"/x": s.require("a", ok)}))})
		}, path: "/x", want: "a global"},
		{name: "wrapped behind what hides it", next: func(s *site) http.Handler {
			return http.StripPrefix("/x", s.Wrap(s.require("a", ok)))
		}, path: "/x/y", want: "a global again"},
		{name: "wrapped behind what hides it, once", next: func(s *site) http.Handler {
			return Disable(http.StripPrefix("/x", s.Wrap(s.require("a", ok))))
		}, path: "/x/y", want: "a global"},
		{name: "a mark around what would hide it", next: func(s *site) http.Handler {
			return mux(map[string]http.Handler{"/x/": s.require("a", http.TimeoutHandler(http.StripPrefix("/x", ok), time.Minute, ""))})
		}, path: "/x/y", want: "a global"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				h := s.Wrap(tc.next(s))
				w := get(h, "/"+strings.TrimPrefix(tc.path, "/"))
				if tc.code == 0 {
					tc.code = http.StatusOK
				}
				if w.Code == http.StatusMovedPermanently || w.Code == http.StatusTemporaryRedirect {
					w.Code = http.StatusTemporaryRedirect // which of them is the mux's to say
				}
				assert.Equal(t, tc.code, w.Code, w.Body)
				assert.Equal(t, tc.want, s.asked())
				s.passing.requests.Range(func(any, any) bool { t.Error("a request is still passing"); return false })
			})
		})
	}
}

// The mux dispatches by itself, on the request as it came, so that the handler
// and those before Wrap see what it finds.
func TestPatternAndPathValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		seen := ""
		mux := http.NewServeMux()
		mux.Handle("GET /users/{id}/{rest...}", s.require("a", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = r.Pattern + " " + r.PathValue("id") + " " + r.PathValue("rest")
		})))
		r := httptest.NewRequest(http.MethodGet, "/users/7/a/b", nil)
		s.Wrap(mux).ServeHTTP(httptest.NewRecorder(), r)
		assert.Equal(t, "GET /users/{id}/{rest...} 7 a/b", seen)
		assert.Equal(t, "GET /users/{id}/{rest...}", r.Pattern)
		assert.Equal(t, "7", r.PathValue("id"))
		assert.Equal(t, "a global", s.asked())
	})
}

// The handler gets the ResponseWriter as it came.
func TestResponseWriterAsItCame(t *testing.T) {
	s := newSite(t)
	var got http.ResponseWriter
	mux := http.NewServeMux()
	mux.Handle("/", s.require("a", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w })))
	w := httptest.NewRecorder()
	s.Wrap(mux).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Same(t, w, got)
}

func TestMarkWithoutWrap(t *testing.T) {
	served := new(page)
	hidden := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) })
	}
	for _, tc := range []struct {
		name string
		h    func(s *site) http.Handler
	}{
		{"J270", func(s *site) http.Handler { return s.require("a", served) }},
		{"J270 unnamed", func(s *site) http.Handler { return requirePolicy(t, s.Limits, Policy{Limiter: s.a}, served) }},
		{"behind other middleware", func(s *site) http.Handler { return s.Wrap(hidden(s.require("a", served))) }},
		{"behind other middleware in the mux", func(s *site) http.Handler {
			m := http.NewServeMux()
			m.Handle("/", hidden(s.require("a", served)))
			return s.Wrap(m)
		}},
		{"behind a changed request", func(s *site) http.Handler {
			return s.Wrap(http.StripPrefix("/", s.require("a", served)))
		}},
		{"around other middleware with a mark of its own inside", func(s *site) http.Handler {
			m := http.NewServeMux()
			m.Handle("/", s.require("a", hidden(s.require("b", served))))
			return s.Wrap(m)
		}},
		{"of other Limits", func(s *site) http.Handler { return s.Wrap(newSite(t).require("a", served)) }},
		{"of other Limits, in the mux", func(s *site) http.Handler {
			m := http.NewServeMux()
			m.Handle("/", newSite(t).require("a", served))
			return s.Wrap(m)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := get(tc.h(newSite(t)), "/")
			assert.Equal(t, http.StatusInternalServerError, w.Code)
			assert.Contains(t, w.Body.String(), "serve it through Limits.Wrap")
			assert.Zero(t, served.served.Load())
		})
	}
}

// Disable wins over every mark and every middleware of whichever Limits that it
// sees or that see it, with Wrap and without.
func TestDisableWins(t *testing.T) {
	type build func(h http.Handler) http.Handler
	s, other := newSite(t), newSite(t)
	layers := map[string]build{
		"Disable":       Disable,
		"Require":       func(h http.Handler) http.Handler { return s.require("a", h) },
		"RequirePolicy": func(h http.Handler) http.Handler { return requirePolicy(t, s.Limits, Policy{Limiter: s.b}, h) },
		"Wrap":          s.Wrap,
		"other Require": func(h http.Handler) http.Handler { return other.require("a", h) },
		"other Wrap":    other.Wrap,
		"mux": func(h http.Handler) http.Handler {
			m := http.NewServeMux()
			m.Handle("/", h)
			return m
		},
	}
	var nest func(name string, h http.Handler, depth int, disabled bool)
	nest = func(name string, h http.Handler, depth int, disabled bool) {
		if disabled {
			w := get(h, "/")
			require.Equal(t, http.StatusOK, w.Code, "%s: %s", name, w.Body)
			require.Empty(t, s.asked()+other.asked(), name)
		}
		if depth == 0 {
			return
		}
		for layer, around := range layers {
			nest(layer+"("+name+")", around(h), depth-1, disabled || layer == "Disable")
		}
	}
	nest("page", new(page), 4, false)
	for _, l := range []*Limits{s.Limits, other.Limits} {
		l.passing.requests.Range(func(any, any) bool { t.Error("a request is still passing"); return false })
	}
}

// A disabled handler that sends a request of its own through the limits does
// not take it past them.
func TestDisableIsOfTheRequest(t *testing.T) {
	s := newSite(t)
	h := s.Wrap(s.require("a", new(page)))
	batch := Disable(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r.Clone(r.Context())) }))
	require.Equal(t, http.StatusOK, get(s.Wrap(batch), "/").Code)
	assert.Equal(t, "a global", s.asked())
}

// Limits around Limits: each applies its own marks.
func TestSeveralLimits(t *testing.T) {
	s, other := newSite(t), newSite(t)
	mux := http.NewServeMux()
	mux.Handle("/", s.require("a", other.require("b", new(page))))
	mux.Handle("/disabled", s.require("a", other.require("b", Disable(new(page)))))
	h := s.Wrap(other.Wrap(mux))
	require.Equal(t, http.StatusOK, get(h, "/").Code)
	require.Equal(t, http.StatusOK, get(h, "/disabled").Code)
	assert.Equal(t, "a global", s.asked())
	assert.Equal(t, "b global", other.asked())
}

// A request that a handler sends through the limits once more is a new attempt.
func TestSentThroughAgain(t *testing.T) {
	s := newSite(t)
	var h http.Handler
	mux := http.NewServeMux()
	mux.Handle("/first", s.require("a", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/second"
		h.ServeHTTP(w, r)
	})))
	mux.Handle("/second", s.require("b", new(page)))
	h = s.Wrap(mux)
	assert.Equal(t, http.StatusOK, get(h, "/first").Code)
	assert.Equal(t, "a b global again", s.asked())
}

func TestLog(t *testing.T) {
	logger := func(level slog.Level) (*slog.Logger, *bytes.Buffer) {
		b := new(bytes.Buffer)
		return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level})), b
	}
	t.Run("errors, a line a second", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			log, out := logger(slog.LevelInfo)
			l := newLimits(t, Options{Global: broken{one: rate(t, 1), err: errTest}, Logger: log})
			h := l.Wrap(new(page))
			for range 5 {
				get(h, "/")
			}
			assert.Equal(t, 1, strings.Count(out.String(), "\n"))
			time.Sleep(time.Second)
			get(h, "/")
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			require.Len(t, lines, 2)
			assert.Contains(t, lines[1], `level=ERROR msg="httplimit: a limiter failed" policy="" limiter=global_limiter error=test suppressed=4`)
		})
	})
	t.Run("denials", func(t *testing.T) {
		log, out := logger(slog.LevelDebug)
		l := newLimits(t, Options{Global: spent(t), Logger: log})
		get(l.Wrap(new(page)), "/")
		assert.Contains(t, out.String(), `level=DEBUG msg="httplimit: request refused" policy="" result=global_limiter reason="rate limit reached"`)
	})
	t.Run("H216 a request whose client has gone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			log, out := logger(slog.LevelDebug)
			l := newLimits(t, Options{Global: rateQueue(t, 1), Logger: log})
			h := l.Wrap(new(page))
			get(h, "/")
			begin(h, "/").abort()
			assert.Contains(t, out.String(), `result=request_canceled`)
		})
	})
	t.Run("J270", func(t *testing.T) {
		log, out := logger(slog.LevelInfo)
		l := newLimits(t, Options{Logger: log})
		get(requirePolicy(t, l, Policy{Limiter: rate(t, 1)}, new(page)), "/x")
		assert.Contains(t, out.String(), `path=/x`)
	})
}
