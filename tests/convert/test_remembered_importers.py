"""An importer is replaced while it runs, by itself or from another thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import dlx
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.optional_libraries import requires

X = np.arange(4, dtype="float64")


class array:
    """Named as Warp's."""

    def __init__(self, data: Any) -> None:
        """Keep what is exported."""
        self.data = data

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export the array."""
        return self.data.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        """Say where it is."""
        return self.data.__dlpack_device__()


def keep(tensor: dlx.Tensor) -> array:
    """Import a tensor as it is."""
    return array(np.from_dlpack(tensor))


def narrow(tensor: dlx.Tensor) -> array:
    """Import a tensor as float32, whatever it is."""
    return array(np.from_dlpack(tensor).astype("float32"))


def here(call: Callable[[], None]) -> None:
    """Call it."""
    call()


@pytest.fixture
def warp(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand in for Warp, whose importer no earlier test has left."""
    module: Any = ModuleType("warp")
    module.array = array
    monkeypatch.setitem(sys.modules, "warp", module)
    return module


@pytest.mark.parametrize("where", [here, in_thread])
def test_a_result_shows_nothing_of_an_importer_that_came_meanwhile(
    warp: Any, where: Callable[[Callable[[], None]], None]
) -> None:
    """What one keeps shows no other."""

    def meanwhile() -> None:
        warp.from_dlpack = narrow
        with pytest.raises(BufferError, match="would import float64 as float32"):
            dlx.convert(X, array)

    def replaced(tensor: dlx.Tensor) -> array:
        where(meanwhile)
        return keep(tensor)

    warp.from_dlpack = replaced
    assert dlx.from_dlpack(dlx.convert(X, array)).dtype == "float64"
    with pytest.raises(BufferError, match="would import float64 as float32"):
        dlx.convert(X, array)


@pytest.mark.parametrize("where", [here, in_thread])
def test_a_result_is_looked_at_whatever_an_importer_keeps_that_came_meanwhile(
    warp: Any, where: Callable[[Callable[[], None]], None]
) -> None:
    """What one keeps shows no other."""

    def meanwhile() -> None:
        warp.from_dlpack = keep
        for _ in range(2):
            assert dlx.from_dlpack(dlx.convert(X, array)).dtype == "float64"

    def replaced(tensor: dlx.Tensor) -> array:
        where(meanwhile)
        return narrow(tensor)

    warp.from_dlpack = replaced
    with pytest.raises(BufferError, match="would import float64 as float32"):
        dlx.convert(X, array)


def test_a_result_is_looked_at_although_those_before_it_were_as_given(
    warp: Any,
) -> None:
    """A library may begin to narrow at any time."""
    importers = iter([keep, keep, keep, narrow])
    warp.from_dlpack = lambda tensor: next(importers)(tensor)
    for _ in range(3):
        assert dlx.from_dlpack(dlx.convert(X, array)).dtype == "float64"
    with pytest.raises(BufferError, match="would import float64 as float32"):
        dlx.convert(X, array)


def test_a_python_function_in_place_of_a_compiled_importer_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """tvm-ffi's own keeps the struct that it is given, and no other."""
    tvm_ffi = requires("tvm_ffi")
    own = tvm_ffi.from_dlpack
    assert type(dlx.convert(X, tvm_ffi.Tensor)) is tvm_ffi.Tensor

    def narrowed(tensor: dlx.Tensor) -> Any:
        return own(np.from_dlpack(tensor).astype("float32"))

    narrowed.__module__ = "tvm_ffi.core"
    monkeypatch.setattr(tvm_ffi, "from_dlpack", narrowed)
    with pytest.raises(BufferError, match="would import float64 as float32"):
        dlx.convert(X, tvm_ffi.Tensor)


class Copying(array):
    """Derived from Warp's; what it exports is a copy."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export a copy of the array."""
        return self.data.copy().__dlpack__(**keywords)


@pytest.mark.parametrize("to", [array, Copying])
def test_a_derived_class_does_not_show_its_memory_as_that_of_a_library_does(
    warp: Any, to: type[array]
) -> None:
    """R39: an export elsewhere does not show that read-only memory is not shared."""
    x = X.copy()
    x.flags.writeable = False
    warp.from_dlpack = lambda tensor: Copying(np.from_dlpack(tensor))
    made = dlx.convert(x, to)
    assert type(made) is Copying
    assert made.data.ctypes.data != x.ctypes.data
