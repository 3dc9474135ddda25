#!/usr/bin/env bash
# Makes requirements.lock anew: what `make setup` installs, pinned. Run it when pyproject.toml's dependencies change.
# Solved together with the extra [export], so that the extra can be added to the same environment later.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q uv
compile() { "$work/venv/bin/uv" pip compile -q --universal --python-version 3.11 --no-annotate --no-header pyproject.toml "$@"; }
compile --extra dev --extra docs --extra export -o "$work/constraints.txt"
compile --extra dev --extra docs --constraint "$work/constraints.txt" -o "$work/lock.txt"
{ echo "# Made by tools/lock.sh; do not edit."; cat "$work/lock.txt"; } >requirements.lock
