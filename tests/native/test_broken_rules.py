"""Tables and classes that break the rules: they are named, and nothing is leaked."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any

import numpy as np
import pytest
from support.dlpack_abi import table_of, take_reference
from support.fake_producers import Producer, c_function
from support.fake_table import hand_out, table_class

FROM_PY = "managed_tensor_from_py_object_no_sync"
LEND = "dltensor_from_py_object_no_sync"
TO_PY = "managed_tensor_to_py_object_no_sync"
SILENT = c_function("fail_without_exception")


def broken(**entries: Any) -> Any:
    """Make an object whose table has these entries."""
    return table_class(**entries)()


def without_method(**entries: Any) -> Any:
    """Make an object of a class that has a table, and no `__dlpack__` at all."""

    class Own:
        __dlpack_c_exchange_api__ = table_class(**entries).__dlpack_c_exchange_api__

    return Own()


def test_a_stream_that_is_not_told_is_an_error(image: Any) -> None:
    """R139: what was taken before is released."""
    x = table_class(current_work_stream=SILENT)(device=(2, 0))
    for take in (image.look, lambda x: image.look(x, 1)):
        with pytest.raises(BufferError, match=r"table of .* failed without an exc"):
            take(x)
    assert x.deleted == len(x.exports) == 1


@pytest.mark.parametrize("how", ["fail_with_buffer_error", "fail_with_value_error"])
def test_what_a_table_says_stays_where_there_is_no_method(image: Any, how: str) -> None:
    """R60, R147: nobody else can be asked."""
    for lend in (None, c_function(how)):
        x = without_method(**{FROM_PY: c_function(how), LEND: lend})
        with pytest.raises((BufferError, ValueError), match=r"^fake .* error$"):
            image.look(x)


def test_a_table_that_says_nothing_is_named(image: Any) -> None:
    """R123: it fails, or makes no tensor."""
    for how in ("fail_without_exception", "succeed_with_null"):
        x = without_method(**{FROM_PY: c_function(how), LEND: None})
        with pytest.raises(BufferError, match=r"Own.* failed without an exc"):
            image.look(x)


def test_a_table_without_its_export_is_no_table(image: Any) -> None:
    """R121: the entry is required; the method is asked."""
    x = broken(**{FROM_PY: None})
    for take in (image.look, lambda x: image.look(x, 1)):
        take(x)
    assert x.called == ["__dlpack__", "__dlpack__"]


def test_an_exception_beside_a_success_is_not_lost(image: Any) -> None:
    """CPython names the function that broke the rule; the tensor is deleted."""
    source = Producer()
    hand_out(source.export())
    with pytest.raises(SystemError, match="with an exception set") as caught:
        image.look(broken(**{FROM_PY: c_function("succeed_with_exception")}), 1)
    assert "after success" in str(caught.value.__cause__)
    assert source.deleted == 1


@pytest.mark.parametrize("how", ["succeed_with_null", "delete_and_succeed_with_null"])
def test_a_library_that_makes_nothing_of_a_result_is_named(
    image: Any, how: str
) -> None:
    """R131: the tensor is deleted, once."""
    source = Producer()
    with pytest.raises(BufferError, match="failed without an exception"):
        image.import_like(source, broken(**{TO_PY: c_function(how)}))
    assert source.deleted == 1


def test_an_allocator_that_gives_nothing_is_named(image: Any) -> None:
    """R134: also if it says that it succeeded."""
    x = broken(managed_tensor_allocator=lambda *_: 0)
    with pytest.raises(BufferError, match=r"the allocator of <class .*> failed"):
        image.scale(x, 3)


def test_an_interrupt_while_a_class_is_asked_stays(image: Any) -> None:
    """R60: a metaclass in Python may be interrupted."""

    class Interrupted(type):
        def __getattribute__(cls, name: str) -> Any:
            if name == "__dlpack__":
                raise KeyboardInterrupt
            return super().__getattribute__(name)

    class Own(Producer, metaclass=Interrupted):
        pass

    with pytest.raises(KeyboardInterrupt):
        image.look(Own())


def test_a_dtype_of_ones_own_is_numpys_to_describe(image: Any) -> None:
    """Its type number is -1: the memory does not say what the elements are."""
    scaled = np._core._multiarray_umath._get_sfloat_dtype()(2.0)  # type: ignore[attr-defined]
    with pytest.raises(BufferError, match="DLPack only supports"):
        image.look(np.array([1.0, 2.0]).view(scaled))


def test_a_result_with_negative_extents_is_not_exported(image: Any) -> None:
    """R88: whoever made an object of it by the table."""
    source = Producer(shape=(2, -3), strides=(3, 1))
    table = table_of(image.import_like(np.ones(3), None))
    out = c_void_p()
    table.managed_tensor_to_py_object_no_sync(source.export(), byref(out))
    made = take_reference(out)
    for copy in (None, True):
        with pytest.raises(BufferError, match="extent 1 is negative: -3"):
            made.__dlpack__(copy=copy)
    del made
    assert source.deleted == 1


OTHER_MEMORY: dict[str, dict[str, Any]] = {
    "offset": {"byte_offset": 8},
    "no-strides": {"strides": None},
    "strides": {"strides": (1, 2)},
    "ndim": {"shape": (6,)},
    "shape": {"shape": (2, 2)},
    "dtype": {"dtype": (0, 8, 1)},
    "version": {"version": (2, 0)},
}


@pytest.mark.parametrize("name", OTHER_MEMORY)
def test_an_allocator_that_gives_other_memory_is_named(image: Any, name: str) -> None:
    """R134: a kernel writes what was asked for, from `data` on; it is deleted."""
    given = Producer(**{"shape": (2, 3), **OTHER_MEMORY[name]})

    def allocate(_prototype: int, out: int, *_: int) -> int:
        c_void_p.from_address(out).value = given.export()
        return 0

    x = broken(managed_tensor_allocator=allocate)
    with pytest.raises(BufferError, match=r"the allocator of <class .*> gave other"):
        image.scale(x, 3)
    assert given.deleted == 1
