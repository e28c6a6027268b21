#!/usr/bin/env bash
# Gets what the hub runs with: once, in the cache. Prints the folder of its Python environment.
set -euo pipefail
cd "$(dirname "$0")"
exec ../venv.sh hub requirements.txt
