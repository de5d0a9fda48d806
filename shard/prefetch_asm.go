//go:build amd64 || arm64

package shard

import "unsafe"

// prefetch asks for the cache lines of two addresses and does not wait for
// them, as a load would when the processor runs out of room to look ahead.
//
//go:noescape
func prefetch(first, last unsafe.Pointer)
