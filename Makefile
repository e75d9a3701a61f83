# One command per purpose; each makes or refreshes .venv by itself. `make` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test check bench venv

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## A hostile stream on real servers, calls that took effect once; KEEP=1 leaves them up
	@$(BIN)/toolcalls demo $(if $(filter 1,$(KEEP)),--keep)

test: $(READY) ## All tests but the measurements, in random order
	@$(BIN)/pytest

check: $(READY) ## Lint, format, types, import contracts, house rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pyright --warnings
	@$(BIN)/lint-imports
	@$(BIN)/pytest -q tests/tidy

bench: $(READY) ## Measure one assembler process beside the raw consume limit of this machine
	@$(BIN)/python -m tests.perf.bench_assembler

venv: $(READY) ## Only make or refresh .venv

$(READY): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then echo "make: no Python 3.11 or newer found; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than Python 3.11" >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
