# One environment in .venv, made when it is first needed; every target runs in it.
#
#   make demo       train and score three small translation models on generated data
#   make test       formatting, lint, types, quick tests: what continuous integration runs
#   make slow       the tests that install or train something
#   make gpu        the tests that need a GPU
#   make benchmark  the speed measurements; wants an idle machine
#   make report     the tables of results, the page, and what README quotes, from recipes/tables and recipes/results
#   make docs       the reference of every module and function, in build/docs
#   make format     format and repair the sources
#   make clean      remove everything that make made
#
# Another Python:           make clean venv PYTHON=python3.12
# Another torch, or CUDA's: make clean venv TORCH=torch

PYTHON ?= python3
# The build for CPUs where torch's own index can be reached: on Linux, PyPI's brings CUDA, more than 0.5 GB to download
# and 6 GB of disk. The package itself takes any torch from 2.6 on.
TORCH ?= torch==2.13.0
PYTEST ?= pytest -q --durations=5

VENV := .venv
# Written last, so that a half-made environment is never taken for a whole one.
READY := $(VENV)/.ready

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.PHONY: venv check-python demo test lint pytest slow gpu benchmark report docs format clean

# With two threads on a machine that has other work, torch becomes many times slower than with one.
export OMP_NUM_THREADS := 1
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# The folder of the checkout must not be shadowed by another copy.
unexport PYTHONPATH

test: lint pytest

lint: $(READY)
	@echo "Formatting, lint and types: half a minute; less when run again."
	shellcheck --external-sources --source-path=SCRIPTDIR .ci/make_venv .ci/run examples/*/*.sh recipes/*.sh
	ruff format --check
	ruff check
	mypy

pytest: $(READY)
	@echo "The quick tests: some seven minutes on two cores."
	$(PYTEST) -n auto --dist worksteal

slow: $(READY)
	$(PYTEST) -m slow

gpu: $(READY)
	$(PYTEST) -m gpu

benchmark: $(READY)
	$(PYTEST) -m benchmark -s tests/benchmarks

report: $(READY)
	python recipes/draw_sharing.py recipes/figures/sharing.svg
	fairseq-tiedemb report --fill README.md recipes/FINDINGS.md fairseq_tiedemb/models/README.md

docs: $(READY)
	rm -rf build/docs
	python .ci/make_docs.py build/docs

format: $(READY)
	ruff format
	ruff check --fix

demo: $(READY)
	examples/number_words/run.sh .demo

venv: $(READY)

check-python:
	@.ci/make_venv $(VENV) "$(PYTHON)"

$(READY): setup.py
	@.ci/make_venv $(VENV) "$(PYTHON)" "$(TORCH)"

# Before .venv goes: can there be another?
clean: $(if $(filter-out clean,$(MAKECMDGOALS)),check-python)
	rm -rf $(VENV) .demo build *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
