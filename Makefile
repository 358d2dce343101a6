# Needs make and Python 3.10 to 3.13, nothing else: every target first sets up .venv by itself, and again only when the lock or
# pyproject.toml has changed. Another Python for it: make setup PYTHON=python3.12

PYTHON ?= python3
RUNS ?= runs
ARGS ?=
# A file's tests stay together: what they train is trained once. Slow files come first (conftest.py). A process takes some 2 GB.
# One that dies ends the tests with an error: pytest-xdist may wait for ever where it gives the rest of its files to others.
ALL := --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder --max-worker-restart=0
BIN := .venv/bin
READY := .venv/ready
IDENTITY := -c 'import os, sys; print(sys.version_info[:2], os.getcwd())'
ASKED := $(if $(filter file,$(origin PYTHON)),$(BIN)/python,$(PYTHON))

# An environment of another Python than the one asked for, of a folder since moved, or only half made does not count as ready.
$(shell exec 2>/dev/null; $(BIN)/python -c '' && [ "$$($(ASKED) $(IDENTITY))" = "$$(cat $(READY))" ] || rm -f $(READY))

.PHONY: help setup demo test test-all test-fast lint docs cuda lock wheel clean

help:
	@echo "make demo    trains on 1,797 handwritten digits, and says where the report is"
	@echo "make test    runs the tests of core and domains, a process for each core up to four; ARGS='-k resume' chooses, in one process"
	@echo "make test-all  those of the extensions, too"
	@echo "make test-fast  the tests that train next to nothing: about two minutes on two cores"
	@echo "make lint    style and types"
	@echo "make docs    writes docs/settings/ and docs/experiments.md from the schema and configs/"
	@echo "make cuda    compiles every shipped experiment's step for NVIDIA cards, which need not be here, and compares the table; 40 minutes"
	@echo "make lock    writes requirements.lock for pyproject.toml; UPGRADE=--upgrade takes the newest versions"
	@echo "make wheel   builds dist/*.whl"
	@echo "make clean   removes .venv, build and dist"

setup: $(READY)

demo: $(READY)
	@$(BIN)/python -m vision.train vision/digits --runs "$(RUNS)"

test: $(READY)
	@$(BIN)/python -m pytest $(or $(ARGS),$(ALL))

test-all: $(READY)
	@$(BIN)/python -m pytest $(ALL) tests extensions

# What it shows as slow belongs among the tests marked `slow`.
test-fast: $(READY)
	@$(BIN)/python -m pytest $(or $(ARGS),$(ALL)) -m "not slow" --durations=5

lint: $(READY)
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m mypy

docs: $(READY)
	@$(BIN)/python -m pipelines.config.reference docs

# XLA's CUDA compiler comes with jax, in an environment of its own (1.2 GB). ARGS=--write keeps what came out in the table; NAMES="vision/digits"
# chooses.
cuda: $(READY)
	@[ -x build/cuda/bin/python ] || $(PYTHON) -m venv build/cuda
	@build/cuda/bin/python -m pip install --quiet jax==0.10.2 jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2 'nvidia-cuda-nvcc-cu12>=12.9,<13'
	@rm -rf build/cuda-steps
	@$(BIN)/python -m benchmarks.cuda lower build/cuda-steps $(NAMES)
	@build/cuda/bin/python -m benchmarks.cuda compile build/cuda-steps $(NAMES)
	@$(BIN)/python -m benchmarks.cuda compare build/cuda-steps $(NAMES) $(ARGS)

# In an environment of its own, so that a lock that cannot be installed can be fixed. Versions stay where pyproject.toml allows them.
lock:
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet 'uv>=0.8,<1'
	@UV_CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/python -m uv pip compile pyproject.toml --quiet --universal --python-version 3.10 \
		--extra dev --no-emit-index-url --no-annotate $(UPGRADE) --output-file requirements.lock

wheel: $(READY)
	@$(BIN)/python -m build --wheel --no-isolation

clean:
	rm -rf .venv build dist

# The mark goes first and comes back last: an installation that was interrupted leaves none, and is begun anew.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 13) else \
		"Python 3.10 to 3.13 is needed, and $(PYTHON) is %d.%d; name another: make PYTHON=python3.12" % v)'
	@echo "setting up .venv from requirements.lock (once; some minutes)"
	@[ -f $(READY) ] || $(PYTHON) -m venv --clear .venv
	@rm -f $(READY)
	@[ -t 1 ] || quiet=--quiet; \
		$(BIN)/python -m pip install $$quiet --disable-pip-version-check --requirement requirements.lock && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python $(IDENTITY) > $(READY)
