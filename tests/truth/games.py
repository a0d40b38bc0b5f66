"""What programs do to ``sys.modules`` and to modules while dlx looks at a tensor.

A game is called by what is played and with which module: ``"gone: torch"``. All but
`reloaded` are undone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from support.dlpack_abi import (
    ENTRIES,
    DLPackExchangeAPI,
    for_ever,
    new_capsule,
    table_of,
)

from .libraries import FOUND, MODULES

CLASSES = {
    "numpy": "ndarray",
    "numpy.ma": "MaskedArray",
    "torch": "Tensor",
    "jax": "Array",
    "tensorflow": "Tensor",
    "paddle": "Tensor",
    "mlx.core": "array",
    "pyarrow": "Array",
    "pandas": "Index",
    "ml_dtypes": "bfloat16",
}
"""The class of each module by which others tell its arrays."""


class Blocked:
    """A finder that lets nobody import a module again: a second torch crashes."""

    def __init__(self, name: str) -> None:
        """Block this module, and those in it."""
        self.name = name

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Refuse."""
        if name == self.name or name.startswith(self.name + "."):
            raise ImportError(f"{name} is gone")


@contextlib.contextmanager
def put(name: str, module: types.ModuleType | None) -> Iterator[None]:
    """Put something in place of a module."""
    kept = sys.modules[name]
    sys.modules[name] = module  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules[name] = kept


@contextlib.contextmanager
def gone(name: str) -> Iterator[None]:
    """Remove a module and those in it, as the end of a ``mock.patch.dict`` does."""
    inside = [key for key in sys.modules if key == name or key.startswith(name + ".")]
    kept = {key: sys.modules.pop(key) for key in inside}
    blocked: Any = Blocked(name)
    sys.meta_path.insert(0, blocked)
    try:
        yield
    finally:
        sys.meta_path.remove(blocked)
        sys.modules.update(kept)


def none(name: str) -> Any:
    """Put None in place of a module, as who forbids its import does."""
    return put(name, None)


def empty(name: str) -> Any:
    """Put an empty module in place of a module."""
    return put(name, types.ModuleType(name))


def stub(name: str) -> Any:
    """Put a module that has a class of the same name in place of a module."""
    module = types.ModuleType(name)
    setattr(module, CLASSES[name], type(CLASSES[name], (), {}))
    return put(name, module)


@contextlib.contextmanager
def patched(name: str) -> Iterator[None]:
    """Replace the class of a module by another, as mocks of a library do."""
    module = sys.modules[name]
    kept = getattr(module, CLASSES[name])
    setattr(module, CLASSES[name], type(CLASSES[name], (), {}))
    try:
        yield
    finally:
        setattr(module, CLASSES[name], kept)


class Asked:
    """A table that counts who asks it for a tensor."""

    def __init__(self, table: DLPackExchangeAPI) -> None:
        """Copy a table."""
        self.times = 0
        self.table = DLPackExchangeAPI.from_buffer_copy(table)
        for name in TENSORS:
            setattr(self.table, name, ENTRIES[name](self.counted(getattr(table, name))))

    def counted(self, function: Any) -> Callable[[Any, int], int]:
        """Return a function of a table that counts its calls."""

        def asked(x: Any, out: int) -> int:
            self.times += 1
            try:
                return int(function(x, out))
            except Exception:
                # An exception cannot be left set from here.
                return -1

        return asked


TENSORS = (
    "managed_tensor_from_py_object_no_sync",
    "dltensor_from_py_object_no_sync",
)
"""The functions of a table that are asked for a tensor."""


@contextlib.contextmanager
def replaced(name: str) -> Iterator[Asked]:
    """Replace the table of a library's class, as a backend that is loaded late does."""
    kind = getattr(sys.modules[name], CLASSES[name])
    kept = kind.__dlpack_c_exchange_api__
    # dlx may keep it.
    asked = for_ever(Asked(table_of(kind)))
    address = ctypes.addressof(asked.table)
    kind.__dlpack_c_exchange_api__ = new_capsule(address, b"dlpack_exchange_api")
    try:
        yield asked
    finally:
        kind.__dlpack_c_exchange_api__ = kept


GAMES: dict[str, Callable[[str], Any]] = {
    each.__name__: each for each in (gone, none, empty, stub, patched, replaced)
}

TABLES = ("torch",)
"""Modules whose class has a table that can be replaced."""

RELOADS = ("numpy.ma.core", "jax", "pyarrow", "pandas", "ml_dtypes")
"""Modules that can be imported a second time."""


def reloads(names: Iterable[str]) -> list[str]:
    """Return the modules of these libraries that can be reloaded."""
    return [each for each in RELOADS if each.partition(".")[0] in names]


def reloaded(name: str) -> Any:
    """Import a module again: it has other classes than before, of the same names."""
    return importlib.reload(importlib.import_module(name))


def played(game: str) -> Any:
    """Return the context in which a game is played; "" is none.

    It gives an `Asked`, where a table is replaced.
    """
    if not game:
        return contextlib.nullcontext()
    what, name = game.split(": ")
    if name == "jax":
        find_core()
    return GAMES[what](name)


@functools.cache
def find_core() -> None:
    """Let JAX make an array of a capsule.

    It looks for its own core module when it makes the first, and never again: its
    arrays would have no dtype for as long as the process lives.
    """
    FOUND["jax"].dlpack.from_dlpack(FOUND["np"].ones(1, "f4"))


def games(needs: Sequence[str]) -> list[str]:
    """Return the games that can be played with libraries, as programs call them."""
    names = {MODULES[need].partition(".")[0] for need in needs}
    names |= {MODULES[need] for need in needs} | {"numpy", "numpy.ma"}
    return [
        f"{what}: {name}"
        for name in sorted(names & CLASSES.keys() & sys.modules.keys())
        for what in GAMES
        if what != "replaced" or name in TABLES
    ]


FIRST = {
    "numpy": "np.ones(2)",
    "numpy.ma": "np.ma.array([1, 2], mask=[0, 1])",
    "torch": "torch.ones(2)",
    "jax": "jnp.ones(2)",
    "tensorflow": "tf.ones(2)",
    "paddle": "paddle.ones([2])",
    "mlx.core": "mx.ones(2)",
    "pyarrow": "pa.array([1.0, 2.0])",
    "pandas": "pd.Index([1, 2])",
    "ml_dtypes": "np.ones(2, ml_dtypes.bfloat16)",
}
"""A tensor of each module, which dlx meets."""


def first_look(game: str) -> None:
    """Let dlx meet a tensor of a library for the first time while a game is played."""
    from .kit import namespace

    names = namespace()
    dlx, x = names["dlx"], eval(FIRST[game.split(": ")[1]], names)
    for to in names["np"].ndarray, dlx.Tensor:
        with played(game), contextlib.suppress(Exception):
            dlx.convert_tree([dlx.convert(x, to), x], to)
