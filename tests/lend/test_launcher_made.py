"""What `dlx.launcher` makes of a function: a callable that shows its attributes."""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import inspect
import operator
import pickle
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import dlx
import numpy as np
import pytest

X = np.zeros(3)
ADDRESS = X.ctypes.data


@dlx.launcher(out="out")
def launch(x: int, out: int, n: int = 1, *, stream: int) -> tuple[int, ...]:
    """Launch."""
    return x, out, n, stream


def test_it_shows_the_attributes_of_the_function() -> None:
    """docs/launcher.md, What it makes."""
    made: Any = launch
    assert made.__name__ == made.__qualname__ == "launch"
    assert (made.__doc__, made.__module__) == ("Launch.", __name__)
    assert made.__annotations__ == made.__wrapped__.__annotations__
    assert inspect.signature(made) == inspect.signature(made.__wrapped__)
    assert repr(made) == "<dlx.launcher of launch>"
    assert callable(made)
    made.__wrapped__.grid = 3
    assert made.grid == 3
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        made.missing  # noqa: B018


def test_it_is_pickled_and_copied_by_reference() -> None:
    """docs/launcher.md, What it makes: like a function."""
    assert pickle.loads(pickle.dumps(launch)) is launch
    assert copy.copy(launch) is copy.deepcopy(launch) is launch


class Kernels:
    """Functions in a class."""

    n = 3

    @dlx.launcher
    def method(self, x: int, n: int = 0) -> Any:
        """Return the arguments."""
        return self, x, n

    @dlx.launcher
    @staticmethod
    def static(x: int) -> Any:
        """Return the argument."""
        return x

    @classmethod
    @dlx.launcher
    def of_class(cls, x: int) -> Any:
        """Return the arguments."""
        return cls, x

    @dlx.launcher
    @classmethod
    def of_class_too(cls, x: int) -> Any:
        """Return the arguments."""
        return cls, x


def test_it_is_a_method_in_a_class() -> None:
    """docs/launcher.md, What it makes: the receiver is passed on."""
    kernels = Kernels()
    assert kernels.method(X, n=2) == (kernels, ADDRESS, 2)
    assert Kernels.method(kernels, X) == (kernels, ADDRESS, 0)
    assert kernels.static(X) == Kernels.static(X) == ADDRESS
    assert kernels.of_class(X) == Kernels.of_class_too(X) == (Kernels, ADDRESS)


def test_a_receiver_that_is_a_tensor_is_passed_on() -> None:
    """docs/launcher.md, What it makes: as by `bridge`."""

    class Array(np.ndarray[Any, Any]):
        @dlx.launcher
        def launch(self, x: int) -> Any:
            return self, x

    array = X.view(Array)
    receiver, x = array.launch(array)
    assert receiver is array
    assert x == ADDRESS


@pytest.mark.parametrize("name", ["self", "cls"])
def test_only_the_first_parameter_is_a_receiver(name: str) -> None:
    """docs/launcher.md, What it makes."""
    scope: dict[str, Any] = {}
    exec(f"def first({name}, x): return {name}, x", scope)
    exec(f"def second(x, {name}): return {name}, x", scope)
    launchers: list[Any] = [dlx.launcher(scope[key]) for key in ("first", "second")]
    receiver, x = launchers[0](X, X)
    assert (receiver is X, x) == (True, ADDRESS)
    assert launchers[1](X, X) == (ADDRESS, ADDRESS)


CALLABLES: dict[str, Any] = {
    "partial": functools.partial(lambda n, x: (n, x), 5),
    "itemgetter": operator.itemgetter(slice(None)),
    "instance": type("Callable", (), {"__call__": lambda self, x: x})(),
    "builtin": print,
    "lambda": lambda x: x,
    "launcher": dlx.launcher(lambda x: x),
}


@pytest.mark.parametrize("function", CALLABLES.values(), ids=CALLABLES)
def test_every_callable_can_be_launched(function: Any) -> None:
    """docs/launcher.md, What it makes."""
    made: Any = dlx.launcher(function, give="tensor")
    assert "launcher of" in repr(made)
    if function is not print:
        made(X)


async def coroutine(x: int) -> None:
    """Run later."""


def generator(x: int) -> Any:
    """Run later."""
    yield x


async def asynchronous(x: int) -> Any:
    """Run later."""
    yield x


@pytest.mark.parametrize("function", [coroutine, generator, asynchronous])
def test_what_runs_after_its_call_is_refused(function: Any) -> None:
    """docs/launcher.md, Refused: the tensors would be given back before."""
    with pytest.raises(TypeError, match="runs after its call"):
        dlx.launcher(function)


def test_what_is_not_callable_is_refused() -> None:
    """docs/launcher.md, Refused."""
    with pytest.raises(TypeError, match="3 cannot be launched; expected a callable"):
        dlx.launcher(3)  # type: ignore[call-overload]


def copies() -> Any:
    """C's memmove, as ctypes has it."""
    memmove = ctypes.CDLL(None).memmove
    memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return memmove


def test_a_function_of_c_is_called_by_its_name() -> None:
    """docs/launcher.md, `out`: it has no signature, so positions only."""
    said = "'x', which is no parameter of memmove; expected a position below 3, that of"
    with pytest.raises(ValueError, match=said):
        dlx.launcher(copies(), out="x")
    launch: Any = dlx.launcher(copies(), out=0, dtype="float32")
    assert repr(launch) == "<dlx.launcher of memmove>"
    with pytest.raises(BufferError) as refused:
        launch(np.ones(3), np.ones(3, "float32"), 12)
    assert refused.value.__notes__ == ["argument 0 of memmove"]


@pytest.mark.parametrize("options", [{"out": 3}, {"dtype": {7: "float64"}}], ids=repr)
def test_a_position_beyond_the_argtypes_is_refused(options: Any) -> None:
    """docs/launcher.md, `out`: what it names would be another argument, or none."""
    with pytest.raises(ValueError, match="expected a position below 3"):
        dlx.launcher(copies(), **options)


def test_a_function_without_argtypes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ctypes: without them an int is a C int, which has no room for an address."""
    monkeypatch.setitem(sys.modules, "_ctypes", None)  # a name says nothing of it
    with pytest.raises(TypeError, match=r"memmove has no argtypes.*set them first"):
        dlx.launcher(ctypes.CDLL(None).memmove)
    with pytest.raises(TypeError, match="memmove has no argtypes"):
        dlx.launcher(functools.partial(ctypes.CDLL(None).memmove))
    tensors = dlx.launcher(ctypes.CDLL(None).memmove, give="tensor")
    assert repr(tensors) == "<dlx.launcher of memmove>"


def test_a_type_of_c_that_cuts_addresses_is_no_out() -> None:
    """ctypes: it drops the upper bits in silence."""
    memmove = ctypes.CDLL(None).memmove
    for kind in (ctypes.c_int, ctypes.c_bool, ctypes.c_double, ctypes.c_float):
        memmove.argtypes = [kind, ctypes.c_void_p, ctypes.c_size_t]
        with pytest.raises(TypeError, match=f"{kind.__name__} at position 0, which "):
            dlx.launcher(memmove, out=0)
    memmove.argtypes = [ctypes.c_size_t, np.ctypeslib.ndpointer(), ctypes.c_size_t]
    dlx.launcher(memmove, out=[0, 1])
    dlx.launcher(memmove, out="args")


def kernel(x: Any, y: Any = None) -> Any:
    """A kernel."""
    return x, y


def default(x: Any, y: Any = np.ones(3)) -> Any:  # noqa: B008
    """A kernel with a tensor of its own."""
    return x, y


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(kernel, np.ones(3)),
        functools.partial(kernel, y=dlx.empty(3, "int8")),
        functools.partial(functools.partial(kernel, np.ones(3)), 4),
        default,
    ],
    ids=["position", "name", "twice", "default"],
)
def test_a_tensor_that_no_call_passes_is_refused(function: Any) -> None:
    """docs/launcher.md, Refused: it would be neither checked nor converted."""
    with pytest.raises(TypeError, match="which dlx neither checks nor converts"):
        dlx.launcher(function)
    dlx.launcher(functools.partial(kernel, 3, y="n"))


@pytest.mark.parametrize(
    "options",
    [{"out": "y"}, {"out": ["x", 3]}, {"out": -1}, {"dtype": {"y": "int8"}}],
    ids=repr,
)
def test_a_name_that_is_no_parameter_is_refused(options: Any) -> None:
    """docs/launcher.md, Refused: it would not be checked."""
    with pytest.raises(ValueError, match=r"(out|dtype) has .* no parameter of"):
        dlx.launcher(lambda x, *, n=3: x, **options)


def test_a_name_of_a_function_without_signature_is_refused() -> None:
    """docs/launcher.md, Refused: positions are known."""
    with pytest.raises(ValueError, match="out has 'out'"):
        dlx.launcher(iter, out="out")
    locked = np.frombuffer(b"12", "u1")
    with pytest.raises(BufferError, match="read-only"):
        dlx.launcher(iter, out=0)(locked)


def test_a_length_of_a_function_without_names_is_that_of_a_function_around_it() -> None:
    """The advice works."""
    memmove = ctypes.CDLL(None).memmove
    memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    with pytest.raises(ValueError, match="no names: launch a Python function that has"):
        dlx.launcher(memmove, out=0, size="n")
    out, x = np.zeros(3, "u1"), np.ones(3, "u1")

    @dlx.launcher(out="out", size="n")
    def move(out: Any, x: Any, n: int) -> None:
        memmove(out, x, n)

    move(out, x, 3)
    assert out.tolist() == [1, 1, 1]
    with pytest.raises(BufferError, match="3 elements"):
        move(out, x, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"give": "view"}, "expected one of .'address', 'pointer', 'tensor'"),
        ({"dtype": "real"}, "not a dtype of DLPack"),
        ({"dtype": {"x": "real"}}, "not a dtype of DLPack"),
    ],
)
def test_a_wrong_option_is_an_error_at_the_decorator(
    options: Any, message: str
) -> None:
    """docs/launcher.md, Refused."""
    with pytest.raises(ValueError, match=message):
        dlx.launcher(lambda x: x, **options)


def test_all_parameters_are_told_apart() -> None:
    """docs/launcher.md: the last one is the stream."""
    scope: dict[str, Any] = {}
    names = ", ".join(f"x{i}" for i in range(300))
    exec(f"def f({names}, stream): return x0, stream", scope)
    made: Any = dlx.launcher(scope["f"])
    assert made(*[X] * 300) == (ADDRESS, 0)


def test_what_the_stream_raises_passes_through() -> None:
    """docs/launcher.md, Streams: before anything is lent."""

    def on() -> Any:
        raise LookupError

    with pytest.raises(LookupError):
        dlx.launcher(lambda x: x, stream=on)(X)
    wrong: Any = "stream"
    with pytest.raises(TypeError, match="stream must be an int"):
        dlx.launcher(lambda x: x, stream=wrong)(X)


def test_a_launcher_in_a_cycle_is_collected() -> None:
    """docs/safety.md, S28: through the function and its attributes."""

    def make() -> weakref.ref[Any]:
        def recursive(x: int) -> Any:
            return made

        made: Any = dlx.launcher(recursive, stream=lambda: made and None)
        recursive.made = made  # type: ignore[attr-defined]
        return weakref.ref(made)

    death = make()
    gc.collect()
    assert death() is None


def test_it_calls_itself() -> None:
    """docs/launcher.md: a call has no state but its own."""

    @dlx.launcher(give="tensor", out="x")
    def recursive(x: dlx.Tensor, depth: int) -> Any:
        inner = recursive(x, depth - 1) if depth else ()
        return (x.data_ptr, *inner)

    assert recursive(X, 3) == (ADDRESS,) * 4


@pytest.mark.parametrize("give", ["tensor", "block"])
def test_what_the_message_names_outlives_the_call(give: str) -> None:
    """A kernel's function may keep what it got."""
    x, kept = np.arange(3.0), []

    def keep(x: Any) -> None:
        kept.extend([x, x[...]])

    if give == "tensor":
        launched: Any = dlx.launcher(keep, give="tensor")
        launched(x)
    else:
        with dlx.borrow(x) as (view, _):
            keep(view)
    with pytest.raises(BufferError, match=r"has ended; keep x\[\.\.\.\] in its place"):
        kept[0].tolist()
    assert kept[1].tolist() == x.tolist()


def test_an_out_that_is_no_name_is_named() -> None:
    """At decoration."""
    out: Any
    for out in (1.5, ...):
        with pytest.raises(ValueError, match=r"out has .*, which is no parameter"):
            dlx.launcher(lambda x: x, out=out)


@pytest.mark.parametrize("dtype", [[False], {"x": False}])
def test_false_is_no_dtype(dtype: Any) -> None:
    """Nothing that a user would write by mistake stands for a number's place."""
    with pytest.raises(TypeError, match="dtype"):
        dlx.launcher(lambda x: x, dtype=dtype)
    with pytest.raises(TypeError, match="dtype"):
        dlx.borrow(np.zeros(3), dtype=[False])


def test_none_may_be_said_for_no_out() -> None:
    """As of `borrow`."""
    launched: Any = dlx.launcher(lambda x: x, out=None)
    x = np.zeros(3)
    assert launched(x) == x.ctypes.data


@pytest.mark.parametrize(
    ("by_position", "numbers", "written", "optional"),
    [
        (0, {}, [], []),
        (1, {}, [False] * 2, [False] * 2),
        (0, {"x": 2}, [False] * 2, [False] * 2),
        (0, {}, [False] * 2, [False]),
    ],
)
def test_its_class_makes_none_whose_calls_would_look_beyond_its_parameters(
    by_position: int,
    numbers: dict[str, int],
    written: list[bool],
    optional: list[bool],
) -> None:
    """docs/safety.md S1: no call panics."""
    kind: Any = type(launch)
    parameters = SimpleNamespace(
        by_position=by_position,
        numbers=numbers,
        written=written,
        tensors=optional,
        optional=optional,
        receivers=0,
        stream=None,
    )
    with pytest.raises(ValueError, match=r"dlx\.launcher makes these"):
        kind(print, parameters, None, False, None, True, True, *[None] * 4)
