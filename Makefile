# Everything a new user needs: `make run`, `make test`. Each does all of its own set-up in .venv.
# Flags of `bench`, `bench-cluster`, `bench-webhook`, `fuzz-answers`, `test-controllers`, `test-group-incidents`, `mutate`, `test-next`, `test-upstream` and `test-versions`: make bench ARGS='--help'.
PYTHON ?= python3
BIND ?= 127.0.0.1:8888
VENV := .venv
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs
BUILD := .venv-build/.installed
# The distribution, and what goes into the image.
DIST ?= dist
IMAGE ?= podseat:latest
DOCKER ?= docker
# Tests start hundreds of processes. Each would compile all modules again if compiled ones were not kept.
unexport PYTHONDONTWRITEBYTECODE
# The markers of the tests that only `make test-all` runs.
LATER := slow or browser or clients or controllers or promtool or actionlint
FRESH = $(shell date +%s)
# Registries allow no capitals, and the owner of a repository may have some.
lower = $(shell echo "$(1)" | tr A-Z a-z)
# As kubectl and krew name them: linux-amd64, darwin-arm64.
PLATFORM := $(shell uname -s | tr A-Z a-z)-$(subst aarch64,arm64,$(subst x86_64,amd64,$(shell uname -m)))

.DEFAULT_GOAL := help
.PHONY: help setup run check test test-all test-fast explore backlogs test-injection test-groups test-group-cases test-gangs test-group-incidents test-redaction test-controllers test-plans test-live-plans mutate test-upstream test-versions test-next test-faults test-strangers test-jobs test-webhook-gangs soak fuzz fuzz-answers lint bench bench-cluster bench-webhook manifests docs docs-reference golden wheel dist test-distribution image-context image image-smoke sign push-chart binary krew release-notes audit test-workflows test-chart clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(READY) ## make .venv with the console script `extender` and all test packages in it

$(INSTALLED): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "extender needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --editable .
	@touch $@

$(READY): $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

run: $(INSTALLED) ## serve the example cluster on 127.0.0.1:8888; needs no test packages
	@exec $(VENV)/bin/extender demo --bind $(BIND)

check: lint ## lint, and the quick tests: no servers, no browser, no random or many cases
	$(VENV)/bin/pytest -q -n 2 --dist loadfile -m "not (stock or processes or hypothesis or thorough or $(LATER))"

test: $(READY) ## all that must hold before a change lands, in about eight minutes; first builds etcd, kube-apiserver and kube-scheduler
	$(VENV)/bin/pytest -n 4 --dist loadfile -m "not ($(LATER))"

test-all: $(READY) ## run the tests that `make test` leaves out: those that need more programs, and those that take long
	$(VENV)/bin/pytest -n 4 --dist loadfile -m "$(LATER)"

test-fast: $(READY) ## run the tests of some rooms that need no servers, in a minute; with another Python: VENV=.venv-3.13 PYTHON=python3.13
	$(VENV)/bin/pytest -q -n 2 -m "not (stock or browser or hypothesis or slow)" tests/runtime tests/model tests/table tests/framework tests/web tests/config/test_settings.py

soak: $(READY) ## provoke faults at length: 2,000 pods, 20 deaths, 40 leaders, 100,000 bad requests, ten minutes of churn
	SOAK=1 $(VENV)/bin/pytest -s tests/faults

test-faults: $(READY) ## hold every kind of write back while its sender ends in every way, and kill the loop 200 times, on a real API server; takes two hours
	FAULTS=1 $(VENV)/bin/pytest -s tests/faults/test_unsettled_writes.py tests/faults/test_terms.py tests/faults/test_shared_devices.py

test-strangers: $(READY) ## open 500 connections a second from two addresses beside probes of both ports; about five minutes
	$(VENV)/bin/python -m tests.faults.strangers

test-jobs: $(READY) ## bind 200 Jobs of 10 pods, each in its own PodGroup, with the loop and with the webhook
	JOBS=200 $(VENV)/bin/pytest tests/end_to_end/test_pod_groups.py -k jobs

test-webhook-gangs: $(READY) ## kill scheduler, webhook, leader and API server while 1,000 gangs are bound; about an hour
	SOAK=1 $(VENV)/bin/pytest -s tests/faults/test_webhook_gangs.py

fuzz: $(READY) ## send 1,000,000 mutated requests to one process, whose memory must stay level; takes half an hour on two cores
	SOAK_REQUESTS=1000000 $(VENV)/bin/pytest -s tests/faults/test_fuzz.py -k mutated

fuzz-answers: $(READY) ## check every answer about 10,000 random clusters; takes half an hour
	@$(VENV)/bin/python -m tests.answers $(ARGS)

test-group-incidents: $(READY) ## explain 1,000 incidents of pod groups whose cause is known; `make test-all` has 100
	@$(VENV)/bin/python -m tests.answers.group_incidents $(ARGS)

explore: $(READY) ## run the property tests and tests/conformance with fresh random cases
	HYPOTHESIS_PROFILE=exploring $(VENV)/bin/pytest -n 2 -m hypothesis
	CONFORMANCE_SEED=$(FRESH) EVENT_SEED=$(FRESH) RANKING_SEED=$(FRESH) $(VENV)/bin/pytest -n 2 tests/conformance

backlogs: $(READY) ## compare the loop with deciding each pod alone, on 1,000 backlogs; the stock plugins check the placements of 100
	BACKLOGS=1000 $(VENV)/bin/pytest -n 2 tests/scheduler/test_backlogs.py

test-injection: $(READY) ## raise an error at calls of every function of the loop, one in each run, and at all calls about one object; about six minutes
	INJECTIONS=all $(VENV)/bin/pytest -n 2 tests/scheduler/test_injected_errors.py tests/scheduler/test_poisoned_objects.py

test-scheduler-files: $(READY) ## compare the doctor's verdict on 1,000 generated files with kube-scheduler's; SEED=2 for others
	SCHEDULER_FILES=1000 $(VENV)/bin/pytest tests/policy/test_scheduler_files.py

test-redaction: $(READY) ## compare decisions about 500 generated clusters with those on their redacted files; SEED=2 for others
	REDACTED_CASES=500 $(VENV)/bin/pytest tests/model/test_redaction.py

test-controllers: $(READY) ## compare 300 drains, scale-downs and removals of nodes with a real control plane; about fifteen minutes
	@$(VENV)/bin/python -m tests.offline.controllers.live_operations $(ARGS)

test-plans: $(READY) ## compare `extender plan` with an exhaustive search on 1,000 small clusters; half an hour, or an hour beside other work
	PLANS=1000 $(VENV)/bin/pytest tests/offline/plan/test_truth.py

test-live-plans: $(READY) ## carry out 200 plans on a real API server with kube-scheduler, and compare every step; SEED=2 for others
	LIVE_PLANS=200 $(VENV)/bin/pytest -s tests/offline/plan/test_live_plans.py tests/offline/plan/test_live_scripts.py

test-groups: $(READY) ## compare 2,000 generated pod groups with the stock scheduler, step by step; about five minutes
	@$(VENV)/bin/python -m tests.group_conformance $(ARGS)

test-group-cases: $(READY) ## play Kubernetes' integration cases of pod groups on a real API server; CASES=text chooses; about ten minutes
	GROUP_CASES="$(CASES)" $(VENV)/bin/pytest tests/group_cases

test-gangs: $(READY) ## kill the loop while it binds 1,000 gangs, and restart the API server; takes about ten minutes
	GANGS=1000 $(VENV)/bin/pytest -s tests/faults/test_gangs.py

mutate: $(READY) ## change the code in 2,000 places, one at a time, and report where no test notices; takes up to three hours
	@$(VENV)/bin/python -m tests.mutation $(ARGS)

test-workflows: $(READY) ## check the workflows of .github with actionlint
	$(VENV)/bin/pytest tests/distribution/test_workflows.py

test-chart: $(READY) ## install, change, remove and reinstall every shape on a real API server; takes about twenty minutes
	CHART=all $(VENV)/bin/pytest tests/manifests tests/installation

test-distribution: $(READY) ## install the wheel into an empty environment with the newest packages that it asks for, and use it
	INSTALL=all $(VENV)/bin/pytest tests/distribution

test-upstream: $(READY) ## run Kubernetes' own end-to-end specs and write docs/conformance.md; takes hours
	@$(VENV)/bin/python -m tests.upstream $(ARGS)

test-versions: $(READY) ## run the end-to-end tests against Kubernetes 1.35 to 1.37, and 1.38 if it can be built, and write docs/versions.md
	@$(VENV)/bin/python -m tests.versions $(ARGS)

test-next: $(READY) ## compare 2,000 generated cases with the plugins of Kubernetes 1.38, and run the end-to-end tests under its kube-scheduler
	@$(VENV)/bin/python -m tests.versions.next $(ARGS)

lint: $(READY) ## ruff, mypy, vulture, and pip-audit, which may find no advisories in the index; `make audit` insists
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy examples
	$(VENV)/bin/vulture extender tests/unused.py --ignore-decorators '@*.command*,@*.group*,@*_validator*'
	$(VENV)/bin/python -m tests.advisories

bench: $(READY) ## time decisions beside the stock scheduler's plugins, the verbs and the loop; about five minutes
	@$(VENV)/bin/python -m tests.bench $(ARGS)

bench-cluster: $(READY) ## count pods bound a second on a real API server, by scheduler and backlog; about 40 minutes
	@$(VENV)/bin/python -m tests.bench.cluster $(ARGS)

bench-webhook: $(READY) ## time the webhook's calls under the real scheduler while pods come and go; about ten minutes
	@$(VENV)/bin/python -m tests.bench.webhook $(ARGS)

golden: $(READY) ## rewrite tests/cli/golden, the complete output of every command and page, for review
	REWRITE_GOLDEN=1 $(VENV)/bin/pytest -q tests/cli/test_golden.py

manifests: $(READY) ## render charts/podseat into manifests/
	$(VENV)/bin/python -m tests.manifests.rendering

$(DOCS): $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: $(DOCS) ## build docs/ into site/ by mkdocs; a link or an anchor that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

docs-reference: $(READY) ## rewrite docs/reference.md from the code
	$(VENV)/bin/python -m tests.docs.reference

$(BUILD): build-requirements.txt
	$(PYTHON) -m venv .venv-build
	.venv-build/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r build-requirements.txt
	@touch $@

wheel: $(BUILD) ## build the sdist, and from it the wheel, into dist/; PROJECT_URL=https://... makes the README's links absolute
	rm -rf $(DIST)
	.venv-build/bin/python -m build --no-isolation --outdir $(DIST)

dist: $(READY) wheel ## build all that is published: sdist, wheel, and the chart
	$(VENV)/bin/python -m tests.manifests.packaging $(DIST)

image-context: wheel ## put exactly what goes into the image into build/image
	rm -rf build/image && mkdir -p build/image
	cp Dockerfile constraints.txt LICENSE NOTICE $(DIST)/*.whl build/image

image: image-context ## build the image: make image IMAGE=registry.example.com/podseat:0.2.0; DOCKER=podman works too
	$(DOCKER) build --tag $(IMAGE) build/image

image-smoke: ## run an image that was built: make image-smoke IMAGE=...
	$(DOCKER) run --rm --read-only --tmpfs /tmp $(call lower,$(IMAGE)) --version
	$(DOCKER) run --rm --read-only --tmpfs /tmp $(call lower,$(IMAGE)) demo filter > /dev/null

sign: ## sign an image or a chart in a registry: make sign REFERENCE=...@sha256:...
	cosign sign --yes $(call lower,$(REFERENCE))

push-chart: ## push the chart dist/podseat-*.tgz as an OCI artefact, and sign it: make push-chart REGISTRY=...
	helm push $(wildcard $(DIST)/podseat-*.tgz) oci://$(call lower,$(REGISTRY)) 2>&1 | tee chart.log
	cosign sign --yes "$(call lower,$(REGISTRY))/podseat@$$(sed -n 's/^Digest: //p' chart.log)"

# PyInstaller, because the program has compiled modules, which a zipapp cannot import, and because a user of kubectl
# need not have Python, which pex and shiv expect.
binary: wheel ## build the command as one file, dist/podseat-OS-ARCH.tar.gz, with the Python that constraints.txt is for: PYTHON=python3.13
	$(PYTHON) -m venv --clear .venv-binary
	.venv-binary/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	.venv-binary/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r build-requirements.txt
	.venv-binary/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(DIST)/*.whl
	.venv-binary/bin/pyinstaller --onefile --name kubectl-podseat --log-level WARN --distpath build/binary --workpath build/pyinstaller --specpath build \
		--collect-submodules extender --collect-data extender --collect-all tzdata --copy-metadata podseat release/program.py
	build/binary/kubectl-podseat --cluster extender/offline/example.yaml > /dev/null
	cp LICENSE build/binary && tar -czf $(DIST)/podseat-$(PLATFORM).tar.gz -C build/binary kubectl-podseat LICENSE

krew: ## print the krew manifest of dist/podseat-*.tar.gz: make krew PROJECT_URL=https://... VERSION=v0.2.0
	@$(PYTHON) release/krew.py $(PROJECT_URL) $(VERSION:v%=%) $(sort $(wildcard $(DIST)/podseat-*-*.tar.gz))

release-notes: ## print what CHANGELOG.md says about a release; fails if it is not the newest: make release-notes VERSION=v0.2.0
	@$(PYTHON) release/notes.py $(VERSION:v%=%)

audit: $(READY) ## look for advisories about what the image installs; fails if a package could not be checked
	ADVISORIES=required $(VENV)/bin/python -m tests.advisories

clean: ## remove what setup and the builds made
	rm -rf $(VENV) .venv-build .venv-binary build dist *.egg-info site
