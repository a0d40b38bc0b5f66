"""The natives of dlx_check: the library in C that is beside this file, by ctypes.

Who passes an address promises what lies there: a function of at most four words, or a
struct that lives. No function of the library runs without the GIL, where there is one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_int, c_size_t, c_uint64, py_object
from importlib.util import find_spec
from typing import Any

__all__ = [
    "call",
    "delete_elsewhere",
    "drop_pending",
    "error_counter",
    "functions",
    "table",
    "watch",
    "watched",
]


def _loaded() -> ctypes.PyDLL:
    # Python knows which suffixes of libraries it can load, as `.abi3.so`.
    spec = find_spec("dlx_check._natives")
    if spec is None or spec.origin is None:
        raise ImportError(
            "dlx_check was not built for this Python: its library _natives is missing; "
            "`pip install ./packages/dlx-check` in a checkout builds it, with a C "
            "compiler and Python.h, which Debian has in python3-dev",
            name="dlx_check._natives",
        )
    return ctypes.PyDLL(spec.origin)


_library = _loaded()


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_library, name)
    function.restype, function.argtypes = result, arguments
    return function


_functions = _function("functions", None, c_size_t * 3)
_table = _function("table", None, py_object, c_size_t * 5)
_call = _function("call", py_object, c_size_t, c_uint64 * 4)
_delete_elsewhere = _function("delete_elsewhere", c_int, c_size_t, c_uint64)
_drop_pending = _function("drop_pending", py_object, py_object)
_error_counter = _function("error_counter", c_size_t)
_watch = _function("watch", c_int, c_size_t, c_size_t)
_watched = _function("watched", c_uint64, c_size_t)


def functions() -> list[int]:
    """Return the deleters of versioned and unversioned probes, and their destructor.

    A counter precedes the struct of a probe, as `dlx_check.conformance.probe` has it.
    """
    found = (c_size_t * 3)()
    _functions(found)
    return list(found)


def table(hook: Callable[[int, int, int, int, int], object]) -> list[int]:
    """Return the five functions of an exchange table, all answered by ``hook``.

    It gets the place of the function and four words, and returns the code, or an
    exception to leave behind a success; what it raises is left behind a failure. There
    is one hook: that of the last call answers for the tables of all.
    """
    found = (c_size_t * 5)()
    _table(hook, found)
    return list(found)


def call(address: int | None, words: Sequence[int]) -> tuple[int, Any]:
    """Call the function at ``address`` with four words.

    Returns its code and the exception that it left, or None. Raises ``RuntimeError``
    for NULL.
    """
    found: tuple[int, Any] = _call(address or 0, (c_uint64 * 4)(*words))
    return found


def delete_elsewhere(deleter: int | None, managed: int) -> None:
    """Call a deleter on a thread that Python does not know.

    Raises ``RuntimeError`` for NULL, and if no thread can be started.
    """
    if not deleter:
        raise RuntimeError("NULL")
    if _delete_elsewhere(deleter, managed):
        raise RuntimeError("no thread could be started")


def drop_pending(kept: list[Any]) -> Any:
    """Drop the last item of a list while a ``KeyError`` is pending.

    Returns the exception that is pending afterwards, or None.
    """
    return _drop_pending(kept)


def error_counter() -> int:
    """Return a ``SetError`` that counts its calls in the word at its context."""
    return int(_error_counter())


def watch(managed: int, field: int) -> None:
    """Have the deleter in the field at this address count its calls, from 0 on."""
    if _watch(managed, field):
        raise MemoryError


def watched(managed: int) -> int:
    """Return how often the deleter of the struct was called since `watch`."""
    return int(_watched(managed))
