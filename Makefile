# The KV Cache Book: all commands. `make help` lists them.
#
# The first command that needs .venv creates it and installs requirements.txt into it. After that,
# stamp files let a repeated command finish in seconds. Another Python: make book PYTHON=python3.13

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# Jupyter, matplotlib and the kernels keep files under HOME; if it cannot be written, use one here.
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
# the kernels also run on the processor, for which they need a C++ compiler: this one if there is none
CXX_WHEEL := ziglang==0.17.1
# tests run in parallel, each with one BLAS thread; make unit WORKERS=0 runs them one after the other
WORKERS ?= 2
# (each worker would import the plugins that these tests do not use)
ASIDE = OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -p no:nbval -p no:anyio -p no:logging -n $(WORKERS) --dist worksteal
HTML := _build/html
# every step leaves its report here; tools/summary.py counts them into one page
SUMMARY := _build/summary
BOOK_SOURCES := _config.yml _toc.yml tools/api_pages.py tools/book_pages.py tools/launch_buttons.py tools/light_pages.py $(shell find book assets -type f 2>/dev/null) $(shell find kvlib kvbook -name "*.py" 2>/dev/null)
NOTEBOOKS = $(wildcard book/*.ipynb)
LITE_SOURCES := tools/build_lite.py tools/lite_notebooks.py $(wildcard lite/*) $(shell find kvlib kvbook -type f -not -name '*.pyc')
CHECKED = kvlib kvbook tools
# The steps start hundreds of Python processes: compiled modules are kept, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=
# Jupyter keeps its files in the platform's own folders, and does not warn about it
export JUPYTER_PLATFORM_DIRS := 1

TEST_STEPS := lint book+types+nbgrader unit+browser notebooks
# tests that need a device, a browser or another project have commands of their own
UNIT := not gpu and not peers and not browser and not device
# (this file holds browser tests only, and collecting them reads every page)
NO_PAGES := --ignore=tests/test_rendered_explorers.py

.PHONY: help env book lite lite-kernel serve test check portable lint types unit quick first-cells \
        reading-path notebooks browser lab nbgrader gpu device test-peers bench train run-notebooks assets explorers \
        requirements picture clean exercises course pdf prose reproducible mutants

help:  ## list the commands
	@echo "Start with make book, to read the chapters, or with make lab, to run them."; echo
	@awk -F ':[^#]*## ' '/^# ---------/ {sub(/^# -+ /, ""); print "\n" $$0} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---------------------------------------------------------------------------- The environment

env: $(VENV)/.installed $(VENV)/.kvlib  ## create .venv and install what the book and its tests need

$(VENV)/.installed: requirements.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("The book needs Python 3.11 or later, this is " + sys.version.split()[0] + ". Try: make book PYTHON=python3.12")'
	@echo "== Installing the pinned requirements into $(VENV) (minutes the first time, seconds after)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@# most modules are never imported; Python compiles those that are
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -r requirements.txt | { grep -v '^Requirement already satisfied' || true; }
	@command -v $${CXX:-c++} >/dev/null || $(BIN)/python -m pip install --disable-pip-version-check -q $(CXX_WHEEL)
	@touch $@

$(VENV)/.kvlib: $(VENV)/.installed pyproject.toml
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	@touch $@

# ---------------------------------------------------------------------------- The book

book: _build/.book _build/.lite  ## build the book and print the address of the page to open
	@echo
	@echo "The book is built. Open:  file://$(subst $(eval ) ,%20,$(CURDIR))/$(HTML)/index.html"

# -n -W: an unresolved reference or any other warning is an error. The files of a failed build are
# removed, because Sphinx would not repeat the warnings of pages that it believes done. If only styles,
# scripts or templates have changed, Sphinx sees nothing to do, unless .buildinfo is of another build.
_build/.book: $(VENV)/.kvlib $(BOOK_SOURCES)
	@echo "== Building the book"
	$(if $(filter book/_static/% book/_templates/% assets/% tools/%,$?),@if [ -d $(HTML) ]; then printf '%s\n' '# Sphinx build info version 1' '' 'config: another' 'tags: another' > $(HTML)/.buildinfo; fi)
	$(BIN)/jupyter-book build -n -W --keep-going . || { rm -rf _build/.doctrees _build/.lite $(HTML); exit 1; }
	@touch $@

# The chapters with a Python in the reader's browser. Browsers run them only from a web server.
lite: _build/.lite  ## build the JupyterLite site beside the book (part of make book)

_build/.lite: $(VENV)/.kvlib $(NOTEBOOKS) $(LITE_SOURCES) _toc.yml requirements.txt | _build/.book
	@echo "== Building the JupyterLite site"
	$(BIN)/python tools/build_lite.py
	@touch $@

lite-kernel: $(VENV)/.installed  ## fetch Pyodide, which the browser test boots (needs npm)
	@echo "== Pyodide for the browser test"
	$(BIN)/python tools/fetch_pyodide.py

serve: book  ## serve the built book at http://127.0.0.1:8000, where its Run buttons work
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory $(HTML) 8000

pdf: _build/.book  ## print the whole book into one PDF (needs Chromium; takes a minute)
	$(BIN)/python tools/build_pdf.py

lab: env  ## open JupyterLab on the chapters
	$(BIN)/jupyter lab book

# ---------------------------------------------------------------------------- The tests

# Every step runs, even after one has failed. KVLIB_TESTS=whole also runs what is sampled otherwise.
test: env  ## run every check: style, types, tests, notebooks, build, browser
	@$(BIN)/python tools/steps.py --summary $(TEST_STEPS)

check: env  ## run the checks for use before a commit (a minute): style, types, short tests, first cells, reading path
	@$(BIN)/python tools/steps.py lint types quick first-cells reading-path

portable: env  ## run tests and notebooks as other processors would, and kernels under other compilers
	-$(BIN)/python -m pip install --disable-pip-version-check -q $(CXX_WHEEL)
	$(BIN)/python tools/portable.py $(addprefix --core ,$(CORE))

mutants: env  ## find the bugs that the whole tests detect and the sampled tests do not (an hour)
	$(BIN)/python tools/mutation_run.py

lint: env  ## check the style with ruff, and the metadata of the notebooks
	@echo "== ruff"
	$(BIN)/ruff check .
	$(BIN)/python tools/normalise_notebooks.py --check

types: env  ## check the types with mypy
	@echo "== mypy"
	$(BIN)/mypy

unit: env nbgrader  ## run the tests with pytest; they must cover at least 95 % of kvlib's lines
	@echo "== pytest"
	@mkdir -p _build/coverage
	@# pytest-cov would read all of kvlib twice for its report, and trace itself
	$(ASIDE) -m "$(UNIT)" $(NO_PAGES) --durations=15 --cov --cov-report= \
	  --junitxml=$(SUMMARY)/unit.xml || failed=$$?; \
	  $(BIN)/coverage json --fail-under=95 -o $(SUMMARY)/coverage.json && exit $${failed:-0}

# It sees .venv, and has what nbgrader needs besides: JupyterLab there would load its extensions.
nbgrader: .venv-nbgrader/.installed  ## install nbgrader, which one test runs (seconds)

.venv-nbgrader/.installed: $(VENV)/.installed tools/nbgrader.txt
	@echo "== Installing nbgrader into .venv-nbgrader"
	$(BIN)/python -m venv --clear --without-pip .venv-nbgrader
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$(.venv-nbgrader/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/book.pth"
	$(BIN)/python -m pip --python .venv-nbgrader/bin/python install --disable-pip-version-check -q --no-compile -r tools/nbgrader.txt
	@touch $@

quick: env  ## run the tests in short: few examples each, and none that starts programs
	@echo "== pytest, in short"
	KVLIB_TESTS=quick $(ASIDE) -q -m "$(UNIT) and not slow" $(NO_PAGES)

first-cells: env  ## run the first cells of every notebook and compare their outputs
	@echo "== the first cells of every chapter"
	$(BIN)/python tools/first_cells.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -p tools.warm_kernels -n $(WORKERS) --dist loadscope --nbval --nbval-current-env --nbval-cell-timeout=120 -q _build/check/book/*.ipynb

reading-path: env  ## count what a reader of one decode step has to follow, and the lines of each package
	@echo "== the reading path"
	$(BIN)/python tools/reading_path.py

notebooks: env  ## run every notebook and compare its outputs with the committed ones
	@echo "== nbval"
	@test -n "$(NOTEBOOKS)" || { echo "There is no notebook in book/."; exit 1; }
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -p tools.warm_kernels -n $(WORKERS) --dist loadscope --nbval --nbval-current-env --nbval-cell-timeout=120 --durations=5 -q --junitxml=$(SUMMARY)/notebooks.xml $(NOTEBOOKS)

# Visits wait now and then, for what a page does half a second later: one more of them fills the gaps.
browser: WORKERS = 3
browser: _build/.book _build/.lite lite-kernel  ## open every page in a headless browser and move every slider
	@echo "== browser"
	$(ASIDE) -m browser -q --junitxml=$(SUMMARY)/browser.xml tests/test_lite_browser.py tests/test_rendered_*.py

# If PYTHON is given (make gpu PYTHON=python3), it is used as it is: no .venv, no network.
GPU_PYTHON = $(if $(filter command% environment%,$(origin PYTHON)),$(PYTHON),$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)))

gpu:  ## run the tests, benchmarks and chapters on a GPU (with PYTHON=python3, without .venv; with ONLY=name, one part of them; with TOTAL=380, in so many seconds)
	@$(GPU_PYTHON) tools/run_gpu.py $(addprefix --only ,$(ONLY)) $(addprefix --limit ,$(LIMIT)) $(addprefix --total ,$(TOTAL))

device: env  ## run the long chapters on a stand-in for CuPy; this needs no GPU (minutes)
	$(ASIDE) -m device -q tests/test_notebooks_on_device.py

test-peers: .venv-peers/.installed  ## compare kvlib with transformers, live (installs PyTorch, which is large)
	.venv-peers/bin/python -m pytest -m peers -s tests/peers

.venv-peers/.installed: pyproject.toml requirements.txt
	@test -x .venv-peers/bin/pip || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --disable-pip-version-check pytest pytest-cov hypothesis array-api-strict -e ".[dev,checkpoints]"
	@touch $@

reproducible: env  ## build the book twice and compare all files
	@echo "== The same book twice"
	$(BIN)/python tools/compare_builds.py

prose: env  ## list the long sentences of the book, so that you can read them again
	$(BIN)/python tools/prose.py

# ---------------------------------------------------------------------------- By hand

bench: env  ## measure import time and speed (minutes; results go to benchmarks/results)
	@for script in $(filter-out benchmarks/harness.py benchmarks/on_device.py benchmarks/gpu_%,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script; done

train: .venv-peers/.installed  ## train the reference model, or continue its training (hours; can be resumed)
	.venv-peers/bin/python tools/train_reference.py train --out build/reference --minutes $(TRAIN_MINUTES) $(addprefix --resume ,$(wildcard build/reference/last.pt))

run-notebooks: env  ## execute every notebook in place and remove what changes from run to run
	$(BIN)/python tools/normalise_notebooks.py --execute

assets: env  ## fetch the browser files that the rendered book carries (needs npm)
	$(BIN)/python tools/vendor_assets.py

exercises: env  ## renew the list of exercises (after a change to a title, difficulty or time)
	$(BIN)/python tools/build_exercises.py

course: env  ## write the chapters as a course for nbgrader, with hidden tests, to _build/course
	$(BIN)/python -m kvbook course --out _build/course

explorers: env  ## translate the scenes of the sliders to JavaScript (after a change to them)
	$(BIN)/python tools/build_explorers.py

picture: _build/.book  ## take the README's picture of a page (needs Chromium)
	$(BIN)/python tools/picture.py

requirements: env  ## renew requirements.txt (UPGRADE=oldest: the oldest versions that pyproject.toml allows)
	$(BIN)/python tools/renew_requirements.py

clean:  ## remove what was built (not .venv, nor build/, where training keeps its state)
	rm -rf _build dist .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
