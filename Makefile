MATRIX ?= matrices/quickstart.yaml
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help certify test test-unit lint suite bench render kb-update clean

help: ## what there is to do
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

certify: ## the main job: set up, build, verify, certify and push (MATRIX=matrices/….yaml)
	@bin/setup-venv
	@bin/setup-engine
	@.venv/bin/gpuimg certify $(MATRIX)

test: ## what CI runs: unit and integration tests
	@bin/setup-venv test
	@bin/setup-engine
	@.venv/bin/python -m pytest -q -m "not gpu"

test-unit: ## unit tests only: no engine, no network
	@bin/setup-venv test
	@.venv/bin/python -m pytest -q tests/unit

lint: ## ruff, mypy --strict, import contracts
	@bin/setup-venv dev
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

suite: ## dist/gpuimg-suite.pyz: the one file to copy to a server
	@bin/setup-venv
	@.venv/bin/python -m gpuimg.suite.pack dist/gpuimg-suite.pyz

render: ## renew dockerfiles/ from the shipped matrices
	@bin/setup-venv
	@for matrix in matrices/*.yaml; do .venv/bin/gpuimg render $$matrix || exit 1; done

bench: ## builds against what a user would otherwise write (an hour on 2 cores)
	@bin/setup-venv
	@bin/setup-engine
	@.venv/bin/python benchmarks/builds/run.py

clean: ## remove caches and state of this folder (not images)
	rm -rf .venv dist .gpuimg/runs .gpuimg/results .pytest_cache .mypy_cache .ruff_cache .hypothesis
