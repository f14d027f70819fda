# Everything a new user needs: `make run`, `make test`. Each does all of its own set-up in .venv.
# Flags of `bench` and `bench-cluster`: make bench ARGS='--help'.
PYTHON ?= python3
BIND ?= 127.0.0.1:8888
VENV := .venv
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup run test soak lint bench bench-cluster clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(READY) ## make .venv with the console script `extender` and all test packages in it

$(READY): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "extender needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

run: $(READY) ## serve the example cluster on 127.0.0.1:8888
	@echo "A made-up cluster of 20 nodes, served on $(BIND) until Ctrl-C. Try in another terminal:"
	@echo "  curl -s $(BIND)/readyz?verbose"
	@echo "  curl -s $(BIND)/scheduler/filter -H 'Content-Type: application/json' -d @tests/recordings/filter-api.json"
	@echo "  .venv/bin/extender explain ml/recommend-7f6d-v4nzs --cluster extender/offline/example.yaml"
	@exec $(VENV)/bin/extender serve --cluster extender/offline/example.yaml --bind $(BIND) --log-format text

test: $(READY) ## run all tests; builds the stock control plane on first use
	$(VENV)/bin/pytest

soak: $(READY) ## provoke faults at length: 2,000 pods, 20 deaths, 40 leaders, 100,000 bad requests, ten minutes of churn
	SOAK=1 $(VENV)/bin/pytest -s tests/faults

lint: $(READY) ## ruff, mypy and vulture
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/vulture extender tests/unused.py --ignore-decorators '@*.command*,@*.group*,@*_validator*'

bench: $(READY) ## time decisions beside the stock scheduler's plugins, the verbs and the loop; about five minutes
	@$(VENV)/bin/python -m tests.bench $(ARGS)

bench-cluster: $(READY) ## count pods bound a second on a real API server, by scheduler and backlog; about 40 minutes
	@$(VENV)/bin/python -m tests.bench.cluster $(ARGS)

clean: ## remove what setup made
	rm -rf $(VENV) *.egg-info
