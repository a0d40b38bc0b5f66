# The only list of commands. `make demo` or `make test` alone sets everything up.

PYTHON ?= python3
PYTHONS ?= python3.11 python3.12 python3.13
FREE_THREADED ?= build/free_threaded/bin/python3.14t
BENCH ?= --json
VENV ?= .venv
BIN := $(VENV)/bin
# Each process of pytest takes whole files, where nothing else is said; 0 is pytest's own process.
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
PYTEST := $(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile
# Python is installed as it lies here: a change of it installs nothing again.
ADD_ONS := packages/dlx-check packages/dlx-share
SOURCES := Cargo.toml Cargo.lock pyproject.toml $(ADD_ONS:=/pyproject.toml) packages/dlx-check/setup.py \
	packages/dlx-check/src/dlx_check/natives.c $(shell find src -name '*.rs')

# Where `make ci` tries the libraries: the newest Python that each of them has wheels for.
GATE := build/gate
GATE_PYTHON ?= $(shell PYTHONPATH=tests $(PYTHON) -m support.interpreters python3.13)
ON_GATE = $(MAKE) VENV=$(GATE) PYTHON=$(GATE_PYTHON)

# Tests that more libraries than those of `make test` have a part in.
WITH_LIBRARIES := $(addprefix tests/,types tensor import adapters exchange classes lend convert) \
	$(patsubst %,tests/house/test_%.py,examples interop readme) packages/dlx-*/tests/test_*.py \
	$(patsubst %,tests/process/test_%.py,cycles depth foreign_calls_failing lifetime races threads)

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

.PHONY: help demo test quick check fmt heavy lint types bench scaling instructions pairs summary performance gpu wheel \
	wheel-abi3t wheel-native wheels ports macos notices nightly ci ci-long ci-oldest ci-gate ci-beside ci-libraries gate \
	test-library test-streams test-truth test-conformance lifetime interop property locks pins stacks interop-report \
	conformance-report fuzz fuzz-rust faults loom \
	asan tsan free-threaded free-threaded-races drivers oneapi engines sharing disturbed processes gpu-kit docs timeline clean

help:  ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 22

demo: $(VENV)/built  ## move tensors between the installed libraries, and prove that nothing was copied
	$(BIN)/python -m dlx demo

test: test-library test-streams test-truth test-conformance  ## run the tests

test-library: $(VENV)/built
	cargo test --quiet --locked
	cargo build --quiet --locked --package driver_sim
	$(PYTEST)

test-streams: $(VENV)/built
	cargo build --quiet --locked --package driver_sim
	$(PYTEST) --dist=worksteal tests/streams
	$(BIN)/python -m pytest --collect-only --quiet tests/gpu >/dev/null

test-truth: $(VENV)/built
	$(PYTEST) tests/truth

test-conformance: $(VENV)/built
	$(PYTEST) packages/dlx-check/tests/conformance

quick: $(VENV)/built  ## run the tests but for the slow ones
	cargo test --quiet --locked
	cargo build --quiet --locked --package driver_sim
	$(PYTEST) -m "not slow"

check: lint types quick  ## what to run before each commit: lints, types and the quick tests

fmt: $(VENV)/tools  ## format Rust and Python, and correct what a lint can correct
	cargo fmt --all
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

heavy: $(VENV)/built $(VENV)/heavy  ## install torch, JAX and cuda.core (6 GB), without which `make test` skips tests

fuzz: $(VENV)/built  ## look for wrong numbers, FUZZ_SECONDS=600 SEED=1 LIBRARIES=torch,numpy
	PYTHONPATH=tests $(BIN)/python -m truth.run

fuzz-rust: $(VENV)/bin/python  ## fuzz the parsers with coverage, FUZZ_SECONDS=60 for each target, TARGET=managed for one
	tests/fuzz/run

faults: $(VENV)/built  ## let each allocation fail once
	DLX_FAULTS_EVERY=1 $(BIN)/python -m pytest tests/process/test_faults.py

loom:  ## run the lock-free code in every interleaving, also with planted bugs
	tests/loom/run

asan: $(VENV)/built  ## run tests of the metadata and the buffers under AddressSanitizer
	tests/sanitizers/asan $(BIN)/python

tsan: $(VENV)/built  ## run tests of threads under ThreadSanitizer
	tests/sanitizers/tsan $(BIN)/python

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
	$(BIN)/python -m mypy python $(ADD_ONS) tests benches examples
	$(BIN)/pyright examples
	$(BIN)/pyright tests/typed

bench: $(VENV)/built $(VENV)/bench  ## compare every path with what else there is, in every Python of PYTHONS
	$(BIN)/maturin build --release --locked --quiet --out build/wheel
	$(BIN)/python benches/every_python.py build/wheel $(PYTHONS) -- $(BENCH)

scaling: $(VENV)/built $(VENV)/heavy  ## what more arguments, dimensions, types, threads, tensors and bytes cost
	$(BIN)/python benches/scaling.py --json

instructions: $(VENV)/built $(VENV)/heavy  ## count the instructions of the hot paths; CI compares with them
	$(BIN)/python benches/instructions.py

pairs: $(VENV)/built $(VENV)/interop  ## count the instructions of conversions between every two libraries
	PYTHONPATH=tests $(BIN)/python benches/pairs.py

summary: $(VENV)/bin/python  ## make benches/results/summary.json from what was measured into build/results
	$(BIN)/python benches/summary.py

performance: $(VENV)/bin/python  ## write the table and the picture of docs/performance.md from benches/results
	$(BIN)/python benches/report.py

gpu: $(VENV)/built $(VENV)/gpu  ## run the tests and benchmarks that need a CUDA GPU
	DLX_REQUIRE_GPU=1 $(BIN)/python -m pytest -rs tests/gpu
	$(BIN)/python benches/gpu/bench_gpu.py --json

gpu-kit: $(VENV)/tools  ## make build/gpu-kit, which runs on a GPU machine without a network
	rm -rf build/gpu-kit-wheel
	$(BIN)/maturin build --release --locked --quiet --out build/gpu-kit-wheel
	$(BIN)/python tests/gpu_kit/build.py build/gpu-kit-wheel/*.whl $(PYTHONS)

wheel: $(VENV)/tools  ## build the abi3 wheel for this processor, the add-ons and sdists, and try the wheels in fresh environments
	PYTHONPATH=tests $(BIN)/python tests/wheel/manylinux.py dist $(shell uname -m)
	PYTHONPATH=tests $(BIN)/python tests/wheel/check.py dist $(PYTHONS)

wheel-abi3t: $(VENV)/tools  ## the same for CPython 3.15 and later with and without a GIL; nothing installs it here
	PYTHONPATH=tests $(BIN)/python tests/wheel/manylinux.py dist abi3t-$(shell uname -m)
	PYTHONPATH=tests $(BIN)/python tests/wheel/check.py dist

wheel-native: $(VENV)/tools  ## build the wheel with the machine's own libraries, as on macOS and Windows
	rm -rf dist
	$(BIN)/maturin build --release --strip --locked --out dist
	for each in $(ADD_ONS); do $(BIN)/python -m build --quiet --outdir dist $$each || exit; done

wheels: $(VENV)/tools  ## build every wheel, and try them on systems from Debian, too, under emulation if need be
	PYTHONPATH=tests $(BIN)/python tests/wheel/manylinux.py dist x86_64 abi3t-x86_64 aarch64
	PYTHONPATH=tests $(BIN)/python tests/wheel/check.py --everywhere dist $(PYTHONS)

ports: $(VENV)/tools  ## check that dlx compiles for Windows, macOS and musl, which run none of it here
	PYTHONPATH=tests $(BIN)/python tests/wheel/ports.py

macos: $(VENV)/tools  ## build a wheel for macOS, which nothing here can load, in build/macos
	PYTHONPATH=tests $(BIN)/python tests/wheel/macos.py build/macos

notices: $(VENV)/bin/python  ## write docs/third_party from what cargo says is linked
	$(BIN)/python tests/wheel/parts.py

nightly: $(VENV)/tools  ## run what takes too long for `make ci`, and write docs/nightly.md
	$(BIN)/python tests/nightly.py $(NIGHTLY)

sharing: $(VENV)/built  ## 10,000 rounds of shared memory with kills, and 10,000 with interrupts
	PYTHONPATH=tests $(BIN)/python -m support.killed_rounds 10000 1
	PYTHONPATH=tests $(BIN)/python -m support.interrupted_rounds 10000 1

disturbed: $(VENV)/built  ## every target that disturbs `dlx check`, and its interrupts
	DLX_DISTURBED_EVERY=1 $(BIN)/python -m pytest packages/dlx-check/tests/conformance/test_disturbed.py \
		packages/dlx-check/tests/conformance/test_interrupts.py

lifetime: $(VENV)/built $(VENV)/heavy  ## the lifetime tests: a million rounds, without PyO3's pool, under valgrind
	tests/lifetime/run $(BIN)/python

# What is written down of libraries is of the gate's.
ifneq ($(VENV),$(GATE))
interop property interop-report conformance-report:
	$(ON_GATE) $@
else
interop: $(VENV)/built $(VENV)/interop  ## every library to every other, with the real ones, compared with tests/interop/pairs.json
	$(BIN)/python -m pytest tests/interop tests/truth/test_corpus.py

property: $(VENV)/built $(VENV)/interop  ## compare what dlx says of every library's tensors with what the library says
	$(BIN)/python -m pytest tests/property

interop-report: $(VENV)/built $(VENV)/interop  ## write what every library does to every other
	PYTHONPATH=tests $(BIN)/python -m interop.report

conformance-report: $(VENV)/built $(VENV)/interop  ## write what the suite finds in every library
	PYTHONPATH=tests $(BIN)/python -m interop.conformance
endif

locks: $(VENV)/heavy  ## move the locks to what is newest, and print library, pin, newest and age
	$(BIN)/python tests/locks.py

pins: $(VENV)/heavy  ## print the same and change nothing; fails for a pin of over 60 days that is not the newest
	$(BIN)/python tests/locks.py --check

stacks: $(VENV)/heavy  ## run the suites about libraries with the newest, pre-releases, the lower bounds, and on other Pythons
	$(BIN)/maturin build --release --locked --quiet --out build/stacks-wheel
	[ -x build/python3.14/bin/python3.14 ] || tests/free_threaded/interpreter 3.14 sid gil
	PYTHONPATH=tests $(BIN)/python tests/stacks.py build/stacks-wheel/*.whl $(STACKS)

drivers: $(VENV)/built  ## try NVIDIA's and AMD's own libraries, from Debian's packages, without a GPU
	PYTHONPATH=tests $(BIN)/python -m drivers.fetch
	$(BIN)/python -m pytest tests/drivers

oneapi: $(VENV)/built $(ONEAPI)/built  ## exchange arrays with dpctl and dpnp, on Intel's OpenCL for the CPU
	DLX_REQUIRE_HEAVY=1 $(ONEAPI)/bin/python -m pytest tests/oneapi

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/built $(DOCS)/built  ## build the site of docs/ into build/site, and check its links and spelling
	PYTHONPATH=tests:benches $(BIN)/python -m docs.pages build/pages
	PYTHONPATH=python $(DOCS)/bin/mkdocs build --strict
	$(DOCS)/bin/python tests/docs/links.py build/site
	$(DOCS)/bin/codespell --ignore-words tests/docs/words.txt $$(git ls-files '*.md' '*.py' '*.pyi' '*.rs')

timeline: $(VENV)/built  ## draw the picture of docs/streams.md
	PYTHONPATH=tests $(BIN)/python -m docs.timeline

engines: $(VENV)/built $(ENGINES)/built  ## send tensors through dask, Ray, MPI, loky and multiprocessing
	DLX_REQUIRE_HEAVY=1 $(ENGINES)/bin/python -m pytest packages/dlx-share/tests/engines

processes: $(VENV)/built $(ENGINES)/built  ## compare what passes tensors between processes, with and without dlx
	$(ENGINES)/bin/python benches/processes.py --json

free-threaded: free-threaded-races  ## build for a Python without a GIL, run the tests there, and measure threads
	$(FREE_THREADED_BIN)/python -m pytest
	$(FREE_THREADED_BIN)/python benches/free_threads.py --json

free-threaded-races: $(FREE_THREADED_VENV)/built  ## of these tests, those of threads alone
	$(FREE_THREADED_BIN)/python -m pytest tests/process/test_races.py tests/process/test_races_types.py tests/process/test_threads.py

ci:  ## what has to pass on a machine with every library: `make check`, the site, then what takes long
	$(MAKE) check docs
	$(MAKE) ci-long

# Two targets at a time, one on each core.
ci-long: export DLX_REQUIRE_HEAVY = 1
ci-long: export DLX_EVERY = 1
ci-long: export FUZZ_SECONDS = 60
ci-long: export FUZZ_ROUNDS = 16
ci-long: gate
	$(MAKE) $(VENV)/heavy $(VENV)/tools
	$(MAKE) --jobs=2 JOBS=0 ci-gate ci-beside ci-libraries ci-oldest fuzz-rust

gate: $(VENV)/built
	$(ON_GATE) $(GATE)/built $(GATE)/interop

# Tests that libraries have a part in; `make test` has run the rest on the oldest Python. One process of pytest-xdist
# gives the order that it has there.
ci-gate:
	cargo build --quiet --locked --package driver_sim
	$(GATE)/bin/python -m pytest --numprocesses=1 --dist=loadfile $(WITH_LIBRARIES)

ci-libraries:
	$(ON_GATE) test-conformance test-truth interop property engines oneapi

# The oldest Python: dlx's own tests ran there in `make test`, these are about NumPy, torch, tvm-ffi and their tables.
ci-oldest: export DLX_REQUIRE_HEAVY = 0
ci-oldest: $(VENV)/built $(VENV)/heavy
	$(PYTEST) tests/adapters tests/exchange

# What takes long and needs few libraries; `make nightly` runs ten times the rounds.
ci-beside: export LIFETIME_ROUNDS = 100000
ci-beside: $(VENV)/built
	$(MAKE) wheel
	$(MAKE) lifetime
	$(BIN)/python benches/instructions.py --check
	$(MAKE) drivers
	$(MAKE) test-streams

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

$(VENV)/bench: $(VENV)/heavy pyproject.toml
	$(BIN)/python -m pip install "nanobind>=3.1"
	touch $@

$(VENV)/gpu: $(VENV)/bin/uv pyproject.toml
	$(INSTALL) $(BIN)/python --group gpu
	touch $@
