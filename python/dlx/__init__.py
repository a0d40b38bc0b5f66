"""Zero-copy tensor exchange between Python array libraries, through DLPack 1.3.

``dlx.from_dlpack`` reads tensors of any library; ``dlx.Tensor`` hands them on, and
``dlx.convert`` goes from one library to another.
"""

import sys

from . import _core
from ._bridge import bridge
from ._core import (
    CopyRefused,
    Device,
    DType,
    Tensor,
    __version__,
    convert,
    empty,
    exchange_api,
    from_dlpack,
    from_pointer,
    publish,
    unpublish,
)
from ._mixin import ArrayInterfaceMixin, ExchangeMixin
from ._tree import convert_tree

__all__ = [
    "ArrayInterfaceMixin",
    "CopyRefused",
    "DType",
    "Device",
    "DeviceType",
    "ExchangeMixin",
    "Tensor",
    "__version__",
    "bridge",
    "convert",
    "convert_tree",
    "empty",
    "exchange_api",
    "from_dlpack",
    "from_pointer",
    "publish",
    "unpublish",
]


if "enum" in sys.modules:
    from ._core import DeviceType
else:
    # CPython looks up names of a module that has this function more slowly.
    def __getattr__(name: str) -> object:
        """Give ``DeviceType``, which is made when it is first used."""
        return getattr(_core, name)
