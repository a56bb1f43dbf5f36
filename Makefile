# Two commands matter: `make demo` and `make test`. Each sets up all that it needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup native demo test coverage test-gpu lint format typecheck default-recipe bench clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## Make the virtual environment and install dcnn into it

$(READY): pyproject.toml constraints.txt hatch_build.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dcnn needs Python 3.11 or later; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	@$(BIN)/python -c 'from dcnn.ops import native; print(native.describe())'
	@touch $(READY)

native:  ## Compile the native backend again, in place
	$(PYTHON) native/build.py

demo: setup  ## Train on the built-in corpus beside three baselines, and predict
	$(BIN)/dcnn demo

test: lint typecheck  ## Lint, type-check and run the whole suite
	$(BIN)/pytest -n auto

coverage: setup  ## Run the whole suite and say which lines it never reached
	$(BIN)/pytest -n auto --cov --cov-report=term

test-gpu: setup  ## Check the GPU kernels and graphs on a CUDA device
	$(BIN)/pytest -m gpu

lint: setup  ## Check format, style and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

typecheck: setup  ## Check the types strictly
	$(BIN)/mypy

default-recipe: setup  ## Remake results/: the default settings on the built-in corpus and TREC, 5 seeds
	$(BIN)/python benchmarks/default_recipe.py

BENCH := results/bench

bench: setup  ## Measure every benchmark anew into results/bench and render docs/performance.md
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	for case in predict-one predict-batch train-step startup layer; do \
	    $(BIN)/dcnn bench $$case --out $(BENCH)/$$case.json || exit 1; done
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/dcnn bench tables --write docs/performance.md

format: setup  ## Format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove the virtual environment and every cache
	rm -rf $(VENV) src/dcnn/ops/_native-* .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
