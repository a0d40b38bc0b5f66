"""Zero-copy tensor exchange between Python array libraries, through DLPack 1.3.

``dlx.from_dlpack`` imports tensors of any library, ``dlx.Tensor`` exports them, and
``dlx.convert`` converts from one library to another.
"""

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
    "publish",
    "stream",
    "unpublish",
]


if "enum" in sys.modules:
    from ._core import DeviceType
else:
    # CPython looks up the names of a module with this function more slowly.
    def __getattr__(name: str) -> object:
        """Return ``DeviceType``, which is created on first use."""
        return getattr(_core, name)
