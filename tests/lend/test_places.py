"""Errors of containers, bridges and blocks name the place of what caused them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import dlx
import numpy as np
import pytest
from support.containers import Output, to_dlx
from support.optional_libraries import requires
from support.python_process import run_python


class Refuses:
    """A tensor that cannot be exported."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Refuse."""
        raise BufferError("of the producer")

    def __dlpack_device__(self) -> tuple[int, int]:
        """Lie on the CPU."""
        return (1, 0)


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    second: Any


@dataclass
class Box:
    """A dataclass with a field that is not set."""

    unset: Any = field(init=False)
    x: Any = None


BAD, GOOD = Refuses(), np.ones(2)
LONG = "encoder.layers.11.attention.self.query.weight"
PLACES: dict[str, Any] = {
    "": BAD,
    "[0]": [BAD],
    "[2]": (1, GOOD, BAD, GOOD),
    "[1]": Pair(1, BAD),
    "['a']": {"b": GOOD, "a": BAD},
    "[(1, 'b')]": {(1, "b"): BAD},
    f"['{LONG}']": {LONG: BAD},
    "[3][1]": deque([GOOD, GOOD, GOOD, [1, BAD]]),
    "[0]{...}": [{BAD}],
    "{...}[0]": frozenset([(BAD,)]),
    ".x": Box(BAD),
    "['a'][0].x[1]": {"z": [Box()], "a": [Box((GOOD, BAD)), BAD]},
    "['states']": Output(loss=GOOD, states=BAD),
}
each_place = pytest.mark.parametrize("place", PLACES)


def notes(call: Callable[[], Any], error: type[Exception] = BufferError) -> list[str]:
    """The notes of what a call raises."""
    with pytest.raises(error) as raised:
        call()
    found: list[str] = getattr(raised.value, "__notes__", [])
    return found


# convert_tree


@each_place
def test_an_error_of_convert_tree_names_the_place(place: str) -> None:
    """docs/bridge.md, Errors."""
    expected = [f"at tree{place}"] if place else []
    assert notes(lambda: to_dlx(PLACES[place])) == expected


def test_the_place_can_be_read_as_it_is_written() -> None:
    """It leads to the leaf, at any depth."""
    tree: Any = BAD
    for step in range(200):
        tree = [0] * (step % 3) + [tree] if step % 2 else {step: tree}
    [note] = notes(lambda: to_dlx(tree))
    assert eval(note.removeprefix("at "), {"tree": tree}) is BAD


def test_a_key_whose_repr_fails_or_is_long_is_shortened() -> None:
    """The error that counts is another one."""

    class Key:
        def __repr__(self) -> str:
            raise ZeroDivisionError

    for key in Key(), "a" * 10_000:
        [note] = notes(lambda key=key: to_dlx({key: BAD}))  # type: ignore[misc]
        assert len(note) < 200


def test_a_container_that_contains_itself_is_named_by_its_place() -> None:
    """docs/bridge.md, Errors."""
    inner: list[Any] = [GOOD]
    inner.append(inner)
    assert notes(lambda: to_dlx({"a": (1, inner)}), ValueError) == ["at tree['a'][1]"]


# bridge


@each_place
def test_an_error_of_an_argument_names_the_place(place: str) -> None:
    """docs/bridge.md, Errors: by the parameter's name, or by position."""

    @dlx.bridge(dlx.Tensor)
    def take(a: Any, *more: Any, **rest: Any) -> None: ...

    bad, name = PLACES[place], take.__qualname__
    assert notes(lambda: take(bad)) == [f"argument a{place} of {name}"]
    assert notes(lambda: take(1, [], bad)) == [f"argument 2{place} of {name}"]
    assert notes(lambda: take(1, x=bad)) == [f"argument x{place} of {name}"]


@each_place
def test_an_error_of_a_result_names_the_place(place: str) -> None:
    """docs/bridge.md, Errors."""

    @dlx.bridge(np.ndarray, result=dlx.Tensor)
    def give() -> Any:
        return PLACES[place]

    @dlx.bridge(np.ndarray, result=dlx.Tensor)
    async def give_later() -> Any:
        return PLACES[place]

    for _ in range(2):
        assert notes(give) == [f"result{place} of {give.__qualname__}"]
    later = [f"result{place} of {give_later.__qualname__}"]
    assert notes(lambda: asyncio.run(give_later())) == later


def test_an_error_of_a_result_of_a_known_type_names_it() -> None:
    """docs/bridge.md, Errors: the first call learns the type, the second fails."""

    class Sometimes:
        def __init__(self, good: bool) -> None:
            self.good = good

        def __dlpack__(self, **keywords: Any) -> Any:
            return (GOOD if self.good else BAD).__dlpack__(**keywords)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    @dlx.bridge(np.ndarray, result=dlx.Tensor)
    def give(good: bool) -> Any:
        return Sometimes(good)

    assert type(give(True)) is dlx.Tensor
    assert notes(lambda: give(False)) == [f"result of {give.__qualname__}"]


def test_an_error_of_an_out_names_the_place() -> None:
    """docs/bridge.md, Errors."""

    @dlx.bridge(dlx.Tensor)
    def fill(a: Any, out: Any) -> None: ...

    readonly = np.ones(2)
    readonly.flags.writeable = False
    [note] = notes(lambda: fill(GOOD, out=[GOOD, {"x": readonly}]))
    assert note == f"argument out[1]['x'] of {fill.__qualname__}"


def test_an_out_that_the_function_replaces_is_named_by_its_place() -> None:
    """docs/bridge.md, Errors."""
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    def move(out: Any) -> None:
        out[1]["x"].set_(torch.ones(2, dtype=torch.float64))

    [note] = notes(lambda: move([np.ones(2), {"x": np.ones(2)}]))
    assert note == f"argument out[1]['x'] of {move.__qualname__}"


# borrow


def borrow(*tensors: Any, **keywords: Any) -> None:
    with dlx.borrow(*tensors, **keywords):
        raise AssertionError


def test_an_error_of_a_borrow_names_the_argument() -> None:
    """docs/streams.md: by position, or as an out."""
    readonly = np.ones(2)
    readonly.flags.writeable = False
    of = "of dlx.borrow"
    assert notes(lambda: borrow(BAD)) == [f"argument 0 {of}"]
    assert notes(lambda: borrow(GOOD, GOOD, BAD, out=GOOD)) == [f"argument 2 {of}"]
    assert notes(lambda: borrow(GOOD, out=readonly)) == [f"argument out {of}"]
    assert notes(lambda: borrow(out=(GOOD, readonly))) == [f"argument out[1] {of}"]
    assert notes(lambda: borrow(GOOD, out=[BAD])) == [f"argument out[0] {of}"]
    assert notes(lambda: borrow(3), AttributeError) == [f"argument 0 {of}"]


def test_an_interrupt_while_the_place_is_noted_is_raised() -> None:
    """R11: Ctrl-C is not lost."""

    class Interrupted(BufferError):
        def add_note(self, note: str) -> None:
            raise KeyboardInterrupt(note)

    class Raises(Refuses):
        def __dlpack__(self, **keywords: Any) -> Any:
            raise Interrupted

    with pytest.raises(KeyboardInterrupt, match=r"argument 1 of dlx\.borrow"):
        borrow(GOOD, Raises())


# JAX


def test_a_result_that_jax_would_narrow_says_what_to_do() -> None:
    """docs/bridge.md, Errors: the cast that it names is accepted."""
    jnp = requires("jax.numpy")

    @dlx.bridge(np.ndarray)
    def mean(a: Any, dtype: str) -> Any:
        return a.mean(axis=0, keepdims=True).astype(dtype)

    x = jnp.ones((2, 3), "float32")
    for wide, narrow in (("float64", "float32"), ("int64", "int32")):
        with pytest.raises(BufferError) as refused:
            mean(x, wide)
        message = str(refused.value)
        assert (
            f"would import {wide} as {narrow}; cast it to {narrow} first if " in message
        )
        assert "jax.config.update('jax_enable_x64', True)" in message
        where, advice = refused.value.__notes__
        assert where == f"result of {mean.__qualname__}"
        assert advice.startswith("result= of dlx.bridge names another type")
        assert mean(x, narrow).dtype == narrow


def test_the_call_that_the_message_names_lets_jax_take_the_result() -> None:
    """docs/bridge.md, Errors."""
    requires("jax")
    code = """
import dlx, jax, numpy as np
try:
    dlx.convert(np.ones(3), jax.Array)
except BufferError as error:
    exec(str(error).rpartition("or call ")[2])
assert dlx.convert(np.ones(3), jax.Array).dtype == "float64"
"""
    assert run_python(code) == (0, "", "")
