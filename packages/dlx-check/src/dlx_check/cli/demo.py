"""`python -m dlx demo`: every library's tensor through dlx into every other library.

The demo verifies each hop: it compares the addresses that both libraries report, and
writes at one end and reads at the other. The libraries are targets of
`dlx_check.conformance`.
"""

from __future__ import annotations

import argparse
import timeit
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dlx_check.cli.child import Ended, in_child
from dlx_check.cli.command import CannotRun, Command, Progress, one_line
from dlx_check.cli.terminal import mark

if TYPE_CHECKING:
    from rich.console import Console

    from dlx_check.conformance.target import Target

__all__ = ["COMMAND"]

# torch comes before tvm-ffi, which on import gives older releases of torch a table.
_NAMES = ("numpy", "torch", "tvm_ffi", "array_api_strict", "pyarrow", "jax")


class Outcome(StrEnum):
    """How a hop ended."""

    ZERO_COPY = "zero-copy"
    REFUSED = "refused"
    FAILED = "failed"


class Written(StrEnum):
    """Where a write at one end was seen at the other."""

    BOTH_WAYS = "both ways"
    ONE_WAY = "one way, one of the two tensors is immutable"
    NOT_SEEN = "not seen"
    UNKNOWN = "not reached"


@dataclass
class Hop:
    """One conversion from library to library, and its cost in nanoseconds."""

    source: str
    target: str
    outcome: Outcome = Outcome.FAILED
    same_address: bool = False
    written: Written = Written.UNKNOWN
    error: str | None = None
    import_ns: float | None = None
    hand_on_ns: float | None = None
    direct_ns: float | None = None
    ratio: float | None = None
    direct_error: str | None = None

    def __post_init__(self) -> None:
        """Accept the values of the enumerations too, as read from JSON."""
        self.outcome, self.written = Outcome(self.outcome), Written(self.written)


@dataclass
class Demo:
    """The document that `demo --json` prints."""

    dlx: str
    libraries: dict[str, str]
    skipped: dict[str, str]
    hops: list[Hop]
    summary: str


class _Library:
    """A target, with its expressions evaluated."""

    def __init__(self, target: Target) -> None:
        self.name, self.version = target.name, target.version
        self.take: Callable[[Any], Any] = target.value(target.take)
        self.address: Callable[[Any], int] = target.value(target.address)
        self.show: Callable[[Any], Any] = target.value(target.show)
        self.write: Callable[[Any, float], None] | None = target.value(target.write)
        self._writable: Callable[[Any], bool] | None = target.value(target.writable)

    def make(self, memory: Any) -> Any:
        """Return the library's own tensor over the memory of a NumPy array."""
        # `np.from_dlpack` of NumPy before 2.0 gives a read-only array.
        return memory if self.name == "numpy" else self.take(memory)

    def may_write(self, tensor: Any) -> bool:
        """Return whether the library says that a tensor of its own may be written."""
        if self.write is None:
            return False
        return self._writable is None or self._writable(tensor)

    @cached_property
    def tensor(self) -> Any:
        """A tensor to measure with."""
        return self.make(_memory())


def _memory() -> Any:
    """Return 16 float32 at a multiple of 64 bytes, where JAX shares them."""
    import numpy as np

    memory = np.empty(32, np.float32)
    start = -memory.ctypes.data % 64 // memory.itemsize
    array = memory[start : start + 16]
    array[:] = np.arange(1, 17)
    return array


def _collect(args: argparse.Namespace, progress: Progress) -> Demo:
    fatal: dict[str, str] = {}
    while True:
        try:
            demo = in_child(__name__, "collect", fatal, progress=progress)
        except Ended as end:
            if not end.step or end.step in fatal:
                raise CannotRun(f"the demo {end}") from None
            # Run again without the step that ended the process.
            fatal[end.step] = str(end)
        else:
            return Demo(**demo | {"hops": [Hop(**hop) for hop in demo["hops"]]})


def collect(progress: Progress, fatal: dict[str, str]) -> dict[str, Any]:
    """Run the demo, except the steps in ``fatal``, which ended the process before."""
    from dlx_check.core import dlx

    libraries, skipped = _load(progress, fatal)
    pairs = [
        (source, target)
        for source in libraries
        for target in libraries
        # If only NumPy is installed, still show the round trip.
        if target is not source or len(libraries) == 1
    ]
    hops = []
    progress.begin(len(pairs))
    with warnings.catch_warnings():
        # torch and pyarrow warn of lost flags and old capsules, which dlx handles.
        warnings.simplefilter("ignore")
        for source, target in pairs:
            step = f"{source.name} to {target.name}"
            if step in fatal:
                hops.append(Hop(source.name, target.name, error=fatal[step]))
                continue
            progress.step(step)
            hop = Hop(source.name, target.name)
            try:
                _prove(hop, source, target)
            except Exception as error:  # whatever a library raises is this hop's result
                hop.error = one_line(error)
            _measure(hop, source, target)
            hops.append(hop)
    demo = Demo(
        dlx=dlx.__version__,
        libraries={each.name: each.version for each in libraries},
        skipped=skipped,
        hops=hops,
        summary=_summarise(hops, len(libraries)),
    )
    return asdict(demo)


def _load(
    progress: Progress, fatal: dict[str, str]
) -> tuple[list[_Library], dict[str, str]]:
    try:
        from dlx_check.conformance.targets import load
    except ImportError:
        raise CannotRun("the demo needs NumPy: pip install numpy") from None
    libraries: list[_Library] = []
    skipped: dict[str, str] = {}
    progress.begin(len(_NAMES))
    for name in _NAMES:
        step = f"importing {name}"
        if step in fatal:
            skipped[name] = fatal[step]
            continue
        progress.step(step)
        try:
            library = _Library(load(name))
            library.make(_memory())
        except ModuleNotFoundError:
            continue
        except Exception as error:  # a broken installation must not end the demo
            skipped[name] = one_line(error)
            continue
        libraries.append(library)
    return libraries, skipped


def _prove(hop: Hop, source: _Library, target: _Library) -> None:
    from dlx_check.core import dlx

    memory = _memory()
    start = source.make(memory)
    middle = dlx.from_dlpack(start)
    try:
        end = target.take(middle)
    except (BufferError, ValueError) as error:
        if not middle.readonly:
            raise
        # Either it asked for an unversioned capsule, which dlx refuses for read-only
        # memory, or it does not take the unversioned one that it got.
        hop.outcome, hop.error = Outcome.REFUSED, one_line(error)
        return
    addresses = {source.address(start), middle.data_ptr, target.address(end)}
    hop.same_address = len(addresses) == 1
    if not hop.same_address:
        hop.error = "the address changed on the way"
        return
    hop.written = Written.NOT_SEEN
    # The source's tensor may be immutable; the memory is that of a NumPy array.
    memory[0] = 101
    if float(target.show(end)[0]) == 101:
        hop.written = Written.ONE_WAY
        if target.write and target.may_write(end) and source.may_write(start):
            target.write(end, 102.0)
            seen = float(source.show(start)[0]) == 102
            hop.written = Written.BOTH_WAYS if seen else Written.NOT_SEEN
    if hop.written is Written.NOT_SEEN:
        hop.error = "a write is not seen at the other end"
    else:
        hop.outcome = Outcome.ZERO_COPY


def _measure(hop: Hop, source: _Library, target: _Library) -> None:
    from dlx_check.core import dlx

    start = source.tensor
    try:
        hop.direct_ns = _best_ns(target.take, start)
    except Exception as error:  # some pairs work only through dlx
        hop.direct_error = one_line(error)
    if hop.outcome is not Outcome.ZERO_COPY:
        return
    hop.import_ns = _best_ns(dlx.from_dlpack, start)
    hop.hand_on_ns = _best_ns(target.take, dlx.from_dlpack(start))
    if hop.direct_ns is not None:
        hop.ratio = round((hop.import_ns + hop.hand_on_ns) / hop.direct_ns, 3)


def _best_ns(function: Callable[[Any], Any], argument: Any) -> float:
    names = {"function": function, "argument": argument}
    timer = timeit.Timer("function(argument)", globals=names)
    warm = timer.timeit(20) / 20
    # About 1 ms a repeat: long for the clock's resolution, short for a time slice.
    number = min(max(int(1e-3 / warm), 1), 10_000)
    return round(min(timer.repeat(7, number)) / number * 1e9, 1)


def _summarise(hops: list[Hop], libraries: int) -> str:
    outcomes = [hop.outcome for hop in hops]
    failed = outcomes.count(Outcome.FAILED)
    refused = outcomes.count(Outcome.REFUSED)
    what = (
        f"{len(hops)} hop{'s'[: len(hops) > 1]} between "
        f"{libraries} {'libraries' if libraries > 1 else 'library'}"
    )
    if failed:
        return f"{what}: {failed} failed."
    if refused:
        return f"{what}: {refused} refused read-only memory, all others zero-copy."
    return f"{what}, all zero-copy."


def _render(demo: Demo, console: Console) -> None:
    # Loaded late, like all that only a table needs.
    from dlx_check.cli.rendering import Table, box, escape

    tick, cross = mark(True, console), mark(False, console)
    writes = {Written.BOTH_WAYS: tick, Written.ONE_WAY: f"{tick} one way"}
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    grid.add_column("from", overflow="fold")
    grid.add_column("to", overflow="fold")
    grid.add_column("same\naddress")
    grid.add_column("write\nseen", no_wrap=True)
    for header in ("import", "hand-on", "direct", "ratio"):
        grid.add_column(header, justify="right", no_wrap=True)
    for hop, following in zip(demo.hops, [*demo.hops[1:], None], strict=True):
        grid.add_row(
            escape(hop.source),
            escape(hop.target),
            tick if hop.same_address else cross,
            writes.get(hop.written, str(hop.outcome)),
            _number(hop.import_ns),
            _number(hop.hand_on_ns),
            "refused" if hop.direct_error else _number(hop.direct_ns),
            "-" if hop.ratio is None else f"{hop.ratio:.2f}",
            style=_STYLES[hop.outcome],
            end_section=following is None or following.source != hop.source,
        )
    console.print(grid)
    for text in _legend(demo):
        console.print(text, style="dim")
    for name, reason in demo.skipped.items():
        console.print(escape(f"{name} was skipped: {reason}"), style="yellow")
    for hop in demo.hops:
        if hop.error:
            text = f"{hop.source} to {hop.target} {hop.outcome}: {hop.error}"
            console.print(escape(text), style=_STYLES[hop.outcome])
    console.print(escape(demo.summary), style="bold red" if _exit(demo) else "bold")


def _legend(demo: Demo) -> Iterator[str]:
    yield (
        "Times in ns, best of many. import: dlx.from_dlpack(x). hand-on: the target's "
        "own from_dlpack of that dlx.Tensor. direct: the target's own from_dlpack(x). "
        "ratio: (import + hand-on) / direct."
    )
    if any(hop.written is Written.ONE_WAY for hop in demo.hops):
        yield "one way: one of the two tensors is immutable."


_STYLES = {
    Outcome.ZERO_COPY: "",
    Outcome.REFUSED: "yellow",
    Outcome.FAILED: "red",
}


def _number(nanoseconds: float | None) -> str:
    return "-" if nanoseconds is None else f"{nanoseconds:,.0f}"


def _exit(demo: Demo) -> int:
    return int(any(hop.outcome is Outcome.FAILED for hop in demo.hops))


COMMAND = Command(
    name="demo",
    summary="tensors of each installed library through dlx into every other",
    collect=_collect,
    render=_render,
    exit_code=_exit,
)
"""The subcommand `demo`."""
