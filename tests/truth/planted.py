"""Planted bugs, one for each kind of fault, which the fuzzer must find.

A worker plants a bug before it runs its programs: functions of dlx are replaced by
others that spoil the result as the bug would. Each spoils what dlx does right, so a
fault of the same kind that is `known` hides none of them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import dlx
import numpy as np

from . import kit
from .libraries import FOUND
from .said_torch import is_torch, undisturbed
from .says import package_of
from .standins import Flagged
from .tabled import Tabled
from .vetoes import Firm

Change = Callable[[Any], Any]
"""What a bug makes of an argument, or of a result."""


class Bug(NamedTuple):
    """A planted bug."""

    library: str
    """In whose programs it is found."""
    says: str
    """A pattern of what is found."""
    plant: Callable[[], None]


BUGS: dict[str, Bug] = {}

WRITTEN = "changes what must not be written"
NUMBERLESS = "^made .* of what has no numbers"


def found_in(
    library: str, says: str
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Add a bug."""

    def add(plant: Callable[[], None]) -> Callable[[], None]:
        BUGS[plant.__name__] = Bug(library, says, plant)
        return plant

    return add


def replace(**functions: Callable[..., Any]) -> None:
    """Replace functions of dlx in the namespace of programs."""

    class Shim:
        def __getattr__(self, name: str) -> Any:
            return getattr(dlx, name)

    shim: Any = Shim()
    vars(shim).update(functions)
    kit.KIT["dlx"] = shim


def change_argument(change: Change) -> None:
    """Let dlx look at something else than what it is given."""

    def changed(function: Callable[..., Any], x: Any, *rest: Any, **named: Any) -> Any:
        return function(change(x), *rest, **named)

    functions = dlx.convert, dlx.from_dlpack
    replace(**{each.__name__: partial(changed, each) for each in functions})


def change_result(change: Callable[[Any, Any], Any]) -> None:
    """Let `dlx.convert` return something else, of its argument and its result."""

    def convert(x: Any, *rest: Any, **named: Any) -> Any:
        return change(x, dlx.convert(x, *rest, **named))

    replace(convert=convert)


def made_writable(made: Any) -> Any:
    """Set the flag of a NumPy array that says so, whatever the memory."""
    if type(made) is np.ndarray and made.size:
        # The flags follow six pointers in the struct of an array.
        ctypes.c_int.from_address(id(made) + 16 + 6 * 8).value |= 0x0400
    return made


@found_in("torch", "^it is .*, and not |^gradients were lost")
def believe_in_autograd() -> None:
    """Ask torch about conj and neg only if the tensor has an autograd state."""

    def raw(x: Any) -> Any:
        """Return the elements as stored, where the bug does not ask torch."""
        if is_torch(x) and x.grad_fn is None and not x.requires_grad:
            torch = FOUND["torch"]
            x = x.detach()
            if x.layout == torch.strided and x.device.type == "cpu":
                x = torch._neg_view(x) if x.is_neg() else x
                x = x.conj() if x.is_conj() else x
        return x

    change_argument(raw)


@found_in("numpy", "^it is .*, and not ")
def swap_strides() -> None:
    """Return square matrices with their strides swapped."""
    change_result(
        lambda x, made: (
            made.T
            if type(made) is np.ndarray and made.shape == made.shape[::-1] != ()
            else made
        )
    )


@found_in("numpy", WRITTEN)
def drop_read_only() -> None:
    """Lose READ_ONLY on the way to NumPy."""
    change_result(lambda x, made: made_writable(made))


@found_in("jax", WRITTEN)
def write_to_immutable() -> None:
    """Take the arrays of JAX for writable, as their buffers do not say otherwise."""
    change_result(
        lambda x, made: made_writable(made) if "jax" in package_of(x) else made
    )


@found_in("torch", "autograd did not learn")
def forget_version() -> None:
    """Tell another version counter than the tensor's that it was written to."""

    def borrow(*tensors: Any, out: Any = None, **named: Any) -> Any:
        plain = type(out) is FOUND["torch"].Tensor
        return dlx.borrow(*tensors, out=out.data if plain else out, **named)

    replace(borrow=borrow)


@found_in("pandas", NUMBERLESS)
def believe_array() -> None:
    """Believe what ``__array__`` makes of a Series in which values are missing."""
    change_argument(lambda x: np.asarray(x) if isinstance(x, FOUND["pd"].Series) else x)


@found_in("numpy", NUMBERLESS)
def forget_mask() -> None:
    """Take the memory of masked arrays."""
    change_argument(lambda x: x.data if isinstance(x, np.ma.MaskedArray) else x)


@found_in("pandas", NUMBERLESS)
def ask_for_pandas() -> None:
    """Look for missing values only while `sys.modules` has pandas."""

    def seen(x: Any) -> Any:
        is_gone = sys.modules.get("pandas") is not FOUND["pd"]
        return np.asarray(x) if is_gone and isinstance(x, FOUND["pd"].Series) else x

    change_argument(seen)


@found_in("wrapped", WRITTEN)
def drop_flags_of_later_versions() -> None:
    """Read the flags of DLPack 1.3 alone."""

    def unflagged(x: Any) -> Any:
        late = isinstance(x, Flagged) and x.flags == 0 and x.minor > 3
        if late and isinstance(x.inner, np.ndarray):
            return made_writable(np.ndarray.view(x.inner, np.ndarray))
        return x

    change_argument(unflagged)


@found_in("wrapped", "^it is .*, and not ")
def remember_tables() -> None:
    """Use the first table of a class for ever."""
    change_argument(lambda x: x.inner if isinstance(x, Tabled) else x)


@found_in("torch", "^it is uint8.*, and not bits8")
def name_bits() -> None:
    """Call what torch has no numbers for an integer of as many bits."""

    def named(x: Any) -> Any:
        bits = is_torch(x) and x.dtype == FOUND["torch"].bits8
        return x.view(FOUND["torch"].uint8) if bits else x

    change_argument(named)


@found_in("jax", "the device was dropped")
def drop_device() -> None:
    """Return copies of JAX arrays on the last device, wherever the arrays are."""

    def convert(x: Any, to: Any, **named: Any) -> Any:
        jax = FOUND["jax"]
        made = dlx.convert(x, to, **named)
        is_array = isinstance(made, jax.Array) and not isinstance(made, jax.core.Tracer)
        if made is x or not isinstance(x, jax.Array) or not is_array:
            return made
        return jax.device_put(made, jax.devices()[-1])

    replace(convert=convert)


@found_in("numpy", NUMBERLESS)
def ignore_own_export() -> None:
    """Ignore that a class exports otherwise than its base class."""
    change_argument(lambda x: np.array(x) if isinstance(x, Firm) else x)


@found_in("torch", NUMBERLESS)
def look_through_transforms() -> None:
    """Take the tensor inside of one that `torch.func` transforms."""

    def inside(x: Any) -> Any:
        functorch = FOUND["torch"]._C._functorch
        wrapped = is_torch(x) and functorch.is_functorch_wrapped_tensor(x)
        return functorch.get_unwrapped(x) if wrapped else x

    change_argument(inside)


@found_in("numpy", "is not what was asked for")
def leave_tuples_alone() -> None:
    """Do not convert what is in a tuple."""

    def convert_tree(tree: Any, to: Any, **named: Any) -> Any:
        first = tree[0] if isinstance(tree, list) else None
        return tree if type(first) is tuple else dlx.convert_tree(tree, to, **named)

    replace(convert_tree=convert_tree)


@found_in("numpy", "once its source was gone|^it is .*, and not |SIGSEGV|SIGBUS")
def forget_source() -> None:
    """Return an array that does not keep its memory alive."""

    def loose(x: Any, made: Any) -> Any:
        if type(made) is not np.ndarray or made is x or not made.flags.c_contiguous:
            return made
        memory: Any = (ctypes.c_char * made.nbytes).from_address(made.ctypes.data)
        found = np.ndarray(made.shape, made.dtype, memory)
        found.flags.writeable = made.flags.writeable
        return found

    change_result(loose)


@found_in(
    "torch", f"{NUMBERLESS}|autograd did not learn|the call that helps|^it is .* not "
)
def take_masked_values() -> None:
    """Take the values of a tensor whose class has an inner tensor."""

    def values(x: Any) -> Any:
        masked = is_torch(x) and type(x).__name__ == "MaskedTensor"
        return x.get_data() if masked else x

    change_argument(values)


@found_in("torch", WRITTEN)
def look_through_wrappers() -> None:
    """Take the tensor that torch wraps because nobody may write to it."""

    def inside(x: Any) -> Any:
        if not (is_torch(x) and type(x).__name__ == "ReadOnlyTensorWrapper"):
            return x
        with undisturbed():
            return x.as_subclass(FOUND["torch"].Tensor)

    change_argument(inside)
