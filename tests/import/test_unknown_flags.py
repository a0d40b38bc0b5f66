"""Flags that DLPack 1.3 does not define: nobody knows what else they change."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import DLManagedTensorVersioned, delete, exported, table_of
from support.dlx_producers import MIXINS, Maker, every_table
from support.fake_producers import Producer
from support.fake_table import table_class, without_protocol
from support.optional_libraries import requires

UNKNOWN = [1 << 3, 1 << 31, 1 << 40, 1 << 63]
MINORS = [0, 3, 4, 2**32 - 1]


def borrowed(x: Any) -> None:
    """Borrow for the length of nothing."""
    with dlx.borrow(x):
        pass


def through(make: Maker) -> Callable[[Any], Any]:
    """Export what a mixin class makes of the producer."""
    return lambda x: exported(make(x))


WAYS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": dlx.from_dlpack,
    "a copy": lambda x: dlx.from_dlpack(x, copy=True),
    "no copy": lambda x: dlx.from_dlpack(x, copy=False),
    "a device": lambda x: dlx.from_dlpack(x, device="cpu"),
    "a stream": lambda x: dlx.from_dlpack(x, stream=-1),
    "convert to NumPy": lambda x: dlx.convert(x, np.ndarray),
    "convert to dlx": lambda x: dlx.convert(x, dlx.Tensor),
    "convert a copy": lambda x: dlx.convert(x, np.ndarray, copy=True),
    "convert a tree": lambda x: dlx.convert_tree([x], np.ndarray),
    "bridge": lambda x: dlx.bridge(np.ndarray)(lambda a: None)(x),
    "borrow": borrowed,
    "launcher": lambda x: dlx.launcher(lambda a: a)(x),
    **{f"mixin, {name}": through(make) for name, make in MIXINS.items()},
}
KINDS: dict[str, Callable[..., Any]] = {
    "by the protocol": Producer,
    "by a table": lambda **fields: table_class()(**fields),
    "by a table alone": lambda **fields: without_protocol()(**fields),
    "by a table of a later DLPack": lambda **fields: table_class(minor=4)(**fields),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@every_kind
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("flags", [UNKNOWN[0] | 1, UNKNOWN[-1]], ids=hex)
def test_an_unknown_flag_is_refused_in_every_way_in(
    way: Callable[[Any], Any], make: Callable[..., Any], flags: int
) -> None:
    """R30, R46: also the bit that dlx uses for itself; what was exported is deleted."""
    producer = make(flags=flags)
    with pytest.raises(BufferError, match=r"not defined by DLPack 1\.3"):
        way(producer)
    assert producer.deleted == len(producer.exports)


@pytest.mark.parametrize("unknown", UNKNOWN, ids=hex)
@pytest.mark.parametrize("minor", MINORS)
def test_the_error_names_the_flag(unknown: int, minor: int) -> None:
    """R46: whatever minor version the struct has, and not the flags that are known."""
    producer = Producer(flags=unknown | 3, version=(1, minor))
    with pytest.raises(BufferError, match=f"^flag {unknown:#x} is not defined"):
        dlx.from_dlpack(producer.capsule())


def test_a_refused_capsule_stays_as_it_was() -> None:
    """R11, R46: another consumer may know the flag."""
    producer = Producer(flags=8)
    capsule = producer.capsule()
    with pytest.raises(BufferError, match="0x8"):
        dlx.from_dlpack(capsule)
    assert '"dltensor_versioned"' in repr(capsule)
    assert producer.deleted == 0


@pytest.mark.parametrize("minor", MINORS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_newer_minor_without_unknown_flags_is_accepted(
    way: Callable[[Any], Any], minor: int
) -> None:
    """R30: every field is understood."""
    way(Producer(version=(1, minor)))


@every_kind
@pytest.mark.parametrize("library", ["torch", "tvm_ffi"])
def test_convert_gives_it_to_no_library_that_would_ignore_it(
    library: str, make: Callable[..., Any]
) -> None:
    """R46: torch and tvm-ffi read no flags at all."""
    target = requires(library)
    target = target.Tensor if library != "torch" else target
    with pytest.raises(BufferError, match=r"not defined by DLPack 1\.3"):
        dlx.convert(make(flags=8), target)


@every_table
def test_a_table_of_dlx_leaves_it_to_the_caller(owner: Any) -> None:
    """R46, R131: untouched."""
    producer = Producer(flags=8)
    address = producer.export()
    make, out = table_of(owner).managed_tensor_to_py_object_no_sync, c_void_p()
    with pytest.raises(BufferError, match="flag 0x8"):
        make(address, byref(out))
    assert producer.deleted == 0
    delete(DLManagedTensorVersioned.from_address(address))


@pytest.mark.parametrize("make", [Producer, table_class()])
def test_the_call_that_the_error_names_helps(make: Callable[..., Any]) -> None:
    """R22, R46: a producer that needs the flag refuses it, as R40 says of READ_ONLY."""
    x = make(flags=8)
    with pytest.raises(BufferError, match=r"pass x.__dlpack__\(\)"):
        dlx.from_dlpack(x)
    assert dlx.from_dlpack(x.__dlpack__()).shape == (2, 3)


def test_inspect_shows_what_dlx_refuses() -> None:
    """R46: beside the flags that have a name."""
    shown = repr(dlx.inspect(Producer(flags=9)))
    assert "READ_ONLY | 0x8" in shown
