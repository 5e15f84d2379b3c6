# Each target sets up what it needs: a virtual environment in .venv with the CPU build of torch.
# It says beforehand what it will download, and installs again only when pyproject.toml or
# constraints/cpu.txt have changed.
#
#   make demo PYTHON=python3.12     with another interpreter
#   make test VENV=/somewhere/else  in another environment
#   make test WORKERS=4             with four test processes (default: one a core, at most 8)
#   make demo BUDGET="200 steps" OUT=runs/quick   a shorter demo, in another directory

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= auto
BUDGET ?= 4min
OUT ?= runs/demo
BIN = $(VENV)/bin

# One thread a process: the test processes share the cores among them.
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL = -n $(WORKERS) --maxprocesses 8 --dist loadscope

.DEFAULT_GOAL := help
.PHONY: help demo test slow bench docs check style types layers unused

help: ## Show this list.
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

demo: $(VENV)/.ready-all ## Train a small transformer against the exact posterior; opens no browser.
	$(BIN)/beliefspace demo --budget "$(BUDGET)" --out "$(OUT)"

test: $(VENV)/.ready-test ## Run the tests (not the slow ones).
	$(PYTEST) $(PARALLEL)

slow: $(VENV)/.ready-test ## Run the slow tests; those that open a page need Chromium.
	$(PYTEST) $(PARALLEL) -m slow --timeout 900

bench: $(VENV)/.ready-bench ## Measure what benchmarks/README.md shows (2 hours); it resumes.
	$(BIN)/python -m benchmarks

docs: $(VENV)/.ready-all ## Write docs/tasks.md and docs/points.md anew from the registry.
	$(BIN)/python tools/tasks_page.py
	$(BIN)/python tools/points_page.py

check: style types layers unused ## Check all of the next four.

style: $(VENV)/.ready-dev ## Check style and format.
	$(BIN)/ruff check src tests tools benchmarks
	$(BIN)/ruff format --check src tests tools benchmarks

types: $(VENV)/.ready-dev ## Check types.
	$(BIN)/mypy

layers: $(VENV)/.ready-dev ## Check that imports go down only.
	$(BIN)/lint-imports

unused: $(VENV)/.ready-dev ## Look for dead code and for dependencies unused or undeclared.
	$(BIN)/python tools/dead_code.py
	$(BIN)/deptry src

$(VENV)/.ready-bench: $(VENV)/.ready-all benchmarks/requirements.txt
	@echo "To download: transformers, which steps are timed against, and what it needs; about 30 MB."
	$(BIN)/python -m pip install --quiet -c constraints/cpu.txt -r benchmarks/requirements.txt
	@touch $@

$(VENV)/.ready-%: pyproject.toml constraints/cpu.txt
	$(PYTHON) tools/setup.py --venv $(VENV) --extra $*
	@touch $@
