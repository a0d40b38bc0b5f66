"""Where other libraries deviate from `dlpack.h`, the array API or their own docs."""

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
        "`from_dlpack` ignores READ_ONLY, and writes to memory that NumPy protects.",
        """
        import numpy as np, torch
        a = np.frombuffer(bytes(4), "f4")
        torch.from_dlpack(a)[0] = 7
        assert a[0] == 7
        """,
    ),
    Deviation(
        "torch",
        "Exports hold the tensor and not its memory, which is given back under them "
        "when the tensor gets other memory (`x.data = y`, `x.set_()`, a growing "
        "`x.resize_()`). Export `x.detach()`.",
        """
        import numpy as np, torch, weakref
        alive = weakref.ref(a := np.zeros(4))
        x = torch.from_numpy(a)
        b = np.from_dlpack(x)
        del a
        x.data = torch.ones(4)
        assert alive() is None and b.size == 4, "b shows memory that is gone"
        """,
    ),
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
        "paddlepaddle",
        "`from_dlpack` ignores READ_ONLY.",
        """
        import numpy as np, paddle
        a = np.frombuffer(bytes(4), "f4")
        paddle.from_dlpack(a)[0] = 7
        assert a[0] == 7
        """,
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
        "`from_dlpack` calls no deleter where `manager_ctx` is NULL, and so leaks.",
        """
        import ctypes, numpy as np, paddle, sys
        api = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
        pointer = api(("PyCapsule_GetPointer", ctypes.pythonapi))
        capsule = (a := np.zeros(4)).__dlpack__()
        context = pointer(capsule, b"dltensor") + 48
        ctypes.c_void_p.from_address(context).value = None
        del (x := [paddle.from_dlpack(capsule)])[:]
        assert sys.getrefcount(a) == 3
        """,
    ),
    Deviation(
        "paddlepaddle",
        "`from_dlpack` takes negative strides, and reads outside of the memory.",
        """
        import numpy as np, paddle
        a = np.arange(6, dtype="f4").reshape(2, 3)[::-1]
        x = paddle.from_dlpack(a)
        assert not np.array_equal(x.numpy(), a), "or it fails, with MemoryError"
        """,
    ),
    Deviation(
        "paddlepaddle",
        "`__dlpack_device__` gives None for the number of the CPU, not 0.",
        """
        import paddle
        assert paddle.zeros([1]).__dlpack_device__()[1] is None
        """,
    ),
    Deviation(
        "paddlepaddle",
        "Its exchange table exports tensors that record gradients, which `__dlpack__` "
        "refuses.",
        """
        import numpy as np, paddle, tvm_ffi
        x = paddle.to_tensor([1.0], stop_gradient=False)
        assert tvm_ffi.convert(x).shape == (1,)
        x.__dlpack__()
        """,
        ends="BufferError",
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
        "`from_dlpack` makes float32 of float64, and complex64 of complex128.",
        """
        import mlx.core as mx, numpy as np
        assert mx.from_dlpack(np.zeros(3)).dtype == mx.float32
        """,
    ),
    Deviation(
        "mlx",
        "`from_dlpack` shares no memory on the CPU.",
        """
        import mlx.core as mx, numpy as np
        mx.from_dlpack(np.zeros(1 << 16, "f4"), copy=False)
        """,
        ends="ValueError",
    ),
    Deviation(
        "mlx",
        "`__dlpack__` gives an unversioned capsule whatever `max_version` says.",
        """
        import mlx.core as mx
        assert '"dltensor"' in repr(mx.zeros(3).__dlpack__(max_version=(1, 3)))
        """,
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
        "jax",
        "`__dlpack__` gives an unversioned capsule whatever `max_version` says.",
        """
        import jax.numpy as jnp
        assert '"dltensor"' in repr(jnp.zeros(3).__dlpack__(max_version=(1, 3)))
        """,
    ),
    Deviation(
        "jax",
        "`from_dlpack` asks for an unversioned capsule: read-only memory is refused, "
        "although JAX never writes.",
        """
        import jax.numpy as jnp, numpy as np
        jnp.from_dlpack(np.frombuffer(bytes(4), "f4"))
        """,
        ends="BufferError",
    ),
    Deviation(
        "jax",
        "Its capsules cannot say that arrays are immutable: torch takes that for "
        "writable, NumPy for read-only.",
        """
        import jax.numpy as jnp, numpy as np, torch
        x = jnp.zeros(3)
        assert not np.from_dlpack(x).flags.writeable
        torch.from_dlpack(x)[0] = 7
        assert x[0] == 7
        """,
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
        "warp-lang",
        "`from_dlpack` fails on a tensor without dimensions.",
        """
        import numpy as np, warp as wp
        wp.init()
        wp.from_dlpack(np.zeros(()))
        """,
        ends="IndexError",
    ),
    Deviation(
        "onnxruntime",
        "`OrtValue.__dlpack__` exports bool as uint8, and knows no `max_version`.",
        """
        import numpy as np
        from onnxruntime import OrtValue
        value = OrtValue.ortvalue_from_numpy(np.array([True]))
        assert np.from_dlpack(value).dtype == np.uint8
        """,
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
        "tensorflow-cpu",
        "`__dlpack__` of strings, variants and resources ends the process.",
        """
        import tensorflow as tf
        tf.constant("a").__dlpack__()
        """,
        "signal 6",
    ),
    Deviation(
        "pyarrow",
        "`Array.from_dlpack` takes no unversioned capsules.",
        """
        import jax.numpy as jnp, pyarrow
        pyarrow.Array.from_dlpack(jnp.zeros(3))
        """,
        "ValueError",
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
    Deviation(
        "awkward",
        "`from_dlpack` fails on a tensor without dimensions.",
        """
        import awkward, numpy as np
        awkward.from_dlpack(np.zeros(()))
        """,
        ends="TypeError",
    ),
    Deviation(
        "ndonnx",
        "Arrays have `__dlpack__` and `__dlpack_device__`, which always raise.",
        """
        import ndonnx
        ndonnx.asarray([1.0]).__dlpack_device__()
        """,
        ends="ValueError",
    ),
]
