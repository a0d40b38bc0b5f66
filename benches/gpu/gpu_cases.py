"""The comparisons on a GPU: (3, 4) float32 tensors of torch and CuPy.

`same` is the stream that torch and CuPy work on, `other` is another one. A row times
the host; kernels of 2 us are done before the next one is launched. The rows of
launches start the same kernel with and without dlx, by each library's own launcher.
"""

import sys
from collections.abc import Callable
from ctypes import c_uint64
from types import ModuleType
from typing import Any

from cases import Row
from gpu.kernels import PTX
from gpu.machine import COUNT, machine
from objects import Scope


def launcher(libraries: dict[str, ModuleType]) -> Any:
    """Return a function that launches a copy of 4 KiB, through cuda.bindings."""
    gpu = machine()
    driver = libraries["driver"]
    kernel = driver.CUfunction(gpu.kernels["copy"])
    types = (c_uint64,) * 3

    def launch(to: int, source: int, stream: int) -> None:
        (code,) = driver.cuLaunchKernel(
            kernel, 1, 1, 1, 256, 1, 1, 0, stream, ((to, source, COUNT), types), 0
        )
        if code != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(str(code))

    return launch


def cuda_core_launcher(core: ModuleType) -> Scope:
    """Return what a launch of the copy takes in cuda.core, on the stream `same`."""
    device = core.Device(0)
    device.set_current()
    return {
        "core_launch": core.launch,
        "core_stream": device.create_stream(machine().p),
        "core_config": core.LaunchConfig(grid=1, block=256),
        "core_copy": core.ObjectCode.from_ptx(PTX.encode()).get_kernel("copy"),
    }


def cupy_launcher(cupy: ModuleType) -> Scope:
    """Return the copy as a function of CuPy, and its arrays."""
    module = cupy.cuda.function.Module()
    module.load(PTX.encode())
    arrays = (cupy.ones(COUNT, "float32") for _ in range(2))
    return {"cupy_copy": module.get_function("copy")} | dict(
        zip(("kbig", "kbig2"), arrays, strict=True)
    )


def tried(make: Callable[[ModuleType], Scope], library: ModuleType) -> Scope:
    """Return what `make` makes; a library that fails must not hide the others."""
    try:
        return make(library)
    except Exception as error:
        print(f"no launches by {library.__name__}: {error!r}", file=sys.stderr)
        return {}


def on_device(libraries: dict[str, ModuleType]) -> Scope:
    """Tensors of each library, ready, and streams that outlive them."""
    gpu = machine()
    scope: Scope = dict(libraries)
    torch, cupy, dlx = map(libraries.get, ("torch", "cupy", "dlx"))
    scope |= {"same": gpu.p.handle, "other": gpu.s.handle}
    scope["count"] = COUNT
    if torch:
        stream = torch.cuda.ExternalStream(gpu.p.handle, device=0)
        torch.cuda.set_stream(stream)
        names = ("t", "t2", "t3")
        scope |= {name: torch.ones(3, 4, device="cuda:0") for name in names}
        scope["big"] = torch.ones(COUNT, device="cuda:0")
        scope["big2"] = torch.ones(COUNT, device="cuda:0")
        scope["torch_other"] = torch.cuda.ExternalStream(gpu.s.handle, device=0)
    if cupy:
        scope["cupy_stream"] = cupy.cuda.Stream.from_external(gpu.p)
        scope["cupy_stream"].use()
        scope |= {name: cupy.ones((3, 4), "float32") for name in ("k", "k2", "k3")}
        scope |= tried(cupy_launcher, cupy)
    if dlx and torch:
        scope["d"] = dlx.from_dlpack(scope["t"])
    if "driver" in libraries:
        scope["launch"] = launch = launcher(libraries)
        if dlx:
            scope["launched"] = dlx.launcher(launch, out="to", dtype="float32")
    if core := libraries.get("core"):
        scope |= tried(cuda_core_launcher, core)
    gpu.synchronize()
    return scope


def _row(path: str, ours: str, against: str, theirs: str) -> Row:
    return Row(path, ours, against, theirs, setup=on_device)


_SAME = "from_dlpack(torch), same stream"
_ORDERED = "from_dlpack(torch), other stream"
_UNSET = "from_dlpack(torch), no stream"
_CUPY = "from_dlpack(cupy), same stream"
_BORROW = "borrow 1, same stream"
_JOINED = "borrow 1, other stream"
_BORROW_3 = "borrow 3, same stream"
_JOINED_3 = "borrow 3, other stream"
_KERNEL = "kernel of 2 us in a block"
_LAUNCHED = "kernel of 2 us by dlx.launcher"
_CUPY_KERNEL = "kernel of 2 us in a block, CuPy launches"
_CORE_KERNEL = "kernel of 2 us in a block, cuda.core launches"
_CORE_LAUNCH = (
    "with dlx.borrow(big, out=big2) as (a, b, s): "
    "core_launch(core_stream, core_config, core_copy, b.data_ptr, a.data_ptr, count)"
)
_IMPORT = "dlx.from_dlpack(t, stream=other{})".format

ROWS = [
    _row(
        _SAME,
        "dlx.from_dlpack(t, stream=same)",
        "dlx, no order",
        "dlx.from_dlpack(t, stream=-1)",
    ),
    _row(
        _SAME,
        "dlx.from_dlpack(t, stream=same)",
        "cupy.from_dlpack(torch)",
        "cupy.from_dlpack(t)",
    ),
    _row(
        _SAME,
        "dlx.from_dlpack(t, stream=same)",
        "torch's __dlpack__",
        "t.__dlpack__(stream=same, max_version=(1, 3))",
    ),
    _row(_ORDERED, _IMPORT(""), "dlx, same stream", "dlx.from_dlpack(t, stream=same)"),
    _row(
        _ORDERED,
        _IMPORT(""),
        "torch's __dlpack__",
        "t.__dlpack__(stream=other, max_version=(1, 3))",
    ),
    _row(
        _UNSET, "dlx.from_dlpack(t)", "dlx, no order", "dlx.from_dlpack(t, stream=-1)"
    ),
    _row(
        _UNSET, "dlx.from_dlpack(t)", "cupy.from_dlpack(torch)", "cupy.from_dlpack(t)"
    ),
    _row(
        _CUPY,
        "dlx.from_dlpack(k, stream=same)",
        "torch.from_dlpack(cupy)",
        "torch.from_dlpack(k)",
    ),
    _row(
        "convert(cupy, torch)",
        "dlx.convert(k, torch.Tensor)",
        "torch.from_dlpack(cupy)",
        "torch.from_dlpack(k)",
    ),
    _row(
        "convert(torch, cupy)",
        "dlx.convert(t, cupy.ndarray)",
        "cupy.from_dlpack(torch)",
        "cupy.from_dlpack(t)",
    ),
    _row(
        _BORROW,
        "with dlx.borrow(t): pass",
        "dlx.from_dlpack, same stream",
        "dlx.from_dlpack(t, stream=same)",
    ),
    _row(
        _BORROW_3,
        "with dlx.borrow(t, t2, out=t3): pass",
        "borrow 1, same stream",
        "with dlx.borrow(t): pass",
    ),
    _row(
        _BORROW_3,
        "with dlx.borrow(t, t2, out=t3): pass",
        "cupy.from_dlpack(torch), 3 times",
        "cupy.from_dlpack(t); cupy.from_dlpack(t2); cupy.from_dlpack(t3)",
    ),
    _row(
        _JOINED,
        "with dlx.borrow(t, stream=other): pass",
        "torch's wait_stream both ways",
        "torch_other.wait_stream(torch.cuda.current_stream()); "
        "torch.cuda.current_stream().wait_stream(torch_other)",
    ),
    _row(
        _JOINED,
        "with dlx.borrow(t, stream=other): pass",
        "borrow 1, same stream",
        "with dlx.borrow(t): pass",
    ),
    _row(
        _JOINED_3,
        "with dlx.borrow(t, t2, out=t3, stream=other): pass",
        "borrow 1, other stream",
        "with dlx.borrow(t, stream=other): pass",
    ),
    _row(
        _JOINED_3,
        "with dlx.borrow(t, t2, out=t3, stream=other): pass",
        "torch's wait_stream both ways",
        "torch_other.wait_stream(torch.cuda.current_stream()); "
        "torch.cuda.current_stream().wait_stream(torch_other)",
    ),
    _row(
        "use of a kept tensor, other stream",
        "with d.use(stream=other): pass",
        "borrow 1, other stream",
        "with dlx.borrow(t, stream=other): pass",
    ),
    _row(
        _KERNEL,
        "with dlx.borrow(big, out=big2) as (a, b, s): "
        "launch(b.data_ptr, a.data_ptr, s.handle)",
        "torch's pointers and stream",
        "launch(big2.data_ptr(), big.data_ptr(), "
        "torch.cuda.current_stream().cuda_stream)",
    ),
    _row(
        _KERNEL,
        "with dlx.borrow(k, out=t) as (a, b, s): "
        "launch(big2.data_ptr(), big.data_ptr(), s.handle)",
        "torch.from_dlpack(cupy), then launch",
        "torch.from_dlpack(k); launch(big2.data_ptr(), big.data_ptr(), "
        "torch.cuda.current_stream().cuda_stream)",
    ),
    _row(
        _LAUNCHED,
        "launched(big2, big)",
        "torch's pointers and stream",
        "launch(big2.data_ptr(), big.data_ptr(), "
        "torch.cuda.current_stream().cuda_stream)",
    ),
    _row(
        _LAUNCHED,
        "launched(big2, big)",
        "the block",
        "with dlx.borrow(big, out=big2) as (a, b, s): "
        "launch(b.data_ptr, a.data_ptr, s.handle)",
    ),
    _row(
        _LAUNCHED,
        "launched(big2, big, stream=other)",
        "the block, other stream",
        "with dlx.borrow(big, out=big2, stream=other) as (a, b, s): "
        "launch(b.data_ptr, a.data_ptr, s.handle)",
    ),
    _row(
        _CUPY_KERNEL,
        "with dlx.borrow(kbig, out=kbig2) as (a, b, s): "
        "cupy_copy((1,), (256,), (kbig2, kbig, count))",
        "the launch alone",
        "cupy_copy((1,), (256,), (kbig2, kbig, count))",
    ),
    _row(
        _CORE_KERNEL,
        _CORE_LAUNCH,
        "the launch alone",
        "core_launch(core_stream, core_config, core_copy, "
        "big2.data_ptr(), big.data_ptr(), count)",
    ),
    _row(
        _CORE_KERNEL, _CORE_LAUNCH, "torch.neg(big, out=)", "torch.neg(big, out=big2)"
    ),
    *(
        _row(
            f"release={release}",
            _IMPORT(f", release={release!r}"),
            "release=none",
            _IMPORT(", release='none'"),
        )
        for release in ("auto", "record_stream")
    ),
]
