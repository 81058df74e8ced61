# Everything a contributor runs. `make` alone lists the targets.
#
# Needed on the machine: Python 3.11 or newer with venv, make, and a way to PyPI.
# `make build` also needs python3.13, the version that the Lambda layers are built for; `make e2e`
# needs openssl besides.

PYTHON ?= python3
VENV ?= .venv
SAM_VENV ?= .venv-sam
E2E_VENV ?= .venv-e2e
LAMBDA_PYTHON ?= python3.13
# Processes that tests run in; 0 for this one, as a debugger needs.
JOBS ?= auto

BIN := $(VENV)/bin
UV := $(BIN)/uv
SAM := SAM_CLI_TELEMETRY=0 $(SAM_VENV)/bin/sam
STAMP := $(VENV)/.setup.stamp
SAM_STAMP := $(SAM_VENV)/.setup.stamp
E2E_STAMP := $(E2E_VENV)/.setup.stamp
REQUIREMENTS := layers/dependencies/requirements.txt
TYPED := stepwell examples benchmarks
ENGINE_TESTS := tests/unit tests/histories tests/simulation tests/examples tests/integration \
  $(addprefix --ignore=tests/integration/,api aws cli) \
  --ignore=tests/simulation/test_interleavings.py \
  $(addprefix --deselect=tests/simulation/test_crash_everywhere.py::test_, \
  a_second_crash_while_recovering_changes_nothing attempts_that_crash_one_after_the_other_change_nothing)
TEMPLATES := template.yaml $(wildcard infra/*.yaml)
ARCHITECTURE ?= arm64
LOCAL := .aws-sam-local
LOCAL_ARCHITECTURE := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x86_64)
LOCAL_SOURCES := $(shell find template.yaml infra layers functions examples tests/built/workflows \
  -name __pycache__ -prune -o -print)

# The lock names the uv that made it; that one is used.
UV_VERSION := $(shell awk '/^name = "uv"$$/ {getline; gsub(/[^0-9.]/, ""); print; exit}' uv.lock)
EXPORT = { echo "\# Exported from uv.lock by 'make lock'; never edited." && \
  $(UV) export --quiet --locked --no-dev --extra aws --no-emit-project --no-hashes --no-header; }

# Images for containers often forbid bytecode; then each of the hundreds of processes that tests start
# compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

export UV_PROJECT_ENVIRONMENT = $(VENV)
export UV_PYTHON_DOWNLOADS = never

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

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

# Slow tests stand together, so whoever has none left takes over some of another's.
.PHONY: test
test: setup ## Run the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# Where Pythons differ: the loop, tasks and threads that replay rests on. Adapters and doors do not,
# nor do the orders in which processes get on, nor a second crash after the first.
.PHONY: test-engine
test-engine: ## Run the tests of the engine, for one more Python (PYTHON=…, VENV=…)
	$(MAKE) --no-print-directory test ARGS="$(ENGINE_TESTS) $(ARGS)"

SECONDS ?= 60
SEED ?=
STORY ?=

.PHONY: soak
soak: setup ## Simulate by chance for SECONDS=…; or one simulation again with SEED=…
	@$(BIN)/python -m tests.simulation.soak --seconds $(SECONDS) --seed '$(SEED)' --story '$(STORY)'

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
validate: $(SAM_STAMP) ## Validate the SAM templates, also as CloudFormation will get them
	@for template in $(TEMPLATES); do $(SAM) validate --lint --template $$template || exit 1; done
	AWS_DEFAULT_REGION=us-east-1 $(SAM_VENV)/bin/python tests/infra/lint_translated.py $(TEMPLATES)

# The folder of the runtime's own Python comes first on the path: SAM and the layers' Makefiles look
# for `python3.13` there. An architecture has a cache of its own, for SAM does not tell its layers apart.
# $(1) is the architecture, $(2) the folder to build in.
SAM_BUILD = folder=$$($(LAMBDA_PYTHON) -c 'import os, sys; \
	    assert sys.version_info[:2] == (3, 13); print(os.path.join(sys.base_prefix, "bin"))') \
	  || { echo "$(LAMBDA_PYTHON) is no Python 3.13: name one with LAMBDA_PYTHON=…" >&2; exit 1; }; \
	  PATH="$$folder:$$PATH" ARCHITECTURE=$(1) $(SAM) build --cached --parallel \
	  --parameter-overrides Architecture=$(1) --build-dir $(2)/build --cache-dir $(2)/cache-$(1)

.PHONY: build
build: $(SAM_STAMP) ## Build what is deployed (ARCHITECTURE=x86_64 for other processors)
	@$(call SAM_BUILD,$(ARCHITECTURE),.aws-sam) $(ARGS)

# The same for this machine's processor, with the examples as the workflows of the deployment.
.PHONY: build-local
build-local: $(LOCAL)/built.stamp ## Build for this machine, with the examples: what tests run

$(LOCAL)/built.stamp: $(LOCAL_SOURCES) | $(SAM_STAMP)
	@rm -rf $(LOCAL)/source && mkdir -p $(LOCAL)/source && touch $@.new
	@cp -R template.yaml infra layers functions $(LOCAL)/source/
	@rm -rf $(LOCAL)/source/functions/workflows
	@cp -R tests/built/workflows examples $(LOCAL)/source/functions/
	@find $(LOCAL)/source -name __pycache__ -prune -exec rm -r {} +
	@$(call SAM_BUILD,$(LOCAL_ARCHITECTURE),$(LOCAL)) --template $(LOCAL)/source/template.yaml
	@mv $@.new $@

.PHONY: test-built
test-built: build-local ## Run the tests of what was built, on the Python it was built for
	$(MAKE) --no-print-directory test PYTHON=$(LAMBDA_PYTHON) VENV=.venv-3.13 \
	  ARGS="tests/built tests/deployed $(ARGS)"

$(E2E_STAMP): $(STAMP)
	UV_PROJECT_ENVIRONMENT=$(E2E_VENV) $(UV) sync --quiet --locked --only-group emulator --python $(LAMBDA_PYTHON)
	@touch $@

# All of it is on loopback, and ends with the tests.
.PHONY: e2e
e2e: build-local $(E2E_STAMP) ## Deploy to an AWS emulated on this machine, and use it
	STEPWELL_EMULATOR_PYTHON=$(CURDIR)/$(E2E_VENV)/bin/python STEPWELL_SAM=$(CURDIR)/$(SAM_VENV)/bin/sam \
	  $(BIN)/python -m pytest tests/e2e $(ARGS)

.PHONY: check
check: lint type test drift validate ## The quick checks and the tests; CI adds test-engine, test-built, e2e
