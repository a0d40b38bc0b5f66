"""A process that runs programs until one fails or the time is up."""

from __future__ import annotations

import faulthandler
import importlib
import json
import mmap
import os
import random
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .kit import namespace
from .program import Fleeting, Library, check, draw, execute, replay
from .wrong import Wrong

LIBRARIES = {
    "numpy": "numpy_programs",
    "buffers": "buffer_programs",
    "torch": "torch_programs",
    "jax": "jax_programs",
    "tensorflow": "tensorflow_programs",
    "mlx": "mlx_programs",
    "paddle": "paddle_programs",
    "arrow": "arrow_programs",
    "pandas": "pandas_programs",
    "wrapped": "wrapped_programs",
}
"""The module that draws the programs of each library."""

DRAWING = "# being drawn"
"""Stands for the lines of a program while it is drawn, when its library may crash."""

HANGS = 20.0
"""Seconds after which a program counts as hanging."""

PATIENCE = 5.0
"""Seconds for a hanging process to report where it is."""

BOARD = 1 << 16
"""Bytes of memory that a worker shares with its parent."""


@cache
def library(name: str) -> Library:
    """Return the lines that the programs of a library consist of."""
    module = importlib.import_module(f".{LIBRARIES[name]}", __package__)
    found: Library = module.LIBRARY
    return found


@dataclass
class Chunk:
    """Programs to run: ``before`` once, then those of ``seed`` from ``first`` on."""

    library: str
    seed: str
    first: int = 0
    until: float = 0.0
    count: int = 1 << 60
    before: tuple[str, ...] = ()
    hypothesis: bool = False


@dataclass
class Outcome:
    """The result of a chunk; if ``wrong`` is set, ``lines`` is the failing program."""

    programs: int = 0
    looks: int = 0
    refused: int = 0
    known: dict[str, int] = field(default_factory=dict)
    """How often each known fault was passed over."""
    wrong: str = ""
    lines: list[str] = field(default_factory=list)


class Board:
    """Memory shared with a child process, still readable after the child has ended."""

    def __init__(self) -> None:
        """Allocate shared memory."""
        self.memory = mmap.mmap(-1, BOARD)

    def write(self, found: Outcome) -> None:
        """Write the program that is about to run, and the counts so far."""
        text = json.dumps(vars(found)).encode()[: BOARD - 4]
        self.memory[4 : 4 + len(text)] = text
        self.memory[:4] = len(text).to_bytes(4, "little")

    def read(self) -> Outcome:
        """Return what was written last."""
        size = int.from_bytes(self.memory[:4], "little")
        return Outcome(**json.loads(self.memory[4 : 4 + size])) if size else Outcome()


def problem_of(error: BaseException) -> str:
    """Describe an exception in one line."""
    notes = " in ".join(["", *getattr(error, "__notes__", ())])
    if isinstance(error, Wrong):
        return f"{error}{notes}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(last.filename)}:{last.lineno}"
    return f"{type(error).__name__}: {error}{notes} at {place}"


def run_one(r: random.Random, chunk: Chunk, found: Outcome, board: Board) -> None:
    """Draw a program and check it; raises if it is wrong."""
    found.lines = [DRAWING]
    board.write(found)
    try:
        program = draw(r, library(chunk.library))
    except Fleeting:
        return
    found.lines = program.lines
    found.programs += 1
    board.write(found)
    try:
        check(program, skips=True)
    except Exception:
        # A program whose numbers differ between runs without dlx, such as one that
        # reads padding, proves nothing.
        if program.is_sure():
            raise
    finally:
        found.looks += program.looks
        found.refused += program.refused
        for name, number in program.known.items():
            found.known[name] = found.known.get(name, 0) + number


def run_chunk(chunk: Chunk, board: Board) -> Outcome:
    """Run programs until one is wrong."""
    found = Outcome()
    execute(chunk.before, namespace())
    number = chunk.first
    while time.time() < chunk.until and found.programs < chunk.count:
        try:
            run_one(random.Random(f"{chunk.seed}/{number}"), chunk, found, board)
        except Exception as error:
            found.wrong = problem_of(error)
            break
        number += 1
    return found


def run_hypothesis(chunk: Chunk, board: Board) -> Outcome:
    """Let hypothesis draw the programs, and shrink a failing one."""
    import hypothesis
    from hypothesis import strategies as st

    found = Outcome()
    execute(chunk.before, namespace())

    @hypothesis.settings(
        max_examples=100,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.seed(f"{chunk.seed}/{chunk.first}")
    @hypothesis.given(st.randoms(use_true_random=False))
    def programs(r: random.Random) -> None:
        run_one(r, chunk, found, board)

    try:
        programs()
    except Exception as error:
        found.wrong = problem_of(error)
    return found


def quiet(trace: int) -> None:
    """Discard the output of libraries, except the trace of a crash."""
    faulthandler.enable(trace)
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


class Child:
    """A forked process that runs one function and reports through a board."""

    def __init__(self, work: Callable[[Board], Outcome]) -> None:
        """Start it."""
        self.board = Board()
        self.beat = time.time()
        self.size = b""
        self.trace = os.memfd_create("trace")
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self.run(work)
        self.handle = os.pidfd_open(self.pid)

    def run(self, work: Callable[[Board], Outcome]) -> None:
        """Do the work, in the child."""
        code = 1
        try:
            quiet(self.trace)
            # On an interrupt, end at once and without a traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            self.board.write(work(self.board))
            code = 0
        except BaseException as error:
            self.board.write(Outcome(wrong=f"the fuzzer: {problem_of(error)}"))
            code = 0
        finally:
            os._exit(code)

    def poll(self) -> Outcome | None:
        """Return the outcome if the child has ended or hangs, else None."""
        ready, _, _ = select.select([self.handle], [], [], 0)
        hangs = False
        if not ready:
            now = self.board.memory[:256]
            if now != self.size:
                self.size, self.beat = now, time.time()
            hangs = time.time() - self.beat > HANGS
            if not hangs:
                return None
            os.kill(self.pid, signal.SIGABRT)
            if not select.select([self.handle], [], [], PATIENCE)[0]:
                # A library's own signal handler may sleep forever.
                os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.handle)
        ended_at = self.ended_at()
        found = self.board.read()
        code = os.waitstatus_to_exitcode(status)
        if hangs:
            found.wrong = f"no answer in {HANGS:g} s{ended_at}"
        elif code < 0 and found.lines == [DRAWING]:
            found.programs += 1  # A crash of the library itself.
        elif code < 0:
            found.wrong = f"ended by {signal.Signals(-code).name}{ended_at}"
        elif code:
            found.wrong = f"ended with exit code {code}"
        return found

    def ended_at(self) -> str:
        """Return the line of Python that ran last."""
        os.lseek(self.trace, 0, os.SEEK_SET)
        lines = os.read(self.trace, BOARD).decode(errors="replace").splitlines()
        os.close(self.trace)
        places = [line.strip() for line in lines if "  File " in line]
        ours = [place for place in places if "<frozen" not in place]
        return " at " + ours[0].removeprefix("File ") if ours else ""

    def wait(self) -> Outcome:
        """Wait for the outcome."""
        while (found := self.poll()) is None:
            select.select([self.handle], [], [], 0.5)
        return found

    def stop(self) -> None:
        """End it, whatever it does."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.handle)
        os.close(self.trace)


def start(chunk: Chunk) -> Child:
    """Run a chunk in a child."""
    work = run_hypothesis if chunk.hypothesis else run_chunk
    return Child(lambda board: work(chunk, board))


def alone(
    lines: list[str],
    before: tuple[str, ...] = (),
    skips: bool = False,
    whole: bool = False,
) -> Child:
    """Run a program alone in a child, and find out what is wrong, if anything is.

    Unless the program is ``whole``, it may fail because of lines that were left out.
    """

    def work(board: Board) -> Outcome:
        execute(before, namespace())
        found = Outcome(programs=1, lines=lines)
        board.write(found)
        try:
            replay(lines, skips)
        except Wrong as wrong:
            found.wrong = problem_of(wrong)
            found.known = {wrong.known: 1}
        except Exception as error:
            found.wrong = problem_of(error) if whole else ""
        return found

    return Child(work)


def ran_alone(*arguments: Any, **named: Any) -> Outcome:
    """Return what `alone` finds out."""
    return alone(*arguments, **named).wait()


def ran_each(programs: Sequence[list[str]], jobs: int) -> list[Outcome]:
    """Run whole programs alone, so many at once; return what is wrong with each."""
    waiting = list(enumerate(programs))
    running: dict[int, Child] = {}
    found: dict[int, Outcome] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            number, lines = waiting.pop(0)
            running[number] = alone(lines, whole=True)
        select.select([child.handle for child in running.values()], [], [], 0.5)
        for number, child in list(running.items()):
            if (outcome := child.poll()) is not None:
                found[number] = outcome
                del running[number]
    return [found[number] for number in range(len(programs))]


def minimized(lines: list[str], before: tuple[str, ...]) -> tuple[list[str], str]:
    """Drop lines while the program stays wrong; return the rest, and what is wrong."""
    problem = ran_alone(lines, before, skips=True).wrong
    if not problem:
        return lines, ""
    shorter = True
    while shorter:
        shorter = False
        for index in reversed(range(len(lines))):
            fewer = lines[:index] + lines[index + 1 :]
            other = ran_alone(fewer, before, skips=True).wrong if fewer else ""
            if other:
                lines, problem, shorter = fewer, other, True
    return lines, problem
