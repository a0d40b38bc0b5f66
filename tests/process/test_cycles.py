"""Cycles through a tensor, freed where the garbage collector sees what it holds."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import sys
import weakref
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.fake_array_interface import Struct
from support.optional_libraries import requires

pytestmark = pytest.mark.slow


class Subclass(np.ndarray[Any, Any]):
    """Has a dictionary, so that it can hold anything."""


class ByInterface:
    """Shows memory by `__array_interface__`."""

    def __init__(self) -> None:
        """Show three numbers."""
        self.memory = np.arange(3.0)
        self.__array_interface__ = self.memory.__array_interface__


class ByBufferInterface(ByInterface):
    """Its `data` is a buffer."""

    def __init__(self) -> None:
        """Show three numbers."""
        super().__init__()
        self.__array_interface__ = {
            **self.memory.__array_interface__,
            "data": bytearray(self.memory),
        }


class Floats(ctypes.Array[Any]):
    """An array of ctypes that has a dictionary."""

    _type_, _length_ = ctypes.c_double, 3


class Numbers(array.array):  # type: ignore[type-arg]
    """An array of Python that has a dictionary."""


class Mapped(mmap.mmap):
    """Mapped memory that has a dictionary."""


class Owner:
    """What `from_pointer` is given."""

    def __init__(self) -> None:
        """Own three numbers."""
        self.memory = np.arange(3.0)


def pointed(owner: Owner) -> dlx.Tensor:
    """A tensor over the memory of `owner`."""
    address = owner.memory.ctypes.data
    return dlx.from_pointer(address, (3,), "float64", owner=owner)


def as_interface(x: Any) -> dlx.Tensor:
    """An import by the long way."""
    return dlx.from_dlpack(x, device="cpu")


def lent(x: Any) -> dlx.Tensor:
    """The view of a block that has ended."""
    with dlx.borrow(x) as (view, _):
        return view


OWNERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "an array": (lambda: np.arange(3.0).view(Subclass), dlx.from_dlpack),
    "an array, asked": (lambda: np.arange(3.0).view(Subclass), as_interface),
    "an array, converted": (
        lambda: np.arange(3.0).view(Subclass),
        lambda x: dlx.convert(x, dlx.Tensor),
    ),
    "an array, borrowed": (lambda: np.arange(3.0).view(Subclass), dlx.borrow),
    "out, borrowed": (
        lambda: np.arange(3.0).view(Subclass),
        lambda x: dlx.borrow(out=x),
    ),
    "an array, lent": (lambda: np.arange(3.0).view(Subclass), lent),
    "an array interface": (ByInterface, dlx.from_dlpack),
    "an array interface over a buffer": (ByBufferInterface, dlx.from_dlpack),
    "an array struct": (Struct, dlx.from_dlpack),
    "ctypes": (Floats, dlx.from_dlpack),
    "array.array": (lambda: Numbers("d", [0, 1, 2]), dlx.from_dlpack),
    "mmap": (lambda: Mapped(-1, 4096), dlx.from_dlpack),
    "a pointer": (Owner, pointed),
    "a view of a block": (ByInterface, lambda x: dlx.borrow(x).__enter__()),
    "a use": (Owner, lambda x: pointed(x).use()),
}
each = pytest.mark.parametrize(("make", "held"), OWNERS.values(), ids=OWNERS)


def count(make: Callable[[], Any], close: Callable[[Any], Any]) -> int:
    """How many of three are left when the collector has run."""
    left = []
    for _ in range(3):
        owner = make()
        owner.held = close(owner)
        left.append(weakref.ref(owner))
        del owner
    gc.collect()
    return sum(each() is not None for each in left)


@each
def test_an_object_may_hold_its_own_tensor(
    make: Callable[[], Any], held: Callable[[Any], Any]
) -> None:
    """The collector finds the cycle, and nothing else is freed with it."""
    assert count(make, held) == 0


@each
def test_a_cycle_that_is_in_use_is_kept(
    make: Callable[[], Any], held: Callable[[Any], Any]
) -> None:
    """By who holds the tensor, and not its owner."""
    owner = make()
    owner.held = held(owner)
    kept, watched = owner.held, weakref.ref(owner)
    del owner
    gc.collect()
    assert watched() is not None
    assert getattr(watched(), "held", None) is kept
    del kept
    gc.collect()
    assert watched() is None


EXPORTS: dict[str, Callable[[dlx.Tensor], Any]] = {
    "a capsule": lambda tensor: tensor.__dlpack__(max_version=(1, 3)),
    "a buffer": memoryview,
    "NumPy": np.from_dlpack,
    "numpy()": lambda tensor: tensor.numpy(),
    "torch": lambda tensor: requires("torch").from_dlpack(tensor),
}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_an_export_keeps_a_cycle(export: Callable[[dlx.Tensor], Any]) -> None:
    """R16: as long as it lives, whatever the collector finds."""
    owner = Owner()
    owner.held = pointed(owner)  # type: ignore[attr-defined]
    kept, watched = export(owner.held), weakref.ref(owner)  # type: ignore[attr-defined]
    del owner
    gc.collect()
    assert watched() is not None
    if not isinstance(kept, type(dlx.Tensor.__dlpack__)) and hasattr(kept, "tolist"):
        assert kept.tolist() == [0, 1, 2]
    del kept
    gc.collect()
    assert watched() is None


def test_a_chain_of_tensors_in_a_cycle_is_freed() -> None:
    """Each holds the owner, and one of the others' lists holds them."""
    owner = Owner()
    owner.held = [pointed(owner) for _ in range(5)]  # type: ignore[attr-defined]
    watched = weakref.ref(owner)
    del owner
    gc.collect()
    assert watched() is None


def collected() -> dlx.Tensor:
    """A tensor that the collector knows."""
    tensor = pointed(Owner())
    assert gc.is_tracked(tensor)
    return tensor


def test_only_tensors_that_may_be_in_a_cycle_are_known_to_the_collector() -> None:
    """docs/performance.md: the others are smaller, and nobody looks at them."""
    for source in (np.arange(3.0), b"abc", np.arange(3.0)[::2].T):
        assert not gc.is_tracked(dlx.from_dlpack(source))
    assert not gc.is_tracked(dlx.from_pointer(8, (1,), "int8"))
    assert not gc.is_tracked(dlx.from_pointer(8, (1,), "int8", owner="text"))
    plain = dlx.from_dlpack(np.arange(3.0))
    assert sys.getsizeof(collected()) >= sys.getsizeof(plain)


def test_a_tensor_that_the_collector_knows_is_like_any_other() -> None:
    """Its class is `dlx.Tensor` to everybody who asks."""
    tensor, torch = collected(), requires("torch")
    assert isinstance(tensor, dlx.Tensor)
    assert type(tensor).__name__ == dlx.Tensor.__name__
    assert repr(tensor) == repr(dlx.from_dlpack(np.arange(3.0)))
    assert weakref.ref(tensor)() is tensor
    assert dlx.from_dlpack(tensor) is tensor
    assert dlx.convert(tensor, dlx.Tensor) is tensor
    assert type(dlx.convert(np.arange(3.0), type(tensor))) is dlx.Tensor
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2]
    assert torch.from_dlpack(tensor).tolist() == [0, 1, 2]
    assert dlx.convert(tensor, torch).tolist() == [0, 1, 2]
    with dlx.borrow(tensor) as (lent, _):
        assert lent.shape == (3,)
    table = type(tensor).__dlpack_c_exchange_api__
    assert table is dlx.Tensor.__dlpack_c_exchange_api__
    for made in (type(tensor), type(tensor).__new__, object.__new__):
        with pytest.raises(TypeError):
            made(*(() if made is type(tensor) else (type(tensor),)))


def test_nobody_derives_from_a_class_of_tensors() -> None:
    """R112, R130: a table makes tensors of its class and no other."""
    for base in (dlx.Tensor, type(collected())):
        with pytest.raises(TypeError, match="base type"):
            type("Derived", (base,), {})


def test_a_tensor_cannot_be_made_one_of_another_class() -> None:
    """The data model: objects of both classes are freed in other ways."""

    class Silent:
        __slots__ = ()

        def __init_subclass__(cls) -> None:
            """Ask nobody."""

    derived = type("Derived", (Silent, dlx.Tensor), {"__slots__": ()})
    with pytest.raises(TypeError):
        derived()
    for tensor, other in [
        (collected(), dlx.Tensor),
        (collected(), derived),
        (dlx.from_dlpack(np.arange(3.0)), type(collected())),
        (dlx.from_dlpack(np.arange(3.0)), derived),
    ]:
        with pytest.raises(TypeError):
            tensor.__class__ = other
