"""A type that has changed since an import is asked again (invariant S6)."""

from __future__ import annotations

from ctypes import addressof
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import new_capsule
from support.fake_producers import Producer
from support.fake_table import (
    BY_PROTOCOL,
    BY_TABLE,
    new_table,
    table_class,
)
from support.optional_libraries import requires
from support.python_process import run_python
from support.short_lived_classes import made

OFTEN = 200


def test_a_table_that_a_class_lost_is_not_used() -> None:
    """R118: a type that may change is asked each time."""
    cls: Any = made(table_class())
    base = cls.__base__
    for _ in range(OFTEN):
        dlx.from_dlpack(cls())
    del base.__dlpack_c_exchange_api__
    producer = cls()
    dlx.from_dlpack(producer)
    assert producer.called == BY_PROTOCOL


def test_a_table_that_was_replaced_is_used_by_the_next() -> None:
    """R118: a type that may change is asked each time."""
    cls: Any = table_class()
    for _ in range(OFTEN):
        dlx.from_dlpack(cls())
    other = new_table(managed_tensor_from_py_object_no_sync=None)
    cls.__dlpack_c_exchange_api__ = new_capsule(
        addressof(other), b"dlpack_exchange_api"
    )
    producer = cls()
    dlx.from_dlpack(producer)
    assert producer.called == BY_PROTOCOL


def test_a_subclass_of_an_array_may_learn_to_answer_for_itself() -> None:
    """R64: `__dlpack__` of the class counts, when it has one."""

    class Array(np.ndarray[Any, Any]):
        pass

    array = np.arange(3.0).view(Array)
    for _ in range(OFTEN):
        assert dlx.from_dlpack(array).data_ptr == array.ctypes.data
    producer = Producer()
    Array.__dlpack__ = lambda self, **keywords: producer.__dlpack__(**keywords)  # type: ignore[method-assign]
    assert dlx.from_dlpack(array).data_ptr == producer.data


def test_another_metaclass_may_hide_a_table() -> None:
    """R113: the look at the class is the same as Python's."""

    class Hiding(type):
        hidden = False

        def __getattribute__(cls, name: str) -> Any:
            if name == "__dlpack_c_exchange_api__" and type(cls).hidden:
                raise AttributeError(name)
            return super().__getattribute__(name)

    cls = Hiding("Hidden", (table_class(),), {})
    for hidden, called in ((False, BY_TABLE), (True, BY_PROTOCOL), (False, BY_TABLE)):
        Hiding.hidden = hidden
        producer: Any = cls()
        dlx.from_dlpack(producer)
        assert producer.called == called


# Torch's classes are remembered.


def test_an_attribute_of_one_torch_tensor_says_nothing_of_the_next() -> None:
    """R125: one instance has an `is_conj` of its own."""
    torch = requires("torch")
    first = torch.ones(2, dtype=torch.complex64)
    first.is_conj = lambda: False
    for _ in range(OFTEN):
        dlx.from_dlpack(first)
    with pytest.raises(BufferError, match="conjugated"):
        dlx.from_dlpack(first.conj())


def test_torch_is_known_after_it_has_left_the_modules() -> None:
    """R125: whatever `sys.modules` says of torch, its tensors are asked."""
    requires("torch")
    program = """
import sys, torch, dlx
from unittest.mock import Mock
def refused(x):
    try:
        dlx.from_dlpack(x)
    except BufferError:
        return True
conjugated = torch.ones(2, dtype=torch.complex64).conj()
dlx.from_dlpack(torch.ones(2))
class Derived(torch.Tensor):
    pass
sys.modules["torch"] = Mock()
assert refused(conjugated)
assert refused(conjugated.as_subclass(Derived))
"""
    assert run_python(program) == (0, "", "")
