#!/usr/bin/env bash
# Make this emulator's Python environment, once for each content of requirements.txt, and print its folder.
# Every file is checked against the hashes there; to change a version edit requirements.in and run `setup.sh --lock`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ ${1:-} == --lock ]]; then
    tools=$(mktemp -d); trap 'rm -rf "$tools"' EXIT
    python3 -m venv "$tools" && "$tools/bin/pip" install -q pip-tools==7.6.2 >&2
    cd "$here" && "$tools/bin/pip-compile" -q --generate-hashes --no-header --no-emit-index-url --no-emit-options \
        --no-annotate --strip-extras --allow-unsafe -o requirements.txt requirements.in
    exit
fi
lock=$here/requirements.txt
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nemo/venv
venv=$cache/aws-$(sha256sum "$lock" | cut -c1-16)
mkdir -p "$cache"
exec 9>"$venv.lock"; flock 9    # two sandboxes may start at once
if [[ ! -e $venv/.complete ]]; then
    rm -rf "$venv"
    echo "sandbox/aws: installing moto and what it needs into $venv (about a minute, once)" >&2
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$lock" >&2
    touch "$venv/.complete"
fi
echo "$venv"
