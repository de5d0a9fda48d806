module github.com/seed-ee4278a0/throttled

go 1.26

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/gaissmai/bart v0.30.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
