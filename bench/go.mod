module github.com/seed-ee4278a0/throttled/bench

go 1.26

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/juju/ratelimit v1.0.2
	github.com/panjf2000/gnet/v2 v2.9.7
	github.com/seed-ee4278a0/throttled v0.0.0
	github.com/sethvargo/go-limiter v0.7.1
	github.com/stretchr/testify v1.12.1
	github.com/throttled/throttled/v2 v2.15.0
	github.com/ulule/limiter/v3 v3.11.2
	go.uber.org/ratelimit v0.3.1
	golang.org/x/sync v0.19.0
	golang.org/x/sys v0.44.0
	golang.org/x/time v0.14.0
	golang.zx2c4.com/wireguard v0.0.0-20260522210424-ecfc5a8d5446
)

require (
	github.com/benbjohnson/clock v1.3.0 // indirect
	github.com/cilium/ebpf v0.20.0 // indirect
	github.com/gaissmai/bart v0.30.0 // indirect
	github.com/hashicorp/golang-lru v0.5.4 // indirect
	github.com/panjf2000/ants/v2 v2.11.3 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // indirect
)

replace github.com/seed-ee4278a0/throttled => ../
