"""Zero-copy tensor exchange between Python array libraries, through DLPack 1.3.

``dlx.from_dlpack`` imports tensors of any library, ``dlx.Tensor`` exports them, and
``dlx.convert`` converts from one library to another.
"""

from __future__ import annotations

import sys
from posix import environ as _environ

from . import _core
from ._bridge import bridge
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
from ._mixin import ArrayInterfaceMixin, ExchangeMixin
from ._tree import convert_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._inspection import Inspection
    from ._tracing import Held, Trace

__all__ = [
    "ArrayInterfaceMixin",
    "CopyRefused",
    "CudaError",
    "DType",
    "Device",
    "DeviceType",
    "ExchangeMixin",
    "Stream",
    "Tensor",
    "__version__",
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
    "live",
    "publish",
    "stream",
    "trace",
    "unpublish",
]


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
    `docs/inspect.md` explains each line.
    """
    from ._inspection import inspect

    return inspect(x, exports=exports)


def trace(*, frames: int = 8, events: str | None = None) -> Trace:
    """Return a context manager that notes who holds memory that passes through dlx.

    Inside the ``with`` block, each import and each export is noted until its memory is
    released, with producer, consumer, bytes, time, thread and ``frames`` Python frames.
    ``print(t)`` shows what is held, ``t.live`` lists it, ``t.assert_released()`` raises
    if there is any. ``events`` names a file that gets one line of JSON for each begin
    and end. Outside of a trace nothing is paid.

    Noted are `from_dlpack`, `convert`, `from_pointer`, `empty`, ``Tensor.__dlpack__``
    and the exchange tables of dlx, of mixin classes and of published ones. Not noted
    are `bridge`, `borrow`, whose block ends it, `from_buffer`, copies that a conversion
    or ``Tensor.to`` makes, and consumers that read a buffer or an array interface:
    their import stays listed while they hold it.

    Raises ``RuntimeError`` on a free-threaded Python without the GIL.
    """
    from ._tracing import trace

    return trace(frames=frames, events=events)


def live() -> list[Held]:
    """Return what the first trace that is on has noted and is held now.

    Raises ``RuntimeError`` if no trace is on: memory that came before left no trace.
    """
    from ._tracing import live

    return live()


if "enum" in sys.modules:
    from ._core import DeviceType
else:
    # CPython looks up the names of a module with this function more slowly.
    def __getattr__(name: str) -> object:
        """Return ``DeviceType``, which is created on first use."""
        return getattr(_core, name)


# `os` may not have been imported, but this is where it gets its variables from.
if b"DLX_TRACE" in _environ:
    from . import _tracing

    _tracing.start(_environ[b"DLX_TRACE"].decode())
