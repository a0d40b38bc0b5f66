"""Reproductions: programs of the target, NumPy and ctypes that show a deviation.

A program ends with an `AssertionError`, with the exception that the target should not
raise, or as the target ends it. A producer with one odd field is NumPy's own export
with that field overwritten, so nothing of dlx is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dlx_check.conformance import expect
from dlx_check.conformance.calling import Refusals, ToObject
from dlx_check.conformance.experiments import Import, Untestable, fitting
from dlx_check.conformance.exporting import Export, Kinds
from dlx_check.conformance.finalizing import Finalize
from dlx_check.conformance.interfacing import ArrowDevice
from dlx_check.conformance.probe import NEWEST, Tensor, known_to_numpy
from dlx_check.conformance.records import Record
from dlx_check.conformance.result import WRITES
from dlx_check.conformance.returning import spoken
from dlx_check.conformance.structs import DTYPES, UNVERSIONED, VERSIONED
from dlx_check.conformance.suite.row import Check

__all__ = ["Program", "programs"]

_INSIDE = "ctypes.c_void_p.from_address(id({}) + object.__basicsize__).value"
"""The pointer of a capsule, which lies behind the head of the object."""
_ENTRIES = {
    "managed_tensor_from_py_object_no_sync": 24,
    "managed_tensor_to_py_object_no_sync": 32,
    "dltensor_from_py_object_no_sync": 40,
}


_BACKWARDS = (-1,)


class NoProgram(Exception):
    """There is no short program for this deviation."""


@dataclass(frozen=True)
class Program:
    """A program, and how it ends while the deviation is there."""

    text: str
    ending: str
    """The name of an exception or of a signal, or "hangs"."""


def programs(
    check: Check, target: dict[str, Any], result: str, text: str, record: Record
) -> Iterator[Program]:
    """Give reproductions of a deviation, the likeliest first; there may be none.

    `target` has the fields of a `Target` that are expressions. A crash leaves no record
    of which generation of capsules was asked for, so there is a program for each.
    """
    records = [record]
    if result != "deviates" and not record.sent:
        records = [replace(record, sent=(name,)) for name in (VERSIONED, UNVERSIONED)]
    for each in records:
        try:
            lines, ending = _program(check, target, result, text, each)
        except (NoProgram, KeyError, Untestable):
            continue
        yield _whole(target, lines, ending)


def _whole(target: dict[str, Any], lines: list[str], ending: str) -> Program:
    """Put what a program imports before its lines."""
    first = "import numpy as np"
    if any("ctypes" in line for line in lines):
        first = "import ctypes, numpy as np"
    imports = target["imports"].splitlines()
    head = [first, *(each for each in imports if each != "import numpy as np")]
    if target.get("setup"):
        head.append(target["setup"])
    return Program("\n".join((*head, *lines)) + "\n", ending)


def _program(
    check: Check, target: dict[str, Any], result: str, text: str, record: Record
) -> tuple[list[str], str]:
    experiment: Any = check.experiment
    ending = "AssertionError"
    if result == "hangs":
        ending = "hangs"
    elif result == "crashes":
        ending = text.split()[0]
        if not ending.startswith("SIG"):
            raise NoProgram
    elif text.startswith("raises ") and record.raised:
        ending = record.raised.type
    wanted = ending if ending == "AssertionError" else ""
    if isinstance(experiment, Import):
        return _importing(experiment, target, text, record, wanted), ending
    if isinstance(experiment, Export):
        return _exporting(experiment, target, text, record, wanted), ending
    if isinstance(experiment, Kinds):
        kinds = target["cannot_export"]
        lines = [f"x = {kinds[_kind(kinds, text)]}"]
        keywords = spoken(target["profiles"], (("max_version", NEWEST),))
        lines.append(f"x.__dlpack__({_keywords(keywords)})")
        if text.startswith("raises "):
            return lines, text.split()[1]
        if result == "crashes":
            return lines, ending
        raise NoProgram
    if isinstance(experiment, Finalize) and experiment.then == "deleter":
        return _finalizing(target, record), record.notes["ended"]
    if isinstance(experiment, ArrowDevice) and record.notes.get("reserved"):
        return _reserved(target), ending
    return _tabled(experiment, target, text), ending


def _reserved(target: dict[str, Any]) -> list[str]:
    tensor = fitting(Tensor((6,)), target.get("dimensions", 0))
    return [
        f"x = {_function(target, 'make')}({_array(tensor)})",
        "c = ctypes.CDLL(None)",
        "c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]",
        "for p in [ctypes.memset(c.malloc(128), 90, 128) for _ in range(4)]: c.free(p)",
        "c = x.__arrow_c_device_array__()[1]",
        f"p = {_INSIDE.format('c')}",
        "reserved = ctypes.string_at(p + 104, 24)",
        "assert not any(reserved), reserved",
    ]


def _finalizing(target: dict[str, Any], record: Record) -> list[str]:
    deleter = 16 if record.notes["name"] == VERSIONED else 56
    tensor = fitting(Tensor(), target.get("dimensions", 0))
    return [
        f"x = {_function(target, 'make')}({_array(tensor)})",
        "c = x.__dlpack__(max_version=(1, 3))",
        f"p = {_INSIDE.format('c')}",
        "ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(c), b'used')",
        f"deleter = ctypes.c_void_p(ctypes.c_void_p.from_address(p + {deleter}).value)",
        "ctypes.CDLL(None).__cxa_atexit(deleter, ctypes.c_void_p(p), None)",
        "ctypes.pythonapi.Py_Exit(0)  # then C code deletes what it has consumed",
    ]


def _kind(kinds: dict[str, str], text: str) -> str:
    """Return the first kind that a sentence names."""
    found = [kind for kind in kinds if kind in text]
    if not found:
        raise NoProgram
    return min(found, key=text.index)


def _keywords(keywords: tuple[tuple[str, Any], ...]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in keywords)


def _array(tensor: Tensor) -> str:
    """Return NumPy code for the elements of a probe."""
    named = tensor.dtype if isinstance(tensor.dtype, str) else "float32"
    dtype = named if known_to_numpy(named) else f"uint{max(8, DTYPES[named][1])}"
    code = f"np.arange(1, {math.prod(tensor.shape) + 1}).astype(np.{dtype})"
    code = code.replace("np.bool", "bool")
    if tensor.strides == _BACKWARDS:
        code += "[::-1]"
    if len(tensor.shape) != 1:
        code += f".reshape({tensor.shape})"
    if tensor.off % 64 or tensor.packed_bits:
        raise NoProgram
    return code


def _edits(tensor: Tensor, versioned: bool) -> list[str]:
    """Return assignments to the fields of NumPy's struct that a probe has otherwise."""
    if tensor.strides not in (None, _BACKWARDS) or tensor.off or tensor.wild:
        raise NoProgram
    at = 32 if versioned else 0
    fields: list[tuple[int, str, Any, str]] = []
    plain = Tensor(tensor.shape)
    if versioned and tensor.version != NEWEST:
        fields.append((0, "uint32", tensor.version[0], "version.major"))
    if versioned and tensor.flags:
        fields.append((24, "uint64", tensor.flags, "flags"))
    if tensor.device != plain.device:
        fields.append((at + 8, "int32", tensor.device[0], "device_type"))
    if tensor.ndim is not None:
        fields.append((at + 16, "int32", tensor.ndim, "ndim"))
    if not isinstance(tensor.dtype, str) or not known_to_numpy(tensor.dtype):
        dtype = tensor.dtype
        code, bits, lanes = DTYPES[dtype] if isinstance(dtype, str) else dtype
        value = code | bits << 8 | lanes << 16
        fields.append((at + 20, "uint32", value, "dtype: lanes, bits, code"))
    null = {"data": at, "shape": at + 24, "strides": at + 32}
    null["deleter"] = 16 if versioned else 56
    if "context" in tensor.null:
        raise NoProgram  # NumPy's own deleter needs it
    for missing in tensor.null.split():
        fields.append((null[missing], "void_p", None, missing))
    found = [
        f"ctypes.c_{kind}.from_address(p + {offset}).value = {number}  # {field}"
        for offset, kind, number, field in fields
    ]
    if tensor.byte_offset:
        word, moved = "ctypes.c_uint64.from_address(p + {}).value", tensor.byte_offset
        found.append(f"{word.format(at + 40)} += {moved}  # byte_offset")
        found.append(f"{word.format(at)} -= {moved}  # data")
    if tensor.extents:
        array = f"ctypes.c_int64 * {len(tensor.extents)}"
        shape = f"ctypes.c_void_p.from_address(p + {at + 24}).value"
        found.append(
            f"({array}).from_address({shape})[:] = {[*tensor.extents]}  # shape"
        )
    return found


def _producer(tensor: Tensor, versioned: bool, copying: bool = False) -> list[str]:
    """Return a class that exports as the probe did, or nothing if an array does.

    With `copying` it is asked for copies: then it obeys, as the probe does.
    """
    edits = _edits(tensor, versioned)
    odd = tensor.old or tensor.missing or tensor.raises or tensor.generation
    if tensor.name or tensor.table:
        raise NoProgram
    if not edits and not odd and tensor.copies:
        return []
    given = "max_version=(1, 3)" if versioned else ""
    lines = []
    if edits:
        lines = [f"c = a.__dlpack__({given})", f"p = {_INSIDE.format('c')}", *edits]
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


def _function(target: dict[str, Any], name: str) -> str:
    """Return the expression of a function of the target, to be called."""
    text: str = target[name]
    return f"({text})" if text.startswith("lambda") else text


def _importing(
    experiment: Import,
    target: dict[str, Any],
    text: str,
    record: Record,
    wanted: str,
) -> list[str]:
    if text.startswith("passes stream="):
        return _asking(experiment, target, text.partition("=")[2])
    if experiment.view or experiment.give == "twice" or experiment.on is not None:
        raise NoProgram
    tensor = fitting(experiment.tensor, target.get("dimensions", 0))
    versioned = bool(record.sent) and record.sent[0] == VERSIONED
    if not record.sent:
        versioned = bool(tensor.generation != "unversioned")
    lines = [f"a = {_array(tensor)}"]
    if not wanted and tensor.null:
        # Some libraries share only what is aligned.
        lines = [f"a = {_aligned(tensor)}"]
    keywords = dict(experiment.keywords)
    producer = _producer(tensor, versioned, keywords.get("copy") is True)
    lines += producer
    take = _function(target, "take")
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
        return [*lines, f"x = {call}", f"{_function(target, 'show')}(x)", "del x"]
    if text == "raises nothing":
        return [*lines, f"try: {call}", *_REFUSED]
    address, show = _function(target, "address"), _function(target, "show")
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
    call = f"{_function(target, 'take')}(P())"
    if experiment.on is not None:
        call = f"{_function(target, 'take_on')}(P(), {experiment.on})"
    elif experiment.keywords:
        call = f"{_function(target, 'take')}(P(), device={target['cpu']})"
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
    return _array(tensor)


def _exporting(
    experiment: Export,
    target: dict[str, Any],
    text: str,
    record: Record,
    wanted: str,
) -> list[str]:
    if experiment.kind:
        lines = [f"x = {target['tensors'][experiment.kind]}"]
    elif experiment.then == "free":
        make = _function(target, "make")
        lines = [f"x = {make}(np.ones(10 << 20, np.float32))"]
    else:
        make = _function(target, "make")
        tensor = Tensor(experiment.shape, experiment.dtype)
        tensor = fitting(tensor, target.get("dimensions", 0))
        lines = [f"x = {make}({_array(tensor)})"]
    keywords = spoken(target["profiles"], experiment.keywords)
    call = f"x.__dlpack__({_keywords(keywords)})"
    lines.append(f"c = {call}")
    if not wanted:
        return lines
    asked = dict(keywords)
    newest = (asked.get("max_version") or (0, 0))[0] >= 1
    if record.struct is not None:
        newest = record.struct.name == VERSIONED
    at = 32 if newest else 0
    if text == "raises nothing":
        return [*lines[:-1], f"try: {call}", *_REFUSED]
    if text.startswith("returns dltensor"):
        return [*lines, "assert '\"dltensor_versioned\"' in repr(c), c"]
    lines.append(f"p = {_INSIDE.format('c')}")
    for bit, flag in ((1, "READ_ONLY"), (2, "IS_COPIED")):
        if f"{flag} is not set" in text:
            flags = "flags = ctypes.c_uint64.from_address(p + 24).value"
            return [*lines, flags, f"assert flags & {bit}, 'no {flag}'"]
    if text.startswith("dtype is"):
        code, bits, lanes = DTYPES[experiment.dtype]
        return [
            *lines,
            f"dtype = ctypes.c_uint32.from_address(p + {at + 20}).value",
            f"assert dtype == {code | bits << 8 | lanes << 16:#x}, hex(dtype)"
            "  # lanes, bits, code",
        ]
    data = f"ctypes.c_void_p.from_address(p + {at}).value"
    if text == "data is not NULL":
        return [*lines, f"assert not {data}, 'data of a tensor without elements'"]
    if text == "shares memory":
        address = _function(target, "address")
        return [*lines, f"assert {data} != {address}(x), 'shared'"]
    if text.startswith(("exports other elements", "strides count")):
        show = _function(target, "show")
        both = f"exported, own = np.from_dlpack(x), {show}(x)"
        equal = "assert np.array_equal(exported, own), (exported, own)"
        return [*lines[:-2], both, equal]
    if text.startswith("its shape changes"):
        shape = f"ctypes.c_void_p.from_address(p + {at + 24}).value"
        return [
            *lines,
            f"shape = (ctypes.c_int64 * 2).from_address({shape})",
            target["change"],
            "assert [*shape] == [2, 3], [*shape]",
        ]
    if experiment.then == "free":
        return [
            *lines,
            f"data = {data}",
            f"y = {make}(np.zeros(1, np.float32))",
            target["free"],
            "import os; r, w = os.pipe()  # the kernel refuses memory that is gone",
            "gone = ctypes.CDLL(None).write(w, ctypes.c_void_p(data), 1) != 1",
            "assert not gone, 'freed under its consumer'",
        ]
    raise NoProgram


_REFUSED = [
    "except Exception: pass",
    'else: raise AssertionError("it is not refused")',
]


def _tabled(experiment: Any, target: dict[str, Any], text: str) -> list[str]:
    capsule = f"{target['type']}.__dlpack_c_exchange_api__"
    lines = [f"api = {_INSIDE.format(capsule)}"]

    def function(name: str, first: str) -> str:
        made = f"ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.{first}, ctypes.c_void_p)"
        address = f"ctypes.c_void_p.from_address(api + {_ENTRIES[name]}).value"
        return f"function = {made}(\n    {address})"

    if isinstance(experiment, Refusals):
        lines.append(function(experiment.entry, "py_object"))
        which = _kind(target["cannot_export"], text) if "exports " in text else ""
        if text.startswith("raises "):
            error, _, which = text.removeprefix("raises ").split(",")[0].partition(" ")
            which = which.removeprefix("for ")
        x = target["cannot_export"][which]
        lines += [f"x = {x}", "out = (ctypes.c_void_p * 8)()"]
        if text.startswith("raises "):
            return [*lines, f"try: function(x, out)\nexcept {error}: assert False"]
        return [*lines, "code = function(x, out)", "assert code != 0, 'exported'"]
    if isinstance(experiment, ToObject):
        lines.append(function("managed_tensor_to_py_object_no_sync", "c_void_p"))
        edits = [line.strip() for line in _edits(experiment.tensor, True)]
        lines.append("c = np.ones(6, np.float32).__dlpack__(max_version=(1, 3))")
        lines.append("ctypes.pythonapi.Py_IncRef(ctypes.py_object(c))  # never deletes")
        lines += [f"p = {_INSIDE.format('c')}", *edits]
        lines += ["out = ctypes.c_void_p()", "code = function(p, ctypes.byref(out))"]
        if text == "returns 0":
            return [*lines, "assert code != 0, 'it is accepted'"]
        if "without an exception" in text:
            return [*lines, "assert code == 0, 'no exception with this code'"]
    raise NoProgram
