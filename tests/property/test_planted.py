"""The property finds planted faults, and says where a process ended."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import dlx
import numpy as np
import pytest
from interop.cases import elements
from interop.making import frozen
from support.dlpack_abi import (
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLPackManagedTensorFromPyObjectNoSync,
    table_of,
)

from . import ways
from .listed import Known, problems
from .look import Difference, compared, looked, wrote
from .run import Report, run
from .said import of_numpy
from .ways import SAME
from .word import word_of

Spoil = Callable[[dlx.Tensor], dict[str, Any]]

FAULTS: dict[str, Spoil] = {
    "flags": lambda tensor: {"readonly": not tensor.readonly},
    "strides": lambda tensor: {"strides": tensor.strides[::-1]},
    "address": lambda tensor: {"pointer": tensor.data_ptr + 4},
    "dtype": lambda tensor: {"dtype": "int32"},
    "shape": lambda tensor: {"shape": (tensor.shape[0] - 1, *tensor.shape[1:])},
}
"""What a field is replaced by."""


def differences(x: Any, *names: str) -> set[tuple[str, str]]:
    """Look at an object by ways; return each way and the field that differs."""
    chosen = {name: ways.WAYS[name] for name in names}
    seen = [each for each in looked("x", x, word_of(x), chosen) if each is not None]
    return {(each.way, each.text.partition(":")[0]) for each in seen}


def spoiled(fault: str) -> Callable[..., dlx.Tensor]:
    """Return a `dlx.from_dlpack` with a fault."""
    real = dlx.from_dlpack

    def from_dlpack(x: Any, **keywords: Any) -> dlx.Tensor:
        tensor = real(x, **keywords)
        told: dict[str, Any] = {
            "pointer": tensor.data_ptr,
            "shape": tensor.shape,
            "dtype": tensor.dtype,
            "strides": tensor.strides,
            "readonly": tensor.readonly,
        } | FAULTS[fault](tensor)
        return dlx.from_pointer(
            told.pop("pointer"), told.pop("shape"), told.pop("dtype"), **told, owner=x
        )

    return from_dlpack


def test_nothing_differs_without_a_fault() -> None:
    assert differences(elements(), *ways.WAYS, *()) == set()


@pytest.mark.parametrize("make", [elements, lambda: frozen(elements())], ids=["", "ro"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_field_is_found(
    fault: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlx, "from_dlpack", spoiled(fault))
    assert differences(make(), "from_dlpack") == {("from_dlpack", fault)}


def test_a_table_that_drops_flags_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def without_flags(source: Any) -> DLPackExchangeAPI:
        """Return a copy of a table whose export loses READ_ONLY."""
        real = table_of(source)
        table = DLPackExchangeAPI.from_buffer_copy(real)

        def export(x: Any, out: int) -> int:
            code: int = real.managed_tensor_from_py_object_no_sync(x, out)
            address = ctypes.c_void_p.from_address(out).value
            DLManagedTensorVersioned.from_address(address or 0).flags = 0
            return code

        kept.append(DLPackManagedTensorFromPyObjectNoSync(export))
        table.managed_tensor_from_py_object_no_sync = kept[-1]
        return table

    monkeypatch.setattr(ways, "table_of", without_flags)
    found = differences(frozen(elements()), "from_dlpack", "mixin-table")
    assert found == {("mixin-table", "flags")}


@pytest.mark.parametrize("kind", [BufferError, ValueError])
def test_a_refusal_of_what_the_library_exports_is_found(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(x: Any) -> None:
        raise kind("no")

    monkeypatch.setattr(dlx, "from_dlpack", refuse)
    assert differences(elements(), "from_dlpack") == {("from_dlpack", kind.__name__)}


def test_a_write_to_protected_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlx, "borrow", lambda out: nullcontext())
    x = frozen(elements())
    found = [each for each in wrote("x", x, word_of(x), lambda way: None) if each]
    assert found == [Difference("x", "out", "writable memory of what is READ_ONLY")]


def test_a_masked_array_that_is_given_is_found() -> None:
    masked: Any = elements().view(type("Masked", (np.ndarray,), {}))
    masked.mask = np.array([True])
    said = of_numpy(np.asarray(masked))
    assert compared(said, word_of(masked), SAME) == [
        "given, although elements are masked"
    ]


ROW = Known("numpy", "a b", "export numpy", "flags: ", "a reason")
LISTED = tuple(
    Difference(name, way, "flags: none | READ_ONLY")
    for name in ("a", "b")
    for way in ("export", "numpy")
)


def test_what_is_listed_is_no_problem() -> None:
    assert problems(Report("numpy", ("a", "b", "c"), 9, LISTED), [ROW]) == []


def test_what_is_not_listed_is_a_problem() -> None:
    report = Report(
        "numpy", ("a", "b"), 9, (*LISTED, Difference("b", "tree", "flags: "))
    )
    (head, text) = problems(report, [ROW])
    assert head == "is not listed:"
    assert " ".join(text.split()) == "1 x flags: ways: tree objects: b"


def test_what_is_listed_and_not_seen_any_more_is_a_problem() -> None:
    report = Report("numpy", ("a", "b"), 9, LISTED[1:])
    (head, line) = problems(report, [ROW])
    assert head == "is listed, and not seen any more:"
    assert "by export: flags: , of a (a reason)" in line


def test_a_listed_object_that_is_not_made_is_a_problem() -> None:
    report = Report("numpy", ("a",), 9, LISTED[:2])
    assert "there is no object b (a reason)" in problems(report, [ROW])[1]


@pytest.mark.parametrize(("on", "applies"), [("numpy>=1", True), ("numpy<1", False)])
def test_a_row_of_other_versions_is_left_out(on: str, applies: bool) -> None:
    assert ROW._replace(on=on).applies() is applies


def test_a_crash_is_reported_with_what_was_looked_at() -> None:
    crash = (
        "import ctypes; from property import ways; "
        "ways.WAYS['buffer'] = ways.Way(lambda x: ctypes.memset(8, 0, 1))"
    )
    ended = run("stdlib", before=crash).ended
    assert "ended with -11 at bytes-uint8, way buffer" in ended
    assert "look.py" in ended


def test_a_process_that_hangs_is_ended() -> None:
    report = run("stdlib", before="import time; time.sleep(1000)", seconds=1)
    assert report.ended.startswith("its process did not end in 1 s at ")
