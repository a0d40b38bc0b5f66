"""`dlx_share.dask`, where dlx-share is installed: tensors in dask."""

import sys

from . import _door

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dlx_share.dask import *  # noqa: F403

sys.modules[__name__] = _door("share", "dask", "dlx.dask")
