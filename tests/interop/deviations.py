"""Where other libraries deviate from `dlpack.h`, the array API or their own docs.

What `dlx check` finds is not repeated here: `conformance.json` has it.
"""

from __future__ import annotations

from typing import NamedTuple


class Deviation(NamedTuple):
    """A finding, and code that ends as described as long as the finding holds."""

    library: str
    what: str
    code: str
    ends: str = ""
    """The error that the code ends with, `signal` and its number, or "" for none."""


DEVIATIONS = [
    Deviation(
        "torch",
        "It takes memory that is not aligned to its elements, and some of its kernels, "
        "for complex128 at least, end the process on it. So do Paddle's.",
        """
        import numpy as np, torch
        a = np.frombuffer(bytearray(257), "c16", offset=1)
        torch.from_numpy(a).any()
        """,
        "signal 11",
    ),
    Deviation(
        "apache-tvm-ffi",
        "`from_dlpack` drops READ_ONLY, and hands the memory on as writable.",
        """
        import dlx, numpy as np, tvm_ffi
        a = np.frombuffer(bytes(4), "f4")
        np.from_dlpack(tvm_ffi.from_dlpack(dlx.from_dlpack(a)))[0] = 7
        assert a[0] == 7
        """,
    ),
    Deviation(
        "apache-tvm-ffi",
        "A complex tensor cannot tell its dtype.",
        """
        import numpy as np, tvm_ffi
        tvm_ffi.from_dlpack(np.zeros(3, "c8")).dtype
        """,
        ends="ValueError",
    ),
    Deviation(
        "cuda-core",
        "`from_dlpack` takes dtypes that it does not know, and raises when asked.",
        """
        import dlx, numpy as np
        from cuda.core.utils import StridedMemoryView
        a = np.zeros(4, "u4")
        x = dlx.from_pointer(a.ctypes.data, (4,), "complex32", owner=a)
        StridedMemoryView.from_dlpack(x, stream_ptr=-1).dtype
        """,
        ends="TypeError",
    ),
    Deviation(
        "paddlepaddle",
        "NumPy's uint16 becomes bfloat16 with the same bits.",
        """
        import numpy as np, paddle
        assert paddle.to_tensor(np.ones(3, "u2")).dtype == paddle.bfloat16
        """,
    ),
    Deviation(
        "paddlepaddle",
        "Its import ends the process if TensorFlow has been imported.",
        """
        import tensorflow
        import paddle
        """,
        ends="signal 11",
    ),
    Deviation(
        "mlx",
        "`from_dlpack` crashes on an array of ctypes.",
        """
        import ctypes, mlx.core as mx
        mx.from_dlpack((ctypes.c_float * 3)())
        """,
        ends="signal 11",
    ),
    Deviation(
        "warp-lang",
        "`from_dlpack` asks for an unversioned capsule: read-only memory is refused.",
        """
        import numpy as np, warp as wp
        wp.init()
        wp.from_dlpack(np.frombuffer(bytes(4), "f4"))
        """,
        ends="BufferError",
    ),
    Deviation(
        "tensorflow-cpu",
        "`from_dlpack` takes capsules, no objects with `__dlpack__`.",
        """
        import numpy as np, tensorflow as tf
        tf.experimental.dlpack.from_dlpack(np.zeros(3))
        """,
        ends="TypeError",
    ),
    Deviation(
        "tensorflow-cpu",
        "`from_dlpack` takes memory at any address, and kernels end the process where "
        "it is not a multiple of 64.",
        """
        import numpy as np, tensorflow as tf
        memory = np.zeros(128, "u1")
        start = -memory.ctypes.data % 64 + 4
        a = memory[start : start + 16].view("f4")
        tf.experimental.dlpack.from_dlpack(a.__dlpack__()) + 1
        """,
        "signal 6",
    ),
    Deviation(
        "tinygrad",
        "Tensors have no `__dlpack__`, and made of a NumPy array they show its "
        "elements as they are when they are first used.",
        """
        import numpy as np, tinygrad
        x = tinygrad.Tensor(a := np.zeros(3, "f4"), device="PYTHON")
        a[0] = 7
        assert x.numpy()[0] == 7 and not hasattr(x, "__dlpack__")
        """,
    ),
    Deviation(
        "nanoarrow",
        "`c_buffer` takes column-major buffers, and gives the elements as they lie.",
        """
        import nanoarrow, numpy as np
        a = np.arange(6, dtype="i4").reshape(2, 3).T
        assert list(nanoarrow.c_buffer(a)) != a.ravel().tolist()
        """,
    ),
]
