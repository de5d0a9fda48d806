// Package limiter hands out permits: so many at a time, or so many in a time.
// Unlike the engine it can wait.
package limiter
