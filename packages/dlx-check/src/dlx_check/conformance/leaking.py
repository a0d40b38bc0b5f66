"""Whether a target leaks what it exported: the system sees that memory stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlx_check.conformance import structs
from dlx_check.conformance.experiments import Lab, Untestable, fitting, settle
from dlx_check.conformance.probe import Tensor
from dlx_check.conformance.reading import first_of, readable
from dlx_check.conformance.records import Raised, Record

__all__ = ["LARGE", "Keywords", "Returned", "dlpack", "released", "spoken"]

Keywords = tuple[tuple[str, Any], ...]

LARGE = 10 << 20
"""Elements of a tensor whose memory an allocator gives back to the system."""
_SIZE = 4 * LARGE
"""Its bytes; glibc maps what has more than 32 MiB by itself."""
_ROUNDS = 3


def dlpack(x: Any, keywords: Keywords) -> Any:
    """Call the method of a tensor."""
    return x.__dlpack__(**dict(keywords))


def spoken(profiles: str, keywords: Keywords) -> Keywords:
    """Leave `max_version` out where it is not known: consumers do so, too (R32)."""
    if "array-api" in profiles.split():
        return keywords
    return tuple(each for each in keywords if each[0] != "max_version")


_released: dict[tuple[str, Keywords], bool] = {}


def released(lab: Lab, keywords: Keywords) -> bool:
    """Return whether memory goes back to the system when its capsule is dropped.

    It is tried once for each way of asking, because the tensor is large.
    """
    asked = lab.target.name, keywords
    if asked not in _released:
        _released[asked] = _given_back(lab, keywords)
    return _released[asked]


def _given_back(lab: Lab, keywords: Keywords) -> bool:
    x = lab.make(np.zeros((LARGE,), np.float32))
    answer = lab.ask(dlpack, x, keywords)
    name = structs.capsule_name(answer.value) or ""
    managed = structs.managed_in(answer.value, name)
    where = first_of(managed.dl_tensor)
    answer.value = x = None
    settle(lambda: not readable(where))
    return not readable(where)


@dataclass(frozen=True)
class Returned:
    """The target exports large tensors, of which nothing is kept.

    What stays in each of several rounds is a leak: a pool of memory grows once.
    """

    keywords: Keywords = ()

    def run(self, lab: Lab) -> Record:
        """Do it; with `copy=True` one tensor is exported again and again."""
        keywords = spoken(lab.target.profiles, self.keywords)
        # Of a few, the first may load what it needs, and any may be interrupted.
        if min(_seconds(lab) for _ in range(4)) > lab.target.timeout / 2:
            raise Untestable("not-observable: `make` is too slow for large tensors")
        source = _zeros(lab, LARGE) if dict(keywords).get("copy") else None

        def export() -> Raised | None:
            x = _zeros(lab, LARGE) if source is None else source
            lab.step("exports a large tensor")
            return lab.ask(dlpack, x, keywords).raised

        if raised := export():
            return Record(raised=raised)
        kept = _grows(export)
        if kept and source is None and _grows(lambda: _zeros(lab, LARGE)):
            raise Untestable("not-observable: what `make` returns keeps its memory")
        return Record(notes={"leaks": kept})


def _zeros(lab: Lab, count: int) -> Any:
    lab.step("makes a large tensor")
    shape = fitting(Tensor((count,)), lab.target.dimensions).shape
    return lab.make(np.zeros(shape, np.float32))


def _seconds(lab: Lab) -> float:
    """Return how long a large tensor would take, by a smaller one."""
    began = time.monotonic()
    _zeros(lab, LARGE // 64)
    return (time.monotonic() - began) * 64


def _grows(call: Callable[[], object]) -> bool:
    """Return whether the process has more memory after each of several calls."""
    for _ in range(_ROUNDS):
        enough = _mapped() + _SIZE // 2
        call()
        settle(lambda enough=enough: _mapped() < enough)  # type: ignore[misc]
        if _mapped() < enough:
            return False
    return True


def _mapped() -> int:
    """Return how many bytes the process has mapped, also those that nobody touched."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
    except OSError:
        raise Untestable("not-observable: the system tells no sizes") from None
    return pages * os.sysconf("SC_PAGE_SIZE")
