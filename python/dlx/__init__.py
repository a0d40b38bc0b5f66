"""Zero-copy tensor exchange between Python array libraries, through DLPack 1.3.

``dlx.from_dlpack`` imports tensors of any library, ``dlx.Tensor`` exports them, and
``dlx.convert`` converts from one library to another.
"""

from __future__ import annotations

import sys

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
    "from_dlpack",
    "from_pointer",
    "inspect",
    "publish",
    "stream",
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


if "enum" in sys.modules:
    from ._core import DeviceType
else:
    # CPython looks up the names of a module with this function more slowly.
    def __getattr__(name: str) -> object:
        """Return ``DeviceType``, which is created on first use."""
        return getattr(_core, name)
