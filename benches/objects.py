"""The objects that the rows' statements name.

An object exists only where its library is installed.
"""

import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

Scope = dict[str, Any]


class Described:
    """A Python class that has `__dlpack__` and no table."""

    def __init__(self, array: Any) -> None:
        """Keep the exported object."""
        self.array = array

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Export the array."""
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return (1, 0)


class Old(Described):
    """A class from before DLPack 1, such as ONNX Runtime's and Warp's."""

    def __dlpack__(self, stream: object = None) -> object:  # type: ignore[override]
        """Export the array, unversioned."""
        return self.array.__dlpack__()


def small(libraries: dict[str, ModuleType]) -> Scope:
    """A (3, 4) float32 CPU tensor of each kind: the cost is that of the call."""
    scope: Scope = dict(libraries)
    np, torch, tvm_ffi, dlx, c = map(
        libraries.get, ("np", "torch", "tvm_ffi", "dlx", "c")
    )
    if np:
        a, a2, a3 = (np.ones((3, 4), np.float32) for _ in range(3))
        scope |= {"a": a, "a2": a2, "a3": a3, "p": Described(a), "o": Old(a)}
    if torch:
        t, t2, t3 = (torch.ones(3, 4) for _ in range(3))
        t_table = torch.Tensor.__dlpack_c_exchange_api__
        scope |= {"t": t, "t2": t2, "t3": t3, "t_table": t_table}
        scope["v"] = torch.ones(3, 4)[:2]
        scope["ts"] = [torch.ones(3, 4) for _ in range(100)]
    if tvm_ffi:
        scope["nop"] = tvm_ffi.get_global_func("testing.nop")
        if np:
            scope["f"] = tvm_ffi.from_dlpack(a)
    if dlx and np:
        d, d2, d3 = map(dlx.from_dlpack, (a, a2, a3))
        d_table = dlx.Tensor.__dlpack_c_exchange_api__
        scope |= {"d": d, "d2": d2, "d3": d3, "d_table": d_table}
    if jnp := libraries.get("jnp"):
        scope |= {f"j{i}": jnp.ones((3, 4)) for i in ("", 2, 3)}
        if dlx:
            # JAX shares what is aligned to 64 bytes.
            scope["aj"] = dlx.empty((3, 4), "float32").numpy()
    if cuda := libraries.get("cuda_core"):
        scope["view"] = cuda.StridedMemoryView.from_dlpack
    if c and np:
        k, k2, k3 = map(c.from_protocol, (a, a2, a3))
        k_table = c.Tensor.__dlpack_c_exchange_api__
        scope |= {"k": k, "k2": k2, "k3": k3, "k_table": k_table}
    if dlx:
        scope |= {"take": _take, "launch": dlx.launcher(_take)}
        scope["launch_out"] = dlx.launcher(_take, out="z", dtype="float32")
    return scope


def _take(x: object, y: object, z: object) -> None:
    """Do nothing, in place of the function that launches a kernel."""


def wrapped(libraries: dict[str, ModuleType]) -> Scope:
    """The same tensors, and three of each kind as the attribute of a mixin class."""
    scope = small(libraries)
    if "dlx" not in libraries:
        return scope
    from dlx import ExchangeMixin

    class MyArr(ExchangeMixin, exchange="data"):
        """The class in the README."""

        def __init__(self, data: object) -> None:
            """Keep the exported object."""
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
    """Check that C code returned instances of the class that it was given."""
    if type(back) is not wanted:
        raise AssertionError(f"{wanted} came back from C as {type(back)}")


def published(libraries: dict[str, ModuleType]) -> Scope:
    """Two threads that call with arrays; one first met the class while published.

    tvm-ffi remembers types per thread, so the two keep to different paths.
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
    """The overhead of a bridge over a NumPy function with two torch tensors."""
    scope = small(libraries)
    if not {"dlx", "np", "torch"} <= scope.keys():
        return scope
    dlx, np = libraries["dlx"], libraries["np"]
    scope["f"] = lambda a, b: np.add(a, b)
    scope["g"] = dlx.bridge(np.ndarray)(scope["f"])

    def shortest(statement: str, n: int) -> float:
        # A difference of times is sensitive to other load, short samples the least.
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
