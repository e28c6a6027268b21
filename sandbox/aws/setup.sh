#!/usr/bin/env bash
# Make this emulator's Python environment (once for each content of requirements.txt) and print its folder.
# To change a version edit requirements.in and run `setup.sh --lock`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ ${1:-} == --lock ]]; then
    tools=$(mktemp -d); trap 'rm -rf "$tools"' EXIT
    python3 -m venv "$tools" && "$tools/bin/pip" install -q pip-tools==7.6.2 >&2
    "$tools/bin/pip-compile" -q --generate-hashes --no-header --no-emit-index-url --no-emit-options \
        --no-annotate --strip-extras --allow-unsafe -o requirements.txt requirements.in
    exit
fi
exec ../venv.sh aws requirements.txt
