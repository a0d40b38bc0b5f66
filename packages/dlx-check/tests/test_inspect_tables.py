"""`dlx.inspect`: exchange tables, and how their exports differ from `__dlpack__`."""

from __future__ import annotations

import ctypes
from ctypes import addressof, c_void_p
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import (
    for_ever,
)
from support.fake_producers import (
    Claiming,
    Producer,
    c_function,
)
from support.fake_table import table_class
from support.optional_libraries import requires


def test_a_type_shows_its_table() -> None:
    made = table_class(minor=9)
    found = dlx.inspect(made)
    assert found.table is not None
    assert found.table.location.address == addressof(made.table)
    assert found.table.version == (1, 9)
    assert found.tensor is None


def test_a_capsule_shows_its_table() -> None:
    found = dlx.inspect(dlx.Tensor.__dlpack_c_exchange_api__)
    of_type = dlx.inspect(dlx.Tensor)
    assert found.table is not None
    assert of_type.table is not None
    assert found.table.functions == of_type.table.functions


def test_older_tables_are_shown() -> None:
    """R119."""
    from support.fake_table import new_table

    oldest = new_table(minor=1)
    older = new_table(minor=2, prev=oldest)
    table = dlx.inspect(table_class(prev=older)).table
    assert table is not None
    assert table.previous is not None
    assert table.previous.previous is not None
    assert table.previous.previous.version == (1, 1)
    assert table.previous.previous.previous is None


def test_a_chain_that_leads_back_ends() -> None:
    made = table_class()
    made.table.header.prev_api = ctypes.pointer(made.table.header)
    table = dlx.inspect(made).table
    assert table is not None
    assert table.prev_api.address == addressof(made.table)
    assert table.previous is None


def test_an_integer_is_no_table() -> None:
    class Numbered:
        __dlpack_c_exchange_api__ = 4096

    assert dlx.inspect(Numbered()).table is None


def test_equal_exports_differ_in_nothing() -> None:
    found = dlx.inspect(dlx.from_dlpack(np.zeros(3)))
    assert found.differences == ()
    assert "nothing between table and __dlpack__" in repr(found)


def test_one_way_out_has_nothing_to_differ_from() -> None:
    assert dlx.inspect(np.zeros(3)).differences is None


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"byte_offset": 4}, "first element"),
        ({"shape": (3, 2)}, "shape: managed_tensor_from_py_object_no_sync (3, 2)"),
        ({"strides": (1, 2)}, "strides"),
        ({"strides": None}, "strides"),
        ({"shape": (6,)}, "ndim"),
        ({"dtype": (0, 32, 1)}, "dtype: managed_tensor_from_py_object_no_sync int"),
        ({"device": (3, 0)}, "device: managed_tensor_from_py_object_no_sync"),
        ({"flags": 1}, "flags: managed_tensor_from_py_object_no_sync READ_ONLY"),
    ],
)
def test_a_field_that_differs_is_named(changed: dict[str, Any], line: str) -> None:
    def export(producer: Producer, out: int) -> int:
        other = for_ever(Producer(memory=producer.memory, **changed))
        c_void_p.from_address(out).value = other.export()
        return 0

    x = table_class(
        managed_tensor_from_py_object_no_sync=export,
        dltensor_from_py_object_no_sync=None,
    )()
    differences = dlx.inspect(x).differences
    assert differences is not None
    assert any(each.startswith(line) for each in differences)


def test_a_table_that_exports_what_dlpack_refuses_differs() -> None:
    torch = requires("torch")
    x = torch.ones(3, dtype=torch.complex64).conj()
    [line] = dlx.inspect(x).differences or ()
    assert "exports it, __dlpack__ raises BufferError" in line


def test_a_table_that_refuses_what_dlpack_exports_differs() -> None:
    x = table_class(
        managed_tensor_from_py_object_no_sync=c_function("fail_with_buffer_error")
    )()
    differences = dlx.inspect(x).differences
    assert differences is not None
    assert any("__dlpack__ exports it" in each for each in differences)


def test_a_failure_without_an_exception_is_said_to_be_one() -> None:
    """R123."""
    x = table_class(
        managed_tensor_from_py_object_no_sync=c_function("fail_without_exception")
    )()
    assert "returns -1 and sets no exception" in repr(dlx.inspect(x))


def test_success_without_a_tensor_is_said_to_be_one() -> None:
    x = table_class(
        managed_tensor_from_py_object_no_sync=c_function("succeed_with_null")
    )()
    assert "returns 0 and no tensor" in repr(dlx.inspect(x))


def test_a_device_other_than_that_of_the_tensor_is_named() -> None:
    """R64."""
    x = Claiming(device=(3, 0))
    assert dlx.inspect(x).differences == (
        "device: __dlpack_device__ cpu, __dlpack__ cuda_host:0",
    )
