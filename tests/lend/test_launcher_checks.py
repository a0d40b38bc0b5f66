"""`launcher(shape=, size=, align=)`: what a kernel would reach beyond is refused."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_producers import ADDRESS
from support.optional_libraries import requires

F4 = np.ones((2, 3), "f4")


def kernel(x: Any, out: Any = None, n: int = 6, *rest: Any, **others: Any) -> Any:
    """Return the arguments."""
    return x, out, n, rest, others


def refusal(launched: Any, *args: Any, **kwargs: Any) -> tuple[str, list[str]]:
    """Return the message and the notes of the `BufferError` of a call."""
    with pytest.raises(BufferError) as refused:
        launched(*args, **kwargs)
    return str(refused.value), refused.value.__notes__


def test_a_kernel_does_not_write_past_its_out() -> None:
    """docs/launcher.md, Shapes and sizes: the call that wrote two elements too many."""

    @dlx.launcher(out="out", dtype="float32", shape="same", size="n")
    def scale(a: float, x: int, out: int, n: int) -> None:
        of, to = ((ctypes.c_float * n).from_address(each) for each in (x, out))
        for i in range(n):
            to[i] = a * of[i]

    x, out = np.ones(4, "f4"), np.zeros(4, "f4")
    text, notes = refusal(scale, 2.0, x, out[:2], 4)
    assert text == (
        "the tensor has shape [2], and shape accepts '...', where ... is [4], that of "
        "argument x"
    )
    assert notes[0].startswith("argument out of test_a_kernel_does_not_write")
    text, notes = refusal(scale, 2.0, x, out, n=5)
    assert text == (
        "the tensor has 4 elements, and size='n' accepts 5 or more, where n is 5, the "
        "argument n"
    )
    assert notes[0].startswith("argument x of")
    assert not out.any()
    scale(2.0, x[:2], out[:2], 2)
    assert out.tolist() == [2, 2, 0, 0]


@pytest.mark.parametrize("give", ["address", "pointer", "tensor"])
@pytest.mark.parametrize("name", ["numpy", "torch", "jax", "dlx", "mixin"])
def test_tensors_of_each_library_are_checked(name: str, give: Any) -> None:
    """Whatever the function gets."""
    x: Any = F4
    if name == "torch":
        x = requires("torch").ones(2, 3)
    elif name == "jax":
        x = requires("jax.numpy").ones((2, 3))
    elif name == "dlx":
        x = dlx.from_dlpack(F4)
    elif name == "mixin":

        class Mixed(dlx.ExchangeMixin, exchange="data"):
            data = F4

        x = Mixed()
    launched: Any = dlx.launcher(lambda x, y: 7, give=give, shape={"x": "2 3"})
    assert launched(x, F4[:1]) == 7
    launched = dlx.launcher(lambda x, y: 7, give=give, shape={"y": "2 3", "x": "2 n"})
    assert launched(x, x) == 7
    assert refusal(launched, x, F4[:1])[1][0].startswith("argument y of")


ACCEPTED: list[tuple[Any, list[tuple[int, ...]], list[tuple[int, ...]]]] = [
    ("same", [(2, 3), (2, 3)], [(2, 3), (3, 2)]),
    ("same", [(), ()], [(), (1,)]),
    ("n", [(0,), (0,)], [(0,), ()]),
    ("n 3", [(2, 3), (2, 3)], [(2, 3), (1, 3)]),
    ("n n", [(2, 2), (2, 2)], [(2, 2), (2, 3)]),
    ("", [(), ()], [(), (1,)]),
    ({"x": "n m", "y": "m"}, [(2, 3), (3,)], [(2, 3), (2,)]),
    ({"x": "n m", "y": "m"}, [(2, 3), (3,)], [(2, 3), (1, 3)]),
    ({"x": "... n", "y": "n"}, [(4, 2, 3), (3,)], [(4, 2, 3), (2,)]),
    ({"x": "... n", "y": "n"}, [(3,), (3,)], [(), (3,)]),
    ({"x": "... n", "y": "..."}, [(4, 2, 3), (4, 2)], [(4, 2, 3), (4,)]),
    ({"x": "n ... m", "y": "m n"}, [(4, 2, 3), (3, 4)], [(4,), (4, 4)]),
    ({"y": "2"}, [(9, 9), (2,)], [(2,), (9, 9)]),
    (["n", "2 n"], [(3,), (2, 3)], [(3,), (2, 2)]),
    ([None, "2"], [(3,), (2,)], [(2,), (3,)]),
    ({0: "n", 1: "n"}, [(3,), (3,)], [(3,), (2,)]),
    ({"x": "same", "y": "same"}, [(3, 1), (3, 1)], [(3, 1), (3,)]),
]


@pytest.mark.parametrize(("shape", "right", "wrong"), ACCEPTED, ids=repr)
def test_shapes_are_said_by_lengths_and_names(
    shape: Any, right: Any, wrong: Any
) -> None:
    """docs/launcher.md, Shapes and sizes: a name is one length in a call."""
    launched: Any = dlx.launcher(lambda x, y: 7, shape=shape)
    for make in (np.zeros, requires("torch").zeros):
        assert launched(*map(make, right)) == 7
        assert launched(make(right[0]), y=make(right[1])) == 7
        assert "and shape accepts" in refusal(launched, *map(make, wrong))[0]
        assert refusal(launched, y=make(wrong[1]), x=make(wrong[0]))


SHAPES = st.lists(st.integers(0, 2), max_size=3).map(tuple)


@given(st.lists(SHAPES, min_size=1, max_size=4))
def test_tensors_of_one_shape_are_those_that_are_accepted(
    shapes: list[tuple[int, ...]],
) -> None:
    """Exactly."""
    launched = dlx.launcher(lambda *tensors: len(tensors), shape="same")
    tensors = [np.zeros(shape) for shape in shapes]
    if len({*shapes}) == 1:
        assert launched(*tensors) == len(shapes)
    else:
        refusal(launched, *tensors)


@pytest.mark.parametrize(
    ("size", "right", "wrong"),
    [
        ("n", 6, 7),
        (6, 0, None),
        ("2*3", 0, None),
        ("3 * n", 2, 3),
        ({"x": "n"}, 6, 7),
        ({"x": "n", "out": "2*n"}, 3, 4),
        (["n", None], 6, 7),
        ("n*n*n*n*n*n*n*n", 1, 2**40),
    ],
)
def test_a_size_is_the_least(size: Any, right: int, wrong: int | None) -> None:
    """docs/launcher.md, Shapes and sizes: more elements are not touched."""
    launched: Any = dlx.launcher(kernel, size=size)
    for n in (right, 0):
        launched(F4, F4, n)
        launched(F4, out=F4, n=np.int64(n))
    if wrong is not None:
        assert "has 6 elements" in refusal(launched, F4, F4, wrong)[0]
        assert "has 6 elements" in refusal(launched, n=wrong, out=F4, x=F4)[0]
    else:
        assert "has 3 elements, and size=" in refusal(launched, F4[0], F4, 0)[0]


def test_a_default_counts() -> None:
    """It is what the kernel gets."""
    launched = dlx.launcher(kernel, size={"x": "n"})
    launched(F4)
    assert "6 or more, where n is 6, the argument n" in refusal(launched, F4[0])[0]


def test_a_length_may_be_in_a_shape_and_in_a_size() -> None:
    """The memory that a kernel needs beside its tensors."""
    launched: Any = dlx.launcher(
        lambda x, work: 7, shape={"x": "n m"}, size={"work": "4*n"}
    )
    assert launched(F4, np.zeros(8)) == 7
    text, notes = refusal(launched, F4, np.zeros(7))
    assert "8 or more, where n is 2, that of argument x" in text
    assert notes[0].startswith("argument work")


def test_tensors_of_a_star_are_checked_too() -> None:
    """All of them, or those of their own option."""
    launched: Any = dlx.launcher(kernel, shape={"rest": "n", "others": "n", "x": "..."})
    bad, good = np.zeros((6, 1)), np.zeros(6)
    launched(F4, F4, 6, good, z=good)
    assert refusal(launched, F4, F4, 6, good, bad)[1] == ["argument 4 of kernel"]
    assert refusal(launched, F4, F4, 6, z=bad)[1] == ["argument z of kernel"]
    launched = dlx.launcher(kernel, size={"z": "n"})
    assert refusal(launched, F4, z=good[1:])[1] == ["argument z of kernel"]
    of_count: Any = dlx.launcher(lambda x, **more: 7, size={"x": "count"})
    assert of_count(F4, count=6) == 7
    assert refusal(of_count, F4, count=7)
    with pytest.raises(ValueError, match="'count', and no tensor of the call says"):
        of_count(F4)


@pytest.mark.parametrize("n", [-1, 2.0, None, "6", np.ones((), "i8")], ids=repr)
def test_a_length_that_is_none_is_refused(n: Any) -> None:
    """A kernel would take it for another."""
    launched = dlx.launcher(kernel, size="n")
    kind = ValueError if n == -1 else TypeError
    with pytest.raises(kind, match="the argument n, a length in shape or size, is"):
        launched(F4, F4, n)


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_a_length_that_is_a_tensor_is_told_to_be_an_int(name: str) -> None:
    """The advice works, for a count that a library has computed."""
    n = np.array(6) if name == "numpy" else requires(name).tensor(6)
    options: list[Any] = [{}, {"dtype": "f4"}, {"dtype": ["f4", "f4"]}]
    for each in [*options, {"dtype": {"x": "f4", "out": "f4"}}]:
        launched = dlx.launcher(kernel, size="n", **each)
        with pytest.raises(TypeError, match=r"a tensor; expected an int, as n\.item"):
            launched(F4, F4, n)
        assert launched(F4, F4, n.item())[2] == 6


@pytest.mark.parametrize("dtype", ["float32", {"x": "float32"}])
def test_complex_numbers_are_not_told_to_be_cast(dtype: Any) -> None:
    """`convert` would refuse the cast, which drops the imaginary parts."""
    launched = dlx.launcher(kernel, dtype=dtype)
    x = np.ones(3, "complex64")
    text, _ = refusal(launched, x)
    assert "pass the real part, or a kernel for complex numbers" in text
    assert launched(dlx.from_dlpack(x.real, copy=True))


def test_a_transposed_tensor_that_requires_grad_is_told_to_be_detached() -> None:
    """The copy that the message names is one of the detached tensor."""
    torch = requires("torch")
    x = torch.ones(2, 3, requires_grad=True).T
    launched = dlx.launcher(kernel)
    text, _ = refusal(launched, x)
    assert text.endswith("makes them that, of x.detach() if x requires grad")
    assert launched(dlx.from_dlpack(x.detach(), copy=True))


def test_a_tensor_of_vmap_is_refused_in_words() -> None:
    """torch raises a C++ error with its stack."""
    torch = requires("torch")
    launched = dlx.launcher(kernel)
    with pytest.raises(BufferError, match=r"inside a transform of torch\.func"):
        torch.func.vmap(lambda x: launched(x) and x)(torch.ones(3, 2))


def test_a_call_without_a_length_raises_what_the_function_does() -> None:
    """It is the function that has no such argument."""
    launched: Any = dlx.launcher(lambda x, n: 7, size="n")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'n'"):
        launched(F4)


def test_a_receiver_is_not_checked() -> None:
    """docs/launcher.md, What it makes."""

    class Array(np.ndarray[Any, Any]):
        @dlx.launcher(shape="n", size="n")
        def launch(self, x: int, n: int) -> int:
            return n

    array = np.zeros((2, 2)).view(Array)
    assert array.launch(np.zeros(3), 3) == 3
    assert refusal(array.launch, array, 3)[1][0].startswith("argument x")
    tensor = dlx.empty((2, 2), "int8")
    launched: Any = dlx.launcher(lambda self, x: 7, shape="n")
    assert launched(tensor, dlx.empty(3, "int8")) == 7


def test_elements_are_counted_whatever_they_are() -> None:
    """Of sub-byte types, of vectors, and repeated ones."""
    launched: Any = dlx.launcher(lambda x: 7, contiguous=False, shape="n", size=3)
    for dtype in ("int4", "float32x4", "float8_e4m3fn", "bool"):
        assert launched(dlx.from_pointer(ADDRESS, (3,), dtype)) == 7
        assert refusal(launched, dlx.from_pointer(ADDRESS, (2,), dtype))
    assert launched(np.broadcast_to(F4[0, 0], (3,))) == 7
    assert launched(F4[0, ::-1]) == 7
    assert refusal(launched, np.broadcast_to(F4[0, 0], (2,)))


def test_a_refused_call_has_no_effect() -> None:
    """torch learns of no write, and nothing is kept."""
    torch = requires("torch")
    out, x = torch.zeros(2), np.ones(3)
    launched = dlx.launcher(kernel, out="out", shape={"x": "n", "out": "n"})
    assert refusal(launched, x, out, 3)
    assert out._version == 0
    death = weakref.ref(x)
    del x
    gc.collect()
    assert death() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": "n-1"}, "shape is 'n-1'; expected one like 'n 3', '... n' or"),
        ({"shape": "... n ..."}, "expected one like"),
        ({"shape": {"x": 3.0}}, "shape is 3.0; expected one like"),
        ({"shape": {"y": "n"}}, "shape has 'y', which is no parameter of"),
        ({"shape": {"x": "n", 0: "n"}}, "shape names the parameter 'x' twice"),
        ({"shape": ["n", "n", "n"]}, "shape has 2, which is no parameter of"),
        ({"size": "n m"}, "size is 'n m'; expected one like 'n', "),
        ({"size": "..."}, "expected one like"),
        ({"size": ""}, "expected one like"),
        ({"size": -1}, "expected one like"),
        ({"size": True}, "expected one like"),
        ({"size": "m"}, "size has 'm', which is neither a parameter of the function"),
        ({"align": 3}, "power of two"),
        ({"dtype": ["int8", None, None]}, "dtype has 2, which is no parameter of"),
    ],
)
def test_a_wrong_option_is_an_error_at_the_decorator(
    options: Any, message: str
) -> None:
    """docs/launcher.md, Refused."""
    with pytest.raises(ValueError, match=message):
        dlx.launcher(lambda x, n: x, **options)


@pytest.mark.parametrize("name", ["numpy", "torch", "dlx"])
def test_an_address_has_to_be_aligned(name: str) -> None:
    """docs/launcher.md, Refused: as by `borrow`."""
    whole = dlx.from_dlpack(np.zeros(64), copy=True)
    x: Any = whole
    if name == "numpy":
        x = whole.numpy()
    elif name == "torch":
        x = requires("torch").from_dlpack(whole)
    launched: Any = dlx.launcher(lambda x: x, align=64)
    assert launched(x) == whole.data_ptr
    assert launched(x[8:]) == whole.data_ptr + 64
    text, notes = refusal(launched, x[1:])
    assert "no multiple of align=64" in text
    assert notes[0].startswith("argument x of")


def test_a_list_has_a_dtype_for_each_position() -> None:
    """As that of `borrow`."""
    launched = dlx.launcher(kernel, dtype=["float32", None, "int8"])
    launched(F4, np.ones(3), np.ones(3, "i1"))
    assert refusal(launched, np.ones(3))[1] == ["argument x of kernel"]
    assert refusal(launched, F4, F4, n=F4)[1] == ["argument n of kernel"]


@pytest.mark.parametrize(
    "options",
    [{"dtype": ["f4"]}, {"shape": ["m 3"]}, {"size": ["n"], "dtype": "f4"}],
    ids=repr,
)
def test_a_tensor_beyond_a_list_is_refused(options: Any) -> None:
    """It would not be checked; None in the list accepts it, and so does a dict."""
    text, notes = refusal(dlx.launcher(kernel, **options), F4, F4, 1)
    assert "ends before it; list one for each tensor by position, None for any" in text
    assert notes == ["argument out of kernel"]
    assert dlx.launcher(kernel, **options)(F4, 0, 1)
    named: dict[str, Any] = {
        option: [*value, None] if isinstance(value, list) else value
        for option, value in options.items()
    }
    assert dlx.launcher(kernel, **named)(F4, F4, 1)
    if isinstance(options.get("dtype"), list):
        assert dlx.launcher(kernel, dtype={"x": "f4"})(F4, F4, 1)


def test_a_tensor_beyond_a_list_is_refused_without_a_signature() -> None:
    """Positions count."""
    launched: Any = dlx.launcher(max, give="tensor", dtype=["f4"])
    assert refusal(launched, F4, F4)[1] == ["argument 1 of max"]


def test_a_launcher_with_checks_in_a_cycle_is_collected() -> None:
    """docs/safety.md, S28."""

    def make() -> weakref.ref[Any]:
        def recursive(x: int) -> Any:
            return made

        made: Any = dlx.launcher(recursive, shape="same")
        return weakref.ref(made)

    death = make()
    gc.collect()
    assert death() is None
