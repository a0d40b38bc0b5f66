# What is installed, and the commands of each day; tests/tasks.py has the others. `make demo` or `make test` alone sets
# everything up.

PYTHON ?= python3
FREE_THREADED ?= build/free_threaded/bin/python3.14t
VENV ?= .venv
BIN := $(VENV)/bin
# Python is installed as it lies here: a change of it installs nothing again.
ADD_ONS := packages/dlx-check packages/dlx-share
SOURCES := Cargo.toml Cargo.lock pyproject.toml $(ADD_ONS:=/pyproject.toml) packages/dlx-check/setup.py \
	packages/dlx-check/src/dlx_check/natives.c $(shell find src -name '*.rs')

# Where `make ci` tries the libraries: the newest Python that each of them has wheels for.
GATE := build/gate
GATE_PYTHON ?= $(shell PYTHONPATH=tests $(PYTHON) -m support.interpreters python3.13)
ifeq ($(VENV),$(GATE))
override PYTHON := $(GATE_PYTHON)
endif

# What `make nightly` runs, in this order.
NIGHTLY := wheels ports macos loom asan fuzz-rust faults lifetime sharing disturbed pins stacks

ONEAPI := build/oneapi
ENGINES := build/engines

DOCS := build/docs-venv
INSTALL = $(BIN)/uv pip install --quiet --no-cache --system-certs --python

# What pip and uv may install: the lock of this Python, where it has one. `make LOCK= TARGET` installs what is newest.
LOCK ?= $(wildcard $(CURDIR)/locks/$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt)
$(VENV)/% $(DOCS)/% $(ENGINES)/% $(ONEAPI)/%: export PIP_CONSTRAINT = $(LOCK)
$(VENV)/% $(DOCS)/% $(ENGINES)/% $(ONEAPI)/%: export UV_CONSTRAINT = $(LOCK)

FREE_THREADED_VENV := build/free_threaded_venv
FREE_THREADED_BIN := $(FREE_THREADED_VENV)/bin

export PIP_QUIET := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start thousands of processes: each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

TASKS = $(PYTHON) tests/tasks.py

.PHONY: help demo test check fmt lint types docs bench gpu wheel gate ci nightly clean

help:  ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 22
	@echo 'tests/tasks.py        say what else there is'

demo: $(VENV)/built  ## move tensors between the installed libraries, and prove that nothing was copied
	$(BIN)/python -m dlx demo

test:  ## run the tests
	$(TASKS) test-library test-streams test-truth test-conformance

check: lint types  ## what to run before each commit: lints, types and the quick tests
	$(TASKS) quick

fmt: $(VENV)/tools  ## format Rust and Python, and correct what a lint can correct
	cargo fmt --all
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lint: $(VENV)/tools  ## check format and lints of Rust, Python and the release workflow
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	PYO3_CONFIG_FILE=$(CURDIR)/tests/free_threaded/pyo3-config.txt \
		cargo clippy --locked --lib --target-dir target/free_threaded -- -D warnings
	cargo check --quiet --locked --manifest-path tests/loom/Cargo.toml --target-dir target/loom
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python tests/wheel/parts.py --check
	$(BIN)/zizmor --quiet --offline .github/workflows

types: $(VENV)/built $(VENV)/tools  ## check the stub against the extension, and all Python against the stub
	$(BIN)/python -m mypy.stubtest dlx._core --ignore-disjoint-bases
	$(BIN)/python -m mypy python $(ADD_ONS) tests benches examples patches
	$(BIN)/pyright examples
	$(BIN)/pyright tests/typed

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/built $(DOCS)/built  ## build the site of docs/ into build/site, and check its links and spelling
	PYTHONPATH=tests:benches $(BIN)/python -m docs.pages build/pages
	PYTHONPATH=python $(DOCS)/bin/mkdocs build --strict
	$(DOCS)/bin/python tests/docs/links.py build/site
	$(DOCS)/bin/codespell --ignore-words tests/docs/words.txt $$(git ls-files '*.md' '*.py' '*.pyi' '*.rs')

bench:  ## compare every path with what else there is, in every Python of PYTHONS
	$(TASKS) bench

gpu: $(VENV)/built $(VENV)/gpu  ## run the tests and benchmarks that need a CUDA GPU
	DLX_REQUIRE_GPU=1 $(BIN)/python -m pytest -rs tests/gpu
	$(BIN)/python benches/gpu/bench_gpu.py --json

wheel:  ## build the abi3 wheel for this processor, the add-ons and sdists, and try the wheels in fresh environments
	$(TASKS) wheel

gate: $(VENV)/built  ## install every library that has wheels, in build/gate
	$(MAKE) VENV=$(GATE) $(GATE)/built
	$(MAKE) VENV=$(GATE) $(GATE)/interop

ci:  ## what has to pass on a machine with every library: lints, types, the site, `make test`, then what takes long
	$(MAKE) lint types docs test
	$(PYTHON) tests/ci.py

nightly: $(VENV)/tools  ## run what takes too long for `make ci`, and write docs/nightly.md
	$(BIN)/python tests/nightly.py $(NIGHTLY)

clean:  ## remove what was built
	rm -rf $(VENV) build dist target

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dlx needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)

ifneq ($(VENV),$(GATE))
$(VENV)/built: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python -m pip install "maturin>=1.12,<2"
	$(BIN)/maturin develop --quiet --release --locked --extras test
	$(BIN)/python -m pip install --no-deps $(ADD_ONS:%=--editable %)
	touch $@
else
.venv/built:
	$(MAKE) VENV=.venv $@

# The extension that the oldest Python built, as in the wheels.
$(GATE)/built: $(GATE)/bin/python .venv/built
	rm -rf build/gate-wheel
	.venv/bin/maturin build --quiet --release --locked --interpreter .venv/bin/python --out build/gate-wheel
	$(BIN)/python -m pip install --force-reinstall --no-deps build/gate-wheel/*.whl
	$(BIN)/python -m pip install "dlx[test]"
	$(BIN)/python -m pip install --no-deps $(ADD_ONS:%=--editable %)
	touch $@
endif

build/free_threaded/bin/python3.14t:
	tests/free_threaded/interpreter

$(FREE_THREADED_VENV)/built: $(FREE_THREADED) $(SOURCES)
	$(FREE_THREADED) -m venv $(FREE_THREADED_VENV)
	$(FREE_THREADED_BIN)/python -m pip install "maturin>=1.12,<2"
	rm -rf build/free_threaded_wheel
	VIRTUAL_ENV=$(FREE_THREADED_VENV) $(FREE_THREADED_BIN)/maturin build --quiet --release --locked \
		--interpreter $(FREE_THREADED_BIN)/python --out build/free_threaded_wheel
	$(FREE_THREADED_BIN)/python -m pip install "$$(echo build/free_threaded_wheel/*.whl)[test]"
	$(FREE_THREADED_BIN)/python -m pip install --no-deps $(ADD_ONS:%=--editable %)
	touch $@

# By uv, which unpacks while it downloads: pip keeps 3 GB of archives beside the 6 GB that they become.
$(VENV)/bin/uv: $(VENV)/bin/python
	$(BIN)/python -m pip install "uv>=0.13"
	touch $@

$(VENV)/tools: $(VENV)/bin/uv pyproject.toml
	$(INSTALL) $(BIN)/python --group tools
	touch $@

$(DOCS)/built: $(VENV)/bin/uv pyproject.toml
	$(PYTHON) -m venv --clear --without-pip $(DOCS)
	$(INSTALL) $(DOCS)/bin/python --group docs
	touch $@

$(VENV)/heavy: $(VENV)/bin/uv pyproject.toml
	$(INSTALL) $(BIN)/python --group libraries
	touch $@

$(VENV)/interop: $(VENV)/heavy
	$(INSTALL) $(BIN)/python --group interop
	touch $@

# oneAPI brings a BLAS, an OpenMP and a TBB of its own, so it has its own environment, which sees the other's packages.
$(ONEAPI)/built: $(VENV)/heavy
	$(BIN)/python -m venv --clear --without-pip $(ONEAPI)
	$(INSTALL) $(ONEAPI)/bin/python --group oneapi
	$(BIN)/python tests/oneapi/beside.py $(ONEAPI)/bin/python
	touch $@

# Engines bring versions of their own of what the tests have, so they have their own environment, too.
$(ENGINES)/built: $(VENV)/heavy
	$(BIN)/python -m venv --clear --without-pip $(ENGINES)
	$(INSTALL) $(ENGINES)/bin/python --group engines
	$(BIN)/python tests/oneapi/beside.py $(ENGINES)/bin/python
	touch $@

$(VENV)/gpu: $(VENV)/bin/uv pyproject.toml
	$(INSTALL) $(BIN)/python --group gpu
	touch $@
