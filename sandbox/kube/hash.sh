#!/usr/bin/env bash
# Prints the hash of what the binary is built from. It is part of the binary's name, so that checkouts of different age can share a cache.
set -euo pipefail
cd "$(dirname "$0")"
find . -type f \( -name '*.go' -o -name 'go.*' -o -name build.sh \) -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-12
