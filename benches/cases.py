"""The comparisons: the rows of the table, and their objects.

A row names two statements over one set of objects. A statement is not timed if one of
its names is missing, because a library is not installed.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from objects import Scope, bridged, large, published, small, wrapped


class Clock(enum.Enum):
    """How a statement is timed."""

    STATEMENT = "timeit"  # a Python statement, by timeit's compiled loop
    LOOP = "C loop"  # an expression that runs n calls in C and returns ns per call
    PROCESS = "process"  # a program, run by a fresh interpreter


@dataclass(frozen=True)
class Row:
    """One comparison: `ours` against `theirs`, over the objects that `setup` makes."""

    path: str
    ours: str
    against: str
    theirs: str
    clock: Clock = Clock.STATEMENT
    setup: Callable[[dict[str, ModuleType]], Scope] = small

    @property
    def absolute(self) -> bool:
        """Whether the comparison is a difference in milliseconds, not a ratio."""
        return self.clock is Clock.PROCESS


def _loop(path: str, ours: str, against: str, theirs: str) -> Row:
    return Row(path, ours, against, theirs, clock=Clock.LOOP)


def _mixin(
    path: str,
    ours: str,
    against: str,
    theirs: str,
    clock: Clock = Clock.STATEMENT,
) -> Row:
    return Row(path, ours, against, theirs, clock, wrapped)


def _copy(path: str, ours: str, against: str, theirs: str) -> Row:
    return Row(path, ours, against, theirs, setup=large)


_BORROW = "table: dltensor_from_py"
_BORROW_CACHED = "table: cached lookup + dltensor_from_py"
_EXPORT = "table: from_py + deleter"
_ROUND = "table: from_py + to_py + decref"
_ALLOCATE = "table: allocator + deleter"
_C_TABLE = "C Tensor's own"

_TORCH = ("dlx.from_dlpack(torch)", "dlx.from_dlpack(t)")
_NUMPY = ("dlx.from_dlpack(ndarray)", "dlx.from_dlpack(a)")
_NUMPY_OUT = ("np.from_dlpack(dlx)", "np.from_dlpack(d)")
_TVM_OUT = ("tvm_ffi.from_dlpack(dlx)", "tvm_ffi.from_dlpack(d)")
_DLPARK_OUT = ("dlpark takes dlx", "dlpark.take(d)")
_VIEW_OUT = ("cuda.core StridedMemoryView of dlx", "view(d, -1)")
_PYTHON = ("dlx.from_dlpack(__dlpack__ alone)", "dlx.from_dlpack(p)")
_PYTHON_TO_NUMPY = (
    "dlx.convert(__dlpack__ alone, np.ndarray)",
    "dlx.convert(p, np.ndarray)",
)
_TVM_TO_NUMPY = ("dlx.convert(tvm-ffi, np.ndarray)", "dlx.convert(f, np.ndarray)")
_JAX = ("dlx.from_dlpack(jax)", "dlx.from_dlpack(j)")
_JAX_TO_NUMPY = ("dlx.convert(jax, np.ndarray)", "dlx.convert(j, np.ndarray)")
_TO_JAX = ("dlx.convert(ndarray, jax.Array)", "dlx.convert(aj, jnp.ndarray)")
_TO_NUMPY = ("dlx.convert(torch, np.ndarray)", "dlx.convert(t, np.ndarray)")
_TO_TORCH = ("dlx.convert(ndarray, torch.Tensor)", "dlx.convert(a, torch.Tensor)")
_TREE = ("dlx.convert_tree(100 torch, np.ndarray)", "dlx.convert_tree(ts, np.ndarray)")
_TORCH_OUT = ("torch.from_dlpack(dlx)", "torch.from_dlpack(d)")
_LAUNCH = ("dlx.launcher, three torch tensors", "launch(t, t2, t3)")
_LAUNCH_OUT = ("dlx.launcher, the third written", "launch_out(t, t2, t3)")
_CALL = ("tvm-ffi call, three dlx tensors", "nop(d, d2, d3)")
_HEADER_TORCH = ("dlpack_exchange.h, three torch tensors", "h.take(t, t2, t3)")
_HEADER_DLX = ("dlpack_exchange.h, three dlx tensors", "h.take(d, d2, d3)")
_HEADER_NUMPY = ("dlpack_exchange.h, three ndarrays", "h.take(a, a2, a3)")
_MIXIN_TORCH = ("tvm-ffi call, three MyArr over torch", "nop(mt, mt2, mt3)")
_MIXIN_NUMPY = ("tvm-ffi call, three MyArr over ndarrays", "nop(ma, ma2, ma3)")
_MIXIN_DLX = ("tvm-ffi call, three MyArr over dlx", "nop(md, md2, md3)")
_COMPACT = ("copy=True, 64 MiB compact", "dlx.from_dlpack(a, copy=True)")
_TRANSPOSED = ("copy=True, 64 MiB transposed", "dlx.from_dlpack(aT, copy=True)")

# Other functions that take any library's tensor: name, call, further arguments.
_TAKERS = (
    ("nanobind", "nb.take", ""),
    ("dlpark", "dlpark.take", ""),
    ("StridedMemoryView", "view", ", -1"),
)

ROWS = [
    # The table, entry by entry: each type's own entry on its own tensor.
    _loop(
        _BORROW,
        "c.borrow_loop_table(d_table, d, n)",
        _C_TABLE,
        "c.borrow_loop_table(k_table, k, n)",
    ),
    _loop(
        _BORROW,
        "c.borrow_loop_table(d_table, d, n)",
        "torch.Tensor's own",
        "c.borrow_loop_table(t_table, t, n)",
    ),
    _loop(
        _BORROW_CACHED,
        "c.borrow_loop(d, n)",
        _C_TABLE,
        "c.borrow_loop(k, n)",
    ),
    _loop(
        _EXPORT,
        "c.from_py_loop(d_table, d, n)",
        _C_TABLE,
        "c.from_py_loop(k_table, k, n)",
    ),
    _loop(
        _EXPORT,
        "c.from_py_loop(d_table, d, n)",
        "torch.Tensor's own",
        "c.from_py_loop(t_table, t, n)",
    ),
    _loop(
        _ROUND,
        "c.to_py_loop(d_table, d, n)",
        _C_TABLE,
        "c.to_py_loop(k_table, k, n)",
    ),
    _loop(
        _ALLOCATE,
        "c.allocator_loop(d_table, n)",
        _C_TABLE,
        "c.allocator_loop(k_table, n)",
    ),
    # Import.
    Row(*_TORCH, "C from_table(torch)", "c.from_table(t)"),
    Row("dlx.from_dlpack(torch view)", "dlx.from_dlpack(v)", *_TORCH),
    *(
        Row(f"{path[0][:-1]}, {option})", f"{path[1][:-1]}, {option})", *path)
        for path in (_TORCH, _NUMPY)
        for option in ("copy=False", "device='cpu'")
    ),
    Row(*_TORCH, "tvm_ffi.from_dlpack(torch)", "tvm_ffi.from_dlpack(t)"),
    Row(*_TORCH, "torch.from_dlpack(torch)", "torch.from_dlpack(t)"),
    Row(
        *_NUMPY,
        "ndarray.__dlpack__(max_version=(1, 0))",
        "a.__dlpack__(max_version=(1, 0))",
    ),
    Row(*_NUMPY, "tvm_ffi.from_dlpack(ndarray)", "tvm_ffi.from_dlpack(a)"),
    Row(*_NUMPY, "C from_protocol(ndarray)", "c.from_protocol(a)"),
    *(
        Row(*path, f"{name}({kind})", f"{call}({x}{rest})")
        for path, kind, x in ((_TORCH, "torch", "t"), (_NUMPY, "ndarray", "a"))
        for name, call, rest in _TAKERS
    ),
    Row(
        "dlx.from_dlpack(C Tensor)",
        "dlx.from_dlpack(k)",
        "C from_table(C Tensor)",
        "c.from_table(k)",
    ),
    # Export.
    Row(*_NUMPY_OUT, "np.from_dlpack(ndarray)", "np.from_dlpack(a)"),
    Row(*_NUMPY_OUT, "np.from_dlpack(C Tensor)", "np.from_dlpack(k)"),
    Row(*_CALL, "three torch tensors", "nop(t, t2, t3)"),
    Row(*_CALL, "three C Tensors", "nop(k, k2, k3)"),
    Row(
        "nanobind call, three dlx tensors",
        "nb.take3(d, d2, d3)",
        "three torch tensors",
        "nb.take3(t, t2, t3)",
    ),
    Row(
        "nanobind call, three dlx tensors",
        "nb.take3(d, d2, d3)",
        "three ndarrays",
        "nb.take3(a, a2, a3)",
    ),
    Row(*_DLPARK_OUT, "dlpark takes torch", "dlpark.take(t)"),
    Row(*_DLPARK_OUT, "dlpark takes ndarray", "dlpark.take(a)"),
    Row(*_VIEW_OUT, "StridedMemoryView of torch", "view(t, -1)"),
    Row(*_VIEW_OUT, "StridedMemoryView of ndarray", "view(a, -1)"),
    Row(*_TVM_OUT, "tvm_ffi.from_dlpack(torch)", "tvm_ffi.from_dlpack(t)"),
    Row(*_TVM_OUT, "tvm_ffi.from_dlpack(C Tensor)", "tvm_ffi.from_dlpack(k)"),
    Row(*_TORCH_OUT, "torch.from_dlpack(ndarray)", "torch.from_dlpack(a)"),
    Row(*_TORCH_OUT, "torch.from_dlpack(C Tensor)", "torch.from_dlpack(k)"),
    # Arguments of C and C++ by dlpack_exchange.h, against other ways to take them.
    Row(*_HEADER_TORCH, "C by hand, unchecked", "c.take(t, t2, t3)"),
    Row(*_HEADER_TORCH, "tvm-ffi", "nop(t, t2, t3)"),
    Row(*_HEADER_TORCH, "nanobind", "nb.take3(t, t2, t3)"),
    Row(
        "dlpack_exchange.h, DLX_AS_EXPORTED",
        "h.take_as_exported(t, t2, t3)",
        "C by hand, unchecked",
        "c.take(t, t2, t3)",
    ),
    Row(*_HEADER_DLX, "tvm-ffi", "nop(d, d2, d3)"),
    Row(*_HEADER_DLX, "nanobind", "nb.take3(d, d2, d3)"),
    Row(*_HEADER_NUMPY, "nanobind", "nb.take3(a, a2, a3)"),
    Row(*_HEADER_NUMPY, "pybind11", "pb.take3(a, a2, a3)"),
    Row(
        "dlpack_exchange.h and NumPy's, three ndarrays",
        "hn.take(a, a2, a3)",
        "pybind11",
        "pb.take3(a, a2, a3)",
    ),
    Row(
        "dlpack_exchange.h, three jax arrays",
        "h.take(j, j2, j3)",
        "nanobind",
        "nb.take3(j, j2, j3)",
    ),
    _mixin(
        "dlpack_exchange.h, three MyArr over torch",
        "h.take(mt, mt2, mt3)",
        "tvm-ffi",
        "nop(mt, mt2, mt3)",
    ),
    Row(
        "nanobind, three torch tensors as dlx::view",
        "nb.view3(t, t2, t3)",
        "as nb::ndarray",
        "nb.take3(t, t2, t3)",
    ),
    Row(
        "pybind11, three ndarrays as dlx::view",
        "pb.view3(a, a2, a3)",
        "as py::array_t",
        "pb.take3(a, a2, a3)",
    ),
    # A Python class, against the object in its attribute.
    _mixin(*_MIXIN_TORCH, "three torch tensors", "nop(t, t2, t3)"),
    _mixin(*_MIXIN_NUMPY, "three torch tensors", "nop(t, t2, t3)"),
    _mixin(*_MIXIN_DLX, "three dlx tensors", "nop(d, d2, d3)"),
    _mixin(
        f"{_EXPORT}, MyArr over torch",
        "c.from_py_loop(m_table, mt, n)",
        "torch.Tensor's own",
        "c.from_py_loop(t_table, t, n)",
        clock=Clock.LOOP,
    ),
    _mixin(
        f"{_EXPORT}, MyArr over dlx",
        "c.from_py_loop(m_table, md, n)",
        "dlx.Tensor's own",
        "c.from_py_loop(d_table, d, n)",
        clock=Clock.LOOP,
    ),
    _mixin(
        f"{_BORROW}, MyArr over torch",
        "c.borrow_loop_table(m_table, mt, n)",
        "torch.Tensor's own",
        "c.borrow_loop_table(t_table, t, n)",
        clock=Clock.LOOP,
    ),
    _mixin(
        f"{_BORROW}, MyArr over dlx",
        "c.borrow_loop_table(m_table, md, n)",
        "dlx.Tensor's own",
        "c.borrow_loop_table(d_table, d, n)",
        clock=Clock.LOOP,
    ),
    # A published class of another library.
    Row(
        "tvm-ffi call, three ndarrays, published",
        "after(n)",
        "not published",
        "before(n)",
        Clock.LOOP,
        published,
    ),
    # The function of a kernel, with addresses.
    Row(
        *_LAUNCH,
        "the function of C's addresses",
        "take(c.address(t), c.address(t2), c.address(t3))",
    ),
    Row(
        *_LAUNCH,
        "dlx.from_dlpack of each",
        "dlx.from_dlpack(t); dlx.from_dlpack(t2); dlx.from_dlpack(t3)",
    ),
    Row(
        *_LAUNCH, "with dlx.borrow", "with dlx.borrow(t, t2, t3) as (x, y, z, s): pass"
    ),
    Row(
        *_LAUNCH_OUT,
        "with dlx.borrow",
        "with dlx.borrow(t, t2, out=t3, dtype='float32') as (x, y, z, s): pass",
    ),
    # Of types without a table.
    Row(*_PYTHON, "np.from_dlpack(the same)", "np.from_dlpack(p)"),
    Row(*_PYTHON_TO_NUMPY, "np.from_dlpack(the same)", "np.from_dlpack(p)"),
    Row(*_TVM_TO_NUMPY, "np.from_dlpack(tvm-ffi)", "np.from_dlpack(f)"),
    # JAX on the CPU, which has a Python buffer.
    Row(*_JAX, "np.asarray(jax)", "np.asarray(j)"),
    Row(*_JAX, "memoryview(jax)", "memoryview(j)"),
    Row(*_JAX, "jax.__dlpack__()", "j.__dlpack__()"),
    Row(*_JAX_TO_NUMPY, "np.asarray(jax)", "np.asarray(j)"),
    Row(*_TO_JAX, "jnp.from_dlpack(ndarray)", "jnp.from_dlpack(aj)"),
    Row(*_TO_JAX, "jnp.asarray(ndarray), a copy", "jnp.asarray(aj)"),
    # From one library to another.
    Row(*_TO_NUMPY, "t.numpy()", "t.numpy()"),
    Row(*_TO_NUMPY, "np.from_dlpack(torch)", "np.from_dlpack(t)"),
    Row(*_TO_TORCH, "torch.from_numpy(ndarray)", "torch.from_numpy(a)"),
    Row(*_TO_TORCH, "torch.from_dlpack(ndarray)", "torch.from_dlpack(a)"),
    Row(
        "dlx.convert(dlx, np.ndarray)",
        "dlx.convert(d, np.ndarray)",
        "np.from_dlpack(dlx)",
        "np.from_dlpack(d)",
    ),
    # A block, against the imports alone.
    Row(
        "dlx.borrow(three torch tensors)",
        "with dlx.borrow(t, t2, t3): pass",
        "three imports",
        "dlx.from_dlpack(t); dlx.from_dlpack(t2); dlx.from_dlpack(t3)",
    ),
    Row("dlx.Tensor.numpy()", "d.numpy()", *_NUMPY_OUT),
    Row(
        "dlx.empty(like=torch.Tensor)",
        "dlx.empty((8,), 'float32', like=torch.Tensor)",
        "torch.empty(8)",
        "torch.empty(8)",
    ),
    Row(*_TREE, "a comprehension", "[dlx.convert(t, np.ndarray) for t in ts]"),
    Row(*_TREE, "a comprehension of t.numpy()", "[t.numpy() for t in ts]"),
    # Copies. np.copy keeps the layout of its source, dlx makes it row-major.
    _copy(*_COMPACT, "np.copy(a)", "np.copy(a)"),
    _copy(*_COMPACT, "torch clone", "t.clone()"),
    _copy(*_TRANSPOSED, "a.T.copy(order='C')", "aT.copy(order='C')"),
    _copy(*_TRANSPOSED, "np.copy(a.T), stays transposed", "np.copy(aT)"),
    _copy(
        *_TRANSPOSED,
        "torch clone, contiguous",
        "tT.clone(memory_format=contiguous)",
    ),
    # Start.
    Row("import dlx", "import dlx", "bare interpreter", "pass", clock=Clock.PROCESS),
    # What a bridge adds to the function.
    Row(
        "dlx.bridge adds, two torch tensors",
        "bridge(n)",
        "t.numpy() twice, torch.from_numpy",
        "by_hand(n)",
        Clock.LOOP,
        bridged,
    ),
]
