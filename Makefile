# `make test` and `make reproduce` each do everything on a machine with Python ≥ 3.11: environment, install, run.
PYTHON ?= python3
# installs where it is there and finds what pip would; `make UV=` installs with pip
UV ?= uv
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out
ROUNDS ?= 3
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# threads that wait should sleep: several test processes share the cores
export OMP_WAIT_POLICY = PASSIVE
# packages are installed without compiled modules; where Python may not keep them, every process compiles torch anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install lock test quick browser page lint fuzz test-all integration reproduce bench wheel newcomer docs \
  paper test-lowest test-newest clean

help: ## what there is to make
	@grep -E '^[a-z -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 26

# CPU=1 takes torch from PyTorch's own index of builds for CPUs; a torch that PYTHON has already is used as it is
install: $(VENV)/installed ## the package with everything to develop it, in .venv; CPU=1: a build of torch for CPUs

INSTALL = packaging/install.py --uv '$(UV)' $(if $(CPU),--cpu)
SOURCES := pyproject.toml setup.py $(wildcard src/scansnap/kernels/cpu/*.[ch])

$(VENV)/bin/python .venv-lowest/bin/python .venv-newest/bin/python: %/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "scansnap needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) packaging/environment.py $*

$(VENV)/installed: constraints.txt $(SOURCES) | $(BIN)/python
	$(BIN)/python $(INSTALL) -c constraints.txt '.[dev]'
	@touch $@

lock: ## renew constraints.txt, the versions that everything above installs; needs uv; TORCH=…: with that torch
	$(PYTHON) packaging/lock.py $(if $(TORCH),--torch $(TORCH))

lint: install page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the explorer's page is put into one file by Python; node only looks for mistakes in it, and where it is not there says so
page: ## types and lint of the explorer's page
	@if command -v node >/dev/null && command -v npm >/dev/null && \
	  { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-audit --no-fund >/dev/null 2>&1; }; \
	then npm run --silent check; \
	else echo "NO NODE: node, npm or its packages are not here, so the page's types are not checked"; fi

# the browser tests need Debian's chromium; where it cannot be installed they skip and say so
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y -qq chromium firefox-esr >/dev/null 2>&1; } || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null 2>&1 && \
	    apt-get install -y -qq chromium firefox-esr >/dev/null 2>&1; } || \
	  echo "NO BROWSER: chromium is not here and could not be installed, so the browser tests are skipped"

PYTEST := $(BIN)/python -m pytest -n 2

# types take one process a minute or two, so they are checked beside the tests
test: install browser ## lint, types and the tests that finish quickly
	@$(MAKE) --no-print-directory -j 2 lint quick

# loadfile: one process runs all tests of a file, so that their fixtures are set up once
quick: install
	$(PYTEST) --dist loadfile --durations=5

integration: install browser ## the tests that `make test` leaves out: clusters, browsers, full-size figures, long campaigns
	$(PYTEST) --dist worksteal -m integration --durations=10

test-all: test integration ## every test

# each round prints its seed first; `make fuzz SEED=…` repeats that round alone
fuzz: install ## property tests with new random inputs, ROUNDS times (SEED=… repeats a round), then all damage campaigns
	@for seed in $(or $(SEED),`$(BIN)/python -c 'import random; print(*random.sample(range(10**9), $(ROUNDS)))'`); do \
	  echo "make fuzz SEED=$$seed"; \
	  $(PYTEST) --dist loadfile -m hypothesis --hypothesis-profile fuzz --hypothesis-seed $$seed || \
	    { echo "It failed; repeat the round with: make fuzz SEED=$$seed"; exit 1; }; \
	done
	$(if $(SEED),,$(PYTEST) --dist worksteal -m campaign)

reproduce: install ## the whole paper made anew, into $(OUT): figures, tables, verdicts, report.html
	$(BIN)/scansnap reproduce all --out $(OUT)

bench: install ## the speed claims, measured here
	$(BIN)/scansnap bench

wheel: install ## sdist, wheel and explorer.html in dist/, tried in an empty environment without compiler and repository
	$(BIN)/python packaging/try_wheel.py $(if $(CPU),--cpu)

newcomer: ## the README and the ten tasks of docs/contributing/afternoon.md in a fresh clone, HOME empty; QUICK=1: not the long commands; ONLY=tasks
	$(PYTHON) packaging/newcomer.py $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

$(VENV)/installed-docs: constraints.txt $(SOURCES) | $(BIN)/python
	$(BIN)/python $(INSTALL) -c constraints.txt '.[docs]'
	@touch $@

docs: $(VENV)/installed-docs ## the documentation, checked and with its tutorials run, in site/; opens without a server
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

paper: ## docs/theory.md as LaTeX and, where pdflatex is installed, as a PDF, in $(OUT)/paper
	$(PYTHON) docs/scripts/paper.py --out $(OUT)/paper

# what every part of the package rests on, once with each: the numbers, the files, the command line, the page, the probe
CORE := tests/checks tests/classes tests/sampling tests/results tests/storage tests/corpus tests/kernels/test_kernels.py \
  tests/kernels/test_cpu_sampling.py tests/cli/test_cli.py tests/text/test_model_files.py tests/explorer/test_page.py tests/explorer/test_lab.py \
  tests/probe/test_probe.py tests/probe/capture/test_interface.py
TOOLS := pytest pytest-xdist hypothesis mpmath

.venv-lowest/installed: constraints-lowest.txt $(SOURCES) | .venv-lowest/bin/python
	.venv-lowest/bin/python $(INSTALL) -c constraints-lowest.txt '.[all]' $(TOOLS)
	@touch $@

test-lowest: .venv-lowest/installed ## the core with the lowest stated dependencies, in .venv-lowest
	.venv-lowest/bin/python -m pytest -n 2 -o filterwarnings=default $(CORE) # what another version warns of is no failure

test-newest: | .venv-newest/bin/python ## all tests with the newest dependencies, in .venv-newest, and what broke; TORCH=…: that torch
	.venv-newest/bin/python $(INSTALL) --newest $(if $(TORCH),--torch $(TORCH)) '.[all,dev]'
	@touch .venv-newest/installed
	.venv-newest/bin/python packaging/newest.py $(TESTS)

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest $(OUT) site node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/scansnap/kernels/cpu/*.so
