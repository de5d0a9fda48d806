#!/bin/sh
# Builds dist/throttled_*.deb and dist/throttled-*.rpm for the machine that it
# runs on. A commit gives the same bytes each time. VERSION and SOURCE_DATE_EPOCH
# say what git does not, where the source is no checkout.
set -eu
cd "$(dirname "$0")/../../.."
GO=${GO:-go}
NFPM=${NFPM:-github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4}

# 0.0.0~20261130.2dfb6a0 until there are tags.
: "${VERSION:=$(git describe --tags --match 'v*' 2>/dev/null ||
	git log -1 --format=0.0.0~%cd.%h --date=format:%Y%m%d)}"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
ARCH=$("$GO" env GOARCH)
export VERSION SOURCE_DATE_EPOCH ARCH

rm -rf dist
CGO_ENABLED=0 "$GO" build -buildvcs=auto -trimpath -ldflags '-s -w' -o dist/throttled ./cmd/throttled
"$GO" run ./cmd/throttled/packaging dist/docs "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)"
gzip -9n dist/docs/*.1 dist/docs/*.5
for packager in deb rpm; do
	"$GO" run "$NFPM" package -f cmd/throttled/packaging/nfpm.yaml -p "$packager" -t dist
done
