#!/usr/bin/env bash
# Prints the folder of a Python environment with exactly what LOCK says, and makes it first if it is not there: venv.sh NAME LOCK
# Cached by the lock's hash, so that a changed lock is a new environment and an old sandbox keeps its own.
set -euo pipefail
name=$1 lock=$2
# Pods see the machine's /usr and nothing else of it: a Python from elsewhere would not start there.
python=/usr/bin/python3.11
[ -x "$python" ] || { echo "venv.sh: $python is missing; the sandbox's programs run in pods that see only /usr: apt-get install python3.11 python3.11-venv" >&2; exit 1; }
hash=$(sha256sum < "$lock" | cut -c 1-12)
at=${XDG_CACHE_HOME:-$HOME/.cache}/nemo/venv/$name-$hash
if [ ! -f "$at/.complete" ]; then
  began=$SECONDS
  mkdir -p "$(dirname "$at")"
  exec 9> "$at.lock"; flock 9 # two sandboxes may want it at once
  if [ ! -f "$at/.complete" ]; then
    echo "getting Python packages for $name ($(grep -c '^[a-z0-9].*==' "$lock"), once)" >&2
    rm -rf "$at"
    "$python" -m venv "$at"
    "$at/bin/pip" install -q --disable-pip-version-check --no-deps --require-hashes -r "$lock" >&2
    touch "$at/.complete"
    echo "Python packages for $name: $((SECONDS - began)) s" >&2
  fi
fi
echo "$at"
