#!/usr/bin/env bash
# Gets the real Dynamo runtime (no torch, no vLLM): once, in the cache. Prints the folder of its Python environment.
set -euo pipefail
cd "$(dirname "$0")"
venv=$(../venv.sh dynamo requirements.txt)
# Pods see this folder and the cached environment, but not where the cache is.
ln -sfn "$venv" .venv
echo "$venv"
