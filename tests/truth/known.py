"""Faults that dlx has and that another issue mends.

Random runs pass over them and find everything else. Each has a program in ``corpus``,
which is expected to fail, strictly: once the fault is mended, its row has to go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .duties import innermost
from .entries import ENTRIES
from .libraries import FOUND
from .said import is_masked
from .said_torch import (
    has_tangent,
    is_small,
    is_torch,
    undisturbed,
)
from .says import package_of, says

TITLE = (
    "Never a wrong number, again: ask the object, not a name, a version or a neighbour"
)
"""The issue that mends all of these."""


class Fault(NamedTuple):
    """What was wrong, with what."""

    says: str
    x: Any
    text: str = ""
    game: str = ""


Of = Callable[[Fault], bool]


class Row(NamedTuple):
    """A known fault: a pattern of what is wrong, and of which looks."""

    says: str
    of: Of = lambda fault: True


def of_library(*names: str) -> Of:
    """Whether the tensor is one of these libraries, or stands for one."""
    return lambda fault: package_of(innermost(fault.x)) in names


def of_torch(that: Callable[[Any], bool] = lambda x: True) -> Of:
    """Whether it is about a tensor of torch of which something is true."""

    def is_such(fault: Fault) -> bool:
        x = innermost(fault.x)
        if not is_torch(x):
            return False
        with undisturbed():
            return that(x)

    return is_such


def immutable(target: str, *names: str) -> Of:
    """Whether immutable memory goes to a library that writes unless it is told."""

    def is_written(fault: Fault) -> bool:
        # A chain of conversions may go through it.
        goes_through = of_library(*names)(fault) or f", {target})" in fault.text
        return goes_through and ENTRIES[fault.text].takes_all_for_writable

    return is_written


def game_with(*modules: str) -> Of:
    """Whether a game was played with these modules."""
    return lambda fault: fault.game.partition(": ")[2] in modules


def is_index(fault: Fault) -> bool:
    """Whether it is about a pandas.Index."""
    return type(innermost(fault.x)).__name__.endswith("Index")


def misses_values(fault: Fault) -> bool:
    """Whether a nullable array of pandas has missing values."""
    x = innermost(fault.x)
    return package_of(x) == "pandas" and not hasattr(x, "__arrow_c_stream__")


def is_masked_elsewhere(fault: Fault) -> bool:
    """Whether an array is masked by another class than NumPy's own."""
    x = innermost(fault.x)
    own = isinstance(x, np.ma.MaskedArray) and not fault.game
    return isinstance(x, np.ndarray) and is_masked(x) and not own


def is_on_another_device(fault: Fault) -> bool:
    """Whether an array of JAX, which is not passed on as it is, is not on the first."""
    if not isinstance(fault.x, FOUND["jax"].Array):
        return False
    is_kept = fault.text == "dlx.convert(x, jax.Array)"
    return not is_kept and fault.x.devices() != {FOUND["jax"].devices()[0]}


WRITTEN = "changes what must not be written"
GIVEN = "that must not be written was given for writing"
ENDS = "it ends the process"
MADE = "^made .* of what has no numbers"
UNHEARD = "autograd did not learn"

KNOWN: dict[str, Row] = {
    "jax_to_torch_writable": Row(WRITTEN, immutable("jax.Array", "jax", "jaxlib")),
    "mlx_to_torch_writable": Row(WRITTEN, immutable("mx.array", "mlx")),
    "tensorflow_to_torch_writable": Row(WRITTEN, immutable("tf.Tensor", "tensorflow")),
    "pandas_index_writable": Row(f"{WRITTEN}|{GIVEN}", is_index),
    "paddle_version": Row(UNHEARD, of_library("paddle")),
    "torch_version_of_dlx": Row(
        UNHEARD,
        lambda fault: (
            "dlx.from_dlpack(x)" in fault.text or fault.x is not innermost(fault.x)
        ),
    ),
    "pandas_missing_value": Row(MADE, misses_values),
    "masked_array": Row(MADE, is_masked_elsewhere),
    "torch_gone": Row(
        "^it is|gradients were lost",
        lambda fault: of_torch()(fault) and game_with("torch")(fault),
    ),
    "paddle_gone": Row(
        "gradients were lost",
        lambda fault: of_library("paddle")(fault) and game_with("paddle")(fault),
    ),
    "mlx_gone": Row(
        GIVEN,
        lambda fault: of_library("mlx")(fault) and game_with("mlx.core")(fault),
    ),
    "tensorflow_gone": Row(
        ENDS,
        lambda fault: (
            of_library("tensorflow")(fault)
            and game_with("tensorflow")(fault)
            and says(innermost(fault.x)) is None
        ),
    ),
    "torch_int4": Row("^it is u?int8", of_torch(lambda x: is_small(x.dtype))),
    "jax_device_dropped": Row(
        "the device was dropped",
        lambda fault: "[-1]" in fault.text or is_on_another_device(fault),
    ),
    "torch_traced": Row("a trace takes it for a constant"),
    "torch_dual": Row("gradients were lost", of_torch(has_tangent)),
    "tree_that_grows": Row("an item of a container was left"),
    "torch_share_memory": Row("once share_memory_"),
    "class_without_module": Row(
        "^raised AttributeError: __module__",
        lambda fault: fault.text.startswith("dlx.inspect"),
    ),
    "pandas_stream_error": Row(
        "^raised (Arrow[A-Z]|.*(Duplicate column names|Sparse pandas data))",
        of_library("pandas"),
    ),
    "torch_masked_by_mixin": Row(
        "^raised TypeError: Multiple dispatch failed for .*is_pinned", of_torch()
    ),
    "torch_wrapper_help": Row("refused without the call that helps"),
    "torch_uninitialized": Row("^raised ValueError: .*uninitialized parameter"),
    "torch_read_only_handed_on": Row("a wrapper that cannot compute was handed on"),
    "torch_read_only_error": Row("^raised RuntimeError: ReadOnlyTensorWrapper only"),
}
"""Each is called as its program in ``corpus``."""


def name_of(fault: Fault) -> str:
    """Return the name of a known fault, or ""."""
    return next(
        (
            name
            for name, row in KNOWN.items()
            if re.search(row.says, fault.says) and row.of(fault)
        ),
        "",
    )
