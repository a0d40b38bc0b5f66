"""Reproductions of what a target does wrong when it exports, and in its table."""

from __future__ import annotations

from typing import Any

from dlx_check.conformance.calling import Refusals, ToObject
from dlx_check.conformance.experiments import fitting
from dlx_check.conformance.exporting import Export
from dlx_check.conformance.leaking import LARGE, Returned, spoken
from dlx_check.conformance.probe import Tensor
from dlx_check.conformance.records import Record
from dlx_check.conformance.repro_code import (
    INSIDE,
    REFUSED,
    NoProgram,
    array_of,
    edits_of,
    function_of,
    kind_in,
    spelled,
)
from dlx_check.conformance.structs import DTYPES, VERSIONED

__all__ = ["exporting", "finalizing", "reserved", "returned", "tabled"]

_ENTRIES = {
    "managed_tensor_from_py_object_no_sync": 24,
    "managed_tensor_to_py_object_no_sync": 32,
    "dltensor_from_py_object_no_sync": 40,
}


def exporting(
    experiment: Export,
    target: dict[str, Any],
    text: str,
    record: Record,
    wanted: str,
) -> list[str]:
    """Return the lines of an export that ends as it should not; raise `NoProgram`."""
    if experiment.kind:
        lines = [f"x = {target['tensors'][experiment.kind]}"]
    elif experiment.then == "free":
        make = function_of(target, "make")
        lines = [f"x = {make}(np.ones(10 << 20, np.float32))"]
    else:
        make = function_of(target, "make")
        tensor = Tensor(experiment.shape, experiment.dtype)
        tensor = fitting(tensor, target.get("dimensions", 0))
        lines = [f"x = {make}({array_of(tensor)})"]
    keywords = spoken(target["profiles"], experiment.keywords)
    call = f"x.__dlpack__({spelled(keywords)})"
    lines.append(f"c = {call}")
    if not wanted:
        return lines
    asked = dict(keywords)
    newest = (asked.get("max_version") or (0, 0))[0] >= 1
    if record.struct is not None:
        newest = record.struct.name == VERSIONED
    at = 32 if newest else 0
    if text == "raises nothing":
        return [*lines[:-1], f"try: {call}", *REFUSED]
    if text.startswith("returns dltensor"):
        return [*lines, "assert '\"dltensor_versioned\"' in repr(c), c"]
    lines.append(f"p = {INSIDE.format('c')}")
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
        address = function_of(target, "address")
        return [*lines, f"assert {data} != {address}(x), 'shared'"]
    if text.startswith(("exports other elements", "strides count")):
        show = function_of(target, "show")
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
    if experiment.then == "forget":
        zeros = f"np.zeros({tensor.shape}, np.float32)"
        return [
            *lines,
            f"data = {data}",
            "del x; import gc; gc.collect()",
            f"y = [{make}({zeros}) for _ in range(10)]  # one takes its place",
            "left = [*(ctypes.c_float * 6).from_address(data)]",
            "assert left == [1, 2, 3, 4, 5, 6], left",
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


def returned(experiment: Returned, target: dict[str, Any]) -> list[str]:
    """Return lines that count what stays of large exports."""
    tensor = fitting(Tensor((LARGE,)), target.get("dimensions", 0))
    make = f"x = {function_of(target, 'make')}(np.zeros({tensor.shape}, np.float32))"
    keywords = spoken(target["profiles"], experiment.keywords)
    copies = bool(dict(keywords).get("copy"))
    mapped = "int(open('/proc/self/statm').read().split()[0]) * mmap.PAGESIZE"
    return [
        "import gc, mmap",
        *[make] * copies,
        "for n in range(4):",
        *[f"    {make}"] * (not copies),
        f"    c = x.__dlpack__({spelled(keywords)})",
        f"    del c{'' if copies else ', x'}; gc.collect()",
        f"    mapped = {mapped}",
        "    if n == 0: before = mapped",
        "kept = mapped - before >> 20",
        "assert kept < 60, f'{kept} MiB stay of three exports'",
    ]


def reserved(target: dict[str, Any]) -> list[str]:
    """Return lines that read what no export of Arrow may leave."""
    tensor = fitting(Tensor((6,)), target.get("dimensions", 0))
    return [
        f"x = {function_of(target, 'make')}({array_of(tensor)})",
        "c = ctypes.CDLL(None)",
        "c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]",
        "for p in [ctypes.memset(c.malloc(128), 90, 128) for _ in range(4)]: c.free(p)",
        "c = x.__arrow_c_device_array__()[1]",
        f"p = {INSIDE.format('c')}",
        "reserved = ctypes.string_at(p + 104, 24)",
        "assert not any(reserved), reserved",
    ]


def finalizing(target: dict[str, Any], record: Record) -> list[str]:
    """Return lines whose deleter is called when the interpreter has ended."""
    deleter = 16 if record.notes["name"] == VERSIONED else 56
    tensor = fitting(Tensor(), target.get("dimensions", 0))
    return [
        f"x = {function_of(target, 'make')}({array_of(tensor)})",
        "c = x.__dlpack__(max_version=(1, 3))",
        f"p = {INSIDE.format('c')}",
        "ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(c), b'used')",
        f"deleter = ctypes.c_void_p(ctypes.c_void_p.from_address(p + {deleter}).value)",
        "ctypes.CDLL(None).__cxa_atexit(deleter, ctypes.c_void_p(p), None)",
        "ctypes.pythonapi.Py_Exit(0)  # then C code deletes what it has consumed",
    ]


def tabled(experiment: Any, target: dict[str, Any], text: str) -> list[str]:
    """Return the lines of a call of a table's function; raise `NoProgram`."""
    capsule = f"{target['type']}.__dlpack_c_exchange_api__"
    lines = [f"api = {INSIDE.format(capsule)}"]

    def function(name: str, first: str) -> str:
        made = f"ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.{first}, ctypes.c_void_p)"
        address = f"ctypes.c_void_p.from_address(api + {_ENTRIES[name]}).value"
        return f"function = {made}(\n    {address})"

    if isinstance(experiment, Refusals):
        lines.append(function(experiment.entry, "py_object"))
        which = kind_in(target["cannot_export"], text) if "exports " in text else ""
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
        edits = [line.strip() for line in edits_of(experiment.tensor, True)]
        lines.append("c = np.ones(6, np.float32).__dlpack__(max_version=(1, 3))")
        lines.append("ctypes.pythonapi.Py_IncRef(ctypes.py_object(c))  # never deletes")
        lines += [f"p = {INSIDE.format('c')}", *edits]
        lines += ["out = ctypes.c_void_p()", "code = function(p, ctypes.byref(out))"]
        if text == "returns 0":
            return [*lines, "assert code != 0, 'it is accepted'"]
        if "without an exception" in text:
            return [*lines, "assert code == 0, 'no exception with this code'"]
    raise NoProgram
