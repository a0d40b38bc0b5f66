"""Count the instructions of each conversion between two libraries.

    PYTHONPATH=tests python benches/pairs.py [PRODUCER ...] [--to CONSUMER ...]

For each pair of `tests/interop`: `dlx.convert(x, to)`, and the consumer's own import of
the same object. Takes half an hour; `results/pairs.json` keeps the counts.
"""

import argparse
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import dlx
from interop.cells import make, usual
from interop.consumers import CONSUMERS
from interop.making import late
from interop.matrix import MODULES, load
from interop.matrix import versions as installed
from interop.producers import PRODUCERS, Producer
from interop.ways import Consumer
from results import RESULTS, dump
from steps import counted, library, nothing

TARGET = RESULTS / "pairs.json"
SECONDS = 120

LEFT_OUT = {"tinygrad"}
"""Consumers that compile a kernel for each import, in millions of instructions."""


def convert(x: Any, to: Any) -> Callable[[], object]:
    """Return the call of dlx."""
    return lambda: dlx.convert(x, to)


def own(consumer: Consumer, x: Any) -> Callable[[], object]:
    """Return the consumer's own import."""
    return lambda: consumer.take(x)


def lookup(consumer: Consumer) -> Callable[[], object]:
    """Return what the tests do to find the consumer's module, which no user does."""
    if consumer.name == "numpy":
        return nothing
    return lambda: late(MODULES[consumer.name])


def pair(producer: Producer, consumer: Consumer) -> dict[str, int] | None:
    """Count one pair; None if the consumer cannot import the object itself."""
    x = make(producer, usual(producer, consumer), consumer.one_dimension)
    if consumer.to is None or not hasattr(x, "__dlpack__"):
        return None
    to = consumer.to()
    try:
        consumer.take(x)
        dlx.convert(x, to)
    except Exception:
        return None
    tool = library()
    ours, theirs = counted(convert(x, to), tool), counted(own(consumer, x), tool)
    base, found = counted(nothing, tool), counted(lookup(consumer), tool)
    return {
        "all": ours.all - base.all,
        "dlx": ours.dlx,
        "own": theirs.all - found.all,
    }


def forked(producer: Producer, consumer: Consumer) -> dict[str, int] | None:
    """Count one pair in a process of its own, as the tests do."""
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            signal.alarm(SECONDS)
            if "warp-lang" in (producer.name, consumer.name):
                late("warp").config.quiet = True
                late("warp").init()
            with os.fdopen(write, "w") as results:
                json.dump(pair(producer, consumer), results)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as results:
        text = results.read()
    os.waitpid(pid, 0)
    found: dict[str, int] | None = json.loads(text) if text else None
    return found


def main() -> None:
    """Count all pairs of installed libraries, or those of some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("producers", nargs="*", metavar="PRODUCER")
    parser.add_argument("--to", nargs="+", metavar="CONSUMER", help="only these")
    options = parser.parse_args()
    missing = load()
    gc.disable()
    # A step is two switches between this process and the traced one.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pairs: dict[str, dict[str, dict[str, int]]] = {}
    if TARGET.exists() and (options.producers or options.to):
        pairs = json.loads(TARGET.read_text())["pairs"]
    for producer in PRODUCERS:
        if producer.name in missing or "" in producer.refused:
            continue
        if options.producers and producer.name not in options.producers:
            continue
        for consumer in CONSUMERS:
            if consumer.name in {*missing, *LEFT_OUT, producer.name}:
                continue
            if options.to and consumer.name not in options.to:
                continue
            if count := forked(producer, consumer):
                pairs.setdefault(producer.name, {})[consumer.name] = count
                ratio = count["all"] / count["own"]
                print(producer.name, consumer.name, count, f"{ratio:.2f}", flush=True)
        dump({"unit": "instructions", "versions": installed(), "pairs": pairs}, TARGET)


if __name__ == "__main__":
    main()
