"""`dlx.launcher` of functions that nanobind and pybind11 bind, and of other C code."""

from __future__ import annotations

import array
import ctypes
import functools
from typing import Any

import dlx
import numpy as np
import pytest
from support.extensions import casts
from support.optional_libraries import requires


@pytest.fixture(params=["nanobind", "pybind11"])
def module(request: pytest.FixtureRequest) -> Any:
    """Give `casts.cpp`."""
    return casts(requires(request.param))


@pytest.mark.slow
@pytest.mark.parametrize("option", ["out", "dtype", "shape"])
def test_a_position_beyond_the_arguments_is_refused(module: Any, option: str) -> None:
    """docs/launcher.md, `out`: it would guard nothing."""
    said: Any = 1 if option == "out" else {1: "float32" if option == "dtype" else "n"}
    with pytest.raises(ValueError, match=f"{option} has 1, which is no parameter of"):
        dlx.launcher(module.total, give="tensor", **{option: said})
    launched: Any = dlx.launcher(
        module.total, give="tensor", dtype=["float32"], shape="n n"
    )
    assert launched(np.ones((2, 2), "f4")) == 4
    with pytest.raises(BufferError, match="of float64"):
        launched(np.ones((2, 2)))
    with pytest.raises(BufferError, match="shape accepts 'n n'"):
        launched(np.ones((2, 3), "f4"))


@pytest.mark.slow
def test_a_position_beyond_the_arguments_of_an_overload_is_refused_at_the_call(
    module: Any,
) -> None:
    """Its signature does not say how many there are."""
    launched: Any = dlx.launcher(module.fill, give="tensor", out=0)
    x = np.zeros(3, "f4")
    launched(x, 2.5)
    assert x.tolist() == [2.5] * 3
    beyond: Any = dlx.launcher(module.fill, give="tensor", out=(0, 2))
    with pytest.raises(TypeError, match="has 2 arguments by position, and an option"):
        beyond(x, 7.5)
    assert x.tolist() == [2.5] * 3


def test_a_position_beyond_a_call_of_a_function_without_signature_is_refused() -> None:
    """Whether a keyword is that argument is not known."""
    launched: Any = dlx.launcher(iter, give="tensor", out=1)
    x = dlx.empty(3, "int8")
    with pytest.raises(TypeError, match="has 1 arguments by position"):
        launched(x)
    with pytest.raises(TypeError, match="has 1 arguments by position"):
        launched(x, y=x)


@pytest.mark.slow
def test_a_default_that_is_no_literal_is_not_none() -> None:
    """pybind11 writes it as it prints; None in its place would be written to."""
    into: Any = dlx.launcher(casts(requires("pybind11")).into, give="tensor", out="out")
    with pytest.raises(TypeError, match="it is None, and is written to"):
        into(np.zeros(2), None)
    assert into(np.zeros(2)).__name__ == "casts"


def test_none_is_no_memory_to_write_to() -> None:
    """docs/launcher.md, `out`: C would write to address 0."""
    library = ctypes.CDLL(None)
    library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    fill: Any = dlx.launcher(library.memset, out=0)
    x = np.zeros(2, "u1")
    fill(x, 1, 2)
    assert x.tolist() == [1, 1]
    with pytest.raises(TypeError, match="it is None, and is written to") as caught:
        fill(None, 1, 2)
    assert caught.value.__notes__ == ["argument 0 of memset"]

    def named(x: Any, out: Any = None) -> Any:
        return out

    assert dlx.launcher(named, out="out")(x, None) is None
    assert dlx.launcher(named, out="out")(x) is None
    with pytest.raises(TypeError, match="it is None, and is written to"):
        dlx.launcher(named, out="x")(None)


@pytest.mark.parametrize(
    "options",
    [
        {"out": "x"},
        {"dtype": {"x": "float64"}},
        {"shape": {"x": "n"}},
        {"size": {"x": 1}},
        {"size": {"x": 1}, "out": "y"},
    ],
)
@pytest.mark.parametrize("give", ["address", "tensor"])
def test_a_scalar_of_numpy_is_no_tensor(options: Any, give: Any) -> None:
    """docs/launcher.md: C would take ``a.sum()`` for an address."""

    def kernel(x: Any, y: Any = None) -> Any:
        return x

    launched: Any = dlx.launcher(kernel, give=give, **options)
    launched(np.zeros(2), y=np.zeros(2))
    looks: list[Any] = [
        lambda x: launched(x, y=np.zeros(2)),
        lambda x: launched(x=x, y=np.zeros(2)),
    ]
    for look in looks:
        for x in (np.arange(3).sum(), np.float64(1)):
            with pytest.raises(TypeError, match="it is a scalar of NumPy") as refused:
                look(x)
            assert refused.value.__notes__[0].startswith("argument x of test_a_scalar")


def test_a_scalar_of_numpy_is_a_number_elsewhere() -> None:
    """A length, a factor: options of all tensors do not say what it is."""

    def kernel(x: Any, n: Any) -> Any:
        return n

    each: list[Any] = [{"out": "x"}, {"dtype": "float64"}, {"shape": "n"}]
    for options in each:
        launched: Any = dlx.launcher(kernel, **options)
        assert launched(np.zeros(3), np.int64(3)) == 3
    pairs: Any = dlx.launcher(lambda *x: x, give="tensor", size={0: 1})
    assert pairs(np.zeros(3), np.int64(3))[1] == 3


@pytest.mark.parametrize("name", ["self", "cls"])
@pytest.mark.parametrize(
    "options",
    [{"out": 0}, {"dtype": ["f4"]}, {"shape": {0: "n"}}, {"size": {0: 3}}],
    ids=str,
)
def test_a_receiver_is_no_tensor(name: str, options: Any) -> None:
    """docs/launcher.md: it is passed on, so that nothing of an option would hold."""
    space: dict[str, Any] = {}
    exec(f"def method({name}, x, n=3): return {name}", space)
    method: Any = space["method"]
    x = np.zeros(3)
    launched: Any = dlx.launcher(method, dtype="f8", shape="same")
    assert launched(x, x) is x
    launched = dlx.launcher(method, dtype=[None, "f4"])
    assert launched(x, np.zeros(3, "f4")) is x
    with pytest.raises(BufferError, match="dtype accepts float32"):
        launched(x, x)
    named = {option: name if option == "out" else {name: "n"} for option in options}
    for said in (options, named):
        with pytest.raises(ValueError, match=f"'{name}', the receiver of .*method"):
            dlx.launcher(method, **said)


@pytest.mark.parametrize("option", ["out", "dtype", "shape", "size"])
@pytest.mark.parametrize(
    "memory",
    [b"abc", "abc", bytearray(8), (ctypes.c_double * 3)(), array.array("d", [1])],
    ids=lambda x: type(x).__name__,
)
def test_memory_of_python_is_no_tensor(option: str, memory: Any) -> None:
    """ctypes would pass its address for a tensor, of which nothing was checked."""
    memmove = ctypes.CDLL(None)["memmove"]
    memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    x = np.zeros(3)
    said: Any = {"dtype": "float64", "shape": "n", "size": 3}
    options: Any = {option: {0: said[option]} if option in said else 0}
    launched: Any = dlx.launcher(memmove, **options)
    for more in ((x, 8), (dlx.from_dlpack(x), ctypes.c_size_t(8))):
        with pytest.raises(TypeError, match=r"it is an instance of .*; pass a") as no:
            launched(memory, *more)
        assert no.value.__notes__[-1].startswith("argument 0 of")
    pointer = ctypes.c_void_p(x.ctypes.data)
    launched(x.ctypes.data, x, 8), launched(pointer, x, 8)
    source: Any = dlx.launcher(memmove, out=0)
    source(x, b"12345678", 8)
    assert x.tobytes()[:8] == b"12345678"


NUMBERS = {"ldexp": (ctypes.c_double, ctypes.c_int), "fabsf": (ctypes.c_float,)}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}, {"dtype": {0: "int8"}}])
def test_a_tensor_is_no_number_of_c(name: str, options: Any) -> None:
    """docs/native.md: ``x.max()`` of torch is a tensor, whose address would be used."""
    function = ctypes.CDLL("libm.so.6")[name]
    function.argtypes, function.restype = NUMBERS[name], NUMBERS[name][0]
    launched: Any = dlx.launcher(function, **options)
    more = [3] * (len(NUMBERS[name]) - 1)
    assert launched(2.0, *more) == launched(np.float64(2), *more) == (16 if more else 2)
    tensors = [np.array(2, "f4"), dlx.from_dlpack(np.array(2, "f4"))]
    for x in [*tensors, requires("torch").tensor(2.0)]:
        with pytest.raises(
            BufferError, match=r"a number there; pass x\.item\(\)"
        ) as no:
            launched(x, *more)
        assert no.value.__notes__ == [f"argument 0 of {name}"]
        if more:
            with pytest.raises(BufferError, match="a number there"):
                launched(2.0, x)


def test_the_longer_integers_of_c_may_be_addresses() -> None:
    """As those of CUDA's driver are."""
    library = ctypes.CDLL(None)
    memset = library["memset"]
    memset.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_size_t]
    x = np.zeros(2, "u1")
    dlx.launcher(memset, out=0)(x, 1, 2)
    assert x.tolist() == [1, 1]


def test_functions_of_ctypes_without_a_name_are_named_by_their_type() -> None:
    """No address stands in an error."""
    for function in (ctypes.memmove, functools.partial(ctypes.memmove)):
        with pytest.raises(ValueError, match=r"no parameter of \S*CFunctionType;"):
            dlx.launcher(function, out="x")
