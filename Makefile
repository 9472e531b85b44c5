# Two commands for a fresh machine: `make demo` and `make test`. Both set everything up.
# While you work: `make fast`. On every Python that is supported: `make matrix`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

BENCH := .venv-bench
BENCH_READY := $(BENCH)/.ready
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: demo studio docs test fast matrix lint types contracts unit bench lock clean mutants soak reliability

demo: $(READY)
	@$(BIN)/python examples/demo.py

# The page, on a store with runs to look at.
studio: $(READY)
	@$(BIN)/stepwell studio --demo

# The site, in the folder `site`: open site/index.html. Needs no network; a link that leads nowhere is an error.
docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "site/index.html is the first page."

test: $(READY)
	@$(BIN)/python tests/check.py

# `fast` takes about a minute: lint, types, contracts, and the tests that need no process and no server.
# `matrix` runs all tests on Python 3.11, 3.12 and 3.13, and fails if one of them is not found. Name interpreters that
# are neither on the PATH nor in pyenv: `make matrix PYTHONS="/path/to/python3.12 /path/to/python3.13"`.
export PYTHONS
fast matrix lint types contracts unit: $(READY)
	@$(BIN)/python tests/check.py $@

# The long run whose figures are in docs/reliability.md.
reliability: $(READY)
	@$(BIN)/python -m tests.reliability --write docs/reliability.md

# Puts deliberate bugs into copies of the source, one at a time; a test must notice each. `ONLY=sums` for some of them.
mutants: $(READY)
	@$(BIN)/python -m tests.mutants --only "$(ONLY)"

# Random simulations with faults, until stopped; `SOAK_MINUTES=30` sets a limit.
soak: $(READY)
	@$(BIN)/python -m tests.simulation --soak

# Measures this checkout and its peers side by side, and writes the tables of docs/performance*.md. A shorter run that
# only prints: `make bench BENCH_ARGS=--quick`, or `BENCH_ARGS="--cases chain,many"`.
BENCH_ARGS ?= --write
bench: $(BENCH_READY)
	@$(BENCH)/bin/python benchmarks/run.py $(BENCH_ARGS)

# Resolves requirements/dev.in and bench.in again; needs pip-tools.
lock:
	for name in dev bench; do \
	  pip-compile --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	    --strip-extras --allow-unsafe --no-header --no-annotate -o requirements/$$name.lock requirements/$$name.in; \
	done

clean:
	rm -rf $(VENV) $(VENV)-3.* $(BENCH) .demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): requirements/dev.lock pyproject.toml
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -c 'import sys; sys.exit("stepwell needs Python 3.11 or newer; set PYTHON=/path/to/it") if sys.version_info < (3, 11) else None'
	@rm -f $(READY)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

$(BENCH_READY): requirements/bench.lock
	@echo "Setting up $(BENCH) (once) ..."
	@rm -f $(BENCH_READY)
	@test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/python $(PIP_INSTALL) --no-deps --require-hashes -r requirements/bench.lock
	@touch $(BENCH_READY)
