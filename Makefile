# One command per purpose; each makes or refreshes .venv by itself. `make` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test fuzz simulate check bench bench-adapters verify-proof bench-relay bench-restart outages venv bench-ledger chaos kills faults soak

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## A hostile stream on real servers, calls that took effect once; KEEP=1 leaves them up
	@$(BIN)/toolcalls demo $(if $(filter 1,$(KEEP)),--keep)

test: $(READY) ## All tests but the measurements, in random order
	@$(BIN)/pytest

simulate: $(READY) ## Seeded schedules of faults on a simulated Kafka: RUNS=2000, or one by SEED=n
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--runs $(or $(RUNS),2000))

faults: $(READY) ## Kills, freezes, cuts and rogues on real servers, one oracle: RUNS=20, or one again by SEED=n
	@$(if $(SEED),,$(BIN)/pytest -q -m faults tests/faults)
	@$(BIN)/python -m tests.faults --runs $(or $(RUNS),$(if $(SEED),1,20)) $(if $(SEED),--seed $(SEED)) \
		$(if $(CALLS),--calls $(CALLS)) $(if $(SECONDS),--seconds $(SECONDS))

soak: $(READY) ## The same faults at random, under load, for MINUTES=10 or RUNS=n: JSON=file for a machine
	@$(BIN)/python -m tests.faults $(if $(RUNS),--runs $(RUNS),--minutes $(or $(MINUTES),10)) \
		$(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

fuzz: $(READY) ## Coverage-guided fuzzing of the dialects: SECONDS=60 for each, DIALECTS="gemini" for some
	@$(BIN)/python -c 'import atheris' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	@$(BIN)/python -m tests.fuzz.run --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) $(DIALECTS)

verify-proof: $(READY) ## One altered byte among 100,000 calls on a real broker: found, in bounded memory
	@$(BIN)/pytest -q -s -m perf tests/perf/test_verify_proof.py

check: $(READY) ## Lint, format, types, import contracts, house rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pyright --warnings
	@$(BIN)/lint-imports
	@$(BIN)/pytest -q tests/tidy

bench: $(READY) ## Measure one assembler process beside the raw consume limit of this machine
	@$(BIN)/python -m tests.perf.bench_assembler

bench-adapters: $(READY) ## Measure what one chunk costs in each dialect, against its budget
	@$(BIN)/python -m tests.perf.bench_adapters

bench-ledger: $(READY) ## Measure claim, begin and finish alone and in batches, beside pgbench
	@$(BIN)/python -m tests.perf.bench_ledger

bench-relay: $(READY) ## Measure how fast results leave a full outbox
	@$(BIN)/python -m tests.perf.bench_relay

bench-restart: $(READY) ## Kill a loaded slot and start it again, then lose one for good: KILLS=50 LOSSES=10 RATE=20000
	@$(BIN)/python -m tests.perf.bench_restart --kills $(or $(KILLS),50) --losses $(or $(LOSSES),10) --rate $(or $(RATE),20000)

outages: $(READY) ## Kill the broker and restart Postgres under a running relay: nothing is lost
	@$(BIN)/pytest -q -m perf tests/perf/test_relay_outages.py

chaos: $(READY) ## Twelve executors killed and frozen at random over 300 keys a class: KEYS=300, SEED=n
	@$(BIN)/python -m tests.integration.ledger_chaos --keys $(or $(KEYS),300) $(if $(SEED),--seed $(SEED))

kills: $(READY) ## Kill an executor at every point of a call, 500 times for each effect class: KILLS=500
	@$(BIN)/python -m tests.integration.executor_kills --kills $(or $(KILLS),500)

venv: $(READY) ## Only make or refresh .venv

$(READY): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then echo "make: no Python 3.11 or newer found; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than Python 3.11" >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
