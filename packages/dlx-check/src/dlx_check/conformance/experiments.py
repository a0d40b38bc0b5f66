"""What is done to a target: stimulus to record. No experiment judges.

`Import` hands a probe to the target; `exporting.Export` asks a tensor of the target for
a capsule. The target is called at one place, `ask`, so an exception anywhere else is a
fault of the suite.
"""

from __future__ import annotations

import gc
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dlx_check.conformance import structs
from dlx_check.conformance.answering import Probe, probe
from dlx_check.conformance.probe import NEWEST, Memory, Tensor
from dlx_check.conformance.records import Raised, Record, Shown
from dlx_check.conformance.structs import USED, VERSIONED
from dlx_check.conformance.target import Target
from dlx_check.errors import message_of, name_of

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
    order = type.__dict__["__mro__"].__get__(type(error))
    bases = tuple(name_of(base) for base in order[:-2])
    text = (message_of(error, BaseException).splitlines() or [""])[0]
    # Addresses, also those in memory that is not the tensor's.
    text = re.sub(r"\d{14,}", "...", re.sub(r"\b0x[0-9a-f]+", "0x...", text))
    return Raised(name_of(type(error)), bases, text[:300])


class Lab:
    """One target in one process, for one check after another."""

    def __init__(
        self,
        target: Target,
        step: Callable[[str], None],
        passed: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Call `step` with what is done next; let pass what a user raises here."""
        self.target, self.step, self.process = target, step, os.getpid()
        self._passed = passed
        self.unshown = ""
        """What `show` raised."""

    def ask(
        self, function: Callable[..., Any], *values: Any, **keywords: Any
    ) -> Answer:
        """Call the target: the one place where that happens."""
        try:
            answer = Answer(function(*values, **keywords))
        except self._passed:
            raise
        except BaseException as error:
            # Not by assignment, which its class may refuse.
            BaseException.with_traceback(error, None)
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

    def shown(self, tensor: Any) -> bytes | None:
        """Return the elements that the target shows, or None."""
        if self.target.show is None:
            return None
        answer = self.ask(self.part("show"), tensor)
        array = answer.value
        if answer.error is not None or array.dtype.hasobject:
            return None
        return bytes(np.ascontiguousarray(array).tobytes())

    def show(self, tensor: Any, memory: Memory) -> Shown | None:
        """Return what the target shows of a tensor that has elements of a probe."""
        if self.target.show is None:
            return None
        answer = self.ask(self.part("show"), tensor)
        if answer.raised is not None:
            self.unshown = f"{answer.raised.type}: {answer.raised.message}"
            return None
        array = np.asarray(answer.value)
        writable = None
        if self.target.writable is not None:
            said = self.ask(self.part("writable"), tensor).value
            writable = None if said is None else bool(said)
        values = str(array.reshape(-1)[:8].tolist())
        # A library may lack the dtype, and take another with the same numbers.
        equal = np.ascontiguousarray(array).tobytes() == memory.expected
        if not equal and memory.numbers is not None:
            same = memory.numbers.shape == array.shape
            equal = same and bool(np.array_equal(memory.numbers, array))
        return Shown(array.shape, str(array.dtype), values, equal, writable)


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


def fitting(tensor: Tensor, dimensions: int) -> Tensor:
    """Return the tensor with as many dimensions as the target has."""
    if not dimensions or len(tensor.shape) == dimensions:
        return tensor
    layout = (tensor.strides, tensor.extents, tensor.ndim)
    if tensor.shape and layout == (None, None, None):
        shape = (math.prod(tensor.shape), *[1] * (dimensions - 1))
        return replace(tensor, shape=shape)
    raise Untestable("no-such-tensor")


@dataclass(frozen=True)
class Import:
    """The target imports a probe, shows it, sees changes, and lets go of it."""

    tensor: Tensor = PLAIN
    keywords: tuple[tuple[str, Any], ...] = ()
    give: str = ""
    """"capsule" to give the capsule itself, "twice" to give it once more."""
    shows: bool = True
    """Whether elements may be read: not where the struct is malformed."""
    view: bool = False
    """Whether a view of the import outlives it."""
    on: int | None = None
    """The handle of the stream that the import is for."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        take = lab.part("take" if self.on is None else "take_on")
        keywords = dict(self.keywords)
        for name in keywords:
            if name not in lab.target.keywords:
                raise Untestable(f"not-asked: `take` has no keyword {name}")
        if "device" in keywords:
            if not lab.target.cpu:
                raise Untestable("not-asked: the target has no `cpu`")
            keywords["device"] = lab.target.value(lab.target.cpu)
        given = probe(fitting(self.tensor, lab.target.dimensions))
        what = given.dlpack(max_version=NEWEST) if self.give else given
        lab.step("imports the probe")
        words = [what] if self.on is None else [what, self.on]
        answer = lab.ask(take, *words, **keywords)
        del words
        if self.give == "twice":
            if answer.error is not None:
                raise Untestable("not-asked: the target takes no capsules")
            answer = lab.ask(take, what, **keywords)
        del what
        methods = {call.method for call in given.calls}
        for method, _ in self.tensor.raises:
            if method not in methods:
                raise Untestable(f"not-asked: {method} is not called")
        notes: dict[str, Any] = {}
        if given.capsules:
            names = [structs.capsule_name(each) for each in given.capsules]
            notes["used"] = all((name or "").startswith(USED) for name in names)
        memory = given.memory
        if not any(each.deleted for each in given.exports if each.memory is memory):
            notes["writes"] = memory.written
        given.capsules.clear()
        shown = None
        if answer.error is None:
            shown = self._look(lab, given, answer, notes)
        else:
            notes["same error"] = answer.error is given.error
        raised = answer.raised
        lab.step("lets go of what it imported")
        answer.value = answer.error = given.error = None
        idle = "deleter" in self.tensor.null or self.tensor.name
        expected = 0 if idle else 1
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
        self, lab: Lab, given: Probe, answer: Answer, notes: dict[str, Any]
    ) -> Shown | None:
        made = answer.value
        if lab.target.address is not None:
            where = lab.ask(lab.part("address"), made).value
            if isinstance(where, int):
                start = given.memory.address
                notes["shares"] = start <= where < start + given.memory.size
        notes["deleted while alive"] = [each.deleted for each in given.exports]
        if not self.shows:
            return None
        lab.step("shows what it imported")
        memory = given.memory
        shown = lab.show(made, memory)
        if shown is None:
            if self.tensor.packed_bits:
                raise Untestable("not-observable: the target shows no such elements")
            # Of float32 it can show; other dtypes NumPy may lack.
            plain = memory.named == "float32"
            notes["cannot be read" if plain else "not shown"] = lab.unshown
            return None
        if self.view:
            view = lab.ask(lab.part("view"), made)
            where = lab.ask(lab.part("address"), view.value).value
            if not isinstance(where, int):
                raise Untestable("not-observable: `view` makes none")
            start = memory.address
            notes["view shares"] = start <= where < start + memory.size
            answer.value = made = None
            gc.collect()
            notes["deleted under a view"] = [each.deleted for each in given.exports]
            view.value = None
            return shown
        if any(each.memory is memory for each in given.exports):
            before = memory.values()
            memory.change()
            lab.step("shows it after its owner has written")
            later = lab.show(made, memory)
            notes["follows"] = bool(later and later.equal) and before != memory.values()
            memory.change()
        if self.tensor.flags & structs.READ_ONLY:
            notes["exported"] = exported_flags(lab, made)
            notes["has read-only"] = "read-only" in lab.target.tensors
        if lab.target.write is not None and shown.shape and 0 not in shown.shape:
            before = memory.values()
            lab.step("writes to what it imported")
            if lab.ask(lab.part("write"), made, 0).error is None:
                notes["affects"] = memory.values() != before
        return shown


def exported_flags(lab: Lab, made: Any) -> int | None:
    """Return the flags of a further export, None if there is no versioned one."""
    answer = lab.ask(lambda: made.__dlpack__(max_version=NEWEST))
    if answer.error is not None or structs.capsule_name(answer.value) != VERSIONED:
        return None
    return int(structs.managed_in(answer.value, VERSIONED).flags)
