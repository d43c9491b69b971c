# make help          what there is
# make quickstart    everything, from nothing to a finished workflow
# make test          every test that decides, on a real cluster
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup quickstart cluster cluster-down image wheels install test test-all test-unit simulate test-cluster test-temporal serve test-sdk test-sdk-go lint format generate clean

# kind: a cluster of our own, brought up here. existing: the one that KUBECONFIG names.
CLUSTER ?= kind
NAME ?= perdure
UV_VERSION := 0.13.8

CACHE := $(or $(PERDURE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/perdure)
# The version that the image has: tests must run on what ships.
export UV_PYTHON ?= 3.11
UV := $(or $(shell command -v uv),$(CACHE)/uv/bin/uv)
RUN := $(UV) run --frozen --quiet

help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(CACHE)/uv/bin/uv:
	python3 -m venv $(CACHE)/uv
	$(CACHE)/uv/bin/pip install --quiet uv==$(UV_VERSION)

setup: $(if $(findstring $(CACHE),$(UV)),$(UV)) ## Install the project and its tools into .venv
	$(UV) sync --frozen --quiet

quickstart: setup ## Bring up a cluster, install Perdure, run an order through it, show what happened
	CLUSTER=$(CLUSTER) NAME=$(NAME) $(RUN) python hack/quickstart.py

cluster: ## Bring up a kind cluster (NAME=perdure) and print how to reach it
	python3 hack/cluster up --name $(NAME)

cluster-down: ## Remove that cluster, and with the last one every trace of it
	python3 hack/cluster down --name $(NAME)

image: ## Build the project's image into build/perdure.tar
	python3 hack/cluster image --tag localhost/perdure:0.1.0 --out build/perdure.tar

wheels: setup ## Build the wheel of perdure.activity, for images that run activities, into dist/
	$(UV) build --quiet --wheel --out-dir dist packages/perdure-activity

install: setup ## Install Perdure into the cluster
	CLUSTER=$(CLUSTER) NAME=$(NAME) $(RUN) python hack/quickstart.py --install-only

test: setup ## Run every test that decides; brings up a cluster of its own, named perdure-test, and removes it
	$(RUN) python hack/runtests.py

test-all: setup ## Run the same, and the benchmarks, which print figures
	$(RUN) python hack/runtests.py --all

test-unit: setup ## Run the tests that need no cluster
	python3 hack/cluster tools >/dev/null
	$(RUN) pytest -q -m "not cluster and not bench"

simulate: setup ## Run the operator in virtual time with seeds of faults: ARGS="--scenario rough --seeds 100", or ARGS=--help
	PYTHONPATH=operator:tests PYTHONHASHSEED=0 $(RUN) python -m simulated $(ARGS)

test-temporal: setup ## Run Temporal's SDK against the operator, on the cluster NAME (or KUBECONFIG's)
	$(RUN) pytest -q tests/temporal

serve: setup ## Serve SDKs at 127.0.0.1:7233, without a cluster and without storage: ARGS="--address host:port", or ARGS=--help
	PYTHONPATH=operator:tests:hack $(RUN) python -m fidelity $(ARGS)

test-sdk: setup ## Run the official SDK's tests, given their folder: SDK=path/to/sdk-python ADDRESS=host:port
	$(RUN) python hack/sdk_tests.py --address $(or $(ADDRESS),127.0.0.1:7233) $(SDK)

test-sdk-go: setup ## Run the Go SDK's integration tests, given their folder: SDK=path/to/sdk-go ADDRESS=host:port
	$(RUN) python hack/go_sdk_tests.py --address $(or $(ADDRESS),127.0.0.1:7233) $(SDK)

lint: setup ## Run every check that reads code
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	MYPYPATH=hack $(RUN) mypy -p cluster -p deploy -p quickstart -p runtests
	$(RUN) lint-imports --no-cache
	$(RUN) python -m perdure.api.crdgen --check

format: setup ## Format the code and mend what can be mended
	$(RUN) ruff check --fix-only .
	$(RUN) ruff format .

generate: setup ## Write the generated files anew
	$(RUN) python -m perdure.api.crdgen

clean: ## Remove what was built here; the cache of cluster parts stays
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
