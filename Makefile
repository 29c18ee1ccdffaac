# One environment in .venv, made when it is first needed; every target runs in it.
#
#   make demo       train and score three small translation models on generated data
#   make test       lint and the quick tests: what continuous integration runs
#   make lint       formatting, lint and types, with the Python and torch that they are pinned to
#   make slow       the tests that install or train something
#   make gpu        the tests that need a GPU
#   make benchmark  the speed measurements; wants an idle machine
#   make benchmark-gpu  those of a GPU
#   make report     the texts on results, the page build/report.html, and what README quotes
#   make docs       the reference of every module and function, in build/docs
#   make format     format and repair the sources
#   make clean      remove everything that make made
#
# Another Python:           make clean test PYTHON=python3.12
# Another torch, or CUDA's: make clean test TORCH=torch
# Tests run with every Python and torch; lint with those of LINT_PYTHON and LINT_TORCH alone.

PYTHON ?= python3
# What types are checked against, beside the versions that setup.py pins for development.
LINT_PYTHON := 3.11
LINT_TORCH := 2.13.0
# The build for CPUs where torch's own index can be reached: on Linux, PyPI's brings CUDA, more than 0.5 GB to download
# and 6 GB of disk. The package itself takes any torch from 2.6 on.
TORCH ?= torch==$(LINT_TORCH)
PYTEST ?= pytest -q --durations=5

VENV := .venv
# Written last, so that a half-made environment is never taken for a whole one.
READY := $(VENV)/.ready

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.PHONY: venv check-python demo test lint lint-where-pinned pytest slow gpu benchmark benchmark-gpu report docs format clean

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# The folder of the checkout must not be shadowed by another copy.
unexport PYTHONPATH
# Without bytecode, each of some hundred processes of the tests compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

test: lint-where-pinned pytest

lint-where-pinned: $(READY)
	@.ci/lint $(LINT_PYTHON) $(LINT_TORCH) || [[ $$? == 3 ]]

lint: $(READY)
	@.ci/lint $(LINT_PYTHON) $(LINT_TORCH)

pytest: $(READY)
	@echo "The quick tests: two to five minutes on two cores."
	$(PYTEST) -n auto --dist worksteal

slow: $(READY)
	$(PYTEST) -m slow

gpu: $(READY)
	$(PYTEST) -m 'gpu and not benchmark'

benchmark: $(READY)
	$(PYTEST) -m 'benchmark and not gpu' -s tests/benchmarks

benchmark-gpu: $(READY)
	$(PYTEST) -m 'benchmark and gpu' -s tests/benchmarks

report: $(READY)
	python recipes/draw_sharing.py recipes/figures/sharing.svg
	mkdir -p build
	python recipes/make_pages.py --html build --fill README.md fairseq_tiedemb/models/README.md

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
