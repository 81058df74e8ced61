# Everything a contributor runs. `make` alone lists the targets.
#
# Needed on the machine: Python 3.11 or newer with venv, make, and a way to PyPI.
# `make build` also needs python3.13, the version that the Lambda layers are built for.

PYTHON ?= python3
VENV ?= .venv
SAM_VENV ?= .venv-sam
LAMBDA_PYTHON ?= python3.13

BIN := $(VENV)/bin
UV := $(BIN)/uv
SAM := SAM_CLI_TELEMETRY=0 $(SAM_VENV)/bin/sam
STAMP := $(VENV)/.setup.stamp
SAM_STAMP := $(SAM_VENV)/.setup.stamp
REQUIREMENTS := layers/dependencies/requirements.txt
TYPED := stepwell $(if $(wildcard examples/*/*.py),examples) $(if $(wildcard benchmarks/*.py),benchmarks)
TEMPLATES := template.yaml $(wildcard infra/*.yaml)

# The lock names the uv that made it; that one is used.
UV_VERSION := $(shell awk '/^name = "uv"$$/ {getline; gsub(/[^0-9.]/, ""); print; exit}' uv.lock)
EXPORT = { echo "\# Exported from uv.lock by 'make lock'; never edited." && \
  $(UV) export --quiet --locked --no-dev --no-emit-project --no-hashes --no-header; }

export UV_PROJECT_ENVIRONMENT = $(VENV)
export UV_PYTHON_DOWNLOADS = never

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(STAMP) ## Make the environment and install the locked tools into it

$(STAMP): pyproject.toml uv.lock | $(UV)
	$(UV) sync --quiet --locked --python $(BIN)/python
	@touch $@

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Stepwell needs Python 3.11 or newer: make PYTHON=python3.13" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.PHONY: format
format: setup ## Sort imports, apply safe fixes, format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: lint
lint: setup ## Check style, formatting and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

.PHONY: type
type: setup ## Check types
	$(BIN)/mypy $(TYPED:%=-p %)

.PHONY: test
test: setup ## Run the tests
	$(BIN)/python -m pytest $(ARGS)

.PHONY: demo
demo: setup ## Run the approval example through a process kill
	$(BIN)/python -m examples.approval.demo

.PHONY: bench
bench: setup ## Measure time, writes and replay
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: lock
lock: $(UV) ## Resolve again and export the dependency layer (ARGS=--upgrade for newer versions)
	$(UV) lock $(ARGS)
	$(EXPORT) > $(REQUIREMENTS).new
	mv $(REQUIREMENTS).new $(REQUIREMENTS)

.PHONY: drift
drift: setup ## Check that the lock fits pyproject.toml, and the dependency layer the lock
	$(UV) lock --check --quiet
	@$(EXPORT) | diff -u $(REQUIREMENTS) - \
	  || { echo "$(REQUIREMENTS) does not fit uv.lock: run 'make lock'" >&2; exit 1; }

$(SAM_STAMP): $(STAMP)
	UV_PROJECT_ENVIRONMENT=$(SAM_VENV) $(UV) sync --quiet --locked --only-group sam --python $(BIN)/python
	@touch $@

.PHONY: validate
validate: $(SAM_STAMP) ## Validate the SAM templates
	@for template in $(TEMPLATES); do $(SAM) validate --lint --template $$template || exit 1; done

.PHONY: build
build: $(SAM_STAMP) ## Build what is deployed
	@folder=$$($(LAMBDA_PYTHON) -c 'import os, sys; print(os.path.join(sys.base_prefix, "bin"))') \
	  || { echo "No $(LAMBDA_PYTHON) here: name one with LAMBDA_PYTHON=…" >&2; exit 1; }; \
	PATH="$$folder:$$PATH" $(SAM) build $(ARGS)

.PHONY: check
check: lint type test drift validate ## All of it, as CI runs it
