# The gateway is built for Linux; the library builds everywhere Go runs.
GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
# A number of executions: go 1.26 can take the end of a duration for a failure (go.dev/issue/75804).
FUZZTIME    ?= 200000x
PLATFORMS   ?= darwin/arm64 windows/amd64 linux/arm64 linux/386

.DEFAULT_GOAL := help
.PHONY: help build run package package-test test race browser fuzz bench bench-lib bench-limiters bench-udp bench-tcp bench-flood lint check cross
.NOTPARALLEL: # measurements

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/throttled
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/throttled ./cmd/throttled

# With job control Ctrl-C reaches the gateway alone, so that make ends with its 0.
run: build ## run the gateway on its embedded default
	@if [ -t 0 ]; then set -m; fi; bin/throttled run

package: ## build dist/*.deb and dist/*.rpm for machines like this
	GO="$(GO)" cmd/throttled/packaging/build.sh
package-test: ## test dist/*.deb: what it holds, and its service under a systemd in namespaces; as root
	$(GO) test -tags package -count=1 -v ./cmd/throttled/packaging
test: ## run all tests
	$(GO) test -shuffle=on ./... && cd bench && $(GO) test -shuffle=on ./...
race: ## run all tests under the race detector, one package at a time: some load all cores
	$(GO) test -race -shuffle=on -p 1 ./... && cd bench && $(GO) test -race -shuffle=on -p 1 ./...
browser: ## test the page of the admin server in headless Chromium
	$(GO) test -tags browser -run '^TestPage' ./cmd/throttled

fuzz: ## run each fuzz target for FUZZTIME
	@for package in $$($(GO) list ./...); do \
	for target in $$($(GO) test -list '^Fuzz' $$package | grep ^Fuzz); do \
		$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$package || exit 1; \
	done; done

# Flags for all: make bench BENCH="-rounds 1 -for 100ms" is a try. Tables are printed, JSON and plots in bench/results.
bench: bench-lib bench-limiters bench-udp bench-tcp bench-flood ## measure everything, 20 minutes on a quiet machine
bench-lib: ## decisions beside other libraries
bench-limiters: ## limiters that can wait beside others
bench-udp: ## UDP beside nginx, and gnet without batches
bench-tcp: ## TCP beside nginx and haproxy
bench-flood: ## honest clients beside a flood
bench-lib bench-limiters bench-udp bench-tcp bench-flood:
	cd bench && $(GO) run ./$(@:bench-%=%) $(BENCH)

lint: ## gofmt, go vet, go mod tidy and staticcheck
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not gofmt'd: $$unformatted"; exit 1; }
	$(GO) vet ./... && cd bench && $(GO) vet ./...
	$(GO) mod tidy -diff && cd bench && $(GO) mod tidy -diff
	for module in . bench; do (cd $$module && $(GO) run $(STATICCHECK) -checks inherit,-ST1005 ./...) || exit 1; done # errors begin with the name of a field
cross: ## compile for the other platforms
	@for platform in $(PLATFORMS); do \
		echo "$$platform"; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) vet ./... || exit 1; \
	done

check: lint cross race ## all that has to be right before a commit lands
