# Needs python3 (3.11 or newer) and make; everything else goes into .venv.

PYTHON ?=
CORPUS ?= ../shared/corpus
CHECKER ?= $(CORPUS)/../tools/check_genai_spans.py
ROLLOUTS ?=
BIN = .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo engines services nemo-gym e2e test check lint types floors docs-fresh fuzz corpus demo-spans bench docs pins clean

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

.venv/installed: pyproject.toml requirements/dev.txt requirements/peers.txt scripts/make_venv.sh otel_gym/version.py
	@PYTHON="$(PYTHON)" sh scripts/make_venv.sh

demo: .venv/installed ## rollouts through the proxy and real clients, in ./otel_gym_demo (ROLLOUTS=N)
	@$(BIN)/otel-gym demo --dir ./otel_gym_demo $(if $(ROLLOUTS),--rollouts $(ROLLOUTS))

.venv-engines/installed: .venv/installed requirements/engines.txt
	@rm -rf .venv-engines
	@$(BIN)/python -m venv .venv-engines
	@.venv-engines/bin/python -m pip install --quiet --progress-bar off -r requirements/engines.txt
	@touch $@

engines: .venv-engines/installed ## polars, Spark and Ray in .venv-engines (1.3 GB), with which the tests read Parquet

services: ## Jaeger, Kafka and a Collector, once, into a cache outside the checkout (8 minutes; SERVICES_CACHE=DIR), for the tests
	@$(or $(PYTHON),python3) scripts/make_services.py

nemo-gym: .venv/installed ## NeMo Gym 0.7.0 (Python 3.13), once, outside the checkout, for the test of a real run
	@$(BIN)/python bench/nemo_gym_run.py --only-install || test $$? = 2

e2e: .venv/installed services ## traced programs over OTLP through Collector, Jaeger and Kafka, and back from disk (5 minutes)
	$(BIN)/python bench/otlp_e2e.py

test: .venv/installed ## the tests; those that are left out are listed with the reason
	@$(BIN)/python -m pytest -rs

check: lint types floors docs-fresh fuzz corpus demo-spans ## lint, types, floors, docs, 200,000 mutations, and the reference folder (CORPUS=DIR)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy --strict otel_gym

floors: .venv/installed
	$(BIN)/lint-imports

docs-fresh: .venv/installed
	$(BIN)/python scripts/make_docs.py --check

fuzz: .venv/installed
	$(BIN)/python bench/fuzz.py --mutations 200000

corpus: .venv/installed
ifneq ($(wildcard $(CORPUS)/.),)
	$(BIN)/python bench/parity_model_calls.py $(CORPUS)/model_calls
	$(BIN)/python bench/reports.py $(CORPUS)/reports
	$(BIN)/python bench/replay_wire.py $(CORPUS)/claude_code $(CORPUS)/claude_code_older $(CORPUS)/codex $(CORPUS)/sdk
	$(BIN)/python bench/transcripts.py $(CORPUS)
	$(BIN)/python bench/dynamo_parity.py $(CORPUS)/dynamo
else
	@echo "left out: parity, reports, replay, transcripts and Dynamo's traces, since there is no folder $(CORPUS) (give one as CORPUS=DIR)"
endif

demo-spans: .venv/installed
ifneq ($(wildcard $(CHECKER)),)
	rm -rf build/demo
	$(BIN)/otel-gym demo --dir build/demo
	find build/demo -name '*.jsonl' -path '*/spans/*' -exec $(BIN)/python $(CHECKER) --fail-on error --min-level error {} +
else
	@echo "left out: the GenAI checker on the demo's spans, since there is no $(CHECKER) (give one as CHECKER=FILE)"
endif

bench: .venv/installed ## every benchmark; writes docs/benchmarks.md
	$(BIN)/python bench/run_all.py --write docs/benchmarks.md

docs: .venv/installed ## docs/conventions.md, docs/settings.md, and the tables in other pages, from the code
	$(BIN)/python scripts/make_docs.py

pins: .venv/installed ## requirements/dev.txt from what is installed in .venv
	$(BIN)/python -m pip freeze --exclude-editable --exclude otel_gym > requirements/dev.txt.new
	{ sed -n '/^#/p' requirements/dev.txt; cat requirements/dev.txt.new; } > requirements/dev.txt.pinned
	rm requirements/dev.txt.new
	mv requirements/dev.txt.pinned requirements/dev.txt

clean: ## everything that make made
	rm -rf .venv .venv-engines build dist otel_gym_demo .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find otel_gym tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
