"""What is answered without the usual steps is what the usual steps give."""

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

torch: Any = requires("torch")

TENSORS: dict[str, Callable[[], Any]] = {
    "fresh": lambda: torch.arange(12.0).reshape(3, 4),
    "scalar": lambda: torch.tensor(5),
    "view": lambda: torch.arange(12.0).reshape(3, 4)[1:, ::2],
    "transposed": lambda: torch.arange(6).reshape(2, 3).T,
    "expanded": lambda: torch.ones(3, 1).expand(3, 4),
    "empty": lambda: torch.ones(4)[2:2],
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "real part": lambda: torch.ones(3, dtype=torch.complex64).real,
    "large stride": lambda: torch.empty_strided((1, 2), (1 << 40, 1)),
    "many dimensions": lambda: torch.ones((1,) * 40),
}


def said(tensor: dlx.Tensor) -> tuple[object, ...]:
    """Everything that a tensor says of its memory."""
    layout = (tensor.shape, tensor.strides, tensor.data_ptr)
    return *layout, tensor.dtype, tensor.device, tensor.readonly, tensor.is_copied


@pytest.mark.parametrize("name", TENSORS)
def test_a_lent_torch_tensor_is_what_an_import_gives(name: str) -> None:
    """Both read torch's fields."""
    x = TENSORS[name]()
    with dlx.borrow(x, x) as (first, second, stream):
        assert said(first) == said(second) == said(dlx.from_dlpack(x))
        assert stream is None


def test_a_lent_torch_tensor_may_record_gradients_by_its_base() -> None:
    """R125: a kernel records none, an import would lose them."""
    base = torch.ones(3, 4)
    view = base[1:]
    assert dlx.from_dlpack(view).shape == (2, 4)
    base.requires_grad_()
    with pytest.raises(BufferError, match="requires grad"):
        dlx.from_dlpack(view)
    with dlx.borrow(view) as (lent, _):
        assert lent.shape == (2, 4)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6, dtype="int64")[::-2],
        np.ones((), "complex64"),
        np.zeros((0, 3)).T,
        np.ones((2, 1, 3), "float16")[:, :, ::2],
        np.ones(3, bool),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
@pytest.mark.parametrize("writable", [True, False])
def test_the_array_of_a_tensor_is_that_of_its_buffer(
    array: Any, writable: bool
) -> None:
    """R39: dtype, layout and flags, also without elements."""
    array.flags.writeable = writable
    tensor = dlx.from_dlpack(array)
    made, seen = tensor.numpy(), np.asarray(memoryview(tensor))
    for name in ("dtype", "shape", "strides"):
        assert getattr(made, name) == getattr(seen, name)
    assert made.dtype.char == seen.dtype.char
    assert str(made.flags) == str(seen.flags)
    assert made.ctypes.data == seen.ctypes.data or not made.size
    del tensor, seen
    assert made.tolist() == array.tolist()


def test_the_array_of_a_lent_tensor_is_refused_after_its_block() -> None:
    """R143: the tensor gives no access any more."""
    with dlx.borrow(np.ones(3)) as (lent, _):
        assert lent.numpy().tolist() == [1, 1, 1]
    with pytest.raises(BufferError, match="has ended"):
        lent.numpy()


class Index:
    """An integer, but no int."""

    def __index__(self) -> int:
        """Return it."""
        return 3


@pytest.mark.parametrize(
    "shape", [(3, 2), [3, 2], (Index(), 2), 3, Index(), (), (np.int64(3),)]
)
def test_every_shape_makes_a_tensor_of_it(shape: Any) -> None:
    """An int or a sequence of ints."""
    expected = np.empty(shape, "float32").shape
    assert dlx.empty(shape, "float32").shape == expected
    made = dlx.empty(shape, "float32", like=torch.Tensor)
    assert tuple(made.shape) == expected


@pytest.mark.parametrize("shape", [1 << 70, (3, 1 << 70)])
def test_an_extent_of_more_than_64_bits_is_told(shape: Any) -> None:
    """The message says what was found and what is accepted."""
    with pytest.raises(ValueError, match=r"an int or .*; a number is out of range"):
        dlx.empty(shape, "float32")


@pytest.mark.parametrize("shape", [(3, "2"), (3, 2.0), (1 << 70,), (3, None), "3", 2.0])
def test_a_shape_of_other_things_is_quoted(shape: Any) -> None:
    """The message says what was found and what is accepted."""
    with pytest.raises((TypeError, ValueError), match="expected an int or a sequence"):
        dlx.empty(shape, "float32", like=torch.Tensor)


def test_a_number_that_is_too_large_is_told_as_one() -> None:
    """It is an int, so that is not what is wrong."""
    for make in (dlx.empty, lambda *args: dlx.from_pointer(0, *args)):
        with pytest.raises(ValueError, match=r"\(9223372036854775808,\).*out of range"):
            make((1 << 63,), "float32")


def test_a_block_made_without_keywords_is_one_made_with_them() -> None:
    """Whatever a call leaves out, the object is the same."""
    x, y = np.arange(6.0), torch.ones(3)
    plain, named = dlx.borrow(x, y), dlx.borrow(x, y, stream=None)
    assert type(plain) is type(named) is dlx.borrow
    assert gc.is_tracked(plain)
    assert gc.is_tracked(named)
    with plain as (a, b, s), named as (c, d, t):
        assert (said(a), said(b), s) == (said(c), said(d), t)
    with pytest.raises(RuntimeError, match="not been entered"):
        plain.__exit__(None, None, None)


def test_a_block_in_a_cycle_is_collected() -> None:
    """docs/safety.md, S5: the collector visits what it holds."""

    class Holder:
        block: object

    x = Holder()
    x.block = dlx.borrow(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_a_block_lets_go_of_its_arguments_and_of_its_class() -> None:
    """docs/safety.md, S5: one reference to each, released once."""
    x = np.ones(3)
    before = sys.getrefcount(x), sys.getrefcount(dlx.borrow)
    for _ in range(100):
        dlx.borrow(x)
    assert (sys.getrefcount(x), sys.getrefcount(dlx.borrow)) == before


def test_the_class_of_blocks_cannot_be_derived_from() -> None:
    """The class is final, as the stub says."""
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Other", (dlx.borrow,), {})


@pytest.mark.parametrize("like", [None, np.ndarray, torch.Tensor, torch.ones(1)])
def test_an_empty_tensor_is_the_same_however_its_call_is_spelled(like: Any) -> None:
    """docs/safety.md, S20: the usual call has an entry of its own."""
    name = "".join(("li", "ke"))  # equal to the keyword, but another string
    made = [
        dlx.empty((2, 3), "float32", like=like),
        dlx.empty((2, 3), "float32", **{name: like}),
        dlx.empty((2, 3), "float32", like=like, device="cpu"),
        dlx.empty(shape=(2, 3), dtype="float32", like=like),
    ]
    assert len({type(each) for each in made}) == 1
    for each in made:
        with dlx.borrow(each) as (tensor, _):
            assert (tensor.shape, str(tensor.dtype)) == ((2, 3), "float32")
    with pytest.raises(TypeError, match="unexpected keyword"):
        dlx.empty((2, 3), "float32", unlike=like)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int64", "uint8"])
def test_a_name_of_a_dtype_is_read_the_same_from_any_string(name: str) -> None:
    """Literals of common names are told by their address."""
    assert (
        dlx.DType(sys.intern(name)) == dlx.DType("".join([name[:2], name[2:]])) == name
    )
