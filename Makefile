# Two commands do all: `make demo` and `make test`. Both build .venv first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test check bench docs peer clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## Build .venv with the package and its tools in it

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || scripts/venv-without-ensurepip $(PYTHON) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: install  ## Put, crash, recover and query, shown to a person
	$(BIN)/rockstrata demo

peer: install  ## Build the Java peer (installs a JDK and Maven if it may)
	scripts/install-java
	tests/peer/build.sh 5.5.0
	tests/peer/build.sh 5.3.3

test: install  ## Run the tests, with Apache RocketMQ as judge if a JDK and Maven are there
	scripts/install-java || true
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: install  ## Style, types, import rules, generated documents
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m rockstrata.cli.main docs --check

bench: install  ## Measure against Apache RocketMQ; table, JSON and plot under benchmarks/results
	$(BIN)/python -m benchmarks

docs: install  ## Write the generated documents anew
	$(BIN)/python -m rockstrata.cli.main docs

clean:  ## Remove what install and tests made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
