#!/usr/bin/env bash
# Makes requirements.lock anew, which pins what `make setup` installs, and requirements-numpy2.lock, for `make test-numpy2`. Run
# it when pyproject.toml's dependencies change. The first is solved together with the extra [export], so that the extra can be
# added to the same environment later; the second is the base install and the tests' tools, with numpy 2 and the versions of the
# first for all else.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q uv
compile() { "$work/venv/bin/uv" pip compile -q --universal --python-version 3.11 --no-annotate --no-header pyproject.toml "$@"; }
compile --extra dev --extra docs --extra embedded --extra distributed --extra export -o "$work/constraints.txt"
compile --extra dev --extra docs --extra embedded --extra distributed --constraint "$work/constraints.txt" -o "$work/lock.txt"
{ echo "# Made by tools/lock.sh; do not edit."; cat "$work/lock.txt"; } >requirements.lock
{ grep -v '^numpy==' "$work/lock.txt"; echo "numpy>=2"; } >"$work/numpy2.txt"
compile --extra test --constraint "$work/numpy2.txt" -o "$work/lock2.txt"
{ echo "# Made by tools/lock.sh; do not edit."; cat "$work/lock2.txt"; } >requirements-numpy2.lock
