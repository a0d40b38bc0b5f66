"""Zero-copy tensor exchange between Python array libraries, through DLPack 1.3.

``dlx.from_dlpack`` imports tensors of any library, ``dlx.Tensor`` exports them, and
``dlx.convert`` converts from one library to another.
"""

from __future__ import annotations

import sys
from os import environ as _environ

from . import _core
from ._containers.tree import convert_tree
from ._core import (
    CopyRefused,
    CudaError,
    Device,
    DType,
    Stream,
    Tensor,
    __version__,
    borrow,
    convert,
    current_stream,
    empty,
    exchange_api,
    from_buffer,
    from_dlpack,
    from_pointer,
    publish,
    stream,
    unpublish,
)
from ._functions.bridge import bridge
from ._mixin import ArrayInterfaceMixin, ExchangeMixin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Literal, TypeVar, overload

    from dlx_check import Held, Inspection, Trace
    from dlx_share import Handle

    from ._core import _DTypeLike, _StreamLike

    R = TypeVar("R")
    Give = Literal["address", "pointer", "tensor"]
    Parameters = str | int | Iterable[str | int]
    DTypes = (
        _DTypeLike | Mapping[str | int, _DTypeLike | None] | list[_DTypeLike | None]
    )
    Shapes = str | Mapping[str | int, str | None] | list[str | None]
    Sizes = str | int | Mapping[str | int, str | int | None] | list[str | int | None]
    Launching = _StreamLike | Callable[[], _StreamLike | None]

__all__ = [
    "ArrayInterfaceMixin",
    "CopyRefused",
    "CudaError",
    "DType",
    "Device",
    "DeviceType",
    "ExchangeMixin",
    "Pointer",
    "Stream",
    "Tensor",
    "__version__",
    "as_pointer",
    "attach",
    "borrow",
    "bridge",
    "convert",
    "convert_tree",
    "current_stream",
    "empty",
    "exchange_api",
    "from_buffer",
    "from_dlpack",
    "from_pointer",
    "inspect",
    "launcher",
    "live",
    "publish",
    "share",
    "stream",
    "trace",
    "unpublish",
]


_doors: dict[tuple[str, str], Any] = {}


def _door(add_on: str, name: str, said: str = "") -> Any:
    """Return a name of an add-on, looked up once; ``said`` is what users call it.

    No import statement of dlx names an add-on: each is a wheel of its own.
    """
    if (found := _doors.get((add_on, name))) is not None:
        return found
    from importlib import import_module

    try:
        found = getattr(import_module(f"dlx_{add_on}"), name)
    except ModuleNotFoundError as error:
        if error.name != f"dlx_{add_on}":
            raise
        raise ModuleNotFoundError(
            f"{said or f'dlx.{name}'} is part of dlx-{add_on}, which is not installed; "
            f"install it from the checkout of dlx: pip install ./packages/dlx-{add_on}",
            name=error.name,
        ) from None
    return _doors.setdefault((add_on, name), found)


def inspect(x: object, *, exports: bool = True) -> Inspection:
    """Return what DLPack says of a tensor, a type, a capsule or a stream.

    ``print(dlx.inspect(x))`` shows the protocols of ``x``, the functions of its
    exchange table with the library that each is in, the fields of what it exports as
    they were written, and how its exports differ. Nothing is imported: each export is
    dropped, a capsule keeps its name and its tensor, and no stream waits. Pointers are
    read only where there is memory, and those of a used capsule not at all.

    With ``exports=False`` no code of the library runs, which leaves out all that only
    an export says. A type says which protocols and which table its instances have.

    It raises nothing for ``x``: what ``x`` itself raises is part of the result.

        >>> import numpy as np
        >>> print(dlx.inspect(np.ones(3)))  # doctest: +ELLIPSIS
        numpy.ndarray, numpy ...
        protocols  __dlpack__, __dlpack_device__, __array_interface__, ...
    """
    found: Inspection = _door("check", "inspect")(x, exports=exports)
    return found


if TYPE_CHECKING:

    @overload
    def launcher(
        function: Callable[..., R],
        /,
        *,
        give: Give = "address",
        out: Parameters | None = (),
        dtype: DTypes | None = None,
        shape: Shapes | None = None,
        size: Sizes | None = None,
        contiguous: bool = True,
        align: int | None = None,
        devices: Literal["one", "any"] = "one",
        stream: Launching | None = None,
    ) -> Callable[..., R]: ...
    @overload
    def launcher(
        function: None = None,
        /,
        *,
        give: Give = "address",
        out: Parameters | None = (),
        dtype: DTypes | None = None,
        shape: Shapes | None = None,
        size: Sizes | None = None,
        contiguous: bool = True,
        align: int | None = None,
        devices: Literal["one", "any"] = "one",
        stream: Launching | None = None,
    ) -> Callable[[Callable[..., R]], Callable[..., R]]: ...


def launcher(
    function: Callable[..., Any] | None = None,
    /,
    *,
    give: Give = "address",
    out: Parameters | None = (),
    dtype: DTypes | None = None,
    shape: Shapes | None = None,
    size: Sizes | None = None,
    contiguous: bool = True,
    align: int | None = None,
    devices: Literal["one", "any"] = "one",
    stream: Launching | None = None,
) -> Any:
    """Let a function that launches a kernel take tensors of any library.

    A call does what a `borrow` block does, in less time. The function gets each tensor
    as ``give`` says: ``"address"`` an int, ``"pointer"`` a `Pointer`, ``"tensor"`` a
    `Tensor`, both valid until it returns. Tensors are told by their type; other values
    are passed on, and containers are not looked into. If the function has a parameter
    ``stream``, it gets the stream to launch on as an int, 0 if all tensors are on the
    CPU: that of the first tensor's library, or the ``stream`` of the call, as in
    `borrow`. Otherwise ``stream`` of the launcher says which one the function launches
    on: a stream, or a function that is asked at each call. That stream waits for those
    of the tensors before the call, and they wait for it afterwards, also if the
    function raises.

    ``out`` names the parameters whose tensors are written to, by name or position.
    ``contiguous=False`` accepts all strides, which an address does not tell. ``align``
    accepts addresses that are a multiple of as many bytes, a power of two; without it
    elements of a ``dtype`` that is named have to be aligned to their size.

    ``dtype``, ``shape`` and ``size`` say what is accepted of all tensors, or in a dict
    by parameter or a list by position of each; None accepts all, and a tensor beyond a
    list is refused. ``shape`` has a length for each dimension, as in ``"n 3"``: a
    number, or a name, which stands for one length in all tensors of the call. A name
    that an argument has is that argument's value. ``"..."`` stands for any dimensions,
    the same ones wherever it is; ``"same"`` is that alone. ``size`` is how many
    elements, of the tensor's dtype, the kernel touches, as in ``"2*n"``: tensors with
    fewer are refused, those with more are not, as a kernel that takes a count need not
    touch all. Calls with either take 3 to 6 µs more.

    ``devices="any"`` accepts tensors of several devices, and of the CPU with others;
    pinned and managed memory is accepted with every device.

    ``@dlx.launcher`` is a decorator, with and without arguments, also of methods, whose
    ``self`` is passed on. The result shows the attributes of the function.

    Raises ``BufferError`` before the call for tensors that `borrow` would refuse: of
    another dtype, on another device, not row-major, or not known to be writable and in
    ``out``; for another shape or fewer elements; and if nothing says which stream the
    function launches on. Raises ``TypeError`` for a function whose calls do not run it
    (coroutines, generators), for a length that is no int, and for a call that passes
    fewer arguments by position than options name, if the function has no signature.
    Raises ``ValueError`` for options that name no parameter, and a negative length.

        >>> import numpy as np
        >>> from ctypes import c_double
        >>> @dlx.launcher(out="y", dtype="float64", size="n")
        ... def double(x, y, n):
        ...     x, y = ((c_double * n).from_address(each) for each in (x, y))
        ...     for i in range(n):
        ...         y[i] = 2 * x[i]
        >>> y = np.zeros(3)
        >>> double(np.arange(3.0), y, 3)
        >>> y
        array([0., 2., 4.])
    """
    from ._functions.launcher import launched

    def decorate(function: Callable[..., Any]) -> Any:
        accepts = {"dtype": dtype, "shape": shape, "size": size}
        how = give, out, accepts, contiguous, align, devices, stream, Pointer
        return launched(function, *how)

    return decorate if function is None else decorate(function)


class Pointer:
    """The address of a tensor, which it holds, with its dtype and device.

    That is what Triton's kernels take. Made by `as_pointer` and by `launcher` with
    ``give="pointer"``, whose pointers end with the call.

        >>> dlx.Pointer(dlx.empty(3, "int8")).dtype
        dlx.DType('int8')
    """

    __slots__ = {"__weakref__": "", "_tensor": "What it points to."}

    def __init__(self, tensor: Tensor, /) -> None:
        """Hold a tensor."""
        self._tensor = tensor

    def data_ptr(self) -> int:
        """Return ``data_ptr`` of the tensor: the address of the first element.

        Raises ``BufferError`` after the call that the pointer was made for.
        """
        return self._tensor.data_ptr

    @property
    def dtype(self) -> DType:
        """Type of one element; its ``str`` is the name that Triton knows."""
        return self._tensor.dtype

    @property
    def device(self) -> Device:
        """Device that the memory is on."""
        return self._tensor.device

    def __repr__(self) -> str:
        """Show the tensor."""
        return f"dlx.Pointer to {self._tensor!r}"


def as_pointer(x: object, /, stream: _StreamLike | None = None) -> Pointer:
    """Import ``x`` as a `Pointer`, which holds its memory.

    ``stream`` is the one that the pointer will be used on, as in `from_dlpack`; it
    waits for the producer's. The memory goes back when the pointer is gone, and
    ``stream`` is done with it.

    A pointer says nothing of strides, and nothing of memory that must not be written
    to: a kernel that takes one checks neither. `launcher` does, and makes the producer
    wait for what was launched.

    Raises the exceptions of `from_dlpack`.

        >>> import numpy as np
        >>> dlx.as_pointer(np.ones(3))
        dlx.Pointer to dlx.Tensor(float64[3], cpu, [1.0, 1.0, 1.0])
    """
    return Pointer(from_dlpack(x, stream=stream))


def share(
    x: object,
    *,
    copy: bool | None = None,
    readonly: bool = False,
    name: str | None = None,
) -> Handle:
    """Return a handle by which other processes of this host attach the memory of ``x``.

    Memory in a shared mapping is shared as it is: that of `empty` with ``shared=True``
    and of `attach`, of ``multiprocessing.shared_memory``, of torch's
    ``share_memory_()``, of a file mapped by ``np.memmap``. Other memory is copied once;
    ``copy=True`` always copies, ``copy=False`` raises `CopyRefused`, which says what
    memory it is. With ``readonly=True`` the kernel lets nobody else write to it, and to
    a copy nobody at all. ``name`` is what `attach` finds it by (``"shm:NAME"``), by
    processes of this user and until the handle is closed. Linux only.

    Raises ``BufferError`` for memory on a device, ``FileExistsError`` if the name is in
    use, and as `from_dlpack`.

        >>> t = dlx.empty(3, "int8", shared=True)
        >>> with dlx.share(t) as handle:  # bytes(handle) goes to the other process
        ...     dlx.attach(bytes(handle))
        dlx.Tensor(int8[3], cpu, [0, 0, 0])
    """
    made: Handle = _door("share", "share")(x, copy, readonly, name)
    return made


def attach(
    handle: Handle | bytes | str,
    *,
    like: Any = None,
    mode: str | None = None,
    paths: bool = False,
) -> Any:
    """Return the tensor of a handle, here or in another process, without a copy.

    ``handle`` is a `Handle`, its bytes, or ``"shm:NAME"``. ``like`` is what to convert
    the tensor to, as for `convert`; without it, a `Tensor`. ``mode`` is ``"rw"``,
    ``"r"`` or ``"cow"`` (writes stay private); by default what the handle allows. A
    library without read-only tensors gets a private mapping if the memory cannot
    change, else a copy. The tensor keeps the memory alive, also when the handle is
    closed. Bytes that name a file which dlx has not made need ``paths=True``: its
    length can change, and bytes could name what their sender cannot read.

    Raises ``BufferError`` if the memory is gone, not what the handle says, or of
    another host; for ``mode="rw"`` of a read-only handle; and as `convert`.

        >>> import numpy as np
        >>> with dlx.share(np.arange(3.0), readonly=True) as handle:
        ...     dlx.attach(handle).tolist()
        [0.0, 1.0, 2.0]
    """
    return _door("share", "attach")(handle, like, mode, paths)


def trace(*, frames: int = 8, events: str | None = None) -> Trace:
    """Return a context manager that notes who holds memory that passes through dlx.

    Inside the ``with`` block, each import and each export is noted until its memory is
    released, with producer, consumer, bytes, time, thread and ``frames`` Python frames.
    ``print(t)`` shows what is held, ``t.live`` lists it, ``t.assert_released()`` raises
    if there is any. ``events`` names a file that gets one line of JSON for each begin
    and end; if it cannot be written, the trace ends alone, and ``t.error`` says why.

    Noted are `from_dlpack`, `convert`, `from_pointer`, `empty`, ``Tensor.__dlpack__``
    and the exchange tables of dlx, of mixin classes and of published ones. Not noted
    are `bridge`, `borrow` and `launcher`, whose block ends it, `from_buffer`, copies
    that a conversion or ``Tensor.to`` makes, and consumers that read a buffer or an
    array interface: their import stays listed while they hold it.

    Raises ``RuntimeError`` on a free-threaded Python without the GIL.

        >>> import numpy as np
        >>> with dlx.trace() as held:
        ...     t = dlx.from_dlpack(np.ones(3))
        ...     len(held.live)
        1
    """
    made: Trace = _door("check", "trace")(frames=frames, events=events)
    return made


def live() -> list[Held]:
    """Return what the first trace that is on has noted and is held now.

    Raises ``RuntimeError`` if no trace is on: memory that came before left no trace.

        >>> with dlx.trace():
        ...     dlx.live()
        []
    """
    held: list[Held] = _door("check", "live")()
    return held


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if TYPE_CHECKING:
    from ._device_type import DeviceType
elif "enum" in sys.modules:
    # That of the process: dlx may be imported again.
    DeviceType = type(_core.Device("cpu").type)
else:
    # CPython looks up the names of a module with this function more slowly.
    def __getattr__(name: str) -> object:
        """Return ``DeviceType``, which is imported on first use."""
        if name != "DeviceType":
            raise AttributeError(f"module 'dlx' has no attribute '{name}'")
        return type(_core.Device("cpu").type)


if _environ.get("DLX_TRACE"):
    _door("check", "start", "the variable DLX_TRACE")(_environ["DLX_TRACE"])
