# setup, bench, test, docs, lint: everything a checkout needs. `make bench ARGS="dataset --request_rate 20"` passes options on.
PYTHON ?= python3
ARGS ?= dataset --request_rate 10 --num_requests 200
STAMP := .venv/.installed

.PHONY: setup bench test test-all docs lint

setup: $(STAMP)

# Runs again only when the lock, the project's metadata or what is compiled change, so that a set-up checkout works offline.
$(STAMP): requirements.lock pyproject.toml tools/compile_reader.py harness/clients/transport/event_reader.pyx
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

bench: setup
	.venv/bin/bench $(ARGS)

test: setup
	.venv/bin/python -m pytest -m "not slow" --hypothesis-profile=repeatable

test-all: setup
	.venv/bin/python -m pytest

# A warning is an error. Everything is read anew: a page from the cache would not repeat its warning.
docs: setup
	.venv/bin/python -m sphinx --builder html --fresh-env --fail-on-warning --keep-going --quiet docs docs/_build/html

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
