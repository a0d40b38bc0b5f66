"""What differs from a library's word, with the reasons; nothing else may.

Each row means every object that it names, by every way that it names. Where a library
is wrong, the reason says so; where dlx is, it has the title of the issue that mends it.
"""

from __future__ import annotations

from .listed import Known
from .torch_objects import NARROW

MENDED_BY = (
    "mended by the issue: Never a wrong number, again: ask the object, not a name, a "
    "version or a neighbour"
)
NO_NAME = "NumPy has no dtype for it"
NO_PROMISE = "docs/classes.md: a table for NumPy's arrays exports no read-only ones"
KERNEL = "docs/launcher.md: a kernel records no gradients"
COPY = "dlx exports the copy that the column makes, which nobody else has"
LAZY = "dlx refuses what torch exports with wrong numbers"

BY_BUFFER = "from_dlpack again convert export mixin method mixin-protocol"
CONVERTED = f"{BY_BUFFER} device"
"""The ways of what dlx imports by any protocol, and those that may take the buffer."""
LENT = "borrow launcher launcher-export"
LENT_TOO = f"{LENT} launcher-address"
IMPORTED = f"{CONVERTED} copy=False tree mixin-table {LENT}"
ACCEPTED = f"{IMPORTED} numpy"
"""The ways of what has `__dlpack__`, but for those that are handed its export."""


NUMPY = (
    Known(
        "numpy",
        "warn-on-write",
        "buffer array-interface array-struct",
        "flags: READ_ONLY | none",
        "NumPy's own: only __dlpack__ says writable before the first write",
    ),
    Known(
        "numpy",
        "scalar",
        "array-struct",
        "flags: none | READ_ONLY",
        "NumPy's own: the struct of a scalar says writable",
    ),
    Known(
        "numpy",
        "scalar",
        "array-interface",
        "flags: none | READ_ONLY",
        "NumPy's own: the interface of a scalar says writable",
        on="numpy<2.5",
    ),
    Known(
        "numpy",
        "broadcast read-only read-only-0-d read-only-empty memmap",
        "table published",
        "BufferError: the numpy.",
        NO_PROMISE,
    ),
)

TORCH = (
    Known(
        "torch",
        NARROW,
        f"{ACCEPTED} launcher-address",
        "BufferError: the torch tensor is of torch.",
        "torch exports its integers of 1 to 7 bits as if they had 8",
    ),
    Known(
        "torch",
        NARROW,
        "capsule protocol inspect",
        "dtype: ",
        "torch exports its integers of 1 to 7 bits as if they had 8",
    ),
    Known("torch", "float4_e2m1fn_x2", "numpy", "BufferError: NumPy cannot", NO_NAME),
    Known(
        "torch",
        "kind-neg-detached kind-inference-neg kind-subclass-neg "
        "kind-conj-imag-detached",
        f"{ACCEPTED} launcher-address",
        "BufferError: the torch tensor is a lazily negated view",
        LAZY,
    ),
    Known(
        "torch",
        "kind-zero",
        f"{ACCEPTED} launcher-address",
        "BufferError: the torch tensor has no memory",
        LAZY,
    ),
    Known(
        "torch",
        "kind-zero",
        "capsule protocol",
        "BufferError: the tensor has 3 elements but its data pointer is NULL",
        LAZY,
    ),
    Known(
        "torch",
        "kind-grad kind-grad-view kind-grad-by-its-base",
        f"{LENT_TOO} mixin-view",
        "given | BufferError: Can't export tensors that require gradient",
        KERNEL,
    ),
)

JAX = (Known("jax", "float4_e2m1fn", "numpy", "BufferError: NumPy cannot", NO_NAME),)

OTHERS = (
    Known(
        "paddle",
        "parameter grad",
        f"{LENT_TOO} mixin-view",
        "given | BufferError: Can't get __dlpack__ from Tensor that requires gradients",
        KERNEL,
    ),
    Known(
        "warp",
        "bfloat16",
        "array-interface",
        "dtype: uint16",
        "Warp's own: __array_interface__ calls bfloat16 uint16, as NumPy lacks it",
    ),
    Known("polars", "Boolean chunks frame", "export", "flags: none | immutable", COPY),
    Known("pyarrow", "two-chunks", "export", "flags: none | immutable", COPY),
    Known("pandas", "values", "table published", "BufferError: the numpy.", NO_PROMISE),
)

KNOWN = (*NUMPY, *TORCH, *JAX, *OTHERS)
