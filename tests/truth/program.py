"""Programs: how they are drawn, run, and printed."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .entries import available, present
from .games import games
from .kit import namespace
from .look import Heard, Look, compiled
from .said import Said


class Library(NamedTuple):
    """The lines that programs of one library consist of."""

    start: Callable[[random.Random], str]
    """Draw the line that makes ``x``."""
    step: Callable[[random.Random, Any], str]
    """Draw a line that replaces or changes ``x``, which is passed."""
    frames: tuple[str, ...] = ()
    """Lines with ``TEXT`` for the entry: other places to look from."""
    needs: tuple[str, ...] = ()


def one_of(lines: Sequence[str]) -> Callable[[random.Random, Any], str]:
    """Return a step that draws one of these lines, whatever ``x`` is."""
    return lambda r, x: r.choice(lines)


PLAIN = "look(x, TEXT)"
FRAMES = (
    "look(copy.copy(x), TEXT)",
    "y = x; look(x, TEXT); x = y",
    "in_thread(lambda: look(x, TEXT))",
)
"""Places to look from, for the tensors of every library."""


GAMBLES = 10
"""One look in this many is while a game with modules is played."""

ROUNDS = 12
"""How often a failing program is run again without dlx: uninitialized memory may read
as the same bool several times."""


class Fleeting(Exception):
    """A program that runs without dlx once, and fails the second time."""


@dataclass
class Program:
    """Lines of Python, and the result of running them."""

    lines: list[str] = field(default_factory=list)
    truths: list[Said | None] = field(default_factory=list)
    looks: int = 0
    refused: int = 0
    known: Counter[str] = field(default_factory=Counter)

    def is_sure(self) -> bool:
        """Whether the library reports the same numbers in each run."""
        for _ in range(ROUNDS):
            heard = Heard()
            try:
                execute(self.lines, namespace() | {"look": heard})
            except Exception:
                return False
            if heard.truths != self.truths:
                return False
        return True


def execute(lines: Iterable[str], names: dict[str, Any]) -> None:
    """Run lines in a namespace."""
    for line in lines:
        exec(compiled(line, "exec"), names)


def draw_look(r: random.Random, library: Library, modules: frozenset[str]) -> str:
    """Draw a line that looks at ``x``."""
    text = repr(r.choice(r.choice(available(modules))))
    if r.randrange(GAMBLES) == 0:
        text += f", {r.choice(games(library.needs))!r}"
    frame = PLAIN
    if r.randrange(6) == 5:
        frame = r.choice((*FRAMES, *library.frames))
    return frame.replace("TEXT", text)


def draw(r: random.Random, library: Library) -> Program:
    """Draw a program while running it without dlx, and record what its library says."""
    modules = present()
    heard = Heard()
    names = namespace() | {"look": heard}
    program = Program()

    def run(line: str) -> None:
        """Add a line; if it fails, restore the state before it."""
        nonlocal names, heard
        try:
            exec(compiled(line, "exec"), names)
            if names["x"] is None:
                raise TypeError("None is no tensor")
        except Exception:
            heard = Heard()
            names = namespace() | {"look": heard}
            try:
                execute(program.lines, names)
            except Exception as error:
                raise Fleeting(program.lines) from error
        else:
            program.lines.append(line)

    while not program.lines:
        run(library.start(r))
    for _ in range(1 + (r.randrange(4) == 3)):
        for _ in range(r.randrange(5)):
            run(library.step(r, names["x"]))
        for _ in range(1 + r.randrange(3)):
            run(draw_look(r, library, modules))
    program.truths = heard.truths
    return program


def check(program: Program, skips: bool = False) -> None:
    """Run a program with dlx; raises `Wrong` where dlx differs from the library.

    With ``skips``, faults that are known are passed over, and counted.
    """
    names = namespace()
    look = Look(names, program.truths, skips)
    names["look"] = look
    try:
        for line in program.lines:
            is_look = "look(" in line
            if not is_look:
                # It may change a result in place, or free it (torch's share_memory_).
                look.made.clear()
            try:
                exec(compiled(line, "exec"), names)
            except RuntimeError as error:
                # torch refuses a view made without a graph once it was written to.
                if is_look or "no_grad mode and its base" not in str(error):
                    raise
                break
    finally:
        program.looks = len(program.truths)
        program.refused, program.known = look.refused, look.known
        names.clear()
    look.read_again()


def replay(lines: Iterable[str], skips: bool = False) -> None:
    """Run the lines of a program as `draw` and `check` do."""
    heard = Heard()
    lines = list(lines)
    execute(lines, namespace() | {"look": heard})
    gc.collect()
    check(Program(lines, heard.truths), skips)


def snippet(lines: Iterable[str], before: Iterable[str] = ()) -> str:
    """Return a program as a complete Python file."""
    body = [*before, *lines]
    return "\n".join(
        [
            "# PYTHONPATH=tests python -m truth.run --program THIS_FILE",
            *body,
        ]
    )
