# make help          list the targets
# make quickstart    create a cluster, install Perdure, run an example workflow
# make test          run all tests, on a real cluster
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup quickstart cluster cluster-down store image wheels version release install test test-all test-unit test-python drill simulate test-cluster test-temporal serve test-sdk test-sdk-go bench docs lint audit format generate clean

# kind: a new kind cluster. existing: the cluster of KUBECONFIG.
CLUSTER ?= kind
NAME ?= perdure
UV_VERSION := 0.13.8

CACHE := $(or $(PERDURE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/perdure)
# The oldest Python version that Perdure supports. `make test-python` uses that of the image, and so do all tests on a cluster.
export UV_PYTHON ?= 3.11
# Tests start hundreds of Python processes: without bytecode on disk, each compiles all modules again, in one to ten seconds.
unexport PYTHONDONTWRITEBYTECODE
UV := $(or $(shell command -v uv),$(CACHE)/uv/bin/uv)
RUN := $(UV) run --frozen --quiet

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(CACHE)/uv/bin/uv:
	python3 -m venv $(CACHE)/uv
	$(CACHE)/uv/bin/pip install --quiet uv==$(UV_VERSION)

setup: $(if $(findstring $(CACHE),$(UV)),$(UV)) ## Install the project and its tools into .venv
	$(UV) sync --frozen --quiet

quickstart: setup ## Create a cluster, install Perdure, run an example workflow, and show its result
	CLUSTER=$(CLUSTER) NAME=$(NAME) $(RUN) python hack/quickstart.py

cluster: ## Create a kind cluster (NAME=perdure) and print how to connect to it
	python3 hack/cluster up --name $(NAME)

cluster-down: ## Delete that cluster, and with the last one all its files
	python3 hack/cluster down --name $(NAME)

store: setup ## Start an S3 server in a pod and create its Secret, to try artifacts: ARGS="--namespace shop"
	PYTHONPATH=operator:tests:hack $(RUN) python -m support.artifacts $(ARGS)

image: ## Build the image into build/perdure.tar
	python3 hack/cluster image --tag localhost/perdure:dev --out build/perdure.tar

wheels: setup ## Build the wheel of perdure.activity, for activity images, into dist/
	PERDURE_REVISION=$$(git rev-parse HEAD) $(UV) build --quiet --wheel --out-dir dist packages/perdure-activity

version: ## Set the version of the next release, and its copies: VERSION=0.2.0
	python3 hack/version.py $(VERSION)

release: setup ## Build everything that users install into dist/: VERSION=0.1.0, or a development build; REGISTRY, ADDRESS, KEY
	$(RUN) python hack/release $(if $(VERSION),--version $(VERSION)) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(ADDRESS),--address $(ADDRESS)) $(if $(KEY),--key $(KEY))

install: setup ## Install Perdure into the cluster
	CLUSTER=$(CLUSTER) NAME=$(NAME) $(RUN) python hack/quickstart.py --install-only

test: setup ## Run all tests on a new cluster named perdure-test, which is deleted afterwards
	$(RUN) python hack/runtests.py

test-all: setup ## Run all tests, longer chaos tests, and the benchmarks
	$(RUN) --with playwright==1.65.2 --with axe-playwright-python==0.1.8 python hack/runtests.py --all

test-unit: setup ## Run the tests that need no cluster
	python3 hack/cluster tools --with versitygw >/dev/null
	$(RUN) pytest -q -m "not cluster and not bench"

test-python: setup ## Run the tests that need nothing but Python on the image's version of Python: ARGS="tests/unit/api", or --short
	$(RUN) python hack/image_tests.py $(ARGS)

drill: setup ## Restore etcd and a namespace, and move one, under runs of every kind, and print what happens to them
	$(RUN) pytest -q -rP -m bench tests/drill

simulate: setup ## Run the operator in virtual time with random faults: ARGS="--scenario rough --seeds 100", or ARGS=--help
	PYTHONPATH=operator:tests PYTHONHASHSEED=0 $(RUN) python -m simulated $(ARGS)

test-temporal: setup ## Run the tests with Temporal's SDK, on the cluster NAME (or that of KUBECONFIG)
	$(RUN) pytest -q tests/sdk

serve: setup ## Serve SDKs at 127.0.0.1:7233 without a cluster, in memory: ARGS="--address host:port", or ARGS=--help
	PYTHONPATH=operator:tests:hack $(RUN) python -m fidelity $(ARGS)

test-sdk: setup ## Run the tests of the official Python SDK: SDK=path/to/sdk-python ADDRESS=host:port
	$(RUN) python hack/sdk_tests.py --address $(or $(ADDRESS),127.0.0.1:7233) $(SDK)

test-sdk-go: setup ## Run the integration tests of the official Go SDK: SDK=path/to/sdk-go ADDRESS=host:port
	$(RUN) python hack/go_sdk_tests.py --address $(or $(ADDRESS),127.0.0.1:7233) $(SDK)

bench: setup ## Measure how fast Perdure is, on a new cluster, TEMPORAL=host:port beside it: ARGS="--only hello", or ARGS=--help
	TEMPORAL=$(TEMPORAL) $(RUN) --with 'httpx[http2]==0.28.1' python hack/benchmark.py $(ARGS)

docs: setup ## Build the documentation site and serve it at http://127.0.0.1:8000
	$(RUN) properdocs serve --strict --dev-addr 127.0.0.1:8000

lint: setup ## Run all static checks
	$(UV) lock --check --quiet
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	MYPYPATH=hack $(RUN) mypy -p benchmark -p cluster -p deploy -p image_tests -p quickstart -p reference -p release -p releases -p runtests -p version -p website
	$(RUN) lint-imports --no-cache
	$(RUN) python -m perdure.api.crdgen --check
	$(RUN) python hack/reference --check
	$(RUN) python hack/version.py --check
	$(RUN) python hack/release licenses
	$(RUN) python hack/wordlist.py
	$(RUN) python hack/sizes.py
	$(RUN) properdocs build --strict

audit: setup ## Look up known vulnerabilities of the locked dependencies; needs access to api.osv.dev
	$(UV) audit --frozen --no-dev --preview-features audit-command

format: setup ## Format the code and apply automatic fixes
	$(RUN) ruff check --fix-only .
	$(RUN) ruff format .

generate: setup ## Regenerate the generated files
	$(RUN) python -m perdure.api.crdgen
	$(RUN) python hack/reference

clean: ## Remove build output; the cache of cluster parts stays
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
