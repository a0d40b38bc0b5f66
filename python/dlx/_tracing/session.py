"""One trace: what began while it was on and has not ended."""

from __future__ import annotations

import gc
import json
import sys
import time
import weakref
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from threading import RLock, get_ident
from typing import IO, Any, Literal, Self

from dlx import _core
from dlx._inspection.text import device_name, dtype_name
from dlx._tracing.callers import callers, calling_library, module_of
from dlx._tracing.records import Held, size

__all__ = ["Trace", "active"]

_device_name = lru_cache(maxsize=64)(device_name)
_dtype_name = lru_cache(maxsize=64)(dtype_name)

Place = tuple[str, int]

# A finalizer that the garbage collector runs inside of a begin may import a tensor.
_lock = RLock()
_active: list[Trace] = []
_known: weakref.WeakSet[Trace] = weakref.WeakSet()


def active() -> list[Trace]:
    """Return the traces that are on, the first to begin first."""
    with _lock:
        _take_ends()
        return list(_active)


class _Memory:
    """How many bytes are held: memory that several hold counts once."""

    def __init__(self) -> None:
        self.held: dict[Place, list[int]] = {}
        self.total = 0
        self.peak = 0

    def begin(self, place: Place, nbytes: int) -> None:
        sizes = self.held.setdefault(place, [])
        self.total -= max(sizes, default=0)
        sizes.append(nbytes)
        self.total += max(sizes)
        self.peak = max(self.peak, self.total)

    def end(self, place: Place, nbytes: int) -> None:
        sizes = self.held[place]
        self.total -= max(sizes)
        sizes.remove(nbytes)
        self.total += max(sizes, default=0)
        if not sizes:
            del self.held[place]


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
        self._path = events
        self._events: IO[str] | None = None
        self._held: dict[int, Held] = {}
        self._imports: dict[Place, int] = {}
        self._memory = _Memory()

    def __enter__(self) -> Self:
        """Trace from now on."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise RuntimeError(
                "dlx.trace needs a GIL: without one, another thread may see a tensor "
                "before its owner is noted"
            )
        with _lock:
            if self in _active:
                raise RuntimeError("this trace is on already")
            if self._path is not None:
                self._events = Path(self._path).open("a", encoding="utf-8")
            _take_ends()
            _active.append(self)
            _known.add(self)
            if len(_active) == 1:
                _core.trace_with(_begin)
        return self

    def __exit__(self, *exception: object) -> None:
        """Trace no more; what is held stays listed until it ends."""
        with _lock:
            if self not in _active:
                return
            _take_ends()
            _active.remove(self)
            if not _active:
                _core.trace_with(None)
            if self._events is not None:
                self._events.close()
                self._events = None

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
            return self._memory.total

    @property
    def peak(self) -> int:
        """The most bytes that were held at once."""
        return self._memory.peak

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
                "nbytes": self._memory.total,
                "peak": self.peak,
                "live": [each.to_dict() for each in live],
            }
        )

    def assert_released(self) -> None:
        """Raise ``AssertionError`` with the report if anything is still held.

        Runs the garbage collector first: what only a cycle holds is released.
        """
        if self.live:
            gc.collect()
        if self.live:
            raise AssertionError(f"memory is still held: {self}")

    def __repr__(self) -> str:
        """Return the report."""
        live = self.live
        lines = [
            f"{len(live)} alive, {size(self._memory.total)} (peak {size(self.peak)}, "
            f"{self.imports} imports, {self.exports} exports)"
        ]
        exports = defaultdict(list)
        for held in live:
            if held.parent is not None:
                exports[held.parent].append(held)
        listed = {held.number for held in live}
        for held in sorted(live, key=lambda each: -each.nbytes):
            if held.parent not in listed:
                lines.append(_line(held))
                lines += [_line(each) for each in exports[held.number]]
        return "\n".join(lines)

    def _parent(self, kind: str, number: int | None, place: Place) -> int | None:
        if kind == "import":
            return None
        # An object that exports a tensor of dlx is known by the address alone.
        return number if number in self._held else self._imports.get(place)

    def _begin(self, held: Held) -> None:
        place = (held.device, held.address)
        if held.kind == "import":
            self.imports += 1
            self._imports[place] = held.number
        else:
            self.exports += 1
        self._held[held.number] = held
        self._memory.begin(place, held.nbytes)
        if self._events is not None:
            self._write({"event": held.kind, **held.to_dict()})

    def _end(self, number: int, when: int, thread: int) -> None:
        held = self._held.pop(number, None)
        if held is None:
            return
        place = (held.device, held.address)
        if self._imports.get(place) == number:
            del self._imports[place]
        self._memory.end(place, held.nbytes)
        if self._events is not None:
            end = {"event": "end", "number": number, "time": when, "thread": thread}
            self._write(end)

    def _write(self, event: dict[str, Any]) -> None:
        print(json.dumps(event), file=self._events, flush=True)


def _line(held: Held) -> str:
    indent = "  " if held.parent is None else "    "
    trail = " <- ".join(map(str, held.callers[:2])) or "no Python frame"
    return (
        f"{indent}{size(held.nbytes):>10}  {held.kind}  {held.producer} -> "
        f"{held.consumer}  {held.dtype}{list(held.shape)} {held.device}  "
        f"{held.age:.0f} s  {trail}"
    )


def _take_ends() -> None:
    for number, when, thread in _core.traced_ends():
        for trace in list(_known):
            trace._end(number, when, thread)


def _begin(
    way: str,
    number: int,
    source: object,
    target: object,
    parent: int | None,
    what: tuple[int, tuple[int, ...], tuple[int, int, int], tuple[int, int], int],
) -> None:
    """Note one begin; the extension calls this while a trace is on."""
    address, shape, dtype, device, nbytes = what
    frame = sys._getframe(1)
    library = calling_library()
    caller = library or module_of(frame) or "the program"
    name = None if source is None else _name(type(source))
    kind: Literal["import", "export"] = "import"
    if way == "__dlpack__" or (way == "table" and source is not None):
        kind, producer, consumer = "export", name or "", caller
    elif way == "allocator":
        kind, producer, consumer = "export", "dlx.Tensor", caller
    elif way == "table":
        producer, consumer = caller, "dlx.Tensor"
    elif way == "convert":
        producer, consumer = name or "", _target(target)
    else:
        own = {"from_pointer": "a pointer", "empty": "dlx"}
        producer, consumer = name or own.get(way, "dlx"), "dlx.Tensor"
    with _lock:
        _take_ends()
        place = (_device_name(device), address)
        for trace in _active:
            trace._begin(
                Held(
                    kind=kind,
                    way=way,
                    number=number,
                    parent=trace._parent(kind, parent, place),
                    producer=producer,
                    consumer=consumer,
                    address=address,
                    shape=shape,
                    dtype=_dtype_name(dtype),
                    device=place[0],
                    nbytes=nbytes,
                    since=time.time_ns(),
                    thread=get_ident(),
                    callers=callers(frame, trace.frames),
                )
            )


def _target(target: Any) -> str:
    """Return the name of what ``convert`` was asked for, a class or a module."""
    return _name(target) if isinstance(target, type) else str(target.__name__)


def _name(class_: type) -> str:
    module = class_.__module__
    return (
        class_.__qualname__
        if module == "builtins"
        else f"{module}.{class_.__qualname__}"
    )
