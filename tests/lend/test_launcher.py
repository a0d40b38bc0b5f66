"""`dlx.launcher` on the CPU: what a function gets, and what is refused before."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import weakref
from array import array
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.optional_libraries import requires
from support.python_process import run_python

F4 = np.arange(6, dtype="f4").reshape(2, 3)


def everything(*args: Any, **kwargs: Any) -> Any:
    """Return the arguments."""
    return args, kwargs


addresses = dlx.launcher(everything)


# What the function gets.


def test_an_address_is_an_int() -> None:
    """docs/launcher.md, `give`."""
    assert addresses(F4, F4[1]) == ((F4.ctypes.data, F4[1].ctypes.data), {})


@pytest.mark.parametrize("name", ["torch", "jax", "dlx", "mixin"])
def test_tensors_of_each_library_are_told(name: str) -> None:
    """docs/launcher.md, Arguments: by their type."""
    if name == "torch":
        x = requires("torch").ones(3)
    elif name == "dlx":
        x = dlx.empty(3, "float32")
    elif name == "mixin":

        class Mixed(dlx.ExchangeMixin, exchange="data"):
            data = dlx.empty(3, "float32")

        x = Mixed()
    else:
        x = requires("jax.numpy").asarray([1.0, 2.0])
    with dlx.borrow(x) as (view, _):
        assert addresses(x) == ((view.data_ptr,), {})


PLAIN = [1, -1.5, True, None, "s", b"s", 2j, [F4], (F4,), {"x": F4}, object(), int]


@pytest.mark.parametrize("x", [*PLAIN, np.float32(1), array("f", [1]), np.ndarray])
def test_other_values_are_passed_on(x: Any) -> None:
    """docs/launcher.md, Arguments: containers and buffers are not looked into."""
    (given,), _ = addresses(x)
    (_, named), keywords = addresses(F4, y=x), None
    assert given is x
    assert named["y"] is x
    assert keywords is None


def test_keywords_are_treated_alike() -> None:
    """docs/launcher.md, Arguments."""
    t = requires("torch").ones(3)
    assert addresses(1, t, x=F4, n=2, y=t) == (
        (1, t.data_ptr()),
        {"x": F4.ctypes.data, "n": 2, "y": t.data_ptr()},
    )


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 40))
def test_any_number_of_arguments_keeps_its_order(kinds: list[int], named: int) -> None:
    """docs/launcher.md, Arguments."""
    t = requires("torch").ones(2, 3)
    objects = [t, F4, 3, t.T, "s"]
    wanted = [t.data_ptr(), F4.ctypes.data, 3, t.data_ptr(), "s"]
    split = max(0, len(kinds) - named)
    launched = dlx.launcher(everything, contiguous=False)
    args, kwargs = launched(
        *(objects[kind] for kind in kinds[:split]),
        **{f"k{i}": objects[kind] for i, kind in enumerate(kinds[split:])},
    )
    assert [*args, *kwargs.values()] == [wanted[kind] for kind in kinds]


@st.composite
def torch_tensors(draw: st.DrawFn) -> Any:
    """A tensor of torch, of the usual forms and others, by views of views."""
    torch = requires("torch")
    dtypes = [torch.float32, torch.int8, torch.bool, torch.complex64, torch.bfloat16]
    x = torch.ones(draw(st.lists(st.integers(0, 4), max_size=4)))
    x = x.to(draw(st.sampled_from(dtypes)))
    for kind in draw(st.lists(st.integers(0, 6), max_size=4)):
        if kind == 0 and x.ndim:
            x = x[draw(st.integers(0, len(x))) :]
        elif kind == 1 and x.ndim:
            x = x[:: draw(st.integers(1, 3))]
        elif kind == 2 and x.ndim > 1:
            x = x.transpose(0, -1)
        elif kind == 3:
            x = x.expand(draw(st.integers(1, 2)), *x.shape)
        elif kind == 4:
            x = x.conj() if x.is_complex() else x.detach()
        elif kind == 5 and x.is_floating_point() and x.is_leaf:
            x.requires_grad_()
        elif kind == 6:
            x = torch.nn.Parameter(x, requires_grad=False)
    return x


@given(torch_tensors(), st.booleans(), st.sampled_from([None, "float32", "int8"]))
def test_an_address_is_given_and_refused_as_a_tensor_is(
    x: Any, contiguous: bool, dtype: Any
) -> None:
    """docs/launcher.md, Refused: however the address is found."""
    answers = []
    ways: Any = {"address": int, "tensor": lambda t: t.data_ptr}
    for give, see in ways.items():
        launched: Any = dlx.launcher(
            lambda x, see: see(x),
            give=give,
            dtype=dtype,
            contiguous=contiguous,
        )
        try:
            answers.append(launched(x, see))
        except BufferError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]
    if isinstance(answers[0], int):
        assert answers[0] == (x.data_ptr() if x.numel() else 0)


def test_a_view_ends_with_the_call() -> None:
    """docs/launcher.md, `give`: it is that of `borrow`."""
    launched = dlx.launcher(lambda x: (x, x.shape, x.data_ptr), give="tensor")
    view, shape, address = launched(F4)
    assert (type(view), shape, address) == (dlx.Tensor, (2, 3), F4.ctypes.data)
    with pytest.raises(BufferError, match="ended"):
        view.data_ptr  # noqa: B018


def test_a_pointer_ends_with_the_call() -> None:
    """docs/launcher.md, `give`: what it is stays known."""
    launched = dlx.launcher(lambda x: (x, x.data_ptr()), give="pointer")
    pointer, address = launched(F4)
    assert (type(pointer), address) == (dlx.Pointer, F4.ctypes.data)
    assert (str(pointer.dtype), str(pointer.device)) == ("float32", "cpu")
    assert "ended" in repr(pointer)
    with pytest.raises(BufferError, match="ended"):
        pointer.data_ptr()


def test_tensors_that_record_gradients_are_given() -> None:
    """docs/streams.md, rule 4: a kernel records none."""
    torch = requires("torch")
    x = torch.ones(3, requires_grad=True)
    view = torch.ones(4, requires_grad=True)[1:]
    assert addresses(x, view)[0] == (x.data_ptr(), view.data_ptr())


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning:torch")
def test_the_tangent_of_a_dual_tensor_stays_behind() -> None:
    """docs/launcher.md, Arguments: as in torch's own export; an import refuses it."""
    torch = requires("torch")
    forward = torch.autograd.forward_ad
    x = torch.ones(3)
    with forward.dual_level():
        dual = forward.make_dual(x, x + 1)
        assert addresses(dual)[0] == (x.data_ptr(),)
        with pytest.raises(BufferError, match="tangent"):
            dlx.from_dlpack(dual)
        assert np.from_dlpack(dual).tolist() == [1, 1, 1]


def test_an_empty_tensor_has_the_address_0() -> None:
    """R93."""
    empty = requires("torch").empty(0, 3)
    assert addresses(empty, np.empty((2, 0)))[0] == (0, 0)


@pytest.mark.parametrize("give", ["address", "pointer", "tensor"])
def test_nothing_is_kept_after_the_call(give: Any) -> None:
    """docs/launcher.md: also where the function raises."""
    torch = requires("torch")

    def fails(*tensors: Any) -> None:
        raise KeyError

    objects = [torch.ones(3), torch.ones(3)[1:], np.ones(3), dlx.empty(3, "int8")]
    deaths = [weakref.ref(x) for x in objects]
    dlx.launcher(everything, give=give)(*objects)
    with pytest.raises(KeyError):
        dlx.launcher(fails, give=give)(*objects)
    objects.clear()
    gc.collect()
    assert [death() for death in deaths] == [None] * 4


def test_the_stream_is_0_where_all_is_on_the_cpu() -> None:
    """docs/launcher.md, Streams: unless nothing was lent, too."""
    torch = requires("torch")

    @dlx.launcher
    def launched(x: Any, *rest: Any, n: int = 1, stream: int) -> Any:
        return n, stream

    for x in (F4, torch.ones(3), 3):
        assert launched(x) == launched(x, x, stream=None) == (1, 0)
        assert launched(x, n=2) == launched(x, stream=None, n=2) == (2, 0)


def test_a_stream_in_any_keyword_is_no_parameter() -> None:
    """docs/launcher.md, Streams: the function has to name it."""
    assert addresses(3, stream="s") == ((3,), {"stream": "s"})


def test_the_result_and_the_exceptions_are_those_of_the_function() -> None:
    """docs/launcher.md: they pass through."""
    marker = object()
    assert dlx.launcher(lambda x: marker)(F4) is marker

    @dlx.launcher
    def wrong(x: int) -> None:
        raise ZeroDivisionError(x)

    with pytest.raises(ZeroDivisionError, match=str(F4.ctypes.data)):
        wrong(F4)
    with pytest.raises(TypeError, match=r"wrong\(\) missing 1 required positional"):
        wrong()


def test_a_function_of_ctypes_takes_addresses() -> None:
    """docs/launcher.md, Examples: without a signature, parameters are positions."""
    move = ctypes.CDLL(None).memmove
    move.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    launched = dlx.launcher(move, out=0, dtype={1: "float32"})
    x, out = requires("torch").arange(6.0), np.zeros((2, 3), "f4")
    launched(out, x, 24)
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(BufferError, match="float64") as refused:
        launched(out, out.astype("f8"), 24)
    assert refused.value.__notes__ is not None


# Refusals.


def refusal(launched: Any, *args: Any, **kwargs: Any) -> tuple[str, list[str]]:
    """Return the message and the notes of the `BufferError` of a call."""
    with pytest.raises(BufferError) as refused:
        launched(*args, **kwargs)
    return str(refused.value), refused.value.__notes__


def kernel(x: Any, out: Any = None, *rest: Any, n: Any = 0, **others: Any) -> Any:
    """Return the arguments."""
    return x, out, rest, n, others


TRANSPOSED = "strides [1, 3], and contiguous=True accepts row-major"


def test_what_is_not_row_major_is_refused() -> None:
    """docs/launcher.md, Refused: an address does not tell strides."""
    torch = requires("torch")
    launched = dlx.launcher(kernel)
    for x in (F4.T, torch.from_numpy(F4).T):
        assert TRANSPOSED in refusal(launched, x)[0]
        assert dlx.launcher(kernel, contiguous=False)(x)[0] == F4.ctypes.data
    assert launched(F4[:1, :1].T)[0] == launched(torch.from_numpy(F4)[:1].T)[0]


@pytest.mark.parametrize("x", ["numpy", "torch"])
@pytest.mark.parametrize(
    "dtype", ["float32", np.float32, {"x": "float32"}, {0: "float32", "out": None}]
)
def test_another_dtype_is_refused(x: str, dtype: Any) -> None:
    """docs/launcher.md, Refused: by name or position, or all."""
    launched = dlx.launcher(kernel, dtype=dtype)
    good, bad = F4, F4.astype("f8")
    if x == "torch":
        good, bad = map(requires("torch").from_numpy, (good, bad))
    assert launched(good)[0]
    text, notes = refusal(launched, bad)
    assert "of float64, and dtype accepts float32" in text
    assert notes == ["argument x of kernel"]
    if isinstance(dtype, dict):
        assert launched(good, bad)[1]
    else:
        assert refusal(launched, good, out=bad)[1] == ["argument out of kernel"]


@pytest.mark.parametrize("place", ["out", "rest", "n", "others", "named", 0, 1, 5])
def test_what_is_read_only_is_refused_where_it_is_written(place: Any) -> None:
    """docs/launcher.md, Refused: by name or position; the others are only read."""
    locked = F4.copy()
    locked.flags.writeable = False
    calls: dict[Any, list[Any]] = {
        "out": [((F4, locked), {}), ((F4,), {"out": locked})],
        "rest": [((F4, F4, F4, locked), {})],
        "n": [((F4,), {"n": locked})],
        "others": [((F4,), {"other": locked})],
        "named": [((F4,), {"named": locked})],
        0: [((locked,), {}), ((), {"x": locked})],
        1: [((F4, locked), {})],
        5: [((F4, F4, F4, F4, F4, locked), {})],
    }
    launched = dlx.launcher(kernel, out=(place,))
    for name, each in calls.items():
        for args, kwargs in each:
            if name == place or {name, place} in ({"out", 1}, {"others", "named"}):
                if (name, place) == ("others", "named"):
                    assert launched(*args, **kwargs)
                    continue
                assert "read-only" in refusal(launched, *args, **kwargs)[0]
            elif (place, name) != ("rest", 5):
                assert launched(*args, **kwargs)


def test_the_check_of_write_access_is_that_of_borrow() -> None:
    """docs/launcher.md, Refused: and its message."""
    jax, torch = requires("jax"), requires("torch")
    launched = dlx.launcher(kernel, out="out")
    repeated = torch.ones(3).expand(2, 3)
    bytes_of = np.frombuffer(b"12345678", "i4")
    for x in (jax.numpy.ones(3), repeated, bytes_of, np.broadcast_to(F4[0], (2, 3))):
        with pytest.raises(BufferError) as borrowed, dlx.borrow(out=x):
            pass
        text, notes = refusal(launched, F4, x)
        assert text == str(borrowed.value).replace("out", "the tensor", 1)
        assert notes == ["argument out of kernel"]


def test_torch_learns_what_was_written() -> None:
    """docs/launcher.md, `out`: also where the function raises."""
    torch = requires("torch")
    x, out = torch.ones(3), torch.ones(3)
    dlx.launcher(kernel, out="out")(x, out)
    assert (x._version, out._version) == (0, 1)
    with pytest.raises(ZeroDivisionError):
        dlx.launcher(lambda out: 1 // 0, out="out")(out)
    assert out._version == 2
    with pytest.raises(BufferError):
        dlx.launcher(kernel, out="out")(x.double(), F4.T)
    assert out._version == 2


def test_what_torch_keeps_lazily_is_refused() -> None:
    """docs/launcher.md, Refused: a kernel would read other numbers."""
    torch = requires("torch")
    conjugated = torch.ones(3, dtype=torch.complex64).conj()
    assert "resolve_conj" in refusal(dlx.launcher(kernel), conjugated)[0]
    negated = conjugated.imag
    assert "resolve_neg" in refusal(dlx.launcher(kernel, contiguous=False), negated)[0]


def test_nothing_runs_where_one_argument_is_refused() -> None:
    """docs/launcher.md, Refused."""
    calls: list[Any] = []
    launched = dlx.launcher(lambda *tensors: calls.append(tensors))
    assert refusal(launched, F4, 1, F4.T)[1][0].startswith("argument 2 of ")
    assert not calls


def test_memory_inside_of_a_buffer_object_has_no_address() -> None:
    """R95: the handle does not tell where the tensor begins."""
    whole = dlx.from_pointer(64, (8,), "int8", device="metal")
    assert addresses(whole)[0] == (64,)
    assert "begins inside of a buffer object" in refusal(addresses, whole[4:])[0]


# Pointers.


def test_a_single_pointer_holds_the_tensor() -> None:
    """docs/launcher.md, A single pointer."""
    x = np.ones(3)
    address, death = x.ctypes.data, weakref.ref(x)
    pointer = dlx.as_pointer(x)
    del x
    assert (pointer.data_ptr(), death() is None) == (address, False)
    assert (str(pointer.dtype), str(pointer.device)) == ("float64", "cpu")
    tensor = "dlx.Tensor(float64[3], cpu, [1.0, 1.0, 1.0])"
    assert repr(pointer) == f"dlx.Pointer to {tensor}"
    del pointer
    assert death() is None


def test_a_pointer_in_a_cycle_is_collected() -> None:
    """docs/safety.md, S24: through the tensor."""

    class Owner:
        pointer: dlx.Pointer

    owner = Owner()
    memory = np.ones(3)
    tensor = dlx.from_pointer(memory.ctypes.data, (3,), "float64", owner=owner)
    owner.pointer = dlx.as_pointer(tensor)
    death = weakref.ref(owner)
    del owner, tensor
    gc.collect()
    assert death() is None


TRITON = {
    "float32": "*fp32",
    "float64": "*fp64",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float8_e4m3fn": "*fp8e4nv",
    "float8_e5m2": "*fp8e5",
    "int8": "*i8",
    "int64": "*i64",
    "uint8": "*u8",
    "bool": "*u1",
}


def test_triton_knows_what_a_pointer_is() -> None:
    """docs/launcher.md, `give`: its dtype, and if 16 divides its address."""
    requires("torch")
    if find_spec("triton") is None:
        pytest.skip("triton is not installed: torch brings it on Linux")
    # It does not load where TensorFlow has been loaded.
    code, out, errors = run_python(
        f"""
        import dlx
        from triton.backends.compiler import BaseBackend
        from triton.runtime.jit import native_specialize_impl

        def kind(x):
            return native_specialize_impl(BaseBackend, x, False, True, True)

        for dtype, name in {TRITON}.items():
            x = dlx.empty(64, dtype)
            assert kind(dlx.as_pointer(x)) == (name, "D"), dtype
            assert kind(dlx.as_pointer(x[1:])) == (name, ""), dtype
            given = dlx.launcher(kind, give="pointer")
            assert given(x) == (name, "D"), dtype
        print("all")
        """
    )
    assert (code, out) == (0, "all\n"), errors


# What is said of `*args` and `**kwargs` holds for all that they take.


def read_only() -> Any:
    """Return an array that may not be written to."""
    array = np.zeros(3, "float32")
    array.flags.writeable = False
    return array


def test_one_of_several_positions_is_written_to_as_the_others() -> None:
    """docs/launcher.md, `out`: naming one of them takes nothing from the rest."""
    launch = dlx.launcher(lambda n, *xs: n, out="xs", dtype={1: "float32"})
    with pytest.raises(BufferError, match="read-only"):
        launch(1, read_only())


def test_one_of_several_keywords_is_written_to_as_the_others() -> None:
    """docs/launcher.md, `out`."""
    launch = dlx.launcher(lambda n, **kw: n, out="kw", dtype={"out": "float32"})
    with pytest.raises(BufferError, match="read-only"):
        launch(1, out=read_only())


def test_a_keyword_may_have_the_name_of_a_positional_only_parameter() -> None:
    """docs/launcher.md, `out`: it is one of `**kw`."""
    launch = dlx.launcher(lambda x, /, **kw: x, out="kw")
    with pytest.raises(BufferError, match="read-only"):
        launch(np.zeros(1), x=read_only())


def test_a_receiver_by_keyword_hides_no_argument() -> None:
    """docs/launcher.md, Arguments: of a method that is called by its class."""

    class Kernel:
        @dlx.launcher(out="x")
        def launch(self, x: Any) -> Any:
            return x

    with pytest.raises(BufferError, match="read-only"):
        Kernel.launch(x=read_only(), self=Kernel())


def test_a_context_manager_is_no_function_that_launches() -> None:
    """docs/launcher.md: its body runs when the tensors are given back."""

    def lent(x: Any) -> Iterator[Any]:
        yield x

    with pytest.raises(TypeError, match="generator function"):
        dlx.launcher(contextlib.contextmanager(lent))


def test_a_builtin_is_no_method() -> None:
    """docs/launcher.md: as without the launcher."""

    class Kernel:
        length: Any = dlx.launcher(len)

    assert Kernel().length("abc") == 3


def test_a_parameter_has_one_dtype() -> None:
    """docs/launcher.md, Refused: not two, by name and by position."""
    with pytest.raises(ValueError, match="twice"):
        dlx.launcher(lambda x: x, dtype={"x": "float32", 0: "float64"})
