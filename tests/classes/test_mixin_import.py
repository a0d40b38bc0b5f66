"""`__dlx_import__` and `from_dlpack`: how an instance is made of a tensor."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_void_p
from typing import Any, ClassVar

import dlx
import numpy as np
import pytest
import tvm_ffi
from support.dlpack_abi import (
    UNTOUCHED,
    DLManagedTensorVersioned,
    delete,
    from_table,
    table_of,
    take_reference,
)
from support.dlx_producers import ERRORS, ByMethod, Failure, Stored, with_hook
from support.fake_producers import Producer
from support.libc import heap_in_use, needs_heap_in_use
from support.optional_libraries import requires


def to_object(owner: Any, address: int) -> Any:
    """Call `managed_tensor_to_py_object_no_sync`."""
    out, table = c_void_p(UNTOUCHED), table_of(owner)
    try:
        table.managed_tensor_to_py_object_no_sync(address, byref(out))
    except BaseException:
        assert out.value == UNTOUCHED
        raise
    return take_reference(out)


# __dlx_import__


def test_an_import_calls_the_class_with_a_tensor() -> None:
    """R130: by the table and by `from_dlpack`."""
    made = to_object(Stored, Producer().export())
    assert (type(made), type(made.data)) == (Stored, dlx.Tensor)
    assert type(Stored.from_dlpack(np.zeros(3)).data) is dlx.Tensor


def test_the_class_may_import_in_its_own_way() -> None:
    """R130: also where C code hands the tensor back."""

    class Renamed(Stored):
        def __init__(self, data: Any, label: str) -> None:
            super().__init__(data)
            self.label = label

        @classmethod
        def __dlx_import__(cls, tensor: dlx.Tensor) -> Renamed:
            return cls(tensor, "imported")

    echo: Any = tvm_ffi.get_global_func("testing.echo")
    source = np.zeros(3)
    assert to_object(Renamed, Producer().export()).label == "imported"
    assert Renamed.from_dlpack(source).label == "imported"
    assert echo(Renamed(source, "mine")).label == "imported"


def test_a_subclass_inherits_the_import_of_its_base() -> None:
    """R130: called for the subclass."""
    base = with_hook("__dlx_import__", lambda tensor: child(tensor))
    child: Any = type("Child", (base,), {})
    assert type(to_object(child, Producer().export())) is child


def test_from_dlpack_passes_its_arguments_on() -> None:
    """R56, R59, R76, as `dlx.from_dlpack` reads them."""
    source = np.zeros(3)
    copied = Stored.from_dlpack(source, copy=True, device="cpu")
    assert copied.data.is_copied
    cuda = Producer(device=(2, 0))
    assert Stored.from_dlpack(cuda, stream=2).data.stream == 2
    with pytest.raises(TypeError):
        Stored.from_dlpack(source, None)  # type: ignore[call-arg]


WRONG: list[Any] = [
    *(None, 5, "made", Stored),
    pytest.param(lambda tensor: tensor, id="function"),
    pytest.param(ByMethod(None), id="another class"),
]


@pytest.mark.parametrize("answer", WRONG, ids=str)
def test_an_import_that_makes_something_else_is_a_type_error(answer: Any) -> None:
    """R123, R131: naming class and method; the tensor is still the caller's."""
    kind = with_hook("__dlx_import__", answer)
    producer = Producer()
    address = producer.export()
    with pytest.raises(TypeError, match=r"Hooked\.__dlx_import__ returned"):
        to_object(kind, address)
    assert producer.deleted == 0
    delete(DLManagedTensorVersioned.from_address(address))
    with pytest.raises(TypeError, match=r"Hooked\.__dlx_import__ returned"):
        kind.from_dlpack(producer)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_the_exception_of_an_import_passes_unchanged(error: BaseException) -> None:
    """R123, R60: the very object, with its traceback."""
    kind = with_hook("__dlx_import__", error)
    producer = Producer()
    address = producer.export()
    error.__traceback__ = None
    with pytest.raises(type(error)) as caught:
        to_object(kind, address)
    assert caught.value is error
    assert caught.traceback[-1].name == "give"
    error.__traceback__ = None  # Its frames hold the tensor.
    del caught
    kind.asked.clear()
    assert producer.deleted == 0
    delete(DLManagedTensorVersioned.from_address(address))
    assert producer.deleted == 1


class Leaving(Stored):
    """Leaves each tensor that it is given behind, and fails."""

    left: ClassVar[list[dlx.Tensor]] = []

    @classmethod
    def __dlx_import__(cls, tensor: dlx.Tensor) -> Leaving:
        """Keep the tensor outside of the class's instances."""
        cls.left.append(tensor)
        raise Failure


@pytest.fixture
def left() -> Iterator[list[dlx.Tensor]]:
    """Give the tensors that `Leaving` has left behind."""
    yield Leaving.left
    Leaving.left.clear()


def test_a_tensor_that_a_failed_import_left_behind_stays_readable(
    left: list[dlx.Tensor],
) -> None:
    """R131, R15: the caller deletes its tensor while the user's code still has one."""
    producer = Producer()
    address = producer.export()
    with pytest.raises(Failure):
        to_object(Leaving, address)
    delete(DLManagedTensorVersioned.from_address(address))
    assert producer.deleted == 0
    assert left[0].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    left.clear()
    assert producer.deleted == 1


def test_a_tensor_may_be_offered_again_after_a_failure(left: list[dlx.Tensor]) -> None:
    """R131: several times, to classes that keep it, before one takes it."""
    producer = Producer()
    address = producer.export()
    for _ in range(3):
        with pytest.raises(Failure):
            to_object(Leaving, address)
    made = to_object(Stored, address)
    del left[1]
    assert made.data.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    del made
    assert producer.deleted == 0
    assert left[1].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    left.clear()
    assert producer.deleted == 1


def test_a_tensor_that_outlives_its_caller_is_deleted_by_whoever_is_last(
    left: list[dlx.Tensor],
) -> None:
    """R131, R8: the user's tensor may go first, too; and a NULL deleter stays one."""
    producer = Producer()
    address = producer.export()
    with pytest.raises(Failure):
        to_object(Leaving, address)
    left.clear()
    assert producer.deleted == 0
    delete(DLManagedTensorVersioned.from_address(address))
    assert producer.deleted == 1
    address = Producer(deleter=None).export()
    with pytest.raises(Failure):
        to_object(Leaving, address)
    left.clear()


@needs_heap_in_use
@pytest.mark.parametrize("answer", [None, Failure()], ids=repr)
def test_imports_that_fail_leak_nothing(answer: Any) -> None:
    """R21, R131: `__dlx_import__` raises, or returns None."""
    kind = with_hook("__dlx_import__", answer)
    source = dlx.from_dlpack(np.zeros((2, 3)))

    def used_after(rounds: int) -> int:
        for _ in range(rounds):
            managed = from_table(table_of(dlx.Tensor), source)
            with pytest.raises((TypeError, Failure)):
                to_object(kind, ctypes.addressof(managed))
            delete(managed)
            kind.asked.clear()
            if isinstance(answer, Failure):
                answer.__traceback__ = None
        return heap_in_use()

    before = used_after(500)
    assert used_after(5000) - before < 5000 * 16


@pytest.mark.parametrize("base", ["numpy.ndarray", "torch.Tensor"])
@pytest.mark.parametrize("new", [None, "__init__", "__new__"])
def test_an_array_class_of_another_library_needs_an_import(base: str, new: Any) -> None:
    """Its own constructor takes a tensor for a shape, or casts it."""
    module, _, name = base.partition(".")
    kind = getattr(requires(module), name)
    import_array = requires(module).asarray

    def made(cls: Any, x: Any) -> Any:
        array = import_array(np.from_dlpack(x))
        if module == "numpy":
            return array.view(cls)
        return array.as_subclass(cls)

    export = {"__dlx_export__": lambda self: self}
    if module == "numpy":
        export = {"__dlx_export__": lambda self: self.view(np.ndarray)}
    own: dict[str, Any] = {} if new is None else {new: lambda self, x: None}
    if new == "__new__":
        own = {"__new__": made}
    cls: Any = type("Own", (kind, dlx.ExchangeMixin), {**export, **own})
    if new == "__new__":
        assert cls.from_dlpack(np.array([2, 3])).tolist() == [2, 3]
        return
    with pytest.raises(TypeError, match=r"Own is a .*, which may take a tensor for a"):
        cls.from_dlpack(np.array([2, 3]))
    cls.__dlx_import__ = classmethod(made)
    assert cls.from_dlpack(np.array([2, 3])).tolist() == [2, 3]
