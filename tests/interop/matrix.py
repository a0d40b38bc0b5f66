"""Run every pair in its own process, forked from one that imported all libraries."""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import sys
import tempfile
import traceback
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from .cells import DLX, Cell, exchanged, imported
from .consumers import CONSUMERS
from .producers import PRODUCERS

SECONDS = 60.0
"""The time limit of a pair."""
ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "1",
    "GLOG_minloglevel": "3",
    "DEV": "PYTHON",  # tinygrad's CPU needs clang
}
MODULES = {
    "numpy": "numpy",
    "torch": "torch",
    "jax": "jax",
    "paddlepaddle": "paddle",
    "tensorflow-cpu": "tensorflow",
    "mlx": "mlx.core",
    "warp-lang": "warp",
    "apache-tvm-ffi": "tvm_ffi",
    "cuda-core": "cuda.core.utils",
    "array-api-strict": "array_api_strict",
    "onnxruntime": "onnxruntime",
    "pyarrow": "pyarrow",
    "nanoarrow": "nanoarrow",
    "arro3-core": "arro3.core",
    "awkward": "awkward",
    "dask": "dask.array",
    "ndonnx": "ndonnx",
    "tinygrad": "tinygrad",
}
"""The module of each library, in the order of import. TensorFlow comes after Paddle,
which otherwise ends the process."""


class Pair(NamedTuple):
    """The results of two libraries."""

    producer: str
    consumer: str
    cells: list[Cell]


def load() -> dict[str, str]:
    """Import all libraries; return the errors of those that cannot be imported."""
    os.environ.update(ENVIRONMENT)
    missing = {}
    for name, module in MODULES.items():
        try:
            importlib.import_module(module)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    gc.collect()
    gc.freeze()  # Spares each pair the collection of their objects.
    return missing


def versions() -> dict[str, str]:
    """Return the version of every installed library."""
    found = {}
    for name in MODULES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def cells_of(producer: str, consumer: str) -> Iterator[Cell]:
    """Run one pair in this process."""
    giving = next(each for each in PRODUCERS if each.name == producer)
    if consumer == DLX:
        return imported(giving)
    return exchanged(giving, next(each for each in CONSUMERS if each.name == consumer))


def child(producer: str, consumer: str, results: int) -> None:
    """Write the cells of a pair to a file, each before and after it runs."""
    if "warp-lang" in (producer, consumer):
        warp = importlib.import_module("warp")
        warp.config.quiet = True
        warp.init()
    for cell in cells_of(producer, consumer):
        os.write(results, json.dumps(cell).encode() + b"\n")


def run_pair(producer: str, consumer: str) -> Pair:
    """Run one pair in a child; a crash is the outcome of the cell that was running."""
    with tempfile.TemporaryFile() as results, tempfile.TemporaryFile() as errors:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(errors.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                child(producer, consumer, results.fileno())
                os._exit(0)
            except BaseException:
                os.write(2, traceback.format_exc().encode())
                os._exit(1)
        ended = how_it_ended(pid)
        results.seek(0)
        cells = [Cell(*json.loads(line)) for line in results]
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    done = [cell for cell in cells if cell.expected or cell.outcome]
    if ended:
        way, at = cells[-1][:2] if cells else ("", "import")
        done.append(Cell(way, at, "an outcome", ": ".join([ended, *said])))
    return Pair(producer, consumer, done)


def how_it_ended(pid: int) -> str:
    """Wait for a child; return how it failed, or ""."""
    handle = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([handle], [], [], SECONDS)
        if not ready:
            os.kill(pid, 9)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(handle)
    if not ready:
        return f"nothing after {SECONDS:g} s"
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"killed by signal {-code}"
    return f"exit code {code}" if code else ""


def run(missing: dict[str, str]) -> Iterator[Pair]:
    """Run all pairs of installed libraries."""
    for producer in PRODUCERS:
        if producer.name in missing:
            continue
        refuses_all = "" in producer.refused
        for consumer in [DLX, *(each.name for each in CONSUMERS)]:
            if consumer in missing or (refuses_all and consumer != DLX):
                continue
            yield run_pair(producer.name, consumer)
