# The KV Cache Book: every command there is. `make help` lists them.
#
# The first command that needs it creates .venv and installs requirements.txt into it; after
# that, stamp files make a repeated command cost seconds. Another Python: make book PYTHON=python3.13

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# Jupyter, matplotlib and the kernels keep files under HOME; where it cannot be written, one here does.
ifneq ($(shell test -d "$${HOME:-}" && test -w "$${HOME:-}" && echo yes),yes)
export HOME := $(CURDIR)/_build/home
$(shell mkdir -p "$(HOME)")
endif
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRAIN_MINUTES ?= 120
# the kernels also run on the processor, which takes a C++ compiler: this one where there is none
CXX_WHEEL := ziglang==0.17.1
# tests run side by side, each with one BLAS thread; make unit WORKERS=0 runs them one after the other
WORKERS ?= 2
# (plugins that these tests do not use would be imported by each worker)
ASIDE = OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -p no:nbval -p no:anyio -n $(WORKERS) --dist worksteal
HTML := _build/html
# every step leaves its report here; tools/summary.py counts them into one page
SUMMARY := _build/summary
BOOK_SOURCES := _config.yml _toc.yml tools/api_pages.py tools/book_pages.py tools/launch_buttons.py $(shell find book assets -type f 2>/dev/null) $(shell find kvlib -name "*.py" 2>/dev/null)
NOTEBOOKS = $(wildcard book/*.ipynb)
LITE_SOURCES := tools/build_lite.py tools/lite_notebooks.py $(wildcard lite/*) $(shell find kvlib -type f -not -name '*.pyc')
CHECKED = kvlib tools
# The steps start hundreds of Python processes: compiled modules are kept, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=
# Jupyter keeps its files where the platform wants them, and does not warn about it
export JUPYTER_PLATFORM_DIRS := 1

TEST_STEPS := lint types unit notebooks book browser
# what needs a device, a browser or another project runs by commands of its own
UNIT := not gpu and not peers and not browser and not device
# (this file holds browser tests only, and collecting them reads every page)
NO_PAGES := --ignore=tests/test_rendered_explorers.py

.PHONY: help env book lite lite-kernel serve test check portable lint types unit quick first-cells \
        notebooks browser lab gpu device test-peers bench train run-notebooks assets explorers \
        requirements picture clean exercises course pdf prose reproducible mutants

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F '\t' '{printf "  make %-14s %s\n", $$1, $$2}'

# ---------------------------------------------------------------------------- environment

env: $(VENV)/.installed $(VENV)/.kvlib  ## create .venv and install what the book and its tests need

$(VENV)/.installed: requirements.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("The book needs Python 3.11 or later, this is " + sys.version.split()[0] + ". Try: make book PYTHON=python3.12")'
	@echo "== Installing the pinned requirements into $(VENV) (minutes the first time, seconds after)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt | { grep -v '^Requirement already satisfied' || true; }
	@command -v $${CXX:-c++} >/dev/null || $(BIN)/python -m pip install --disable-pip-version-check -q $(CXX_WHEEL)
	@touch $@

$(VENV)/.kvlib: $(VENV)/.installed pyproject.toml
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	@touch $@

# ---------------------------------------------------------------------------- the book

book: _build/.book _build/.lite  ## build the book and print the address of the page to open
	@echo
	@echo "The book is built. Open:  file://$(subst $(eval ) ,%20,$(CURDIR))/$(HTML)/index.html"

# -n -W: an unresolved reference or any other warning is an error. What a failed build left
# behind is removed, for Sphinx would not repeat the warnings of pages it believes done. Where only
# styles, scripts or templates have changed Sphinx sees nothing to do, unless .buildinfo is of another build.
_build/.book: $(VENV)/.kvlib $(BOOK_SOURCES)
	@echo "== Building the book"
	$(if $(filter book/_static/% book/_templates/% assets/% tools/%,$?),@if [ -d $(HTML) ]; then printf '%s\n' '# Sphinx build info version 1' '' 'config: another' 'tags: another' > $(HTML)/.buildinfo; fi)
	$(BIN)/jupyter-book build -n -W --keep-going . || { rm -rf _build/.doctrees _build/.lite $(HTML); exit 1; }
	@touch $@

# The chapters with a Python in the reader's browser; only a web server can show them.
lite: _build/.lite  ## build the JupyterLite site beside the book (part of make book)

_build/.lite: $(VENV)/.kvlib $(NOTEBOOKS) $(LITE_SOURCES) _toc.yml requirements.txt | _build/.book
	@echo "== Building the JupyterLite site"
	$(BIN)/python tools/build_lite.py
	@touch $@

lite-kernel: $(VENV)/.installed  ## fetch Pyodide, which the browser test boots (needs npm)
	@echo "== Pyodide for the browser test"
	$(BIN)/python tools/fetch_pyodide.py

serve: book  ## put the built book at an address of this machine: the Run buttons work there
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory $(HTML) 8000

pdf: _build/.book  ## print the whole book into one PDF (needs Chromium; a minute)
	$(BIN)/python tools/build_pdf.py

lab: env  ## open JupyterLab on the chapters
	$(BIN)/jupyter lab book

# ---------------------------------------------------------------------------- the tests

# Every step runs, also after one has failed; KVLIB_TESTS=whole runs what is sampled otherwise, too.
test: env  ## run every check: style, types, tests, notebooks, build, browser
	@$(BIN)/python tools/steps.py --summary $(TEST_STEPS)

check: env  ## the checks to run before each commit (a minute): style, types, every test in short, first cells
	@$(BIN)/python tools/steps.py lint types quick first-cells

portable: env  ## run tests and notebooks as other processors would, with one and two BLAS threads
	$(BIN)/python tools/portable.py $(addprefix --core ,$(CORE))

mutants: env  ## which bugs the sampled tests kill, and which only the whole ones (an hour)
	$(BIN)/python tools/mutation_run.py

lint: env  ## ruff, and the notebooks' metadata
	@echo "== ruff"
	$(BIN)/ruff check .
	$(BIN)/python tools/normalise_notebooks.py --check

types: env  ## mypy
	@echo "== mypy"
	$(BIN)/mypy

unit: env  ## pytest, with at least 95 % of kvlib's lines covered
	@echo "== pytest"
	@mkdir -p _build/coverage
	$(ASIDE) -m "$(UNIT)" $(NO_PAGES) --durations=15 --cov --cov-fail-under=95 \
	  --cov-report=json:$(SUMMARY)/coverage.json --junitxml=$(SUMMARY)/unit.xml

quick: env  ## the tests in short: each with as few examples as make sense, none that starts programs
	@echo "== pytest, in short"
	KVLIB_TESTS=quick $(ASIDE) -q -m "$(UNIT) and not slow" $(NO_PAGES)

first-cells: env  ## run the first cells of every notebook and compare their outputs
	@echo "== the first cells of every chapter"
	$(BIN)/python tools/first_cells.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --nbval --nbval-current-env --nbval-cell-timeout=120 -q _build/check/book/*.ipynb

notebooks: env  ## run every notebook and compare its outputs with the committed ones
	@echo "== nbval"
	@test -n "$(NOTEBOOKS)" || { echo "There is no notebook in book/."; exit 1; }
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --nbval --nbval-current-env --nbval-cell-timeout=120 --durations=5 -q --junitxml=$(SUMMARY)/notebooks.xml $(NOTEBOOKS)

browser: _build/.book _build/.lite lite-kernel  ## open every page in a headless browser, move every slider
	@echo "== browser"
	$(ASIDE) -m browser -q --junitxml=$(SUMMARY)/browser.xml tests/test_lite_browser.py tests/test_rendered_*.py

# Where PYTHON is given (make gpu PYTHON=python3) it is used as it is: no .venv, no network.
GPU_PYTHON = $(if $(filter command% environment%,$(origin PYTHON)),$(PYTHON),$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)))

gpu:  ## run the tests and benchmarks that need a graphics card (PYTHON=python3: without .venv; ONLY=part)
	@$(GPU_PYTHON) tools/run_gpu.py $(addprefix --only ,$(ONLY))

device: env  ## run the long chapters on a stand-in for CuPy, without a graphics card (minutes)
	$(ASIDE) -m device -q tests/test_notebooks_on_device.py

test-peers: .venv-peers/.installed  ## compare with transformers, live (installs PyTorch, large)
	.venv-peers/bin/python -m pytest -m peers -s tests/peers

.venv-peers/.installed: pyproject.toml requirements.txt
	@test -x .venv-peers/bin/pip || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --disable-pip-version-check pytest pytest-cov hypothesis array-api-strict -e ".[dev,checkpoints]"
	@touch $@

reproducible: env  ## build the book twice and compare every file of the two
	@echo "== The same book twice"
	$(BIN)/python tools/compare_builds.py

prose: env  ## list the book's long sentences, to be read again
	$(BIN)/python tools/prose.py

# ---------------------------------------------------------------------------- by hand

bench: env  ## measure: import time, decode speed (minutes; results in benchmarks/results)
	@for script in $(filter-out benchmarks/harness.py benchmarks/on_device.py benchmarks/gpu_%,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script; done

train: .venv-peers/.installed  ## train the reference model, or continue (hours; resumable)
	.venv-peers/bin/python tools/train_reference.py train --out build/reference --minutes $(TRAIN_MINUTES) $(addprefix --resume ,$(wildcard build/reference/last.pt))

run-notebooks: env  ## execute every notebook in place and strip what is volatile
	$(BIN)/python tools/normalise_notebooks.py --execute

assets: env  ## fetch the browser files that the rendered book carries (needs npm)
	$(BIN)/python tools/vendor_assets.py

exercises: env  ## list the chapters' exercises anew (after a change to their titles or marks)
	$(BIN)/python tools/build_exercises.py

course: env  ## write student and instructor notebooks with hidden tests to _build/course
	$(BIN)/python -m kvlib.exercises course --out _build/course

explorers: env  ## translate the scenes of the sliders for the rendered page (after a change to them)
	$(BIN)/python tools/build_explorers.py

picture: _build/.book  ## take the README's picture of a page (needs Chromium)
	$(BIN)/python tools/picture.py

requirements: env  ## renew requirements.txt from requirements.in
	$(BIN)/python tools/renew_requirements.py

clean:  ## remove what was built (not .venv, not build/ where training keeps its state)
	rm -rf _build dist .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
