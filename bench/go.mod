module github.com/seed-ee4278a0/throttled/bench

go 1.26

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/seed-ee4278a0/throttled v0.0.0
	github.com/sethvargo/go-limiter v0.7.1
	go.uber.org/ratelimit v0.3.1
	golang.org/x/sync v0.19.0
	golang.org/x/time v0.14.0
)

require (
	github.com/benbjohnson/clock v1.3.0 // indirect
	github.com/gaissmai/bart v0.30.0 // indirect
)

replace github.com/seed-ee4278a0/throttled => ../
