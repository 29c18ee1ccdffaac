# One environment in .venv, made when it is first needed; every target runs in it.
#
#   make demo       train and score three small translation models on generated data
#   make test       formatting, lint, types, quick tests: what continuous integration runs
#   make slow       the tests that install or train something
#   make gpu        the tests that need a GPU
#   make benchmark  the speed measurements; wants an idle machine
#   make format     format and repair the sources
#   make clean      remove everything that make made
#
# Another Python:           make clean venv PYTHON=python3.12
# Another torch, or CUDA's: make clean venv TORCH=torch

PYTHON ?= python3
# The newest torch brings gigabytes of CUDA packages on Linux. The package itself takes any torch from 2.6 on.
TORCH ?= torch==2.13.0
PYTEST ?= pytest -q --durations=5

VENV := .venv
# Written last, so that a half-made environment is never taken for a whole one.
READY := $(VENV)/.ready

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.PHONY: venv demo test lint pytest slow gpu benchmark format clean

# With two threads on a machine that has other work, torch becomes many times slower than with one.
export OMP_NUM_THREADS := 1
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# The folder of the checkout must not be shadowed by another copy.
unexport PYTHONPATH

test: lint pytest

lint: $(READY)
	@echo "Formatting, lint and types: half a minute; less when run again."
	shellcheck --external-sources --source-path=SCRIPTDIR .ci/* examples/*/*.sh recipes/*.sh
	ruff format --check
	ruff check
	mypy

pytest: $(READY)
	@echo "The quick tests: about two minutes."
	$(PYTEST) -n auto --dist worksteal

slow: $(READY)
	$(PYTEST) -m slow

gpu: $(READY)
	$(PYTEST) -m gpu

benchmark: $(READY)
	$(PYTEST) -m benchmark -s tests/benchmarks

format: $(READY)
	ruff format
	ruff check --fix

demo: $(READY)
	examples/number_words/run.sh .demo

venv: $(READY)

$(READY): setup.py
	@.ci/make_venv $(VENV) "$(PYTHON)" "$(TORCH)"

clean:
	rm -rf $(VENV) .demo build *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
