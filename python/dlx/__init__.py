"""Zero-copy tensor exchange between Python array libraries, through DLPack 1.3.

``dlx.from_dlpack`` reads tensors of any library; ``dlx.Tensor`` hands them on.
"""

from . import _core
from ._core import (
    CopyRefused,
    Device,
    DType,
    Tensor,
    __version__,
    from_dlpack,
    from_pointer,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._core import DeviceType

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


def __getattr__(name: str) -> object:
    """Give ``DeviceType``, which is made when it is first used."""
    return getattr(_core, name)
