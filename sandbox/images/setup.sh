#!/usr/bin/env bash
# Gets and makes what the upstream registry serves: once, in the cache. Prints the folder of its Python environment.
set -euo pipefail
cd "$(dirname "$0")"
command -v docker-registry > /dev/null || { echo "docker-registry is missing: apt-get install docker-registry" >&2; exit 1; }
venv=$(../venv.sh images requirements.txt)
"$venv/bin/python" -m images check
began=$SECONDS
store=$("$venv/bin/python" -m images store)
echo "upstream images and charts: $store ($((SECONDS - began)) s)" >&2
echo "$venv"
