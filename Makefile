PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.docs-installed

.PHONY: help demo test bench check docs format torture audit wheel-check screenshot moving-picture \
  backbone clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(INSTALLED)  ## Run GOAL on embedded digits; ends with a report to open and a model to review
	$(BIN)/goal demo

test: $(INSTALLED)  ## Run all tests
	$(BIN)/pytest -n 2

bench: $(INSTALLED)  ## Measure speed against the plain way; writes benchmarks/RESULTS.md (an hour; --points chooses)
	$(BIN)/python -m benchmarks.speed

check: $(INSTALLED)  ## Lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DOCS_INSTALLED)  ## Build the documentation site into build/site and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m website.check build/site
	$(BIN)/pytest tests/docs/test_built_site.py

format: $(INSTALLED)  ## Apply formatting and safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

torture: $(INSTALLED)  ## Kill, starve, damage and confuse goal for a quarter of an hour; print figures
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.torture

audit:  ## Look the installed versions up in the database of known vulnerabilities
	$(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip

wheel-check: $(INSTALLED)  ## Build the wheel, install it into an empty environment, run its demo there
	PYTHON=$(PYTHON) BIN=$(abspath $(BIN)) sh tests/wheel_check.sh

screenshot: $(INSTALLED)  ## Take the README's pictures of the demo again (needs Chromium)
	$(BIN)/goal demo --out build/demo
	$(BIN)/python -m tests.browser.screenshot build/demo/report.html docs/images/report.png
	$(BIN)/python -m tests.browser.review_screenshots build/demo-model docs/images

moving-picture: $(INSTALLED)  ## Make the README's moving picture again: digits, stage after stage
	OMP_NUM_THREADS=1 $(BIN)/python -m website.moving docs/images/stages.webp

backbone: $(INSTALLED)  ## Pretrain the embedded backbone again (a few minutes; one thread, for the same bits)
	OMP_NUM_THREADS=1 $(BIN)/goal pretrain --dataset digits --out build/digits-vit

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; point PYTHON at one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(INSTALLED)

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  mkdocs mkdocs-material 'mkdocstrings[python]'
	@touch $(DOCS_INSTALLED)

clean:  ## Remove the environment and build products
	rm -rf $(VENV) build dist
