"""What is done to a target: stimulus to record. No experiment judges.

`Import` hands a probe to the target; `Export` asks a tensor of the target for a
capsule. The target is called at one place, `ask`, so an exception anywhere else is a
fault of the suite.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dlx.check.probe import Probe, Tensor, probe
from dlx.check.records import Raised, Record, Shown
from dlx.check.target import Target

__all__ = ["Experiment", "Import", "Lab", "Untestable"]


PLAIN = Tensor()


class Untestable(Exception):
    """The stimulus cannot be made; the reason is one of a closed list."""


@dataclass
class Answer:
    """What a call of the target gave."""

    value: Any = None
    error: BaseException | None = None

    @property
    def raised(self) -> Raised | None:
        """Return the exception as a record has it."""
        return None if self.error is None else described(self.error)


def described(error: BaseException) -> Raised:
    """Return an exception as a record has it: its own bases, and one line."""
    bases = tuple(base.__name__ for base in type(error).__mro__[:-2])
    text = (str(error).splitlines() or [""])[0]
    return Raised(type(error).__name__, bases, text[:300])


class Lab:
    """One target in one process, for one check after another."""

    def __init__(self, target: Target, step: Callable[[str], None]) -> None:
        """Call `step` with what is done next."""
        self.target, self.step, self.process = target, step, os.getpid()

    def ask(
        self, function: Callable[..., Any], *values: Any, **keywords: Any
    ) -> Answer:
        """Call the target: the one place where that happens."""
        try:
            answer = Answer(function(*values, **keywords))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            error.__traceback__ = None
            answer = Answer(error=error)
        if os.getpid() != self.process:
            # The target has forked, and this is its child.
            os._exit(0)
        return answer

    def part(self, name: str) -> Callable[..., Any]:
        """Return a function of the target; `Untestable` if it has none."""
        expression = getattr(self.target, name)
        if expression is None:
            raise Untestable(f"not-observable: the target has no `{name}`")
        function: Callable[..., Any] = self.target.value(expression)
        return function

    def make(self, array: Any) -> Any:
        """Make a tensor; `Untestable` if the target refuses."""
        answer = self.ask(self.part("make"), array)
        if answer.error is not None:
            raise Untestable("no-such-tensor")
        return answer.value

    def show(self, tensor: Any, expected: bytes) -> Shown | None:
        """Return what the target shows of a tensor of its own."""
        if self.target.show is None:
            return None
        answer = self.ask(self.part("show"), tensor)
        if answer.error is not None:
            return None
        array = np.asarray(answer.value)
        writable = None
        if self.target.writable is not None:
            writable = self.ask(self.part("writable"), tensor).value
        values = array.reshape(-1)[:8].tolist()
        raw = np.ascontiguousarray(array).tobytes()
        return Shown(
            array.shape, str(array.dtype), str(values), raw == expected, writable
        )


class Experiment(Protocol):
    """What a row does."""

    def run(self, lab: Lab) -> Record:
        """Do it to the target, and say what was seen."""


def settle(done: Callable[[], bool]) -> None:
    """Collect garbage, and wait a moment for memory that is released elsewhere."""
    gc.collect()
    for _ in range(20):
        if done():
            return
        time.sleep(0.005)
        gc.collect()


@dataclass(frozen=True)
class Import:
    """The target imports a probe, shows it, sees changes, and lets go of it."""

    tensor: Tensor = PLAIN
    keywords: tuple[tuple[str, Any], ...] = ()
    shows: bool = True
    """Whether elements may be read: not where the struct is malformed."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        take = lab.part("take")
        for name, _ in self.keywords:
            if name not in lab.target.keywords:
                raise Untestable(f"not-asked: `take` has no keyword {name}")
        given = probe(self.tensor)
        lab.step("imports the probe")
        answer = lab.ask(take, given, **dict(self.keywords))
        notes: dict[str, Any] = {}
        shown = None
        if answer.error is None:
            shown = self._look(lab, given, answer.value, notes)
        else:
            notes["same error"] = answer.error is given.error
        raised = answer.raised
        lab.step("lets go of what it imported")
        answer.value = answer.error = None
        expected = 0 if "deleter" in self.tensor.null else 1
        settle(lambda: all(each.deleted >= expected for each in given.exports))
        notes["deleted"] = [each.deleted for each in given.exports]
        return Record(
            raised=raised,
            asked=tuple(given.calls),
            sent=tuple(each.capsule_name for each in given.exports),
            shown=shown,
            notes=notes,
        )

    def _look(
        self, lab: Lab, given: Probe, made: Any, notes: dict[str, Any]
    ) -> Shown | None:
        notes["deleted while alive"] = [each.deleted for each in given.exports]
        if lab.target.address is not None:
            where = lab.ask(lab.part("address"), made).value
            if isinstance(where, int):
                notes["shares"] = within(where, given.memory.address, given.memory.size)
        if not self.shows:
            return None
        lab.step("shows what it imported")
        memory = given.memory
        shown = lab.show(made, memory.values())
        if shown is None:
            return None
        if any(each.memory is memory for each in given.exports):
            before = memory.values()
            memory.change()
            lab.step("shows it after its owner has written")
            later = lab.show(made, memory.values())
            notes["follows"] = bool(later and later.equal) and before != memory.values()
            memory.change()
        if lab.target.write is not None and shown.shape and 0 not in shown.shape:
            before = memory.values()
            lab.step("writes to what it imported")
            if lab.ask(lab.part("write"), made, 0).error is None:
                notes["affects"] = memory.values() != before
        return shown


def within(address: int, start: int, size: int) -> bool:
    """Return whether an address is in memory of a probe."""
    return start <= address < start + size
