# Two commands for a fresh machine: `make demo` and `make test`. Both set everything up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types contracts unit lock clean

demo: $(READY)
	@$(BIN)/python examples/demo.py

test: $(READY)
	@$(BIN)/python tests/check.py

lint types contracts unit: $(READY)
	@$(BIN)/python tests/check.py $@

# Resolves requirements/dev.in anew; needs pip-tools.
lock:
	pip-compile --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --strip-extras --allow-unsafe --no-header --no-annotate -o requirements/dev.lock requirements/dev.in

clean:
	rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): requirements/dev.lock pyproject.toml
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -c 'import sys; sys.exit("holdfast needs Python 3.11 or newer; set PYTHON=/path/to/it") if sys.version_info < (3, 11) else None'
	@rm -f $(READY)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)
