"""`convert` where the other library would crash, misread or forget: copies, errors."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import weakref
from functools import partial
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from support.dlpack_abi import DLManagedTensorVersioned, delete, give_reference
from support.fake_producers import Producer, c_function
from support.fake_table import hand_out, table_class
from support.jax_arrays import takes_read_only
from support.optional_libraries import requires

Array = NDArray[Any]


def importing(entry: Any) -> type[Producer]:
    """Make a class whose table makes its instances by `entry`."""
    return table_class("Target", managed_tensor_to_py_object_no_sync=entry)


def backward() -> Array:
    """An array with a negative stride."""
    return np.arange(6.0, dtype=np.float32)[::-1]


def constant() -> Array:
    """A read-only array."""
    array = np.arange(6.0, dtype=np.float32)
    array.flags.writeable = False
    return array


# What torch does not take.


@given(npst.arrays("f4", npst.array_shapes(max_dims=4, max_side=3)), st.data())
def test_torch_gets_every_layout(array: Array, data: st.DataObject) -> None:
    """R99: shared, or copied where a stride is negative and walked."""
    torch = requires("torch")
    steps = data.draw(
        st.lists(
            st.sampled_from([-2, -1, 1, 2]), min_size=array.ndim, max_size=array.ndim
        )
    )
    array = array[tuple(slice(None, None, step) for step in steps)]
    made = dlx.convert(array, torch.Tensor)
    np.testing.assert_array_equal(made.numpy(), array)
    if array.size > 1:
        walked = [s for n, s in zip(array.shape, array.strides, strict=True) if n > 1]
        is_shared = made.data_ptr() == array.ctypes.data
        assert is_shared == all(stride > 0 for stride in walked)


@pytest.mark.parametrize("make", [backward, constant])
def test_what_torch_would_crash_on_or_write_to_is_copied(make: Any) -> None:
    """R39: torch forgets READ_ONLY, and up to 2.13 ends the process."""
    torch = requires("torch")
    array = make()
    for x in (array, dlx.from_dlpack(array), memoryview(array)):
        made = dlx.convert(x, torch)
        assert made.data_ptr() != array.ctypes.data
        np.testing.assert_array_equal(made.numpy(), array)
        made += 1
    assert sorted(array.tolist()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("make", "why"), [(backward, "negative strides"), (constant, "read-only")]
)
def test_copy_false_refuses_what_torch_does_not_take(make: Any, why: str) -> None:
    """R58: and says what `copy=True` would do."""
    torch = requires("torch")
    with pytest.raises(dlx.CopyRefused, match=f"{why}.*(pass|or) copy=True"):
        dlx.convert(make(), torch.Tensor, copy=False)


@pytest.mark.parametrize("make", [backward, constant])
def test_the_advice_for_jax_is_what_its_user_can_follow(make: Any) -> None:
    """R58: what asks for another capsule is JAX, and its class is `jax.Array`."""
    jax = requires("jax")
    if make is constant and takes_read_only(constant()):
        pytest.skip("this JAX imports read-only memory: it needs no advice")
    with pytest.raises(dlx.CopyRefused, match=r"but jax.Array does not") as refused:
        dlx.convert(make(), jax, copy=False)
    said, _, advice = str(refused.value).rpartition("; pass ")
    assert "max_version" not in said
    assert re.search(r"\w[\])]?$", said)
    assert advice.endswith("copy=True for a compact copy")
    assert dlx.convert(make(), jax, copy=True).shape == make().shape
    if "share_readonly" in advice:
        array = dlx.empty(8, "float32").numpy()  # JAX shares what is aligned
        array.flags.writeable = False
        shared = dlx.convert(array, jax, share_readonly=True, copy=False)
        assert shared.unsafe_buffer_pointer() == array.ctypes.data


@pytest.mark.parametrize("module", ["torch", "tvm_ffi"])
def test_nothing_to_protect_needs_no_copy(module: str) -> None:
    """R39, R58: read-only memory without elements."""
    to = requires(module).Tensor
    made = dlx.convert(np.frombuffer(b"", "f4"), to, copy=False)
    assert tuple(made.shape) == (0,)


DTYPES = ["float8_e3m4", "float6_e2m3fn", "int4", "float32x2", "handle64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_that_torch_does_not_have_is_named(dtype: str) -> None:
    torch = requires("torch")
    tensor = dlx.from_pointer(256, (4,), dtype)
    with pytest.raises(BufferError, match=rf"torch\.Tensor .* {dtype} tensor") as info:
        dlx.convert(tensor, torch.Tensor)
    assert info.value.__cause__ is not None
    assert "\n" not in str(info.value)


def test_what_torch_guards_is_guarded() -> None:
    """R125: before anything is handed on."""
    torch = requires("torch")
    with pytest.raises(BufferError, match="requires grad"):
        dlx.convert(torch.ones(2, requires_grad=True), np)
    with pytest.raises(BufferError, match="conjugated"):
        dlx.convert(torch.ones(2, dtype=torch.complex64).conj(), np)


def test_a_class_that_its_library_does_not_make_is_a_type_error() -> None:
    torch = requires("torch")
    with pytest.raises(TypeError, match=r"Parameter .* makes torch\.Tensor"):
        dlx.convert(np.ones(2), torch.nn.Parameter)


# What JAX does not take.


def test_jax_without_64_bits_is_refused() -> None:
    """It would round, and cut off, without a word."""
    jax = requires("jax")
    for dtype in ("float64", "int64"):
        with pytest.raises(
            BufferError, match=f"would import {dtype} as {dtype[:-2]}32"
        ):
            dlx.convert(np.ones(3, dtype), jax.Array)


@pytest.mark.parametrize("index", [np.s_[::-1], np.s_[::2]])
def test_what_jax_does_not_take_is_copied(index: Any) -> None:
    jax = requires("jax")
    array = np.arange(64, dtype=np.float32)[index]
    made = dlx.convert(array, jax.Array)
    np.testing.assert_array_equal(np.asarray(made), array)
    with pytest.raises(dlx.CopyRefused, match="pass copy=True"):
        dlx.convert(array, jax.Array, copy=False)


def test_a_copy_that_jax_makes_by_itself_is_refused() -> None:
    """R58: it copies what is not aligned to 64 bytes."""
    jax = requires("jax")
    memory = np.zeros(256, np.uint8)
    start = -memory.ctypes.data % 64 + 4
    array = memory[start : start + 64].view(np.float32)
    dlx.convert(array, jax.Array)
    with pytest.raises(dlx.CopyRefused, match="makes a copy"):
        dlx.convert(array, jax.Array, copy=False)


# A library that takes the tensor and does not say what became of READ_ONLY.


class Forgetful:
    """A class that keeps what it is given as writable."""

    def __init__(self, tensor: dlx.Tensor) -> None:
        """Forget that it is read-only."""
        self.tensor = dlx.from_pointer(
            tensor.data_ptr, tensor.shape, tensor.dtype, owner=tensor
        )

    @classmethod
    def from_dlpack(cls, tensor: dlx.Tensor) -> Forgetful:
        """Import."""
        return cls(tensor)

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export."""
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """On the CPU."""
        return (1, 0)


def test_read_only_memory_is_copied_for_who_forgets_the_flag() -> None:
    """R39: a library whose tensors do not say that they are read-only."""
    array = constant()
    made = dlx.convert(array, Forgetful)
    assert made.tensor.data_ptr != array.ctypes.data
    with pytest.raises(dlx.CopyRefused, match="read-only"):
        dlx.convert(array, Forgetful, copy=False)


class Hiding(Forgetful):
    """A class that exports a copy of the memory that it shares."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export a copy, and do not say so."""
        return dlx.from_dlpack(self.tensor.numpy().copy()).__dlpack__(**keywords)


def test_an_export_elsewhere_shows_nothing_of_the_memory_of_an_array() -> None:
    """R39: the array itself may be where the tensor is."""
    array = constant()
    made = dlx.convert(array, Hiding)
    assert made.tensor.data_ptr != array.ctypes.data
    np.testing.assert_array_equal(made.tensor.numpy(), array)


class Moody(Forgetful):
    """A class of which some instances keep the flag."""

    keeps = False

    def __init__(self, tensor: dlx.Tensor) -> None:
        """Keep it or not."""
        super().__init__(tensor)
        self.tensor = tensor if self.keeps else self.tensor


def test_what_became_of_one_tensor_says_nothing_of_the_next() -> None:
    """R39: neither that the flag was kept nor that it was lost is remembered."""
    array = constant()
    for keeps in [False, True, False, True]:
        Moody.keeps = keeps
        made = dlx.convert(array, Moody)
        assert (made.tensor.data_ptr == array.ctypes.data) is keeps
        assert made.tensor.readonly is keeps


def test_writable_memory_is_shared_with_who_forgets_the_flag() -> None:
    array = np.ones(3)
    assert dlx.convert(array, Forgetful).tensor.data_ptr == array.ctypes.data


class Short(Forgetful):
    """Made by an importer whose extents have 32 bits, as MLX's."""

    @classmethod
    def from_dlpack(cls, x: Any) -> Any:
        """Refuse."""
        raise OverflowError("an extent is outside of the supported range")


def test_an_overflow_is_a_refusal() -> None:
    """A library that refuses."""
    with pytest.raises(
        BufferError, match=r"does not accept the float64 .* extent"
    ) as it:
        dlx.convert(np.zeros((2**32 + 3, 0)), Short)
    assert isinstance(it.value.__cause__, OverflowError)


# A table that fails (R131): each tensor is deleted once, whoever did it.


def source(kind: str) -> tuple[Any, Any]:
    """Something to convert, and how often its export has been deleted."""
    producer = table_class("Source")()
    if kind == "a table":
        return producer, producer
    return dlx.from_dlpack(producer), producer


@pytest.mark.parametrize("kind", ["a table", "a dlx.Tensor"])
@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (
            "fail_with_value_error",
            "does not accept the float32 tensor: fake value error",
        ),
        (
            "fail_with_buffer_error",
            "does not accept the float32 tensor: fake buffer error",
        ),
        ("fail_without_exception", "failed without an exception"),
        ("succeed_with_null", "succeeded without an object"),
        ("delete_and_fail", "does not accept the float32 tensor: fake value error"),
        ("delete_and_succeed_with_null", "succeeded without an object"),
    ],
)
def test_a_tensor_that_is_not_taken_over_is_deleted_once(
    kind: str, entry: str, error: str
) -> None:
    """R131: neither leaked nor deleted twice."""
    x, producer = source(kind)
    target = importing(c_function(entry))
    with pytest.raises(BufferError, match=error):
        dlx.convert(x, target)
    del x
    gc.collect()
    assert producer.deleted == 1


@pytest.mark.parametrize("entry", ["fail_with_value_error", "delete_and_fail"])
def test_an_array_that_is_not_taken_over_is_let_go_of_once(entry: str) -> None:
    """R131, where NumPy's struct was read."""
    array = np.ones(3)
    before = sys.getrefcount(array)
    target = importing(c_function(entry))
    for _ in range(100):
        with pytest.raises(BufferError):
            dlx.convert(array, target)
    assert sys.getrefcount(array) == before


def test_an_object_that_comes_with_an_exception_is_let_go_of() -> None:
    """R123: success with an exception is a failure; the object owns the tensor."""
    made = Producer()
    reference = weakref.ref(made)
    out = ctypes.c_void_p()
    give_reference(made, ctypes.addressof(out))
    hand_out(out.value)
    target = importing(c_function("succeed_with_exception"))
    with pytest.raises(BufferError, match="succeeded with an exception set") as info:
        dlx.convert(np.ones(2), target)
    assert isinstance(info.value.__cause__, BufferError)
    assert isinstance(info.value.__cause__.__cause__, ValueError)
    del made, info
    assert reference() is None


def test_who_takes_a_tensor_over_deletes_it() -> None:
    """R130: also where the object is not of the class that was asked for."""
    producer = table_class("Source")()
    taken: list[int] = []

    def take(tensor: int, out: int) -> int:
        taken.append(tensor)
        give_reference(object(), out)
        return 0

    with pytest.raises(TypeError, match="makes object"):
        dlx.convert(producer, importing(take))
    assert producer.deleted == 0
    delete(DLManagedTensorVersioned.from_address(taken[0]))
    assert producer.deleted == 1


def test_a_deleter_may_run_before_the_function_succeeds() -> None:
    """A library that copies has no use for the tensor any more."""
    producer = table_class("Source")()

    def copy(tensor: int, out: int) -> int:
        delete(DLManagedTensorVersioned.from_address(tensor))
        give_reference(Producer(), out)
        return 0

    target = importing(copy)
    with pytest.raises(TypeError):
        dlx.convert(producer, target)
    assert producer.deleted == 1


def test_a_table_that_makes_nothing_leaves_it_to_from_dlpack() -> None:
    """R121: without the entry the class is asked in Python."""
    target = importing(None)
    with pytest.raises(TypeError, match="cannot be made from a tensor"):
        dlx.convert(np.ones(2), target)


# Bad arguments.


@pytest.mark.parametrize("to", [3, b"torch", None, object(), [np.ones(1)]], ids=type)
def test_what_is_no_type_namespace_or_tensor_is_a_type_error(to: Any) -> None:
    with pytest.raises(
        TypeError, match=r"an array type .* a namespace .* or its name, or a tensor"
    ):
        dlx.convert(np.ones(2), to)


@pytest.mark.parametrize("to", [int, dict, gc])
def test_what_no_tensor_can_become_is_a_type_error(to: Any) -> None:
    with pytest.raises(TypeError, match=r"expected|from_dlpack"):
        dlx.convert(np.ones(2), to)


def test_what_is_no_tensor_is_a_type_error_in_the_words_of_from_dlpack() -> None:
    """R61: there it is an AttributeError, as the standard asks of that."""
    for to in (np.ndarray, dlx.Tensor, table_class()):
        with pytest.raises(TypeError, match="object has no __dlpack__; from_dlpack"):
            dlx.convert(object(), to)
        with pytest.raises(TypeError, match=r"list .*; pass numpy\.asarray\(x\)$"):
            dlx.convert([1.0, 2.0], to)


def test_an_attribute_error_of_a_tensor_is_passed_on() -> None:
    """It has the protocol, and a fault."""

    class Broken:
        def __dlpack__(self, **_: Any) -> Any:
            raise AttributeError("_buffer")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(AttributeError, match=r"^_buffer$"):
        dlx.convert(Broken(), dlx.Tensor)


def test_a_property_that_fails_is_the_cause_of_the_error() -> None:
    """R61: Python takes the AttributeError of a property for an absent attribute."""

    def fail(_: Any) -> Any:
        raise AttributeError("_buffer")

    cls = type("Broken", (), {"__dlpack__": property(fail)})
    for call in (dlx.from_dlpack, partial(dlx.convert, to=np.ndarray)):
        with pytest.raises(
            (AttributeError, TypeError), match="Broken has no __dlpack__"
        ) as refused:
            call(cls())
        assert str(refused.value.__cause__) == "_buffer"


def test_another_device_is_asked_of_the_producer() -> None:
    with pytest.raises((BufferError, ValueError)):
        dlx.convert(np.ones(2), np.ndarray, device="cuda:0")
    with pytest.raises(BufferError):
        dlx.convert(dlx.from_dlpack(np.ones(2)), np.ndarray, device="cuda:0")


@pytest.mark.parametrize(
    ("make", "how"),
    [
        (
            lambda torch: dlx.convert(dlx.empty(3, "int8x4"), torch),
            "does not accept the",
        ),
        (lambda torch: dlx.empty(3, "int8x4", like=torch), "cannot make int8x4"),
    ],
)
def test_a_backtrace_of_cpp_stays_in_the_cause(make: Any, how: str) -> None:
    """R60: the message has the first line of what torch raises, the cause all of it."""
    torch = requires("torch")
    with pytest.raises(BufferError, match=f"{how} .*ATen does not support") as caught:
        make(torch)
    assert "\n" not in str(caught.value)
    assert "ATen does not support" in str(caught.value.__cause__)
