"""`convert`: what comes out, what it shares, and what is returned as it is."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import array_api_strict
import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray
from support.dlpack_abi import DLPACK_FLAG_BITMASK_IS_COPIED, exported
from support.dlx_producers import ByMethod, Stored
from support.fake_producers import Producer, c_function
from support.fake_table import BY_TABLE, FROM_PY, table_class, without_protocol
from support.optional_libraries import requires

Array = NDArray[Any]


def aligned() -> Array:
    """A (2, 4) float32 array at a multiple of 64 bytes, which JAX asks for."""
    memory = np.zeros(128, np.uint8)
    start = -memory.ctypes.data % 64
    array = memory[start : start + 32].view(np.float32).reshape(2, 4)
    array[:] = np.arange(8).reshape(2, 4)
    return array


def address(x: Any) -> int:
    """Where the elements of a tensor of any library are."""
    return dlx.from_dlpack(x).data_ptr


class Own(dlx.ExchangeMixin, exchange="data"):
    """A mixin class."""

    def __init__(self, data: Any) -> None:
        """Hold the tensor."""
        self.data = data


PRODUCERS: dict[str, Callable[[Array], Any]] = {
    "ndarray": lambda array: array,
    "dlx.Tensor": dlx.from_dlpack,
    "a mixin": Own,
    "a mixin by method": ByMethod,
    "a table": lambda array: dlx.convert(array, table_class()),
    "a capsule": lambda array: array.__dlpack__(max_version=(1, 3)),
    "a buffer": lambda array: array.data,
    "array_api_strict": array_api_strict.asarray,
    "torch": lambda array: requires("torch").from_numpy(array),
    "jax": lambda array: requires("jax").dlpack.from_dlpack(array),
}
TARGETS: dict[str, Callable[[], Any]] = {
    "numpy.ndarray": lambda: np.ndarray,
    "numpy": lambda: np,
    "dlx.Tensor": lambda: dlx.Tensor,
    "dlx": lambda: dlx,
    "a mixin": lambda: Own,
    "a table": table_class,
    "array_api_strict": lambda: array_api_strict,
    "torch.Tensor": lambda: requires("torch").Tensor,
    "torch": lambda: requires("torch"),
    "jax.Array": lambda: requires("jax").Array,
    "jax.numpy": lambda: requires("jax.numpy"),
}


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("produce", PRODUCERS.values(), ids=PRODUCERS)
def test_every_library_is_reached_from_every_other(
    produce: Callable[[Array], Any], to: Callable[[], Any]
) -> None:
    """The elements are the same, and they are in the same place."""
    array = aligned()
    target, x = to(), produce(array)
    # torch would write to what nobody may write.
    share = dlx.from_dlpack(x).readonly if produce is PRODUCERS["jax"] else False
    made = dlx.convert(x, target, share_readonly=share)
    if isinstance(target, type):
        assert isinstance(made, target)
    assert address(made) == array.ctypes.data
    np.testing.assert_array_equal(dlx.from_dlpack(made).numpy(), array)


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
def test_copy_true_gives_memory_of_its_own(to: Callable[[], Any]) -> None:
    """R59: at another address, with the same elements."""
    array = aligned()
    made = dlx.convert(array, to(), copy=True)
    assert address(made) != array.ctypes.data
    np.testing.assert_array_equal(dlx.from_dlpack(made).numpy(), array)


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
def test_copy_false_shares_the_memory(to: Callable[[], Any]) -> None:
    """R58: the result is at the address of the array."""
    array = aligned()
    assert address(dlx.convert(array, to(), copy=False)) == array.ctypes.data


@pytest.mark.parametrize(
    "make",
    [Producer, table_class(), without_protocol()],
    ids=["methods", "both", "table"],
)
@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
def test_copy_false_refuses_a_copy_that_the_producer_made(
    to: Callable[[], Any], make: Callable[..., Any]
) -> None:
    """R58, R37: the flag IS_COPIED tells, whoever takes the tensor."""
    target = to()
    for _ in range(20):  # some are asked in another way once they are known
        dlx.from_dlpack(make())
    producer = make(flags=DLPACK_FLAG_BITMASK_IS_COPIED)
    with pytest.raises(dlx.CopyRefused, match="the producer made a copy"):
        dlx.convert(producer, target, copy=False)
    assert {export.deleted for export in producer.exports} == {1}


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
def test_the_cpu_is_a_device_for_what_is_there(to: Callable[[], Any]) -> None:
    array = aligned()
    assert address(dlx.convert(array, to(), device="cpu")) == array.ctypes.data


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
def test_an_instance_is_returned_as_it_is(to: Callable[[], Any]) -> None:
    """Nothing is asked for that it is not."""
    target = to()
    made = dlx.convert(aligned(), target)
    assert dlx.convert(made, type(made)) is made
    assert dlx.convert(made, target) is made
    assert dlx.convert(made, target, copy=False, device="cpu") is made


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
def test_a_copy_of_an_instance_is_another(to: Callable[[], Any]) -> None:
    target = to()
    made = dlx.convert(aligned(), target)
    copied = dlx.convert(made, target, copy=True)
    assert copied is not made
    assert type(copied) is type(made)
    assert address(copied) != address(made)


def test_a_pyarrow_array_shares_the_memory() -> None:
    array = np.arange(4.0)
    made = dlx.convert(array, pa.Array)
    assert isinstance(made, pa.DoubleArray)
    assert address(made) == array.ctypes.data


def test_an_instance_of_a_subclass_is_an_instance() -> None:
    torch = requires("torch")
    parameter = torch.nn.Parameter(torch.ones(2))
    assert dlx.convert(parameter, torch.Tensor) is parameter


def test_an_instance_of_a_subclass_of_a_mixin_class_is_an_instance() -> None:
    class Narrow(Own, exchange="data"):
        pass

    narrow = Narrow(aligned())
    assert dlx.convert(narrow, Own) is narrow


def test_between_two_tables_there_is_no_protocol() -> None:
    """R112: what the one exports, the other is given."""
    source, target = table_class("Source")(), table_class("Target")
    made = dlx.convert(source, target)
    assert type(made) is target
    assert source.called == BY_TABLE


def test_the_class_of_a_namespace_is_found_by_its_usual_names() -> None:
    space = types.ModuleType("space")
    space.Array = Own  # type: ignore[attr-defined]
    assert isinstance(dlx.convert(aligned(), space), Own)


def test_a_class_with_from_dlpack_needs_no_table() -> None:
    class Plain:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        @classmethod
        def from_dlpack(cls, x: Any) -> Plain:
            return cls(dlx.from_dlpack(x))

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.tensor.__dlpack__(**keywords)

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    array = aligned()
    made = dlx.convert(array, Plain, copy=False)
    assert type(made) is Plain
    assert address(made) == array.ctypes.data


def test_what_a_mixin_gets_keeps_its_flags() -> None:
    """R39: `__dlx_import__` is given a `dlx.Tensor` that says it is read-only."""
    array = aligned()
    array.flags.writeable = False
    assert dlx.convert(array, Own).data.readonly


def test_a_mixin_class_may_die_after_a_conversion() -> None:
    class Short(Own, exchange="data"):
        pass

    dlx.convert(aligned(), Short)
    reference = weakref.ref(Short)
    del Short
    gc.collect()
    assert reference() is None


# Lifetime.


# What a fake table makes keeps its last export; a test below counts for it.
OF_LIBRARIES = {name: to for name, to in TARGETS.items() if name != "a table"}


@pytest.mark.parametrize("to", OF_LIBRARIES.values(), ids=OF_LIBRARIES)
def test_the_memory_lives_as_long_as_what_was_made(to: Callable[[], Any]) -> None:
    """R8: the producer's object dies first, and is let go of with the consumer's."""
    producer = Stored(aligned())
    reference = weakref.ref(producer.data.base)
    made = dlx.convert(producer, to())
    del producer
    assert reference() is not None
    np.testing.assert_array_equal(dlx.from_dlpack(made).numpy(), aligned())
    del made
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    "to", [np.ndarray, dlx.Tensor, Own, table_class()], ids=lambda to: to.__name__
)
def test_a_tensor_is_deleted_once_with_its_consumer(to: type) -> None:
    """R8, by the count of the producer."""
    source = table_class()()
    made: Any = dlx.convert(source, to)
    assert source.deleted == 0
    del made
    assert source.deleted == 1


def test_the_producer_may_outlive_what_was_made() -> None:
    torch = requires("torch")
    array = aligned()
    before = sys.getrefcount(array)
    made = dlx.convert(array, torch.Tensor)
    assert sys.getrefcount(array) == before + 1
    del made
    assert sys.getrefcount(array) == before


def test_an_export_of_what_was_made_shares_the_memory() -> None:
    torch = requires("torch")
    array = aligned()
    made = dlx.convert(dlx.convert(array, torch), np)
    assert exported(dlx.from_dlpack(made)).dl_tensor.data == array.ctypes.data


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
def test_a_table_that_does_not_describe_a_tensor_leaves_the_protocol(
    to: Callable[[], Any],
) -> None:
    """R147: the table may describe less."""
    target = to()
    failing: dict[str, Any] = {FROM_PY: c_function("fail_with_buffer_error")}
    producer = table_class(**failing)(memory=aligned().data)
    made = dlx.convert(producer, target)
    np.testing.assert_array_equal(dlx.from_dlpack(made), [[0, 1, 2], [3, 4, 5]])
    assert "__dlpack__" in producer.called


def test_convert_of_a_producer_with_old_protocol() -> None:
    made: Array = dlx.convert(Producer(versioned=False), np.ndarray)
    np.testing.assert_array_equal(made, [[0, 1, 2], [3, 4, 5]])
