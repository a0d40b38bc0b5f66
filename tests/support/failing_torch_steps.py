"""Ways through dlx that call torch's exchange table, whose n-th call goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import torch

from support.dlpack_abi import table_of
from support.dlx_producers import Stored
from support.failing_calls import TABLE, failing_table
from support.failing_consumers import exported, lent
from support.wrapped_functions import doubled, launch, launch_pointers

# Before dlx sees a tensor, since it remembers torch's table.
torch.Tensor.__dlpack_c_exchange_api__ = failing_table(table_of(torch.Tensor))


ARRAY = np.arange(6, dtype="f4").reshape(2, 3)
READ_ONLY = np.broadcast_to(np.float32(1), (2, 3))
T = torch.arange(6.0).reshape(2, 3)
U, VIEW = torch.zeros(2, 3), torch.arange(6.0).reshape(3, 2).t()
GRADIENTS = torch.nn.Parameter(torch.zeros(2, 3))
STORED = Stored(T)
WATCHED: list[Any] = [ARRAY, READ_ONLY, T, U, VIEW, GRADIENTS, STORED]


def uses() -> list[int]:
    """Count what holds the memory of the tensors."""
    storages = [each.untyped_storage() for each in (T, U, VIEW, GRADIENTS)]
    return [torch._C._storage_Use_Count(each._cdata) for each in storages]


@dlx.bridge(torch.Tensor)
def bridged_there(array: Any) -> Any:
    """Compute with torch."""
    return array


@dlx.launcher(out=["b"])
def launch_out(a: int, b: int) -> None:
    """Take two addresses, and write to one."""


def borrow() -> None:
    """Lend tensors."""
    with dlx.borrow(T, VIEW, out=U):
        pass


STEPS: dict[str, Callable[[], Any]] = {
    "from_dlpack": lambda: dlx.from_dlpack(T),
    "from_dlpack of a view": lambda: dlx.from_dlpack(VIEW),
    "from_dlpack of a parameter": lambda: dlx.from_dlpack(GRADIENTS.detach()),
    "from_dlpack with a copy": lambda: dlx.from_dlpack(T, copy=True),
    "from_dlpack without a copy": lambda: dlx.from_dlpack(T, copy=False),
    "from_dlpack with a device": lambda: dlx.from_dlpack(T, device="cpu"),
    "from_dlpack of a mixin": lambda: dlx.from_dlpack(STORED),
    "convert to NumPy": lambda: dlx.convert(T, np.ndarray),
    "convert to NumPy of a view": lambda: dlx.convert(VIEW, np.ndarray),
    "convert from NumPy": lambda: dlx.convert(ARRAY, torch.Tensor),
    "convert of read-only memory": lambda: dlx.convert(READ_ONLY, torch.Tensor),
    "convert with a copy": lambda: dlx.convert(T, torch.Tensor, copy=True),
    "convert without a copy": lambda: dlx.convert(ARRAY, torch.Tensor, copy=False),
    "convert with a dtype": lambda: dlx.convert(ARRAY, torch, dtype="float64"),
    "convert detached": lambda: dlx.convert(GRADIENTS, np.ndarray, detach=True),
    "convert of a mixin": lambda: dlx.convert(STORED, torch.Tensor),
    "convert_tree": lambda: dlx.convert_tree([T, {"a": VIEW}], np.ndarray),
    "borrow": borrow,
    "launcher of addresses": lambda: launch(T, U),
    "launcher that writes": lambda: launch_out(T, U),
    "launcher of pointers": lambda: launch_pointers(T, U),
    "bridge": lambda: doubled(T),
    "bridge into a tensor": lambda: doubled(T, out=U),
    "bridge to torch": lambda: bridged_there(ARRAY),
    "empty": lambda: dlx.empty((2, 3), "float32", like=torch.Tensor),
    "empty like a tensor": lambda: dlx.empty((2, 3), "float32", like=T),
    "export of a mixin to NumPy": lambda: np.from_dlpack(STORED),
    "export by table": lambda: exported(STORED),
    "view by table": lambda: lent(STORED),
}
FUNCTIONS = TABLE
