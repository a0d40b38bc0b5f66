"""Views, which have no flags, of the tables that dlx provides."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import DLTensor, table_of
from support.dlx_producers import Stored
from support.fake_producers import Producer


def frozen() -> Any:
    array = np.arange(3.0)
    array.flags.writeable = False
    return array


def view_of(x: Any) -> DLTensor:
    """Return what a table lends, or raise what it raises."""
    view = DLTensor()
    table_of(type(x)).dltensor_from_py_object_no_sync(x, byref(view))
    return view


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "Tensor": dlx.from_dlpack,
    "a field": Stored,
}

every_holder = pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)


@every_holder
def test_a_view_of_read_only_memory_is_lent(make: Callable[[Any], Any]) -> None:
    """R129: to a call, whose signature says what it writes; flags are the export's."""
    array = frozen()
    assert view_of(make(array)).data == array.ctypes.data


@every_holder
def test_a_view_of_padded_elements_is_refused(make: Callable[[Any], Any]) -> None:
    """R45: without the flag they would be read as packed."""
    padded = dlx.from_dlpack(Producer(dtype=(17, 4, 1), flags=4))
    with pytest.raises(BufferError, match="padded"):
        view_of(make(padded))
