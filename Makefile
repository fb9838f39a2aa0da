# Three commands do everything: `make demo` shows what Widthwise does, `make docs` builds its documentation as a site, and
# `make test` checks all of it. They install what they need into .venv first, in pinned versions; that step runs again
# only when the pins change.

PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/dev-$(VERSION)
READY_FOR_DEMO := $(VENV)/lab-$(VERSION)
READY_FOR_DOCS := $(VENV)/docs-$(VERSION)
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Many containers set it, and there every process that tests start would compile all it imports, most of its time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs test lint types unit browser test-gpu test-all test-packages test-faults format clean

demo: $(READY_FOR_DEMO)
	@echo "Training small transformers until the answer is clear: some minutes on two cores, at once the second time."
	@$(BIN)/widthwise experiment transfer --scale cpu --parameterizations mup --settings global full \
		--precision 0.06 --until-verdict --processes 2 --study studies/demo

# The variable stops a notice about a future version of MkDocs, which the pins exclude. With --quiet, MkDocs would count no
# warnings, and so not fail.
docs: $(READY_FOR_DOCS)
	@said=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$said" >&2; exit 1; }
	@echo "Wrote site/index.html, to be opened in a browser; no server and no network are needed."

# Types are checked while the tests run, and what is wrong with them is printed last.
test:
	@$(MAKE) --no-print-directory --silent --jobs 2 $(READY) browser
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types >.venv/types 2>&1 & types=$$!; failed=0; \
		$(MAKE) --no-print-directory unit || failed=1; \
		wait $$types || failed=1; \
		cat .venv/types; exit $$failed

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/pyright

unit: $(READY) browser
	$(BIN)/pytest -n 2 --dist worksteal $(TESTS)

# What exists on a GPU alone, with whatever JAX that machine has: its Python needs pytest, and nothing is installed.
test-gpu:
	JAX_PLATFORMS=cuda PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m pytest -q tests/gpu --confcutdir tests/gpu -o addopts= -W default

# Before a release: all tests on each version of Python, in an environment of its own. TESTS="tests/fit -x" passes
# arguments to pytest; PYTHONS=3.12 names the versions to test.
PYTHONS ?= 3.11 3.12 3.13
test-all:
	@failed=; for version in $(PYTHONS); do \
		python=; \
		for each in python$$version "$$(pyenv root 2>/dev/null)"/versions/$$version.*/bin/python; do \
			if test -z "$$python" && "$$each" -c '' 2>/dev/null; then python="$$each"; fi; \
		done; \
		if test -z "$$python"; then \
			echo "Python $$version: not found, neither as python$$version nor by pyenv" >&2; failed="$$failed $$version"; continue; \
		fi; \
		echo "Python $$version:"; \
		$(MAKE) --no-print-directory unit PYTHON="$$python" VENV=.venv-$$version || failed="$$failed $$version"; \
	done; \
	test -z "$$failed" || { echo "Failed:$$failed" >&2; exit 1; }

# Before a release: what pip would install, installed for real, with each extra or with EXTRAS="jax torch". It downloads
# some gigabytes.
test-packages:
	@$(PYTHON) tests/packages.py $(EXTRAS)

# Before a release: commands that are killed, damaged files and full disks. FAULTS="--seed 1 --only train --times 0.1" tries
# other moments, one case, or a part.
test-faults: $(READY)
	@$(BIN)/python -m tests.faults $(FAULTS)

# The report is tested in a real browser. Where none can be installed, CHROMIUM names one, or those tests are skipped.
browser:
	@if test -z "$$CHROMIUM" && ! command -v chromium && command -v apt-get && test "$$(id -u)" = 0; then \
		echo "Installing chromium ..." >&2; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium; \
	fi >/dev/null || true

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf site .venv .venv-* dist .pytest_cache .ruff_cache .hypothesis

# The last line: tests compare with microsoft/mup, which asks for packages that it does not need.
$(VENV)/%-$(VERSION): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Widthwise needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another with: make PYTHON=python3.12")'
	@echo "Installing into $(VENV) ..."
	@test -x $(BIN)/python$(VERSION) || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile --editable '.[$*]'
	@test $* != dev || $(BIN)/python -m pip install --quiet --no-compile --no-deps mup
	@touch $@
