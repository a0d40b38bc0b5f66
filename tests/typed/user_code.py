"""Code as users write it, for mypy and Pyright: what calls give, and what is wrong.

Nothing runs this. An expected error is marked for each checker, which reports a mark
without an error.
"""

from importlib import import_module
from typing import Any, assert_type

import dlx
import numpy as np
import torch
from numpy.typing import NDArray

x = np.ones((2, 3), "float32")
t = dlx.from_dlpack(x)
assert_type(t, dlx.Tensor)
assert_type(t.shape, tuple[int, ...])

# convert: a class names what comes back, and so does a namespace that has one.
assert_type(dlx.convert(x, torch.Tensor), torch.Tensor)
assert_type(dlx.convert(x, dlx.Tensor), dlx.Tensor)
array: NDArray[Any] = dlx.convert(t, np.ndarray)
assert_type(dlx.convert(x, torch), torch.Tensor)
assert_type(dlx.convert(x, dlx), dlx.Tensor)
assert_type(dlx.convert(x, import_module("torch")), Any)
assert_type(dlx.convert(t, np, device="cpu", copy=False), NDArray[Any])
assert_type(dlx.convert(x, "torch", dtype="float32"), Any)
dlx.convert(x, torch, to_device="cpu")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
assert_type(dlx.convert(x, t), dlx.Tensor)
assert_type(dlx.convert(t, np.ones(3), dtype="float32"), NDArray[Any])

# empty: of the kind of `like`, and of the dtype that is asked for.
assert_type(dlx.empty(3, "float32"), dlx.Tensor)
assert_type(dlx.empty((2, 3), "float32", like=np.ones(3)), NDArray[Any])
assert_type(dlx.empty(3, "float32", like=torch.Tensor), torch.Tensor)
assert_type(dlx.empty(3, "float32", like=torch), Any)
assert_type(dlx.empty(3, "float32", like=t), dlx.Tensor)
dlx.empty(3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

# borrow: a view of each tensor, `out` last, and the stream.
with dlx.borrow(x) as (tx, s):
    assert_type(tx, dlx.Tensor)
    assert_type(s, dlx.Stream | Any)
with dlx.borrow(x, t, out=x, stream=1) as (tx, tt, to, s):
    assert_type(to, dlx.Tensor)
    assert_type(s, dlx.Stream | Any)
with dlx.borrow(out=x) as (to, s):
    assert_type(to, dlx.Tensor)
with dlx.borrow(x, out=[x, t]) as (tx, to, tt, s):
    pass
with dlx.borrow(*[x, t]) as (tx, tt, s):
    pass
with dlx.borrow(x, outs=x) as (tx, s):  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue,reportUnknownVariableType]
    pass
with dlx.borrow(x) as (tx, tt, s):  # type: ignore[misc]  # pyright: ignore[reportAssignmentType,reportUnknownVariableType]
    pass


# launcher: any arguments in place of addresses, and the function's own result.
@dlx.launcher
def plain(a: int, *, stream: int) -> float:
    """Launch a kernel."""
    return 1.0


@dlx.launcher(give="pointer", out=["out", 0], dtype={"out": "float32"}, stream=1)
def pointers(a: dlx.Pointer, out: dlx.Pointer) -> int:
    """Launch a kernel of Triton."""
    return a.data_ptr()


assert_type(plain(x), float)
assert_type(pointers(x, out=t), int)
assert_type(dlx.as_pointer(x, stream=1).dtype, dlx.DType)
dlx.launcher(plain, give="view")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue,reportArgumentType]


class Array(dlx.ExchangeMixin, exchange="data"):
    """A class that exports its attribute."""

    def __init__(self, data: object) -> None:
        """Keep an array of any library."""
        self.data = data


assert_type(Array.from_dlpack(x), Array)
assert_type(dlx.convert(x, Array), Array)
assert_type(Array(x).__dlpack_device__()[1], int)

# Devices.
assert_type(t.device.type, dlx.DeviceType)
dlx.from_dlpack(x, device=("cuda", 0))
dlx.from_dlpack(x, device=t.device, copy=True)
dlx.from_dlpack(x, release="record_stream")
dlx.from_dlpack(x, release="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
dlx.from_dlpack(x, devise="cpu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
dlx.from_dlpack(x, device=object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
