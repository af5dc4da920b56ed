# Each target makes the virtual environment it needs; a second run reuses it.
# Name another interpreter with PYTHON: make test PYTHON=python3.12

PYTHON ?= python3
FOLDERS := fairlead workflows actors records zones simulation bench tests
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)
# One process more than there are cores: half of the tests wait for Ray, for leases, for a browser.
PROCESSES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
SPREAD := --numprocesses $(PROCESSES) --dist loadscope
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all soak bench-peers docs check lock clean python servers postgresql prometheus browser

# A checkout is tested as it stands, not with what the caller's shell would add to it. And the hundreds of processes that
# tests start keep compiled modules: without them each takes twice the time to start.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

help: ## list what make can do here
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: .venv/ready ## watch real work go through the real system
	@.venv/bin/fairlead demo

test: .venv-test/ready postgresql prometheus browser ## run every test that this machine can run, except the long ones
	.venv-test/bin/python -m pytest $(SPREAD)

test-all: .venv-test/ready postgresql prometheus browser ## run the long ones too: a campaign per planted bug, the soak; and 1,000 seeds
	.venv-test/bin/python -m pytest $(SPREAD) -m 'long or not long'
	.venv-test/bin/python -m fairlead simulate --seeds 1000 --first "$$(date +%s)"

soak: .venv-test/ready ## run the long tests: kills, pauses, and ten minutes of both (FAIRLEAD_SOAK_S)
	.venv-test/bin/python -m pytest -m long tests/acceptance

bench-peers: .venv-peers/ready servers ## measure Fairlead beside Celery, Dramatiq, Procrastinate, DBOS (OPTIONS=--quick)
	.venv-peers/bin/python -m bench.peers $(OPTIONS)

docs: .venv-docs/ready ## build the documentation site into build/site; a broken link or reference fails
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict

check: .venv-check/ready ## check format, lint, types and the direction of imports
	.venv-check/bin/ruff format --check
	.venv-check/bin/ruff check
	.venv-check/bin/mypy
	.venv-check/bin/lint-imports --no-logo

lock: python ## write constraints.txt again, from the newest versions that pyproject.toml allows
	@rm -rf .venv-lock
	@$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python $(PIP_INSTALL) '.[ray,postgresql,bench,docs,peers,test,check]'
	@{ echo "# Every version that make installs, transitive ones included. Written by: make lock"; \
	   .venv-lock/bin/python -m pip freeze --exclude fairlead; } > constraints.txt.new
	@mv constraints.txt.new constraints.txt
	@rm -rf .venv-lock

clean: ## remove environments, caches and build results
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(FOLDERS) -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/ready:       extras := [ray]
.venv-docs/ready:  extras := [docs]
.venv-test/ready:  extras := [ray,postgresql,bench,docs,test]
.venv-check/ready: extras := [ray,postgresql,bench,docs,test,check]
.venv-peers/ready: extras := [ray,postgresql,bench,peers]

.venv/ready .venv-docs/ready .venv-test/ready .venv-check/ready .venv-peers/ready: pyproject.toml constraints.txt | python
	@echo "Installing into $(@D), versions from constraints.txt (a minute or so the first time)"
	@$(@D)/bin/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python $(PIP_INSTALL) --constraint constraints.txt --editable '.$(extras)'
	@touch $@

# The peers' servers, from the system's packages. The results name systems whose server is missing.
servers:
	@command -v redis-server >/dev/null && ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || { \
	  echo "Installing postgresql and redis-server with apt-get; the instances that they start are left alone"; \
	  $(SUDO) apt-get install --yes --quiet --no-install-recommends postgresql redis-server; } || \
	  echo "postgresql and redis-server cannot be installed here: systems that need them will be missing." >&2

# Tests start servers of their own, on other ports. Without postgresql those tests are skipped, and say so; without
# pgbouncer the users of one test connect directly.
postgresql:
	@{ ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null; } && \
	  PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null || { \
	  echo "Installing postgresql and pgbouncer with apt-get; the instances that they start are left alone"; \
	  $(SUDO) apt-get update --quiet && \
	  $(SUDO) apt-get install --yes --quiet --no-install-recommends postgresql pgbouncer; } || \
	  echo "postgresql and pgbouncer cannot be installed here: tests with what is missing will be skipped." >&2

# Scrapes a fleet in the tests, from a folder and a port of its own. Without it those tests are skipped, and say so.
prometheus:
	@command -v prometheus >/dev/null || { \
	  echo "Installing prometheus with apt-get; the instance that it starts is left alone"; \
	  $(SUDO) apt-get update --quiet && \
	  $(SUDO) apt-get install --yes --quiet --no-install-recommends prometheus; } || \
	  echo "prometheus cannot be installed here: the tests with it will be skipped." >&2

# The browser that the dashboard is tested in, from the system's packages.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
	  echo "Installing chromium with apt-get"; \
	  { $(SUDO) apt-get update --quiet && \
	    $(SUDO) apt-get install --yes --quiet --no-install-recommends chromium fonts-dejavu-core; } || \
	  echo "chromium cannot be installed here: the dashboard's tests that need a browser will be skipped." >&2; }

python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) is not installed. Fairlead needs Python 3.11 or newer with its venv module." >&2; \
	  echo "Debian, Ubuntu: apt-get install python3.11 python3.11-venv   macOS: brew install python@3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Fairlead needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Debian, Ubuntu: apt-get install python3.11 python3.11-venv   macOS: brew install python@3.11" >&2; \
	  echo "If a newer one is installed under another name: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot create virtual environments: its venv or ensurepip module is missing." >&2; \
	  echo "Debian, Ubuntu: apt-get install python3-venv (or python3.11-venv, to match $(PYTHON))" >&2; exit 1; }
