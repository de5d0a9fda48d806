module github.com/seed-ee4278a0/throttled/bench

go 1.26

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/seed-ee4278a0/throttled v0.0.0
)

require github.com/gaissmai/bart v0.30.0 // indirect

replace github.com/seed-ee4278a0/throttled => ../
