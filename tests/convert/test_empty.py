"""`empty`: memory from the allocator of a library, of a class, or of dlx."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, c_char_p, c_void_p
from types import ModuleType
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import DLTensor
from support.fake_table import table_class
from support.optional_libraries import requires

SetError = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)


def failing(kind: bytes | None, message: bytes, empty: Any = None) -> Any:
    """Make an allocator that reports this, but gives `empty` for no elements."""

    def allocate(prototype: int, out: int, context: int, set_error: int) -> int:
        wanted = DLTensor.from_address(prototype)
        if empty is not None and wanted.shape[: wanted.ndim] == [0]:
            c_void_p.from_address(out).value = empty.export()
            return 0
        SetError(set_error)(context, kind, message)
        return -1

    return allocate


def test_without_like_it_is_a_tensor_on_the_cpu() -> None:
    made = dlx.empty((2, 3), "float32")
    assert type(made) is dlx.Tensor
    assert made.shape == (2, 3)
    assert made.dtype == "float32"
    assert made.device == "cpu"
    assert made.is_contiguous
    assert made.data_ptr % 256 == 0
    assert not made.readonly


@pytest.mark.parametrize(
    ("shape", "extents"),
    [(3, (3,)), (0, (0,)), ((), ()), ([2, 3], (2, 3)), (np.int64(4), (4,))],
)
def test_a_shape_is_an_int_or_a_sequence(shape: Any, extents: tuple[int, ...]) -> None:
    assert dlx.empty(shape, "int8").shape == extents


@pytest.mark.parametrize("dtype", ["bfloat16", np.float32, np.dtype("i2"), (2, 64, 1)])
def test_a_dtype_is_what_dtype_takes(dtype: Any) -> None:
    assert dlx.empty(2, dtype).dtype == dlx.DType(dtype)


def test_memory_can_be_written() -> None:
    array = dlx.convert(dlx.empty(3, "int32"), np.ndarray)
    array[:] = [1, 2, 3]
    assert array.tolist() == [1, 2, 3]


LIKE = {
    "numpy": lambda: np,
    "numpy.ndarray": lambda: np.ndarray,
    "the name of a namespace": lambda: "numpy",
    "an array": lambda: np.ones(1),
    "torch": lambda: requires("torch"),
    "torch.Tensor": lambda: requires("torch").Tensor,
    "a torch tensor": lambda: requires("torch").ones(1),
    "jax.numpy": lambda: requires("jax.numpy"),
    "a dlx.Tensor": lambda: dlx.from_dlpack(np.ones(1)),
}


@pytest.mark.parametrize("like", LIKE.values(), ids=LIKE)
def test_the_result_is_of_the_kind_of_like(like: Any) -> None:
    like = like()
    made = dlx.empty((2, 3), "float32", like=like)
    if isinstance(like, (ModuleType, str)):
        assert type(made) is type(dlx.convert(np.ones(1, np.float32), like))
    else:
        assert isinstance(made, like if isinstance(like, type) else type(like))
    tensor = dlx.from_dlpack(made)
    assert tensor.shape == (2, 3)
    assert tensor.dtype == "float32"


def test_memory_like_an_array_can_be_written() -> None:
    made = dlx.empty(3, "float64", like=np)
    made[:] = 1
    assert made.sum() == 3


class Own(dlx.ExchangeMixin, exchange="data"):
    """A mixin class with an allocator that counts."""

    calls = 0

    def __init__(self, data: Any) -> None:
        """Hold the tensor."""
        self.data = data

    @classmethod
    def __dlx_empty__(cls, shape: Any, dtype: Any, device: Any) -> Any:
        """Allocate through NumPy."""
        cls.calls += 1
        return np.empty(shape, str(dtype))


def test_a_mixin_class_allocates_by_its_hook() -> None:
    for like in (Own, Own(np.ones(1))):
        before = Own.calls
        made = dlx.empty((2, 3), "int16", device="cpu", like=like)
        assert type(made) is Own
        assert Own.calls == before + 1
        assert made.data.shape == (2, 3)


def test_a_hook_that_gives_something_else_is_a_type_error() -> None:
    class Wrong(Own, exchange="data"):
        @classmethod
        def __dlx_empty__(cls, shape: Any, dtype: Any, device: Any) -> Any:
            return np.empty(3)

    with pytest.raises(TypeError, match="__dlx_empty__ returned"):
        dlx.empty((2, 3), "int16", like=Wrong)


def test_a_mixin_class_without_the_hook_gets_memory_of_dlx() -> None:
    class Plain(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any) -> None:
            self.data = data

    made = dlx.empty(2, "int8", like=Plain)
    assert type(made.data) is dlx.Tensor
    assert made.data.shape == (2,)


def test_a_table_allocates_and_makes_the_object() -> None:
    made = dlx.empty((2, 3), "float32", like=table_class("Fake"))
    assert type(made).__name__ == "Fake"
    assert dlx.from_dlpack(made).shape == (2, 3)


def test_a_table_without_an_allocator_gets_memory_of_dlx() -> None:
    made = dlx.empty(2, "float32", like=table_class(managed_tensor_allocator=None))
    assert dlx.from_dlpack(made).data_ptr % 256 == 0


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (b"MemoryError", MemoryError, "not today"),
        (b"ValueError", ValueError, "not today"),
        (b"BufferError", BufferError, "not today"),
        (b"NoSuchError", RuntimeError, "NoSuchError: not today"),
        (b"print", RuntimeError, "print: not today"),
        (b"SystemExit", RuntimeError, "SystemExit: not today"),
        (None, RuntimeError, ": not today"),
    ],
)
def test_what_an_allocator_reports_is_the_exception_of_that_name(
    kind: bytes | None, error: type[Exception], message: str
) -> None:
    """R135, R136: without its trace; other names are RuntimeErrors."""

    made = table_class("Made")(shape=(0,))
    allocate = failing(kind, b"not today\nframe #0: c10::Error", empty=made)
    with pytest.raises(error) as info:
        dlx.empty(2, "float32", like=table_class(managed_tensor_allocator=allocate))
    assert str(info.value) == message
    assert made.deleted == (error is not BufferError)  # which needs no second question


@pytest.mark.parametrize("kind", [b"MemoryError", b"RuntimeError"])
def test_an_allocator_that_fails_without_elements_too_has_no_such_tensors(
    kind: bytes,
) -> None:
    """torch reports a dtype that it does not have as a MemoryError."""
    fake = table_class("Fake", managed_tensor_allocator=failing(kind, b"what\n#0"))
    with pytest.raises(BufferError) as info:
        dlx.empty(2, "float6_e2m3fn", like=fake)
    assert str(info.value) == (
        f"{fake.__module__}.Fake cannot make float6_e2m3fn tensors on cpu: what"
    )
    cause = info.value.__cause__
    assert (type(cause).__name__, str(cause)) == (kind.decode(), "what")


@pytest.mark.parametrize(
    ("dtype", "device"), [("float4_e2m1fn", None), ("int4", None), ("int8", "maia:0")]
)
def test_what_torch_does_not_have_is_one_line(dtype: str, device: Any) -> None:
    torch = requires("torch")
    with pytest.raises(BufferError, match=f"cannot make {dtype} tensors on ") as info:
        dlx.empty(3, dtype, like=torch, device=device)
    assert "\n" not in str(info.value)
    assert type(info.value.__cause__) is MemoryError
    assert dlx.empty(3, "int8", like=torch).dtype is torch.int8


def test_memory_that_torch_cannot_have_is_a_memory_error_of_one_line() -> None:
    torch = requires("torch")
    with pytest.raises(MemoryError, match="allocate") as info:
        dlx.empty(2**50, "float32", like=torch)
    assert "\n" not in str(info.value)


def test_an_allocator_that_fails_in_silence_is_a_buffer_error() -> None:
    """R135: it should have reported."""
    like = table_class(managed_tensor_allocator=lambda *_: -1)
    with pytest.raises(BufferError, match="failed without an exception"):
        dlx.empty(2, "float32", like=like)


def test_an_allocator_that_succeeds_with_nothing_is_a_buffer_error() -> None:
    like = table_class(managed_tensor_allocator=lambda *_: 0)
    with pytest.raises(BufferError, match="succeeded without a tensor"):
        dlx.empty(2, "float32", like=like)


def test_an_allocator_that_gives_another_tensor_is_a_buffer_error() -> None:
    """R138: what it gave is deleted."""
    other = table_class("Other")()

    def allocate(prototype: int, out: int, context: int, set_error: int) -> int:
        c_void_p.from_address(out).value = other.export()
        return 0

    like = table_class("Fake", managed_tensor_allocator=allocate)
    with pytest.raises(
        BufferError, match=r"float32\[2, 3\].*instead of a float32\[7\]"
    ):
        dlx.empty(7, "float32", like=like)
    assert other.deleted == 1


def test_memory_whose_object_fails_is_deleted_once() -> None:
    """R131: `to_py` failed, so the tensor is still the caller's."""
    made = table_class("Made")()

    def allocate(prototype: int, out: int, context: int, set_error: int) -> int:
        c_void_p.from_address(out).value = made.export()
        return 0

    entries: dict[str, Any] = {
        "managed_tensor_allocator": allocate,
        "managed_tensor_to_py_object_no_sync": lambda *_: -1,
    }
    with pytest.raises(BufferError, match="failed without an exception"):
        dlx.empty((2, 3), "float32", like=table_class("Fake", **entries))
    assert made.deleted == 1


def test_the_device_is_that_of_like() -> None:
    seen: list[tuple[int, int]] = []

    full = failing(b"MemoryError", b"full")

    def allocate(prototype: int, out: int, context: int, set_error: int) -> int:
        device = (ctypes.c_int32 * 2).from_address(prototype + 8)
        seen.append((device[0], device[1]))
        failed: int = full(prototype, out, context, set_error)
        return failed

    fake = table_class(managed_tensor_allocator=allocate)
    for like, device in [(fake(device=(2, 1)), None), (fake, "cuda:1"), (fake, None)]:
        with pytest.raises(BufferError, match="full"):
            dlx.empty(2, "float32", device=device, like=like)
    # Each is asked for a tensor without elements as well.
    assert seen[::2] == seen[1::2] == [(2, 1), (2, 1), (1, 0)]


@pytest.mark.parametrize(
    ("device", "why"),
    [("cuda:0", "no memory on cuda:0: the driver"), ("metal:0", "only on cpu")],
)
@pytest.mark.parametrize("like", [None, np, dlx.Tensor], ids=str)
def test_other_devices_need_a_driver_or_a_library_that_has_them(
    like: Any, device: str, why: str
) -> None:
    with pytest.raises(BufferError, match=why):
        dlx.empty(2, "float32", device=device, like=like)


@pytest.mark.parametrize("shape", [-1, (2, -1), (2**62, 4), (1,) * 65])
def test_a_shape_that_cannot_be_is_a_value_error(shape: Any) -> None:
    with pytest.raises(ValueError, match=r"extent|address space|dimensions|-1"):
        dlx.empty(shape, "float32")


@pytest.mark.parametrize("shape", ["ab", 1.5, None, [1.5]])
def test_a_shape_of_something_else_is_a_type_error(shape: Any) -> None:
    with pytest.raises(TypeError, match="shape is"):
        dlx.empty(shape, "float32")


def test_memory_that_cannot_be_had_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        dlx.empty(2**60, "int8")
