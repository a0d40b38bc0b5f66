"""Steps whose allocations `test_faults` lets fail: one for each way through dlx."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import dlx
import dlx.pickling
import numpy as np
import tvm_ffi

from support.dlx_producers import ByMethod, Stored
from support.fake_table import Forward
from support.wrapped_functions import doubled, launch, launch_pointers

ARRAY = np.arange(12.0).reshape(3, 4)[:, ::2]
READ_ONLY = np.broadcast_to(1.0, (2, 3))
TENSOR = dlx.from_dlpack(ARRAY)
COMPACT = dlx.from_dlpack(np.arange(6.0))
FORWARD = Forward(TENSOR)
STORED, BY_METHOD = Stored(TENSOR), ByMethod(ARRAY)
OUT = np.zeros_like(ARRAY)
BYTES = bytearray(48)
TREE = {"a": [ARRAY, (TENSOR, 3)], "b": STORED}
PICKLE = pickle.dumps(COMPACT, 5)
NEW: dict[str, Any] = {"max_version": (1, 3)}
BY_DICT = type("ByDict", (), {"__array_interface__": ARRAY.__array_interface__})()
BY_STRUCT = type("ByStruct", (), {"__array_struct__": ARRAY.__array_struct__})()


class ByProtocol:
    """A producer of Python's protocol alone."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export the array."""
        return ARRAY.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Say that it is on the CPU."""
        return 1, 0


BY_PROTOCOL = ByProtocol()
WATCHED = [ARRAY, READ_ONLY, TENSOR, COMPACT, FORWARD, STORED, BY_METHOD, OUT, BYTES]
WATCHED += [BY_DICT, BY_STRUCT, BY_PROTOCOL, PICKLE]


def borrow() -> None:
    """Lend two tensors."""
    with dlx.borrow(ARRAY, STORED, out=OUT):
        pass


def share() -> None:
    """Share a tensor with itself."""
    with dlx.share(COMPACT) as handle:
        dlx.attach(bytes(handle))


STEPS: dict[str, Callable[[], Any]] = {
    "from_dlpack of NumPy": lambda: dlx.from_dlpack(ARRAY),
    "from_dlpack by protocol": lambda: dlx.from_dlpack(BY_PROTOCOL),
    "from_dlpack of a capsule": lambda: dlx.from_dlpack(ARRAY.__dlpack__(**NEW)),
    "from_dlpack of an old capsule": lambda: dlx.from_dlpack(ARRAY.__dlpack__()),
    "from_dlpack by table": lambda: dlx.from_dlpack(FORWARD),
    "from_dlpack of a buffer": lambda: dlx.from_dlpack(BYTES),
    "from_dlpack of a dict": lambda: dlx.from_dlpack(BY_DICT),
    "from_dlpack of a struct": lambda: dlx.from_dlpack(BY_STRUCT),
    "from_dlpack of a mixin": lambda: dlx.from_dlpack(STORED),
    "from_dlpack of a mixin by method": lambda: dlx.from_dlpack(BY_METHOD),
    "from_dlpack of tvm_ffi": lambda: dlx.from_dlpack(tvm_ffi.from_dlpack(TENSOR)),
    "from_dlpack with a copy": lambda: dlx.from_dlpack(ARRAY, copy=True),
    "from_dlpack with a device": lambda: dlx.from_dlpack(BY_PROTOCOL, device="cpu"),
    "from_pointer": lambda: dlx.from_pointer(8, (2, 3), "int8", owner=ARRAY),
    "from_buffer": lambda: dlx.from_buffer(BYTES, (3, 4), "float32"),
    "convert to NumPy": lambda: dlx.convert(TENSOR, np.ndarray),
    "convert to a mixin": lambda: dlx.convert(ARRAY, Stored),
    "convert to tvm_ffi": lambda: dlx.convert(ARRAY, tvm_ffi.Tensor),
    "convert with a copy": lambda: dlx.convert(READ_ONLY, tvm_ffi.Tensor),
    "convert with a dtype": lambda: dlx.convert(ARRAY, np.ndarray, dtype="float32"),
    "convert_tree": lambda: dlx.convert_tree(TREE, np.ndarray),
    "borrow": borrow,
    "bridge": lambda: doubled(TENSOR),
    "bridge into an array": lambda: doubled(TENSOR, out=OUT),
    "launcher": lambda: launch(COMPACT, COMPACT),
    "launcher of pointers": lambda: launch_pointers(COMPACT, COMPACT),
    "empty": lambda: dlx.empty((2, 3), "float32"),
    "empty of NumPy": lambda: dlx.empty((2, 3), "float32", like=np),
    "__dlpack__": lambda: TENSOR.__dlpack__(**NEW),
    "__dlpack__ of old": lambda: TENSOR.__dlpack__(),
    "__dlpack__ with a copy": lambda: TENSOR.__dlpack__(copy=True),
    "__dlpack__ of a mixin": lambda: STORED.__dlpack__(**NEW),
    "__dlpack__ of a mixin by method": lambda: BY_METHOD.__dlpack__(**NEW),
    "export to NumPy": lambda: np.from_dlpack(TENSOR),
    "export to tvm_ffi": lambda: tvm_ffi.from_dlpack(STORED),
    "export as a buffer": lambda: memoryview(TENSOR).release(),
    "numpy": lambda: TENSOR.numpy(),
    "an element": lambda: TENSOR[0, 1],
    "tolist": lambda: TENSOR.tolist(),
    "repr": lambda: repr(TENSOR),
    "shape": lambda: (TENSOR.shape, TENSOR.strides, TENSOR.dtype, TENSOR.device),
    "pickle": lambda: pickle.dumps(COMPACT, 5),
    "unpickle": lambda: pickle.loads(PICKLE),
    "share and attach": share,
}
