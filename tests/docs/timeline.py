"""Draw who waits for whom, from the journal of the simulated driver.

``PYTHONPATH=tests python -m docs.timeline`` writes the picture of `docs/streams.md`.
The program runs twice, without an order and with the one that dlx makes. What it has
asked of the driver is then laid out in time: the host calls one function after another,
kernels take long, and a stream goes on when what it waits for is done. The simulation
says which accesses race.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import NamedTuple

import dlx
from support.cuda_producers import Framework, TableArray, framework
from support.simulated_driver import Simulation, library_path, simulation
from support.simulated_kernels import read
from support.simulated_objects import Stream

PICTURE = Path(__file__).parents[2] / "docs" / "timeline_borrow.svg"
CALL, KERNEL = 0.25, 3.0
"""How long a call of the host takes, and a kernel."""
WIDTH, LEFT, UNIT, LANE, PANEL = 480, 84, 39, 50, 150
STYLE = """\
svg {
  --paper: #ffffff; --ink: #24292f; --line: #c3c8d0;
  --write: #c7d7f2; --read: #cfe8d2; --race: #c62828;
}
@media (prefers-color-scheme: dark) {
  svg {
    --paper: #22252e; --ink: #e4e7ec; --line: #59606d;
    --write: #33507f; --read: #2f6340; --race: #ff8a80;
  }
}
text { fill: var(--ink); font: 14px sans-serif }
.title { font-weight: bold }
.code { font: 13px monospace }
.race { fill: var(--race); font-weight: bold }
.lane { stroke: var(--line) }
.wait { stroke: var(--ink); stroke-dasharray: 2 5; stroke-width: 2 }
.arrow { fill: none; stroke: var(--ink); stroke-width: 1.5; marker-end: url(#head) }
rect.race { fill: none; stroke: var(--race); stroke-width: 3 }"""


class Kernel(NamedTuple):
    """A kernel, in units of time."""

    lane: int
    label: str
    kind: str
    idle: float
    """Since when its stream has waited."""
    start: float
    races: bool


class Wait(NamedTuple):
    """One stream waits for what the other has recorded."""

    source: int
    target: int
    since: float
    until: float


class Timeline(NamedTuple):
    """What one run of a program does."""

    run: Run
    kernels: list[Kernel]
    waits: list[Wait]


Program = Callable[[Framework, Stream], object]


def overwritten(library: Framework, s: Stream, lend: bool) -> None:
    """Read an array that its library writes to again."""
    x = library.full((4,))
    if lend:
        with dlx.borrow(x, stream=s) as (t, stream):
            read(stream, t)
    else:
        read(s, dlx.from_dlpack(x, stream=s))
    x += 1


class Run(NamedTuple):
    """One panel of a picture."""

    title: str
    code: str
    program: Program


RUNS = (
    Run(
        "an order at the start",
        "t = from_dlpack(x, stream=s); read(t); x += 1",
        lambda library, s: overwritten(library, s, False),
    ),
    Run(
        "an order at both ends",
        "with borrow(x, stream=s) as (t, s): read(t)",
        lambda library, s: overwritten(library, s, True),
    ),
)


def laid_out(sim: Simulation, run: Run) -> Timeline:
    """Run a program on a machine on which nothing has happened, and lay it out."""
    sim.start()
    library, p, s = framework(TableArray, "timeline"), sim.stream(), sim.stream()
    with library.stream(p):
        # What the first order loads and makes, a program that runs has.
        dlx.from_dlpack(library.full((1,))).__dlpack__(stream=sim.stream().handle)
        sim.advance()
        sim.clear_journal()
        run.program(library, s)
    racing = {each.index for race in sim.races for each in (race.first, race.second)}
    lanes = {p.handle: 0, s.handle: 1}
    # When a stream may go on, and when its last kernel ends.
    ready, last, now = [0.0, 0.0], [0.0, 0.0], 0.0
    events: dict[int, tuple[int, float]] = {}
    timeline = Timeline(run, [], [])
    for call in sim.journal:
        said = call.arguments
        lane = lanes.get(said.get("stream", 0), -1)
        if lane < 0 or call.code:
            continue
        if call.name == "cuEventRecord":
            events[said["event"]] = (lane, max(ready[lane], now))
        elif call.name == "cuStreamWaitEvent":
            source, done = events[said["event"]]
            timeline.waits.append(Wait(source, lane, done, max(ready[lane], done)))
            ready[lane] = max(ready[lane], done)
        elif call.name == "sim_launch":
            kind = "write" if said["write"] else "read"
            idle, start = max(last[lane], now), max(ready[lane], now)
            last[lane] = ready[lane] = start + KERNEL
            races = call.index in racing
            label = f"{kind}s x"
            timeline.kernels.append(Kernel(lane, label, kind, idle, start, races))
        else:
            continue
        now += CALL
    return timeline


def x_of(time: float) -> float:
    """Return where a time is in the picture."""
    return round(LEFT + time * UNIT, 1)


def panel(timeline: Timeline, top: int) -> list[str]:
    """Draw one run, from `top` on."""
    heights = [top + 70, top + 70 + LANE]
    title, code, _ = timeline.run
    lines = [
        f'<text x="12" y="{top + 24}" class="title">{title}</text>',
        f'<text x="12" y="{top + 44}" class="code">{escape(code)}</text>',
    ]
    for name, y in zip(("library's", "yours"), heights, strict=True):
        lines += [
            f'<text x="12" y="{y + 5}">{name}</text>',
            f'<path class="lane" d="M{LEFT} {y}H{WIDTH - 8}"/>',
        ]
    for kernel in timeline.kernels:
        x, y, width = x_of(kernel.start), heights[kernel.lane], KERNEL * UNIT
        if kernel.start > kernel.idle:
            lines.append(f'<path class="wait" d="M{x_of(kernel.idle)} {y}H{x}"/>')
        shape = f'x="{x}" y="{y - 14}" width="{width:g}" height="28" rx="4"'
        lines.append(f'<rect {shape} fill="var(--{kernel.kind})"/>')
        if kernel.races:
            lines.append(f'<rect {shape} class="race"/>')
        middle = round(x + width / 2, 1)
        lines.append(
            f'<text x="{middle}" y="{y + 5}" text-anchor="middle">{kernel.label}</text>'
        )
    for wait in timeline.waits:
        sign = 1 if wait.target > wait.source else -1
        y, end = heights[wait.source] + 14 * sign, heights[wait.target] - 16 * sign
        x = x_of(wait.since)
        lines.append(
            f'<path class="arrow" d="M{x - 4} {y}L{x_of(wait.until) + 2} {end}"/>'
        )
    races = any(kernel.races for kernel in timeline.kernels)
    text = "race: nobody waits" if races else "no race"
    kind = "race" if races else "calm"
    lines.append(
        f'<text x="{WIDTH - 12}" y="{top + 24}" class="{kind}" text-anchor="end">'
        f"{text}</text>"
    )
    return lines


def svg(timelines: list[Timeline]) -> str:
    """Return the picture: a panel for each run."""
    height = PANEL * len(timelines) + 8
    size = f'width="{WIDTH}" height="{height}"'
    box = f'{size} viewBox="0 0 {WIDTH} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f"<style>\n{STYLE}\n</style>",
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--ink)"/>'
        "</marker>",
        f'<rect {size} rx="6" fill="var(--paper)"/>',
    ]
    for index, timeline in enumerate(timelines):
        lines += panel(timeline, PANEL * index)
    return "\n".join([*lines, "</svg>\n"])


def draw(sim: Simulation) -> str:
    """Return the picture, from runs of its programs."""
    return svg([laid_out(sim, run) for run in RUNS])


if __name__ == "__main__":
    os.environ["DLX_LIBCUDA"] = str(library_path())
    PICTURE.write_text(draw(simulation()))
