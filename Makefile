# `make test` and `make reproduce` each do everything on a machine with Python ≥ 3.11: environment, install, run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out
ROUNDS ?= 3
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# threads that wait should sleep: several test processes share the cores
export OMP_WAIT_POLICY = PASSIVE

.DEFAULT_GOAL := help
.PHONY: help install test browser page lint fuzz slow reproduce bench wheel newcomer docs test-lowest test-newest clean

help: ## what there is to make
	@grep -E '^[a-z -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 26

install: $(VENV)/installed ## the package with everything to develop it, in .venv

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "scansnap needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml setup.py constraints.txt $(wildcard src/scansnap/kernels/cpu/*.[ch]) | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

lint: install page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the explorer's page is served as it is written; node only looks for mistakes in it, and where it is not there says so
page: ## types and lint of the explorer's page
	@if command -v node >/dev/null && command -v npm >/dev/null && \
	  { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-audit --no-fund >/dev/null 2>&1; }; \
	then npm run --silent check; \
	else echo "NO NODE: node, npm or its packages are not here, so the page's types are not checked"; fi

# the browser tests need Debian's chromium; where it cannot be installed they skip and say so
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y -qq chromium >/dev/null 2>&1; } || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null 2>&1 && \
	    apt-get install -y -qq chromium >/dev/null 2>&1; } || \
	  echo "NO BROWSER: chromium is not here and could not be installed, so the browser tests are skipped"

# loadfile: a file's tests are done by one of the two, in their order, so that what they share is set up once
test: lint browser ## lint, types and the tests that finish quickly
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=5

# each round has its own seed, which is said before it begins and does the same round again
fuzz: install ## the property tests with new random inputs, ROUNDS times; SEED=… for a round again
	@for seed in $(or $(SEED),`$(BIN)/python -c 'import random; print(*random.sample(range(10**9), $(ROUNDS)))'`); do \
	  echo "make fuzz SEED=$$seed"; \
	  $(BIN)/python -m pytest -n 2 --dist loadfile -m hypothesis --hypothesis-profile fuzz --hypothesis-seed $$seed || \
	    { echo "It failed; the same round again: make fuzz SEED=$$seed"; exit 1; }; \
	done

slow: install ## list the tests that `make test` leaves out, then run them
	$(BIN)/python -m pytest --collect-only -m slow -q || test $$? -eq 5 # 5: there are none
	$(BIN)/python -m pytest -m slow || test $$? -eq 5

reproduce: install ## the whole paper made anew, into $(OUT): figures, tables, verdicts, report.html
	$(BIN)/scansnap reproduce all --out $(OUT)

bench: install ## the speed claims, measured here
	$(BIN)/scansnap bench

wheel: install ## sdist and wheel in dist/, tried in an empty environment without compiler and repository
	$(BIN)/python packaging/try_wheel.py

newcomer: ## the README as a newcomer meets it: fresh clone, empty HOME, its commands and snippets; QUICK=1: not the long ones
	$(PYTHON) packaging/newcomer.py $(if $(QUICK),--quick)

$(VENV)/installed-docs: pyproject.toml setup.py constraints.txt $(wildcard src/scansnap/kernels/cpu/*.[ch]) | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/installed-docs ## the documentation, checked and with its tutorials run, in site/; opens without a server
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# what every part of the package rests on, once with each: the numbers, the files, the command line, the page, the probe
CORE := tests/checks tests/classes tests/sampling tests/results tests/storage tests/corpus tests/kernels/test_kernels.py \
  tests/kernels/test_cpu_sampling.py tests/cli/test_cli.py tests/text/test_model_files.py tests/explorer/test_server.py \
  tests/probe/test_probe.py tests/probe/capture/test_interface.py
TOOLS := pytest pytest-xdist hypothesis mpmath httpx websockets

.venv-lowest/installed .venv-newest/installed: .venv-%/installed: pyproject.toml setup.py constraints-lowest.txt
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --upgrade $(if $(filter lowest,$*),-c constraints-lowest.txt) -e '.[all]' $(TOOLS)
	@touch $@

test-lowest test-newest: test-%: .venv-%/installed ## the core with the lowest stated (newest) dependencies, in .venv-lowest (-newest)
	.venv-$*/bin/python -m pytest -n 2 -o filterwarnings=default $(CORE) # what another version warns of is no failure

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest $(OUT) site node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/scansnap/kernels/cpu/*.so
