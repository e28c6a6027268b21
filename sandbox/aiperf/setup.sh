#!/usr/bin/env bash
# aiperf for the shared volume, which pods without a way out mount: the lock's wheels, and an installation made by the very command that the
# bench Job runs. Prints the folder; in it: wheels/ and installed/ (with .complete, as the Job writes it: the lock's sha256).
set -euo pipefail
cd "$(dirname "$0")"
lock=$(realpath ../../configs/aiperf-0.13.0.lock)
sum=$(sha256sum < "$lock" | cut -d' ' -f1)
at=${XDG_CACHE_HOME:-$HOME/.cache}/nemo/aiperf/${sum:0:12}
python=/usr/bin/python3.11
mkdir -p "$at"
exec 9> "$at.lock"; flock 9
if [ ! -f "$at/wheels/.complete" ]; then
  began=$SECONDS
  echo "getting the wheels of aiperf 0.13.0 ($(grep -c '^[a-z0-9].*==' "$lock") packages, 300 MB, once)" >&2
  rm -rf "$at/wheels"
  "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$lock" -d "$at/wheels" >&2
  touch "$at/wheels/.complete"
  echo "wheels of aiperf: $((SECONDS - began)) s" >&2
fi
if [ "$(cat "$at/installed/.complete" 2> /dev/null)" != "$sum" ]; then
  began=$SECONDS
  rm -rf "$at/installed"
  "$python" -m pip install -q --disable-pip-version-check --target "$at/installed" --require-hashes -r "$lock" --no-index --find-links "$at/wheels" >&2
  echo -n "$sum" > "$at/installed/.complete"
  echo "aiperf installed: $((SECONDS - began)) s" >&2
fi
echo "$at"
