"""One trace: what began while it was on and has not ended."""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import time
import warnings
from collections import defaultdict
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count
from math import prod
from pathlib import Path
from threading import RLock, get_ident
from typing import IO, Any, Literal, Self
from weakref import ref

from dlx_check.abi import DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLTensor
from dlx_check.core import dlx
from dlx_check.inspection.names import device_name, dtype_name
from dlx_check.tracing.callers import callers, calling_library, module_of
from dlx_check.tracing.records import Held, size

__all__ = ["Trace", "active", "is_free"]

_device_name = lru_cache(maxsize=64)(device_name)
_dtype_name = lru_cache(maxsize=64)(dtype_name)

Place = tuple[str, int]

# A finalizer that the garbage collector runs inside of a begin may import a tensor.
_lock = RLock()
_numbers = count()
# Those that somebody has: a trace that an interrupt has lost is on no more.
_known: dict[int, ref[Trace]] = {}
# Ends that a trace may not have noted: a signal may interrupt the noting.
_ends: list[tuple[int, int, int]] = []

os.register_at_fork(
    before=_lock.acquire,
    after_in_parent=_lock.release,
    after_in_child=_lock.release,
)


def is_free() -> bool:
    """Whether no other thread notes something, or none for long; asked at exit alone.

    A finalizer that the collector runs there may wait for ever.
    """
    if not _lock.acquire(timeout=5):
        return False
    _lock.release()
    return True


def active() -> list[Trace]:
    """Return the traces that are on, the first to begin first."""
    with _lock:
        _take_ends()
        return _on()


def _all() -> list[Trace]:
    return [trace for known in list(_known.values()) if (trace := known())]


def _on() -> list[Trace]:
    return [trace for trace in _all() if trace._is_on]


class Trace:
    """What was imported and exported through dlx while this was on.

    Printed, it is a report of what is still held.
    """

    def __init__(self, frames: int, events: str | None) -> None:
        """Make a trace that is not on yet."""
        if frames < 1:
            raise ValueError(f"frames is {frames}; expected at least 1")
        self.frames = frames
        """How many Python frames each import and export remembers."""
        self.imports = 0
        """How many imports began."""
        self.exports = 0
        """How many exports began."""
        self.error: Exception | None = None
        """What ended the trace before its block, as a full disk under ``events``."""
        self._is_on = False
        number = next(_numbers)
        _known[number] = ref(self, partial(_known.pop, number))
        self._path = events
        self._events: IO[bytes] | None = None
        self._held: dict[int, Held] = {}
        self._imports: dict[Place, int] = {}
        # By number, of all but exports of imports that are held: they show that memory.
        self._sizes: dict[Place, dict[int, int]] = {}
        self._total = self._peak = 0

    def __enter__(self) -> Self:
        """Trace from now on."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise RuntimeError(
                "dlx.trace needs a GIL: without one, another thread may see a tensor "
                "before its owner is noted"
            )
        with _lock:
            if self._is_on:
                raise RuntimeError("this trace is on already")
            if self._path is not None:
                self._events = Path(self._path).open("ab", buffering=0)
            _take_ends()
            self.error = None
            self._is_on = True
            _take_ends()
        return self

    def __exit__(self, *exception: object) -> None:
        """Trace no more; what is held stays listed until it ends.

        Warns if the trace ended before, with the `error` that ended it.
        """
        self._is_on = False
        with _lock:
            _take_ends()
            self._close()
        if self.error is not None:
            message = f"the trace ended before its block: {self.error!r}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _close(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def _fail(self, error: Exception) -> None:
        """End the trace because of an error of its own."""
        self._is_on = False
        self.error = error.with_traceback(None)
        self._close()

    @property
    def live(self) -> list[Held]:
        """What began while this trace was on and is held now, the oldest first."""
        with _lock:
            _take_ends()
            return list(self._held.values())

    @property
    def nbytes(self) -> int:
        """Bytes held now; memory that several hold counts once."""
        with _lock:
            _take_ends()
            return self._total

    @property
    def peak(self) -> int:
        """The most bytes that were held at once."""
        return self._peak

    def by(
        self, what: Literal["producer", "consumer", "line"]
    ) -> dict[str, tuple[int, int]]:
        """Return how many are held and their bytes, by producer, consumer or line."""
        if what not in ("producer", "consumer", "line"):
            raise ValueError(
                f"{what!r} is nothing to group by; expected 'producer', 'consumer' or "
                "'line'"
            )
        found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for held in self.live:
            if what == "line":
                name = str(held.callers[0]) if held.callers else "no Python frame"
            else:
                name = held.producer if what == "producer" else held.consumer
            count, nbytes = found[name]
            found[name] = (count + 1, nbytes + held.nbytes)
        return dict(sorted(found.items(), key=lambda each: -each[1][1]))

    def to_json(self) -> str:
        """Return the totals and what is held as one JSON document."""
        live = self.live
        return json.dumps(
            {
                "imports": self.imports,
                "exports": self.exports,
                "nbytes": self._total,
                "peak": self.peak,
                "live": [each.to_dict() for each in live],
            }
        )

    def assert_released(self) -> None:
        """Raise ``AssertionError`` with the report if anything is still held.

        Runs the garbage collector first: what only a cycle holds is released. Raises
        it, too, if the trace ended early and so does not know.
        """
        if self.error is not None:
            raise AssertionError(f"the trace ended before its block: {self.error!r}")
        if self.live:
            gc.collect()
        if self.live:
            raise AssertionError(f"memory is still held: {self}")

    def __repr__(self) -> str:
        """Return the report."""
        live = self.live
        lines = [
            f"{len(live)} alive, {size(self._total)} (peak {size(self.peak)}, "
            f"{self.imports} imports, {self.exports} exports)"
        ]
        if self.error is not None:
            lines.append(f"ended early: {self.error!r}")
        exports = defaultdict(list)
        for held in live:
            if held.parent is not None:
                exports[held.parent].append(held)
        listed = {held.number for held in live}
        roots = [held for held in live if held.parent not in listed]
        for group in _sharing(sorted(roots, key=lambda each: -each.nbytes)):
            for held in group:
                same = "" if held is group[0] else "  in the memory of those above"
                lines.append(_line(held) + same)
                lines += [_line(each) for each in exports[held.number]]
        return "\n".join(lines)

    # A signal's handler, a finalizer or another thread may run after each call. What
    # belongs together is therefore changed by statements that call nothing.

    def _note(self, held: Held, parent: int, place: Place) -> None:
        """Note a begin with the frames of this trace, and whose memory it shows."""
        shows = held.kind == "export" and parent in self._held
        by_address = self._imports.get(place) if held.nbytes else None
        found = parent if shows else by_address
        held = replace(
            held,
            parent=found if held.kind == "export" else None,
            callers=held.callers[: self.frames],
        )
        self._begin(held, shows=shows)

    def _begin(self, held: Held, *, shows: bool) -> None:
        """Note a begin; ``shows`` if it is an export of an import that is held."""
        place = (held.device, held.address)
        sizes = self._sizes.get(place) or {}
        most = max(sizes.values(), default=0)
        if held.kind == "import":
            self.imports += 1
            self._imports[place] = held.number
        else:
            self.exports += 1
        self._held[held.number] = held
        if not shows:
            self._sizes[place] = sizes
            sizes[held.number] = held.nbytes
            if held.nbytes > most:
                self._total += held.nbytes - most
                if self._total > self._peak:
                    self._peak = self._total
        if self._events is not None:
            self._write({"event": held.kind, **held.to_dict()})

    def _end(self, number: int, when: int, thread: int) -> None:
        held = self._held.get(number)
        if held is None:
            return
        place = (held.device, held.address)
        sizes = self._sizes.get(place) or {}
        most = max((n for each, n in sizes.items() if each != number), default=0)
        if number not in self._held:
            return
        del self._held[number]
        if place in self._imports and self._imports[place] == number:
            del self._imports[place]
        if number in sizes:
            if sizes[number] > most:
                self._total += most - sizes[number]
            del sizes[number]
            if not sizes and place in self._sizes:
                del self._sizes[place]
        if self._events is not None:
            end = {"event": "end", "number": number, "time": when, "thread": thread}
            self._write(end)

    def _write(self, event: dict[str, Any]) -> None:
        # A child that was forked writes to the same file.
        line = json.dumps(event | {"process": os.getpid()}).encode() + b"\n"
        try:
            while line and self._events is not None:
                line = line[self._events.write(line) :]
        except OSError as error:
            # What a signal's handler or another thread raises here has another origin.
            place = error.__traceback__
            if error.errno is None or (place and place.tb_next):
                raise
            self._fail(error)


def _sharing(found: list[Held]) -> list[list[Held]]:
    """Put those together whose bytes overlap those of the first of a group."""
    groups: list[list[Held]] = []
    for held in found:
        for group in groups:
            first = group[0]
            if (
                first.device == held.device
                and first.address < held.address + held.nbytes
                and held.address < first.address + first.nbytes
            ):
                group.append(held)
                break
        else:
            groups.append([held])
    return groups


def _line(held: Held) -> str:
    indent = "  " if held.parent is None else "    "
    trail = " <- ".join(map(str, held.callers[:2])) or "no Python frame"
    return (
        f"{indent}{size(held.nbytes):>10}  {held.kind}  {held.producer} -> "
        f"{held.consumer}  {held.dtype}{list(held.shape)} {held.device}  "
        f"{held.age:.0f} s  {trail}"
    )


def _take_ends() -> None:
    """Note what has ended, and begins from now on if a trace is on."""
    dlx._core.trace_with(_begin if _on() else None, _ends)
    ends = _ends[:]
    known = len(ends)
    for end in ends:
        for trace in _all():
            trace._end(*end)
    if _ends[:known] == ends:
        del _ends[:known]


@atexit.register
def _stop() -> None:
    # A finalizer may import a tensor when the process ends and this module is gone.
    for trace in _on():
        trace._is_on = False
    dlx._core.trace_with(None, _ends)


def _begin(
    way: str,
    number: int,
    source: object,
    parent: int,
    address: int,
    flags: int,
    target: type | None,
) -> None:
    """Note one begin; the extension calls this while a trace is on."""
    tensor = DLTensor.from_address(address)
    shape = tuple(tensor.shape[: tensor.ndim])
    dtype = tensor.dtype
    bits = dtype.bits
    if flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED:
        bits = (bits + 7) // 8 * 8
    nbytes = (prod(shape) * bits * dtype.lanes + 7) // 8
    device = _device_name((tensor.device.device_type, tensor.device.device_id))
    place = (device, ((tensor.data or 0) + tensor.byte_offset) % 2**64)
    frame = sys._getframe().f_back
    caller = calling_library() or module_of(frame) or "the program"
    producer = "" if source is None else _name(type(source))
    kind: Literal["import", "export"] = "import"
    consumer = "dlx.Tensor" if target is None else _name(target)
    if way == "allocator":
        kind, producer, consumer = "export", "dlx.Tensor", caller
    elif way == "__dlpack__" or (way == "table" and source is not None):
        kind, consumer = "export", caller
    elif way == "table":
        producer = caller
    elif way in ("from_pointer", "empty"):
        producer = {"from_pointer": "a pointer", "empty": "dlx"}[way]
    traces = _on()
    frames = callers(frame, max((trace.frames for trace in traces), default=0))
    held = Held(
        kind=kind,
        way=way,
        number=number,
        parent=None,
        producer=producer,
        consumer=consumer,
        address=place[1],
        shape=shape,
        dtype=_dtype_name((dtype.code, dtype.bits, dtype.lanes)),
        device=device,
        nbytes=nbytes,
        since=time.time_ns(),
        thread=get_ident(),
        callers=frames,
    )
    # A finalizer that the collector runs may wait for another thread: little is made
    # while the lock is held.
    with _lock:
        _take_ends()
        for trace in traces:
            if trace._is_on:
                trace._note(held, parent, place)


def _name(class_: type) -> str:
    # The class of the class may answer otherwise, by any code.
    name: str = vars(type)["__qualname__"].__get__(class_)
    try:
        module = vars(type)["__module__"].__get__(class_)
    except AttributeError:
        return name
    is_builtin = type(module) is not str or module == "builtins"
    return name if is_builtin else f"{module}.{name}"
