"""What is compared with what: the rows of the table, their objects and budgets.

A row names two statements over one set of objects. An object exists only where its
library is installed; a statement whose names are not all there is not timed.
"""

import enum
import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Scope = dict[str, Any]


class Clock(enum.Enum):
    """How a statement is timed."""

    STATEMENT = "timeit"  # a Python statement, by timeit's compiled loop
    LOOP = "C loop"  # an expression that runs n calls in C and returns ns per call
    PROCESS = "process"  # a program, run by a fresh interpreter


def small(libraries: dict[str, ModuleType]) -> Scope:
    """A (3, 4) float32 CPU tensor of each kind: what a call costs, not its data."""
    scope: Scope = dict(libraries)
    np, torch, tvm_ffi, dlx, c = map(
        libraries.get, ("np", "torch", "tvm_ffi", "dlx", "c")
    )
    if np:
        a, a2, a3 = (np.ones((3, 4), np.float32) for _ in range(3))
        scope |= {"a": a, "a2": a2, "a3": a3}
    if torch:
        t, t2, t3 = (torch.ones(3, 4) for _ in range(3))
        t_table = torch.Tensor.__dlpack_c_exchange_api__
        scope |= {"t": t, "t2": t2, "t3": t3, "t_table": t_table}
    if tvm_ffi:
        scope["nop"] = tvm_ffi.get_global_func("testing.nop")
    if dlx and np:
        d, d2, d3 = map(dlx.from_dlpack, (a, a2, a3))
        d_table = dlx.Tensor.__dlpack_c_exchange_api__
        scope |= {"d": d, "d2": d2, "d3": d3, "d_table": d_table}
    if c and np:
        k, k2, k3 = map(c.from_protocol, (a, a2, a3))
        k_table = c.Tensor.__dlpack_c_exchange_api__
        scope |= {"k": k, "k2": k2, "k3": k3, "k_table": k_table}
    return scope


def wrapped(libraries: dict[str, ModuleType]) -> Scope:
    """The same tensors, and three of each kind as the attribute of a mixin class."""
    scope = small(libraries)
    if "dlx" not in libraries:
        return scope
    from dlx import ExchangeMixin

    class MyArr(ExchangeMixin, exchange="data"):
        """The class of the README."""

        def __init__(self, data: object) -> None:
            """Keep what is exported."""
            self.data = data

    scope["m_table"] = MyArr.__dlpack_c_exchange_api__
    for kind in ("t", "a", "d"):
        names = [name for name in (kind, f"{kind}2", f"{kind}3") if name in scope]
        scope |= {f"m{name}": MyArr(scope[name]) for name in names}
    if tvm_ffi := libraries.get("tvm_ffi"):
        echo = tvm_ffi.get_global_func("testing.echo")
        for name in scope.keys() & {"mt", "ma", "md"}:
            check_class(echo(scope[name]), MyArr)
    return scope


def check_class(back: object, wanted: type) -> None:
    """Make sure that C code gave back what it was given."""
    if type(back) is not wanted:
        raise AssertionError(f"{wanted} came back from C as {type(back)}")


def published(libraries: dict[str, ModuleType]) -> Scope:
    """Two threads that call with arrays; one met the class while it was published.

    tvm-ffi remembers types by thread, so afterwards each goes on in its own way.
    """
    scope = small(libraries)
    if not {"dlx", "tvm_ffi", "np"} <= scope.keys():
        return scope
    dlx, tvm_ffi, np = (libraries[name] for name in ("dlx", "tvm_ffi", "np"))
    echo = tvm_ffi.get_global_func("testing.echo")

    def thread(wanted: type) -> Callable[[int], float]:
        worker = ThreadPoolExecutor(1)
        check_class(worker.submit(echo, scope["a"]).result(), wanted)
        timer = timeit.Timer("nop(a, a2, a3)", globals=scope)
        return lambda n: worker.submit(timer.timeit, n).result() / n * 1e9

    scope["before"] = thread(tvm_ffi.Tensor)
    dlx.publish(np.ndarray)
    try:
        scope["after"] = thread(np.ndarray)
    finally:
        dlx.unpublish(np.ndarray)
    return scope


def bridged(libraries: dict[str, ModuleType]) -> Scope:
    """What calls of a NumPy function with two torch tensors add to the bare call."""
    scope = small(libraries)
    if not {"dlx", "np", "torch"} <= scope.keys():
        return scope
    dlx, np = libraries["dlx"], libraries["np"]
    scope["f"] = lambda a, b: np.add(a, b)
    scope["g"] = dlx.bridge(np.ndarray)(scope["f"])

    def shortest(statement: str, n: int) -> float:
        # A difference of times is soon disturbed, and short samples are so the least.
        number = min(n, 100)
        timer = timeit.Timer(statement, globals=scope)
        return min(timer.repeat(max(1, n // number), number)) / number * 1e9

    bare = shortest("f(a, a2)", 200_000)
    eval("g(t, t2)", scope)  # the first call learns the types

    def added(statement: str) -> Callable[[int], float]:
        return lambda n: shortest(statement, n) - bare

    scope["bridge"] = added("g(t, t2)")
    scope["by_hand"] = added("torch.from_numpy(f(t.numpy(), t2.numpy()))")
    return scope


def large(libraries: dict[str, ModuleType]) -> Scope:
    """64 MiB of float32, compact and transposed, as an array and as a torch tensor."""
    scope: Scope = dict(libraries)
    if np := libraries.get("np"):
        a = np.arange(4096 * 4096, dtype=np.float32).reshape(4096, 4096)
        scope |= {"a": a, "aT": a.T}
        if torch := libraries.get("torch"):
            scope |= {"t": torch.from_numpy(a), "tT": torch.from_numpy(a).T}
            scope["contiguous"] = torch.contiguous_format
    return scope


@dataclass(frozen=True)
class Row:
    """One comparison: `ours` against `theirs`, over the objects that `setup` makes."""

    path: str
    ours: str
    against: str
    theirs: str
    budget: float | None = None
    clock: Clock = Clock.STATEMENT
    setup: Callable[[dict[str, ModuleType]], Scope] = small

    @property
    def absolute(self) -> bool:
        """Whether the budget is a difference in milliseconds and not a ratio."""
        return self.clock is Clock.PROCESS


def _loop(
    path: str, ours: str, against: str, theirs: str, budget: float | None = None
) -> Row:
    return Row(path, ours, against, theirs, budget, clock=Clock.LOOP)


def _mixin(
    path: str,
    ours: str,
    against: str,
    theirs: str,
    budget: float | None = None,
    clock: Clock = Clock.STATEMENT,
) -> Row:
    return Row(path, ours, against, theirs, budget, clock, wrapped)


def _copy(
    path: str, ours: str, against: str, theirs: str, budget: float | None = None
) -> Row:
    return Row(path, ours, against, theirs, budget, setup=large)


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
_TO_NUMPY = ("dlx.convert(torch, np.ndarray)", "dlx.convert(t, np.ndarray)")
_TO_TORCH = ("dlx.convert(ndarray, torch.Tensor)", "dlx.convert(a, torch.Tensor)")
_TORCH_OUT = ("torch.from_dlpack(dlx)", "torch.from_dlpack(d)")
_CALL = ("tvm-ffi call, three dlx tensors", "nop(d, d2, d3)")
_MIXIN_TORCH = ("tvm-ffi call, three MyArr over torch", "nop(mt, mt2, mt3)")
_MIXIN_NUMPY = ("tvm-ffi call, three MyArr over ndarrays", "nop(ma, ma2, ma3)")
_MIXIN_DLX = ("tvm-ffi call, three MyArr over dlx", "nop(md, md2, md3)")
_COMPACT = ("copy=True, 64 MiB compact", "dlx.from_dlpack(a, copy=True)")
_TRANSPOSED = ("copy=True, 64 MiB transposed", "dlx.from_dlpack(aT, copy=True)")

ROWS = [
    # The table, entry by entry: each type's own entry on its own tensor.
    _loop(
        _BORROW,
        "c.borrow_loop_table(d_table, d, n)",
        _C_TABLE,
        "c.borrow_loop_table(k_table, k, n)",
        1.15,
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
        1.15,
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
    Row(*_TORCH, "C from_table(torch)", "c.from_table(t)", 1.3),
    Row(*_TORCH, "tvm_ffi.from_dlpack(torch)", "tvm_ffi.from_dlpack(t)", 0.6),
    Row(*_TORCH, "torch.from_dlpack(torch)", "torch.from_dlpack(t)", 0.03),
    Row(
        *_NUMPY,
        "ndarray.__dlpack__(max_version=(1, 0))",
        "a.__dlpack__(max_version=(1, 0))",
        1.0,
    ),
    Row(*_NUMPY, "tvm_ffi.from_dlpack(ndarray)", "tvm_ffi.from_dlpack(a)", 0.35),
    Row(*_NUMPY, "C from_protocol(ndarray)", "c.from_protocol(a)"),
    Row(
        "dlx.from_dlpack(C Tensor)",
        "dlx.from_dlpack(k)",
        "C from_table(C Tensor)",
        "c.from_table(k)",
    ),
    # Export.
    Row(*_NUMPY_OUT, "np.from_dlpack(ndarray)", "np.from_dlpack(a)", 1.0),
    Row(*_NUMPY_OUT, "np.from_dlpack(C Tensor)", "np.from_dlpack(k)"),
    Row(*_CALL, "three torch tensors", "nop(t, t2, t3)", 1.0),
    Row(*_CALL, "three C Tensors", "nop(k, k2, k3)"),
    Row(*_TVM_OUT, "tvm_ffi.from_dlpack(torch)", "tvm_ffi.from_dlpack(t)"),
    Row(*_TVM_OUT, "tvm_ffi.from_dlpack(C Tensor)", "tvm_ffi.from_dlpack(k)"),
    Row(*_TORCH_OUT, "torch.from_dlpack(ndarray)", "torch.from_dlpack(a)"),
    Row(*_TORCH_OUT, "torch.from_dlpack(C Tensor)", "torch.from_dlpack(k)"),
    # A class of Python, against what its attribute holds.
    _mixin(*_MIXIN_TORCH, "three torch tensors", "nop(t, t2, t3)", 1.3),
    _mixin(*_MIXIN_NUMPY, "three torch tensors", "nop(t, t2, t3)", 1.3),
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
    # A class of somebody else: at least 1.3 times faster.
    Row(
        "tvm-ffi call, three ndarrays, published",
        "after(n)",
        "not published",
        "before(n)",
        0.769,
        Clock.LOOP,
        published,
    ),
    # From one library to another.
    Row(*_TO_NUMPY, "t.numpy()", "t.numpy()", 0.5),
    Row(*_TO_NUMPY, "np.from_dlpack(torch)", "np.from_dlpack(t)", 0.12),
    Row(*_TO_TORCH, "torch.from_numpy(ndarray)", "torch.from_numpy(a)", 1.0),
    Row(*_TO_TORCH, "torch.from_dlpack(ndarray)", "torch.from_dlpack(a)", 0.4),
    Row(
        "dlx.convert(dlx, np.ndarray)",
        "dlx.convert(d, np.ndarray)",
        "np.from_dlpack(dlx)",
        "np.from_dlpack(d)",
    ),
    # Copies. np.copy keeps the layout of its source, dlx makes it row-major.
    _copy(*_COMPACT, "np.copy(a)", "np.copy(a)", 1.0),
    _copy(*_COMPACT, "torch clone", "t.clone()"),
    _copy(*_TRANSPOSED, "a.T.copy(order='C')", "aT.copy(order='C')", 1.0),
    _copy(*_TRANSPOSED, "np.copy(a.T), stays transposed", "np.copy(aT)", 1.0),
    _copy(
        *_TRANSPOSED,
        "torch clone, contiguous",
        "tT.clone(memory_format=contiguous)",
    ),
    # Start.
    Row(
        "import dlx", "import dlx", "bare interpreter", "pass", 5.0, clock=Clock.PROCESS
    ),
    # What a bridge adds to the function.
    Row(
        "dlx.bridge adds, two torch tensors",
        "bridge(n)",
        "t.numpy() twice, torch.from_numpy",
        "by_hand(n)",
        0.65,
        Clock.LOOP,
        bridged,
    ),
]
