"""The table of each mixin class: whose it is, what it exports and what it lends."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from ctypes import addressof, byref
from typing import Any

import dlx
import numpy as np
import pytest
import tvm_ffi
from support.dlpack_abi import (
    ENTRIES,
    DLTensor,
    capsule_destructor,
    capsule_name,
    capsule_pointer,
    delete,
    from_table,
    table_of,
)
from support.dlx_producers import ByMethod, Stored, fields_of
from support.fake_producers import Producer
from support.fake_table import table_class
from support.libc import heap_growth, needs_heap_in_use
from support.optional_libraries import requires

NAME = b"dlpack_exchange_api"
BORROW = "dltensor_from_py_object_no_sync"
GRID = np.arange(24, dtype=np.float32).reshape(4, 6)


def echo(tensor: Any) -> Any:
    """Send a tensor to C++ and back: `from_py` and `to_py` of a table."""
    function: Any = tvm_ffi.get_global_func("testing.echo")
    return function(tensor)


def borrow(instance: Any) -> DLTensor:
    """What the table of an object's type lends."""
    out = DLTensor()
    entry = table_of(type(instance)).dltensor_from_py_object_no_sync
    assert entry(instance, byref(out)) == 0
    return out


def dimensions(tensor: DLTensor) -> tuple[int, int]:
    """Where shape and strides are."""
    return addressof(tensor.shape.contents), addressof(tensor.strides.contents)


# Whose table it is.


def test_every_class_has_another_table() -> None:
    """R112: a consumer's return value comes back as the class whose table it used."""
    kinds: list[Any] = [dlx.Tensor, dlx.ExchangeMixin, Stored, ByMethod]
    kinds += [type("Child", (Stored,), {}) for _ in range(3)]
    pointers = {
        capsule_pointer(vars(kind)["__dlpack_c_exchange_api__"], NAME) for kind in kinds
    }
    assert len(pointers) == len(kinds)


@pytest.mark.parametrize("kind", [Stored, ByMethod])
def test_every_lookup_finds_the_same_table(kind: Any) -> None:
    """R114, R113, R115: on the class and on an instance."""
    capsules = [kind.__dlpack_c_exchange_api__, kind(GRID).__dlpack_c_exchange_api__]
    assert len({capsule_pointer(capsule, NAME) for capsule in capsules}) == 1
    assert {capsule_name(capsule) for capsule in capsules} == {NAME}
    assert {capsule_destructor(capsule) for capsule in capsules} == {None}


@pytest.mark.parametrize("kind", [Stored, ByMethod, dlx.ExchangeMixin])
def test_the_version_is_1_3_and_there_is_no_older_table(kind: Any) -> None:
    """R119, R120, R27: in the header of each class's table."""
    header = table_of(kind).header
    assert (header.version.major, header.version.minor) == (1, 3)
    assert not header.prev_api


@pytest.mark.parametrize("kind", [Stored, ByMethod])
@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry != BORROW])
def test_no_other_entry_than_the_borrow_is_null(kind: Any, entry: str) -> None:
    """R121: those that the header demands."""
    assert getattr(table_of(kind), entry)


def test_what_an_instance_goes_to_comes_back_as_its_class() -> None:
    """R130: through a function of tvm-ffi."""
    for kind in (Stored, ByMethod, type("Child", (Stored,), {})):
        assert type(echo(kind(GRID))) is kind


def bypassing(**methods: Any) -> Any:
    """Make a subclass of `Stored` whose own `__init_subclass__` was never called."""
    silent = type(
        "Silent", (Stored,), {"__init_subclass__": classmethod(lambda cls: None)}
    )
    made = type("Bypassing", (silent,), methods)
    assert "__dlpack_c_exchange_api__" not in vars(made)
    return made


def test_a_subclass_that_was_not_introduced_uses_the_table_of_its_base() -> None:
    """R117: what comes back is of the base whose table it is."""
    kind = bypassing()
    with pytest.warns(RuntimeWarning, match="did not reach dlx"):
        assert np.array_equal(np.from_dlpack(echo(kind(GRID))), GRID)
    assert type(echo(kind(GRID))) is kind.__mro__[1]
    assert type(kind.from_dlpack(GRID)) is kind


def test_a_subclass_that_was_not_introduced_may_still_export_in_its_own_way() -> None:
    """R117, R128, R129: a result without an owner is not lent."""
    kind = bypassing(__dlx_export__=lambda self: np.ones(7))
    with pytest.warns(RuntimeWarning, match="did not reach dlx"):
        assert dlx.from_dlpack(kind(GRID)).shape == (7,)
    managed = from_table(table_of(kind), kind(GRID))
    assert managed.dl_tensor.shape[:1] == [7]
    delete(managed)
    with pytest.raises(BufferError, match="Bypassing lends no view"):
        borrow(kind(GRID))


@pytest.mark.parametrize(
    "other",
    [GRID, None, 0, Stored, dlx.from_dlpack(GRID), ByMethod(GRID)],
    ids=lambda other: type(other).__name__,
)
@pytest.mark.parametrize("entry", ["managed_tensor_from_py_object_no_sync", BORROW])
def test_an_object_of_another_class_is_refused(entry: str, other: Any) -> None:
    """R127, R123, R124: another mixin class's too, and `out` is untouched."""
    out = (DLTensor * 2)()
    before = bytes(out)
    with pytest.raises(
        BufferError, match=r"^the exchange table of support\.dlx_producers\.Stored"
    ):
        getattr(table_of(Stored), entry)(other, out)
    assert bytes(out) == before


def test_an_object_of_a_base_is_refused_by_the_table_of_a_subclass() -> None:
    """R127: the error names both classes."""
    child = type("Child", (Stored,), {})
    with pytest.raises(
        BufferError, match=r"Child was given support\.dlx_producers\.Stored"
    ):
        from_table(table_of(child), Stored(GRID))


# managed_tensor_from_py_object_no_sync


def test_an_export_holds_what_is_exported_and_not_the_instance() -> None:
    """R15, R16: two exports; the second one's deleter lets go."""
    producer = Producer()
    instance = Stored(dlx.from_dlpack(producer))
    before = sys.getrefcount(instance)
    exports = [from_table(table_of(Stored), instance) for _ in range(2)]
    assert sys.getrefcount(instance) == before
    del instance
    for managed in exports:
        assert producer.deleted == 0
        assert managed.dl_tensor.shape[:2] == [2, 3]
        delete(managed)
    assert producer.deleted == 1


def test_the_attribute_is_read_at_each_export() -> None:
    """An instance may get other memory."""
    instance = Stored(GRID)
    first = np.from_dlpack(echo(instance))
    instance.data = GRID * 2
    second = np.from_dlpack(echo(instance))
    assert (second.tolist(), first.tolist()) == ((GRID * 2).tolist(), GRID.tolist())


def test_an_export_outlives_the_attribute_that_it_came_from() -> None:
    """R15: reassigned and deleted."""
    producer = Producer()
    instance: Any = Stored(producer)
    managed = from_table(table_of(Stored), instance)
    instance.data = None
    del instance.data
    assert producer.deleted == 0
    assert managed.dl_tensor.data == producer.data
    delete(managed)
    assert producer.deleted == 1


@pytest.mark.parametrize("inner", [Producer, table_class(), Stored], ids=str)
def test_read_only_memory_goes_out_read_only(inner: Any) -> None:
    """R39: through whatever the instance stands for."""
    source = Producer(flags=1)
    instance = Stored(Stored(source) if inner is Stored else inner(flags=1))
    managed = from_table(table_of(Stored), instance)
    flags = managed.flags
    delete(managed)
    assert flags == 1
    assert dlx.from_dlpack(instance).readonly
    assert not np.from_dlpack(instance).flags.writeable


def test_the_guards_of_torch_hold_behind_a_mixin() -> None:
    """R125: conjugated, negated and recorded tensors."""
    torch = requires("torch")
    plain = torch.ones(2, dtype=torch.complex64)
    for refused in (plain.conj(), plain.conj().imag, torch.ones(2, requires_grad=True)):
        for kind in (Stored, ByMethod):
            with pytest.raises(BufferError, match="torch tensor"):
                from_table(table_of(kind), kind(refused))
            with pytest.raises(BufferError, match="torch tensor"):
                kind(refused).__dlpack__(max_version=(1, 3))


# dltensor_from_py_object_no_sync


def class_with(**body: Any) -> Any:
    """Make a mixin class that exports its attribute `data`."""
    return type("Made", (dlx.ExchangeMixin,), body, exchange="data")


COMPUTED: dict[str, Callable[[], Any]] = {
    "method": lambda: ByMethod,
    "property": lambda: class_with(data=property(lambda self: GRID)),
    "cached property": lambda: class_with(
        data=functools.cached_property(lambda self: GRID)
    ),
    "__getattr__": lambda: class_with(__getattr__=lambda self, name: GRID),
    "__getattribute__": lambda: class_with(__getattribute__=lambda self, name: GRID),
}
STORED: dict[str, Callable[[], Any]] = {
    "dictionary": lambda: Stored,
    "slot": lambda: class_with(__slots__=("data",)),
    "class attribute": lambda: class_with(data=dlx.from_dlpack(GRID)),
    "slot of a base": lambda: type("Child", (class_with(__slots__=("data",)),), {}),
}


@pytest.mark.parametrize("make", COMPUTED.values(), ids=COMPUTED)
def test_what_is_computed_is_not_lent(make: Callable[[], Any]) -> None:
    """R122, R129: the entry is NULL, because the shapes would have no owner."""
    assert not getattr(table_of(make()), BORROW)


@pytest.mark.parametrize("make", STORED.values(), ids=STORED)
def test_what_is_stored_is_lent(make: Callable[[], Any]) -> None:
    """R129: at its own address, without a copy."""
    kind = make()
    instance = kind.__new__(kind)
    if "data" not in vars(kind) or "__slots__" in vars(kind):
        instance.data = dlx.from_dlpack(GRID)
    assert borrow(instance).data == GRID.ctypes.data


def sources() -> dict[str, Any]:
    """Objects that lend their own shapes."""
    torch = requires("torch")
    return {
        "dlx.Tensor": dlx.from_dlpack(GRID),
        "array": GRID,
        "torch": torch.from_numpy(GRID),
        "table": table_class()(),
        "mixin": Stored(torch.from_numpy(GRID)),
    }


@pytest.mark.parametrize("name", ["dlx.Tensor", "torch", "table", "mixin"])
def test_a_view_points_into_the_object_that_is_exported(name: str) -> None:
    """R129, R100: it is that object's own view."""
    inner = sources()[name]
    own = borrow(inner)
    lent = borrow(Stored(inner))
    assert bytes(lent) == bytes(own)
    assert dimensions(lent) == dimensions(own)


@pytest.mark.parametrize("name", ["dlx.Tensor", "array", "torch", "table", "mixin"])
def test_a_view_takes_no_reference(name: str) -> None:
    """R129: of the instance, of what it holds, of its class."""
    inner = sources()[name]
    instance = Stored(inner)
    watched = [instance, inner, Stored, type(inner)]
    borrow(instance)  # The first one is remembered with its type.
    before = [sys.getrefcount(each) for each in watched]
    borrow(instance)
    assert [sys.getrefcount(each) for each in watched] == before


@needs_heap_in_use
@pytest.mark.parametrize("name", ["dlx.Tensor", "array", "torch", "mixin"])
def test_views_keep_no_memory(name: str) -> None:
    """R129: as many bytes of the C heap are in use after 1e5 calls as before."""
    instance, out = Stored(sources()[name]), DLTensor()
    entry, address = getattr(table_of(Stored), BORROW), addressof(out)
    assert heap_growth(lambda: entry(instance, address), 100_000) == 0


ARRAYS = {
    "row-major": GRID,
    "transposed": GRID.T,
    "strided": GRID[::2, ::-3],
    "broadcast": np.broadcast_to(GRID[0], (5, 6)),
    "0-d": np.array(1.5),
    "empty": np.zeros((2, 0, 3)),
    "bool": np.array([True, False]),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_a_view_of_an_array_has_the_fields_of_an_export(array: Any) -> None:
    """R129, R128, R92: strides in elements."""
    lent = borrow(Stored(array))
    managed = from_table(table_of(Stored), Stored(array))
    assert fields_of(lent) == fields_of(managed.dl_tensor)
    delete(managed)


def test_a_numpy_array_is_lent_with_strides_in_elements() -> None:
    """R129, R92: the shape is the array's own; NumPy's strides count bytes."""
    array = GRID[::2, ::-3]
    instance = Stored(array)
    first, second = borrow(instance), borrow(instance)
    assert first.strides[:2] == [step // array.itemsize for step in array.strides]
    assert first.shape[:2] == list(array.shape)
    assert addressof(first.strides.contents) == addressof(second.strides.contents)


@pytest.mark.parametrize(
    "inner",
    [GRID.astype(">f4"), Producer(), bytearray(4), ByMethod(GRID)],
    ids=["byte order", "producer", "bytearray", "class with a hook"],
)
def test_what_lends_nothing_itself_is_not_lent(inner: Any) -> None:
    """R129, R124: another byte order, other protocols, a class with a hook."""
    with pytest.raises(BufferError):
        borrow(Stored(inner))
