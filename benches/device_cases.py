"""The comparisons on a device, in a process that has no device.

Tensors of `c_device.c` and of torch claim CUDA: `k`, `k2`, ... and `t`, `t2`, ...; `hk`
and `ht` are the same on the host. The driver does nothing, so a row times dlx's own
part, and counts how often it asks the library for its stream and calls the driver.
torch's are CPU tensors whose table says otherwise, so dlx finds the dispatch keys of a
plain CPU tensor, which it knows; those of a CUDA tensor are others.
"""

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cases import Row
from objects import Scope

OWN, OTHER = 0x5000, 0x7000  # handles, of which nothing is asked
DEFAULT = 1
HOST, CUDA = 1, 2  # types of devices
MOST = 16


def _one(x: object, *, stream: object = None) -> None:
    """Do nothing, in place of the function that launches a kernel."""


def _three(x: object, y: object, z: object, *, stream: object = None) -> None:
    """Do nothing, with three tensors."""


def _many(*tensors: object, stream: object = None) -> None:
    """Do nothing, with more."""


@functools.cache
def _claim(c: ModuleType, torch: ModuleType) -> Any:
    """Have torch's tensors of the device's memory claim the device, for ever."""
    torch.Tensor.__dlpack_c_exchange_api__ = c.claim(
        torch.Tensor.__dlpack_c_exchange_api__
    )
    return c.memory


def _named(name: str, tensors: list[Any]) -> Scope:
    """Return tensors by the names of the statements."""
    others = {f"{name}{i}": x for i, x in enumerate(tensors[1:3], 2)}
    return {name: tensors[0], f"{name}s": tensors} | others


def _scope(libraries: dict[str, ModuleType], own: int) -> Scope:
    """16 tensors of 3 by 4 float32 of each kind, of libraries that work on `own`."""
    scope: Scope = dict(libraries)
    scope |= {"own": own or DEFAULT, "other": OTHER}
    scope["dlpack"] = {"max_version": (1, 3)}
    scope |= {"one": _one, "three": _three, "many": _many}
    c, np, torch = map(libraries.get, ("c", "np", "torch"))
    if c:
        # dlx looks for a driver when it first needs one.
        os.environ["DLX_LIBCUDA"] = str(c.__file__)
        c.set_stream(own)
        scope["counts"] = c.counts
        for name, device in (("k", CUDA), ("hk", HOST)):
            scope |= _named(name, [c.tensor(device) for _ in range(MOST)])
    if c and np and torch:
        rows = np.frombuffer(_claim(c, torch), np.float32).reshape(MOST, -1)
        arrays = [row[:12].reshape(3, 4) for row in rows]
        scope |= _named("t", [torch.from_numpy(each) for each in arrays])
        scope |= _named("ht", [torch.ones(3, 4) for _ in range(MOST)])
    if tvm_ffi := libraries.get("tvm_ffi"):
        scope["nop"] = tvm_ffi.get_global_func("testing.nop")
    if dlx := libraries.get("dlx"):
        launcher = functools.partial(dlx.launcher, dtype="float32")
        scope |= {
            f"launch_{f.__name__[1:]}": launcher(f) for f in (_one, _three, _many)
        }
        scope["launch_out"] = launcher(_three, out="z")
    return scope


def on_stream(libraries: dict[str, ModuleType]) -> Scope:
    """The libraries work on a stream of their own."""
    return _scope(libraries, OWN)


def on_default(libraries: dict[str, ModuleType]) -> Scope:
    """The libraries work on the default stream, as torch does unless told otherwise."""
    return _scope(libraries, 0)


Setup = Callable[[dict[str, ModuleType]], Scope]
_BY_HAND, _TVM_FFI = "C by hand", "tvm-ffi call"
_HOST = "the same on the host"


def _imports(kind: str, x: str) -> list[Row]:
    """Imports for each kind of stream; C by hand releases at once."""
    own = (f"tvm_ffi.from_dlpack({kind} on a device)", f"tvm_ffi.from_dlpack({x})")
    return [
        Row(
            f"dlx.from_dlpack({kind} on a device{', ' * bool(said)}{said})",
            f"dlx.from_dlpack({x}{option})",
            *theirs,
            setup=on_stream,
        )
        for said, option, by_hand, others in (
            ("", "", "", []),
            ("stream=-1", ", stream=-1", "", []),
            ("its stream", ", stream=own", ", own", [own]),
            ("another stream", ", stream=other", ", other", []),
            (
                "another stream, release='none'",
                ", stream=other, release='none'",
                ", other",
                [],
            ),
        )
        for theirs in (
            (_BY_HAND, f"c.from_table({x}{by_hand})"),
            (_HOST, f"dlx.from_dlpack(h{x})"),
            *others,
        )
    ]


def _several(kind: str, x: str, count: int, setup: Setup = on_stream) -> list[Row]:
    """A block and a launch of 1, 3 or 16 tensors."""
    function, given = {
        1: ("one", x),
        3: ("three", f"{x}, {x}2, {x}3"),
        MOST: ("many", f"*{x}s"),
    }[count]
    on_host = given.replace(x, f"h{x}")
    what = f"{count} {kind}{'s' * (count > 1)} on a device"
    what += "" if setup is on_stream else ", its default stream"
    exports = ", ".join(f"{each}.__dlpack__(**dlpack)" for each in given.split(", "))
    dlpack = [("their __dlpack__", exports)] if (x, count) == ("t", 3) else []
    borrow = (f"dlx.borrow({what})", "with dlx.borrow({}): pass")
    launch = (f"dlx.launcher, {what}", f"launch_{function}({{}})")
    ways = ((borrow, f"c.launch({given})"), (launch, f"c.call({function}, {given})"))
    return [
        Row(path, ours.format(given), *theirs, setup=setup)
        for (path, ours), by_hand in ways
        for theirs in (
            (_BY_HAND, by_hand),
            (_TVM_FFI, f"nop({given})"),
            *dlpack,
            (_HOST, ours.format(on_host)),
        )
    ]


def _written(kind: str, x: str) -> list[Row]:
    """A launch that writes one of three."""
    given = f"{x}, {x}2, {x}3"
    return [
        Row(
            f"dlx.launcher, 3 {kind}s on a device, the third written",
            f"launch_out({given})",
            *theirs,
            setup=on_stream,
        )
        for theirs in (
            (_BY_HAND, f"c.call(three, {given})"),
            ("none written", f"launch_three({given})"),
            (_HOST, f"launch_out({given.replace(x, f'h{x}')})"),
        )
    ]


_KINDS = (("C Tensor", "k"), ("torch tensor", "t"))
ROWS = [
    *(
        row
        for kind, x in _KINDS
        for row in (
            *_imports(kind.removesuffix(" tensor"), x),
            *(each for count in (1, 3, MOST) for each in _several(kind, x, count)),
            *_written(kind, x),
        )
    ),
    *(row for kind, x in _KINDS for row in _several(kind, x, 3, on_default)),
]
