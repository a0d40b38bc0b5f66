"""`dlx.ArrayInterfaceMixin`: every array interface out of one export."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from numpy.typing import NDArray
from support.fake_producers import Producer
from support.optional_libraries import requires

Array = NDArray[Any]
CUDA, MANAGED, ROCM, CUDA_HOST = (2, 0), (13, 0), (10, 0), (3, 0)
NUMPY_2 = np.lib.NumpyVersion(np.__version__) >= "2.0.0"


class Alone(dlx.ArrayInterfaceMixin, exchange="data"):
    """Has the array interfaces, and no DLPack."""

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data


class Both(dlx.ExchangeMixin, dlx.ArrayInterfaceMixin, exchange="data"):
    """Has both."""

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data


class BothReversed(dlx.ArrayInterfaceMixin, dlx.ExchangeMixin):
    """Has both, by method."""

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data

    def __dlx_export__(self) -> Any:
        """Give what is kept."""
        return self.data


KINDS: list[Any] = [Alone, Both, BothReversed]
every_kind = pytest.mark.parametrize("kind", KINDS)


def grid() -> Array:
    """Twenty-four different elements."""
    return np.arange(24, dtype="int32").reshape(4, 6)


LAYOUTS: dict[str, Callable[[], Array]] = {
    "row-major": grid,
    "transposed": lambda: grid().T,
    "rows apart": lambda: grid()[::2],
    "negative": lambda: grid()[::-1],
    "all negative": lambda: grid()[::-1, ::-1],
    "mixed signs": lambda: grid().reshape(2, 3, 4)[::-1, :, ::-2].transpose(2, 0, 1),
    "broadcast": lambda: np.broadcast_to(grid()[0], (3, 6)),
    "0-d": lambda: np.array(7),
    "empty": lambda: np.zeros((2, 0, 3)),
    "empty and strided": lambda: grid()[2:2, ::-2],
    "extent 1": lambda: grid()[1:2, 3:4],
    "float16": lambda: np.arange(3, dtype="f2"),
    "complex": lambda: np.arange(3) * 1j,
    "bool": lambda: np.array([True, False]),
    "8 bits": lambda: np.arange(5, dtype="u1")[::-2],
}
SOURCES: dict[str, Callable[[Array], Any]] = {
    "array": lambda array: array,
    "tensor": dlx.from_dlpack,
    "mixin": lambda array: Both(array),
    "interface": lambda array: Alone(array),
    "torch": lambda array: requires("torch").from_dlpack(array),
}


@every_kind
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_sees_the_memory_itself(kind: Any, source: str, layout: str) -> None:
    """NumPy's array interface: elements, shape, strides, address."""
    array = LAYOUTS[layout]()
    if source == "torch" and min(array.strides, default=0) < 0:
        array = array.copy()
    instance = kind(SOURCES[source](array))
    for seen in (np.asarray(instance), instance.__array__()):
        assert (seen.dtype, seen.shape) == (array.dtype, array.shape)
        assert np.array_equal(seen, array)
        if array.size:
            assert seen.ctypes.data == array.ctypes.data
            steps = zip(seen.strides, array.strides, array.shape, strict=True)
            assert [a for a, _, n in steps if n > 1] == [
                b for b, n in zip(array.strides, array.shape, strict=True) if n > 1
            ]


@every_kind
def test_writes_reach_the_memory(kind: Any) -> None:
    """It is shared."""
    array = grid()[::-1]
    np.asarray(kind(array))[0, 0] = -1
    assert array[0, 0] == -1


@every_kind
def test_read_only_memory_stays_read_only(kind: Any) -> None:
    """R39, R42: through both `__array_interface__` and `__array__`."""
    array = np.broadcast_to(np.float32(1), (3,))
    instance = kind(array)
    assert not np.asarray(instance).flags.writeable
    assert not instance.__array__().flags.writeable


@every_kind
def test_the_interface_is_of_version_3(kind: Any) -> None:
    """NumPy's array interface; its `data` owns the memory."""
    array = grid()[::-1, ::2]
    interface = kind(array).__array_interface__
    assert interface["version"] == 3
    assert (interface["typestr"], interface["shape"]) == ("<i4", (4, 3))
    assert tuple(interface["strides"]) == array.strides
    assert memoryview(interface["data"]).nbytes >= 4 * 24 - 4


@every_kind
@pytest.mark.parametrize("look", [np.asarray, lambda x: x.__array__()])
def test_the_array_holds_the_memory_and_not_the_instance(kind: Any, look: Any) -> None:
    """R15: reassigned, deleted, gone."""
    producer = Producer()
    instance = kind(producer)
    gone = weakref.ref(instance)
    array = look(instance)
    instance.data = np.zeros(1)
    del instance
    gc.collect()
    assert gone() is None
    assert producer.deleted == 0
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    view = array[1:]
    del array
    assert producer.deleted == 0
    assert view.tolist() == [[3, 4, 5]]
    del view
    assert producer.deleted == 1


@every_kind
def test_the_interface_alone_holds_the_memory(kind: Any) -> None:
    """R15: though nobody has made an array of it yet."""
    producer = Producer()
    interface = kind(producer).__array_interface__
    assert producer.deleted == 0
    holder = type("Holder", (), {"__array_interface__": interface})()
    assert np.asarray(holder).tolist() == [[0, 1, 2], [3, 4, 5]]
    del interface, holder
    gc.collect()
    assert producer.deleted == 1


# __array__(dtype, copy)


@every_kind
@pytest.mark.parametrize("dtype", ["int32", np.int32, np.dtype("int32"), None])
@pytest.mark.parametrize("copy", [None, False])
def test_the_same_dtype_needs_no_copy(kind: Any, dtype: Any, copy: bool | None) -> None:
    """NumPy 2's `__array__`."""
    array = grid()
    assert np.shares_memory(kind(array).__array__(dtype, copy=copy), array)


@every_kind
@pytest.mark.parametrize("dtype", [None, "int32", "float64"])
def test_copy_true_copies(kind: Any, dtype: Any) -> None:
    """NumPy 2's `__array__`: whatever the dtype."""
    array = grid()
    copied = kind(array).__array__(dtype, copy=True)
    assert copied.dtype == np.dtype(dtype or "int32")
    assert not np.shares_memory(copied, array)
    assert copied.flags.writeable
    assert np.array_equal(copied, array)


@every_kind
def test_another_dtype_is_a_copy(kind: Any) -> None:
    """NumPy 1 and 2: by position, by keyword, and through `np.asarray`."""
    instance = kind(grid())
    for copied in (
        instance.__array__("float64"),
        instance.__array__(dtype="float64"),
        np.asarray(instance, dtype="float64"),
    ):
        assert copied.dtype == np.float64
        assert np.array_equal(copied, grid())


@every_kind
def test_another_dtype_without_a_copy_is_a_value_error(kind: Any) -> None:
    """NumPy 2's `__array__`."""
    with pytest.raises(ValueError, match="copy"):
        kind(grid()).__array__("float64", copy=False)


@every_kind
def test_numpy_passes_its_copy_argument(kind: Any) -> None:
    """NumPy 2: copy= of `np.array` and `np.asarray`."""
    array = grid()
    instance = kind(array)
    assert not np.shares_memory(np.array(instance), array)
    if NUMPY_2:
        assert np.shares_memory(np.asarray(instance, copy=False), array)
        assert not np.shares_memory(np.asarray(instance, copy=True), array)
        with pytest.raises(ValueError, match="copy"):
            np.asarray(instance, dtype="float64", copy=False)


# What NumPy cannot have.


@every_kind
def test_a_dtype_that_numpy_does_not_know_is_a_clear_error(kind: Any) -> None:
    """Not an array of one object."""
    instance = kind(Producer(dtype=(2, 16, 2)))
    with pytest.raises(BufferError, match="float16x2"):
        np.asarray(instance)
    with pytest.raises(AttributeError, match="float16x2"):
        _ = instance.__array_interface__


@every_kind
def test_array_may_know_more_dtypes_than_the_interface(kind: Any) -> None:
    """ml_dtypes has bfloat16."""
    instance = kind(Producer(dtype=(4, 16, 1)))
    assert not hasattr(instance, "__array_interface__")
    for array in (instance.__array__(), np.asarray(instance)):
        assert (array.dtype.name, array.shape) == ("bfloat16", (2, 3))


@every_kind
@pytest.mark.parametrize("device", [CUDA, MANAGED, ROCM, (2, 1)])
def test_memory_elsewhere_has_no_array_interface(
    kind: Any, device: tuple[int, int]
) -> None:
    """`hasattr` is false, and NumPy gets an error, not an array of one object."""
    instance = kind(Producer(device=device))
    assert not hasattr(instance, "__array_interface__")
    for look in (np.asarray, kind.__array__):
        with pytest.raises(BufferError, match="requires memory on cpu"):
            look(instance)


@every_kind
def test_the_exception_of_an_export_reaches_numpy(kind: Any) -> None:
    """R60: also an AttributeError, which NumPy would take for an absent interface."""

    def fail(self: Any) -> Any:
        raise error

    for error in (KeyError("own"), AttributeError("own"), MemoryError()):
        failing = type("Failing", (kind,), {"data": property(fail, lambda *_: None)})
        with pytest.raises(type(error)) as caught:
            np.asarray(failing(None))
        assert caught.value is error


@every_kind
@pytest.mark.parametrize("nonsense", [None, 5, "abc", [1, 2]], ids=str)
def test_nonsense_reaches_numpy_as_a_type_error(kind: Any, nonsense: Any) -> None:
    """It names the class and the place, and is no array of one object."""
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.(data|__dlx_export__)"):
        np.asarray(kind(nonsense))


# __cuda_array_interface__


@every_kind
@pytest.mark.parametrize("device", [CUDA, (2, 3), MANAGED])
@pytest.mark.parametrize("flags", [0, 1])
def test_memory_on_cuda_has_its_interface(
    kind: Any, device: tuple[int, int], flags: int
) -> None:
    """R148, R152: version 3, with the stream on which the elements are ready."""
    producer = Producer(device=device, flags=flags)
    assert kind(producer).__cuda_array_interface__ == {
        "version": 3,
        "shape": (2, 3),
        "typestr": "<f4",
        "strides": None,
        "data": (producer.data, bool(flags)),
        "stream": 1,
    }
    assert producer.asked["stream"] == 1


@every_kind
def test_memory_on_the_cpu_has_no_cuda_interface(kind: Any) -> None:
    """`hasattr` is false: for pinned memory and ROCm too."""
    for device in ((1, 0), CUDA_HOST, ROCM):
        assert not hasattr(kind(Producer(device=device)), "__cuda_array_interface__")


def test_the_array_interfaces_are_not_on_a_class_without_the_mixin() -> None:
    """A class may take either mixin alone."""
    only = type("Only", (dlx.ExchangeMixin,), {}, exchange="data")
    for name in ("__array_interface__", "__array__", "__cuda_array_interface__"):
        assert not hasattr(only, name)
    for name in ("__dlpack__", "__dlpack_c_exchange_api__", "from_dlpack"):
        assert not hasattr(Alone, name)


def test_dlx_reads_a_class_that_has_only_the_interfaces() -> None:
    """Rung 5: its `data` is a buffer that holds the memory."""
    producer = Producer(strides=(1, 2))
    tensor = dlx.from_dlpack(Alone(producer))
    assert (tensor.shape, tensor.strides) == ((2, 3), (1, 2))
    assert tensor.data_ptr == producer.data
    assert producer.deleted == 0
    del tensor
    gc.collect()
    assert producer.deleted == 1


@pytest.mark.parametrize("kind", KINDS)
def test_pillow_takes_the_bytes_of_an_image(kind: Any) -> None:
    """It calls tobytes where there are strides, and asks for a buffer where not."""
    array = np.arange(24, dtype="u1").reshape(2, 4, 3)
    for layout in (array, array[::-1]):
        x = kind(layout)
        assert x.__array_interface__["strides"] == layout.strides
        assert x.tobytes() == layout.tobytes()
    image = requires("PIL.Image").fromarray(kind(array))
    assert np.array_equal(np.asarray(image), array)
