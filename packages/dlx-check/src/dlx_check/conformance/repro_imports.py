"""Reproductions of what a target does wrong when it imports."""

from __future__ import annotations

from typing import Any

from dlx_check.conformance import expect
from dlx_check.conformance.experiments import Import, fitting
from dlx_check.conformance.probe import Tensor
from dlx_check.conformance.records import Record
from dlx_check.conformance.repro_code import (
    INSIDE,
    REFUSED,
    NoProgram,
    array_of,
    edits_of,
    function_of,
)
from dlx_check.conformance.result import WRITES
from dlx_check.conformance.structs import VERSIONED

__all__ = ["importing"]


def importing(
    experiment: Import,
    target: dict[str, Any],
    text: str,
    record: Record,
    wanted: str,
) -> list[str]:
    """Return the lines of an import that ends as it should not; raise `NoProgram`."""
    if text.startswith("passes stream="):
        return _asking(experiment, target, text.partition("=")[2])
    if experiment.view or experiment.give == "twice" or experiment.on is not None:
        raise NoProgram
    tensor = fitting(experiment.tensor, target.get("dimensions", 0))
    versioned = bool(record.sent) and record.sent[0] == VERSIONED
    if not record.sent:
        versioned = bool(tensor.generation != "unversioned")
    lines = [f"a = {array_of(tensor)}"]
    if not wanted and tensor.null:
        # Some libraries share only what is aligned.
        lines = [f"a = {_aligned(tensor)}"]
    keywords = dict(experiment.keywords)
    producer = _producer(tensor, versioned, keywords.get("copy") is True)
    lines += producer
    take = function_of(target, "take")
    what = "P()" if producer else "a"
    if experiment.give:
        what += ".__dlpack__(max_version=(1, 3))"
    spelled = [f"{name}={value!r}" for name, value in keywords.items()]
    if keywords.get("device"):
        spelled = [f"device={target['cpu']}"]
    call = f"{take}({', '.join((what, *spelled))})"
    if not wanted:
        if record.raised:
            return [*lines, call]
        return [*lines, f"x = {call}", f"{function_of(target, 'show')}(x)", "del x"]
    if text == "raises nothing":
        return [*lines, f"try: {call}", *REFUSED]
    address, show = function_of(target, "address"), function_of(target, "show")
    if text.startswith("shares memory: the address"):
        lines = [f"a = {_aligned(tensor)}", *lines[1:], f"x = {call}"]
        inside = "0 <= {0} - a.ctypes.data < a.nbytes"
        return [*lines, f"assert not {inside.format(f'{address}(x)')}, 'shared'"]
    if text.startswith("shares memory"):
        lines += [f"x = {call}", "a[...] = 0"]
        return [*lines, f"assert {show}(x).any(), 'a write to the source is seen'"]
    if text == "leaves the name":
        given = "max_version=(1, 3)" if versioned else ""
        return [
            f"c = np.ones(6, np.float32).__dlpack__({given})",
            "class P:",
            "    def __dlpack_device__(self): return (1, 0)",
            "    def __dlpack__(self, **keywords): return c",
            f"x = {take}(P())",
            "assert 'used_' in repr(c), 'it may be consumed again'",
        ]
    if text.startswith("is accepted and cannot be read"):
        return [
            *lines,
            f"x = {call}",
            f"try: {show}(x)",
            "except Exception as error: assert False, error",
        ]
    if text == WRITES:
        lines += ["own = a.copy()", f"x = {call}"]
        return [*lines, "assert np.array_equal(a, own), a"]
    if text.startswith("shows ") and not isinstance(tensor.dtype, str):
        raise NoProgram  # NumPy cannot say what is right
    if text.startswith("shows ") and expect.freed(record.notes):
        raise NoProgram  # NumPy's memory outlives what its deleter ends
    if text.startswith("shows "):
        # The import may write to what it shares.
        lines += ["own = a.copy()", f"x = {call}"]
        return [*lines, f"assert np.array_equal({show}(x), own), {show}(x)"]
    if text.startswith("first calls __dlpack__"):
        return [
            *lines,
            "class P:",
            "    def __dlpack_device__(self): return (1, 0)",
            "    def __dlpack__(self, **keywords):",
            "        assert 'max_version' in keywords, keywords",
            "        return a.__dlpack__(**keywords)",
            f"{take}(P())",
        ]
    raise NoProgram


def _asking(experiment: Import, target: dict[str, Any], passed: str) -> list[str]:
    """Return a program whose producer refuses, and does not want this stream."""
    call = f"{function_of(target, 'take')}(P())"
    if experiment.on is not None:
        call = f"{function_of(target, 'take_on')}(P(), {experiment.on})"
    elif experiment.keywords:
        call = f"{function_of(target, 'take')}(P(), device={target['cpu']})"
    return [
        "class P:",
        f"    def __dlpack_device__(self): return {experiment.tensor.device}",
        "    def __dlpack__(self, **keywords):",
        f"        assert repr(keywords.get('stream')) != '{passed}', keywords",
        "        raise BufferError('asked as it should be')",
        call,
    ]


def _aligned(tensor: Tensor) -> str:
    """Return NumPy code for elements at a multiple of 256, as a probe has them."""
    if isinstance(tensor.dtype, str) and tensor.dtype == "float32" and not tensor.off:
        return "(m := np.ones(99, 'f4'))[-m.ctypes.data % 256 // 4:][:6]"
    return array_of(tensor)


def _producer(tensor: Tensor, versioned: bool, copying: bool = False) -> list[str]:
    """Return a class that exports as the probe did, or nothing if an array does.

    With `copying` it is asked for copies: then it obeys, as the probe does.
    """
    edits = edits_of(tensor, versioned)
    odd = tensor.old or tensor.missing or tensor.raises or tensor.generation
    if tensor.name or tensor.table:
        raise NoProgram
    if not edits and not odd and tensor.copies:
        return []
    given = "max_version=(1, 3)" if versioned else ""
    lines = []
    if edits:
        lines = [f"c = a.__dlpack__({given})", f"p = {INSIDE.format('c')}", *edits]
    lines.append("class P:")
    missing, raises = tensor.missing.split(), dict(tensor.raises)
    place = f"return {tensor.device}"
    if "__dlpack_device__" in raises:
        place = f"raise {raises['__dlpack_device__']}"
    if "__dlpack_device__" not in missing:
        lines.append(f"    def __dlpack_device__(self): {place}")
    if "__dlpack__" not in missing:
        keywords = "stream=None" if tensor.old else "**keywords"
        answer = "return c" if edits else f"return a.__dlpack__({given})"
        before = []
        if copying and not tensor.old:
            keywords = "copy=None, **keywords"
            copied = f"a.__dlpack__({given}{', ' * versioned}copy=copy)"
            if not tensor.copies:
                before = ["        if copy: raise BufferError"]
            elif edits:
                answer = f"return {copied} if copy else c"
            else:
                answer = f"return {copied}"
        if "__dlpack__" in raises:
            answer = f"raise {raises['__dlpack__']}"
        lines.append(f"    def __dlpack__(self, {keywords}):")
        if before:
            lines += [*before, f"        {answer}"]
        else:
            lines[-1] += f" {answer}"
    if lines[-1] == "class P:":
        lines.append("    pass")
    return lines
