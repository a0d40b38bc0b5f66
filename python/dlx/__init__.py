"""Zero-copy tensor exchange between Python array libraries, through DLPack 1.3.

``dlx.from_dlpack`` reads tensors of any library; ``dlx.Tensor`` hands them on to any other.
"""

from ._core import (
    CopyRefused,
    Device,
    DeviceType,
    DType,
    Tensor,
    __version__,
    from_dlpack,
    from_pointer,
)

__all__ = [
    "CopyRefused",
    "DType",
    "Device",
    "DeviceType",
    "Tensor",
    "__version__",
    "from_dlpack",
    "from_pointer",
]
