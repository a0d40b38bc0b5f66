"""`python -m dlx demo`: every library's tensor through dlx into every other library.

The demo verifies each hop: it compares the addresses that both libraries report, and
writes through one library and reads through the other.
"""

from __future__ import annotations

import argparse
import timeit
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import dlx
from dlx.cli.capsules import exports_read_only
from dlx.cli.child import Ended, in_child
from dlx.cli.command import CannotRun, Command, Progress, one_line
from dlx.cli.frameworks import FRAMEWORKS, Handling, own_from_dlpack
from dlx.cli.terminal import mark

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMAND"]


class Outcome(StrEnum):
    """How a hop ended."""

    ZERO_COPY = "zero-copy"
    REFUSED = "refused"
    FAILED = "failed"


class Access(StrEnum):
    """What a hop showed about writes or the read-only flag."""

    BOTH_WAYS = "write seen both ways"
    ONE_WAY = "write seen, target immutable"
    NOT_SEEN = "write not seen"
    KEPT = "read-only kept"
    KEPT_BY_DLX = "read-only kept, target has no flag"
    LOST = "read-only lost"
    NOT_SAID = "immutable, but source does not say so"
    UNKNOWN = "not reached"


@dataclass
class Hop:
    """One conversion from library to library, and its cost in nanoseconds."""

    source: str
    target: str
    outcome: Outcome = Outcome.FAILED
    same_address: bool = False
    access: Access = Access.UNKNOWN
    error: str | None = None
    import_ns: float | None = None
    hand_on_ns: float | None = None
    direct_ns: float | None = None
    ratio: float | None = None
    direct_error: str | None = None

    def __post_init__(self) -> None:
        """Accept the values of the enumerations too, as read from JSON."""
        self.outcome, self.access = Outcome(self.outcome), Access(self.access)


@dataclass
class Demo:
    """The document that `demo --json` prints."""

    dlx: str
    libraries: dict[str, str | None]
    skipped: dict[str, str]
    hops: list[Hop]
    summary: str


@dataclass(frozen=True)
class _Library:
    name: str
    version: str | None
    module: Any
    handling: Handling

    def make(self) -> Any:
        return self.handling.make(self.module)


_Take = Callable[[Any], Any]


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
    libraries, skipped = _load(progress, fatal)
    if "numpy" not in (each.name for each in libraries):
        raise CannotRun("the demo needs NumPy: pip install numpy")
    targets = [
        (each, take)
        for each in libraries
        if (take := own_from_dlpack(each.module, each.handling))
    ]
    pairs = [
        (source, target, take)
        for source in libraries
        for target, take in targets
        # If only NumPy is installed, still show the round trip.
        if target is not source or len(libraries) == 1
    ]
    hops = []
    progress.begin(len(pairs))
    with warnings.catch_warnings():
        # torch and pyarrow warn about what the demo shows: lost flags, old capsules.
        warnings.simplefilter("ignore")
        for source, target, take in pairs:
            step = f"{source.name} to {target.name}"
            if step in fatal:
                hops.append(Hop(source.name, target.name, error=fatal[step]))
                continue
            progress.step(step)
            hop = _prove(source, target, take)
            _measure(hop, source, take)
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
    libraries: list[_Library] = []
    skipped: dict[str, str] = {}
    installed = [
        (each, each.handling)
        for each in FRAMEWORKS
        if each.handling and each.is_installed()
    ]
    progress.begin(len(installed))
    for each, handling in installed:
        step = f"importing {each.name}"
        if step in fatal:
            skipped[each.name] = fatal[step]
            continue
        progress.step(step)
        try:
            module = each.load()
            handling.make(module)
        except Exception as error:  # a broken installation must not end the demo
            skipped[each.name] = one_line(error)
            continue
        libraries.append(_Library(each.name, each.version(), module, handling))
    return libraries, skipped


def _prove(source: _Library, target: _Library, take: _Take) -> Hop:
    hop = Hop(source.name, target.name)
    here, there = source.handling, target.handling
    try:
        start = source.make()
        middle = dlx.from_dlpack(start)
        hop.same_address = here.address(start) == middle.data_ptr
        try:
            end = take(middle)
        except (BufferError, ValueError) as error:
            if not middle.readonly:
                raise
            # Either it asked for an unversioned capsule, which dlx refuses for
            # read-only memory, or it does not take the unversioned one that it got.
            hop.outcome, hop.error = Outcome.REFUSED, one_line(error)
            return hop
        hop.same_address &= middle.data_ptr == there.address(end)
        if here.read(start) != there.read(end):
            hop.error = "the two ends read different values"
            return hop
        if here.write is None:
            hop.access = _follow_flag(start, middle, end, there)
        else:
            hop.access = _write_through(start, here.write, here, end, there)
    except Exception as error:  # whatever a library raises is this hop's result
        hop.error = one_line(error)
        return hop
    if not hop.same_address:
        hop.error = "the address changed on the way"
    elif hop.access in (Access.NOT_SEEN, Access.LOST):
        hop.error = hop.access.value
    else:
        hop.outcome = Outcome.ZERO_COPY
    return hop


def _write_through(
    start: Any,
    write: Callable[[Any, float], None],
    here: Handling,
    end: Any,
    there: Handling,
) -> Access:
    write(start, 101.0)
    if there.read(end) != 101.0:
        return Access.NOT_SEEN
    if there.write is None:
        return Access.ONE_WAY
    there.write(end, 102.0)
    return Access.BOTH_WAYS if here.read(start) == 102.0 else Access.NOT_SEEN


def _follow_flag(start: Any, middle: dlx.Tensor, end: Any, there: Handling) -> Access:
    if not exports_read_only(start):
        return Access.NOT_SAID
    if not (middle.readonly and exports_read_only(middle)):
        return Access.LOST
    if not there.exports_read_only:
        return Access.KEPT_BY_DLX
    return Access.KEPT if exports_read_only(end) else Access.LOST


def _measure(hop: Hop, source: _Library, take: _Take) -> None:
    start = source.make()
    try:
        hop.direct_ns = _best_ns(take, start)
    except Exception as error:  # some pairs work only through dlx
        hop.direct_error = one_line(error)
    if hop.outcome is not Outcome.ZERO_COPY:
        return
    hop.import_ns = _best_ns(dlx.from_dlpack, start)
    hop.hand_on_ns = _best_ns(take, dlx.from_dlpack(start))
    if hop.direct_ns is not None:
        hop.ratio = round((hop.import_ns + hop.hand_on_ns) / hop.direct_ns, 3)


def _best_ns(function: _Take, argument: Any) -> float:
    names = {"function": function, "argument": argument}
    timer = timeit.Timer("function(argument)", globals=names)
    warm = timer.timeit(20) / 20
    # About 1 ms a repeat: long for the clock's resolution, short for a time slice.
    number = min(max(int(1e-3 / warm), 1), 10_000)
    return round(min(timer.repeat(7, number)) / number * 1e9, 1)


def _summarise(hops: list[Hop], libraries: int) -> str:
    count = {outcome: 0 for outcome in Outcome}
    for hop in hops:
        count[hop.outcome] += 1
    failed, refused = count[Outcome.FAILED], count[Outcome.REFUSED]
    what = f"{_plural(len(hops), 'hop')} between {_plural(libraries, 'library')}"
    if failed:
        return f"{what}: {failed} failed."
    if refused:
        return f"{what}: {refused} refused read-only memory, all others zero-copy."
    return f"{what}, all zero-copy."


def _plural(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def _render(demo: Demo, console: Console) -> None:
    # Loaded late, like all that only a table needs.
    from dlx.cli.rendering import Table, box, escape

    tick = mark(True, console)
    cross = mark(False, console)
    # The table's text for each kind of access, and its entry in the legend.
    labels = {
        Access.BOTH_WAYS: (tick, ""),
        Access.ONE_WAY: (f"{tick} one way", "the target's tensors are immutable"),
        Access.NOT_SEEN: (cross, ""),
        Access.KEPT: ("read-only kept", "the target's own export says read-only"),
        Access.KEPT_BY_DLX: (
            "read-only to dlx",
            "dlx keeps the flag, the target has none",
        ),
        Access.LOST: ("read-only lost", ""),
        Access.NOT_SAID: (
            "not said",
            "the source is immutable, and its export does not say so",
        ),
    }
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    grid.add_column("from", overflow="fold")
    grid.add_column("to", overflow="fold")
    grid.add_column("same\naddress")
    grid.add_column("write\nseen", no_wrap=True)
    for header in ("import", "hand-on", "direct", "ratio"):
        grid.add_column(header, justify="right", no_wrap=True)
    for hop, following in zip(demo.hops, [*demo.hops[1:], None], strict=True):
        label, _ = labels.get(hop.access, (str(hop.outcome), ""))
        grid.add_row(
            escape(hop.source),
            escape(hop.target),
            tick if hop.same_address else cross,
            label,
            _number(hop.import_ns),
            _number(hop.hand_on_ns),
            "refused" if hop.direct_error else _number(hop.direct_ns),
            "-" if hop.ratio is None else f"{hop.ratio:.2f}",
            style=_STYLES[hop.outcome],
            end_section=following is None or following.source != hop.source,
        )
    console.print(grid)
    console.print(
        "Times in ns, best of many. import: dlx.from_dlpack(x). hand-on: the target's"
        " own from_dlpack of that dlx.Tensor. direct: the target's own from_dlpack(x)."
        " ratio: (import + hand-on) / direct.",
        style="dim",
    )
    shown = {hop.access for hop in demo.hops}
    for access, (label, meaning) in labels.items():
        if meaning and access in shown:
            console.print(f"{label}: {meaning}.", style="dim")
    for name, reason in demo.skipped.items():
        console.print(escape(f"{name} was skipped: {reason}"), style="yellow")
    for hop in demo.hops:
        if hop.error:
            text = f"{hop.source} to {hop.target} {hop.outcome}: {hop.error}"
            console.print(escape(text), style=_STYLES[hop.outcome])
    console.print(escape(demo.summary), style="bold red" if _exit(demo) else "bold")


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
