#!/usr/bin/env bash
# Makes requirements.lock anew, which pins what `make setup` installs, requirements-numpy2.lock, for `make test-numpy2`, and
# requirements-image.lock, for deploy/Dockerfile, all with the hashes of every file that an index has, which pip then requires.
# Run it when pyproject.toml's dependencies change; `tools/lock.sh --constraint requirements.lock` keeps the versions.
#
# The first is solved together with the extra [export], so that the extra can be added to the same environment later; the second
# is the base install and the tests' tools, with numpy 2 and the versions of the first for all else; the third the client with
# Locust. All have the tools that build the project, which is installed without isolation.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q uv
"$work/venv/bin/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
  >"$work/build.in"
compile() {
  "$work/venv/bin/uv" pip compile -q --universal --python-version 3.11 --no-annotate --no-header pyproject.toml "$work/build.in" "$@"
}
with_hashes() { # FILE OPTION...
  local lock=$1; shift
  compile --generate-hashes "$@" -o "$work/hashed.txt"
  { echo "# Made by tools/lock.sh; do not edit."; cat "$work/hashed.txt"; } >"$lock"
  rm "$work/hashed.txt"
}
all=(--extra dev --extra docs --extra embedded --extra distributed)
compile "${all[@]}" --extra export "$@" -o "$work/constraints.txt"
compile "${all[@]}" --constraint "$work/constraints.txt" -o "$work/lock.txt"
{ grep -v '^numpy==' "$work/lock.txt"; echo "numpy>=2"; } >"$work/numpy2.txt"
with_hashes requirements.lock "${all[@]}" --constraint "$work/lock.txt"
with_hashes requirements-numpy2.lock --extra test --constraint "$work/numpy2.txt"
with_hashes requirements-image.lock --extra distributed --constraint "$work/lock.txt"
